"""The sticky assignment for members that subscribe to different topics. Pure.

Members keep what they own. Each remaining partition goes to the subscribed member with the fewest partitions. Then
partitions move, one at a time, from members with at least two more than another subscribed member. A partition
preferably moves back to its former owner; and instead of moving a partition of a topic from A to B after another one
moved from B to A, that one moves back. Source: ``AbstractStickyAssignor.GeneralAssignmentBuilder`` and
``PartitionMovements``.

Kafka checks before each step whether the whole assignment is balanced, and stops then. That check is left out here: in
a balanced assignment, no partition has a member to move to.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from barnabas_client.assignors.base import Assignments, java_order
from barnabas_client.assignors.java_hash import PartitionSet
from barnabas_client.assignors.ownership import Owned, Ownership
from barnabas_client.structs import TopicPartition

#: Far more passes over all partitions than are ever needed; bounds the cost of hostile subscriptions.
_ROUNDS: Final = 100


def assign_general(now: Ownership) -> Assignments:
    """The assignment."""
    return _GeneralAssignment(now).build()


class _GeneralAssignment:
    """The assignment while it is built."""

    def __init__(self, now: Ownership) -> None:
        self._now = now
        self._members = sorted(now.owned, key=java_order)
        self._ranks = {member: rank for rank, member in enumerate(self._members)}
        self._assigned: dict[str, Owned] = {}
        self._owner: dict[TopicPartition, str] = {}
        #: Numbers of partitions and ranks of members, ascending: the member with the fewest comes first.
        self._order: list[tuple[int, int]] = []
        self._moves = _PartitionMovements()

    def build(self) -> Assignments:
        now = self._now
        wanted = {topic: sum(topic in topics for topics in now.topics.values()) for topic in now.counts}
        everything = [
            TopicPartition(topic, number)
            for topic in sorted(now.counts, key=lambda topic: (wanted[topic], topic))
            for number in range(now.counts[topic])
        ]
        gave_up = self._keep_owned()
        fresh = not self._owner
        left = [tp for tp in everything if tp not in self._owner]
        self._assign(left)
        before = {member: dict(owned) for member, owned in self._assigned.items()}
        free = [member for member in self._assigned if self._free(member, wanted)]
        score = self._imbalance(free)
        movable = [tp for tp in everything if wanted[tp.topic] > 1]
        if not gave_up:
            # Partitions that are new to their members move first: that costs nothing.
            self._balance([tp for tp in left if wanted[tp.topic] > 1])
        moved = self._balance(movable)
        if moved and not fresh and self._imbalance(free) >= score:
            self._assigned = before
        return {member: list(owned) for member, owned in self._assigned.items()}

    def _keep_owned(self) -> bool:
        """Returns whether a member could not keep a partition that still exists."""
        gave_up = False
        for member, owned in self._now.owned.items():
            topics = self._now.topics[member]
            kept = {tp: None for tp in owned if tp.topic in topics and not self._now.far(member, tp)}
            gave_up |= len(kept) < len(owned)
            self._assigned[member] = kept
            self._owner |= dict.fromkeys(kept, member)
        self._order = sorted((len(owned), self._ranks[member]) for member, owned in self._assigned.items())
        return gave_up

    def _assign(self, left: Iterable[TopicPartition]) -> None:
        if self._now.homes:
            left = [tp for tp in left if not self._assign_one(tp, near=True)]
        for tp in left:
            self._assign_one(tp, near=False)

    def _assign_one(self, tp: TopicPartition, *, near: bool) -> bool:
        for _, rank in self._order:
            member = self._members[rank]
            if tp.topic in self._now.topics[member] and not (near and self._now.far(member, tp)):
                self._add(tp, member)
                return True
        return False

    def _balance(self, partitions: Sequence[TopicPartition]) -> bool:
        """Returns whether anything moved."""
        anything = False
        for _ in range(_ROUNDS):
            moved = False
            for tp in partitions:
                target = self._better(tp)
                if target is not None:
                    self._move(self._moves.instead(tp, self._owner[tp], target), target)
                    moved = anything = True
            if not moved:
                break
        return anything

    def _better(self, tp: TopicPartition) -> str | None:
        """The member that the partition should move to, if it should move."""
        most = len(self._assigned[self._owner[tp]]) - 2
        if self._order[0][0] > most:
            return None
        former = self._now.former.get(tp)
        if former is not None and tp.topic in self._now.topics[former] and len(self._assigned[former]) <= most:
            return former
        for size, rank in self._order:
            if size > most:
                break
            if tp.topic in self._now.topics[self._members[rank]]:
                return self._members[rank]
        return None

    def _free(self, member: str, wanted: Mapping[str, int]) -> bool:
        """Whether the member's partitions could be others."""
        owned = self._assigned[member]
        everything = sum(self._now.counts[topic] for topic in self._now.topics[member])
        return len(owned) < everything or any(wanted[tp.topic] > 1 for tp in owned)

    def _imbalance(self, members: Iterable[str]) -> int:
        """The sum of the differences between the numbers of partitions of any two members."""
        sizes = sorted(len(self._assigned[member]) for member in members)
        return sum(size * (2 * index - len(sizes) + 1) for index, size in enumerate(sizes))

    def _move(self, tp: TopicPartition, target: str) -> None:
        source = self._owner[tp]
        self._moves.add(tp, source, target)
        self._resize(source, -1)
        del self._assigned[source][tp]
        self._add(tp, target)

    def _add(self, tp: TopicPartition, member: str) -> None:
        self._resize(member, 1)
        self._assigned[member][tp] = None
        self._owner[tp] = member

    def _resize(self, member: str, by: int) -> None:
        """Update the order, before the member's partitions change."""
        size, rank = len(self._assigned[member]), self._ranks[member]
        del self._order[bisect_left(self._order, (size, rank))]
        insort(self._order, (size + by, rank))


class _PartitionMovements:
    """Where partitions have moved from and to so far, without the members in between."""

    def __init__(self) -> None:
        self._ways: dict[TopicPartition, tuple[str, str]] = {}
        self._partitions: dict[tuple[str, str, str], PartitionSet] = {}

    def add(self, tp: TopicPartition, source: str, target: str) -> None:
        """`tp` moves from `source` to `target`."""
        if tp in self._ways:
            source, stop = self._ways.pop(tp)
            way = (tp.topic, source, stop)
            self._partitions[way].remove(tp)
            if not self._partitions[way]:
                del self._partitions[way]
        if source != target:
            self._ways[tp] = source, target
            way = (tp.topic, source, target)
            if way not in self._partitions:
                self._partitions[way] = PartitionSet(tp.topic)
            self._partitions[way].add(tp)

    def instead(self, tp: TopicPartition, source: str, target: str) -> TopicPartition:
        """The partition to move, so that no two partitions of a topic cross each other."""
        if tp in self._ways:
            source, _ = self._ways[tp]
        crossing = self._partitions.get((tp.topic, target, source))
        return tp if crossing is None else crossing.first()
