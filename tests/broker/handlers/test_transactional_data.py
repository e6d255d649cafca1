"""Produce in transactions and WriteTxnMarkers: what the coordinator answers, and what comes meanwhile."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.storage import TopicPartition
from barnabas_broker.transactions.service import TransactionCoordinator
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas_protocol.messages.list_offsets import (
    ListOffsetsPartition,
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
from barnabas_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_protocol.records import build_batch, decode_records, iter_batches
from tests.wire import Wire

ZERO = bytes(16)
NOW = 1_700_000_000_000
PRODUCER = 1000


@pytest.fixture(autouse=True)
async def topic(wire: Wire) -> None:
    await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=ZERO)]), 12, MetadataResponse)


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[ErrorCode]:
    """What the coordinator answers, one after another, and then NONE."""
    answers: list[ErrorCode] = []

    def verify(
        self: TransactionCoordinator,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> "asyncio.Future[Mapping[TopicPartition, ErrorCode]]":
        assert (transactional_id, producer_id, list(partitions)) == ("x", PRODUCER, [TopicPartition("t", 0)])
        future: asyncio.Future[Mapping[TopicPartition, ErrorCode]] = asyncio.get_running_loop().create_future()
        code = answers.pop(0) if answers else ErrorCode.NONE
        asyncio.get_running_loop().call_soon(future.set_result, dict.fromkeys(partitions, code))
        return future

    monkeypatch.setattr(TransactionCoordinator, "verify", verify)
    return answers


async def produce(
    wire: Wire, value: bytes, sequence: int, *, epoch: int = 0, name: str | None = "x", version: int = 11
) -> PartitionProduceResponse:
    records = build_batch(
        [(None, value, (), NOW)],
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    data = [PartitionProduceData(index=0, records=records)]
    request = ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", topic_id=ZERO, partition_data=data)],
    )
    return (await wire.ask(request, version, ProduceResponse)).responses[0].partition_responses[0]


async def mark(
    wire: Wire, *, commit: bool, epoch: int = 0, coordinator: int = 0, transaction_version: int = 1, topic: str = "t"
) -> int:
    marker = WritableTxnMarker(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=coordinator,
        transaction_version=transaction_version,
    )
    response = await wire.ask(WriteTxnMarkersRequest(markers=[marker]), 2, WriteTxnMarkersResponse)
    assert response.markers[0].producer_id == PRODUCER
    return response.markers[0].topics[0].partitions[0].error_code


def fetching(offset: int = 0, *, wait: int = 0, isolation: int = 1) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=wait,
        min_bytes=1,
        isolation_level=isolation,
        topics=[FetchTopic(topic="t", topic_id=ZERO, partitions=[wanted])],
    )


async def fetch(wire: Wire, offset: int = 0, isolation: int = 1) -> PartitionData:
    response = await wire.ask(fetching(offset, isolation=isolation), 12, FetchResponse)
    return response.responses[0].partitions[0]


def values(answer: PartitionData) -> list[bytes | None]:
    return [
        record.value
        for header, view in iter_batches(memoryview(answer.records or b""))
        if not header.is_control
        for record in decode_records(view)
    ]


async def latest(wire: Wire, isolation: int) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
    )
    return (await wire.ask(request, 6, ListOffsetsResponse)).topics[0].partitions[0].offset


async def test_a_read_committed_fetch_waits_for_the_marker(
    broker: BrokerServer, wire: Wire, codes: list[ErrorCode]
) -> None:
    async with await Wire.connect(broker.port) as other:
        await produce(other, b"x", 0)
        wire.send(fetching(wait=60_000), 12)
        waiting = asyncio.ensure_future(wire.frame())
        await fetch(other)
        await produce(other, b"y", 1)
        assert not waiting.done()
        await mark(other, commit=True)
        frame = await waiting
        assert b"x" in frame and b"y" in frame


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (ErrorCode.INVALID_TXN_STATE, 12, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
async def test_what_the_coordinator_does_not_confirm_is_not_appended(
    wire: Wire, codes: list[ErrorCode], code: ErrorCode, version: int, expected: ErrorCode
) -> None:
    codes.append(code)
    assert (await produce(wire, b"x", 0, version=version)).error_code == expected
    assert (await fetch(wire, isolation=0)).high_watermark == 0
    assert (await produce(wire, b"x", 0, version=version)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("marked", "version", "expected"),
    [
        (1, 12, ErrorCode.NONE),  # it ends the transaction before: each has its own epoch
        (2, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 11, ErrorCode.INVALID_TXN_STATE),  # it may end this very transaction
    ],
)
async def test_a_marker_while_the_coordinator_is_asked(
    broker: BrokerServer,
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
    marked: int,
    version: int,
    expected: ErrorCode,
) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def answer(partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        asked.set()
        await answered.wait()
        return dict.fromkeys(partitions, ErrorCode.NONE)

    def verify(
        self: TransactionCoordinator,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> "asyncio.Future[Mapping[TopicPartition, ErrorCode]]":
        return asyncio.ensure_future(answer(partitions))

    monkeypatch.setattr(TransactionCoordinator, "verify", verify)
    async with await Wire.connect(broker.port) as coordinator:
        producing = asyncio.ensure_future(produce(wire, b"x", 0, epoch=1, version=version))
        await asyncio.wait_for(asked.wait(), 60)
        transaction_version = 2 if version == 12 else 1
        assert await mark(coordinator, commit=True, epoch=marked, transaction_version=transaction_version) == 0
        answered.set()
        assert (await producing).error_code == expected


async def test_markers_are_fenced(wire: Wire, codes: list[ErrorCode]) -> None:
    await produce(wire, b"x", 0, epoch=3)
    assert await mark(wire, commit=True, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await mark(wire, commit=True, epoch=3, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await mark(wire, commit=True, epoch=4, coordinator=5, transaction_version=2) == ErrorCode.NONE
    assert await mark(wire, commit=True, epoch=4, coordinator=5, transaction_version=2) == ErrorCode.NONE  # repeated
    assert await mark(wire, commit=True, epoch=4, coordinator=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await mark(wire, commit=True, topic="unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await produce(wire, b"y", 1, epoch=3)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
