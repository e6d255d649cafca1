"""`uniform`: balanced over all topics, and members keep what they have where the balance allows it. Pure.

If all members subscribe to the same topics, each gets the same number of partitions, give or take one. Otherwise the
subscribers of each topic are balanced in turn, until a whole round over the topics changes nothing.

Source: Kafka's ``UniformAssignor``, ``UniformHomogeneousAssignmentBuilder``, ``UniformHeterogeneousAssignmentBuilder``.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final

from barnabas_broker.groups.consumer.assignment import GroupSpec, MemberSpec
from barnabas_broker.groups.consumer.assignors.subscribers import subscribers_by_topic

#: Maximum number of rounds over all topics: overlapping subscriptions converge slowly, and each round halves the
#: imbalance.
ROUNDS: Final = 16

_NO_OWNER: Final = -1
_LONGS: Final = Struct(">qq")

#: The target of one member.
Target = Mapping[bytes, frozenset[int]]


class UniformAssignor:
    """Kafka's `uniform`."""

    name = "uniform"

    def assign(self, spec: GroupSpec) -> Mapping[str, Target]:
        """The target of each member; see :class:`~barnabas_broker.groups.consumer.assignment.Assignor`.

        A member whose target does not change gets the very object that the spec has.
        """
        members = sorted(spec.members)
        subscribers = subscribers_by_topic(spec, members)
        if not subscribers:
            return {}
        if spec.homogeneous:
            return _assign_equally(spec, members)
        return _Balancing(spec, members, subscribers).target()


# ------------------------------------------------------------------------------- all members want the same topics


def _assign_equally(spec: GroupSpec, members: list[str]) -> dict[str, Target]:
    topics = sorted(spec.members[members[0]].topic_ids, key=_LONGS.unpack)
    owned = {topic: bytearray(spec.topics[topic].partitions) for topic in topics}
    minimum, larger = divmod(sum(map(len, owned.values())), len(members))
    target: dict[str, Target] = {}
    unfilled: list[tuple[str, int]] = []
    for place, member in enumerate(members):
        quota = minimum + (larger > 0)
        kept, count = _keep(spec.members[member], owned, quota)
        target[member] = kept
        # A member that has no use for the larger quota leaves it to a later one, as long as there are enough of these.
        if larger and count < quota and len(members) - place > larger:
            quota -= 1
        elif larger:
            larger -= 1
        if count < quota:
            unfilled.append((member, quota - count))
    free = [(topic, partition) for topic, taken in owned.items() for partition, one in enumerate(taken) if not one]
    at = 0
    for member, space in unfilled:
        target[member] = _with(target[member], free[at : at + space])
        at += space
    return target


def _keep(member: MemberSpec, owned: dict[bytes, bytearray], quota: int) -> tuple[Target, int]:
    """The part of its target that a member keeps, and its number of partitions, up to `quota`. Marks it in `owned`."""
    kept: dict[bytes, frozenset[int]] = {}
    count = 0
    for topic in member.assigned if len(member.assigned) < 2 else sorted(member.assigned, key=_LONGS.unpack):
        taken = owned.get(topic)
        if taken is None:
            continue  # no longer subscribed
        partitions = member.assigned[topic]
        own = [one for one in sorted(partitions) if 0 <= one < len(taken) and not taken[one]][: quota - count]
        for one in own:
            taken[one] = 1
        if own:
            kept[topic] = partitions if len(own) == len(partitions) else frozenset(own)
            count += len(own)
    same = len(kept) == len(member.assigned) and all(kept[topic] is member.assigned[topic] for topic in kept)
    return (member.assigned if same else kept), count


def _with(target: Target, added: list[tuple[bytes, int]]) -> dict[bytes, frozenset[int]]:
    more: dict[bytes, list[int]] = {}
    for topic, partition in added:
        more.setdefault(topic, []).append(partition)
    nothing: frozenset[int] = frozenset()
    return {**target, **{topic: target.get(topic, nothing).union(partitions) for topic, partitions in more.items()}}


# ------------------------------------------------------------------------------- members want different topics


class _Balancing:
    """One assignment of a group whose members subscribe to different topics. Members are positions in a list."""

    def __init__(self, spec: GroupSpec, members: list[str], subscribers: dict[bytes, list[int]]) -> None:
        self._spec = spec
        self._members = members
        self._subscribers = subscribers
        self._sizes = [0] * len(members)
        self._changed = bytearray(len(members))
        self._owners = {topic: [_NO_OWNER] * spec.topics[topic].partitions for topic in subscribers}

    def target(self) -> dict[str, Target]:
        self._keep()
        order = sorted(self._owners, key=self._most_wanted_first)
        self._assign_free(order)
        self._balance([topic for topic in order if len(self._subscribers[topic]) > 1])
        return self._result()

    def _most_wanted_first(self, topic: bytes) -> tuple[float, int, int, int]:
        partitions, subscribers = len(self._owners[topic]), len(self._subscribers[topic])
        return -partitions / subscribers, subscribers, *_LONGS.unpack(topic)

    def _keep(self) -> None:
        for position, member in enumerate(self._members):
            spec = self._spec.members[member]
            count = 0
            for topic, partitions in spec.assigned.items():
                if topic not in spec.topic_ids:
                    self._changed[position] = True
                    continue
                owners = self._owners[topic]
                for partition in partitions:
                    if 0 <= partition < len(owners) and owners[partition] == _NO_OWNER:
                        owners[partition] = position
                        count += 1
                    else:
                        self._changed[position] = True
            self._sizes[position] = count

    def _assign_free(self, order: list[bytes]) -> None:
        sizes, changed = self._sizes, self._changed
        for topic in order:
            owners = self._owners[topic]
            if _NO_OWNER not in owners:
                continue
            ranges = _Ranges(self._subscribers[topic], sizes)
            for partition, owner in enumerate(owners):
                if owner == _NO_OWNER:
                    member = ranges.next_least_loaded()
                    owners[partition] = member
                    sizes[member] += 1
                    changed[member] = True

    def _balance(self, order: list[bytes]) -> None:
        # A topic is left alone while its subscribers have not changed since they were seen in balance; topics with the
        # same subscribers share their list.
        moves = 0
        balanced: dict[int, int] = {}
        last = None
        for _ in range(ROUNDS):
            for topic in order:
                if topic == last:
                    return  # a whole round without a move
                subscribers = self._subscribers[topic]
                moved = 0
                if balanced.get(id(subscribers)) != moves:
                    own = [self._sizes[member] for member in subscribers]
                    if max(own) - min(own) > 1:
                        moved = self._balance_topic(topic)
                        moves += moved
                    else:
                        balanced[id(subscribers)] = moves
                if moved or last is None:
                    last = topic

    def _balance_topic(self, topic: bytes) -> int:
        """Move partitions from the most to the least loaded subscribers of a topic; the number of moves."""
        sizes, owners = self._sizes, self._owners[topic]
        # A member gives up its last partitions first, and none that it has just got.
        own: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            own.setdefault(owner, []).append(partition)
        ranges = _Ranges(self._subscribers[topic], sizes)
        moved = 0
        while not ranges.balanced():
            giver = ranges.next_most_loaded()
            while giver is not None and not own.get(giver):
                ranges.exclude_most_loaded()
                giver = ranges.next_most_loaded()
            if giver is None:
                break  # the other subscribers have no partitions of this topic
            partition = own[giver].pop()
            taker = ranges.next_least_loaded()
            if ranges.balanced():
                break
            owners[partition] = taker
            sizes[giver] -= 1
            sizes[taker] += 1
            self._changed[giver] = self._changed[taker] = True
            moved += 1
        return moved

    def _result(self) -> dict[str, Target]:
        built: dict[int, dict[bytes, list[int]]] = {at: {} for at, changed in enumerate(self._changed) if changed}
        for topic, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                if owner in built:
                    built[owner].setdefault(topic, []).append(partition)
        target: dict[str, Target] = {}
        for position, member in enumerate(self._members):
            if position in built:
                target[member] = {topic: frozenset(partitions) for topic, partitions in built[position].items()}
            else:
                target[member] = self._spec.members[member].assigned
        return target


class _Ranges:
    """The least and the most loaded of some members, while partitions move from these to those.

    The members are sorted by the number of their partitions. The range of the least loaded grows from the start, that
    of the most loaded from the end; all members of a range have the same number of partitions, but for those that have
    had their turn. Members that have nothing to give are swapped behind the end of the second range.
    """

    __slots__ = (
        "_least",
        "_least_end",
        "_least_next",
        "_members",
        "_most",
        "_most_end",
        "_most_next",
        "_most_start",
        "_sizes",
    )

    def __init__(self, members: list[int], sizes: list[int]) -> None:
        self._sizes = sizes
        # Stable: members with the same number stay in the order of their ids.
        self._members = sorted(members, key=sizes.__getitem__)
        self._least = sizes[self._members[0]] - 1
        self._least_end = self._least_next = 0
        self._most = sizes[self._members[-1]] + 1
        self._most_start = self._most_end = len(members)
        self._most_next = len(members) - 1

    def balanced(self) -> bool:
        """Whether the members of both ranges differ by one partition at most."""
        return self._most - self._least <= 1

    def next_least_loaded(self) -> int:
        """The member that gets a partition now."""
        if self._least_next >= self._least_end:
            self._least += 1
            members, sizes = self._members, self._sizes
            while self._least_end < len(members) and sizes[members[self._least_end]] == self._least:
                self._least_end += 1
            self._least_next = 0
        member = self._members[self._least_next]
        self._least_next += 1
        return member

    def next_most_loaded(self) -> int | None:
        """The member that gives up a partition now; None if none is left that has any."""
        if self._most_next < self._most_start:
            members, sizes = self._members, self._sizes
            if self._most_end <= self._most_start and self._most_start > 0:
                # All of the range have been excluded: go on with the next lower number that there is.
                self._most = sizes[members[self._most_start - 1]]
            else:
                self._most -= 1
            while self._most_start > 0 and sizes[members[self._most_start - 1]] == self._most:
                self._most_start -= 1
            self._most_next = self._most_end - 1
        if self._most_next < 0:
            return None
        member = self._members[self._most_next]
        self._most_next -= 1
        return member

    def exclude_most_loaded(self) -> None:
        """Take out the member that `next_most_loaded` has returned: it has no partition to give."""
        at, end = self._most_next + 1, self._most_end - 1
        members = self._members
        members[at], members[end] = members[end], members[at]
        self._most_end = end
