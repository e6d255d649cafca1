"""The leader's view of a partition's followers: computes the high watermark and the ISR to propose from fetches and ISR
changes. Pure.

The high watermark is the smallest log end offset in the *maximal ISR*: the committed ISR, plus the followers in a
proposal that is in flight, because these may be elected before the leader learns that they were admitted (KIP-497). A
new leader does not know the offsets of its followers, so its high watermark stays until each ISR member has fetched.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas_broker.cluster.image import BrokerInfo, PartitionInfo

UNKNOWN: Final = -1


@dataclass(slots=True)
class Follower:
    """The state of a follower in one registration, from its fetches (Kafka's ``ReplicaState``).

    Attributes:
        caught_up_at: when it last had all records that the leader had at that time, in seconds.
        log_end_offset: its log end offset; -1 if it has not fetched in this leader epoch.
        log_start_offset: its log start offset; -1 if it has not fetched in this leader epoch.
        broker_epoch: its broker epoch; -1 if it has not fetched in this leader epoch.
        fetched_at: when it last fetched.
        end_when_fetched: the leader's log end offset at that time.
    """

    caught_up_at: float
    log_end_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    fetched_at: float = 0.0
    end_when_fetched: int = UNKNOWN

    def fetched(self, offset: int, log_start: int, log_end: int, now: float) -> None:
        """It fetches from `offset` on, so it has all records before (Kafka's ``Replica.updateFetchStateOrThrow``)."""
        if offset >= log_end:
            self.caught_up_at = max(self.caught_up_at, now)
        elif offset >= self.end_when_fetched and self.end_when_fetched != UNKNOWN:
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.log_end_offset = offset
        self.log_start_offset = max(log_start, UNKNOWN)
        self.fetched_at, self.end_when_fetched = now, log_end


class Resignation(NamedTuple):
    """How a partition goes on without its leader.

    Attributes:
        isr: the new leader and the other members of the ISR.
        enough: they are in sync now, and as many as the topic asks for.
    """

    isr: tuple[int, ...]
    enough: bool


@dataclass(slots=True)
class Leadership:
    """A partition that this broker leads, in one leader epoch.

    Attributes:
        node_id: this broker.
        info: the partition in the cluster image.
        log_end: the log end offset; updated after each append.
        now: when the leadership began, in seconds.
        epoch_start: the log end offset at that time.
        followers: the other replicas, by node id.
        proposed: the ISR in a proposal that is in flight; None if there is none.
        alone: no other replica counts, so the high watermark follows each append.
    """

    node_id: int
    info: PartitionInfo
    log_end: int
    now: float
    epoch_start: int = field(init=False)
    followers: dict[int, Follower] = field(init=False)
    proposed: tuple[int, ...] | None = field(init=False, default=None)
    alone: bool = field(init=False)
    #: Followers in proposals whose outcome is unknown.
    _unknown: frozenset[int] = field(init=False, default=frozenset())
    _others: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.epoch_start = self.log_end
        self.followers = {n: Follower(self.now) for n in self.info.replicas if n != self.node_id}
        self._count()

    def _count(self) -> None:
        self._others = frozenset((*self.info.isr, *(self.proposed or ()), *self._unknown)) - {self.node_id}
        self.alone = not self._others

    def changed(self, info: PartitionInfo, now: float) -> None:
        """Apply a new ISR or new replicas in the same leader epoch."""
        if info.partition_epoch != self.info.partition_epoch:
            # A proposal names a partition epoch, so another one ends it. Until then it is decided again after each
            # change of other metadata, and may be accepted: the followers in it count.
            self.proposed = None
        # A proposal whose outcome is unknown was stored as the next change of the metadata, or never.
        self.info, self._unknown = info, frozenset()
        self.followers = {n: self.followers.get(n) or Follower(now) for n in info.replicas if n != self.node_id}
        self._count()

    def rejected(self) -> None:
        """The proposal was rejected, so followers that it would have added do not count."""
        self.proposed = None
        self._count()

    def outcome_unknown(self) -> None:
        """The outcome of the proposal is unknown: the followers in it still count, and it may be proposed again."""
        self._unknown |= frozenset(self.proposed or ())
        self.proposed = None
        self._count()

    def fetched(self, node_id: int, broker_epoch: int, offset: int, now: float, log_start: int = UNKNOWN) -> bool:
        """A follower fetches from `offset` on; its log begins at `log_start`.

        Returns:
            False if it is not a replica of this partition, or was registered again since.
        """
        follower = self.followers.get(node_id)
        if follower is None or broker_epoch < follower.broker_epoch:
            return False
        if broker_epoch > follower.broker_epoch:
            # A broker that registers again may have another disk: what it had fetched before does not count.
            follower = self.followers[node_id] = Follower(now, broker_epoch=broker_epoch)
        follower.fetched(offset, log_start, self.log_end, now)
        return True

    def registered(self, node_id: int, broker_epoch: int, now: float) -> None:
        """A broker is registered with this epoch: what it has fetched in other registrations does not count."""
        follower = self.followers.get(node_id)
        if follower is not None and follower.broker_epoch != broker_epoch:
            self.followers[node_id] = Follower(now)

    def high_watermark(self, known: int) -> int:
        """The high watermark; never less than `known`."""
        lowest = self.log_end
        for node_id in self._others:
            follower = self.followers.get(node_id)
            if follower is None:
                return known
            lowest = min(lowest, follower.log_end_offset)
        return max(known, lowest)

    def low_watermark(self, log_start: int, live: Iterable[int]) -> int:
        """The smallest log start offset among live replicas (KIP-107); -1 while one of them has not fetched.

        Args:
            log_start: the leader's log start offset.
            live: the registered brokers.
        """
        registered = set(live)
        starts = [follower.log_start_offset for node_id, follower in self.followers.items() if node_id in registered]
        return min([log_start, *starts])

    def may_join(self, node_id: int, high_watermark: int) -> bool:
        """Whether a follower may join the ISR: it has all committed records and those before this leader epoch."""
        if self.proposed is not None or node_id in self.info.isr:
            return False
        follower = self.followers.get(node_id)
        return follower is not None and follower.log_end_offset >= max(high_watermark, self.epoch_start)

    def wanted_isr(
        self, high_watermark: int, now: float, lag_seconds: float, live: Mapping[int, BrokerInfo]
    ) -> tuple[int, ...]:
        """The ISR to propose, in the order of the replicas.

        Args:
            high_watermark: of the partition.
            now: the time, in seconds.
            lag_seconds: how long a member may lag (``replica.lag.time.max.ms``).
            live: the registered brokers; only these may join, with what they have fetched in this registration, and
                not if that is longer ago than members may lag.
        """
        isr = []
        for node_id in self.info.replicas:
            if node_id == self.node_id:
                isr.append(node_id)
            elif node_id in self.info.isr:
                follower = self.followers[node_id]
                if follower.log_end_offset == self.log_end or now - follower.caught_up_at <= lag_seconds:
                    isr.append(node_id)
            elif self.may_join(node_id, high_watermark):
                broker, follower = live.get(node_id), self.followers[node_id]
                # As in Kafka, it joins by fetching: one that is silent would leave again at once.
                fetches = now - follower.fetched_at <= lag_seconds
                if broker is not None and broker.epoch == follower.broker_epoch and fetches:
                    isr.append(node_id)
        return tuple(isr)

    def silent(self, since: float) -> list[int]:
        """The followers in the ISR that lack records, and have not fetched since then: a time, in seconds."""
        isr = self.info.isr
        return [node_id for node_id in self._unheard(since) if node_id in isr]

    def _unheard(self, since: float) -> list[int]:
        """The followers that have not fetched since then. Those in the ISR that lack nothing do not count: they need
        not fetch to stay there."""
        end, isr = self.log_end, self.info.isr
        return [
            node_id
            for node_id, each in self.followers.items()
            if max(each.fetched_at, each.caught_up_at) < since and (each.log_end_offset < end or node_id not in isr)
        ]

    def wanted_without_me(self, since: float, min_isr: int, live: Mapping[int, BrokerInfo]) -> Resignation | None:
        """The ISR to propose if this leader seems to be cut off from its followers, which could go on without it.

        These are silent, and registered. With the others there would be too few in sync, and all writes were refused.
        The followers may have become silent one after the other, so that the first ones are not in the ISR any more.
        They count, for they can fetch from the new leader; but they cannot lead.

        No acknowledged record is lost. The new ISR consists of members of the ISR and of eligible leader replicas,
        and each of these has all records up to the high watermark: this moves only up to what all members of the ISR
        have, and not at all while a replica is eligible. The controller elects the same replicas when this broker's
        lease ends. And as then, the high watermark stays until as many replicas as the topic asks for are in sync with
        the new leader; until then this broker is eligible itself.

        Args:
            since: the time from which on they have not fetched, in seconds.
            min_isr: of the topic (``min.insync.replicas``).
            live: the registered brokers.

        Returns:
            None if the leader should stay.
        """
        isr, unheard = self.info.isr, self._unheard(since)
        if len(isr) - sum(node_id in isr for node_id in unheard) >= min_isr:
            return None
        others = [node_id for node_id in self.followers if node_id in live]
        whole = [node_id for node_id in others if node_id in isr or node_id in self.info.elr]
        # One that reaches this leader may be cut off together with it.
        whole.sort(key=lambda node_id: (node_id not in unheard, node_id not in isr))
        if not whole or whole[0] not in unheard:
            return None
        if sum(node_id in isr for node_id in whole) >= min_isr:
            return Resignation(tuple(node_id for node_id in whole if node_id in isr), enough=True)
        reached = sum(node_id not in unheard for node_id in others)
        if reached + 1 >= min_isr or len(others) < min_isr:
            return None
        return Resignation(tuple(whole), enough=False)

    def propose(self, isr: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Note a proposal; the followers in it count from now on.

        Returns:
            Its members, each with the broker epoch of its fetches; -1 where that is not known (KIP-903).
        """
        self.proposed = isr
        self._count()
        return tuple((n, self.followers[n].broker_epoch if n in self.followers else -1) for n in isr)
