"""Plans the replicas of partitions on brokers. Pure.

The first replica of a partition is its preferred leader. A plan has, in this order of importance:

1. as many replicas of each partition as before (or as requested), on different brokers, in as many racks as possible;
2. replica counts, then leader counts, that differ by at most one between brokers, where 1. allows it;
3. as few moved replicas, then as few other preferred leaders, as possible.

This is a minimum-cost flow from partitions to brokers, where the cost of a broker grows with its load. It starts with
a placement that has the least cost for its loads, and moves load along shortest paths: from a broker to another one by
one replica, or through brokers between them by one replica each (Ahuja, Magnanti, Orlin: Network Flows, chapter 9).
Racks count only if every broker has one, as in Kafka.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from barnabas_client.structs import TopicPartition
from barnabas_protocol.counts import counted

#: For each partition the brokers of its replicas, the preferred leader first.
Placement = dict[TopicPartition, tuple[int, ...]]
#: For each broker that may get replicas its rack, None if it has none.
Brokers = Mapping[int, str | None]

S = TypeVar("S", bound=Hashable)


class PlacementError(ValueError):
    """There are fewer brokers than replicas of a partition."""


def spread(
    placement: Mapping[TopicPartition, tuple[int, ...]], brokers: Brokers, replication_factor: int | None = None
) -> Placement:
    """Spread replicas and leaders evenly over brokers; replicas elsewhere move to them.

    Args:
        placement: the present replicas.
        brokers: the brokers to use.
        replication_factor: the new number of replicas of each partition; unchanged if None.

    Returns:
        The new replicas of the partitions that change.

    Raises:
        PlacementError: there are fewer brokers than replicas.
    """
    racks = _racks(brokers)
    original = {tp: frozenset(replicas).intersection(racks) for tp, replicas in placement.items()}
    current = {tp: set(kept) for tp, kept in original.items()}
    loads = _loads(brokers, current.values())
    for tp in _in_order(placement):
        count = len(placement[tp]) if replication_factor is None else replication_factor
        _check_room(tp, count, len(brokers))
        _resize(current[tp], count, placement[tp][:1], racks, loads)
        _spread_over_racks(current[tp], placement[tp][:1], racks, loads)
    states = {tp: (frozenset(current[tp]), original[tp]) for tp in _in_order(placement)}

    def transfers(state: "_Replicas") -> Iterable[_Transfer[_Replicas]]:
        return _replica_transfers(state, racks, fixed=False)

    replicas = {tp: now for tp, (now, _) in _balanced(states, loads, transfers).items()}
    return _changed(placement, replicas, racks.keys(), fixed=False)


def vacated(placement: Mapping[TopicPartition, tuple[int, ...]], brokers: Brokers, leaving: int) -> Placement:
    """Move the replicas of one broker to other brokers; all other replicas, and their leaders, stay.

    Args:
        placement: the present replicas.
        brokers: the brokers that may get replicas.
        leaving: the broker to empty.

    Returns:
        The new replicas of the partitions that change.

    Raises:
        PlacementError: a partition already has a replica on each of the other brokers.
    """
    racks = _racks({node: rack for node, rack in brokers.items() if node != leaving})
    loads = _loads(racks, (set(replicas) & racks.keys() for replicas in placement.values()))
    states: dict[TopicPartition, _Replicas] = {}
    for tp in _in_order(placement):
        kept = frozenset(placement[tp]) - {leaving}
        if len(kept) < len(placement[tp]):
            _check_room(tp, len(placement[tp]), len(racks.keys() | kept))
            now = set(kept)
            _resize(now, len(placement[tp]), (), racks, loads)
            states[tp] = (frozenset(now), kept)

    def transfers(state: "_Replicas") -> Iterable[_Transfer[_Replicas]]:
        return _replica_transfers(state, racks, fixed=True)

    moved = {tp: now for tp, (now, _) in _balanced(states, loads, transfers).items()}
    replicas = {tp: moved.get(tp, frozenset(before)) for tp, before in placement.items()}
    return _changed(placement, replicas, racks.keys(), fixed=True)


def moved_replicas(placement: Mapping[TopicPartition, tuple[int, ...]], plan: Placement) -> int:
    """The number of replicas that brokers have to copy."""
    return sum(len(set(replicas) - set(placement.get(tp, ()))) for tp, replicas in plan.items())


# Replicas.

#: The brokers that have a replica of a partition now, and those that had one before.
_Replicas = tuple[frozenset[int], frozenset[int]]


class _Transfer(NamedTuple, Generic[S]):
    """Moves one unit of load from a broker to another: by how much the cost grows, and the state afterwards."""

    source: int
    target: int
    cost: int
    state: S


def _racks(brokers: Brokers) -> dict[int, str]:
    known = all(rack is not None for rack in brokers.values())
    return {node: (rack or "") if known else "" for node, rack in brokers.items()}


def _loads(brokers: Iterable[int], replicas: Iterable[Iterable[int]]) -> dict[int, int]:
    counts = Counter(node for nodes in replicas for node in nodes)
    return {node: counts[node] for node in sorted(brokers)}


def _in_order(placement: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Partitions such that neighbours are of different topics, so that what moves is spread over topics."""
    return sorted(placement, key=lambda tp: (tp.partition, tp.topic))


def _check_room(tp: TopicPartition, replicas: int, brokers: int) -> None:
    if replicas > brokers:
        there = {0: "there is no other broker", 1: "there is only 1 broker"}.get(
            brokers, f"there are only {brokers} brokers"
        )
        raise PlacementError(f"{tp} needs {counted(replicas, 'replica')}, but {there}")


def _resize(
    current: set[int], count: int, leader: Iterable[int], racks: Mapping[int, str], loads: dict[int, int]
) -> None:
    """Add or remove replicas until there are `count`."""
    while len(current) < count:
        used = Counter(racks.get(node) for node in current)
        added = min(racks.keys() - current, key=lambda node: (used[racks[node]], loads[node], node))
        current.add(added)
        loads[added] += 1
    while len(current) > count:
        used = Counter(racks[node] for node in current)
        removed = max(current, key=lambda node: (node not in leader, used[racks[node]], loads[node], node))
        current.remove(removed)
        loads[removed] -= 1


def _spread_over_racks(
    current: set[int], leader: Iterable[int], racks: Mapping[int, str], loads: dict[int, int]
) -> None:
    """Move replicas from a rack to another one until no move makes the racks of the partition more even."""
    while True:
        used = Counter(racks[node] for node in current)
        free = sorted(racks.keys() - current, key=lambda node: (used[racks[node]], loads[node], node))
        full = sorted(current, key=lambda node: (-used[racks[node]], node in leader, -loads[node], node))
        if not free or used[racks[full[0]]] - used[racks[free[0]]] < 2:
            return
        current.remove(full[0])
        current.add(free[0])
        loads[full[0]] -= 1
        loads[free[0]] += 1


def _replica_transfers(state: _Replicas, racks: Mapping[int, str], *, fixed: bool) -> Iterable[_Transfer[_Replicas]]:
    """The transfers that keep the racks of a partition even; with `fixed`, of replicas that are new only."""
    current, original = state
    used = Counter(racks.get(node) for node in current)
    for source in sorted(current):
        if fixed and source in original:
            continue
        rack = racks[source]
        for target in racks:
            if target not in current and (racks[target] == rack or used[racks[target]] < used[rack]):
                cost = (target not in original) - (source not in original)
                yield _Transfer(source, target, cost, (current - {source} | {target}, original))


# Leaders.

#: The leader of a partition, the one before (-1 if it has no replica any more), and its replicas that may lead.
_Leader = tuple[int, int, frozenset[int]]


def _changed(
    placement: Mapping[TopicPartition, tuple[int, ...]],
    replicas: Mapping[TopicPartition, frozenset[int]],
    live: Iterable[int],
    *,
    fixed: bool,
) -> Placement:
    """Order replicas, with balanced leaders at the front; returns the partitions that differ from `placement`."""
    usable, states = frozenset(live), {}
    stays: Counter[int] = Counter()
    for tp in _in_order(placement):
        before = placement[tp][0]
        if before in replicas[tp] and (fixed or before not in usable):
            stays[before] += 1
            continue
        kept = [node for node in placement[tp] if node in replicas[tp] and node in usable]
        leads = before if before in replicas[tp] else next(iter(kept), min(replicas[tp] & usable))
        states[tp] = (leads, before if before in replicas[tp] else -1, replicas[tp] & usable)
    loads = {node: stays[node] for node in sorted(usable)}
    for leads, _, _ in states.values():
        loads[leads] += 1
    leaders = {tp: state[0] for tp, state in _balanced(states, loads, _leader_transfers).items()}
    plan = {}
    for tp, present in placement.items():
        kept = [node for node in present if node in replicas[tp]]
        order = [*kept, *sorted(replicas[tp].difference(kept))]
        leader = leaders.get(tp, present[0])
        after = (leader, *(node for node in order if node != leader))
        if after != present:
            plan[tp] = after
    return plan


def _leader_transfers(state: _Leader) -> Iterable[_Transfer[_Leader]]:
    leader, before, replicas = state
    for target in sorted(replicas - {leader}):
        yield _Transfer(leader, target, (target != before) - (leader != before), (target, before, replicas))


# The flow.


def _balanced(
    states: Mapping[TopicPartition, S], loads: dict[int, int], transfers: Callable[[S], Iterable[_Transfer[S]]]
) -> dict[TopicPartition, S]:
    """Transfer load until it is as even as the transfers allow, at the least cost."""
    flow = _Flow(states, loads, transfers)
    while flow.improve():
        pass
    return flow.states


class _Hop(NamedTuple):
    """A step of a path: the best transfers from a broker to another have this cost."""

    source: int
    target: int
    cost: int


class _Flow(Generic[S]):
    """Partitions with their states, and the transfers that these allow.

    Partitions with equal states have the same transfers, so these are kept once per state.
    """

    def __init__(
        self,
        states: Mapping[TopicPartition, S],
        loads: dict[int, int],
        transfers: Callable[[S], Iterable[_Transfer[S]]],
    ) -> None:
        self.states: dict[TopicPartition, S] = {}
        self._loads = loads
        self._transfers = transfers
        self._members: dict[S, dict[TopicPartition, None]] = {}
        #: By source, target and cost: the states with such a transfer, and what each becomes.
        self._edges: defaultdict[int, defaultdict[int, dict[int, dict[S, S]]]] = defaultdict(
            lambda: defaultdict(lambda: {-1: {}, 0: {}, 1: {}})
        )
        for tp, state in states.items():
            self._set(tp, state)

    def improve(self) -> bool:
        """Make the loads more even, or the cost less with the same loads; returns whether that was possible."""
        sources = sorted(self._loads, key=lambda node: (-self._loads[node], node))
        for even in (False, True):
            for source in sources:
                paths = self._shortest(source)
                for target in sorted(paths, key=lambda node: (self._loads[node], paths[node][:2], node)):
                    gap = self._loads[source] - self._loads[target]
                    better = gap == 1 and paths[target][0] < 0 if even else gap >= 2
                    if better and self._apply(paths[target][2]):
                        return True
        return False

    def _shortest(self, source: int) -> dict[int, tuple[int, int, tuple[_Hop, ...]]]:
        """The cost, the length and the hops of the cheapest path to each broker, the shortest of several."""
        paths: dict[int, tuple[int, int, tuple[_Hop, ...]]] = {source: (0, 0, ())}
        grown = [source]
        for _ in self._loads:
            reached: dict[int, None] = {}
            for node in grown:
                cost, length, hops = paths[node]
                for target, by_cost in self._edges[node].items():
                    step = next((step for step, states in by_cost.items() if states), None)
                    if step is not None and (target not in paths or (cost + step, length + 1) < paths[target][:2]):
                        paths[target] = (cost + step, length + 1, (*hops, _Hop(node, target, step)))
                        reached[target] = None
            grown = list(reached)
            if not grown:
                break
        del paths[source]
        return paths

    def _apply(self, hops: Iterable[_Hop]) -> bool:
        """Transfer one unit along a path, by a partition of its own for each hop; returns whether there are such."""
        chosen: dict[TopicPartition, S] = {}
        path = list(hops)
        for hop in path:
            found = (
                (tp, after)
                for before, after in self._edges[hop.source][hop.target][hop.cost].items()
                for tp in self._members[before]
                if tp not in chosen
            )
            first = next(found, None)
            if first is None:
                return False
            chosen[first[0]] = first[1]
        for tp, state in chosen.items():
            self._set(tp, state)
        self._loads[path[0].source] -= 1
        self._loads[path[-1].target] += 1
        return True

    def _set(self, tp: TopicPartition, state: S) -> None:
        before = self.states.get(tp)
        if before is not None:
            del self._members[before][tp]
            if not self._members[before]:
                del self._members[before]
                for one in self._transfers(before):
                    del self._edges[one.source][one.target][one.cost][before]
        self.states[tp] = state
        if state not in self._members:
            self._members[state] = {}
            for one in self._transfers(state):
                self._edges[one.source][one.target][one.cost][state] = one.state
        self._members[state][tp] = None
