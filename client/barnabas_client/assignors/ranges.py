"""The `range` assignor. Pure. Source: ``RangeAssignor.java``; KIP-881 for racks."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from barnabas_client.assignors.base import (
    Assignments,
    Assignor,
    MemberSubscription,
    Racks,
    in_order,
    racks_matter,
    racks_of,
)
from barnabas_client.structs import TopicPartition


class RangeAssignor(Assignor):
    """Each topic by itself: its partitions in order, cut into one range for each member; the first ranges are one
    longer if the partitions do not divide evenly.

    Members at the same place in the order receive the same partition numbers of all topics with the same members, which
    joins of topics rely on. Where some partitions have no replica in some racks, members first receive partitions of
    their own rack, as far as lengths and joins allow.
    """

    name = "range"

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignments:
        """See :meth:`Assignor.assign`."""
        subscribed: dict[str, list[str]] = {topic: [] for topic in sorted(partitions)}
        for member in in_order(members):
            for topic in dict.fromkeys(members[member].topics):
                if topic in subscribed:
                    subscribed[topic].append(member)
        homes = {member: subscription.rack or None for member, subscription in members.items()}
        states = [_TopicRanges(name, racks_of(partitions, name), ids, homes) for name, ids in subscribed.items() if ids]
        if any(state.matters for state in states):
            for same in _joined(states):
                if len(same) > 1 or same[0].matters:
                    _match_racks(same)
        for state in states:
            state.fill()
        result: Assignments = {member: [] for member in members}
        for state in states:
            for member, numbers in state.assigned.items():
                result[member] += (TopicPartition(state.name, number) for number in sorted(numbers))
        return result


class _TopicRanges:
    """A topic while its partitions are assigned."""

    def __init__(self, name: str, racks: Racks, ids: Sequence[str], homes: Mapping[str, str | None]) -> None:
        self.name = name
        self.homes = {member: homes[member] for member in ids}
        known = {rack for rack in self.homes.values() if rack is not None}
        self.racks = racks
        self.sees_racks = bool(known)
        self.matters = racks_matter(known, racks)
        self.assigned: dict[str, list[int]] = {member: [] for member in ids}
        self.each, self._longer = divmod(len(racks), len(ids))

    def room(self, member: str) -> int:
        """How many partitions the member may still receive; never grows."""
        return max(0, self.each + (self._longer > 0) - len(self.assigned[member]))

    def give(self, member: str, numbers: Sequence[int]) -> None:
        assigned = self.assigned[member]
        assigned += numbers
        self._longer -= len(assigned) > self.each and bool(numbers)

    def fill(self) -> None:
        """Assign what is left, in ranges."""
        taken = {number for assigned in self.assigned.values() for number in assigned}
        left = (number for number in range(len(self.racks)) if number not in taken)
        for member in self.assigned:
            self.give(member, list(islice(left, self.room(member))))


def _joined(topics: Sequence[_TopicRanges]) -> Iterator[list[_TopicRanges]]:
    """Topics that a program may join: those with the same members and the same number of partitions."""
    groups: dict[tuple[frozenset[str], int], list[_TopicRanges]] = {}
    for topic in topics:
        groups.setdefault((frozenset(topic.assigned), len(topic.racks)), []).append(topic)
    yield from groups.values()


def _match_racks(topics: Sequence[_TopicRanges]) -> None:
    """Assign partitions to members in the same rack, the same numbers of all of `topics`."""
    first = topics[0]
    if not first.sees_racks:
        return
    near = [frozenset.intersection(*racks) for racks in zip(*(topic.racks for topic in topics), strict=True)]
    if len(topics) == 1:
        _member_by_member(first, near)
    else:
        _number_by_number(topics, near)


def _member_by_member(topic: _TopicRanges, near: Racks) -> None:
    free = dict.fromkeys(range(len(near)))
    # One pass over the partitions of each rack: a partition that one member skipped is taken for all members there.
    walks = {home: iter([n for n in free if home is None or home in near[n]]) for home in {*topic.homes.values()}}
    for member, home in topic.homes.items():
        numbers = list(islice((number for number in walks[home] if number in free), topic.room(member)))
        for number in numbers:
            del free[number]
        topic.give(member, numbers)


def _number_by_number(topics: Sequence[_TopicRanges], near: Racks) -> None:
    first = topics[0]  # the assignments of all topics grow alike
    waiting: dict[str | None, list[tuple[int, str]]] = {}
    for rank, (member, home) in reversed(list(enumerate(first.homes.items()))):
        waiting.setdefault(home, []).append((rank, member))
    for number, racks in enumerate(near):
        for queue in waiting.values():
            while queue and not first.room(queue[-1][1]):
                queue.pop()
        heads = [queue[-1] for home, queue in waiting.items() if queue and (home is None or home in racks)]
        if heads:
            _, member = min(heads)
            for topic in topics:
                topic.give(member, [number])
