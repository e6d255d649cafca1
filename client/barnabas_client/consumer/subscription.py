"""What a consumer reads and where it stands: its subscription, its partitions and their positions. Pure.

A partition is **assigned** by the group, by hand, or, without a group, because its topic is subscribed to. It can be
fetched when it has a position, is not paused, is not being taken away, and the program's listener has been told about
it. Its **position** is the offset of the next record that the program will get; what was fetched beyond it waits in
`chunks` and `ready`. A position that is not known yet is `needed`: what was committed, or else the start or the end of
the partition.

`epoch` changes whenever what is under way for a partition must be forgotten, by a seek or when it is taken away:
whoever waits for an answer remembers the epoch and drops the answer if it has changed.

**Leader epochs** (KIP-320) tell whether the history that was read is still the partition's: `leader_epoch` is that of
the last record that the program got, `fetch_epoch` that of the last one fetched. Source: Kafka's
``SubscriptionState.java``.
"""

from collections import deque
from collections.abc import Collection, Iterable
from enum import Enum

from barnabas_client.consumer.fetched import Chunk
from barnabas_client.errors import IllegalStateError
from barnabas_client.structs import ConsumerRecord, OffsetAndMetadata, TopicPartition
from barnabas_protocol.errors import KafkaError


class Needed(Enum):
    """Where a partition's position is to come from. The values are timestamps for ListOffsets where there is one."""

    COMMITTED = None
    LATEST = -1
    EARLIEST = -2

    @classmethod
    def of_policy(cls, auto_offset_reset: str) -> "Needed | None":
        """What `auto_offset_reset` asks for, None for "none"."""
        return {"latest": cls.LATEST, "earliest": cls.EARLIEST}.get(auto_offset_reset)


class PartitionState:
    """One assigned partition. Times are in seconds of the event loop's clock."""

    __slots__ = (
        "active",
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
        "needed",
        "paused",
        "position",
        "position_epoch",
        "preferred",
        "queued",
        "ready",
        "resolving",
        "retry_at",
        "revoking",
        "topic_id",
        "tp",
    )

    def __init__(self, tp: TopicPartition, *, active: bool) -> None:
        self.tp = tp
        self.active = active  # the listener has been told
        self.revoking = False
        self.paused = False
        self.epoch = 0
        self.needed: Needed | None = Needed.COMMITTED
        self.resolving = False
        self.position: int | None = None
        self.position_epoch = -1  # of the last record before `batch_start`
        self.batch_start = 0  # the position when the batch was decoded that `ready` is from
        self.batch_epoch = -1  # of that batch
        self.fetch_offset = 0
        self.fetch_epoch = -1  # of the last record before `fetch_offset`, -1 if unknown
        self.checked = -1  # the leader epoch at which `fetch_epoch` was found to be part of the leader's history
        self.checking = False
        self.doubted = False  # a fetch was answered that the leader knows nothing of `fetch_epoch`
        self.topic_id = bytes(16)  # of the topic that the position is about
        self.missing = False  # the topic does not exist, and that was said
        self.leader: int | None = None  # the node that was last known to lead
        self.fetching = False
        self.retry_at = 0.0
        self.chunks: deque[Chunk] = deque()
        self.buffered = 0
        self.ready: deque[ConsumerRecord] = deque()
        self.batch_end = 0  # where the batch ends that `ready` is from
        self.queued = False
        self.error: KafkaError | None = None
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.measured_at = 0.0  # when the three above were true
        self.fetched_at: int | None = None  # the same of a fetch, in milliseconds since 1970
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
        """Whether records of it may be handed to the program."""
        return self.active and not (self.paused or self.revoking)

    @property
    def leader_epoch(self) -> int:
        """Of the last record that the program got, -1 if unknown."""
        began = self.position is not None and self.position > self.batch_start
        return self.batch_epoch if began else self.position_epoch

    def lag(self, *, read_committed: bool) -> int | None:
        """Records between the position and the end that the program may see, as of the last fetch; None if unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if end is None or end < 0 or self.position is None:
            return None
        return max(0, end - self.position)

    def unpacked(self, leader_epoch: int) -> None:
        """A batch is handed to the program from the position on."""
        self.position_epoch = self.leader_epoch
        self.batch_start, self.batch_epoch = self.position or 0, leader_epoch

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        """Go on at `offset`, the record before which is of `leader_epoch`; forget what was fetched."""
        self.forget()
        self.needed = None
        self.topic_id = bytes(16)
        self.checked = -1
        self.position = offset
        self._fetch_from(offset, leader_epoch)

    def need(self, what: Needed) -> None:
        """Forget the position; it must be found anew."""
        self.forget()
        self.needed = what
        self.topic_id = bytes(16)
        self.position = None
        self._fetch_from(0, -1)

    def refetch(self) -> None:
        """Forget what was fetched and fetch it again from the position."""
        self.forget()
        self._fetch_from(self.position or 0, self.leader_epoch)

    def _fetch_from(self, offset: int, leader_epoch: int) -> None:
        self.fetch_offset = self.batch_start = self.batch_end = offset
        self.fetch_epoch = self.position_epoch = self.batch_epoch = leader_epoch

    def led_by(self, node: int) -> None:
        """This node leads it: what another one was asked, or refused, is waited for no longer."""
        if self.leader is None:
            self.retry_at = 0.0
        elif self.leader != node:
            self._drop_pending()
        self.leader = node

    def _drop_pending(self) -> None:
        self.epoch += 1
        self.fetching = self.resolving = self.checking = False
        self.retry_at = 0.0

    def forget(self) -> None:
        """Forget what was fetched, and whatever is under way."""
        self._drop_pending()
        self.chunks.clear()
        self.ready.clear()
        self.buffered = 0
        self.error = None
        self.doubted = False
        self.preferred = None


class Subscription:
    """All of it."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.by_hand = False
        self.states: dict[TopicPartition, PartitionState] = {}

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics; the partitions come from elsewhere.

        Raises:
            IllegalStateError: partitions were assigned by hand.
        """
        if self.by_hand:
            raise IllegalStateError(
                "subscribe() after assign(): a consumer does one or the other. To do: call unsubscribe() first, or "
                "use a second consumer"
            )
        self.topics = frozenset(topics)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; those that were read before go on where they are.

        Raises:
            IllegalStateError: topics are subscribed to.
        """
        if self.topics:
            raise IllegalStateError(
                "assign() after subscribe(): a consumer does one or the other. To do: call unsubscribe() first, or "
                "use a second consumer"
            )
        self.by_hand = bool(partitions)
        self.keep(partitions)
        self.add(partitions, active=True)

    def unsubscribe(self) -> None:
        """Read nothing."""
        self.topics, self.by_hand = frozenset(), False
        self.keep(())

    def add(self, partitions: Iterable[TopicPartition], *, active: bool) -> None:
        """Read these as well. They cannot be fetched before they are `active`."""
        for tp in sorted(partitions):
            if tp not in self.states:
                self.states[tp] = PartitionState(tp, active=active)

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading all but these."""
        for tp in [tp for tp in self.states if tp not in partitions]:
            self.states.pop(tp).forget()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these."""
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
            held = ", ".join(str(one) for one in sorted(self.states)) or "none"
            raise IllegalStateError(
                f"partition {tp} is not assigned to this consumer (assigned: {held}). To do: assign() it, or wait "
                "until the group does, in "
                f"on_partitions_assigned"
            )
        return state

    def positions(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where each partition stands whose position is known, to be committed."""
        return {
            tp: OffsetAndMetadata(state.position, "", state.leader_epoch)
            for tp, state in self.states.items()
            if state.position is not None and (partitions is None or tp in partitions)
        }
