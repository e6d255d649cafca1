"""Processors: consumers that commit their offsets in transactions, with what they have made of the records."""

from functools import partial
from typing import Any

from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas_protocol.schema import Response
from tests.sim.members import TOPIC, Consumer
from tests.sim.transactions import Transaction, Transactions


class Processor(Consumer):
    """One process that consumes, transforms and produces; its results are not simulated, only their offsets.

    It starts at stable offsets, and after an aborted transaction begins again at the committed ones.
    """

    def __init__(self, transactions: Transactions, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._transactions = transactions
        self._transactional_id = self.name.partition("+")[0]
        self._transaction: Transaction | None = None
        #: Where the next transaction starts, by partition.
        self._starts: dict[int, int] = {}

    def _assigned(self, partitions: frozenset[int], generation: int) -> None:
        self._starts = {}
        super()._assigned(partitions, generation)

    def _fetch(self, generation: int) -> None:
        missing = self.held - self._starts.keys()
        if not self.alive or self.generation != generation or not missing:
            return
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=sorted(missing))]
        group = OffsetFetchRequestGroup(group_id=self.group, topics=topics)

        def then(response: Response | None) -> None:
            if self.generation != generation:
                return
            if isinstance(response, OffsetFetchResponse) and response.groups[0].error_code == ErrorCode.NONE:
                for found in response.groups[0].topics[0].partitions:
                    if found.error_code == ErrorCode.NONE:
                        start = max(found.committed_offset, 0)
                        self._starts[found.partition_index] = self._positions[found.partition_index] = start
            self.world.after(0.3, self._event, self._fetch, generation)

        self._ask(OffsetFetchRequest(groups=[group], require_stable=True), then)

    def _commit(self) -> None:
        try:
            identity = self._machine.commit_identity()
        except KafkaError:
            return
        ranges = {
            partition: (self._starts[partition], self._positions[partition])
            for partition in sorted(self.held & self._starts.keys())
            if self._positions[partition] > self._starts[partition]
        }
        if self._transaction is not None or not ranges or identity.generation != self.generation:
            return
        transaction = self._transactions.begin(self._transactional_id, self, self.group, ranges)
        if transaction is None:
            return
        self._transaction = transaction
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=end, committed_metadata="")
            for partition, (_, end) in ranges.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=self.group,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )
        self._send_offsets(request, transaction, self.generation, tries=2)

    def _send_offsets(
        self, request: TxnOffsetCommitRequest, transaction: Transaction, generation: int, tries: int
    ) -> None:
        """Send the offsets, once more if that fails, and end the transaction: commit, or abort now and then."""

        def then(response: Response | None) -> None:
            codes = {ErrorCode.NETWORK_EXCEPTION.value}
            if isinstance(response, TxnOffsetCommitResponse):
                codes = {each.error_code for topic in response.topics for each in topic.partitions}
            commit = codes == {ErrorCode.NONE}
            if not commit and tries > 1 and self.world.chance.random() < 0.5:
                again = (request, transaction, generation, tries - 1)
                self.world.after(self.world.between(0.1, 1.0), self._event, self._send_offsets, *again)
                return
            commit = commit and self.world.chance.random() < 0.8
            ended = partial(self._event, self._ended, transaction, generation, commit)
            self._transactions.end(transaction, ended, commit=commit)

        self._ask(request, then)

    def _ended(self, transaction: Transaction, generation: int, commit: bool, was_open: bool) -> None:
        """The result of EndTxn. A transaction that had timed out was aborted."""
        commit = commit and was_open
        self._transaction = None
        if self.generation == generation:
            for partition, (_, end) in transaction.ranges.items():
                if commit:
                    self._starts[partition] = end
                else:
                    self._starts.pop(partition, None)
            if not commit:
                self.world.after(self.world.between(0.0, 0.5), self._event, self._fetch, generation)
