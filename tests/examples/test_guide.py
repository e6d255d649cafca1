"""The programs of docs/guide, each run in its own process, print the output that the page shows.

The page must also show what they print to standard error. All pages use the same broker, as a reader does.
"""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas_broker.testing import Broker
from tests.interop import process
from tests.sampling import slow_but_each

pytestmark = pytest.mark.programs

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
PAGES = sorted(GUIDE.glob("*.md"))
LIMIT = 60.0


class Program(NamedTuple):
    """A block of code, its expected output, and whether it runs until Ctrl-C."""

    line: int
    code: str
    prints: str
    endless: bool


def programs(page: str) -> list[Program]:
    blocks = re.finditer(
        r"^```python( ctrl-c)?\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", page, re.MULTILINE | re.DOTALL
    )
    return [
        Program(page.count("\n", 0, block.start()) + 2, block[2], block[3] or "", block[1] is not None)
        for block in blocks
    ]


def run(program: Program, folder: Path) -> tuple[str, str, int]:
    """Run a program; return its stdout, stderr and exit status. A program without end is interrupted before its last
    output."""
    command = [sys.executable, "-u", "-W", "error", "-c", program.code]
    # The program may write files: it has a folder of its own.
    started = process.spawn(
        [
            sys.executable,
            "-c",
            f"import os, sys; os.chdir({str(folder)!r}); {process.HEAR_CTRL_C}; os.execv(sys.argv[1], sys.argv[1:])",
            *command,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    timer = threading.Timer(LIMIT, started.kill)
    timer.start()
    try:
        out = ""
        if program.endless:
            assert started.stdout is not None
            expected = program.prints.splitlines(keepends=True)
            # A program may print more when it ends.
            said = expected[:-1] if re.search("add_signal_handler|finally:", program.code) else expected
            while out != "".join(said) and (line := started.stdout.readline()):
                out += line
            started.send_signal(signal.SIGINT)
        rest, errors = started.communicate()
    finally:
        timer.cancel()
        process.end(started, 0)
        for stream in (started.stdout, started.stderr):
            if stream is not None:
                stream.close()
    return out + rest, errors, started.returncode


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=False) as one:
        yield one


@pytest.mark.parametrize("page", slow_but_each(2, PAGES), ids=lambda page: page.stem)
def test_programs_print_what_the_page_shows(broker: Broker, page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    code = text.replace("localhost:9092", broker.bootstrap_servers)
    if "localhost:8081" in text:
        code = code.replace("http://localhost:8081", broker.serve_schema_registry())
    for program in programs(code):
        where = f"{page.name}, line {program.line}"
        printed, errors, status = run(program, tmp_path)
        assert printed == program.prints, f"{where}: {errors}"
        interrupted = program.endless and "add_signal_handler" not in program.code
        assert status == (130 if interrupted else 0), f"{where}: {errors}"
        assert all(line in text.splitlines() for line in errors.splitlines()), f"{where}: {errors}"


def test_no_two_pages_write_to_the_same_topic() -> None:
    seen: dict[str, str] = {}
    for page in (GUIDE.parents[1] / "README.md", *PAGES):
        text = page.read_text("utf-8")
        for topic in sorted(set(re.findall(r'\.send(?:_and_wait)?\(\s*"([^"]+)"', text))):
            assert seen.setdefault(topic, page.name) == page.name, topic
    assert len(seen) > 8


def test_the_index_is_complete_and_no_link_is_broken() -> None:
    linked = set()
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            if not link.startswith("http"):
                target = (page.parent / link).resolve()
                assert target.exists(), f"{page.name}: {link}"
                if page.name == "README.md":
                    linked.add(target)
    assert {page.resolve() for page in PAGES} - linked == {(GUIDE / "README.md").resolve()}
