"""What the leader of a partition knows about its followers. Pure: fetches and changes of the ISR come in, the high
watermark and the ISR that is wanted come out.

The high watermark is the least log end offset of the *maximal ISR*: the ISR that the cluster has agreed on, and those
whose admission is on its way, who may be elected before the leader hears that they were admitted (KIP-497). A new
leader knows nothing of its followers, so its high watermark stays until each of the ISR has fetched.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas_broker.cluster.image import PartitionInfo

UNKNOWN: Final = -1


@dataclass(slots=True)
class Follower:
    """What a follower's fetches told.

    Attributes:
        caught_up_at: when it last had everything that the leader had at that time, in seconds.
        log_end_offset: where its log ends, -1 if it has not fetched in this leadership.
        log_start_offset: where its log begins, -1 if it has not fetched in this leadership.
        broker_epoch: which life of the broker it is.
        asked_at: when it last fetched.
        end_when_asked: where the leader's log ended then.
    """

    caught_up_at: float
    log_end_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    broker_epoch: int = -1
    asked_at: float = 0.0
    end_when_asked: int = UNKNOWN

    def fetched(self, broker_epoch: int, offset: int, log_start: int, log_end: int, now: float) -> None:
        """It asks for `offset` on, so it has all before (Kafka's ``Replica.updateFetchStateOrThrow``)."""
        if offset >= log_end:
            self.caught_up_at = max(self.caught_up_at, now)
        elif offset >= self.end_when_asked and self.end_when_asked != UNKNOWN:
            self.caught_up_at = max(self.caught_up_at, self.asked_at)
        self.broker_epoch, self.log_end_offset = broker_epoch, offset
        self.log_start_offset = max(log_start, UNKNOWN)
        self.asked_at, self.end_when_asked = now, log_end


@dataclass(slots=True)
class Leadership:
    """A partition under one leader epoch of this broker.

    Attributes:
        node_id: this broker.
        info: the partition as the cluster has agreed on.
        log_end: where the log ends; whoever appends keeps it up to date.
        now: when the leadership began, in seconds.
    """

    node_id: int
    info: PartitionInfo
    log_end: int
    now: float
    epoch_start: int = field(init=False)
    followers: dict[int, Follower] = field(init=False)
    #: The ISR that was asked for and is not decided yet.
    proposed: tuple[int, ...] | None = field(init=False, default=None)
    #: Nobody else counts: the high watermark follows the log's end at once.
    alone: bool = field(init=False)
    #: Asked for once, and nobody knows whether it was agreed to.
    _perhaps: frozenset[int] = field(init=False, default=frozenset())
    _others: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.epoch_start = self.log_end
        self.followers = {n: Follower(self.now) for n in self.info.replicas if n != self.node_id}
        self._count()

    def _count(self) -> None:
        self._others = frozenset((*self.info.isr, *(self.proposed or ()), *self._perhaps)) - {self.node_id}
        self.alone = not self._others

    def changed(self, info: PartitionInfo, now: float) -> None:
        """The cluster has decided: a new ISR or new replicas, under the same leader epoch."""
        # Every proposal names the partition epoch it was made for, so this settles all of them.
        self.info, self.proposed, self._perhaps = info, None, frozenset()
        self.followers = {n: self.followers.get(n) or Follower(now) for n in info.replicas if n != self.node_id}
        self._count()

    def refused(self) -> None:
        """The ISR that was proposed will not be; whoever would have come in counts no more."""
        self.proposed = None
        self._count()

    def unsettled(self) -> None:
        """Nobody knows what became of the ISR that was proposed: who would have come in counts on, and it may be
        proposed again."""
        self._perhaps |= frozenset(self.proposed or ())
        self.proposed = None
        self._count()

    def fetched(self, node_id: int, broker_epoch: int, offset: int, now: float, log_start: int = UNKNOWN) -> bool:
        """A follower fetches from `offset` on; its log begins at `log_start`.

        Returns:
            False: it is no replica of this partition.
        """
        follower = self.followers.get(node_id)
        if follower is None:
            return False
        follower.fetched(broker_epoch, offset, log_start, self.log_end, now)
        return True

    def high_watermark(self, known: int) -> int:
        """The high watermark, which never goes back from what is `known`."""
        lowest = self.log_end
        for node_id in self._others:
            follower = self.followers.get(node_id)
            if follower is None:
                return known
            lowest = min(lowest, follower.log_end_offset)
        return max(known, lowest)

    def low_watermark(self, log_start: int, live: Iterable[int]) -> int:
        """Before which offset no replica that lives has anything: the least log start offset (KIP-107); -1 while one of
        them has not fetched.

        Args:
            log_start: of this broker's log.
            live: the brokers that are there.
        """
        there = set(live)
        starts = [follower.log_start_offset for node_id, follower in self.followers.items() if node_id in there]
        return min([log_start, *starts])

    def may_join(self, node_id: int, high_watermark: int) -> bool:
        """Whether a follower outside the ISR has what it takes: all that is committed, and this leader's beginning."""
        if self.proposed is not None or node_id in self.info.isr:
            return False
        follower = self.followers.get(node_id)
        return follower is not None and follower.log_end_offset >= max(high_watermark, self.epoch_start)

    def wanted_isr(self, high_watermark: int, now: float, lag_seconds: float, live: Iterable[int]) -> tuple[int, ...]:
        """The ISR as it should be, in the order of the replicas.

        Args:
            high_watermark: of the partition.
            now: the time, in seconds.
            lag_seconds: how long a member may not have been caught up (``replica.lag.time.max.ms``).
            live: the brokers that are there; nobody else comes in.
        """
        there = set(live)
        isr = []
        for node_id in self.info.replicas:
            if node_id == self.node_id:
                isr.append(node_id)
            elif node_id in self.info.isr:
                follower = self.followers[node_id]
                if follower.log_end_offset == self.log_end or now - follower.caught_up_at <= lag_seconds:
                    isr.append(node_id)
            elif node_id in there and self.may_join(node_id, high_watermark):
                isr.append(node_id)
        return tuple(isr)

    def propose(self, isr: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Ask for another ISR; who would come in counts from now on.

        Returns:
            Its members, each with the broker epoch that its fetches named, -1 where there was none (KIP-903).
        """
        self.proposed = isr
        self._count()
        return tuple((n, self.followers[n].broker_epoch if n in self.followers else -1) for n in isr)
