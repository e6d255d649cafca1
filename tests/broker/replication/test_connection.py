"""Connections to other brokers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas_broker.replication.connection import BrokerConnection, BrokerConnections
from barnabas_protocol.messages.api_versions import ApiVersionsRequest

#: Seconds that nothing takes.
PATIENCE = 60.0


class Silent:
    """A broker that reads requests and never answers.

    Attributes:
        address: its host and port.
        requests: set when one has come.
        closed: set when a connection has been closed.
        connections: how many there were.
    """

    def __init__(self) -> None:
        self.address = ("127.0.0.1", 0)
        self.requests = asyncio.Event()
        self.closed = asyncio.Event()
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.read(65536):
                self.requests.set()
        except ConnectionError:
            pass
        self.closed.set()
        writer.close()


@pytest.fixture
async def silent() -> AsyncIterator[Silent]:
    broker = Silent()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.address = server.sockets[0].getsockname()[:2]
    yield broker
    server.close()


async def test_a_request_that_is_given_up_takes_its_connection_with_it(silent: Silent) -> None:
    connections = BrokerConnections("test", lambda node_id: silent.address)
    asking = asyncio.ensure_future(connections.ask(1, ApiVersionsRequest(), 0, PATIENCE))
    async with asyncio.timeout(PATIENCE):
        await silent.requests.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await silent.closed.wait()
        silent.requests.clear()
        again = asyncio.ensure_future(connections.ask(1, ApiVersionsRequest(), 0, PATIENCE))
        await silent.requests.wait()
        assert silent.connections == 2
        await connections.close()
        with pytest.raises(ConnectionError):
            await again


async def test_a_connection_that_the_other_broker_has_closed_is_opened_again() -> None:
    """Brokers close connections that have been idle for connections.max.idle.ms."""
    closed = asyncio.Event()
    server = await start_broker_that_closes(closed)
    address = server.sockets[0].getsockname()[:2]
    connections = BrokerConnections("test", lambda node_id: address)
    async with server, asyncio.timeout(PATIENCE):
        for _ in range(3):
            closed.clear()
            assert await connections.ask(1, ApiVersionsRequest(), 0, PATIENCE)
            await closed.wait()
        await connections.close()


async def start_broker_that_closes(closed: asyncio.Event) -> asyncio.Server:
    """A broker that closes each connection after its first answer, and sets `closed` when the other end has noticed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.write((4).to_bytes(4, "big") + request[4:8])
        await writer.drain()
        writer.write_eof()
        await reader.read()
        writer.close()
        closed.set()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def test_a_connection_that_is_given_up_while_it_is_opened_is_an_error_of_all_that_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other broker has another address meanwhile. It is no cancellation, which would end what asks."""
    opening = asyncio.Event()

    async def never(*arguments: object) -> BrokerConnection:
        opening.set()
        waiting: asyncio.Future[BrokerConnection] = asyncio.get_running_loop().create_future()
        return await waiting

    monkeypatch.setattr(BrokerConnection, "open", never)
    address = ("127.0.0.1", 1)
    connections = BrokerConnections("test", lambda node_id: address)
    async with asyncio.timeout(PATIENCE):
        first = asyncio.ensure_future(connections.ask(1, ApiVersionsRequest(), 0, PATIENCE))
        await opening.wait()
        opening.clear()
        address = ("127.0.0.1", 2)
        second = asyncio.ensure_future(connections.ask(1, ApiVersionsRequest(), 0, PATIENCE))
        await opening.wait()
        with pytest.raises(ConnectionError):
            await first
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await connections.close()
