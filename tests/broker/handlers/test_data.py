"""Produce and Fetch over the wire: waits, limits, restarts. The rest: `interop/behaviour`."""

import asyncio
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.handlers import fetch as fetch_module
from barnabas_protocol.codec import decode_response
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas_protocol.records import build_batch, decode_records, iter_batches
from barnabas_protocol.wire import Buffer
from tests.broker.conftest import StartBroker
from tests.wire import Wire

ZERO = bytes(16)
NOW = 1_700_000_000_000


@pytest.fixture
async def topic_id(wire: Wire) -> bytes:
    asked = [MetadataRequestTopic(name="t", topic_id=ZERO)]
    return (await wire.ask(MetadataRequest(topics=asked), 12, MetadataResponse)).topics[0].topic_id


def batch(*values: bytes, at: int = NOW, producer: int = -1, epoch: int = -1, sequence: int = -1) -> bytearray:
    return build_batch(
        [(None, value, (), at + n) for n, value in enumerate(values)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


async def produce(
    wire: Wire,
    records: Buffer | None,
    *,
    topic: str = "t",
    topic_id: bytes = ZERO,
    partition: int = 0,
    acks: int = -1,
    version: int = 11,
) -> PartitionProduceResponse:
    data = [PartitionProduceData(index=partition, records=records)]
    request = ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)]
    )
    return (await wire.ask(request, version, ProduceResponse)).responses[0].partition_responses[0]


def fetching(offset: int, *, version: int, topic_id: bytes = ZERO, wait: int = 0, least: int = 1) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=wait,
        min_bytes=least,
        topics=[FetchTopic(topic="t", topic_id=topic_id if version >= 13 else ZERO, partitions=[wanted])],
    )


async def fetch(wire: Wire, offset: int, *, version: int = 12, topic_id: bytes = ZERO) -> PartitionData:
    response = await wire.ask(fetching(offset, version=version, topic_id=topic_id), version, FetchResponse)
    return response.responses[0].partitions[0]


def values(answer: PartitionData) -> list[bytes | None]:
    assert answer.records is not None
    return [r.value for _, view in iter_batches(memoryview(answer.records)) for r in decode_records(view)]


async def test_what_is_in_no_transaction_is_appended_without_a_look_at_transactions(
    wire: Wire, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("barnabas_broker.handlers.produce._append_allowed", asked)
    assert (await produce(wire, batch(b"a"))).error_code == ErrorCode.NONE
    assert (await produce(wire, batch(b"a"), topic_id=topic_id, topic="", version=13)).base_offset == 1


@pytest.mark.parametrize("producer", [2**63 - 1, 2**62])
async def test_a_producer_id_that_was_never_allocated_is_refused(
    wire: Wire, topic_id: bytes, producer: int, broker: BrokerServer
) -> None:
    refused = await produce(wire, batch(b"a", producer=producer, epoch=0, sequence=0))
    assert refused.error_code == ErrorCode.UNKNOWN_PRODUCER_ID
    assert refused.error_message == (
        f"Producer id {producer} was never allocated. To do: request one with InitProducerId"
    )
    # One that was given out by another broker, of which this one does not know yet.
    recent = broker.services.wall_ms() * 1000 + 1_000_000
    assert (await produce(wire, batch(b"a", producer=recent, epoch=0, sequence=0))).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_versions_before_record_batches_are_unsupported(wire: Wire, topic_id: bytes, version: int) -> None:
    assert (await produce(wire, b"old", version=version)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_null_records_are_rejected(wire: Wire, topic_id: bytes) -> None:
    assert (await produce(wire, None)).error_code == ErrorCode.INVALID_RECORD


async def test_a_fetch_waits_for_min_bytes(broker: BrokerServer, wire: Wire, topic_id: bytes) -> None:
    size = len(batch(b"x"))
    wire.send(fetching(0, version=12, wait=20_000, least=3 * size), 12)
    waiting = asyncio.ensure_future(wire.frame())
    async with await Wire.connect(broker.port) as other:
        for done in (False, False, True):
            await produce(other, batch(b"x"))
            await fetch(other, 0)
            assert waiting.done() or not done or len(await waiting) > 3 * size


async def test_a_long_fetch_that_waits_in_vain_though_there_are_records_is_reported(
    broker: BrokerServer, wire: Wire, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(broker.services.groups.fetches, "waited", lambda *of: found.append(of[1:]))
    monkeypatch.setattr(fetch_module, "_LONG_WAIT_MS", 10)

    async def ask(wait: int, least: int) -> None:
        await wire.ask(fetching(0, version=12, wait=wait, least=least), 12, FetchResponse)

    await ask(10, 1_000)
    assert found == [], "there is no record"
    await produce(wire, batch(b"x"))
    for wait, least in ((9, 1_000), (10, 1), (0, 1_000)):
        await ask(wait, least)
    assert found == []
    await ask(10, 1_000)
    assert found == [("t", 1_000, 10)]


@pytest.mark.parametrize("limit", [150_000, 262_144, 270_000, 300_000, 399_999, 1_000_000, 50_000_000])
async def test_large_responses_hold_whole_batches_with_any_limit(wire: Wire, topic_id: bytes, limit: int) -> None:
    size, count = 100_000, 12
    sent = [bytes([n]) * size for n in range(count)]
    for value in sent:
        assert (await produce(wire, batch(value))).error_code == ErrorCode.NONE
    got: list[bytes | None] = []
    while len(got) < count:
        request = fetching(len(got), version=12)
        request.topics[0].partitions[0].partition_max_bytes = limit
        answer = (await wire.ask(request, 12, FetchResponse)).responses[0].partitions[0]
        found = values(answer)
        assert len(found) == min(limit // (size + 100), count - len(got))
        got += found
    assert got == sent


async def list_offset(wire: Wire, timestamp: int, version: int = 7) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    return (await wire.ask(request, version, ListOffsetsResponse)).topics[0].partitions[0]


async def test_list_offsets_v0_returns_a_list(wire: Wire, topic_id: bytes) -> None:
    await produce(wire, batch(b"a", b"b"))
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1, max_num_offsets=5)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    result = (await wire.ask(request, 0, ListOffsetsResponse)).topics[0].partitions[0]
    assert result.old_style_offsets == [2, 0]


@pytest.mark.parametrize("settings", [{}, {"log_flush_interval_messages": "1"}], ids=["page cache", "fsync"])
async def test_acknowledged_records_survive_a_restart(start_broker: StartBroker, settings: dict[str, str]) -> None:
    broker = await start_broker(**settings)
    async with await Wire.connect(broker.port) as wire:
        await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=ZERO)]), 12, MetadataResponse)
        for n in range(10):
            assert (await produce(wire, batch(b"%d" % n))).base_offset == n
    await broker.stop()
    again = await start_broker(**settings)
    async with await Wire.connect(again.port) as wire:
        assert values(await fetch(wire, 0)) == [b"%d" % n for n in range(10)]
        assert (await produce(wire, batch(b"more"))).base_offset == 10


async def test_log_append_time_is_the_brokers_clock(start_broker: StartBroker) -> None:
    broker = await start_broker(log_message_timestamp_type="LogAppendTime")
    async with await Wire.connect(broker.port) as wire:
        await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=ZERO)]), 12, MetadataResponse)
        answer = await produce(wire, batch(b"a", at=1))
        assert answer.log_append_time_ms > NOW
        result = await fetch(wire, 0)
        assert result.records is not None
        (record,) = decode_records(memoryview(result.records))
        assert record.timestamp == answer.log_append_time_ms


async def test_a_stop_answers_fetches_that_wait(broker: BrokerServer, wire: Wire, topic_id: bytes) -> None:
    wire.send(fetching(0, version=12, wait=60_000), 12)
    async with await Wire.connect(broker.port) as other:
        await fetch(other, 0)
    await asyncio.wait_for(broker.stop(), 4)
    response = decode_response(FetchResponse, 12, await wire.frame())
    assert values(response.responses[0].partitions[0]) == []
