"""Metrics of clients over the wire (KIP-714): subscribed to, pushed, and shown."""

import asyncio
from collections.abc import Mapping

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config.keys import TELEMETRY_MAX_BYTES
from barnabas_broker.telemetry.clients import NO_ID
from barnabas_protocol.codec import encode_request
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas_protocol.records import Codec, compress
from barnabas_protocol.wire import Buffer
from tests.broker.conftest import StartBroker
from tests.broker.handlers.test_large_requests import ATTEMPTS, HELD, held_by
from tests.broker.telemetry.test_points import PUSH, field, gauge, message, point
from tests.wire import PATIENCE, Wire

E = ErrorCode
ALL = {"metrics": "*", "interval.ms": "100"}


async def subscribe(wire: Wire, configs: Mapping[str, str | None], name: str = "all") -> ErrorCode:
    changes = [
        IncrementalAlterableConfig(name=key, config_operation=int(value is None), value=value)
        for key, value in configs.items()
    ]
    resource = IncrementalAlterConfigsResource(resource_type=16, resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await wire.ask(request, 1, IncrementalAlterConfigsResponse)
    return ErrorCode.of(answer.responses[0].error_code)


async def asked(wire: Wire, identity: bytes = NO_ID, client_id: str = "shop") -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=identity)
    return await wire.ask(request, 0, GetTelemetrySubscriptionsResponse, client_id)


async def push(
    wire: Wire,
    answer: GetTelemetrySubscriptionsResponse,
    data: Buffer,
    codec: int = 0,
    *,
    last: bool = False,
    client_id: str = "shop",
) -> ErrorCode:
    request = PushTelemetryRequest(
        client_instance_id=answer.client_instance_id,
        subscription_id=answer.subscription_id,
        terminating=last,
        compression_type=codec,
        metrics=data,
    )
    return ErrorCode.of((await wire.ask(request, 0, PushTelemetryResponse, client_id)).error_code)


def values(broker: BrokerServer) -> dict[str, float]:
    return {
        f"{one.client.client_id} {name}": each.value
        for one in broker.services.telemetry.known()
        if one is not None
        for (name, _), each in one.values.items()
    }


@pytest.mark.parametrize("codec", Codec)
async def test_pushed_in_every_codec(broker: BrokerServer, wire: Wire, codec: Codec) -> None:
    assert await subscribe(wire, ALL) is E.NONE
    answer = await asked(wire)
    assert (answer.error_code, answer.requested_metrics, answer.push_interval_ms) == (E.NONE, ["*"], 100)
    assert await push(wire, answer, compress(codec, PUSH) if codec else PUSH, codec) is E.NONE
    assert values(broker) == {"shop a_b": -7, "shop c": 3, "shop d": 4}


async def test_listed_while_there_is_a_subscription(wire: Wire) -> None:
    async def listed() -> bool:
        answer = await wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        return {71, 72} <= {each.api_key for each in answer.api_keys}

    before = await listed()
    await subscribe(wire, ALL)
    during = await listed()
    await subscribe(wire, dict.fromkeys(ALL))
    assert (before, during, await listed()) == (False, True, False)


@pytest.mark.parametrize(
    ("data", "codec", "code"),
    [
        (b"\xff", Codec.NONE, E.INVALID_RECORD),
        (b"\xff", Codec.ZSTD, E.INVALID_RECORD),
        (bytes(2000), Codec.NONE, E.TELEMETRY_TOO_LARGE),
        (compress(Codec.ZSTD, bytes(2000)), Codec.ZSTD, E.TELEMETRY_TOO_LARGE),
    ],
)
async def test_a_push_that_is_not_read(start_broker: StartBroker, data: bytes, codec: Codec, code: ErrorCode) -> None:
    broker = await start_broker(telemetry_max_bytes="1000")
    async with await Wire.connect(broker.port) as wire:
        await subscribe(wire, ALL)
        answer = await asked(wire)
        assert answer.telemetry_max_bytes == 1000
        assert await push(wire, answer, data, codec) is code
        assert values(broker) == {}


async def test_values_stay_when_the_connection_is_lost_and_the_client_may_ask_again(
    broker: BrokerServer, wire: Wire
) -> None:
    await subscribe(wire, {"metrics": "*"})
    async with await Wire.connect(broker.port) as first:
        answer = await asked(first)
        assert await push(first, answer, message(gauge("a", point(1))), last=True) is E.NONE
    async with asyncio.timeout(PATIENCE):
        while (await asked(wire, answer.client_instance_id)).error_code != E.NONE:
            pass
    assert values(broker) == {"shop a": 1}


async def test_of_a_long_client_id_little_is_kept(broker: BrokerServer, wire: Wire) -> None:
    await subscribe(wire, ALL)
    request = GetTelemetrySubscriptionsRequest(client_instance_id=NO_ID)
    answer = await wire.ask(request, 0, GetTelemetrySubscriptionsResponse, "s" * 32_000)
    assert await push(wire, answer, message(gauge("a", point(1)))) is E.NONE
    assert list(values(broker)) == [f"{'s' * 1_001} a"]


async def test_subscriptions_are_bounded(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_broker.handlers.configs.MOST_SUBSCRIPTIONS", 1)
    names = ("a", "b", "a")
    assert [await subscribe(wire, ALL, name) for name in names] == [E.NONE, E.INVALID_REQUEST, E.NONE]


async def test_subscriptions_are_there_after_a_restart(start_broker: StartBroker) -> None:
    broker = await start_broker()
    async with await Wire.connect(broker.port) as wire:
        await subscribe(wire, ALL)
    await broker.stop()
    again = await start_broker()
    assert again.services.cluster.image.client_metrics == {"all": ALL}


@pytest.mark.parametrize(
    "data",
    [
        field(15, 0) * 150_000,
        message(gauge("a", point(1)) + field(15, 0) * 150_000),
        message(gauge("a", *[point(1, topic="t")] * 10_000)),
        message(gauge("a", field(7, field(2, field(15, 0) * 150_000)))),
    ],
    ids=["fields", "fields of a metric", "points", "fields of a label"],
)
async def test_a_large_push_does_not_hold_the_loop(broker: BrokerServer, wire: Wire, data: bytes) -> None:
    assert len(data) < TELEMETRY_MAX_BYTES.default
    await subscribe(wire, ALL)
    times: list[float] = []
    while len(times) < ATTEMPTS and min(times, default=HELD) >= HELD:
        answer = await asked(wire)
        request = PushTelemetryRequest(
            client_instance_id=answer.client_instance_id,
            subscription_id=answer.subscription_id,
            terminating=False,
            compression_type=0,
            metrics=data,
        )
        times.append(await held_by(broker, wire, encode_request(request, 0, 1, "shop")))
    assert min(times) < HELD, f"{[round(one * 1000) for one in times]} ms"
    assert broker.services.telemetry.series.dropped == 0
