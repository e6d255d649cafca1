"""What all parts of the group machine stand on: its fields, its clock, its effects. Pure.

Source: Kafka's ``ClassicGroup`` and ``GroupMetadataManager`` (4.x).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple

from barnabas_broker.groups.classic.members import Member, Membership, Protocols
from barnabas_broker.groups.classic.responses import group_value, join_error, sync_error
from barnabas_broker.groups.classic.states import TRANSITIONS, GroupState, IllegalTransition
from barnabas_broker.groups.effects import Effect, Kind, Note, Persist, Reply, Token
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.sync_group import SyncGroupResponse

EMPTY: Final = GroupState.EMPTY
PREPARING: Final = GroupState.PREPARING_REBALANCE
COMPLETING: Final = GroupState.COMPLETING_REBALANCE
STABLE: Final = GroupState.STABLE
DEAD: Final = GroupState.DEAD

#: A heartbeat gap of this share of the session timeout is worth a warning.
SLOW: Final = 0.6
#: Characters of a client's reason that are kept, as in Kafka's client.
_MAX_REASON: Final = 255


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What all groups of a coordinator share.

    Attributes:
        new_id: what follows the dash in a new member id.
        initial_delay: seconds that an empty group waits for more members (``group.initial.rebalance.delay.ms``).
        max_size: members at most (``group.max.size``).
        new_member_timeout: seconds after which the parked first JoinGroup of a member is given up.
    """

    new_id: Callable[[], str]
    initial_delay: float = 3.0
    max_size: int = 2**31 - 1
    new_member_timeout: float = 300.0


class Caller(NamedTuple):
    """Who sends a request: what the client calls itself, and where from, as Kafka prints it ("/127.0.0.1")."""

    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class Assigning:
    """The leader's assignment of a generation, on its way into the log."""

    generation: int
    shares: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Replacing:
    """A static member's new id, on its way into the log, and what to go back to if it does not arrive there."""

    generation: int
    version: int
    token: Token
    member: Member
    old_id: str
    old_leader: str | None
    old: tuple[float, float, Protocols, str, str]


class GroupCore:
    """The fields of a group and what every part of the machine does with them.

    Attributes:
        group_id: its name.
        state: what it is doing; changes through :meth:`_transition` only.
        generation: counts rebalances.
        members: who is in it.
        since: when it entered its state, in seconds on the clock of `now`; None if nobody knows.
        fresh: whether no record of it is on its way into the log yet.
        subscriptions: what the members of the generation subscribed with, in the selected protocol.

    Args:
        group_id: its name.
        settings: of the coordinator.
        now: the time.
    """

    __slots__ = (
        "_began",
        "_check_at",
        "_held",
        "_initial_delay",
        "_initial_left",
        "_join_at",
        "_joined_at",
        "_newcomer",
        "_previous",
        "_settings",
        "_sync_at",
        "_ticket",
        "_tickets",
        "fresh",
        "generation",
        "group_id",
        "members",
        "since",
        "state",
        "subscriptions",
    )

    def __init__(self, group_id: str, settings: GroupSettings, now: float) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.generation = 0
        self.members = Membership()
        self.since: float | None = now
        self.fresh = True
        self.subscriptions: tuple[bytes, ...] = ()
        self._settings = settings
        self._previous = EMPTY
        #: When the join phase is over, when SyncGroups must have come, when somebody may be late; inf for never.
        self._join_at = self._sync_at = self._check_at = inf
        #: The initial delay that runs, what may still be added to it, and whether somebody came while it ran (rule 8).
        self._initial_delay = self._initial_left = 0.0
        self._newcomer = False
        self._began = self._joined_at = now
        self._ticket = 0
        self._tickets: dict[int, Assigning | Replacing | None] = {}
        #: Who held what in the last generation that was assigned, whoever of them is still here.
        self._held: tuple[tuple[Member, bytes], ...] = ()

    def die(self, now: float) -> None:
        """Deleted or expired."""
        if self.state is not DEAD:
            self._transition(DEAD, now)
        self._tickets.clear()
        self._join_at = self._sync_at = self._check_at = inf

    def _transition(self, to: GroupState, now: float) -> None:
        if to not in TRANSITIONS[self.state]:
            raise IllegalTransition(f"group {self.group_id} cannot go from {self.state.value} to {to.value}")
        self._previous, self.state, self.since = self.state, to, now

    def _note(self, kind: Kind, **data: Any) -> Note:
        return Note(kind, self.generation, data)

    def _persist(self, about: Assigning | Replacing | None, assignment: dict[str, bytes] | None = None) -> Persist:
        self._ticket += 1
        self._tickets[self._ticket] = about
        self.fresh = False
        value = group_value(self.members, self.generation, assignment)
        return Persist(self._ticket, value, self.since)

    def _expect(self, at: float) -> None:
        """Look after the members at `at` at the latest."""
        if at < self._check_at:
            self._check_at = at

    def _remove(self, member: Member, out: list[Effect], error: ErrorCode, keep_id: bool = False) -> None:
        """Take a member out; what it has parked is answered with `error`."""
        out.extend(self._answer(member, error, member.member_id if keep_id else ""))
        self.members.remove(member.member_id)

    def _answer(self, member: Member, error: ErrorCode, member_id: str) -> list[Reply]:
        replies = []
        token = self.members.park_join(member, None)
        if token is not None:
            replies.append(Reply(token, join_error(error, member_id)))
        if member.sync_token is not None:
            replies.append(Reply(member.sync_token, sync_error(error)))
            member.sync_token = None
        return replies

    def _answer_sync(self, member: Member, response: SyncGroupResponse, out: list[Effect], now: float) -> None:
        """Answer a parked SyncGroup; while it was parked the session did not run, so it starts again."""
        if member.sync_token is not None:
            out.append(Reply(member.sync_token, response))
            member.sync_token = None
            member.heard = now
            self._expect(now + member.session * SLOW)


def reason_of(text: str | None) -> str:
    """What a client gives as its reason, in Kafka's words if it gives none."""
    return text[:_MAX_REASON] if text else "not provided"
