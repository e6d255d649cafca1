"""A transaction coordinator in memory, for tests of the client's state machine."""

from dataclasses import dataclass, field
from typing import Final

from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from barnabas_protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from barnabas_protocol.messages.describe_transactions import TransactionState as DescribedState
from barnabas_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

#: Versions from which on a request is of a transaction of version 2 (KIP-890).
END_TXN_2: Final = 5
OFFSET_COMMIT_2: Final = 5

Offsets = dict[tuple[str, str, int], tuple[int, str | None]]


@dataclass
class Transactional:
    """A transactional id."""

    producer_id: int
    epoch: int = 0
    #: The producer id and epoch before the last change by InitProducerId or by an EndTxn of version 2.
    before: tuple[int, int] = (-1, -1)
    state: str = "Empty"
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    offsets: Offsets = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """A transaction that is over."""

    committed: bool
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]
    offsets: tuple[tuple[tuple[str, str, int], tuple[int, str | None]], ...]


class FakeTransactions:
    """The transactions of a cluster. `version` is the finalized ``transaction.version``."""

    def __init__(self, version: int = 2) -> None:
        self.version = version
        self.ids: dict[str, Transactional] = {}
        self.ended: list[Ended] = []
        self._producer_ids = 4000

    def init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        name = request.transactional_id or ""
        known = self.ids.get(name)
        mine = (request.producer_id, request.producer_epoch)
        if known is None:
            self._producer_ids += 1
            known = self.ids[name] = Transactional(self._producer_ids, -1)
        elif request.producer_id >= 0 and mine == known.before:
            return InitProducerIdResponse(error_code=0, producer_id=known.producer_id, producer_epoch=known.epoch)
        elif request.producer_id >= 0 and mine != (known.producer_id, known.epoch):
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED, producer_id=-1, producer_epoch=-1)
        elif known.state == "Ongoing":
            self.end(name, committed=False)
            known.epoch, known.before = known.epoch + 1, (-1, -1)
            return InitProducerIdResponse(
                error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_id=-1, producer_epoch=-1
            )
        known.before = (known.producer_id, known.epoch) if request.producer_id >= 0 else (-1, -1)
        known.epoch, known.state = known.epoch + 1, "Empty"
        return InitProducerIdResponse(error_code=0, producer_id=known.producer_id, producer_epoch=known.epoch)

    def check(self, name: str, producer_id: int, epoch: int) -> ErrorCode:
        known = self.ids.get(name)
        if known is None or known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if known.epoch == epoch else ErrorCode.PRODUCER_FENCED

    def add(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        name = request.v3_and_below_transactional_id
        code = self.check(name, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        topics = request.v3_and_below_topics
        if code == ErrorCode.NONE:
            for topic in topics:
                for number in topic.partitions:
                    self.begin(name).partitions.add(TopicPartition(topic.name, number))
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                        for number in topic.partitions
                    ],
                )
                for topic in topics
            ],
        )

    def begin(self, name: str) -> Transactional:
        known = self.ids[name]
        known.state = "Ongoing"
        return known

    def write(self, name: str, producer_id: int, epoch: int, tp: TopicPartition, *, implicit: bool) -> ErrorCode:
        """A leader has got a batch."""
        code = self.check(name, producer_id, epoch)
        if code != ErrorCode.NONE:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if implicit:
            self.begin(name).partitions.add(tp)
        known = self.ids[name]
        return ErrorCode.NONE if known.state == "Ongoing" and tp in known.partitions else ErrorCode.INVALID_TXN_STATE

    def add_offsets(self, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
        code = self.check(request.transactional_id, request.producer_id, request.producer_epoch)
        if code == ErrorCode.NONE:
            self.begin(request.transactional_id).groups.add(request.group_id)
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)

    def commit_offsets(
        self, request: TxnOffsetCommitRequest, version: int, member: ErrorCode = ErrorCode.NONE
    ) -> TxnOffsetCommitResponse:
        name = request.transactional_id
        code = self.check(name, request.producer_id, request.producer_epoch) or member
        if code == ErrorCode.NONE and version >= OFFSET_COMMIT_2:
            self.begin(name).groups.add(request.group_id)
        if code == ErrorCode.NONE and request.group_id not in self.ids[name].groups:
            code = ErrorCode.INVALID_TXN_STATE
        for topic in request.topics if code == ErrorCode.NONE else []:
            for one in topic.partitions:
                place = (request.group_id, topic.name, one.partition_index)
                self.ids[name].offsets[place] = (one.committed_offset, one.committed_metadata)
        return TxnOffsetCommitResponse(
            throttle_time_ms=0,
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name if version < 6 else "",
                    topic_id=topic.topic_id,
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def end_txn(self, request: EndTxnRequest, version: int) -> EndTxnResponse:
        name, done = request.transactional_id, "CompleteCommit" if request.committed else "CompleteAbort"
        known = self.ids.get(name)
        bumps = version >= END_TXN_2
        mine = (request.producer_id, request.producer_epoch)
        if known is not None and bumps and mine == known.before and known.state == done:
            return EndTxnResponse(
                throttle_time_ms=0, error_code=0, producer_id=known.producer_id, producer_epoch=known.epoch
            )
        code = self.check(name, *mine)
        if code != ErrorCode.NONE or known is None:
            return EndTxnResponse(throttle_time_ms=0, error_code=code)
        again = known.state == done and not bumps
        if known.state != "Ongoing" and not again and (request.committed or not bumps):
            return EndTxnResponse(throttle_time_ms=0, error_code=ErrorCode.INVALID_TXN_STATE)
        if known.state == "Ongoing":
            self.end(name, committed=request.committed)
        known.state = done
        if not bumps:
            return EndTxnResponse(throttle_time_ms=0, error_code=0)
        known.before, known.epoch = mine, known.epoch + 1
        return EndTxnResponse(
            throttle_time_ms=0, error_code=0, producer_id=known.producer_id, producer_epoch=known.epoch
        )

    def end(self, name: str, *, committed: bool) -> None:
        """Write the markers."""
        known = self.ids[name]
        known.state = "CompleteCommit" if committed else "CompleteAbort"
        self.ended.append(
            Ended(
                committed,
                known.producer_id,
                known.epoch,
                frozenset(known.partitions),
                tuple(sorted(known.offsets.items())),
            )
        )
        known.partitions, known.groups, known.offsets = set(), set(), {}

    def describe(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            throttle_time_ms=0, transaction_states=[self._described(one) for one in request.transactional_ids]
        )

    def _described(self, name: str) -> DescribedState:
        known = self.ids.get(name)
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(known.partitions) if known is not None else ():
            topics.setdefault(topic, []).append(number)
        return DescribedState(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if known is None else 0,
            transactional_id=name,
            transaction_state="" if known is None else known.state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=-1,
            producer_id=-1 if known is None else known.producer_id,
            producer_epoch=-1 if known is None else known.epoch,
            topics=[TopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()],
        )
