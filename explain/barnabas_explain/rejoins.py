"""Members that rejoin late, so that their whole group waits. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from barnabas_explain.catalog import (
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
from barnabas_explain.members import Member
from barnabas_explain.words import ms, times

#: A group waits for long after so many milliseconds.
_LONG_MS: Final = 10_000
#: A member that has heard of the rebalance only so many milliseconds before it rejoined had no time to do so earlier.
_HEARD_MS: Final = 1_000
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
