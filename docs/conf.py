"""The documentation site: Sphinx reads the Markdown pages as they are, and the docstrings. ``make docs`` builds it.

The source folder is the project's, not ``docs/``: relative links between README.md, docs/ and examples/ work here as
on a repository's pages. Nothing is loaded from the network, neither by the build nor by the pages.
"""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Generic, get_origin

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

from barnabas_protocol.version import VERSION

ROOT = Path(__file__).parents[1]
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

project = "Barnabas"
author = "Barnabas contributors"
copyright = author
release = VERSION

root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**", "examples/README.md", "tests/*.md"]
# Sphinx walks twice through all folders that these do not name: environments and caches have thousands of files.
exclude_patterns = ["docs/_*", ".*", "build", "tests/*/*"]

#: The sidebar. A page that is missing here is a warning, and a warning ends the build.
NAVIGATION = {
    "Guide": [
        "docs/install",
        "docs/guide/README",
        "docs/guide/consume",
        "docs/guide/produce",
        "docs/guide/parallel",
        "docs/guide/queues",
        "docs/guide/exactly-once",
        "docs/guide/schema-registry",
        "docs/guide/sync",
        "docs/guide/tables",
        "docs/guide/tracing",
        "docs/guide/migrate",
        "docs/testing",
        "examples/README",
    ],
    "Broker": [
        "docs/command-line",
        "docs/configuration",
        "docs/init",
        "docs/operating",
        "docs/helm",
        "docs/observing",
        "docs/console",
        "docs/security",
        "docs/storage",
        "docs/robustness",
        "docs/cluster",
        "docs/compatibility",
    ],
    "Spark": ["docs/spark", "docs/pipelines"],
    "Reference": [
        "docs/reference/consumer",
        "docs/reference/shares",
        "docs/reference/producer",
        "docs/reference/admin",
        "docs/reference/sync",
        "docs/reference/tables",
        "docs/reference/tracing",
        "docs/reference/types",
        "docs/reference/assignors",
        "docs/reference/errors",
        "docs/reference/testing",
        "docs/reference/spark",
    ],
    "Project": ["docs/architecture", "docs/benchmarks", "CHANGELOG", "CONTRIBUTING", "tests/README", "tests/SOURCES"],
}

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]

myst_heading_anchors = 4
# A default such as "latest" is copied into programs: with straight quotes.
smartquotes = False

# Docstrings write `name` for a name: it becomes a link where the reference has that name, and code elsewhere.
default_role = "py:obj"
nitpicky = True
# What the reference does not have: names in single backticks, modules, Python's own classes.
nitpick_ignore_regex = [
    ("py:obj", ".*"),
    ("py:mod", ".*"),
    ("py:class", r"(?!barnabas).*"),
    ("py:exc", r"(?!barnabas).*"),
    ("py:class", r"barnabas_broker\.testing\.link\.Target"),
    ("py:class", r"barnabas_client\..*\.[KVW]"),
    ("py:class", r"barnabas_client\.producer\.(receipts\.T|delivery\.Delivery)"),
    ("py:class", r"barnabas_client\.(program\.T|sync\.R|consumer\.parallel\.config\.(RunSettings|DeadLetterProducer))"),
    ("py:class", r"barnabas_client\.tokens\.TokenProvider"),
    ("py:class", r"barnabas_client\.shares\.records\.Holder"),
    ("py:data", "TEST_DEFAULTS"),
    ("py:meth", r"(Consumer|Producer)\.metrics"),
]
# The reference needs the extra `docs` only.
autodoc_mock_imports = ["matplotlib", "numpy", "pandas", "pyarrow", "pyspark", "pytest"]
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Options", "params_style"), ("Markers", "params_style")]
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

highlight_language = "none"
pygments_style = "friendly"
pygments_dark_style = "native"

html_theme = "furo"
html_title = f"Barnabas {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs" / "_scorer.js")
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sphinx = False
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True


def _add_navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the sidebar to the landing page, README.md, which package indexes show without it."""
    if docname == root_doc:
        trees = (
            f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```"
            for caption, pages in NAVIGATION.items()
        )
        source[0] += "\n" + "\n\n".join(trees) + "\n"


def _add_index(app: Sphinx, error: Exception | None) -> None:
    """Write the landing page where web servers look for it."""
    if error is None and app.builder.name == "html":
        shutil.copyfile(app.outdir / "README.html", app.outdir / "index.html")


def _add_overview(app: Sphinx, error: Exception | None) -> None:
    """Write llms.txt, which names all pages with their subjects for language models: https://llmstxt.org.

    The subject of a page is what README.md says of it, or its first sentence.
    """
    if error is not None or app.builder.name != "html":
        return
    readme = (ROOT / "README.md").read_text("utf-8")
    subjects = dict(re.findall(r"^- \[[^\]]+\]\(([\w/-]+)\.md\)[:,] (.+)$", readme, re.MULTILINE))
    lines = [f"# {project} {release}", "", f"> {_PROJECT['description']}."]
    for caption, pages in NAVIGATION.items():
        lines += ["", f"## {caption}", ""]
        for page in pages:
            if (subject := subjects.get(page)) is None:
                paragraph = next(app.env.get_doctree(page).findall(nodes.paragraph))
                subject = paragraph.astext().replace("\n", " ").partition(". ")[0].rstrip(".:")
            lines.append(f"- [{app.env.titles[page].astext()}]({page}.html): {subject}")
    (app.outdir / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")


def _skip_fields(app: Sphinx, what: str, name: str, item: object, skip: bool, options: object) -> bool | None:
    """Leave out the fields of named tuples: the signature has them, and `Attributes:` describes them."""
    return True if type(item).__name__ == "_tuplegetter" else None


def _show_public_bases(app: Sphinx, name: str, item: object, options: object, bases: list[type]) -> None:
    """Show the bases of a private base in its place."""
    classes = [get_origin(base) or base for base in bases]
    shown = [public for one in classes for public in (one.__bases__ if one.__name__.startswith("_") else (one,))]
    bases[:] = [object if one is Generic else one for one in shown]


def setup(app: Sphinx) -> None:
    """Connect the hooks above, and show fences of the language ``log`` as text."""
    app.add_lexer("log", TextLexer)
    app.connect("autodoc-skip-member", _skip_fields)
    app.connect("autodoc-process-bases", _show_public_bases)
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _add_index)
    app.connect("build-finished", _add_overview)
