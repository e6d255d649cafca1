"""The documentation site, built as ``make docs`` does: without a warning, without the network, with every option."""

import dataclasses
import inspect
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

import barnabas
import barnabas.testing
from barnabas import Admin, Consumer, Producer
from barnabas.testing import Broker
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.options import KNOWN
from tests.needs import missing

ROOT: Final = Path(__file__).parents[2]

#: Seconds that the site may take to be built: 280 were too few beside seven workers and other programs.
BUILD_SECONDS = 900
pytestmark = [pytest.mark.programs, pytest.mark.together, pytest.mark.timeout(BUILD_SECONDS + 60)]


class Page(HTMLParser):
    """What a page loads, where it links to, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loads.append(given["src"])
        elif tag == "link" and given.get("rel") not in ("index", "search", "next", "prev", "canonical"):
            self.loads.append(given["href"])
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--conf-dir", "docs"]
    command += ["--doctree-dir", str(folder / "doctrees"), ".", str(folder / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}


def test_no_page_loads_anything_from_the_network(site: Path, pages: dict[Path, Page]) -> None:
    assert [(path.name, what) for path, page in pages.items() for what in page.loads if "//" in what] == []
    for sheet in site.rglob("*.css"):
        loaded = re.findall(r"@import[^;]*|url\([^)]*\)", sheet.read_text("utf-8"))
        assert [what for what in loaded if "//" in what and "data:" not in what] == [], sheet


def test_every_link_and_every_image_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    dead = []
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            if re.match(r"[a-z]+:", link):
                continue
            where, _, anchor = unquote(link).partition("#")
            target = (path.parent / where.partition("?")[0]).resolve() if where else path
            known = pages.get(target)
            if not target.is_file() or (anchor and known is not None and anchor not in known.anchors):
                dead.append((path.relative_to(site).as_posix(), link))
    assert dead == []


def test_the_site_begins_with_the_readme(site: Path) -> None:
    begins = Page(site / "index.html")
    assert "docs/guide/README.html" in begins.links
    assert "<h1>Barnabas" in (site / "index.html").read_text("utf-8")


def test_the_overview_for_language_models_names_every_page(site: Path) -> None:
    lines = (site / "llms.txt").read_text("utf-8").splitlines()
    assert lines[0].startswith("# Barnabas ")
    linked = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S.+$", "\n".join(lines), re.MULTILINE)
    assert len(linked) == len([line for line in lines if line.startswith("- ")])
    assert [page for page in linked if not (site / page).is_file()] == []
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html") if "_static" not in path.parts}
    assert pages - set(linked) == {"README.html", "index.html", "genindex.html", "search.html", "py-modindex.html"}


def test_the_search_finds_the_guide_before_the_changes(site: Path) -> None:
    node = shutil.which("node")
    if node is None:
        missing("node is not installed: apt install nodejs", on_this_machine=False)
    queries = ["dead letter", "commit", "exactly once", "install", "pytest", "retention"]
    command = [node, str(ROOT / "tests" / "docs" / "search.js"), str(site), *queries]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = dict(zip(queries, json.loads(done.stdout), strict=True))
    assert found["dead letter"][0].startswith("docs/guide/")
    assert found["commit"][0].startswith("docs/guide/")
    assert found["exactly once"][0] == "docs/guide/exactly-once"
    assert found["install"][0] == "docs/install"
    assert found["retention"][0] == "docs/storage"
    for query, pages in found.items():
        assert {"CHANGELOG", "docs/benchmarks"}.isdisjoint(pages[:3]), query
    assert any("CHANGELOG" in pages for pages in found.values()), "it is found, after the others"


def test_the_search_finds_an_option(site: Path) -> None:
    index = (site / "searchindex.js").read_text("utf-8")
    assert index.startswith("Search.setIndex(")
    assert "session_timeout_m" in index  # words are stored by their stem


@pytest.mark.parametrize("owner", [Consumer, Producer, Admin, Broker])
def test_the_reference_has_every_option(site: Path, owner: type) -> None:
    text = "".join(page.read_text("utf-8") for page in (site / "docs" / "reference").glob("*.html"))
    names = [name for name in inspect.signature(owner).parameters if name not in ("args", "kwargs")]
    assert names
    assert [name for name in names if f"<strong>{name}</strong>" not in text] == []


def test_the_reference_has_every_option_of_the_spark_source(site: Path) -> None:
    text = (site / "docs" / "reference" / "spark.html").read_text("utf-8")
    names = [*KNOWN, *(field.name for field in dataclasses.fields(Settings))]
    assert [name for name in names if f"<strong>{name}</strong>" not in text] == []


def test_the_reference_has_every_option_of_the_pytest_plugin(site: Path) -> None:
    text = (site / "docs" / "reference" / "testing.html").read_text("utf-8")
    plugin = (ROOT / "broker" / "barnabas_broker" / "pytest_plugin.py").read_text("utf-8")
    names = re.findall(r'(?:addini|addoption)\(\s*"([\w-]+)"', plugin)
    assert len(names) == 6
    assert [name for name in names if name not in text] == []


def test_the_reference_has_every_public_name(pages: dict[Path, Page]) -> None:
    anchors = {anchor for page in pages.values() for anchor in page.anchors}
    names = [f"barnabas.{name}" for name in barnabas.__all__ if name not in ("errors", "ErrorCode", "KafkaError")]
    names += [f"barnabas.errors.{name}" for name in barnabas.errors.__all__]
    names += [f"barnabas.testing.{name}" for name in barnabas.testing.__all__]
    assert [name for name in names if name not in anchors] == []
