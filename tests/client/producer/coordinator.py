"""The broker's machine of a transaction as a coordinator that answers at once, for tests of the client's machine."""

from collections.abc import Collection
from typing import Final, NamedTuple

from barnabas_broker.storage import TopicPartition
from barnabas_broker.transactions import transaction as broker
from barnabas_broker.transactions.transaction import Transaction, fresh_metadata
from barnabas_client import structs
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
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
_END_TXN_2: Final = 5
_OFFSET_COMMIT_2: Final = 5
_OFFSETS: Final = TopicPartition(OFFSETS_TOPIC, 0)

Offsets = tuple[tuple[tuple[str, str, int], tuple[int, str | None]], ...]


class Ended(NamedTuple):
    """A transaction that is over: its partitions, and the offsets by group and partition."""

    committed: bool
    partitions: frozenset[structs.TopicPartition]
    offsets: Offsets


class Transactions:
    """The transactions of a cluster. `version` is the finalized ``transaction.version``."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.ids: dict[str, Transaction] = {}
        self.ended: list[Ended] = []
        self._offsets: dict[tuple[str, str, int], tuple[int, str | None]] = {}
        self._producer_ids = 4000

    def _do(self, machine: Transaction, decision: broker.Decision) -> broker.TxnReply:
        """Apply a decision at once, and write the markers."""
        for record in decision.records:
            machine.apply(record)
        for event in decision.events:
            if isinstance(event, broker.Ended):
                partitions = frozenset(structs.TopicPartition(*tp) for tp in event.before.partitions - {_OFFSETS})
                self.ended.append(Ended(event.committed, partitions, tuple(sorted(self._offsets.items()))))
                self._offsets.clear()
            elif isinstance(event, broker.SendMarkers):
                self._do(machine, machine.markers_written(event.partitions, 0))
        return decision.response or broker.TxnReply(ErrorCode.NONE)

    def init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        name = request.transactional_id or ""
        if name not in self.ids:
            self._producer_ids += 1
            self.ids[name] = Transaction(name, fresh_metadata(self._producer_ids, request.transaction_timeout_ms, 0))
        machine = self.ids[name]
        expected = (request.producer_id, request.producer_epoch) if request.producer_id >= 0 else None
        reply = self._do(machine, machine.init_producer_id(request.transaction_timeout_ms, expected, -1, 0))
        return InitProducerIdResponse(
            error_code=reply.error, producer_id=reply.producer_id, producer_epoch=reply.producer_epoch
        )

    def _add(self, name: str, producer: tuple[int, int], partitions: Collection[TopicPartition]) -> ErrorCode:
        machine = self.ids.get(name)
        if machine is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return self._do(machine, machine.add_partitions(*producer, partitions, self.version, 0)).error

    def _holds(self, name: str, producer: tuple[int, int], tp: TopicPartition, *, implicit: bool) -> ErrorCode:
        """Whether a partition is in the transaction, or may be added to it."""
        if implicit:
            return self._add(name, producer, [tp])
        return self.ids[name].verify(*producer, [tp])[tp]

    def write(self, name: str, producer_id: int, epoch: int, topic: str, number: int, *, implicit: bool) -> ErrorCode:
        """A leader has got a batch."""
        return self._holds(name, (producer_id, epoch), TopicPartition(topic, number), implicit=implicit)

    def add(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        topics = request.v3_and_below_topics
        producer = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        partitions = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        code = self._add(request.v3_and_below_transactional_id, producer, partitions)
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

    def add_offsets(self, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
        code = self._add(request.transactional_id, (request.producer_id, request.producer_epoch), [_OFFSETS])
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)

    def commit_offsets(
        self, request: TxnOffsetCommitRequest, version: int, member: ErrorCode = ErrorCode.NONE
    ) -> TxnOffsetCommitResponse:
        """Commit offsets; `member` is why the group refuses its member."""
        producer = (request.producer_id, request.producer_epoch)
        code = member or self._holds(request.transactional_id, producer, _OFFSETS, implicit=version >= _OFFSET_COMMIT_2)
        if code == ErrorCode.NONE:
            self._offsets |= {
                (request.group_id, topic.name, one.partition_index): (one.committed_offset, one.committed_metadata)
                for topic in request.topics
                for one in topic.partitions
            }
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
        machine = self.ids.get(request.transactional_id)
        if machine is None:
            return EndTxnResponse(throttle_time_ms=0, error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        spoken = 2 if version >= _END_TXN_2 else 0
        producer = (request.producer_id, request.producer_epoch)
        reply = self._do(machine, machine.end(*producer, request.committed, spoken, -1, 0))
        return EndTxnResponse(
            throttle_time_ms=0,
            error_code=reply.error,
            producer_id=reply.producer_id,
            producer_epoch=reply.producer_epoch,
        )

    def describe(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        (name,) = request.transactional_ids
        own = self.ids[name].metadata
        state = DescribedState(
            error_code=ErrorCode.NONE,
            transactional_id=name,
            transaction_state=own.state.value,
            transaction_timeout_ms=own.timeout_ms,
            transaction_start_time_ms=own.start_ms,
            producer_id=own.producer_id,
            producer_epoch=own.producer_epoch,
            topics=[TopicData(topic=tp.topic, partitions=[tp.partition]) for tp in sorted(own.partitions)],
        )
        return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[state])
