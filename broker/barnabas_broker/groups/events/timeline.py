"""A group on one time axis: a lane for each member, a band for each generation, and the pauses of partitions. Pure.

This is what a page or a terminal draws. It is made of the same events as the sentences
(:mod:`~barnabas_broker.groups.events.explain`), recorded or rebuilt ones.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from barnabas_broker.groups.effects import EventType
from barnabas_broker.groups.events.events import EventRecord, Partition, by_topic
from barnabas_broker.groups.events.storms import name_of

#: Lanes, bands, pauses and gaps of a timeline; the oldest ones are left out.
_MOST: Final = 10_000


@dataclass(slots=True)
class Span:
    """What a member owned in one piece of time.

    Attributes:
        start: in ms since 1970.
        end: the same; None if it lasts.
        partitions: what it owned, by topic.
    """

    start: int
    end: int | None
    partitions: Mapping[str, list[int]]


@dataclass(slots=True)
class Lane:
    """A member.

    Attributes:
        member_id: its id.
        name: for people.
        start: when it joined; None if it was there before.
        end: when it had gone, at the latest; None if it is there.
        end_type: the type of the event of its end.
        spans: what it owned, oldest first.
    """

    member_id: str
    name: str
    start: int | None
    end: int | None = None
    end_type: str | None = None
    spans: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class Band:
    """A generation, or an epoch.

    Attributes:
        generation: its number.
        start: when its rebalance began, as far as that is known.
        assigned: when its partitions were assigned; None if they were not.
        cause: the type of the event that caused it, "not_recorded" if that is not known.
        by: the names of the members that caused it.
        inferred: whether the cause is concluded.
    """

    generation: int
    start: int
    assigned: int | None
    cause: str
    by: list[str]
    inferred: bool


@dataclass(slots=True)
class Timeline:
    """A group on one time axis.

    Attributes:
        lanes: its members, in the order in which they joined.
        bands: its generations, oldest first.
        pauses: the pauses of partitions, as in events, with their `end`.
        gaps: the gaps of a rebuilt history: `time`, `gap` and `generation`.
    """

    lanes: list[Lane] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    pauses: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """The timeline, ready for JSON."""
        return asdict(self)


_JOINED: Final = frozenset((EventType.MEMBER_JOINED.value, EventType.MEMBER_REPLACED.value))
_LEFT: Final = frozenset(
    each.value
    for each in (
        EventType.MEMBER_LEFT,
        EventType.MEMBER_EXPIRED,
        EventType.MEMBER_NOT_REJOINED,
        EventType.MEMBER_NOT_SYNCED,
        EventType.MEMBER_NOT_REVOKED,
        EventType.MEMBER_REFUSED,
        EventType.MEMBER_GONE,
    )
)
_STARTED: Final = frozenset((EventType.REBALANCE_STARTED.value, EventType.EPOCH_BUMPED.value))
_ASSIGNED: Final = frozenset((EventType.REBALANCE_OVER.value, EventType.GROUP_EMPTY.value))


def timeline(events: Iterable[EventRecord]) -> Timeline:
    """Arrange the events of a group, oldest first, on a time axis."""
    made = Timeline()
    lanes: dict[str, Lane] = {}
    owned: dict[str, set[Partition]] = {}
    for event in events:
        kind, time = event["type"], event["time"]
        if kind in _JOINED:
            lane = _lane(made, lanes, event)
            lane.start = time
            if kind == EventType.MEMBER_REPLACED.value:
                inherited = owned.get(event.get("old_member_id", ""), set())
                _end(lanes, owned, event.get("old_member_id"), time, kind)
                owned[lane.member_id] = inherited
                _span(lane, inherited, time)
        elif kind in _LEFT:
            _end(lanes, owned, event.get("member_id"), time, kind)
        elif kind in _STARTED:
            by = [name_of(member) for member in event.get("by") or ()]
            step = 1 if kind == EventType.REBALANCE_STARTED.value else 0
            inferred = bool(event.get("inferred"))
            made.bands.append(Band(event["generation"] + step, time, None, event.get("cause", ""), by, inferred))
        elif kind in _ASSIGNED or kind == EventType.GROUP_RECONCILED.value:
            if made.bands and made.bands[-1].assigned is None:
                made.bands[-1].assigned = time
                made.bands[-1].generation = event["generation"]
        elif kind == EventType.HISTORY_GAP.value:
            made.gaps.append({"time": time, "generation": event["generation"], "gap": event["gap"]})
        for move in event.get("moves") or ():
            if move["gained"] or move["member_id"] in lanes:  # one that is gone has lost its partitions already
                _move(_lane(made, lanes, move), owned, move, time)
        for pause in event.get("pauses") or ():
            made.pauses.append({**pause, "end": time})
    for each in (made.lanes, made.bands, made.pauses, made.gaps):
        del each[:-_MOST]
    return made


def _lane(made: Timeline, lanes: dict[str, Lane], member: Mapping[str, Any]) -> Lane:
    """The lane of a member; a new one if it has none, or if that has ended."""
    member_id = str(member.get("member_id"))
    lane = lanes.get(member_id)
    if lane is None:
        lane = lanes[member_id] = Lane(member_id, name_of(dict(member)), None)
        made.lanes.append(lane)
    return lane


def _end(lanes: dict[str, Lane], owned: dict[str, set[Partition]], member_id: str | None, time: int, kind: str) -> None:
    lane = lanes.pop(member_id or "", None)
    owned.pop(member_id or "", None)
    if lane is not None:
        lane.end, lane.end_type = time, kind
        if lane.spans and lane.spans[-1].end is None:
            lane.spans[-1].end = time


def _move(lane: Lane, owned: dict[str, set[Partition]], move: Mapping[str, Any], time: int) -> None:
    """Begin another span with what the member owns after a move."""
    partitions = owned.setdefault(lane.member_id, set())
    partitions |= {(topic, each) for topic, numbers in move["gained"].items() for each in numbers}
    partitions -= {(topic, each) for topic, numbers in move["lost"].items() for each in numbers}
    _span(lane, partitions, time)


def _span(lane: Lane, partitions: set[Partition], time: int) -> None:
    if lane.spans and lane.spans[-1].end is None:
        lane.spans[-1].end = time
    if partitions:
        lane.spans.append(Span(time, None, by_topic(partitions)))
