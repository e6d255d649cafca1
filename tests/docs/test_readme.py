"""The blocks of README.md, pasted into terminals as they stand, in their order, in a fresh copy of the repository."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas_protocol.apis import APIS
from barnabas_protocol.registry import ApiKey
from tests.docs.reader import ROOT, Terminal, blocks, clone, comparable, install
from tests.needs import missing

PORT = 9092
PAGE = (ROOT / "README.md").read_text("utf-8")


def network() -> int:
    """The network for the first terminal: one of its own if possible, because the README uses a fixed port."""
    if sys.platform == "linux" and os.geteuid() == 0:
        return 0
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", PORT))
        except OSError:
            missing(f"port {PORT} is in use: stop what uses it, or run the tests as root on Linux")
    return -1


@pytest.mark.programs
@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["linked", "installed"])
@pytest.mark.timeout(600)
def test_a_reader_gets_what_the_page_shows(tmp_path: Path, fresh: bool) -> None:
    folder = clone(tmp_path / "barnabas")
    if fresh:  # needs the machine's network
        command = ["make", "--no-print-directory", ".venv/.run"]
        subprocess.run(command, cwd=folder, check=True, timeout=500)
    else:
        install(folder)
    page = (folder / "README.md").read_text("utf-8")
    start, *others = blocks(page[: page.index("## More commands")])
    assert len(others) == 4
    where = network()
    with Terminal(folder, tmp_path, where) as first:
        first.paste(start.text)
        # Lines of the log stand between them.
        first.until(re.compile(".*".join(map(re.escape, start.prints.splitlines())), re.DOTALL))
        with Terminal(folder, tmp_path, first.pid if where == 0 else where) as second:
            for block in others:
                printed, status = second.run(block)
                assert "Traceback" not in printed, f"{block.text}\n{printed}"
                assert status in ((0, 130) if block.endless else (0,)), f"{block.text}\n{printed}"
                assert comparable(printed) == comparable(block.prints), block.text
        first.interrupt()
        first.until(re.compile(r"<\d+>% "))
        assert "Traceback" not in first.seen


def test_every_block_is_run() -> None:
    """The one about Spark by tests/pipeline/test_readme.py; those about clusters are commands of the Makefile."""
    kinds = re.findall(r"^```([^\n]*)\n.*?^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert set(kinds) == {"sh", "sh ctrl-c", "text", ""}
    assert len(blocks(PAGE)) == 6


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, "KIP-848"),
        (ApiKey.SHARE_GROUP_HEARTBEAT, "KIP-932"),
        (ApiKey.STREAMS_GROUP_HEARTBEAT, "KIP-1071"),
    ],
)
def test_the_list_of_what_is_missing_is_true(key: ApiKey, words: str) -> None:
    assert (words in section(PAGE, "What it does not do")) is (key not in APIS)


def test_what_security_lacks_is_on_its_page() -> None:
    page = (ROOT / "docs" / "security.md").read_text("utf-8")
    lacks = section(page, "Differences from Apache Kafka")
    assert ("delegation tokens are missing" in lacks) is (ApiKey.CREATE_DELEGATION_TOKEN not in APIS)
    assert "GSSAPI" in lacks
    # The list on the first page has no line about it.
    for word in ("GSSAPI", "delegation", "SASL", "TLS", "ACL", "quota"):
        assert word not in section(PAGE, "What it does not do")


def section(page: str, title: str) -> str:
    return page.partition(f"## {title}")[2].partition("\n## ")[0]
