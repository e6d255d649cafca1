"""The committed offsets of one group: commits, transactions, fetches, expiry. Pure.

:meth:`GroupOffsets.apply` takes over a record that is in the log, at a load and after an append alike: a commit, a
commit in a transaction, or a tombstone. Records are numbered in the order of their appends (`sequence`): of two commits
of a partition the later one in the log wins, whichever is reported first.

Commits in a transaction (KIP-98, KIP-447) are **pending** from the time their records are in the log until the marker
of their producer is (:meth:`GroupOffsets.end_transaction`). A marker that commits applies them, unless a later record
of the same partition is in the log already: their place is that of their own record, not that of the marker. A marker
that aborts drops them. A tombstone drops what was pending before it.

Source: Kafka's ``OffsetMetadataManager``; KIP-211 (expiry by group state).
"""

from collections.abc import Iterator, Set
from math import inf
from typing import Final, NamedTuple, Protocol

from barnabas_protocol.group_records import Committed

#: The producer id of records outside of transactions.
NO_PRODUCER: Final = -1


class OffsetsOwner(Protocol):
    """The group that offsets belong to. Groups of every protocol are one."""

    @property
    def offsets_may_expire(self) -> bool:
        """Whether offsets may expire now."""

    @property
    def empty_since(self) -> float | None:
        """When the retention of offsets starts, on the group's clock; None: with each commit."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to `topic`, or may do so."""


class OpenTransaction:
    """Offsets that an open transaction has committed in one group.

    Attributes:
        since_ms: when its first commit was made, in ms since 1970.
        offsets: its pending commits.
        reported: whether a client was refused stable offsets because of it.
        transactional_id: of its producer; None if this broker has not received a commit of it.
    """

    __slots__ = ("offsets", "reported", "since_ms", "transactional_id")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.offsets: dict[tuple[str, int], Committed] = {}
        self.reported = False
        self.transactional_id: str | None = None


class Pending(NamedTuple):
    """The transaction in which a partition's commit is pending."""

    producer_id: int
    transaction: OpenTransaction


class GroupOffsets:
    """The committed offsets of one group.

    Attributes:
        topics: the offsets by topic and partition; without what is pending.
    """

    __slots__ = ("_pending", "_transactions", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, Committed]] = {}
        #: By producer id.
        self._transactions: dict[int, OpenTransaction] = {}
        #: The producers with a pending commit of a partition, the first one first.
        self._pending: dict[tuple[str, int], dict[int, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.topics.values()))

    def __bool__(self) -> bool:
        return bool(self.topics) or bool(self._transactions)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for topic, partitions in self.topics.items():
            for partition in partitions:
                yield topic, partition

    def all_keys(self) -> list[tuple[str, int]]:
        """Every partition with a committed or a pending offset: what a deletion has to remove."""
        return [*self, *(key for key in self._pending if self.find(*key) is None)]

    def keys_of(self, topics: Set[str], until: int) -> list[tuple[str, int]]:
        """Partitions of some topics with a committed or a pending offset; without those that have a later one.

        Args:
            topics: names of the topics.
            until: a position in the order of appends.
        """
        latest = {
            (topic, partition): committed.sequence
            for topic in self.topics.keys() & topics
            for partition, committed in self.topics[topic].items()
        }
        for transaction in self._transactions.values():
            for key, committed in transaction.offsets.items():
                if key[0] in topics:
                    latest[key] = max(latest.get(key, 0), committed.sequence)
        return [key for key, sequence in latest.items() if sequence <= until]

    def sum(self, most: int) -> int | None:
        """The sum of the committed offsets; None if there are more than `most`."""
        if len(self) > most:
            return None
        return sum(committed.offset for partitions in self.topics.values() for committed in partitions.values())

    # Records

    def apply(
        self, topic: str, partition: int, committed: Committed | None, sequence: int, producer_id: int = NO_PRODUCER
    ) -> None:
        """Take over a record that is in the log.

        Args:
            topic: of its key.
            partition: of its key.
            committed: its value; None for a tombstone, which removes a pending offset, too.
            sequence: its place in the order of appends.
            producer_id: of its transaction, in which the offset is pending.
        """
        if committed is None:
            self._remove(topic, partition, sequence)
        elif producer_id == NO_PRODUCER:
            self.commit(topic, partition, committed)
        else:
            self._put(producer_id, (topic, partition), committed)

    def commit(self, topic: str, partition: int, committed: Committed) -> Committed | None:
        """Take over a commit that is in the log, in no transaction; returns the committed offset before it."""
        partitions = self.topics.get(topic)
        if partitions is None:
            partitions = self.topics[topic] = {}
        before = partitions.get(partition)
        if before is None or before.sequence < committed.sequence:
            partitions[partition] = committed
        return before

    def _remove(self, topic: str, partition: int, sequence: int) -> None:
        key = topic, partition
        for producer_id in tuple(self._pending.get(key, ())):
            transaction = self._transactions[producer_id]
            if transaction.offsets[key].sequence < sequence:
                del transaction.offsets[key]
                self._not_pending(key, producer_id)
                if not transaction.offsets:
                    del self._transactions[producer_id]
        partitions = self.topics.get(topic)
        before = partitions.get(partition) if partitions is not None else None
        if partitions is None or before is None:
            return
        if before.sequence < sequence:
            del partitions[partition]
            if not partitions:
                del self.topics[topic]

    # Transactions

    @property
    def in_transaction(self) -> bool:
        """Whether an open transaction has pending commits in this group."""
        return bool(self._transactions)

    def name_transaction(self, producer_id: int, transactional_id: str) -> None:
        """Take note of the transactional id of an open transaction."""
        transaction = self._transactions.get(producer_id)
        if transaction is not None:
            transaction.transactional_id = transactional_id

    def has_transaction(self, producer_id: int) -> bool:
        """Whether an open transaction of this producer has pending commits in this group."""
        return producer_id in self._transactions

    def end_transaction(self, producer_id: int, commit: bool, before: float = inf) -> OpenTransaction | None:
        """The marker of a producer is in the log: apply its pending commits, or drop them.

        Repeated markers, and those of producers that have committed nothing in this group, change nothing.

        Args:
            producer_id: of the marker.
            commit: whether the marker commits.
            before: the place of the marker in the order of appends. A marker that is repeated late does not end the
                next transaction, whose commits have a later one.

        Returns:
            The transaction that ended; None if there was none.
        """
        transaction = self._transactions.pop(producer_id, None)
        if transaction is None:
            return None
        ended, remaining = OpenTransaction(transaction.since_ms), OpenTransaction(transaction.since_ms)
        ended.reported = transaction.reported
        ended.transactional_id = remaining.transactional_id = transaction.transactional_id
        for key, offset in transaction.offsets.items():
            if offset.sequence > before:
                remaining.offsets[key] = offset
                continue
            ended.offsets[key] = offset
            self._not_pending(key, producer_id)
            if commit:
                self.commit(*key, offset)
        if remaining.offsets:
            self._transactions[producer_id] = remaining
        return ended if ended.offsets else None

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether an open transaction has committed this partition."""
        return (topic, partition) in self._pending

    def pending(self, topic: str, partition: int) -> Pending | None:
        """The open transaction that was the first to commit this partition; None if there is none."""
        producers = self._pending.get((topic, partition))
        if not producers:
            return None
        producer_id = next(iter(producers))
        return Pending(producer_id, self._transactions[producer_id])

    def _put(self, producer_id: int, key: tuple[str, int], committed: Committed) -> None:
        transaction = self._transactions.get(producer_id)
        if transaction is None:
            transaction = self._transactions[producer_id] = OpenTransaction(committed.commit_ms)
        before = transaction.offsets.get(key)
        if before is None or before.sequence < committed.sequence:
            transaction.offsets[key] = committed
            self._pending.setdefault(key, {})[producer_id] = None

    def _not_pending(self, key: tuple[str, int], producer_id: int) -> None:
        producers = self._pending[key]
        del producers[producer_id]
        if not producers:
            del self._pending[key]

    # Fetches, and expiry

    def find(self, topic: str, partition: int) -> Committed | None:
        """The committed offset of a partition; None if there is none."""
        partitions = self.topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def expired(self, group: OffsetsOwner, now: float, wall_ms: int, retention_ms: int) -> list[tuple[str, int]] | None:
        """The offsets whose retention is over (KIP-211). A partition with a pending commit keeps its offset.

        Args:
            group: the group that the offsets belong to.
            now: the time, on the group's clock.
            wall_ms: the time of day, in ms since 1970.
            retention_ms: ``offsets.retention.minutes`` in ms.

        Returns:
            Topic and partition of each; None if offsets may not expire now.
        """
        if not group.offsets_may_expire:
            return None
        empty_ms = None if group.empty_since is None else wall_ms - int((now - group.empty_since) * 1000)
        expired = []
        for topic, partitions in self.topics.items():
            if group.is_subscribed_to(topic):
                continue
            for partition, committed in partitions.items():
                if committed.expire_ms >= 0:
                    expires_ms = committed.expire_ms
                else:
                    expires_ms = (committed.commit_ms if empty_ms is None else empty_ms) + retention_ms
                if wall_ms >= expires_ms and not self.is_pending(topic, partition):
                    expired.append((topic, partition))
        return expired
