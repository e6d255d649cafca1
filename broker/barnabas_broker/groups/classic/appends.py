"""The appends of a classic group: what each of them is for, until it is in the log. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple, TypeVar

from barnabas_broker.groups.classic.members import ClassicGroupMember
from barnabas_broker.groups.effects import Caller, Persist, Reply, Token
from barnabas_broker.groups.errors import failed, join_error
from barnabas_protocol.coordinator_records import CoordinatorRecord
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.join_group import JoinGroupRequest

#: Seconds until the record of an Empty group is appended again that could not be: the first pause, which doubles, and
#: the longest.
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0


@dataclass(slots=True)
class PendingAssignment:
    """The leader's assignment of a generation, while it is being appended; whether that takes long is `delayed`."""

    generation: int
    assignments: dict[str, bytes]
    delayed: bool = False


class Join(NamedTuple):
    """A JoinGroup whose response is deferred: its arguments, as ``ClassicGroup.join`` gets them."""

    request: JoinGroupRequest
    version: int
    caller: Caller
    token: Token


@dataclass(slots=True)
class PendingReplacement:
    """A static member that comes back with a new member id, while the record that says so is being appended.

    Until then the group has the member as it was: an append that fails has changed nothing.

    Attributes:
        generation: in which it comes back.
        old_id: its member id.
        member: the member that takes its place.
        joins: the JoinGroup with which it comes back, and those of static members that come back meanwhile. None if the
            append takes long: they were refused.
    """

    generation: int
    old_id: str
    member: ClassicGroupMember
    joins: list[Join] | None

    def refused(self, error: ErrorCode) -> list[Reply]:
        """Refuse what waits for it."""
        return [Reply(join.token, join_error(error, "")) for join in self.joins or ()]


@dataclass(frozen=True, slots=True)
class PendingDowngrade:
    """The first record of a group that used the consumer protocol before, and the responses that wait for it."""

    replies: list[Reply]

    def refused(self, error: ErrorCode) -> list[Reply]:
        """Refuse what waits for it."""
        return [failed(each, KafkaError(error)) for each in self.replies]


#: What an append is for; None for the record of an Empty or new group.
Pending = PendingAssignment | PendingReplacement | PendingDowngrade | None
P = TypeVar("P", PendingAssignment, PendingReplacement)
W = TypeVar("W", PendingReplacement, PendingDowngrade)


class PendingAppends:
    """The records of a group that are being appended.

    Attributes:
        preceding: records that have to be in the log before the group's own: what deletes the group of the other
            protocol that it was. They go with each of its records until one is in the log.
        again_at: when the record of an Empty group is appended again that could not be; inf: not.
    """

    __slots__ = ("_in_flight", "_last_ticket", "_pause", "again_at", "preceding")

    def __init__(self) -> None:
        self.preceding: Sequence[CoordinatorRecord] = ()
        self.again_at = inf
        self._pause = _FIRST_PAUSE
        self._in_flight: dict[int, Pending] = {}
        self._last_ticket = 0

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._in_flight

    def begin(
        self, pending: Pending, record: CoordinatorRecord, state_since: float | None, caller: Caller | None
    ) -> Persist:
        """Append the group's record.

        Args:
            pending: what it is for.
            record: the record.
            state_since: when the group entered its state.
            caller: the client that causes it.
        """
        self._last_ticket += 1
        self._in_flight[self._last_ticket] = pending
        return Persist(self._last_ticket, (*self.preceding, record), state_since, caller)

    def get(self, ticket: int) -> Pending:
        """Return what an append is for."""
        return self._in_flight.get(ticket)

    def end(self, ticket: int, error: ErrorCode) -> Pending:
        """The log has decided about an append; returns what it was for."""
        if error == ErrorCode.NONE:
            self.preceding = ()
            self._pause = _FIRST_PAUSE
        return self._in_flight.pop(ticket)

    def again(self, now: float) -> None:
        """Append the record of an Empty group again, after a pause."""
        self.again_at = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def of(self, generation: int, kind: type[P]) -> P | None:
        """The assignment or replacement of a generation that is being appended."""
        return next(
            (each for each in self._in_flight.values() if isinstance(each, kind) and each.generation == generation),
            None,
        )

    def refused(self, kind: type[W], error: ErrorCode) -> list[Reply]:
        """Refuse what waits for appends of a kind."""
        return [reply for each in self._in_flight.values() if isinstance(each, kind) for reply in each.refused(error)]

    def downgrades(self) -> list[Reply]:
        """The responses that wait for the first record of this group."""
        return [
            reply for each in self._in_flight.values() if isinstance(each, PendingDowngrade) for reply in each.replies
        ]

    def clear(self) -> None:
        """Forget what is in flight: the group has ended."""
        self._in_flight.clear()
        self.again_at = inf
