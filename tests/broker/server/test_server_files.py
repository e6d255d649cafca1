"""Answers that are in files, over real sockets: the kernel sends them."""

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.files import RealFiles
from barnabas_broker.quotas.connections import ConnectionLimits, ConnectionQuotas
from barnabas_broker.quotas.rates import Window
from barnabas_broker.server.connection import Answer, DeferredResponse, Peer
from barnabas_broker.server.memory_pool import Budget
from barnabas_broker.server.refusals import Refusals
from barnabas_broker.server.server import SocketServer
from barnabas_broker.slicer import Slicer
from barnabas_broker.storage.slices import FileSlice, OpenFile
from barnabas_protocol.wire import Buffer
from tests.broker.server.test_server import frame as framed
from tests.wire import until

pytestmark = pytest.mark.broad

#: More than sockets take by themselves.
SIZE = 40_000_000
BOUND = 30.0


class Broker:
    """Answers b"file" with a stretch of the file, anything else with itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("wb") as file:
            for n in range(SIZE // 100):
                file.write(b"%0100d" % n)
        quotas, slicer = ConnectionQuotas(ConnectionLimits(), Window()), Slicer(time.monotonic)
        self.server = SocketServer(Config(BROKER_KEYS, {}), self, lambda: 0.0, Refusals(), Budget(-1), quotas, slicer)
        self.parts: list[FileSlice] = []

    def __call__(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
        if bytes(frame) != b"file":
            return [b"<", bytes(frame), b">"]
        files = RealFiles()
        file = OpenFile(files, files.open(self.path))
        self.parts = [FileSlice(file, at, SIZE // 4) for at in range(0, SIZE, SIZE // 4)]
        answer: Answer = [b"head", *self.parts[:2], b"between", *self.parts[2:], b"tail"]
        return answer

    @property
    def left(self) -> int:
        return sum(map(len, self.parts))

    def expected(self) -> bytes:
        data = self.path.read_bytes()
        return b"head" + data[: SIZE // 2] + b"between" + data[SIZE // 2 :] + b"tail"


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[tuple[Broker, asyncio.StreamReader, asyncio.StreamWriter]]:
    broker = Broker(path / "segment")
    listener = socket.create_server(("127.0.0.1", 0))
    await broker.server.listen(listener)
    # The reader takes nothing before it is asked for something, but what it keeps ready.
    reader, writer = await asyncio.open_connection(*listener.getsockname()[:2], limit=64 * 1024)
    try:
        async with asyncio.timeout(BOUND):
            yield broker, reader, writer
    finally:
        writer.close()
        await broker.server.stop(1.0)


def descriptors() -> set[int]:
    """Those of this process that are open."""
    found = set()
    for number in range(1024):
        with contextlib.suppress(OSError):
            os.fstat(number)
            found.add(number)
    return found


async def test_it_arrives_whole_and_in_order(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, reader, writer):
        writer.write(framed(b"a") + framed(b"file") + framed(b"b") + framed(b"file") + framed(b"c"))
        expected = b"<a>" + broker.expected() + b"<b>" + broker.expected() + b"<c>"
        assert await reader.readexactly(len(expected)) == expected


async def test_without_a_descriptor_for_it_the_transport_sends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async with connected(tmp_path) as (broker, reader, writer):
        monkeypatch.setattr(os, "dup", none_left)
        writer.write(framed(b"file") + framed(b"c"))
        expected = broker.expected() + b"<c>"
        assert await reader.readexactly(len(expected)) == expected


async def test_it_is_sent_by_the_transport_when_others_have_the_second_descriptors(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, reader, writer):
        broker.server.direct.add(broker.server.direct.left)
        writer.write(framed(b"file") + framed(b"c"))
        expected = broker.expected() + b"<c>"
        assert await reader.readexactly(len(expected)) == expected
        assert broker.server.direct.left == 0


async def test_the_second_descriptor_is_closed_with_the_response(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, reader, writer):
        left = broker.server.direct.left
        before = descriptors()
        writer.write(framed(b"file"))
        assert await reader.readexactly(4) == b"head"
        (connection,) = broker.server._connections
        await until(lambda: not connection._writable)
        assert broker.server.direct.left == left - 1
        rest = broker.expected()[4:]
        assert await reader.readexactly(len(rest)) == rest
        await until(lambda: broker.server.direct.left == left)
        broker.parts.clear()
        assert descriptors() == before


async def test_a_peer_that_does_not_read_leaves_it_in_the_file(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, reader, writer):
        writer.write(framed(b"file"))
        assert await reader.readexactly(4) == b"head"
        (connection,) = broker.server._connections
        await until(lambda: not connection._writable)
        assert connection.busy
        assert broker.left > SIZE // 4
        rest = broker.expected()[4:]
        assert await reader.readexactly(len(rest)) == rest


async def test_others_are_answered_meanwhile(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, reader, writer):
        writer.write(framed(b"file"))
        assert await reader.readexactly(4) == b"head"
        address = writer.get_extra_info("peername")
        other_reader, other = await asyncio.open_connection(*address[:2])
        other.write(framed(b"ping"))
        assert await other_reader.readexactly(6) == b"<ping>"
        assert broker.left
        other.close()


async def test_a_peer_that_goes_away_leaves_nothing_behind(tmp_path: Path) -> None:
    before = descriptors()
    async with connected(tmp_path) as (broker, reader, writer):
        writer.write(framed(b"file"))
        assert await reader.readexactly(4) == b"head"
        writer.transport.abort()
        await until(lambda: not broker.server.connections)
        broker.parts.clear()
    assert descriptors() <= before


async def test_a_file_that_was_cut_ends_the_connection(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, reader, writer):
        writer.write(framed(b"file"))
        assert await reader.readexactly(4) == b"head"
        os.truncate(broker.path, SIZE - 10)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await reader.readexactly(len(broker.expected()))
        writer.write(framed(b"late"))


async def test_a_peer_that_says_no_more_gets_it_all(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, reader, writer):
        writer.write(framed(b"file"))
        writer.write_eof()
        assert await reader.read(-1) == broker.expected()
