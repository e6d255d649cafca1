"""The process of a test's broker: commands on stdin, replies on stdout, one JSON object a line.

It ends on the command ``end``, at the end of stdin, and when its parent has ended (a fork of the parent may keep the
pipe open).
"""

import asyncio
import gc
import json
import os
import shutil
import signal
import sys
from typing import Any, Final

import uvloop

from barnabas_broker import logs
from barnabas_broker.periodic import PeriodicTimer
from barnabas_broker.testing.host import BrokerHost
from barnabas_broker.testing.link import Command

#: Seconds between two checks whether the parent runs.
_WATCH_SECONDS: Final = 1.0
#: Maximum bytes of a command.
_MOST_BYTES: Final = 64 * 1024 * 1024


async def _serve(replies: int, parent: int) -> None:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader(limit=_MOST_BYTES)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin.buffer)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, commands.feed_eof)

    def watch() -> None:
        if os.getppid() != parent:
            watching.cancel()
            commands.feed_eof()

    host = BrokerHost()
    doing: set[asyncio.Task[None]] = set()

    async def do(command: Command) -> None:
        reply = await host.handle(command)
        _write(replies, {"id": command["id"], **reply})

    watching = PeriodicTimer(_WATCH_SECONDS, watch)
    while line := await commands.readline():
        command: Command = json.loads(line)
        if command["do"] == "end":
            break
        task = loop.create_task(do(command))
        doing.add(task)
        task.add_done_callback(doing.discard)
        if command["do"] == "start":
            await asyncio.wait([task])
            gc.collect()
            gc.freeze()  # what exists now stays: collections need not look at it again
    watching.cancel()
    transport.close()
    await host.stop()


def _write(fd: int, reply: dict[str, Any]) -> None:
    data = memoryview(json.dumps(reply).encode() + b"\n")
    try:
        while data:
            data = data[os.write(fd, data) :]
    except BrokenPipeError:
        pass  # the parent has ended; this process ends next


def main() -> None:
    """Run until the end of the commands. Arguments: the parent's process id, and a folder to remove if it has ended."""
    parent, folder = int(sys.argv[1]), sys.argv[2]
    logs.configure("console", "warning")
    replies = os.dup(1)
    os.dup2(2, 1)  # so that nothing that is printed is read as a reply
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(replies, parent))
    finally:
        if folder and os.getppid() != parent:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
