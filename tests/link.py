"""A network between two programs: answers can be slow, and it can be cut without closing a connection."""

import asyncio
from contextlib import suppress


class Link:
    """A proxy in front of a port of this machine.

    Args:
        target: the port.

    Attributes:
        port: where it listens.
        seconds: how much later answers arrive.
        target: the port that it is in front of.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        self.seconds = 0.0
        self.target = target
        self._whole = asyncio.Event()
        self._whole.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Pass on nothing from now on, not even that a connection is closed."""
        self._whole.clear()

    async def mend(self) -> None:
        """Pass on what has been waiting, and what comes."""
        self._whole.set()

    async def drop(self) -> None:
        """Pass on nothing of the connections that there are, like a firewall that has forgotten them; new ones work."""
        self._whole.clear()
        self._whole = asyncio.Event()
        self._whole.set()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._whole.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    def _begin(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, whole: asyncio.Event, *, answers: bool
    ) -> None:
        task = asyncio.create_task(self._pass_on(source, target, whole, answers=answers))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        whole = self._whole
        await whole.wait()
        with suppress(OSError):
            from_target, to_target = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.append(to_target)
            self._begin(reader, to_target, whole, answers=False)
            self._begin(from_target, writer, whole, answers=True)

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, whole: asyncio.Event, *, answers: bool
    ) -> None:
        loop = asyncio.get_running_loop()

        def send(data: bytes) -> None:
            if not target.is_closing():
                target.write(data)

        with suppress(OSError):
            while data := await source.read(1 << 16):
                await whole.wait()
                loop.call_later(self.seconds if answers else 0.0, send, data)
        await whole.wait()
        loop.call_later(self.seconds, target.close)
