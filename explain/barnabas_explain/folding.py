"""Folds events of which several say one thing into one event, and completes them with what the events before say. Pure.

What a client has set or deleted one after the other is one event; so are the partitions of a topic in which a member
had to go on elsewhere, its commits that went back, offsets that stand still, and the commits of a client that is not a
member.
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any, Final, NamedTuple

from barnabas_explain.catalog import (
    AbortedRecordsRead,
    BrokerNotReached,
    CommitsBeyondEnd,
    CommitsLastRecord,
    CommitsOften,
    CommitsRefused,
    CommitsWentBack,
    Departure,
    FetchDenied,
    FetchesWaited,
    FetchOutOfRange,
    GroupEvent,
    GroupLoaded,
    GroupReconciled,
    GroupUpgraded,
    HistoryGap,
    JoinRefused,
    LagGrows,
    MemberReplaced,
    MemberRevoked,
    MemberRewound,
    MemberSkipped,
    MemberSlow,
    NothingCommitted,
    NothingFetched,
    OffsetsAltered,
    OffsetsStuck,
    RebalanceOver,
    RecordsAborted,
    RegexRefused,
    SessionRefused,
    TargetAssigned,
)
from barnabas_explain.members import MOST_MEMBERS, Member, Partition, partitions_of

#: A member commits within so many milliseconds after its position was reset.
_AFTER_RESET_MS: Final = 60_000
#: Offsets that stand still are noticed within so many milliseconds.
_LOOK_MS: Final = 30_000
#: A member that seeks when it gets partitions fetches within so many milliseconds after the rebalance.
_AFTER_ASSIGNMENT_MS: Final = 10_000
#: A client that is not a member commits again within so many milliseconds: later ones are another explanation.
_OUTSIDER_MS: Final = 3_600_000
#: What a client sets or deletes within so many milliseconds after the last time belongs to that.
_ONE_ACTION_MS: Final = 300_000
#: Ms between two events of the same kind that become one explanation.
TOGETHER_MS: Final = 90_000


class Recorded(NamedTuple):
    """How often something was recorded, and when last, in ms since 1970."""

    times: int
    until: int


class _Fold(NamedTuple):
    """A way in which an event can become one with an earlier one.

    Attributes:
        key: the newest event with this key is the earlier one.
        join: both as one; None if they stay two.
        pause_ms: the longest time since the newest event that the earlier one is made of.
        adjacent: whether no other event may lie between.
    """

    key: tuple[object, ...]
    join: Callable[[Any, Any], GroupEvent | None]
    pause_ms: float = inf
    adjacent: bool = False


def fold(events: Iterable[GroupEvent], since: float) -> tuple[list[GroupEvent], list[Recorded]]:
    """Events of one group, oldest first, with one event in place of several that say one thing.

    Args:
        events: of one group, oldest first.
        since: events before this time, in ms since 1970, stay alone.

    Returns:
        The events, and how often and until when each was recorded.
    """
    folded: list[GroupEvent] = []
    places: dict[tuple[object, ...], int] = {}
    #: How many events each place is made of, and when the newest one happened.
    newest: list[Recorded] = []
    for event in completed(events):
        folds = list(_folds(event))
        for way in folds:
            at = places.get(way.key)
            if at is None or folded[at].time < since or event.time - newest[at].until > way.pause_ms:
                continue
            joined = None if way.adjacent and at != len(folded) - 1 else way.join(folded[at], event)
            if joined is not None:
                folded[at] = joined
                newest[at] = Recorded(newest[at].times + 1, event.time)
                break
        else:
            at = len(folded)
            folded.append(event)
            newest.append(Recorded(1, event.time))
        places.update((way.key, at) for way in folds)
    return folded, newest


def _folds(event: GroupEvent) -> Iterator[_Fold]:
    """The ways in which an event can become one with an earlier one; the first that fits is taken."""
    match event:
        case CommitsRefused(is_outsider=True):
            yield _Fold(("outsider", event.member.client_id, event.member.host), _of_outsider, _OUTSIDER_MS)
        case CommitsRefused():
            yield _Fold((event.type, event.member, event.error), _of_one_row)
        case OffsetsAltered():
            if event.changes and all(each.after is not None for each in event.changes):
                yield _Fold(("outsider", event.client_id, event.host), _of_outsider, _OUTSIDER_MS)
            yield _Fold((event.type,), _of_one_action, _ONE_ACTION_MS, adjacent=True)
        case MemberSlow(is_late=True):
            yield _Fold((event.type, *event.member[1:]), _with_later, TOGETHER_MS)
        case MemberRewound():
            yield _Fold((event.type, *event.member[1:], event.is_kept), _with_later)
        case MemberSkipped():
            jumps = event.fetched is not None
            way = _with_later if jumps else _with_later_soon
            kind = event.offset is None, event.away_ms is None, event.is_kept, jumps
            yield _Fold((event.type, event.member, *kind), way)
        case FetchOutOfRange():
            yield _Fold((event.type, event.member, event.topic), _with_later_soon)
        case CommitsWentBack():
            causes = event.was_reset, event.was_rewound, event.owner, event.reads_on
            yield _Fold((event.type, event.member, *causes), _with_later_soon)
        case CommitsBeyondEnd():
            yield _Fold((event.type, event.member), _with_later_soon)
        case FetchDenied():
            yield _Fold((event.type, event.member, event.topic), lambda known, later: known)
        case JoinRefused() | SessionRefused() | RegexRefused():  # It tries again and again.
            offered = event.offered if isinstance(event, JoinRefused) else None
            yield _Fold((event.type, *event.member[1:], offered), lambda known, later: known)
        case OffsetsStuck() if event.is_last_record:
            yield _Fold((event.type, event.member, "last record"), _with_later)
        case OffsetsStuck():
            yield _Fold((event.type, event.member, event.positions), _with_all_of_later)
        case AbortedRecordsRead() | CommitsLastRecord() | CommitsOften() | NothingCommitted() | NothingFetched():
            yield _Fold((event.type, event.member), _with_all_of_later)
        case FetchesWaited():
            yield _Fold((event.type, event.member), _with_all_of_later)
        case BrokerNotReached():
            yield _Fold((event.type, event.broker), _with_all_of_later)
        case LagGrows() | RecordsAborted():
            yield _Fold((event.type,), _of_one_growth)


def _with_later(known: Any, later: GroupEvent) -> GroupEvent:
    joined: GroupEvent = known.with_later(later)
    return joined


def _with_later_soon(known: Any, later: GroupEvent) -> GroupEvent | None:
    return _with_later(known, later) if later.time - known.time <= TOGETHER_MS else None


def _with_all_of_later(known: GroupEvent, later: GroupEvent) -> GroupEvent:
    """The later event at the time of the first: it has lasted for longer since then."""
    return later.changed(time=known.time)


def _of_one_row(known: CommitsRefused, later: CommitsRefused) -> GroupEvent | None:
    """Two reports of commits that were refused in a row as one; None if one was accepted in between."""
    return _with_all_of_later(known, later) if later.commits > known.commits else None


def _of_one_growth(known: LagGrows | RecordsAborted, later: LagGrows | RecordsAborted) -> GroupEvent | None:
    """Two reports of what lasts as one at the time of the first; None if it had stopped in between."""
    began = later.time - later.took_ms
    return _with_all_of_later(known, later) if began <= known.time else None


def _of_one_action(known: OffsetsAltered, later: OffsetsAltered) -> OffsetsAltered | None:
    return known.with_later(later) if later.follows(known) else None


def _of_outsider(known: CommitsRefused | OffsetsAltered, later: CommitsRefused | OffsetsAltered) -> GroupEvent | None:
    """Two events about one client that is not a member as one; None if no commit of it was refused: it may be an
    administrator's tool."""
    if isinstance(known, CommitsRefused):
        return known.with_later(later)
    return later.with_later(known).changed(time=known.time) if isinstance(later, CommitsRefused) else None


def completed(events: Iterable[GroupEvent]) -> Iterator[GroupEvent]:
    """The events; those about positions of members with the cause that the events before name."""
    #: When a fetch position was last reset, by topic and partition.
    resets: dict[tuple[str, int], int] = {}
    owners = _Owners()
    #: The members that went back to the beginning; the times of the rebalances after which each did.
    rewound: set[str] = set()
    rebalances: dict[tuple[object, ...], set[float]] = {}
    assigned_at = -inf
    lost: dict[Partition, Member] = {}
    refused: dict[str | None, CommitsRefused] = {}
    gone: dict[tuple[str | None, str | None], Departure] = {}
    for event in events:
        owners.follow(event)
        match event:
            case RebalanceOver() | TargetAssigned() | GroupReconciled():
                assigned_at = event.time
                if not isinstance(event, GroupReconciled):
                    _follow_losses(lost, event)
            case Departure():
                gone[event.member.client_id, event.member.host] = event
                lost = {place: owner for place, owner in lost.items() if owner.member_id != event.member.member_id}
            case CommitsRefused():
                refused[event.member.member_id] = event
            case NothingCommitted():
                event = event.changed(refused=refused.get(event.member.member_id))
            case OffsetsStuck():
                last = refused.get(event.member.member_id)
                # It ends with a commit that is accepted.
                accepted_ms = inf if event.committed_ago_ms is None else event.committed_ago_ms
                if last is not None and event.time - last.time <= min(event.stood_ms + _LOOK_MS, accepted_ms):
                    event = event.changed(refused=last)
                others = (lost.get(each[:2]) for each in event.positions)
                before = next((each for each in others if each is not None and each[1:] != event.member[1:]), None)
                event = event if before is None else event.changed(before=before)
            case OffsetsAltered():
                left = gone.get((event.client_id, event.host))
                event = event.changed(gone=left) if left is not None and event.is_late(left) else event
            case FetchOutOfRange():
                resets[event.topic, event.partition] = event.time
            case MemberRewound():
                resets[event.topic, event.partition] = event.time
                rewound.add(event.member.name)
                after = rebalances.setdefault(tuple(event.member[1:]), set())
                if event.time - assigned_at <= _AFTER_ASSIGNMENT_MS:
                    after.add(assigned_at)
                event = event.changed(rebalances=len(after))
            case CommitsWentBack():
                changes = event.changes or ()
                if changes and all(event.time - resets.get(each[:2], -inf) <= _AFTER_RESET_MS for each in changes):
                    went_back = event.member.name in rewound
                    # It explains the first way back after it.
                    for each in changes:
                        del resets[each[:2]]
                    event = event.changed(was_rewound=True) if went_back else event.changed(was_reset=True)
                else:
                    other = owners.other_than(event.member, (each[:2] for each in changes))
                    event = event.changed(owner=other) if other is not None else event
        yield event


def _follow_losses(lost: dict[Partition, Member], event: RebalanceOver | TargetAssigned) -> None:
    """Keep up which member lost each partition last."""
    for move in event.moves or ():
        lost.update(dict.fromkeys(partitions_of(move.lost), move.member))


class _Owners:
    """The owner of each partition; what is not known for certain is left out."""

    def __init__(self) -> None:
        self._now: dict[Partition, Member] = {}
        #: Who gets partitions once their owners have revoked them, in the consumer protocol.
        self._next: dict[Partition, Member] = {}

    def other_than(self, member: Member, places: Iterable[Partition]) -> Member | None:
        """Another member that owns one of these partitions."""
        found = (self._now.get(place) for place in places)
        return next((each for each in found if each is not None and each.member_id != member.member_id), None)

    def follow(self, event: GroupEvent) -> None:
        """Keep up with an event."""
        if isinstance(event, MemberReplaced):
            for known in (self._now, self._next):
                known.update({at: event.member for at, each in known.items() if each.member_id == event.old_member_id})
        elif isinstance(event, RebalanceOver | TargetAssigned):
            if event.moves is None or len(event.moves) >= MOST_MEMBERS:
                self._now.clear()
                self._next.clear()
                return
            is_target = isinstance(event, TargetAssigned)
            given_up = {place for move in event.moves for place in partitions_of(move.lost)} if is_target else ()
            for move in event.moves:
                for place in partitions_of(move.gained):
                    (self._next if place in given_up else self._now)[place] = move.member
        elif isinstance(event, MemberRevoked):
            self._give_up(partitions_of(event.partitions))
        elif isinstance(event, Departure):
            own = event.member.member_id
            self._next = {at: each for at, each in self._next.items() if each.member_id != own}
            self._give_up([at for at, each in self._now.items() if each.member_id == own])
        elif isinstance(event, GroupLoaded | GroupUpgraded | HistoryGap):
            self._now.clear()
            self._next.clear()

    def _give_up(self, places: Iterable[Partition]) -> None:
        for place in places:
            self._now.pop(place, None)
            if place in self._next:
                self._now[place] = self._next.pop(place)
