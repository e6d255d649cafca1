"""The committed offsets of one group: commits, fetches, expiry. Pure.

An offset counts once its record is in the log, so everything here happens after that. Records are numbered in the
order of their appends (`sequence`), and of two commits of the same partition the younger one wins, whichever is heard
of first.

Source: Kafka's ``OffsetMetadataManager``; KIP-211 (expiry by group state), KIP-447 (pending transactional commits).
"""

from collections.abc import Iterator
from enum import Enum

from barnabas_broker.groups.classic.group import Group
from barnabas_broker.groups.classic.states import GroupState
from barnabas_broker.groups.records import Committed
from barnabas_broker.groups.subscriptions import CONSUMER, subscribed_topics

#: What a fetch finds where a transaction has committed and is not over.
UNSTABLE = Committed(-1, -1, "", -1)
#: What a fetch finds where nothing was committed (rule 24).
NOTHING = Committed(-1, -1, "", -1)


class ExpireFrom(Enum):
    """From when on the retention of a group's offsets counts (rule 26)."""

    NEVER = "never"
    """The group rebalances, or nobody knows what it subscribes to."""
    EMPTY = "empty"
    """Since the group became Empty; the commit where that is not known."""
    COMMIT = "commit"
    """Since the commit: a group without members ever, or a topic that a Stable group no longer subscribes to."""


class GroupOffsets:
    """The committed offsets of one group.

    Attributes:
        topics: by topic and partition.
    """

    __slots__ = ("_known", "_transactions", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, Committed]] = {}
        #: Commits of open transactions: by producer id, then topic and partition.
        self._transactions: dict[int, dict[tuple[str, int], Committed]] = {}
        self._known: tuple[tuple[bytes, ...], str | None, frozenset[str] | None] | None = None

    def __len__(self) -> int:
        return sum(map(len, self.topics.values()))

    def __bool__(self) -> bool:
        return bool(self.topics) or bool(self._transactions)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for topic, partitions in self.topics.items():
            for partition in partitions:
                yield topic, partition

    def commit(self, topic: str, partition: int, committed: Committed) -> None:
        """Take over a commit whose record is in the log."""
        partitions = self.topics.get(topic)
        if partitions is None:
            partitions = self.topics[topic] = {}
        before = partitions.get(partition)
        if before is None or before.sequence < committed.sequence:
            partitions[partition] = committed

    def remove(self, topic: str, partition: int, sequence: int) -> None:
        """Forget an offset whose tombstone is in the log."""
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
        """Take over a commit that is part of a transaction (KIP-447)."""
        self._transactions.setdefault(producer_id, {})[topic, partition] = committed

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """A transaction is over: its commits count, or never did."""
        pending = self._transactions.pop(producer_id, {})
        if commit:
            for (topic, partition), committed in pending.items():
                self.commit(topic, partition, committed)

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether a transaction has committed here and is not over."""
        return any((topic, partition) in pending for pending in self._transactions.values())

    def find(self, topic: str, partition: int, require_stable: bool = False) -> Committed:
        """What OffsetFetch answers: the offset, :data:`NOTHING`, or :data:`UNSTABLE` if the client asks for that."""
        if require_stable and self._transactions and self.is_pending(topic, partition):
            return UNSTABLE
        return self.topics.get(topic, {}).get(partition, NOTHING)

    def subscribes(self, group: Group, topic: str) -> bool:
        """Whether the group consumes `topic` as far as anybody can tell; then its offsets are not for removal."""
        known = self._subscribed(group)
        return topic in known if known is not None else group.members.protocol_type == CONSUMER

    def expired(self, group: Group, now: float, wall_ms: int, retention_ms: int) -> list[tuple[str, int]] | None:
        """What is past its time (rule 26).

        Args:
            group: whose offsets these are.
            now: the time, on the group's clock.
            wall_ms: the time of day, in ms.
            retention_ms: ``offsets.retention.minutes``.

        Returns:
            Topic and partition of each; None if nothing may expire now.
        """
        start = self._expire_from(group)
        if start is ExpireFrom.NEVER:
            return None
        empty_ms = None
        if start is ExpireFrom.EMPTY and group.since is not None:
            empty_ms = wall_ms - int((now - group.since) * 1000)
        gone = []
        for topic, partitions in self.topics.items():
            if self.subscribes(group, topic):
                continue
            for partition, committed in partitions.items():
                if committed.expire_ms >= 0:
                    over = committed.expire_ms
                else:
                    over = (committed.commit_ms if empty_ms is None else empty_ms) + retention_ms
                if wall_ms >= over and not (self._transactions and self.is_pending(topic, partition)):
                    gone.append((topic, partition))
        return gone

    def _expire_from(self, group: Group) -> ExpireFrom:
        protocol_type = group.members.protocol_type
        if protocol_type is None:
            return ExpireFrom.COMMIT
        if group.state is GroupState.EMPTY:
            return ExpireFrom.EMPTY
        if group.state is GroupState.STABLE and self._subscribed(group) is not None:
            return ExpireFrom.COMMIT
        return ExpireFrom.NEVER

    def _subscribed(self, group: Group) -> frozenset[str] | None:
        """The topics of the group's generation, decoded once for each generation."""
        said, protocol_type = group.subscriptions, group.members.protocol_type
        if self._known is None or self._known[0] is not said or self._known[1] != protocol_type:
            self._known = (said, protocol_type, subscribed_topics(protocol_type, said))
        return self._known[2]
