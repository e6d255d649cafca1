"""The `broker` command as a process: start it, wait for a line of its log, stop it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.wire import PATIENCE

StartCommand = Callable[..., Awaitable[asyncio.subprocess.Process]]


async def start(
    data: Path, *flags: str, stdout: int = subprocess.PIPE, prepare: Callable[[], object] | None = None
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "barnabas_broker", "--port", "0", "--data-dir", str(data), *flags),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        preexec_fn=prepare,
        env={key: value for key, value in os.environ.items() if not key.startswith("KAFKA_")},
    )


async def logged(process: asyncio.subprocess.Process, event: str) -> str:
    """The next line of the log with this event."""
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE):
        async for line in process.stderr:
            if f"] {event} " in line.decode():
                return line.decode().strip()
    raise AssertionError(f"the log ended without {event!r}")


async def stop(process: asyncio.subprocess.Process, number: signal.Signals = signal.SIGTERM) -> tuple[int | None, str]:
    """Exit status, and the rest of the log."""
    process.send_signal(number)
    async with asyncio.timeout(PATIENCE):
        _, err = await process.communicate()
    return process.returncode, err.decode()
