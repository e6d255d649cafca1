"""Output on a terminal: colour, a progress bar, drawing in place."""

import asyncio
import os
import pty
import sys
from pathlib import Path

import pytest

from tests.client.cli.conftest import PATIENCE, Cli

pytest.importorskip("rich")


async def on_terminal(*argv: str) -> tuple[int, str]:
    """Run a command on a terminal; its exit status and what is to be seen."""
    ours, theirs = pty.openpty()
    seen = bytearray()
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def read() -> None:
        try:
            data = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            data = b""
        seen.extend(data)
        if not data:
            loop.remove_reader(ours)
            over.set()

    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "barnabas_client.cli", *argv),
        stdin=theirs,
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
    status, seen = await on_terminal("groups", "list", "--long")
    assert "\x1b[1mGROUP" in seen
