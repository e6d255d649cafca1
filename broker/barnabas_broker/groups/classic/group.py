"""A group of the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup): the whole state machine. Pure.

Requests, results of appends and the passing of time go in; effects come out. `now` is seconds on a monotonic clock.
A rebalance runs through the states like this (:class:`~barnabas_broker.groups.classic.states.ClassicGroupState`)::

    Empty, Stable --_prepare_rebalance--> PreparingRebalance --_complete_join_phase--> CompletingRebalance
        --sync: the leader's assignment is appended--> persisted --_complete_sync_phase--> Stable

:meth:`ClassicGroup.heartbeat` and :meth:`ClassicGroup.check_commit`, which are as frequent as all other calls together,
have no effects: they return an error code.

Behaves like the classic groups of Kafka 4.x. Source: ``ClassicGroup`` and ``GroupMetadataManager`` (classicGroupJoin,
prepareRebalance, completeClassicGroupJoin, classicGroupSync, expirePendingSync, ...); KIP-134 (initial rebalance
delay), KIP-345 (static membership), KIP-394 (member ids), KIP-559 (protocol in SyncGroup), KIP-814 (skipAssignment).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Any, Final, Self

from barnabas_broker.coordinators.result import APPEND_ERRORS, IllegalTransition
from barnabas_broker.groups.classic.appends import (
    Join,
    Pending,
    PendingAppends,
    PendingAssignment,
    PendingDowngrade,
    PendingReplacement,
)
from barnabas_broker.groups.classic.delay import InitialDelay
from barnabas_broker.groups.classic.members import NONE, ClassicGroupMember, Members, Protocols, protocols_of
from barnabas_broker.groups.classic.record import empty_record, members_of, record_of
from barnabas_broker.groups.classic.states import TRANSITIONS, ClassicGroupState
from barnabas_broker.groups.effects import Caller, Effect, Persist, Reply, Token
from barnabas_broker.groups.embedded_protocol import read_assignment, read_subscription
from barnabas_broker.groups.errors import join_error, sync_error
from barnabas_broker.steps import Steps
from barnabas_explain.catalog import (
    NOT_PROVIDED,
    GroupEmpty,
    GroupEvent,
    JoinPhaseOver,
    JoinPhaseStuck,
    JoinRefused,
    LeaderChanged,
    LeaderRejoined,
    MemberEvent,
    MemberExpired,
    MemberIdGiven,
    MemberJoined,
    MemberLeft,
    MemberNotRejoined,
    MemberNotSynced,
    MemberRefused,
    MemberRejoined,
    MemberReplaced,
    MemberSlow,
    PersistFailed,
    RebalanceOver,
    RebalanceStarted,
    RejoinAwaited,
    SubscriptionChanged,
)
from barnabas_explain.members import Identified, LateMember, Member
from barnabas_protocol.coordinator_records import (
    CoordinatorRecord,
    GroupMetadataKey,
    GroupMetadataValue,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas_protocol.messages.leave_group import MemberIdentity
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas_protocol.subscriptions import CONSUMER, read_topics, subscribed_topics

EMPTY: Final = ClassicGroupState.EMPTY
PREPARING: Final = ClassicGroupState.PREPARING_REBALANCE
COMPLETING: Final = ClassicGroupState.COMPLETING_REBALANCE
STABLE: Final = ClassicGroupState.STABLE
DEAD: Final = ClassicGroupState.DEAD

#: A member is reported as slow when it has been silent for this part of its session timeout.
SLOW: Final = 0.6
#: Seconds beyond the end of a session: more than what a float rounds.
_MOMENT: Final = 0.001
#: Seconds between two checks of pending members: a flood of them must not cost a check each.
_PENDING_CHECK_SECONDS: Final = 0.5
#: Characters of a client's reason that are kept, as in Kafka's client.
_MAX_REASON: Final = 255
#: Assignors that an event names.
_MAX_NAMES: Final = 8
#: A join phase that has lasted for so many seconds is reported, with so many of the members that it waits for.
_AWAITED_SECONDS: Final = 10.0
_MOST_AWAITED: Final = 5
#: Seconds between two events about clients that have no assignor in common with the members.
_REFUSAL_SECONDS: Final = 60.0
#: Bytes of a member's subscription and assignment that are read when it is replaced.
_LONGEST_READ: Final = 64 * 1024
#: Members of a downgraded group that get their assignment in one step.
_MEMBERS_PER_STEP: Final = 100


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings that all groups of a coordinator have in common.

    Attributes:
        new_id: makes the part of a new member id that follows the dash.
        initial_delay: seconds that an empty group waits for more members (``group.initial.rebalance.delay.ms``).
        max_size: maximum number of members (``group.max.size``).
        new_member_timeout: seconds after which a new member's deferred JoinGroup expires.
    """

    new_id: Callable[[], str]
    initial_delay: float = 3.0
    max_size: int = 2**31 - 1
    new_member_timeout: float = 300.0


class ClassicGroup:
    """The state machine of one classic group.

    Attributes:
        group_id: the group's name.
        state: its state; :meth:`_transition` changes it.
        generation: the number of its rebalances so far.
        members: its members.
        state_since: when the group entered its state, in seconds on the clock of `now`; None if unknown.
        recorded: whether a record of the group is in the log, or is being appended.
        subscriptions: the metadata of each member of the generation for the selected protocol.

    Args:
        group_id: the group's name.
        settings: of the coordinator.
        now: the time.
    """

    __slots__ = (
        "_appends",
        "_awaited_at",
        "_check_at",
        "_delay",
        "_join_phase_ends",
        "_joined_at",
        "_last_assignments",
        "_rebalance_started",
        "_report_refusal_at",
        "_settings",
        "_subscribed",
        "_sync_phase_ends",
        "generation",
        "group_id",
        "members",
        "recorded",
        "state",
        "state_since",
        "subscriptions",
    )

    def __init__(self, group_id: str, settings: GroupSettings, now: float) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.generation = 0
        self.members = Members()
        self.state_since: float | None = now
        self.recorded = False
        self.subscriptions: tuple[bytes, ...] = ()
        self._settings = settings
        #: The deadlines: of the join phase, of the sync phase, of the next check of the members, and of the report for
        #: whom a join phase waits. inf: none.
        self._join_phase_ends = self._sync_phase_ends = self._check_at = self._awaited_at = inf
        #: The initial rebalance delay of a group that was Empty before it prepared the current rebalance.
        self._delay: InitialDelay | None = None
        #: When the current rebalance started, and when its join phase ended.
        self._rebalance_started = self._joined_at = now
        self._appends = PendingAppends()
        #: The assignments of the last Stable generation, of members that have left since, too.
        self._last_assignments: tuple[tuple[ClassicGroupMember, bytes], ...] = ()
        #: When it is recorded again that a client has no assignor in common with the members.
        self._report_refusal_at = -inf
        #: What :attr:`subscribed_topics` was computed from, and its value.
        self._subscribed: tuple[tuple[bytes, ...], str | None, frozenset[str] | None] = ((), None, None)

    def _transition(self, state: ClassicGroupState, now: float) -> None:
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransition(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.state, self.state_since = state, now

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return self.state is EMPTY

    @property
    def is_dead(self) -> bool:
        """Whether the group was deleted, has expired, or is coordinated by another broker."""
        return self.state is DEAD

    @property
    def is_unused(self) -> bool:
        """Whether the group may be deleted: it has neither members nor pending members."""
        return self.state is EMPTY and not self.members.pending

    @property
    def protocol_type(self) -> str | None:
        """The protocol type of its members; None if it never had any."""
        return self.members.protocol_type

    def forget_pending(self) -> None:
        """Forget the members that have an id and have not joined."""
        self.members.pending.clear()

    @property
    def leftover(self) -> Sequence[CoordinatorRecord]:
        """The records that delete the group of the other protocol that it was, if they are not in the log."""
        return self._appends.preceding

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete the group; with those that delete the group of the other protocol that it was."""
        return [*self.leftover, (GroupMetadataKey(group=self.group_id), None)]

    # JoinGroup

    def join(self, request: JoinGroupRequest, version: int, caller: Caller, token: Token, now: float) -> list[Effect]:
        """JoinGroup: responds at once, or defers the response until the join phase is over.

        Args:
            request: the request.
            version: its version.
            caller: the client that sends it.
            token: identifies it in the :class:`~barnabas_broker.groups.effects.Reply`.
            now: the time.
        """
        out: list[Effect] = []
        member_id = request.member_id
        members = self.members
        if self.state is DEAD:
            return [Reply(token, join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))]
        if not self._has_room_for(member_id):
            refused = members.remove(member_id)
            out.append(Reply(token, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED, "")))
            if refused is not None:
                max_size = self._settings.max_size
                out.append(MemberRefused(generation=self.generation, member=refused.identity(), max_size=max_size))
                self._complete_if_all_joined(out, now)
        elif not members.supports(request.protocol_type, request.protocols, self.state is EMPTY):
            out.append(Reply(token, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)))
            self._report_refusal(request, caller, out, now)
        elif not member_id:
            self._join_without_id(request, version, caller, token, out, now)
        elif member_id in members.pending and request.group_instance_id is None:
            self._add_member(request, version, caller, member_id, token, out, now)
        elif error := members.validate(member_id, request.group_instance_id):
            out.append(Reply(token, join_error(error, member_id)))
        else:
            self._rejoin(request, version, members.by_id[member_id], token, out, now)
        if not self.recorded and (len(members) or members.pending):
            # A new group is recorded at once, so that it exists for the next coordinator, too.
            out.append(self._persist(None))
        return out

    def _report_refusal(self, request: JoinGroupRequest, caller: Caller, out: list[Effect], now: float) -> None:
        """A client has no assignor in common with the members: clients try again all the time."""
        if self.state is EMPTY or now < self._report_refusal_at:
            return
        self._report_refusal_at = now + _REFUSAL_SECONDS
        other_type = request.protocol_type if request.protocol_type != self.members.protocol_type else None
        out.append(
            JoinRefused(
                generation=self.generation,
                member=Member(request.member_id, caller.client_id, caller.host, request.group_instance_id),
                protocol_type=None if other_type is None else other_type[:_MAX_REASON],
                offered=first_names(protocol.name for protocol in request.protocols),
                supported=first_names(self.members.supported_protocols()),
            )
        )

    def _has_room_for(self, member_id: str) -> bool:
        """Whether ``group.max.size`` allows this JoinGroup. Pending members do not count."""
        members, max_size = self.members, self._settings.max_size
        if self.state is EMPTY:
            return True
        member = members.by_id.get(member_id)
        if self.state is PREPARING:
            # While members rejoin, places are taken in the order of their JoinGroups.
            return (member is not None and member.join_token is not None) or members.joining < max_size
        return member is not None or len(members) < max_size

    def _join_without_id(
        self, request: JoinGroupRequest, version: int, caller: Caller, token: Token, out: list[Effect], now: float
    ) -> None:
        instance_id = request.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{self._settings.new_id()}"
            if instance_id in self.members.static:
                self._replace_static_member(request, version, caller, member_id, token, out, now)
            else:
                self._add_member(request, version, caller, member_id, token, out, now)
            return
        member_id = f"{caller.client_id}-{self._settings.new_id()}"
        if version < 4:
            self._add_member(request, version, caller, member_id, token, out, now)
            return
        # From version 4 on the client gets its member id first and joins with it (KIP-394).
        expires = now + request.session_timeout_ms / 1000
        self.members.add_pending(member_id, expires)
        self._check_members_by(expires)
        out.append(Reply(token, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)))
        out.append(MemberIdGiven(generation=self.generation, member=Member(member_id, caller.client_id, caller.host)))

    def _add_member(
        self,
        request: JoinGroupRequest,
        version: int,
        caller: Caller,
        member_id: str,
        token: Token,
        out: list[Effect],
        now: float,
    ) -> None:
        session_timeout, rebalance_timeout = _timeouts(request, version)
        instance_id = request.group_instance_id
        protocols = protocols_of(request.protocols)
        member = ClassicGroupMember(
            member_id, instance_id, caller.client_id, caller.host, session_timeout, rebalance_timeout, protocols, now
        )
        member.is_new = True
        member.join_token = token
        # The member cannot heartbeat before it knows its id, so the session timeout does not apply yet.
        member.timeout = self._settings.new_member_timeout
        self._check_members_by(now + member.timeout)
        if self.state is PREPARING and self._delay is not None:
            self._delay.joined = True
        self.members.add(member, request.protocol_type)
        reason = reason_of(request.reason)
        out.append(
            MemberJoined(
                generation=self.generation,
                member=member.identity(),
                client_reason=reason,
                session_ms=session_timeout * 1000,
                rebalance_timeout_ms=rebalance_timeout * 1000,
            )
        )
        self._prepare_or_complete(
            f"Adding new member {member_id} with group instance id {_or_null(instance_id)}; client reason: {reason}",
            MemberJoined,
            member,
            out,
            now,
        )

    def _rejoin(
        self,
        request: JoinGroupRequest,
        version: int,
        member: ClassicGroupMember,
        token: Token,
        out: list[Effect],
        now: float,
    ) -> None:
        """JoinGroup of a present member.

        If nothing has changed, a follower gets the current generation, and so does the leader until the group is
        Stable. A leader that rejoins a Stable group asks for a new assignment.
        """
        protocols = protocols_of(request.protocols)
        changed = protocols != member.protocols
        leads = self.members.leader == member.member_id
        if self.state is EMPTY:
            out.append(Reply(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)))
            return
        if not changed and (self.state is COMPLETING or (self.state is STABLE and not leads)):
            out.append(Reply(token, self._join_response(member)))
            return
        state = self.state.value
        client_reason = reason_of(request.reason)
        cause: type[MemberEvent] = self._cause_of_change(member, protocols) if changed else LeaderRejoined
        if self.state is PREPARING:
            reason = f"Member {member.member_id} is joining group during {state}"
        elif leads and self.state is STABLE:
            reason = f"Leader {member.member_id} re-joining group during {state}"
        else:
            reason = f"Updating metadata for member {member.member_id} during {state}"
        if cause is SubscriptionChanged:
            old, new = member.metadata(self.members.protocol), dict(protocols).get(self.members.protocol or "")
            out.append(
                SubscriptionChanged(
                    generation=self.generation,
                    member=member.identity(),
                    client_reason=client_reason,
                    old=old,
                    new=new,
                )
            )
        elif self.state is not PREPARING:
            if leads:
                cause = LeaderRejoined
            out.append(cause(generation=self.generation, member=member.identity(), client_reason=client_reason))
        self._update_member(request, version, member, protocols, token, out, now)
        self._prepare_or_complete(f"{reason}; client reason: {client_reason}", cause, member, out, now)

    def _cause_of_change(self, member: ClassicGroupMember, protocols: Protocols) -> type[MemberEvent]:
        """Whether new metadata means other topics, or only other owned partitions (KIP-429)."""
        if self.members.protocol_type == CONSUMER:
            new = dict(protocols)
            for name, metadata in member.protocols:
                topics = read_topics(metadata)
                if topics is not None and sorted(topics) == sorted(read_topics(new.get(name, b"")) or ()):
                    return MemberRejoined
        return SubscriptionChanged

    def _update_member(
        self,
        request: JoinGroupRequest,
        version: int,
        member: ClassicGroupMember,
        protocols: Protocols,
        token: Token,
        out: list[Effect],
        now: float,
    ) -> None:
        """Update a member from its JoinGroup, and defer the response."""
        self.members.set_protocols(member, protocols)
        member.session_timeout, member.rebalance_timeout = _timeouts(request, version)
        member.joined_at = now
        if not member.is_new:
            member.timeout = member.session_timeout
        earlier = self.members.set_join_token(member, token)
        if earlier is not None:
            # The client retries on another connection: the request on the old one must not stay without a response.
            out.append(Reply(earlier, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))

    def _replace_static_member(
        self,
        request: JoinGroupRequest,
        version: int,
        caller: Caller,
        new_id: str,
        token: Token,
        out: list[Effect],
        now: float,
    ) -> None:
        """A static member rejoins without its member id: it gets a new one, and the old one is fenced (KIP-345).

        In a Stable group whose protocol does not change this causes no rebalance: the record is appended first.
        """
        members = self.members
        old = members.by_id[members.static[request.group_instance_id or ""]]
        session_timeout, rebalance_timeout = _timeouts(request, version)
        protocols = protocols_of(request.protocols)
        new = ClassicGroupMember(
            new_id, old.instance_id, caller.client_id, caller.host, session_timeout, rebalance_timeout, protocols, now
        )
        new.assignment = old.assignment
        client_reason = reason_of(request.reason)
        if self.state is STABLE:
            join = Join(request, version, caller, token)
            pending = self._appends.of(self.generation, PendingReplacement)
            if pending is not None:
                if pending.joins is None:
                    out.append(Reply(token, join_error(APPEND_ERRORS[ErrorCode.REQUEST_TIMED_OUT], "")))
                else:
                    pending.joins.append(join)
                return
            if _has_to_revoke(old, members.protocol):
                reason = (
                    f"Static member {new_id} with instance id {old.instance_id} joined before it had revoked what"
                    f" others are to get; client reason: {client_reason}"
                )
            elif members.select_protocol(old, protocols) == members.protocol:
                replacement = PendingReplacement(self.generation, old.member_id, new, [join])
                assignments = {each.member_id: each.assignment for each in members}
                out.append(self._persist(replacement, assignments, new, caller))
                return
            else:
                reason = (
                    f"Group's selectedProtocol will change because static member {new_id} with instance id"
                    f" {old.instance_id} joined with change of protocol; client reason: {client_reason}"
                )
        else:
            # In CompletingRebalance the leader may be assigning to the old member id, which does not exist any more.
            reason = (
                f"Updating metadata for static member {new_id} with instance id {old.instance_id};"
                f" client reason: {client_reason}"
            )
        self._take_place(old, new, client_reason, out, now)
        members.set_join_token(new, token)
        self._prepare_or_complete(reason, MemberReplaced, new, out, now)

    def _take_place(
        self, old: ClassicGroupMember, new: ClassicGroupMember, client_reason: str, out: list[Effect], now: float
    ) -> None:
        """A static member gets a new member id. It keeps its assignment, its position and its role."""
        out.extend(self._fail_deferred(old, ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        self.members.replace(old, new)
        self._last_assignments = tuple(
            (new if member is old else member, assignment) for member, assignment in self._last_assignments
        )
        new.last_seen = now
        self._check_members_by(now + new.session_timeout * SLOW)
        out.append(
            MemberReplaced(
                generation=self.generation,
                member=new.identity(),
                old_member_id=old.member_id,
                client_reason=client_reason,
                session_ms=new.session_timeout * 1000,
                rebalance_timeout_ms=new.rebalance_timeout * 1000,
                owned=new.assignment,
            )
        )

    def _replacement_persisted(
        self, pending: PendingReplacement, error: ErrorCode, out: list[Effect], now: float
    ) -> None:
        """A static member's new id is in the log, or could not be appended."""
        joins = pending.joins or []
        if error != ErrorCode.NONE:
            out += [Reply(join.token, join_error(error, "")) for join in joins]
            return
        old = self.members.by_id.get(pending.old_id)
        if self.state is STABLE and pending.generation == self.generation and old is not None:
            new = pending.member
            leader = self.members.leader
            self._take_place(old, new, reason_of(joins[0].request.reason) if joins else NOT_PROVIDED, out, now)
            if joins:
                response = self._join_response(new)
                if joins[0].version < 9:
                    # It must not believe that it leads: it would compute an assignment although no member rejoins.
                    response.leader = leader or ""
                    response.members = []
                else:
                    response.skip_assignment = self.members.leader == new.member_id
                out.append(Reply(joins[0].token, response))
                joins = joins[1:]
        # The others come back now; so does the first one, if a rebalance has begun, or it has left meanwhile.
        for join in joins:
            out += self.join(*join, now)

    def _join_response(self, member: ClassicGroupMember) -> JoinGroupResponse:
        """A successful JoinGroup response: the current generation. Only the leader's lists the members."""
        members = self.members
        listed = []
        if members.leader == member.member_id:
            listed = [
                JoinGroupResponseMember(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    metadata=each.metadata(members.protocol),
                )
                for each in members
            ]
        return JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=self.generation,
            protocol_type=members.protocol_type,
            protocol_name=members.protocol,
            leader=members.leader or "",
            member_id=member.member_id,
            members=listed,
        )

    # The join phase: PreparingRebalance

    def rebalance(
        self, reason: str, cause: type[GroupEvent], now: float, by: Iterable[Identified] = (), **data: Any
    ) -> list[Effect]:
        """Start a rebalance that no member of it asked for; does nothing if the state does not allow it."""
        out: list[Effect] = []
        if self.state in (STABLE, COMPLETING):
            self._prepare_rebalance(reason, cause, by, out, now, **data)
        return out

    def _prepare_or_complete(
        self, reason: str, cause: type[GroupEvent], member: ClassicGroupMember, out: list[Effect], now: float
    ) -> None:
        """A member has joined: start a rebalance, or end the join phase if it is the last one."""
        if self.state is PREPARING:
            self._complete_if_all_joined(out, now)
        else:
            self._prepare_rebalance(reason, cause, [member], out, now)

    def _prepare_rebalance(
        self,
        reason: str,
        cause: type[GroupEvent],
        by: Iterable[Identified],
        out: list[Effect],
        now: float,
    ) -> None:
        """Start a rebalance: the group becomes PreparingRebalance."""
        members = self.members
        if self.state is COMPLETING:
            for member in members:
                member.assignment = b""
                if member.sync_token is not None:
                    member.told_at = now
                self._respond_to_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS), out, now)
        members.unsynced.clear()
        self._sync_phase_ends = inf
        was_empty = self.state is EMPTY
        self._transition(PREPARING, now)
        self._rebalance_started = now
        self._delay = InitialDelay(self._settings.initial_delay, members.rebalance_timeout) if was_empty else None
        out.append(
            RebalanceStarted(
                generation=self.generation,
                reason=reason,
                cause=cause.type,
                by=tuple(member.identity() for member in by),
                delay_ms=None if self._delay is None else self._delay.seconds * 1000,
            )
        )
        if self._delay is not None:
            self._join_phase_ends = now + self._delay.seconds
            return
        if members.all_joined:
            self._complete_join_phase(out, now)
        else:
            self._join_phase_ends = now + members.rebalance_timeout
            self._awaited_at = now + _AWAITED_SECONDS

    def _report_awaited(self, out: list[Effect], now: float) -> None:
        """Report the members that have not rejoined, though the join phase has lasted for long."""
        self._awaited_at = inf
        if self.state is not PREPARING:
            return
        awaited = [each for each in self.members if each.join_token is None and not each.is_new]
        started, others = self._rebalance_started, len(self.members) - len(awaited)
        for member in awaited[:_MOST_AWAITED]:
            told = member.told_at - started
            out.append(
                RejoinAwaited(
                    generation=self.generation,
                    member=member.identity(),
                    waited_ms=(now - started) * 1000,
                    told_ms=told * 1000 if told >= 0 else None,
                    heard_ago_ms=(now - member.last_seen) * 1000,
                    heartbeat_ago_ms=_milliseconds(now - member.heartbeat_at),
                    heartbeat_ms=_milliseconds(member.heartbeat_gap),
                    rebalance_timeout_ms=self.members.rebalance_timeout * 1000,
                    others=others,
                    protocol=self.members.protocol,
                )
            )

    def _complete_if_all_joined(self, out: list[Effect], now: float) -> None:
        """End the join phase if all members have joined. The initial rebalance delay never ends early."""
        if self.state is PREPARING and self._delay is None and self.members.all_joined:
            self._complete_join_phase(out, now)

    def _join_phase_timed_out(self, out: list[Effect], now: float) -> None:
        """End the join phase; but extend the initial rebalance delay if a member has joined during it."""
        if self._delay is not None and self._delay.extend():
            self._join_phase_ends = now + self._delay.seconds
        else:
            self._complete_join_phase(out, now)

    def _complete_join_phase(self, out: list[Effect], now: float) -> None:
        """End the join phase: the members that have joined form the next generation.

        Dynamic members that have not joined are removed, static ones stay. The group becomes CompletingRebalance, or
        Empty if it has no members left.
        """
        members = self.members
        self._join_phase_ends = self._awaited_at = inf
        waited = now - self._rebalance_started
        for member in [each for each in members if each.join_token is None and each.instance_id is None]:
            members.remove(member.member_id)
            out.append(
                MemberNotRejoined(
                    generation=self.generation,
                    member=member.identity(),
                    owned=member.assignment,
                    waited_ms=waited * 1000,
                    heard_ago_ms=(now - member.last_seen) * 1000,
                )
            )
        old_leader = members.leader
        if members.by_id and not members.elect_joined_leader():
            out.append(JoinPhaseStuck(generation=self.generation, waited_ms=waited * 1000, members=len(members)))
            self._join_phase_ends = now + members.rebalance_timeout
            return
        self.generation += 1
        members.unsynced.clear()
        if not members.by_id:
            members.protocol = None
            self.subscriptions = ()
            self._last_assignments = ()
            self._transition(EMPTY, now)
            out.append(GroupEmpty(generation=self.generation))
            out.append(self._persist(None))
            return
        if members.leader is not None and old_leader not in (members.leader, None):
            out.append(LeaderChanged(generation=self.generation, old=old_leader, new=members.leader))
        members.protocol = members.select_protocol()
        self.subscriptions = tuple(member.metadata(members.protocol) for member in members)
        self._transition(COMPLETING, now)
        self._joined_at = now
        self._sync_phase_ends = now + members.rebalance_timeout
        for member in members:
            token = members.set_join_token(member, None)
            if token is not None:
                out.append(Reply(token, self._join_response(member)))
            member.is_new = False
            member.timeout = member.session_timeout
            member.last_seen = member.heartbeat_at = now
            members.unsynced[member.member_id] = None
            self._check_members_by(now + member.session_timeout * SLOW)
        started = self._rebalance_started
        late = [
            LateMember(each.identity(), (each.joined_at - started) * 1000, *_told(each, started))
            for each in members
            if each.joined_at > started
        ]
        out.append(
            JoinPhaseOver(
                generation=self.generation,
                took_ms=waited * 1000,
                members=len(members),
                protocol=members.protocol,
                leader=members.by_id[members.leader].identity() if members.leader else None,
                joined_after=tuple(sorted(late, key=lambda each: -each.after_ms)),
            )
        )

    # SyncGroup and the sync phase: CompletingRebalance

    def sync(self, request: SyncGroupRequest, token: Token, now: float) -> list[Effect]:
        """SyncGroup: responds at once, or defers the response until the leader's assignment is in the log."""
        members = self.members
        if error := self._validate_sync(request):
            if error is ErrorCode.REBALANCE_IN_PROGRESS:
                self._tell(members.by_id[request.member_id], now)
            return [Reply(token, sync_error(error))]
        out: list[Effect] = []
        member = members.by_id[request.member_id]
        members.unsynced.pop(member.member_id, None)
        if not members.unsynced:
            self._sync_phase_ends = inf
        if self.state is STABLE:
            out.append(Reply(token, self._sync_response(member)))
            return out
        if member.sync_token is not None:
            # The client retries on another connection: the request on the old one must not stay without a response.
            out.append(Reply(member.sync_token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS)))
            member.sync_token = None
        pending = self._appends.of(self.generation, PendingAssignment)
        if pending is not None and pending.delayed:
            out.append(Reply(token, sync_error(APPEND_ERRORS[ErrorCode.REQUEST_TIMED_OUT])))
            return out
        member.sync_token = token
        if members.leader == member.member_id and pending is None:
            assignments = self._assignments_of(request.assignments)
            out.append(self._persist(PendingAssignment(self.generation, assignments), assignments))
        return out

    def _validate_sync(self, request: SyncGroupRequest) -> ErrorCode:
        """The error of a SyncGroup; NONE if it is valid."""
        members = self.members
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := members.validate(request.member_id, request.group_instance_id):
            return error
        if request.generation_id != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        for sent, selected in (
            (request.protocol_type, members.protocol_type),
            (request.protocol_name, members.protocol),
        ):
            if sent is not None and selected is not None and sent != selected:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def _assignments_of(self, assigned: list[SyncGroupRequestAssignment]) -> dict[str, bytes]:
        """The assignment of each member: b"" for those that the leader left out. Unknown member ids are dropped."""
        by_id = {each.member_id: each.assignment for each in assigned}
        return {member.member_id: bytes(by_id.get(member.member_id, b"")) for member in self.members}

    def _complete_sync_phase(self, pending: PendingAssignment, error: ErrorCode, out: list[Effect], now: float) -> None:
        """The leader's assignment is in the log: the group becomes Stable, and the deferred SyncGroups get responses.

        If the assignment could not be appended, they get the error and the group rebalances.
        """
        members = self.members
        if error != ErrorCode.NONE:
            for member in members:
                self._respond_to_sync(member, sync_error(error), out, now)
            leader = [members.by_id[members.leader]] if members.leader else []
            reason = f"Error {error.name} when storing group assignment during SyncGroup (member: {members.leader})."
            self._prepare_rebalance(reason, PersistFailed, leader, out, now)
            return
        before = self._last_assignments
        for member in members:
            member.assignment = pending.assignments.get(member.member_id, b"")
            if member.sync_token is not None:
                self._respond_to_sync(member, self._sync_response(member), out, now)
        after = self._last_assignments = tuple((member, member.assignment) for member in members)
        sync_took = now - self._joined_at
        self._transition(STABLE, now)
        out.append(
            RebalanceOver(
                generation=self.generation,
                members=len(members),
                protocol_type=members.protocol_type,
                protocol=members.protocol,
                join_took_ms=(self._joined_at - self._rebalance_started) * 1000,
                sync_took_ms=sync_took * 1000,
                before=before,
                after=after,
            )
        )

    def _sync_phase_timed_out(self, out: list[Effect], now: float) -> None:
        """Remove the members that have not sent a SyncGroup within the rebalance timeout, and rebalance."""
        self._sync_phase_ends = inf
        missing = [self.members.by_id[member_id] for member_id in sorted(self.members.unsynced)]
        for member in missing:
            self.members.remove(member.member_id)
            out.append(
                MemberNotSynced(
                    generation=self.generation,
                    member=member.identity(),
                    owned=member.assignment,
                    waited_ms=(now - self._joined_at) * 1000,
                    heard_ago_ms=(now - member.last_seen) * 1000,
                )
            )
        if missing:
            ids = ", ".join(member.member_id for member in missing)
            reason = f"Removing [{ids}] on pending sync request expiration"
            self._prepare_rebalance(reason, MemberNotSynced, missing, out, now)

    def _respond_to_sync(
        self, member: ClassicGroupMember, response: SyncGroupResponse, out: list[Effect], now: float
    ) -> None:
        """Respond to a deferred SyncGroup. Sessions do not run while a response is deferred: this one starts again."""
        if member.sync_token is not None:
            out.append(Reply(member.sync_token, response))
            member.sync_token = None
            member.last_seen = now
            self._check_members_by(now + member.session_timeout * SLOW)

    def _sync_response(self, member: ClassicGroupMember) -> SyncGroupResponse:
        """A successful SyncGroup response: the member's assignment."""
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=self.members.protocol_type,
            protocol_name=self.members.protocol,
            assignment=member.assignment,
        )

    # Heartbeat, OffsetCommit and TxnOffsetCommit

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        """Heartbeat: extends the session; REBALANCE_IN_PROGRESS asks the member to rejoin.

        It moves no deadline: :meth:`tick` looks at `last_seen` when the session would be over.
        """
        if instance_id is None and self.state is STABLE and generation == self.generation:
            member = self.members.by_id.get(member_id)
            if member is not None:
                # As `beats`, without the call: most heartbeats are these.
                member.heartbeat_gap = now - member.heartbeat_at
                member.last_seen = member.heartbeat_at = now
                return NONE
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := self.members.validate(member_id, instance_id):
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        member = self.members.by_id[member_id]
        member.beats(now)
        if self.state is not PREPARING:
            return NONE
        self._tell(member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _tell(self, member: ClassicGroupMember, now: float) -> None:
        """A response asks a member to rejoin."""
        if member.told_at < self._rebalance_started:
            member.told_at = now

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        """The error of an OffsetCommit; NONE if it is allowed. A commit by a member extends its session.

        A negative generation is that of a client without membership: an administrator or a consumer with manual
        assignment. It may commit while the group is Empty.
        """
        state = self.state
        if state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0:
            if state is EMPTY:
                return NONE
            if not member_id and instance_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        if error := self.members.validate(member_id, instance_id):
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if state is COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.members.by_id[member_id].last_seen = now
        return NONE

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """The error of a TxnOffsetCommit; NONE if it is allowed.

        Members are checked if the request names one, which it can from version 3 on (KIP-447). The state of the group
        is not: a commit while members sync is accepted. It does not extend the member's session.
        """
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and (self.state is EMPTY or (not member_id and instance_id is None)):
            return NONE
        if error := self.members.validate(member_id, instance_id):
            return error
        return NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    # What the group's committed offsets depend on

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members of the generation subscribe to; None if unknown."""
        subscriptions, protocol_type = self.subscriptions, self.members.protocol_type
        if self._subscribed[0] is not subscriptions or self._subscribed[1] != protocol_type:
            self._subscribed = (subscriptions, protocol_type, subscribed_topics(protocol_type, subscriptions))
        return self._subscribed[2]

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to `topic`, or may do so: its offsets must not be removed."""
        topics = self.subscribed_topics
        return topic in topics if topics is not None else self.members.protocol_type == CONSUMER

    @property
    def offsets_may_expire(self) -> bool:
        """Whether offsets may expire now: not during a rebalance, nor if the subscribed topics are unknown."""
        if self.members.protocol_type is None or self.state is EMPTY:
            return True
        return self.state is STABLE and self.subscribed_topics is not None

    @property
    def empty_since(self) -> float | None:
        """When a group that had members became Empty; None if it is not Empty, never had members, or unknown."""
        return self.state_since if self.state is EMPTY and self.members.protocol_type is not None else None

    # LeaveGroup, and members that are removed

    def leave(self, identities: list[MemberIdentity], now: float) -> tuple[list[ErrorCode], list[Effect]]:
        """LeaveGroup: each leaving member gets its own result.

        Returns:
            An error code for each identity, and the effects.
        """
        out: list[Effect] = []
        if self.state is DEAD:
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(identities), out
        codes = []
        left: list[ClassicGroupMember] = []
        for identity in identities:
            code, member = self._leave_one(identity, out)
            codes.append(code)
            if member is not None:
                left.append(member)
        if left and self.state in (STABLE, COMPLETING):
            ids = ", ".join(member.member_id for member in left)
            reason = f"explicit `LeaveGroup` request for ({ids}) members."
            self._prepare_rebalance(reason, MemberLeft, left, out, now)
        elif any(code == ErrorCode.NONE for code in codes):
            self._complete_if_all_joined(out, now)
        return codes, out

    def _leave_one(self, identity: MemberIdentity, out: list[Effect]) -> tuple[ErrorCode, ClassicGroupMember | None]:
        """Remove one leaving member: its error code, and the member unless it was only a pending one."""
        members = self.members
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id and instance_id is not None and instance_id in members.static:
            member_id = members.static[instance_id]  # An administrator names only the instance.
        elif member_id in members.pending:
            members.remove(member_id)
            return ErrorCode.NONE, None
        if error := members.validate(member_id, instance_id):
            return error, None
        member = members.by_id[member_id]
        self._remove_member(member, out, ErrorCode.UNKNOWN_MEMBER_ID)
        reason = reason_of(identity.reason)
        owned = member.assignment
        out.append(MemberLeft(generation=self.generation, member=member.identity(), client_reason=reason, owned=owned))
        return ErrorCode.NONE, member

    def _remove_member(
        self, member: ClassicGroupMember, out: list[Effect], error: ErrorCode, keep_id: bool = False
    ) -> None:
        """Remove a member; its deferred requests fail with `error`."""
        out.extend(self._fail_deferred(member, error, member.member_id if keep_id else ""))
        self.members.remove(member.member_id)

    def _fail_deferred(self, member: ClassicGroupMember, error: ErrorCode, member_id: str) -> list[Reply]:
        """Respond with `error` to the member's deferred requests; `member_id` is that of the JoinGroup response."""
        replies = []
        token = self.members.set_join_token(member, None)
        if token is not None:
            replies.append(Reply(token, join_error(error, member_id)))
        if member.sync_token is not None:
            replies.append(Reply(member.sync_token, sync_error(error)))
            member.sync_token = None
        return replies

    # Time

    def next_deadline(self) -> float:
        """The earliest time at which :meth:`tick` has something to do; inf for never. Heartbeats do not change it."""
        return min(
            self._join_phase_ends, self._sync_phase_ends, self._check_at, self._awaited_at, self._appends.again_at
        )

    def tick(self, now: float) -> list[Effect]:
        """Let time pass: phases end, members expire."""
        out: list[Effect] = []
        if now >= self._check_at:
            self._check_members(out, now)
        if now >= self._join_phase_ends:
            self._join_phase_timed_out(out, now)
        if now >= self._awaited_at:
            self._report_awaited(out, now)
        if now >= self._sync_phase_ends:
            self._sync_phase_timed_out(out, now)
        if now >= self._appends.again_at:
            self._appends.again_at = inf
            if self.state is EMPTY:
                out.append(self._persist(None))
        return out

    def expire(self, member_id: str, now: float) -> list[Effect]:
        """End the session of a member now, as if its heartbeats had stopped."""
        member = self.members.by_id[member_id]
        member.last_seen = now - member.timeout - _MOMENT
        self._check_members_by(now)
        return self.tick(now)

    def _check_members_by(self, at: float) -> None:
        """Check the members at `at` at the latest."""
        if at < self._check_at:
            self._check_at = at

    def _check_members(self, out: list[Effect], now: float) -> None:
        """Remove expired members and pending members, report slow ones, and set the time of the next check."""
        members = self.members
        self._check_at = inf
        expired_ids = [member_id for member_id, expires in members.pending.items() if expires <= now]
        for member_id in expired_ids:
            del members.pending[member_id]
        if members.pending:
            self._check_members_by(max(min(members.pending.values()), now + _PENDING_CHECK_SECONDS))
        expired = []
        for member in members:
            if member.awaits_response:
                continue
            deadline = member.last_seen + member.timeout
            if deadline <= now:
                expired.append(member)
                continue
            slow = member.last_seen + member.session_timeout * SLOW
            if member.is_new or member.reported_slow_at == member.last_seen:
                self._check_members_by(deadline)
            elif slow <= now:
                member.reported_slow_at = member.last_seen
                out.append(
                    MemberSlow(
                        generation=self.generation,
                        member=member.identity(),
                        heard_ago_ms=(now - member.last_seen) * 1000,
                        session_ms=member.session_timeout * 1000,
                    )
                )
                self._check_members_by(deadline)
            else:
                self._check_members_by(slow)
        for member in expired:
            # An earlier one may have ended a phase, which removes members or starts new sessions.
            alive = member.awaits_response or member.last_seen + member.timeout > now
            if members.by_id.get(member.member_id) is member and not alive:
                self._expire_member(member, out, now)
        if expired_ids:
            self._complete_if_all_joined(out, now)

    def _expire_member(self, member: ClassicGroupMember, out: list[Effect], now: float) -> None:
        self._remove_member(member, out, ErrorCode.UNKNOWN_MEMBER_ID)
        out.append(
            MemberExpired(
                generation=self.generation,
                member=member.identity(),
                owned=member.assignment,
                heard_ago_ms=(now - member.last_seen) * 1000,
                session_ms=member.timeout * 1000,
                is_new=member.is_new,
            )
        )
        if self.state in (STABLE, COMPLETING):
            reason = f"removing member {member.member_id} on heartbeat expiration."
            self._prepare_rebalance(reason, MemberExpired, [member], out, now)
        else:
            self._complete_if_all_joined(out, now)

    # The group's record

    def _persist(
        self,
        pending: Pending,
        assignments: dict[str, bytes] | None = None,
        returning: ClassicGroupMember | None = None,
        caller: Caller | None = None,
    ) -> Persist:
        """Append the group's record.

        Args:
            pending: what :meth:`persisted` completes.
            assignments: of the members; without them the record has no members.
            returning: a static member that takes its place.
            caller: the client that causes it.
        """
        self.recorded = True
        if assignments is None:
            value = empty_record(self.generation, self.members)
        else:
            value = record_of(self.generation, self.members, assignments, returning)
        record = GroupMetadataKey(group=self.group_id), value
        return self._appends.begin(pending, record, self.state_since, caller)

    def persisted(self, ticket: int, error: ErrorCode, now: float) -> list[Effect]:
        """The result of a :class:`~barnabas_broker.groups.effects.Persist`. Stale tickets are ignored."""
        out: list[Effect] = []
        if ticket not in self._appends:
            return out
        pending = self._appends.end(ticket, error)
        if error != ErrorCode.NONE:
            out.append(PersistFailed(generation=self.generation, error=error.name))
            error = APPEND_ERRORS.get(error, error)
        if isinstance(pending, PendingDowngrade):
            out += pending.replies if error == ErrorCode.NONE else pending.refused(error)
        elif isinstance(pending, PendingAssignment):
            if self.state is COMPLETING and pending.generation == self.generation:
                self._complete_sync_phase(pending, error, out, now)
        elif isinstance(pending, PendingReplacement):
            self._replacement_persisted(pending, error, out, now)
        elif error != ErrorCode.NONE and self.generation == 0 and self.state is not DEAD:
            # A new group could not be recorded: its members get the error, and it does not exist.
            for member in list(self.members):
                self._remove_member(member, out, error)
            self.mark_dead(now)
        elif error != ErrorCode.NONE and self.state is EMPTY:
            # Without it the next coordinator would find the members of an older generation. Any other state ends with a
            # record.
            self._appends.again(now)
        return out

    def persist_delayed(self, ticket: int, now: float) -> list[Effect]:
        """An append takes long: requests that wait for it are refused. It may still succeed, and nothing is undone.

        As in Kafka, the state changes when the log has decided.
        """
        out: list[Effect] = []
        error = APPEND_ERRORS[ErrorCode.REQUEST_TIMED_OUT]
        pending = self._appends.get(ticket)
        if isinstance(pending, PendingDowngrade):
            out += pending.refused(error)
            pending.replies.clear()
        elif isinstance(pending, PendingAssignment):
            pending.delayed = True
            if self.state is COMPLETING and pending.generation == self.generation:
                for member in self.members:
                    self._respond_to_sync(member, sync_error(error), out, now)
        elif isinstance(pending, PendingReplacement):
            out += pending.refused(error)
            pending.joins = None
        return out

    @classmethod
    def restore(
        cls,
        group_id: str,
        settings: GroupSettings,
        value: GroupMetadataValue,
        state_since: float | None,
        now: float,
        leftover: Sequence[CoordinatorRecord] = (),
    ) -> Self:
        """Make a group from its record: Stable with a full session for every member, or Empty.

        Args:
            group_id: from the record's key.
            settings: of the coordinator.
            value: the record.
            state_since: when the group entered its state; None if the record does not say.
            now: the time.
            leftover: records that are to be appended with its next one.
        """
        group = cls(group_id, settings, now)
        group.recorded = True
        group._appends.preceding = leftover
        group.generation = value.generation
        group.state_since = state_since
        members = group.members
        for member in members_of(value, now):
            members.add(member, value.protocol_type)
            group._check_members_by(now + member.session_timeout * SLOW)
        members.protocol_type = value.protocol_type or None
        members.protocol = value.protocol
        if value.leader in members.by_id:
            members.leader = value.leader
        group.state = STABLE if value.members else EMPTY
        group.subscriptions = tuple(member.metadata(value.protocol) for member in members)
        group._last_assignments = tuple((member, member.assignment) for member in members)
        return group

    # Migration from and to the consumer protocol

    @classmethod
    def downgrading(
        cls,
        group_id: str,
        settings: GroupSettings,
        generation: int,
        members: Iterable[ClassicGroupMember],
        assign: Callable[[ClassicGroupMember, str | None], bytes],
        tombstones: Sequence[CoordinatorRecord],
        replies: list[Reply],
        now: float,
    ) -> Steps[tuple[Self, list[Effect]]]:
        """Make a group of members that were in a group of the consumer protocol: Stable, each with an assignment.

        One step makes some of the assignments.

        Args:
            group_id: the group's name.
            settings: of the coordinator.
            generation: the group epoch.
            members: its members.
            assign: the assignment of a member, whose form depends on the protocol that is selected.
            tombstones: what deletes the other group; appended with the first record of this one.
            replies: the responses that wait for it.
            now: the time.

        Returns:
            The group, and the effects that record it.
        """
        group = cls(group_id, settings, now)
        group.generation = generation
        group._appends.preceding = tombstones
        for member in members:
            group.members.add(member, CONSUMER)
            group._check_members_by(now + member.session_timeout * SLOW)
        protocol = group.members.protocol = group.members.select_protocol()
        for number, member in enumerate(group.members, 1):
            member.assignment = assign(member, protocol)
            if number % _MEMBERS_PER_STEP == 0:
                yield
        group.state = STABLE
        group.subscriptions = tuple(member.metadata(protocol) for member in group.members)
        group._last_assignments = tuple((member, member.assignment) for member in group.members)
        assignments = {member.member_id: member.assignment for member in group.members}
        return group, [group._persist(PendingDowngrade(replies), assignments)]

    def upgraded(self, now: float) -> tuple[list[Effect], list[Reply]]:
        """It became a group of the consumer protocol: deferred requests get REBALANCE_IN_PROGRESS, this one is Dead.

        Returns:
            The effects, and the responses that still wait for records of this group.
        """
        out: list[Effect] = []
        waiting = self._appends.downgrades()
        out += self._appends.refused(PendingReplacement, ErrorCode.REBALANCE_IN_PROGRESS)
        for member in self.members:
            out += self._fail_deferred(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self.mark_dead(now)
        return out, waiting

    # The end

    def unload(self, now: float) -> list[Effect]:
        """Another broker becomes the coordinator: deferred requests fail with NOT_COORDINATOR, the group is Dead."""
        out: list[Effect] = []
        out += self._appends.refused(PendingDowngrade, ErrorCode.NOT_COORDINATOR)
        out += self._appends.refused(PendingReplacement, ErrorCode.NOT_COORDINATOR)
        for member in list(self.members):
            self._remove_member(member, out, ErrorCode.NOT_COORDINATOR, keep_id=True)
        self.mark_dead(now)
        return out

    def mark_dead(self, now: float) -> None:
        """The group was deleted or has expired."""
        if self.state is not DEAD:
            self._transition(DEAD, now)
        self._appends.clear()
        self._join_phase_ends = self._sync_phase_ends = self._check_at = self._awaited_at = inf


def _has_to_revoke(member: ClassicGroupMember, protocol: str | None) -> bool:
    """Whether a member owned partitions when it joined this generation that it has not got again.

    With a cooperative assignor others get them once it has revoked them, and has joined again. A static member that
    restarts before that does not do so: they would have no owner until the next rebalance, as in Kafka.
    """
    metadata = member.metadata(protocol)
    if len(metadata) + len(member.assignment) > _LONGEST_READ:
        return False
    try:
        owned = read_subscription(metadata).owned
        kept, _ = read_assignment(member.assignment)
    except ValueError:
        return False
    return any(partitions - kept.get(topic, set()) for topic, partitions in owned.items())


def reason_of(text: str | None) -> str:
    """The reason that a client gives, shortened; Kafka's words if it gives none (KIP-800)."""
    return text[:_MAX_REASON] if text else NOT_PROVIDED


def first_names(names: Iterable[str]) -> tuple[str, ...]:
    """The first of some names, shortened: clients choose them."""
    return tuple(name[:_MAX_REASON] for name in islice(names, _MAX_NAMES))


def _timeouts(request: JoinGroupRequest, version: int) -> tuple[float, float]:
    """Session timeout and rebalance timeout in seconds; version 0 has only the former."""
    session_timeout = request.session_timeout_ms / 1000
    return session_timeout, (max(request.rebalance_timeout_ms, 0) / 1000 if version >= 1 else session_timeout)


def _told(member: ClassicGroupMember, started: float) -> tuple[float | None, float | None]:
    """When a member that has rejoined was told to, in ms after the start of the rebalance, and how many ms were between
    its last two heartbeats; None if none of these told it."""
    if not started <= member.told_at <= member.joined_at:
        return None, None
    return (member.told_at - started) * 1000, _milliseconds(member.heartbeat_gap)


def _milliseconds(duration: float) -> float | None:
    """Seconds in milliseconds; None for inf."""
    return None if duration == inf else duration * 1000


def _or_null(text: str | None) -> str:
    return "null" if text is None else text
