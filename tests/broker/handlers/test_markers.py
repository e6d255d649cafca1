"""Markers of transactions: their timeout, and those of a coordinator whose own broker leads the partitions."""

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.replication.replica import Replica
from barnabas_broker.storage.log import Log
from barnabas_broker.transactions.records import TransactionReplay
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.produce import (
    PartitionProduceData,
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
from barnabas_protocol.records import BatchHeader, Record, build_batch
from tests.broker.conftest import StartBroker
from tests.wire import PATIENCE, Wire, until

E = ErrorCode
ZERO = bytes(16)
RETRIABLE = (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_NOT_AVAILABLE)


class Producer:
    """A transactional producer on one connection, with the topic "t" of one partition."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.who = InitProducerIdResponse(error_code=E.NONE, producer_epoch=-1)

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
        async with asyncio.timeout(PATIENCE):
            while True:
                self.who = await self.wire.ask(request, 4, InitProducerIdResponse)
                if self.who.error_code not in RETRIABLE:
                    break
        assert self.who.error_code == E.NONE

    async def write(self, value: bytes = b"x", expected: ErrorCode = E.NONE) -> None:
        """Open a transaction with one record."""
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_producer_id=self.who.producer_id,
            v3_and_below_producer_epoch=self.who.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        added = await self.wire.ask(add, 3, AddPartitionsToTxnResponse)
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == E.NONE
        records = build_batch(
            [(None, value, (), 0)],
            producer_id=self.who.producer_id,
            producer_epoch=self.who.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        data = TopicProduceData(
            name="t", topic_id=ZERO, partition_data=[PartitionProduceData(index=0, records=records)]
        )
        produce = ProduceRequest(transactional_id="id", acks=-1, timeout_ms=1000, topic_data=[data])
        answer = await self.wire.ask(produce, 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == expected

    async def end(self, *, committed: bool) -> int:
        request = EndTxnRequest(
            transactional_id="id",
            producer_id=self.who.producer_id,
            producer_epoch=self.who.producer_epoch,
            committed=committed,
        )
        return (await self.wire.ask(request, 3, EndTxnResponse)).error_code

    async def read(self) -> PartitionData:
        """What a `read_committed` consumer gets."""
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic="t", topic_id=ZERO, partitions=[wanted])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=1, topics=[topic])
        return (await self.wire.ask(request, 12, FetchResponse)).responses[0].partitions[0]


@asynccontextmanager
async def producing(broker: BrokerServer) -> AsyncIterator[Producer]:
    async with await Wire.connect(broker.port) as wire:
        await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=ZERO)]), 12, MetadataResponse)
        await wire.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]), 6, FindCoordinatorResponse)
        producer = Producer(wire)
        await producer.init()
        yield producer


def state(broker: BrokerServer) -> str:
    return broker.services.transactions.describe("id").state.value


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits between attempts."""
    monkeypatch.setattr("barnabas_broker.transactions.markers._RETRY_SECONDS", (0.001, 0.01))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[OSError]:
    """The errors of the disk at the next markers, one after another; then they are written."""
    errors: list[OSError] = []
    append = Log.append_marker

    def append_marker(self: Log, *given: Any, **named: Any) -> Any:
        if errors:
            raise self.disk.fail("append of a marker", errors.pop(0))
        return append(self, *given, **named)

    monkeypatch.setattr(Log, "append_marker", append_marker)
    return errors


@pytest.mark.parametrize("committed", [True, False])
async def test_markers_of_a_broker_s_own_partitions(broker: BrokerServer, committed: bool) -> None:
    async with producing(broker) as producer:
        await producer.write()
        assert (await producer.read()).last_stable_offset == 0
        assert await producer.end(committed=committed) == E.NONE
        await until(lambda: state(broker) == ("CompleteCommit" if committed else "CompleteAbort"))
        answer = await producer.read()
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        assert (answer.last_stable_offset, aborted) == (2, [] if committed else [(producer.who.producer_id, 0)])
        assert broker.services.transactions.markers.pending == 0


async def test_markers_are_written_when_the_disk_has_space_again(
    fast: None, broker: BrokerServer, failing: list[OSError], caplog: pytest.LogCaptureFixture
) -> None:
    async with producing(broker) as producer:
        await producer.write()
        failing += [OSError(errno.ENOSPC, "No space left on device") for _ in range(10)]
        assert await producer.end(committed=True) == E.NONE
        await until(lambda: state(broker) == "CompleteCommit")
        assert failing == []
        assert (await producer.read()).last_stable_offset == 2
    assert caplog.text.count("markers cannot be written") == 1
    assert "KAFKA_STORAGE_ERROR" in caplog.text


async def test_markers_that_an_offline_log_directory_refuses_are_written_after_the_restart(
    start_broker: StartBroker, fast: None, failing: list[OSError]
) -> None:
    broker = await start_broker()
    async with producing(broker) as producer:
        await producer.write()
        failing.append(OSError(errno.EIO, "Input/output error"))
        # The decision is in the log before the directory fails.
        assert await producer.end(committed=True) == E.NONE
        await until(lambda: broker.services.transactions.markers.pending == 1)
        assert (state(broker), failing) == ("PrepareCommit", [])
        answer = await producer.read()
        assert (answer.error_code, answer.last_stable_offset, answer.high_watermark) == (E.NONE, 0, 1)
        assert await producer.end(committed=True) == E.CONCURRENT_TRANSACTIONS
    async with asyncio.timeout(PATIENCE):
        await broker.stop()
    broker = await start_broker()
    async with producing(broker) as producer:
        await until(lambda: state(broker) in ("CompleteCommit", "Empty"))
        answer = await producer.read()
        assert (answer.last_stable_offset, answer.aborted_transactions) == (2, [])


async def test_a_decision_that_an_offline_log_directory_refuses_is_not_taken(
    start_broker: StartBroker, failing: list[OSError]
) -> None:
    broker = await start_broker()
    async with producing(broker) as producer:
        await producer.write()
        disk = broker.services.replicas.find("t", 0).log.disk
        disk.fail("a test", OSError(errno.EIO, "Input/output error"))
        assert await producer.end(committed=True) == E.NOT_COORDINATOR
        assert state(broker) == "Ongoing"
    await broker.stop()
    broker = await start_broker()
    # A new producer takes over: it aborts what was not decided.
    async with producing(broker) as producer:
        answer = await producer.read()
        assert (answer.last_stable_offset, len(answer.aborted_transactions or ())) == (2, 1)


async def test_a_marker_that_is_not_replicated_in_time(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(request_timeout_ms="50")
    async with producing(broker) as producer:
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[None]] = []

        def unacknowledged(self: Replica, last_offset: int, *, acks_all: bool) -> Sequence["asyncio.Future[None]"]:
            waiting.append(loop.create_future())
            return waiting[-1:]

        monkeypatch.setattr(Replica, "unacknowledged", unacknowledged)
        marker = WritableTxnMarker(
            producer_id=producer.who.producer_id,
            producer_epoch=0,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            coordinator_epoch=0,
            transaction_version=1,
        )
        async with asyncio.timeout(20):  # less than the default of request.timeout.ms
            answer = await producer.wire.ask(WriteTxnMarkersRequest(markers=[marker]), 2, WriteTxnMarkersResponse)
        assert answer.markers[0].topics[0].partitions[0].error_code == E.REQUEST_TIMED_OUT
        assert [future.cancelled() for future in waiting] == [True]


async def test_a_transaction_that_the_coordinator_has_lost_is_not_committed_with_the_next_one(
    broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of ``__transaction_state`` is cut off: the coordinator knows of no open transaction."""
    transactions = broker.services.transactions.runtime
    index = transactions.partition_for("id")
    async with producing(broker) as lost:
        known = transactions._topic_log.end_offset(index)
        await lost.write(b"lost")
        replay = TransactionReplay.apply

        def cut(self: TransactionReplay, header: BatchHeader, record: Record) -> None:
            if record.offset < known:
                replay(self, header, record)

        with monkeypatch.context() as patch:
            patch.setattr(TransactionReplay, "apply", cut)
            await transactions.load(index, transactions.partitions[index].leader_epoch + 1)
        assert state(broker) == "Empty"
        producer = Producer(lost.wire)
        await producer.init()
        assert producer.who.producer_epoch == lost.who.producer_epoch + 1
        await producer.write(b"refused", E.UNKNOWN_PRODUCER_ID)
        assert await producer.end(committed=False) == E.NONE
        await until(lambda: state(broker) == "CompleteAbort")
        await producer.init()
        await producer.write(b"kept")
        assert await producer.end(committed=True) == E.NONE
        await until(lambda: state(broker) == "CompleteCommit")
        answer = await producer.read()
        assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()] == [
            (lost.who.producer_id, 0)
        ]
        assert answer.last_stable_offset == answer.high_watermark == 4, "two records, and their markers"
