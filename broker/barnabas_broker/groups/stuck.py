"""Committed offsets that stand still while records wait, and the Fetches of their partitions. Pure.

A member may send heartbeats and not get on: it fails at one record again and again, waits for a call that does not
return, has paused partitions, or reads without committing. Which of these it is shows in its Fetches. They are counted
only of partitions whose committed offset has stood still between two looks: about 500 bytes for each of these, 800 if
its records are read again and again, and :data:`~.watched.MOST` at a time.
"""

from collections.abc import Callable, Collection, Mapping, MutableMapping
from itertools import pairwise
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas_broker.coordinators.leader import Leader
from barnabas_broker.groups.watched import Lasting, OfPartitions
from barnabas_explain.members import Member, Partition

#: A record is delivered so often before it counts as one that is read again and again.
_AGAIN: Final = 3
#: Of so many deliveries after which a client connects again, one may be without that.
_FEW: Final = 10
#: A client that gives up waits for more than so many seconds, and so many times for the same time, up to this factor.
_LEAST_WAIT: Final = 3.0
_SAME_TIMES: Final = 2
_NEARLY: Final = 1.25
#: What a client has looked up is followed for so many seconds.
_LOOKED_UP_SECONDS: Final = 60.0
#: Times of such deliveries that are kept, and of rebalances.
MOST_READS: Final = 8
#: A program is probably done with the records that it got so many seconds ago.
_DONE_SECONDS: Final = 10.0
#: The delivery whose time is known first: it showed that the Fetches had gone back.
_FIRST: Final = 2
#: The committed offset of a partition without one.
NOTHING: Final = -1
#: Partitions of a client whose first Fetch after an assignment is looked at, and for how many seconds.
_MOST_BEGUN: Final = 64
_BEGIN_SECONDS: Final = 10.0


class Watch:
    """The Fetches of a partition since its committed offset stands still.

    Attributes:
        asked_at: the time of the newest one, in seconds on the coordinator's clock; None if there was none.
        first: the offset of the first one.
        furthest: the largest offset that was asked for.
        again: the offset to which they went back last.
        deliveries: how often the records from there on were delivered.
        reconnects: how often the client then asked for them on a newer connection.
        size: bytes of the last delivery.
        most: how many the client had asked for; if it was more, the first batch had to be sent whole.
        pause: the mean number of seconds between two of these deliveries, from the second one on; 0 if there were fewer
            than three.
        reads: the times of the last of these deliveries, at most eight of them.
        began: the number of Fetches of the client before the first one that may count.
        last: the offset of the newest one.
        before: the offset that was asked for before that, if that was a smaller one, whose records were delivered.
        last_since: since when they have asked for that offset; infinite if that is not known.
    """

    __slots__ = (
        "__weakref__",
        "_again_at",
        "_connection",
        "_served",
        "again",
        "asked_at",
        "before",
        "began",
        "deliveries",
        "first",
        "furthest",
        "last",
        "last_since",
        "most",
        "pause",
        "reads",
        "reconnects",
        "size",
    )

    def __init__(self) -> None:
        self.asked_at: float | None = None
        self.first = self.furthest = self.again = self.last = self.before = NOTHING
        self.last_since = inf
        self.deliveries = self.reconnects = self.size = self.most = self._connection = 0
        self.pause = self._again_at = 0.0
        self.reads: tuple[float, ...] = ()
        self.began = 0
        self._served = False

    def asked(self, offset: int, now: float, connection: int = 0) -> None:
        """A consumer has sent a Fetch, on a connection whose number is larger than those of older ones."""
        if self.asked_at is None:
            self.first = offset
        elif offset != self.again and (offset < self.last or (offset == self.last and self._served)):
            self.again, self.deliveries, self.pause, self.reads, self.reconnects = offset, 1, 0.0, (), 0
        self.reconnects += offset == self.again == self.last and self._served and connection > self._connection
        if offset != self.last or self.last_since == inf:
            self.last_since = now
            self.before = self.last if offset > self.last and self._served else NOTHING
        self.asked_at, self.last, self._served, self._connection = now, offset, False, connection
        self.furthest = max(self.furthest, offset)

    def delivered(self, size: int = 0, most: int = 0) -> None:
        """The last Fetch, which asked for `most` bytes, was answered with records of `size` bytes."""
        self.size, self.most = size, most
        if self._served:
            return  # It had to wait for more of them.
        self._served = True
        if self.last == self.again:
            now = self.asked_at or 0.0
            self.reads = (*self.reads, now)[-MOST_READS:]
            self.deliveries += 1
            if self.deliveries > _FIRST:
                self.pause = (now - self._again_at) / (self.deliveries - _FIRST)
            else:
                self._again_at = now

    @property
    def only_goes_on(self) -> bool:
        """Whether the Fetches went on, and never back."""
        return self.first < self.furthest and self.again == NOTHING

    def given(self, now: float) -> int:
        """The offset up to which the program has probably got all records and done with them, if its library asks for
        more only when the program has got those before; :data:`NOTHING` if that is not known."""
        return self.last if now - self.last_since >= _DONE_SECONDS else self.before

    @property
    def is_again(self) -> bool:
        """Whether the same records were delivered again and again."""
        return self.deliveries >= _AGAIN

    def is_again_apart_from(self, rebalances: Collection[float]) -> bool:
        """Whether the same records were delivered again and again, also without those deliveries that followed a
        rebalance: its client then goes on at the committed offset.

        Args:
            rebalances: when the last ones were over, in seconds on the coordinator's clock.
        """
        if not self.is_again:
            return False
        pairs = pairwise((self.reads[0] - self.pause, *self.reads))
        followed = sum(any(before < at <= read for at in rebalances) for before, read in pairs)
        return len(self.reads) - followed >= _AGAIN - 1

    @property
    def is_cut_off(self) -> bool:
        """Whether nearly each of these deliveries was the last one on its connection."""
        return self.is_again and self.deliveries - self.reconnects <= 1 + self.deliveries // _FEW

    @property
    def gives_up(self) -> float | None:
        """After how many seconds the client asks again, if that is nearly the same each time, and seconds; else None.

        Clients that refuse a response ask again at once, or after a time that varies.
        """
        times = [after - before for before, after in pairwise(self.reads)]
        if len(times) < _SAME_TIMES or min(times) < _LEAST_WAIT or max(times) > min(times) * _NEARLY:
            return None
        return self.pause

    @property
    def gets_past(self) -> bool:
        """Whether records after those that were delivered again and again were asked for."""
        return self.furthest > self.again


class LookedUp:
    """An offset of a partition that a client has looked up, and its Fetches of the partition since then.

    Attributes:
        offset: the answer.
        at: when it looked it up last, in seconds on the coordinator's clock.
        is_end: whether it is the end of the log; otherwise that of a time.
        begins: whether it has not read the partition before.
        limit: the end of the log when it was last answered; None if that is not known.
        epoch: the leader epoch then: others may have answered it before.
        told_at: when it was last reported that it has jumped to the end; None for never.
        jumps: how often it has jumped since then, over records that it had not fetched.
        records: how many records these were, at least.
    """

    __slots__ = ("at", "begins", "epoch", "is_end", "jumps", "limit", "offset", "records", "told_at")

    def __init__(self, *, begins: bool) -> None:
        self.offset = NOTHING
        self.at = 0.0
        self.is_end = False
        self.begins = begins
        self.limit: int | None = None
        self.epoch = NOTHING
        self.told_at: float | None = None
        self.jumps = self.records = 0

    @property
    def is_jump(self) -> bool:
        """Whether a Fetch from the offset leaves out records: they were not there when the one before was answered."""
        return self.limit is not None and self.limit < self.offset


class Assigned:
    """The first Fetches of a client after partitions were assigned in its group.

    Args:
        now: when they were, in seconds on the coordinator's clock.
        is_first: whether it is the first time since its member joined.

    Attributes:
        at: when they were.
        is_first: whether it is the first time since its member joined.
        begun: the partitions that it has fetched since, 64 at most.
    """

    __slots__ = ("at", "begun", "is_first")

    def __init__(self, now: float, *, is_first: bool) -> None:
        self.at = now
        self.is_first = is_first
        self.begun: set[Partition] = set()

    def begins(self, place: Partition) -> bool:
        """Whether a Fetch of a partition is the first one."""
        if place in self.begun or len(self.begun) >= _MOST_BEGUN:
            return False
        self.begun.add(place)
        return True

    def is_over(self, now: float) -> bool:
        """Whether a Fetch has nothing to do with the assignment any more."""
        return now - self.at > _BEGIN_SECONDS


class WatchedFetch(NamedTuple):
    """A Fetch of a client that has watched partitions, that has looked up offsets, or that has got partitions.

    Attributes:
        watches: what is counted of its Fetches.
        time: in seconds on the coordinator's clock.
        looked_up: the offsets that it has looked up.
        goes_there: called with a partition that it reads from such an offset on.
        unread: the partitions that it has got, and has not fetched.
        connection: the number of its connection; newer ones have larger numbers.
        assigned: its first Fetches since partitions were assigned; None if that was long ago.
        begins: called with the partition and the offset of each of these.
        commits_back: the partitions whose commits went back last.
        outside: the partitions in which it has not gone on since a Fetch outside of the log, with the offsets.
        goes_on: called with such a partition, and another offset that it fetches.
    """

    watches: Mapping[Partition, Watch]
    time: float
    looked_up: MutableMapping[Partition, LookedUp]
    goes_there: Callable[[Partition, LookedUp], None]
    unread: set[Partition]
    connection: int = 0
    assigned: Assigned | None = None
    begins: Callable[[Partition, int], None] | None = None
    commits_back: Mapping[Partition, Watch] = MappingProxyType({})
    outside: Mapping[Partition, int] = MappingProxyType({})
    goes_on: Callable[[Partition, int], None] | None = None

    def asks(self, place: Partition, offset: int, epoch: int = NOTHING) -> Watch | None:
        """It asks for the records of a partition from an offset on; returns what is counted of that partition.

        Args:
            place: the partition.
            offset: from which on.
            epoch: the present leader epoch.
        """
        if self.unread:
            self.unread.discard(place)
        known = self.looked_up.get(place) if self.looked_up else None
        is_first = self.assigned is not None and self.assigned.begins(place)
        if is_first and self.begins is not None and (known is None or known.offset != offset):
            self.begins(place, offset)
        if known is not None:
            if known.epoch != epoch:
                known.epoch, known.limit = epoch, None
            is_there = offset == known.offset
            if is_there and (known.begins or not known.is_end or known.is_jump):
                self.goes_there(place, known)
            if known.begins or (is_there and not known.is_end) or self.time - known.at > _LOOKED_UP_SECONDS:
                del self.looked_up[place]
        if self.outside and self.goes_on is not None and self.outside.get(place, offset) != offset:
            self.goes_on(place, offset)
        since_back = self.commits_back.get(place)
        if since_back is not None:
            since_back.asked(offset, self.time)
        watch = self.watches.get(place)
        if watch is not None:
            watch.asked(offset, self.time, self.connection)
        return watch

    def answered(self, place: Partition, end: int) -> None:
        """It is answered with records before this end of the log, or waits for some."""
        known = self.looked_up.get(place)
        if known is not None:
            known.limit = end


class Standing(Lasting):
    """A partition of a group whose committed offset stands still while records wait.

    Attributes:
        offset: the committed offset; :data:`NOTHING` for none.
        generation: of the group, when it was looked at last.
        since: when it was first seen so with this owner.
        owner: its member; None if it has none, or if that is not known yet.
        is_known: whether that is known.
        is_clear: whether its Fetches were told apart from those of other members all the time.
        end: of the partition, since its Fetches are not told apart; None before that.
        has_moved: whether the offset before was another one, of the same owner.
        leader: of the partition; None while it is not known.
        watch: the Fetches of the partition.
        counted_at: since when they are counted; infinite while it is not known whether another broker, which leads the
            partition, counts them.
    """

    __slots__ = (
        "counted_at",
        "end",
        "generation",
        "has_moved",
        "is_clear",
        "is_known",
        "leader",
        "offset",
        "owner",
        "watch",
    )

    def __init__(self, offset: int, generation: int, now: float) -> None:
        super().__init__(now)
        self.offset = offset
        self.generation = generation
        self.owner: Member | None = None
        self.leader: Leader | None = None
        self.is_known = False
        self.has_moved = False
        self._begin(now)

    def _begin(self, now: float) -> None:
        self.is_clear = True
        self.end: int | None = None
        self.watch = Watch()
        self.counted_at = now

    def owned(self, owner: Member | None, leader: Leader | None, generation: int, now: float) -> None:
        """Take note of its owner and of the leader; the time begins again for others."""
        is_other = self.is_known and (owner, leader) != (self.owner, self.leader)
        if is_other or (self.generation != generation and not self.is_known):
            self.since, self.told_at, self.has_moved = now, None, False
            self._begin(now)
        if not self.is_known or is_other:
            self.counted_at = now if leader is not None and leader.is_here else inf
        self.owner, self.leader, self.generation, self.is_known = owner, leader, generation, True

    @property
    def count(self) -> int:
        """The number of the count of its Fetches: another one each time that the time begins again."""
        return round(self.since * 1000)

    def heard(self, count: int, watch: Watch, counted_at: float) -> bool:
        """The leader has reported the Fetches that it has counted since then; returns whether that count goes on."""
        is_same = count == self.count
        if is_same:
            self.watch, self.counted_at = watch, counted_at
        return is_same

    def unheard(self, count: int) -> None:
        """The leader has not reported any for this count."""
        if count == self.count:
            self.counted_at = inf

    def is_counted(self, now: float) -> bool:
        """Whether its Fetches have been counted for most of the time."""
        return now - self.counted_at >= (now - self.since) / 2

    @property
    def is_read_on(self) -> bool:
        """Whether its member has fetched records after the committed offset."""
        start = self.watch.first if self.offset == NOTHING else self.offset
        return self.watch.furthest > start


class StandingOffsets(OfPartitions[Standing]):
    """The partitions of all groups whose committed offsets stand still."""

    def look(self, group_id: str, waiting: Mapping[Partition, int], generation: int, now: float) -> list[Standing]:
        """Take note of the partitions of a group with records that wait; returns those that stand still no more.

        Args:
            group_id: the group.
            waiting: their committed offsets.
            generation: of the group.
            now: in seconds on the coordinator's clock.
        """
        before = self.of(group_id)
        self.forget(group_id)
        found: dict[Partition, Standing] = {}
        for place, offset in waiting.items():
            standing = before.get(place)
            if standing is None or standing.offset != offset:
                if len(found) >= self.room:
                    continue
                has_moved = standing is not None and NOTHING < standing.offset < offset
                standing = Standing(offset, generation, now)
                standing.has_moved = has_moved
            found[place] = standing
        self.put(group_id, found)
        return [each for place, each in before.items() if found.get(place) is not each]

    def owned(
        self,
        group_id: str,
        owners: Mapping[Partition, Member],
        leader: Callable[[str, int], Leader | None],
        generation: int,
        now: float,
    ) -> None:
        """Take note of the owners of these partitions, and of their leaders; the time begins again for others."""
        for place, standing in self.of(group_id).items():
            standing.owned(owners.get(place), leader(*place), generation, now)
