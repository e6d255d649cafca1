"""One group of the classic protocol: a pure state machine.

Requests, the outcomes of appends and the passing of time go in; effects come out. `now` is seconds on a clock that
never goes back. The two calls that are as frequent as all others together, :meth:`Group.heartbeat` and
:meth:`Group.check_commit`, have no effects and return an error code.

Behaves as the classic side of Kafka's ``GroupMetadataManager`` (4.x). Rule numbers are those of the project's list of
31. The machine is cut by theme: fields and effects in :mod:`~barnabas_broker.groups.classic.core`, the course of a
rebalance in :mod:`~barnabas_broker.groups.classic.phases`, JoinGroup in :mod:`~barnabas_broker.groups.classic.joining`,
the rest here.
"""

from math import inf
from typing import Final, Self

from barnabas_broker.groups.classic.core import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    SLOW,
    STABLE,
    Assigning,
    Caller,
    GroupSettings,
    Replacing,
    reason_of,
)
from barnabas_broker.groups.classic.joining import Joining
from barnabas_broker.groups.classic.members import NONE, Member
from barnabas_broker.groups.classic.responses import own_share, shares, sync_error
from barnabas_broker.groups.effects import Effect, Kind, Reply, Token
from barnabas_protocol.coordinator_records import GroupMetadataValue
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.leave_group import MemberIdentity
from barnabas_protocol.messages.sync_group import SyncGroupRequest

__all__ = ["APPEND_ERRORS", "Caller", "Group", "GroupSettings"]

#: How the failure to append a group's record is told to its members.
APPEND_ERRORS: Final[dict[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Group(Joining):
    """The state machine of one group: its requests, its time, its appends."""

    __slots__ = ()

    @classmethod
    def restore(
        cls, group_id: str, settings: GroupSettings, value: GroupMetadataValue, since: float | None, now: float
    ) -> Self:
        """A group as its record says; every member gets a full session from `now` on.

        Args:
            group_id: from the record's key.
            settings: of the coordinator.
            value: the record.
            since: when the group entered its state, if the record says.
            now: the time.
        """
        group = cls(group_id, settings, now)
        group.fresh = False
        group.generation = value.generation
        group.since = since
        members = group.members
        for each in value.members:
            session = each.session_timeout / 1000
            rebalance = session if each.rebalance_timeout < 0 else each.rebalance_timeout / 1000
            spoken = ((value.protocol or "", bytes(each.subscription)),)
            member = Member(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                session,
                rebalance,
                spoken,
                now,
            )
            member.assignment = bytes(each.assignment)
            members.add(member, value.protocol_type)
            group._expect(now + session * SLOW)
        members.protocol_type = value.protocol_type or None
        members.protocol = value.protocol
        if value.leader in members.by_id:
            members.leader = value.leader
        group.state = group._previous = STABLE if value.members else EMPTY
        group.subscriptions = tuple(member.metadata(value.protocol) for member in members)
        group._held = tuple((member, member.assignment) for member in members)
        return group

    def sync(self, request: SyncGroupRequest, token: Token, now: float) -> list[Effect]:
        """SyncGroup: answered at once, or parked until the leader's assignment is in the log (C3)."""
        if error := self._sync_error(request):
            return [Reply(token, sync_error(error))]
        out: list[Effect] = []
        members = self.members
        member = members.by_id[request.member_id]
        members.unsynced.discard(member.member_id)
        if not members.unsynced:
            self._sync_at = inf
        if self.state is STABLE:
            out.append(Reply(token, own_share(members, member)))
            return out
        if member.sync_token is not None:
            # Sent again, over another connection: the earlier one must not hang there.
            out.append(Reply(member.sync_token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.sync_token = token
        if members.leader == member.member_id and not any(
            isinstance(each, Assigning) and each.generation == self.generation for each in self._tickets.values()
        ):
            assignment = shares(members, request.assignments)
            out.append(self._persist(Assigning(self.generation, assignment), assignment))
        return out

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        """Heartbeat: a sign of life, and how a member learns that a rebalance is on (rule 21).

        Deadlines are looked up when time passes, not moved here: this is all that a heartbeat costs.
        """
        if instance_id is None and self.state is STABLE and generation == self.generation:
            member = self.members.by_id.get(member_id)
            if member is not None:
                member.heard = now
                return NONE
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := self.members.check(member_id, instance_id):
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.members.by_id[member_id].heard = now
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else NONE

    def leave(self, identities: list[MemberIdentity], now: float) -> tuple[list[ErrorCode], list[Effect]]:
        """LeaveGroup: who leaves is told one by one (rule 27).

        Returns:
            An error code for each identity, and the effects.
        """
        out: list[Effect] = []
        if self.state is DEAD:
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(identities), out
        codes = []
        left: list[Member] = []
        for identity in identities:
            code, member = self._leave_one(identity, out)
            codes.append(code)
            if member is not None:
                left.append(member)
        if left and self.state in (STABLE, COMPLETING):
            who = ", ".join(member.member_id for member in left)
            self._prepare(f"explicit `LeaveGroup` request for ({who}) members.", Kind.MEMBER_LEFT, left, out, now)
        elif any(code == ErrorCode.NONE for code in codes):
            self._complete_if_joined(out, now)
        return codes, out

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        """Whether an OffsetCommit is allowed (rules 22 and 23). One by a member is a sign of life."""
        state = self.state
        if state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0:
            if state is EMPTY:
                return NONE
            if not member_id and instance_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        if error := self.members.check(member_id, instance_id):
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if state is COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.members.by_id[member_id].heard = now
        return NONE

    def next_deadline(self) -> float:
        """When :meth:`tick` has something to do at the earliest; inf for never. Heartbeats do not change it."""
        return min(self._join_at, self._sync_at, self._check_at)

    def tick(self, now: float) -> list[Effect]:
        """Let time pass: phases end, members expire."""
        out: list[Effect] = []
        if now >= self._check_at:
            self._look_after(out, now)
        if now >= self._join_at:
            self._join_phase_over(out, now)
        if now >= self._sync_at:
            self._sync_phase_over(out, now)
        return out

    def persisted(self, ticket: int, error: ErrorCode, now: float) -> list[Effect]:
        """Hear what became of a :class:`Persist`. A ticket of an older generation is ignored."""
        out: list[Effect] = []
        if ticket not in self._tickets:
            return out
        about = self._tickets.pop(ticket)
        if error != ErrorCode.NONE:
            out.append(self._note(Kind.PERSIST_FAILED, error=error.name))
            error = APPEND_ERRORS.get(error, error)
        if isinstance(about, Assigning):
            if self.state is COMPLETING and about.generation == self.generation:
                self._assigned(about, error, out, now)
        elif isinstance(about, Replacing):
            self._replaced(about, error, out, now)
        elif error != ErrorCode.NONE and self.generation == 0 and self.state is not DEAD:
            # It never came to exist: as if none of its members had joined.
            for member in list(self.members):
                self._remove(member, out, error)
            self.die(now)
        return out

    def unload(self, now: float) -> list[Effect]:
        """The coordinator moved away: everything that is parked is answered, nothing is accepted any more."""
        out: list[Effect] = []
        for member in list(self.members):
            self._remove(member, out, ErrorCode.NOT_COORDINATOR, keep_id=True)
        self.die(now)
        return out

    def _leave_one(self, identity: MemberIdentity, out: list[Effect]) -> tuple[ErrorCode, Member | None]:
        members = self.members
        member_id, instance_id = identity.member_id, identity.group_instance_id
        why = reason_of(identity.reason)
        if not member_id and instance_id is not None and instance_id in members.static:
            member_id = members.static[instance_id]  # An administrator names the instance only.
        elif member_id in members.pending:
            members.remove(member_id)
            return ErrorCode.NONE, None
        if error := members.check(member_id, instance_id):
            return error, None
        member = members.by_id[member_id]
        self._remove(member, out, ErrorCode.UNKNOWN_MEMBER_ID)
        out.append(self._note(Kind.MEMBER_LEFT, **member.who(), client_reason=why))
        return ErrorCode.NONE, member

    def _sync_error(self, request: SyncGroupRequest) -> ErrorCode:
        """Why a SyncGroup is refused; NONE if it is not."""
        members = self.members
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := members.check(request.member_id, request.group_instance_id):
            return error
        if request.generation_id != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        for said, known in ((request.protocol_type, members.protocol_type), (request.protocol_name, members.protocol)):
            if said is not None and known is not None and said != known:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE
