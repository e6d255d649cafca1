"""The assignor of share groups: partitions to many members at once, evenly, and with few changes. Pure.

Members that subscribe to the same topics are assigned together. With fewer members than partitions, each partition has
one member; with more, each member has one partition. A member keeps what it has, as far as the parts stay even. Source:
Kafka's ``SimpleAssignor``.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeVar

#: Partitions by topic id.
Partitions = Mapping[bytes, Sequence[int]]
_One = tuple[bytes, int]

L = TypeVar("L", bound=Hashable)
R = TypeVar("R", bound=Hashable)

NAME: Final = "simple"


def assign(
    subscriptions: Mapping[str, frozenset[bytes]], partitions: Partitions, current: Mapping[str, Partitions]
) -> dict[str, dict[bytes, tuple[int, ...]]]:
    """Compute the assignment of each member.

    Args:
        subscriptions: the ids of the topics that each member subscribes to.
        partitions: the partitions that may be assigned.
        current: the last assignment.
    """
    given: dict[str, set[_One]] = {member: set() for member in subscriptions}
    had = {
        member: {(topic_id, number) for topic_id, numbers in owned.items() for number in numbers}
        for member, owned in current.items()
    }
    if len(set(subscriptions.values())) <= 1:
        topics = [sorted(next(iter(subscriptions.values()), ()))]
    else:
        topics = [[topic_id] for topic_id in sorted(set().union(*subscriptions.values()))]
    for together in topics:
        members = sorted(member for member, wanted in subscriptions.items() if wanted.issuperset(together))
        ones = [(topic_id, number) for topic_id in together for number in sorted(partitions.get(topic_id, ()))]
        if not members or not ones:
            continue
        if len(members) <= len(ones):
            owner = {one: member for member in members for one in sorted(had.get(member, ()))}
            for one, member in _spread(ones, members, owner).items():
                given[member].add(one)
        else:
            first = {member: kept[0] for member in members if (kept := sorted(had.get(member, set()) & set(ones)))}
            for member, one in _spread(members, ones, first).items():
                given[member].add(one)
    return {member: _by_topic(ones) for member, ones in given.items()}


def _spread(many: Sequence[L], few: Sequence[R], before: Mapping[L, R]) -> dict[L, R]:
    """Give each of `many` one of `few`, so that the counts of these differ by no more than one.

    What is in `before` is kept as far as that allows.
    """
    least, more = divmod(len(many), len(few))
    counts = dict.fromkeys(few, 0)
    found: dict[L, R] = {}
    for one in many:
        other = before.get(one)
        if other is None or other not in counts:
            continue
        if counts[other] < least or (counts[other] == least and more):
            more -= counts[other] == least
            counts[other] += 1
            found[one] = other
    wanting = [other for other in few for _ in range(least - counts[other])]
    wanting += [other for other in few if counts[other] <= least][:more]
    left = iter(wanting)
    for one in many:
        if one not in found:
            found[one] = next(left)
    return found


def _by_topic(ones: set[_One]) -> dict[bytes, tuple[int, ...]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(ones):
        found.setdefault(topic_id, []).append(number)
    return {topic_id: tuple(numbers) for topic_id, numbers in found.items()}
