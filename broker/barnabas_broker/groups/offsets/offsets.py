"""The committed offsets of one group: commits, fetches, expiry. Pure.

An offset is committed once its record is in the log, so all methods are called after that. Records are numbered in the
order of their appends (`sequence`): of two commits of a partition the later one wins, whichever is reported first.

Source: Kafka's ``OffsetMetadataManager``; KIP-211 (expiry by group state), KIP-447 (pending transactional commits).
"""

from collections.abc import Iterator
from typing import Protocol

from barnabas_broker.groups.records import Committed


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


class GroupOffsets:
    """The committed offsets of one group.

    Attributes:
        topics: the offsets by topic and partition.
    """

    __slots__ = ("_transactions", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, Committed]] = {}
        #: The commits of open transactions, by producer id, then by topic and partition.
        self._transactions: dict[int, dict[tuple[str, int], Committed]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.topics.values()))

    def __bool__(self) -> bool:
        return bool(self.topics) or bool(self._transactions)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for topic, partitions in self.topics.items():
            for partition in partitions:
                yield topic, partition

    def commit(self, topic: str, partition: int, committed: Committed) -> None:
        """Apply a commit whose record is in the log."""
        partitions = self.topics.get(topic)
        if partitions is None:
            partitions = self.topics[topic] = {}
        before = partitions.get(partition)
        if before is None or before.sequence < committed.sequence:
            partitions[partition] = committed

    def remove(self, topic: str, partition: int, sequence: int) -> None:
        """Remove an offset whose tombstone is in the log."""
        for pending in self._transactions.values():
            pending.pop((topic, partition), None)
        partitions = self.topics.get(topic)
        before = partitions.get(partition) if partitions is not None else None
        if partitions is None or before is None:
            return
        if before.sequence < sequence:
            del partitions[partition]
            if not partitions:
                del self.topics[topic]

    def commit_pending(self, producer_id: int, topic: str, partition: int, committed: Committed) -> None:
        """Remember a commit of an open transaction (KIP-447)."""
        self._transactions.setdefault(producer_id, {})[topic, partition] = committed

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """A transaction has ended: apply its commits, or drop them."""
        pending = self._transactions.pop(producer_id, {})
        if commit:
            for (topic, partition), committed in pending.items():
                self.commit(topic, partition, committed)

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether an open transaction has committed this partition."""
        transactions = self._transactions
        return bool(transactions) and any((topic, partition) in pending for pending in transactions.values())

    def find(self, topic: str, partition: int) -> Committed | None:
        """The committed offset of a partition; None if there is none."""
        partitions = self.topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def expired(self, group: OffsetsOwner, now: float, wall_ms: int, retention_ms: int) -> list[tuple[str, int]] | None:
        """The offsets whose retention is over (KIP-211).

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
