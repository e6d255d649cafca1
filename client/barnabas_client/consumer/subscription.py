"""State of a consumer's reading: its subscription, its partitions and their positions. Pure.

A partition is **assigned** by the group, by hand, or, without a group, because its topic is subscribed to. It can be
fetched when it has a position, is not paused, is not being revoked, and the rebalance listener has returned. Its
**position** is the offset of the next record that the program receives; records that were fetched beyond it wait in
`chunks` and `ready`. A position that is not known yet comes from where `needed` says: from the committed offset, or
else from the start or the end of the partition.

`epoch` changes whenever responses in flight for a partition must be ignored, after a seek or a revocation: code that
waits for a response remembers the epoch and drops the response if the epoch has changed.

**Leader epochs** (KIP-320) show whether the history that was read is still the partition's: `leader_epoch` is that of
the last record that the program received, `fetch_epoch` that of the last one fetched. Source: Kafka's
``SubscriptionState.java``.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from barnabas_client.consumer.fetched import Chunk, Unpacked
from barnabas_client.consumer.listener import ConsumerRebalanceListener
from barnabas_client.errors import IllegalStateError
from barnabas_client.structs import OffsetAndMetadata, TopicPartition
from barnabas_protocol.backoff import Backoff
from barnabas_protocol.errors import KafkaError


class Needed(Enum):
    """Where a partition's position comes from. The values are the timestamps that ListOffsets takes."""

    #: From the group's committed offset; without one as `auto_offset_reset` says. Not a question for ListOffsets.
    COMMITTED = None
    #: From the end of the partition.
    LATEST = -1
    #: From the start of the partition.
    EARLIEST = -2

    @classmethod
    def of_policy(cls, auto_offset_reset: str) -> "Needed | None":
        """The reset that `auto_offset_reset` asks for; None for "none"."""
        return {"latest": cls.LATEST, "earliest": cls.EARLIEST}.get(auto_offset_reset)


class PartitionState:
    """One assigned partition. Times are in seconds of the event loop's clock."""

    __slots__ = (
        "active",
        "backoff",
        "batch_end",
        "batch_epoch",
        "batch_start",
        "buffered",
        "checked",
        "checking",
        "chunks",
        "doubted",
        "epoch",
        "error",
        "fetch_epoch",
        "fetch_offset",
        "fetched_at",
        "fetching",
        "high_watermark",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "measured_at",
        "missing",
        "moved",
        "needed",
        "parts",
        "parts_epoch",
        "paused",
        "position",
        "position_epoch",
        "preferred",
        "queued",
        "raw",
        "ready",
        "resolving",
        "retry_at",
        "revoking",
        "tables",
        "topic_id",
        "tp",
    )

    def __init__(self, tp: TopicPartition, *, active: bool, backoff: Backoff) -> None:
        self.tp = tp
        self.backoff = backoff  # between requests that bring nothing new; see `back_off`
        self.active = active  # the rebalance listener has returned
        self.revoking = False
        self.paused = False
        self.epoch = 0
        self.needed: Needed | None = Needed.COMMITTED
        self.resolving = False
        self.position: int | None = None
        self.position_epoch = -1  # of the last record before `batch_start`
        self.batch_start = 0  # the position when the batch in `ready` was decoded
        self.batch_epoch = -1  # of that batch
        self.fetch_offset = 0
        self.fetch_epoch = -1  # of the last record before `fetch_offset`, -1 if unknown
        self.checked = -1  # the leader epoch in which `fetch_epoch` was found to be part of the leader's history
        self.checking = False
        self.doubted = False  # the leader answered a fetch that it does not know `fetch_epoch`
        self.topic_id = bytes(16)  # of the topic that the position belongs to
        self.missing = False  # the topic does not exist, and a warning was logged
        self.leader: int | None = None  # the last known leader
        self.moved = False  # the leader has changed since something new arrived
        self.fetching = False
        self.retry_at = 0.0
        self.chunks: deque[Chunk] = deque()
        self.parts: Iterator[Unpacked] | None = None  # of the batch in `ready`, those that are not decoded yet
        self.parts_epoch = -1  # the leader epoch of that batch
        self.buffered = 0
        self.ready: deque[Any] = deque()  # records, or Arrow record batches if `tables`
        self.tables = False
        self.raw = False  # records in `ready` are not deserialized yet
        self.batch_end = 0  # where the batch in `ready`, or the part of it, ends
        self.queued = False
        self.error: KafkaError | None = None
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.measured_at = 0.0  # when the three above were measured
        self.fetched_at: int | None = None  # the time of the last fetch response, in milliseconds since 1970
        self.preferred: int | None = None  # a replica nearer than the leader (KIP-392)

    @property
    def fetchable(self) -> bool:
        """Whether records of it may be fetched."""
        return (
            self.position is not None
            and self.active
            and not (self.paused or self.revoking or self.fetching or self.checking)
        )

    @property
    def deliverable(self) -> bool:
        """Whether polls may return its records."""
        return self.active and not (self.paused or self.revoking)

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last record that the program received, -1 if unknown."""
        began = self.position is not None and self.position > self.batch_start
        return self.batch_epoch if began else self.position_epoch

    def lag(self, *, read_committed: bool) -> int | None:
        """Offsets between the position and the end that the program may read, as of the last fetch; None if unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if end is None or end < 0 or self.position is None:
            return None
        return max(0, end - self.position)

    def unpacked(self, leader_epoch: int) -> None:
        """A batch has been decoded, from the position on."""
        self.position_epoch = self.leader_epoch
        self.batch_start, self.batch_epoch = self.position or 0, leader_epoch

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        """Continue at `offset`; the record before it is of `leader_epoch`. Forget what was fetched."""
        self.forget()
        self.needed = None
        self.topic_id = bytes(16)
        self.checked = -1
        self.position = offset
        self._fetch_from(offset, leader_epoch)

    def need(self, what: Needed) -> None:
        """Forget the position and find it again."""
        self.forget()
        self.needed = what
        self.topic_id = bytes(16)
        self.position = None
        self._fetch_from(0, -1)

    def refetch(self) -> None:
        """Forget what was fetched and fetch it again from the position."""
        self.forget()
        self._fetch_from(self.position or 0, self.leader_epoch)

    def switch(self, *, tables: bool) -> bool:
        """Have the next records decoded as Arrow record batches, or as records.

        Returns:
            Whether something was decoded otherwise, which is then fetched again.
        """
        self.tables, decoded = tables, bool(self.ready or self.parts is not None)
        if decoded:
            self.refetch()
        # A loop over records that runs must not meet record batches.
        self.ready = deque()
        return decoded

    def _fetch_from(self, offset: int, leader_epoch: int) -> None:
        self.fetch_offset = self.batch_start = self.batch_end = offset
        self.fetch_epoch = self.position_epoch = self.batch_epoch = leader_epoch

    def back_off(self, now: float, *, at_once: bool = False) -> None:
        """Ask for this partition again after a pause, which grows until something new arrives.

        Args:
            now: the time.
            at_once: without a pause, if this is the first time: the next request is another one and likely to succeed.
        """
        first, pause = self.backoff.failures == 0, self.backoff.failed()
        self.retry_at = now if first and at_once else now + pause

    def progressed(self) -> None:
        """Something new has arrived, or a response took its time: back-offs start over."""
        self.backoff.succeeded()
        self.moved = False

    def led_by(self, node: int) -> None:
        """This node is the leader: requests to another one no longer count, nor does the back-off after its errors. If
        the leader keeps changing while nothing new arrives, the back-off stays: two brokers may name each other."""
        if self.leader == node:
            return
        if self.leader is not None:
            self._drop_pending()
        if not self.moved:
            self.retry_at = 0.0
        self.moved = self.leader is not None
        self.leader = node

    def _drop_pending(self) -> None:
        self.epoch += 1
        self.fetching = self.resolving = self.checking = False

    def forget(self) -> None:
        """Forget what was fetched, and requests in flight."""
        self._drop_pending()
        self.chunks.clear()
        self.parts = None
        self.ready.clear()
        self.raw = False
        self.buffered = 0
        self.error = None
        self.doubted = False
        self.preferred = None


def as_decided(decided: Mapping[PartitionState, int]) -> list[PartitionState]:
    """The partitions that are as they were when a request about them was decided.

    A request is made in a task of its own. Before that begins, the program may seek, or the leader may change: what is
    asked then would be about another position.

    Args:
        decided: the partitions, with their `epoch` at that time.
    """
    return [state for state, epoch in decided.items() if state.epoch == epoch]


class Subscription:
    """The topics, the pattern, the rebalance listener and the assigned partitions of one consumer.

    Args:
        backoff: makes the back-off of a partition.
    """

    def __init__(self, backoff: Callable[[], Backoff]) -> None:
        self._backoff = backoff
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        #: A pattern that the group's coordinator matches (KIP-848).
        self.remote_pattern: str | None = None
        self.listener: ConsumerRebalanceListener | None = None
        #: Partitions were assigned by the program, not by a group.
        self.manual = False
        self.states: dict[TopicPartition, PartitionState] = {}

    def subscribe(
        self,
        topics: Iterable[str],
        pattern: re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
        remote_pattern: str | None = None,
    ) -> None:
        """Read these topics, or those that match a pattern, here or at the coordinator. Partitions are assigned later.

        Raises:
            IllegalStateError: partitions were assigned by hand.
        """
        if self.manual:
            raise IllegalStateError(
                "subscribe() after assign(): a consumer does one or the other. To do: call unsubscribe() first, or "
                "use a second consumer"
            )
        self.topics, self.pattern, self.listener = frozenset(topics), pattern, listener
        self.remote_pattern = remote_pattern

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions. Those that were assigned before keep their positions.

        Raises:
            IllegalStateError: topics are subscribed to.
        """
        if self.joins or self.pattern is not None:
            raise IllegalStateError(
                "assign() after subscribe(): a consumer does one or the other. To do: call unsubscribe() first, or "
                "use a second consumer"
            )
        self.manual = bool(partitions)
        self.keep(partitions)
        self.add(partitions, active=True)

    def unsubscribe(self) -> None:
        """Read nothing. The listener stays, for the revocation that follows."""
        self.topics, self.pattern, self.remote_pattern, self.manual = frozenset(), None, None, False
        self.keep(())

    @property
    def joins(self) -> bool:
        """Whether there is something to join a group for."""
        return bool(self.topics) or self.remote_pattern is not None

    @property
    def empty(self) -> bool:
        """Whether nothing is subscribed to or assigned."""
        return not (self.joins or self.states or self.pattern)

    @property
    def watched(self) -> set[str] | None:
        """The topics whose metadata matters; None for all topics."""
        return None if self.pattern is not None else set(self.topics) | {tp.topic for tp in self.states}

    def add(self, partitions: Iterable[TopicPartition], *, active: bool) -> None:
        """Assign more partitions. They cannot be fetched before they are `active`."""
        for tp in sorted(partitions):
            if tp not in self.states:
                self.states[tp] = PartitionState(tp, active=active, backoff=self._backoff())

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Drop all partitions but these."""
        for tp in [tp for tp in self.states if tp not in partitions]:
            self.states.pop(tp).forget()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop these partitions."""
        for tp in partitions:
            if tp in self.states:
                self.states.pop(tp).forget()

    def state(self, tp: TopicPartition) -> PartitionState:
        """An assigned partition.

        Raises:
            IllegalStateError: it is not assigned.
        """
        state = self.states.get(tp)
        if state is None:
            assigned = ", ".join(str(one) for one in sorted(self.states)) or "none"
            raise IllegalStateError(
                f"partition {tp} is not assigned to this consumer (assigned: {assigned}). To do: assign() it, or wait "
                f"until the group does, in on_partitions_assigned"
            )
        return state

    def positions(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The known positions, of all partitions or of these, as offsets to commit."""
        return {
            tp: OffsetAndMetadata(state.position, "", state.leader_epoch)
            for tp, state in self.states.items()
            if state.position is not None and (partitions is None or tp in partitions)
        }
