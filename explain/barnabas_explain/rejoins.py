"""Members that rejoin late, so that their whole group waits. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from barnabas_explain.catalog import (
    MAYBE_SELDOM,
    SELDOM_HEARTBEATS,
    SLOW_MS,
    Departure,
    GroupEvent,
    JoinPhaseOver,
    MemberDisconnected,
    MemberJoined,
    MemberNotRejoined,
    RebalanceOver,
    RebalanceStarted,
    RejoinAwaited,
)
from barnabas_explain.members import LateMember, Member
from barnabas_explain.words import clock, ms, names_of, times

#: A group waits for long after so many milliseconds.
_LONG_MS: Final = 10_000
#: A member that has heard of the rebalance only so many milliseconds before it rejoined had no time to do so earlier.
_HEARD_MS: Final = 1_000
#: A member hears late of a rebalance after so many milliseconds: heartbeats are sent each 3 s by default. A group that
#: waited so often for such members is ill.
HEARD_LATE_MS: Final = 5_000
_OFTEN: Final = 2
#: Heartbeats come at an interval if the times between them do not differ by more than this part of it. Libraries that
#: send them in a thread of their own, so that a program that works or waits does not keep them back.
_REGULAR: Final = 0.1
_OWN_THREAD: Final = ("rdkafka", "apache-kafka-java", "kafka-python")
#: Members of a protocol with this in its name consume while they wait.
GOES_ON: Final = "cooperative"


class Late(NamedTuple):
    """A member for which its group has waited.

    Attributes:
        member: the member.
        waits: for how long each time after which it rejoined, in ms.
        since: when the first wait began, in ms since 1970.
        until: when the last one was over.
        gone: for how long each time at whose end it was removed or left, in ms.
    """

    member: Member
    waits: tuple[float, ...]
    since: int
    until: int
    gone: tuple[float, ...] = ()

    @property
    def all_waits(self) -> tuple[float, ...]:
        """For how long each time, in ms."""
        return (*self.waits, *self.gone)

    @property
    def hangs(self) -> bool:
        """Whether it was waited for until it was gone, and for longer than it ever took to rejoin: the work between two
        polls does not explain that."""
        return max(self.gone, default=0) > max(self.waits, default=0)

    @property
    def text(self) -> str:
        """In words, without a full stop: how often and for how long the others waited."""
        text, often = self.member.name, times(len(self.gone))
        if self.waits:
            text += f" rejoined late {times(len(self.waits))}"
        if self.gone:
            text += f", and {often} it" if self.waits else f" {often}" if len(self.gone) > 1 else ""
            text += " did not rejoin until it was removed or left, though the responses to its heartbeats told it to"
        text += ": the other members waited for"
        if len(self.all_waits) == 1:
            return f"{text} {ms(self.all_waits[0])}"
        return f"{text} up to {ms(max(self.all_waits))}, and {ms(sum(self.all_waits))} in all"


def late_members(events: Iterable[GroupEvent]) -> list[Late]:
    """The members for which a group has waited for long.

    Args:
        events: of the group, oldest first.
    """
    found: dict[str, Late] = {}
    for member, wait, time, is_gone in _waits(events):
        known = found.get(member.name) or Late(member, (), round(time - wait), time)
        known = known._replace(gone=(*known.gone, wait)) if is_gone else known._replace(waits=(*known.waits, wait))
        found[member.name] = known._replace(member=member, until=time)
    return list(found.values())


class HeardLate(NamedTuple):
    """Members that heard late of several rebalances, so that these took long.

    Attributes:
        members: the members, of each name one.
        waits: how long each of the rebalances waited for them, in ms.
        gaps: the times between the last two heartbeats of members that heard late, in ms, as far as they are recorded.
        in_threads: whether the libraries of all of these send heartbeats in threads of their own.
        all_wait: whether those that had rejoined did not read meanwhile.
        since: when the first of the rebalances began, in ms since 1970.
        until: when the join phase of the last one was over.
    """

    members: tuple[Member, ...]
    waits: tuple[float, ...]
    gaps: tuple[float, ...]
    in_threads: bool
    all_wait: bool
    since: int
    until: int

    @property
    def is_regular(self) -> bool:
        """Whether the heartbeats come at an interval that is set."""
        return bool(self.gaps) and max(self.gaps) - min(self.gaps) <= max(_REGULAR * max(self.gaps), SLOW_MS)

    @property
    def text(self) -> str:
        """In a sentence: how often and for how long rebalances waited for which members."""
        names, one = names_of(self.members), len(self.members) == 1
        text = f"Rebalances took up to {ms(max(self.waits))}, {times(len(self.waits))} since {clock(self.since)},"
        text += " because"
        text += f" {names} heard of them only with {'its' if one else 'their'} next heartbeat"
        if self.is_regular:
            each = "it sends one" if one else "they send one each"
            text += f", and {each} about every {ms(max(self.gaps))}"
        return f"{text} (heartbeat.interval.ms)."

    @property
    def remedy(self) -> str:
        """How to let them hear sooner."""
        return SELDOM_HEARTBEATS if self.is_regular and self.in_threads else MAYBE_SELDOM


def heard_late(events: Iterable[GroupEvent], since_ms: int = 0, often: int = _OFTEN) -> HeardLate | None:
    """The members that heard late of several rebalances; None for none.

    Args:
        events: of the group, oldest first.
        since_ms: rebalances that were over earlier do not count, in ms since 1970.
        often: fewer rebalances are none.
    """
    libraries: dict[str | None, str | None] = {}
    new: set[str | None] = set()
    found: list[tuple[JoinPhaseOver, list[LateMember]]] = []
    for event in events:
        if isinstance(event, MemberJoined):
            new.add(event.member.member_id)
            libraries[event.member.common_name] = event.software
        elif isinstance(event, RebalanceOver):
            new.clear()
        elif isinstance(event, JoinPhaseOver) and event.time >= since_ms and (event.members or 0) > 1:
            joined = event.joined_after or ()
            if joined and joined[0].member.member_id not in new and hears_late(joined[0]):
                found.append((event, [each for each in joined if hears_late(each)]))
    if len(found) < often:
        return None
    members = {each.member.name: each.member for _, late in found for each in late}
    return HeardLate(
        members=tuple(members.values()),
        waits=tuple(late[0].after_ms for _, late in found),
        gaps=tuple(each.heartbeat_ms for _, late in found for each in late if each.heartbeat_ms is not None),
        in_threads=all(
            any(library in (libraries.get(each.common_name) or "") for library in _OWN_THREAD)
            for each in members.values()
        ),
        all_wait=any(GOES_ON not in (event.protocol or "") for event, _ in found),
        since=round(found[0][0].time - found[0][1][0].after_ms),
        until=found[-1][0].time,
    )


def hears_late(late: LateMember) -> bool:
    """Whether a member has rejoined late because it had heard late of the rebalance."""
    return late.told_ms is not None and late.told_ms >= HEARD_LATE_MS and late.after_ms - late.told_ms <= SLOW_MS


def held_up(events: Iterable[GroupEvent]) -> RejoinAwaited | None:
    """The member that a join phase waited for until it was gone, though its heartbeats went on; None for none.

    Args:
        events: of one rebalance, oldest first.
    """
    awaited: dict[str | None, RejoinAwaited] = {}
    for event in events:
        if isinstance(event, RejoinAwaited):
            if event.is_told:
                awaited[event.member.member_id] = event
        elif isinstance(event, Departure) and not isinstance(event, MemberNotRejoined):
            known = awaited.get(event.member.member_id)
            if known is not None:
                return known
    return None


def awaited_now(events: Iterable[GroupEvent]) -> list[RejoinAwaited]:
    """The members that the rebalance that is under way waits for, as far as that is recorded.

    Args:
        events: of the group, oldest first.
    """
    awaited: dict[str | None, RejoinAwaited] = {}
    for event in events:
        if isinstance(event, RebalanceStarted | JoinPhaseOver):
            awaited.clear()
        elif isinstance(event, RejoinAwaited):
            awaited[event.member.member_id] = event
        elif isinstance(event, MemberDisconnected) and (known := awaited.get(event.member.member_id)) is not None:
            awaited[event.member.member_id] = known.changed(connection="closed")
        elif isinstance(event, Departure):
            awaited.pop(event.member.member_id, None)
    return list(awaited.values())


def _waits(events: Iterable[GroupEvent]) -> Iterator[tuple[Member, float, int, bool]]:
    new: set[str | None] = set()
    #: Those of the rebalance that is under way.
    seen: list[GroupEvent] = []
    for event in events:
        if isinstance(event, RebalanceStarted):
            seen = []
        elif isinstance(event, RejoinAwaited | Departure):
            seen.append(event)
        if isinstance(event, MemberJoined):
            new.add(event.member.member_id)
        elif isinstance(event, RebalanceOver):
            new.clear()
        elif isinstance(event, JoinPhaseOver) and (event.members or 0) > 1 and GOES_ON not in (event.protocol or ""):
            if (gone := held_up(seen)) is not None and event.took_ms is not None:
                yield gone.member, event.took_ms, event.time, True
                continue
            last = next(iter(event.joined_after or ()), None)
            if last is None or last.after_ms < _LONG_MS or last.member.member_id in new:
                continue
            if last.told_ms is None or last.after_ms - last.told_ms > _HEARD_MS:
                yield last.member, last.after_ms, event.time, False
