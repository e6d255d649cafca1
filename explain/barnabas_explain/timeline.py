"""A group on one time axis: a lane for each member, and a band for each generation. Pure.

It is made of the same events as the sentences (:mod:`~barnabas_explain.explain`), recorded or rebuilt
ones. What a page draws has more: :mod:`~barnabas_explain.chart`.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from barnabas_explain.catalog import (
    Departure,
    GroupEmpty,
    GroupEvent,
    GroupReconciled,
    HistoryGap,
    MemberJoined,
    MemberReplaced,
    RebalanceOver,
    Started,
    TargetAssigned,
)
from barnabas_explain.members import Member, Move, Partition, by_topic, partitions_of

#: Lanes, bands and gaps of a timeline; the oldest ones are left out.
_MOST: Final = 10_000
#: Partitions in all spans of a timeline: the oldest spans are left out.
_MOST_OWNED: Final = 300_000
#: Partitions that are looked at to make spans: a bound for forged events.
_MOST_WORK: Final = 5_000_000


@dataclass(slots=True)
class Span:
    """The partitions that a member owned in one piece of time.

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
        gaps: the gaps of a rebuilt history: `time`, `gap` and `generation`.
        owned_from: since when the spans are whole; None if all are. Older ones were left out, because there are too
            many.
        owned_until: until when they are whole; None likewise.
    """

    lanes: list[Lane] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    owned_from: int | None = None
    owned_until: int | None = None

    def as_data(self) -> dict[str, Any]:
        """The timeline, ready for JSON."""
        return asdict(self)


def timeline(events: Iterable[GroupEvent]) -> Timeline:
    """Arrange the events of a group, oldest first, on a time axis."""
    made = Timeline()
    lanes: dict[str, Lane] = {}
    owned = _Owned(made)
    for event in events:
        time = event.time
        match event:
            case MemberJoined() | MemberReplaced():
                lane = _lane(made, lanes, event.member)
                lane.start = time
                if isinstance(event, MemberReplaced):
                    inherited = owned.by_member.get(event.old_member_id or "", set())
                    _end(lanes, owned, event.old_member_id, event)
                    owned.by_member[lane.member_id] = inherited
                    owned.span(lane, time)
            case Departure():
                _end(lanes, owned, event.member.member_id, event)
            case Started():
                by = [member.name for member in event.by or ()]
                made.bands.append(Band(event.opens, time, None, event.cause, by, bool(event.inferred)))
            case RebalanceOver() | GroupEmpty() | GroupReconciled():
                if made.bands and made.bands[-1].assigned is None:
                    made.bands[-1].assigned = time
                    made.bands[-1].generation = event.generation
            case HistoryGap():
                made.gaps.append({"time": time, "generation": event.generation, "gap": event.gap})
        if isinstance(event, RebalanceOver | TargetAssigned):
            for move in event.moves or ():
                if move.gained or move.member.member_id in lanes:  # one that is gone has lost its partitions already
                    owned.move(_lane(made, lanes, move.member), move, time)
    for each in (made.lanes, made.bands, made.gaps):
        del each[:-_MOST]
    return made


def _lane(made: Timeline, lanes: dict[str, Lane], member: Member) -> Lane:
    """The lane of a member; a new one if it has none, or if that has ended."""
    member_id = str(member.member_id)
    lane = lanes.get(member_id)
    if lane is None:
        lane = lanes[member_id] = Lane(member_id, member.name, None)
        made.lanes.append(lane)
    return lane


def _end(lanes: dict[str, Lane], owned: "_Owned", member_id: str | None, event: GroupEvent) -> None:
    lane = lanes.pop(member_id or "", None)
    owned.by_member.pop(member_id or "", None)
    if lane is not None:
        lane.end, lane.end_type = event.time, event.type
        if lane.spans and lane.spans[-1].end is None:
            lane.spans[-1].end = event.time


class _Owned:
    """The partitions that members own, and their spans.

    Attributes:
        by_member: the partitions of each member, by its id.
    """

    def __init__(self, made: Timeline) -> None:
        self.by_member: dict[str, set[Partition]] = {}
        self._made = made
        self._spans: deque[tuple[Lane, int]] = deque()
        self._shown = self._spent = 0

    def move(self, lane: Lane, move: Move, time: int) -> None:
        """Begin another span with what the member owns after a move."""
        partitions = self.by_member.setdefault(lane.member_id, set())
        partitions |= partitions_of(move.gained)
        partitions -= partitions_of(move.lost)
        self.span(lane, time)

    def span(self, lane: Lane, time: int) -> None:
        """Begin another span with what the member owns."""
        partitions = self.by_member.get(lane.member_id) or set()
        if lane.spans and lane.spans[-1].end is None:
            lane.spans[-1].end = time
        self._spent += len(partitions)
        if self._spent > _MOST_WORK:
            if self._made.owned_until is None:
                self._made.owned_until = time
            return
        if partitions:
            lane.spans.append(Span(time, None, by_topic(partitions)))
            self._spans.append((lane, len(partitions)))
            self._shown += len(partitions)
        while self._shown > _MOST_OWNED and len(self._spans) > 1:
            oldest, count = self._spans.popleft()
            # The spans of a lane are in this order, too.
            left_out = oldest.spans.pop(0)
            self._shown -= count
            self._made.owned_from = left_out.end if left_out.end is not None else time
