"""Limits of connections over real sockets: what is over them is closed, or waits."""

import asyncio
import logging
import time
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError
from barnabas_broker.metrics import Traffic
from barnabas_broker.server import acceptor
from barnabas_broker.server.acceptor import RefusedConnections
from barnabas_broker.server.server import connection_limits
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.conftest import StartBroker
from tests.broker.handlers.test_quotas import set_quota, until
from tests.wire import Wire

ASK = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def refused(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [record.msg for record in caplog.records if record.levelno >= logging.WARNING]  # type: ignore[misc]
    return [line for line in lines if line["event"].startswith("connection")]


async def served(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a new connection is served. It is closed again."""
    async with await Wire.connect(port, host) as wire:
        wire.send(ASK, 3)
        try:
            await wire.frame()
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
    return True


def port_of(broker: BrokerServer, name: str) -> int:
    return next(each.port for each in broker.listeners if each.name == name)


async def test_connections_over_the_limit_are_refused(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker(max_connections="1")
    async with await Wire.connect(broker.port) as first:
        await first.ask(ASK, 3, ApiVersionsResponse)
        for _ in range(20):
            assert not await served(broker.port)
        await first.ask(ASK, 3, ApiVersionsResponse)
    (line,) = refused(caplog)
    assert (line["event"], line["reason"]) == ("connection refused", "max.connections=1")
    assert broker.server.traffic.refused == 20
    await until(lambda: not broker.server.connections)
    assert await served(broker.port)


async def test_connections_from_one_address(start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker = await start_broker(
        **{
            "listeners": "PLAINTEXT://0.0.0.0:0",
            "max.connections.per.ip": "1",
            "max.connections.per.ip.overrides": "127.0.0.2:2,127.0.0.3:0",
        }
    )

    async def connect(source: str) -> Wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, local_addr=(source, 0))
        return Wire(reader, writer)

    for source, most in (("127.0.0.1", 1), ("127.0.0.2", 2), ("127.0.0.3", 0)):
        open_ones = [await connect(source) for _ in range(most)]
        for each in open_ones:
            await each.ask(ASK, 3, ApiVersionsResponse)
        async with await connect(source) as over:
            assert await over.closed()
        for each in open_ones:
            await each.close()
    reasons = [line["reason"] for line in refused(caplog)]
    assert reasons == [f"max.connections.per.ip={most}" for most in (1, 2, 0)]


async def test_a_listener_of_brokers_has_no_part_in_the_limit(start_broker: StartBroker) -> None:
    broker = await start_broker(
        **{
            "listeners": "PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
            "inter.broker.listener.name": "INNER",
            "max.connections": "2",
            "listener.name.inner.max.connections": "3",
        }
    )
    outer, inner = port_of(broker, "PLAINTEXT"), port_of(broker, "INNER")
    clients = [await Wire.connect(outer) for _ in range(2)]
    for each in clients:
        await each.ask(ASK, 3, ApiVersionsResponse)
    await clients[0].ask(ASK, 3, ApiVersionsResponse)
    async with await Wire.connect(inner) as of_broker:
        await of_broker.ask(ASK, 3, ApiVersionsResponse)
        # The client that was silent for longest makes room.
        assert await clients[1].closed()
        await clients[0].ask(ASK, 3, ApiVersionsResponse)
        more = [await Wire.connect(inner) for _ in range(2)]
        for each in more:
            await each.ask(ASK, 3, ApiVersionsResponse)
        assert not await served(inner)
    for each in (*clients, *more):
        await each.close()
    await until(lambda: not broker.server.connections)
    assert broker.server._quotas.total == 0


async def test_connections_wait_until_they_may_be_created(start_broker: StartBroker) -> None:
    broker = await start_broker(
        **{"max.connection.creation.rate": "5", "quota.window.num": "2", "quota.window.size.seconds": "1"}
    )
    began = time.monotonic()
    for _ in range(12):
        assert await served(broker.port)
    # 5 in the first second, and 5 a second after it.
    assert time.monotonic() - began > 1
    assert broker.server._quotas.delayed > 0


@pytest.mark.parametrize("entity", ["127.0.0.1", None])
async def test_the_quota_of_an_address(start_broker: StartBroker, entity: str | None) -> None:
    broker = await start_broker(**{"quota.window.num": "2", "quota.window.size.seconds": "1"})
    async with await Wire.connect(broker.port) as wire:
        await set_quota(wire, [("ip", entity)], connection_creation_rate=3)
        outcome = [await served(broker.port) for _ in range(5)]
        assert outcome[0]
        assert not all(outcome)
        await set_quota(wire, [("ip", entity)], connection_creation_rate=None)
        assert await served(broker.port)


async def test_a_stop_closes_what_waits(start_broker: StartBroker) -> None:
    broker = await start_broker(
        **{"max.connection.creation.rate": "1", "quota.window.num": "2", "quota.window.size.seconds": "3600"}
    )
    wires = [await Wire.connect(broker.port) for _ in range(3_700 // 1000 + 3)]
    async with await Wire.connect(broker.port) as wire:
        await set_quota(wire, [("ip", None)], connection_creation_rate=1)
    for each in wires:
        await each.close()
    await broker.stop()
    assert broker.server._quotas.total == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip=0 refuses all connections"),
        ({"max.connections.per.ip.overrides": "no.such.host.invalid:1"}, "is not found"),
    ],
)
def test_wrong_limits(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        connection_limits(Config(BROKER_KEYS, settings), ["PLAINTEXT"])


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:x", ":5", "a:1,,b:2", "a:99999999999"])
def test_wrong_overrides(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a list of HOST:CONNECTIONS"):
        connection_limits(Config(BROKER_KEYS, {"max.connections.per.ip.overrides": text}), ["PLAINTEXT"])


def test_refused_connections_are_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    lines = RefusedConnections(Traffic(), lambda: now)
    for port in range(1000):
        lines.add("10.0.0.1", port, "max.connections=1")
    assert [line["event"] for line in refused(caplog)] == ["connection refused"]
    lines.tick()
    assert len(refused(caplog)) == 1
    now = acceptor.WINDOW
    lines.tick()
    assert refused(caplog)[-1]["repeated"] == 999
    for host in range(2 * acceptor.MOST_COUNTED):
        lines.add(str(host), 1, "max.connections=1")
    assert len(lines._counted) == acceptor.MOST_COUNTED
