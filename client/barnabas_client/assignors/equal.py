"""The sticky assignment for members that all subscribe to the same topics. Pure.

With P partitions and M members, P mod M members get one partition more than the others. A member keeps what it owns up
to its quota; what is left goes round, first by racks (if they matter), then to whoever is short. Linear in the
partitions. Source: ``AbstractStickyAssignor.ConstrainedAssignmentBuilder``.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator

from barnabas_client.assignors.base import Assignments, java_order
from barnabas_client.assignors.owners import Situation
from barnabas_client.structs import TopicPartition


def assign_equal(now: Situation) -> tuple[Assignments, frozenset[TopicPartition]]:
    """The assignment, and the partitions in it that another member had until now."""
    dealer = _Dealer(now)
    dealer.keep_owned()
    dealer.deal_near()
    dealer.deal()
    return dealer.shares, frozenset(dealer.moving)


class _Waiting:
    """Members in turn, and in which racks there still are any."""

    def __init__(self, now: Situation, members: Iterable[str] = ()) -> None:
        self._homes = now.homes
        self.members = list(members)
        self._racks = Counter(self._homes[member] for member in self.members if member in self._homes)

    def add(self, member: str) -> None:
        self.members.append(member)
        if member in self._homes:
            self._racks[self._homes[member]] += 1

    def pop(self, index: int) -> str:
        member = self.members.pop(index)
        if member in self._homes:
            self._racks[self._homes[member]] -= 1
        return member

    def clear(self) -> None:
        self.members.clear()
        self._racks.clear()

    def near(self, racks: frozenset[str], start: int) -> int | None:
        """The first member from `start` on, and around, that is in one of these racks."""
        if not any(self._racks[rack] for rack in racks):
            return None
        size = len(self.members)
        turn = ((start + step) % size for step in range(size))
        return next(index for index in turn if self._homes.get(self.members[index]) in racks)


class _Dealer:
    def __init__(self, now: Situation) -> None:
        self._now = now
        total = sum(now.counts.values())
        self._low, self._longer = divmod(total, len(now.owned))
        self._high = self._low + (self._longer > 0)
        self.shares: Assignments = {}
        #: What its owner had to give up, and who that is.
        self._revoked: dict[TopicPartition, str] = {}
        self.moving: set[TopicPartition] = set()
        self._left: list[TopicPartition] = []
        #: Members that are short of the low quota.
        self._short = _Waiting(now)
        #: Members at the low quota that may get one more.
        self._even = _Waiting(now)

    def keep_owned(self) -> None:
        """Everyone keeps its own, up to its quota; the first to own enough get the longer shares."""
        now = self._now
        short, even = [], []
        for member, owned in now.owned.items():
            near = [tp for tp in owned if not now.far(member, tp)]
            self._revoked |= {tp: member for tp in owned if now.far(member, tp)}
            kept = sorted((tp for tp in near if tp not in now.disputed), key=lambda tp: (tp.partition, tp.topic))
            quota = self._low
            if len(kept) < self._low:
                short.append(member)
            elif len(kept) >= self._high and self._longer:
                quota = self._high
                self._longer -= 1
            else:
                even.append(member)
            self.shares[member] = kept[:quota]
            self._revoked |= dict.fromkeys(kept[quota:], member)
        self._short = _Waiting(now, sorted(short, key=java_order))
        self._even = _Waiting(now, sorted(even, key=java_order) if self._longer else ())
        kept_by_all = {tp for share in self.shares.values() for tp in share}
        self._left = [tp for tp in _all_partitions(now) if tp not in kept_by_all]

    def deal_near(self) -> None:
        """Hand out what can be read in the member's own rack; the partitions with the least choice first."""
        now = self._now
        if not now.homes:
            return
        living = Counter(now.homes.values())
        self._left.sort(key=lambda tp: sum(living[rack] for rack in now.racks[tp.topic][tp.partition]))
        left = []
        turn = 0
        for tp in self._left:
            racks = now.racks[tp.topic][tp.partition]
            index = self._short.near(racks, turn)
            if index is not None:
                member = self._short.members[index]
                size = self._give(tp, member)
                if size >= self._low:
                    self._short.pop(index)
                    if size < self._high and self._longer:
                        self._even.add(member)
                else:
                    index += 1
                turn = index % len(self._short.members) if self._short.members else 0
                continue
            index = self._even.near(racks, 0)
            if index is not None:
                self._give(tp, self._even.pop(index))
                self._longer -= 1
                if not self._longer:
                    self._even.clear()
            else:
                left.append(tp)
        self._left = left

    def deal(self) -> None:
        """Hand out the rest: in turn to those that are short, then one more to each that may get it."""
        short, even = self._short.members, deque(self._even.members)
        turn = 0
        for tp in self._left:
            if not short:
                self._give(tp, even.popleft())
                continue
            turn %= len(short)
            if self._give(tp, short[turn]) == self._low:
                even.append(short.pop(turn))
            else:
                turn += 1

    def _give(self, tp: TopicPartition, member: str) -> int:
        """Returns the size of the member's share then."""
        if self._revoked.get(tp, member) != member or tp in self._now.disputed:
            self.moving.add(tp)
        self.shares[member].append(tp)
        return len(self.shares[member])


def _all_partitions(now: Situation) -> Iterator[TopicPartition]:
    for topic in sorted(now.counts):
        for number in range(now.counts[topic]):
            yield TopicPartition(topic, number)
