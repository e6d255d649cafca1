"""Limits of connections over real sockets: what is over them is closed, or waits."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

import pytest

from barnabas_broker import log_throttle
from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError
from barnabas_broker.metrics import Traffic
from barnabas_broker.quotas.connections import ConnectionLimits, ListenerLimits
from barnabas_broker.server.acceptor import RefusedConnections
from barnabas_broker.server.limits import Limits
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from tests.broker.conftest import StartBroker
from tests.broker.handlers.test_quotas import set_quota
from tests.wire import Wire, until

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


def limits_of(settings: dict[str, str], **layers: dict[str, str]) -> ConnectionLimits:
    """The limits of the listeners A and B by a configuration; `layers` are set at run time."""
    config = Config(BROKER_KEYS, settings, **layers)
    return Limits(config, ["A", "B"]).of(config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip=0 refuses all connections"),
        ({"max.connections.per.ip.overrides": "no.such.host.invalid:1"}, "is not found"),
    ],
)
def test_wrong_limits(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        limits_of(settings)


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:x", ":5", "a:1,,b:2", "a:99999999999"])
def test_wrong_overrides(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a list of HOST:CONNECTIONS"):
        limits_of({"max.connections.per.ip.overrides": text})


def test_keys_of_a_listener_come_first_and_then_what_was_set_at_run_time() -> None:
    static = {"max.connections": "9", "listener.name.a.max.connections": "8", "max.connection.creation.rate": "50"}
    assert limits_of(static).listeners == {"A": ListenerLimits(8, 50), "B": ListenerLimits(9, 50)}
    everywhere = {"max.connections": "7", "listener.name.b.max.connections": "6"}
    found = limits_of(static, dynamic_default=everywhere)
    assert (found.connections, found.rate) == (7, 50)
    assert found.listeners == {"A": ListenerLimits(8, 50), "B": ListenerLimits(6, 50)}
    here = {"max.connections": "5", "listener.name.a.max.connection.creation.rate": "40"}
    found = limits_of(static, dynamic_default=everywhere, dynamic=here)
    assert (found.connections, found.rate) == (5, 50)
    assert found.listeners == {"A": ListenerLimits(8, 40), "B": ListenerLimits(6, 50)}


def test_addresses_that_are_set_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"max.connections.per.ip.overrides": "127.0.0.1:3"}
    config = Config(BROKER_KEYS, given)
    limits = Limits(config, ["A"])
    monkeypatch.setattr("socket.getaddrinfo", None)  # no name is looked up any more
    assert limits.of(config).overrides == {"127.0.0.1": 3}
    config.set_dynamic({"max.connections.per.ip.overrides": "[::1]:4,10.0.0.1:5"}, {})
    assert limits.of(config).overrides == {"::1": 4, "10.0.0.1": 5}
    config.set_dynamic({}, {"max.connections.per.ip.overrides": "localhost:4"})
    with pytest.raises(ConfigError, match=r"'localhost' is a name\. To do: give its address"):
        limits.of(config)


async def change(wire: Wire, values: Mapping[str, str | None], name: str = "1") -> tuple[int, str]:
    """Set keys of a broker, or of all (""), at run time; None deletes."""
    configs = [
        IncrementalAlterableConfig(name=key, config_operation=int(value is None), value=value)
        for key, value in values.items()
    ]
    resource = IncrementalAlterConfigsResource(resource_type=4, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = (await wire.ask(request, 1, IncrementalAlterConfigsResponse)).responses
    return answer.error_code, answer.error_message or ""


async def test_limits_change_while_the_broker_runs(start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker = await start_broker(max_connections="3")
    admin = await Wire.connect(broker.port)
    wires = [await Wire.connect(broker.port) for _ in range(2)]
    for each in (*wires, admin):
        await each.ask(ASK, 3, ApiVersionsResponse)
    assert not await served(broker.port)
    assert await change(admin, {"max.connections": "100"}) == (0, "")
    wires += [await Wire.connect(broker.port) for _ in range(97)]
    for each in wires[2:]:
        await each.ask(ASK, 3, ApiVersionsResponse)
    assert not await served(broker.port)
    # As in Kafka, connections over a lower limit are closed; the one that asks for it is the last one that was used.
    assert await change(admin, {"max.connections": "2"}) == (0, "")
    for each in wires[:-1]:
        assert await each.closed()
    await wires[-1].ask(ASK, 3, ApiVersionsResponse)
    await until(lambda: broker.server.connections == 2)
    line = next(line for line in refused(caplog) if line["event"] == "connections closed")
    assert (line["reason"], line["count"]) == ("max.connections was lowered", 98)
    # What was given at the start counts again.
    assert await change(admin, {"max.connections": None}) == (0, "")
    for each in wires:
        await each.close()
    await until(lambda: broker.server.connections == 1)
    more = [await Wire.connect(broker.port) for _ in range(2)]
    for each in more:
        await each.ask(ASK, 3, ApiVersionsResponse)
    assert not await served(broker.port)
    for each in (admin, *more):
        await each.close()


async def test_other_limits_change_while_the_broker_runs(start_broker: StartBroker) -> None:
    broker = await start_broker(
        **{
            "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            "inter.broker.listener.name": "A",
        }
    )
    for values, name in (
        ({"max.connections.per.ip": "1"}, "1"),
        ({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:1"}, ""),
        ({"listener.name.a.max.connections": "1"}, ""),
    ):
        async with await Wire.connect(port_of(broker, "A")) as admin:
            assert await change(admin, values, name) == (0, "")
            assert not await served(port_of(broker, "A"))
            assert await change(admin, dict.fromkeys(values), name) == (0, "")
            assert await served(port_of(broker, "A"))
            assert await change(admin, {"listener.name.b.max.connection.creation.rate": "7"}) == (0, "")
            assert broker.server._quotas.limits.listeners["B"].rate == 7


@pytest.mark.parametrize("name", ["1", ""])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max.connections": "0"}, "Invalid max.connections 0"),
        ({"max.connection.creation.rate": "0"}, "Invalid max.connection.creation.rate 0"),
        ({"listener.name.plaintext.max.connections": "0"}, "Invalid listener.name.plaintext.max.connections 0"),
        ({"listener.name.plaintext.max.connections": "x"}, "listener.name.plaintext.max.connections='x': not a whole"),
        ({"listener.name.other.max.connections": "5"}, "Cannot update these configs dynamically"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip=0 refuses all connections"),
        ({"max.connections.per.ip.overrides": "localhost:5"}, "'localhost' is a name"),
        ({"max.connections.per.ip.overrides": "5"}, "must be a list of HOST:CONNECTIONS"),
    ],
)
async def test_limits_that_cannot_be_set(
    start_broker: StartBroker, values: dict[str, str | None], message: str, name: str
) -> None:
    broker = await start_broker()
    async with await Wire.connect(broker.port) as wire:
        code, found = await change(wire, values, name)
        assert code == ErrorCode.INVALID_REQUEST
        assert message in found
        assert await served(broker.port)


async def test_limits_stay_after_a_restart(start_broker: StartBroker) -> None:
    broker = await start_broker()
    async with await Wire.connect(broker.port) as wire:
        assert await change(wire, {"max.connections": "1"}) == (0, "")
        assert await change(wire, {"listener.name.plaintext.max.connection.creation.rate": "900"}, "") == (0, "")
    await broker.stop()
    broker = await start_broker()
    limits = broker.server._quotas.limits
    assert (limits.connections, limits.listeners["PLAINTEXT"].rate) == (1, 900)


def test_refused_connections_are_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    lines = RefusedConnections(Traffic(), lambda: now)
    for port in range(1000):
        lines.add("10.0.0.1", port, "max.connections=1")
    assert [line["event"] for line in refused(caplog)] == ["connection refused"]
    lines.tick()
    assert len(refused(caplog)) == 1
    now = log_throttle.WINDOW
    lines.tick()
    assert refused(caplog)[-1]["repeated"] == 999
    for host in range(2 * log_throttle.MOST_CLIENTS):
        lines.add(str(host), 1, "max.connections=1")
    assert len(lines._lines) == log_throttle.MOST_CLIENTS
