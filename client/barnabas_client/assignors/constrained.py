"""The sticky assignment for members that all subscribe to the same topics. Pure.

With P partitions and M members, P mod M members receive one partition more than the others. A member keeps what it
owns up to its quota. The remaining partitions are assigned by racks (if they matter), then to the members below their
quota, in turn. Linear in the partitions. Source: ``AbstractStickyAssignor.ConstrainedAssignmentBuilder``.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator

from barnabas_client.assignors.base import Assignments, java_order
from barnabas_client.assignors.ownership import Ownership
from barnabas_client.structs import TopicPartition


def assign_constrained(now: Ownership) -> tuple[Assignments, frozenset[TopicPartition]]:
    """The assignment, and the partitions in it that another member has owned until now."""
    builder = _ConstrainedAssignment(now)
    builder.keep_owned()
    builder.assign_by_rack()
    builder.assign_rest()
    return builder.assigned, frozenset(builder.moving)


class _WaitingMembers:
    """Members that wait for partitions, in order, and how many of them are in each rack."""

    def __init__(self, now: Ownership, members: Iterable[str] = ()) -> None:
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
        """The index of the first member in one of these racks, from `start` on and around the end."""
        if not any(self._racks[rack] for rack in racks):
            return None
        size = len(self.members)
        turn = ((start + step) % size for step in range(size))
        return next(index for index in turn if self._homes.get(self.members[index]) in racks)


class _ConstrainedAssignment:
    """The assignment while it is built."""

    def __init__(self, now: Ownership) -> None:
        self._now = now
        total = sum(now.counts.values())
        self._low, self._longer = divmod(total, len(now.owned))
        self._high = self._low + (self._longer > 0)
        self.assigned: Assignments = {}
        #: Partitions that their owners could not keep, with these owners.
        self._revoked: dict[TopicPartition, str] = {}
        self.moving: set[TopicPartition] = set()
        self._left: list[TopicPartition] = []
        #: Members below the low quota.
        self._short = _WaitingMembers(now)
        #: Members at the low quota that may receive one partition more.
        self._even = _WaitingMembers(now)

    def keep_owned(self) -> None:
        """Members keep what they own up to their quota; the first ones that own enough have the higher quota."""
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
            self.assigned[member] = kept[:quota]
            self._revoked |= dict.fromkeys(kept[quota:], member)
        self._short = _WaitingMembers(now, sorted(short, key=java_order))
        self._even = _WaitingMembers(now, sorted(even, key=java_order) if self._longer else ())
        kept_by_all = {tp for assigned in self.assigned.values() for tp in assigned}
        self._left = [tp for tp in _all_partitions(now) if tp not in kept_by_all]

    def assign_by_rack(self) -> None:
        """Assign partitions to members in the same rack, the partitions with the fewest such members first."""
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

    def assign_rest(self) -> None:
        """Assign the rest: in turn to the members below the low quota, then one more to each that may receive it."""
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
        """Returns the number of partitions of the member afterwards."""
        if self._revoked.get(tp, member) != member or tp in self._now.disputed:
            self.moving.add(tp)
        self.assigned[member].append(tp)
        return len(self.assigned[member])


def _all_partitions(now: Ownership) -> Iterator[TopicPartition]:
    for topic in sorted(now.counts):
        for number in range(now.counts[topic]):
            yield TopicPartition(topic, number)
