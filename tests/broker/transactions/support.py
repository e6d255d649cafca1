"""A transaction coordinator with a log in memory, a clock that tests move, and leaders that tests set."""

import asyncio
from collections.abc import Sequence

from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.transactions.service import TransactionCoordinator
from barnabas_broker.transactions.transaction import TxnReply
from barnabas_explain.transactions import EventRecord, decode_event
from barnabas_protocol.codec import decode, decode_correlation_id, encode, encode_response
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_protocol.records import decode_records
from barnabas_protocol.schema import Request, Response
from tests.broker.groups.memory import MemoryLog
from tests.wire import until

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NODE = 1

#: A marker as it was written: node, partition, producer id, epoch, committed.
Written = tuple[int, TopicPartition, int, int, bool]


class Brokers:
    """All brokers as targets of markers, and who leads what.

    Attributes:
        leaders: of partitions; those that are not in it are led by :data:`NODE`.
        written: the markers that were written.
        fail: errors of the next markers.
        down: brokers that cannot be reached.
        requests: the requests to other brokers.
        timeouts: the timeouts of these, in seconds.
        answers: what other brokers answer to requests that are not WriteTxnMarkers.
        hold: while set, markers and answers wait for :attr:`release`.
    """

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int | None] = {}
        self.written: list[Written] = []
        self.fail: list[ErrorCode] = []
        self.down: set[int] = set()
        self.requests: list[tuple[int, Request]] = []
        self.timeouts: list[float] = []
        self.answers: list[Response] = []
        self.release = asyncio.Event()
        self.release.set()

    def leader(self, partition: TopicPartition) -> int | None:
        return self.leaders.get(partition, NODE)

    async def write(self, request: WriteTxnMarkersRequest, node_id: int = NODE) -> WriteTxnMarkersResponse:
        await self.release.wait()
        request = decode(WriteTxnMarkersRequest, 2, encode(request, 2))
        results = []
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                partitions = []
                for index in topic.partition_indexes:
                    error = self.fail.pop(0) if self.fail else ErrorCode.NONE
                    if error is ErrorCode.NONE:
                        where = TopicPartition(topic.name, index)
                        who = marker.producer_id, marker.producer_epoch, marker.transaction_result
                        self.written.append((node_id, where, *who))
                    partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=error))
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        return WriteTxnMarkersResponse(markers=results)

    async def ask(self, node_id: int, request: Request, version: int, timeout: float) -> bytes | bytearray:
        self.requests.append((node_id, request))
        self.timeouts.append(timeout)
        if node_id in self.down:
            raise ConnectionError("down")
        if isinstance(request, WriteTxnMarkersRequest):
            response: Response = await self.write(request, node_id)
        else:
            await self.release.wait()
            response = self.answers.pop(0)
        frame = encode_response(response, version, 7)[4:]
        assert decode_correlation_id(frame) == 7
        return frame


class MemoryEvents:
    """``__transaction_events`` in memory."""

    def __init__(self) -> None:
        self.written: list[EventRecord] = []

    def append(self, batch: bytearray) -> None:
        for record in decode_records(batch):
            event = decode_event(record.value or b"")
            assert event is not None and record.key == event["transactional_id"].encode()
            self.written.append(event)


class Coordinator:
    """A coordinator of four partitions on broker :data:`NODE`."""

    def __init__(self, **settings: str) -> None:
        self.log = MemoryLog()
        self.brokers = Brokers()
        self.events = MemoryEvents()
        self.ms = 1_000_000
        #: By how much the time of day was set forward.
        self.set_ms = 0
        self.next_id = 100
        self.refuse_ids = False
        given = {"transaction.state.log.num.partitions": "4"}
        given |= {key.replace("_", "."): value for key, value in settings.items()}
        self.config = Config(BROKER_KEYS, given)
        self.transactions = self.create()

    def create(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.config,
            NODE,
            self.log,
            self.brokers.leader,
            self.brokers.write,
            self.brokers,
            self.producer_id,
            self.events,
            now=lambda: self.ms / 1000,
            wall_ms=lambda: self.ms + self.set_ms,
        )

    async def producer_id(self) -> int:
        await asyncio.sleep(0)
        if self.refuse_ids:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        self.next_id += 1
        return self.next_id

    async def load(self, epoch: int = 0) -> None:
        for index in range(4):
            await self.transactions.runtime.load(index, epoch)

    async def restart(self) -> None:
        """Another coordinator takes over, with the log."""
        await self.transactions.close()
        self.transactions = self.create()
        await self.load(1)

    async def init(
        self, name: str = "id", expected: tuple[int, int] | None = None, timeout_ms: int = 60_000
    ) -> TxnReply:
        return await self.transactions.init_producer_id(name, timeout_ms, expected, "client")

    async def add(self, who: TxnReply, partitions: Sequence[TopicPartition] = (T0,), name: str = "id") -> ErrorCode:
        pair = who.producer_id, who.producer_epoch
        return (await self.transactions.add_partitions(name, *pair, partitions, 0, "client")).error

    async def end(self, who: TxnReply, committed: bool = True, version: int = 0, name: str = "id") -> TxnReply:
        pair = who.producer_id, who.producer_epoch
        return await self.transactions.end(name, *pair, committed, version, "client")

    def state(self, name: str = "id") -> str:
        return self.transactions.describe(name).state.value

    async def settled(self, name: str = "id") -> str:
        """The state after all markers are written."""
        await until(lambda: not self.state(name).startswith("Prepare"))
        return self.state(name)
