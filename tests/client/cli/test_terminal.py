"""Output on a terminal: colour, a progress bar, drawing in place."""

import asyncio
import os
import pty
import re
import signal
import sys
from pathlib import Path

import pytest

from barnabas_client import Admin, Producer
from barnabas_client.structs import TopicPartition
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from tests.client.cli.cluster.scripted_cluster import scripted_cluster
from tests.client.cli.conftest import PATIENCE, Cli
from tests.client.real_broker import ONLY_BARNABAS
from tests.client.share_member import share_member
from tests.sampling import slow

pytest.importorskip("rich")


async def on_terminal(
    *argv: str, typed: str = "", interrupt_after: str = "\0", stdin: int | None = None
) -> tuple[int, str]:
    """Run a command on a terminal; its exit status and what is to be seen.

    Args:
        argv: the command and its arguments.
        typed: what is typed on it.
        interrupt_after: the text after which the command gets SIGINT.
        stdin: a descriptor of its standard input, instead of the terminal.
    """
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    seen = bytearray()
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    interrupted = False

    def read() -> None:
        nonlocal interrupted
        try:
            data = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            data = b""
        seen.extend(data)
        # Once: a second signal may find that the command has ended, and would take its exit status from asyncio.
        if interrupt_after.encode() in seen and not interrupted:
            interrupted = True
            process.send_signal(signal.SIGINT)
        if not data:
            loop.remove_reader(ours)
            over.set()

    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "barnabas_client.cli", *argv),
        stdin=theirs if stdin is None else stdin,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    loop.add_reader(ours, read)
    async with asyncio.timeout(PATIENCE):
        await over.wait()
        status = await process.wait()
    os.close(ours)
    return status, seen.decode()


async def test_watch_draws_in_place(cli: Cli, numbers: None) -> None:
    await cli("groups", "reset-offsets", "g", "--to-offset", "1", "-t", "t:0", "--execute")
    status, seen = await on_terminal("groups", "watch", "g", "-n", "2", "-i", "10ms")
    assert status == 0
    assert "\x1b[?1049h" in seen  # the terminal's other screen, and back
    assert "\x1b[?1049l" in seen
    assert "CURRENT-OFFSET" in seen
    assert "4 records behind" in seen


async def test_a_file_has_a_bar_and_a_table_has_colour(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("line\n" * 1_000)
    await cli("topics", "create", "t")
    status, seen = await on_terminal("produce", "t", str(file))
    assert status == 0
    assert "━" in seen
    assert "1,000 records to t in " in seen
    read, write = os.pipe()
    os.write(write, b"line\n" * 1_000)
    os.close(write)
    status, seen = await on_terminal("produce", "t", stdin=read)
    os.close(read)
    assert status == 0
    assert "1,000 records" in seen.partition("to t in")[0]
    status, seen = await on_terminal("groups", "list", "--long")
    assert "\x1b[1mGROUP" in seen


@ONLY_BARNABAS  # Apache Kafka deletes it
@pytest.mark.parametrize(
    ("typed", "end"), [slow(("yes", "nothing was deleted")), (OFFSETS_TOPIC, "is internal and cannot be")]
)
async def test_an_internal_topic_is_deleted_only_if_its_name_is_typed(cli: Cli, typed: str, end: str) -> None:
    """Barnabas refuses it even then."""
    await cli("topics", "create", "t")
    await cli("consume", "t", "-g", "g", "-e")
    status, seen = await on_terminal("topics", "delete", OFFSETS_TOPIC, typed=f"{typed}\n")
    assert status == 1
    assert "It holds the committed offsets of 1 group:" in " ".join(seen.split())
    assert "Type its name to delete it: " in seen
    assert end in seen
    assert OFFSETS_TOPIC in (await cli("topics", "list", "--internal")).lines


@ONLY_BARNABAS
async def test_the_question_ends_at_ctrl_c(cli: Cli) -> None:
    status, seen = await on_terminal("topics", "delete", OFFSETS_TOPIC, interrupt_after="delete it: ")
    assert status == 130
    assert "Traceback" not in seen


async def test_a_search_for_stuck_records_counts_what_it_reads(cli: Cli, numbers: None) -> None:
    async with share_member(cli.address, "queue", "t"):
        pass
    async with Admin(bootstrap_servers=cli.address) as admin:
        await admin.alter_share_group_offsets("queue", {TopicPartition("t", 0): 1})
    status, seen = await on_terminal("shares", "stuck", "queue")
    assert status == 0
    assert re.search(r"Reading [1-9]\d* records", seen), seen


async def test_records_are_escaped_on_a_terminal_and_stay_in_a_pipe(cli: Cli) -> None:
    await cli("topics", "create", "t")
    hostile = "a\tb\x1b[2J\x9b31m\u202e".encode() + b"\xff\nc"
    async with Producer(bootstrap_servers=cli.address) as producer:
        await producer.send_and_wait("t", hostile, key=b"\x1b]0;k\x07", headers=[("\x1bh", b"\x1b")])
    shown = "a\tb\\x1b[2J\\x9b31m\\u202e\\xff\r\nc"
    assert await on_terminal("consume", "t", "--from-beginning", "-e") == (0, f"{shown}\r\n")
    status, seen = await on_terminal("consume", "t", "--from-beginning", "-e", "-f", r"\x1b[1m%k %h\n")
    assert (status, seen) == (0, "\x1b[1m\\x1b]0;k\\x07 \\x1bh=\\x1b\r\n")
    status, seen = await on_terminal("consume", "t", "--from-beginning", "-e", "--json")
    assert seen.removesuffix("\r\n").isprintable()
    for words, expected in (((), hostile + b"\n"), (("-f", "%k"), b"\x1b]0;k\x07")):
        process = await cli.start("consume", "t", "--from-beginning", "-e", *words)
        assert await process.communicate() == (expected, b"")


async def test_a_cluster_is_drawn_in_place_and_moves_have_a_bar(quiet: None) -> None:
    async with scripted_cluster(looks=3) as cluster:
        cluster.replicas = {TopicPartition("t", number): (0, 1) for number in range(100)}
        cluster.isr = dict.fromkeys(cluster.replicas, (0,))
        to = ("-b", cluster.address, "-i", "10ms")
        status, seen = await on_terminal("cluster", "status", "--watch", "-n", "2", *to)
        assert status == 0
        assert "\x1b[?1049h" in seen
        assert "under-replicated" in seen
        assert "more lines" in seen  # the terminal has fewer than there are partitions
        status, seen = await on_terminal("cluster", "rebalance", "t:0,1", "--execute", *to)
        assert status == 0
        assert "copying" in seen
        assert "━" in seen
