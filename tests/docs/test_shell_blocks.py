"""The shell blocks of all pages can be pasted into bash and zsh.

In an interactive zsh, ``#`` does not begin a comment: what follows is an argument. A pattern that matches no file ends
the command with an error.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.reader import ROOT

PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "tests/README.md", ROOT / "examples/README.md")
)
#: Blocks without a language are commands as well, unless they look like an output.
_BLOCK = re.compile(
    r"^( *)```(sh|bash|shell|console|)(?: ctrl-c)?\n(.*?)^ *```$|^ *```\S.*?^ *```$", re.MULTILINE | re.DOTALL
)
_COMMAND = re.compile(
    r"\s*(?:sudo |[A-Z_]+=\S+ )*(?:\.venv/bin/)?"
    r"(barnabas|barnabas-pipeline|broker|cp|curl|docker|export|git|kcat|make|openssl|pip|pipx|pytest|python|source|systemctl|uv|uvx|\.)\b"
)


def commands(page: str) -> Iterator[tuple[str, int]]:
    """The lines of commands in the shell blocks of a page, with their numbers, without here-documents."""
    for block in _BLOCK.finditer(page):
        if block[3] is None or not (block[2] or _COMMAND.match(block[3])):
            continue
        first = page.count("\n", 0, block.start(3)) + 1
        ends = None
        for number, line in enumerate(block[3].splitlines(), first):
            if ends is not None:
                ends = None if line.strip() == ends else ends
                continue
            here = re.search(r"<<-?'?(\w+)'?", line)
            ends = here[1] if here else None
            yield line, number


def unquoted(line: str) -> str:
    """A line without what is in quotes, or behind a backslash."""
    return re.sub(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", "", line)


def faults(page: str) -> list[str]:
    """The lines that zsh does not run as bash does."""
    found = []
    for line, number in commands(page):
        plain = unquoted(line)
        if re.search(r"(^|\s)#", plain):
            found.append(f"{number}: {line.strip()}: a comment is an argument")
        elif re.search(r"\S\[|[*?]", re.sub(r"\$\{[^}]*\}|\[\[ | \]\]|\$\?", "", plain)) and _COMMAND.match(line):
            found.append(f"{number}: {line.strip()}: a pattern that matches no file is an error")
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_zsh_runs_the_blocks_as_bash_does(path: Path) -> None:
    assert faults(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        ("```\nmake run   # a broker\n```\n", "2: make run   # a broker: a comment is an argument"),
        ("```sh\n# first\nmake run\n```\n", "2: # first: a comment is an argument"),
        (
            "```\npip install barnabas[cli]\n```\n",
            "2: pip install barnabas[cli]: a pattern that matches no file is an error",
        ),
        ("```\npip install 'barnabas[cli]'\n```\n", None),
        (
            "```sh\npython <<'END'\nx = [1]  # Python\nEND\nmake run # x\n```\n",
            "5: make run # x: a comment is an argument",
        ),
        ("```python\nx = 1  # Python\n```\n", None),
        ("```text\n# a table\n```\n", None),
        ("```\ncurl 'http://localhost:9308/groups?x=1'\n```\n", None),
    ],
)
def test_the_check_finds(block: str, fault: str | None) -> None:
    assert faults(block) == ([fault] if fault else [])
