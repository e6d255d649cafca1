"""The connections of an HTTP server: how many there may be, and how long they may keep a descriptor."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from barnabas_broker.http import serving
from barnabas_broker.http.responses import send
from barnabas_broker.http.serving import HttpServer
from tests.wire import PATIENCE, until

GET = b"GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class World:
    """A server of `most` connections, with a request that is answered at once, one that waits, and a long response."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.waiting = 0
        self.server: HttpServer
        self.port = 0
        self.clients: list[asyncio.StreamWriter] = []

    async def start(self, most: int) -> None:
        app = web.Application()
        app.router.add_get("/now", self._now)
        app.router.add_get("/wait", self._wait)
        app.router.add_get("/long", self._long)
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.server = HttpServer(app, listener, None, most, "http.max.connections")
        await self.server.start()

    async def _now(self, request: web.Request) -> web.Response:
        return web.Response(text="now")

    async def _wait(self, request: web.Request) -> web.Response:
        self.waiting += 1
        await self.go_on.wait()
        return web.Response(text="later")

    async def _long(self, request: web.Request) -> web.StreamResponse:
        return await send(request, [bytes(1 << 20)] * 64, "text/plain")

    async def connect(self, data: bytes = b"") -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 16)
        self.clients.append(writer)
        writer.write(data)
        return reader, writer


async def answer(client: Client) -> bytes:
    """The body of a short response."""
    async with asyncio.timeout(PATIENCE):
        await client[0].readuntil(b"\r\n\r\n")
        return await client[0].readexactly(3)


async def closed(client: Client) -> bool:
    async with asyncio.timeout(PATIENCE):
        try:
            while await client[0].read(1 << 16):
                pass
        except ConnectionError:
            pass
    return True


@pytest.fixture
async def start() -> AsyncIterator[Callable[[int], Awaitable[World]]]:
    world = World()

    async def start(most: int) -> World:
        await world.start(most)
        return world

    yield start
    world.go_on.set()
    for each in world.clients:
        each.close()
    await world.server.stop()


Start = Callable[[int], Awaitable[World]]


async def test_one_that_is_not_in_use_makes_room(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    world = await start(4)
    busy = await world.connect(GET.replace(b"now", b"wait"))
    await until(lambda: world.waiting == 1)
    silent = await world.connect()
    await until(lambda: world.server.connections == 2)
    slow = await world.connect(GET[:-2])
    await until(lambda: world.server.connections == 3)
    served = await world.connect(GET)
    assert await answer(served) == b"now"
    for gone in silent, slow, served:
        assert await answer(await world.connect(GET)) == b"now"
        assert await closed(gone)
    assert world.server.connections == 4
    assert world.server.traffic.evicted == 3
    assert len(caplog.records) == 1
    world.go_on.set()
    async with asyncio.timeout(PATIENCE):
        assert (await busy[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")


async def test_one_more_is_refused_if_all_are_in_use(start: Start) -> None:
    world = await start(4)
    for _ in range(4):
        await world.connect(GET.replace(b"now", b"wait"))
    await until(lambda: world.waiting == 4)
    assert await closed(await world.connect(GET))
    assert world.server.traffic.refused == 1


@pytest.mark.parametrize("sent", [b"", b"GET", GET[:-2], GET[:-2] + b"X: y\r\n" * 20])
async def test_the_head_of_a_request_has_a_deadline(start: Start, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.05)
    world = await start(4)
    assert await closed(await world.connect(sent))


async def test_a_head_that_arrives_byte_by_byte_gets_no_more_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.2)
    world = await start(4)
    client = await world.connect(GET[:-2])
    ended = asyncio.ensure_future(closed(client))
    while not ended.done():
        client[1].write(b"X: y\r\n")
        await asyncio.wait((ended,), timeout=0.01)
    assert ended.result()


async def test_a_connection_that_is_kept_alive_has_a_deadline(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "IDLE_SECONDS", 0.05)
    world = await start(4)
    client = await world.connect(GET)
    assert await answer(client) == b"now"
    assert await closed(client)


async def test_a_request_that_is_carried_out_has_no_deadline(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(serving, "IDLE_SECONDS", 0.05)
    world = await start(4)
    waiting = await world.connect(GET.replace(b"now", b"wait"))
    await until(lambda: world.waiting == 1)
    assert await closed(await world.connect())
    world.go_on.set()
    async with asyncio.timeout(PATIENCE):
        assert (await waiting[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")


async def test_a_client_that_reads_nothing_is_cut_off(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "STALLED_SECONDS", 0.05)
    world = await start(4)
    await world.connect(GET.replace(b"now", b"long"))
    await until(lambda: world.server.connections == 1)
    await until(lambda: world.server.connections == 0)


async def test_a_stop_closes_connections(start: Start) -> None:
    world = await start(4)
    clients = [await world.connect(each) for each in (b"", GET[:9], GET)]
    assert await answer(clients[2]) == b"now"
    await world.server.stop()
    for each in clients:
        assert await closed(each)
    assert world.server.connections == 0
