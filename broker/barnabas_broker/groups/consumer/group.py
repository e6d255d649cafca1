"""A group of the consumer protocol (ConsumerGroupHeartbeat, KIP-848): the whole state machine. Pure.

Requests, results of appends and of assignors, and the passing of time go in; effects come out. `now` is seconds on a
monotonic clock. What the group does in three steps, each with an epoch::

    members or topics change      -> the group epoch grows          (_bump)
    the group epoch is newer      -> the assignor computes a target  (_start_assignment ... assigned)
    a member is behind the target -> the member reconciles           (_reconcile), each at its own pace:
        it revokes what is not in its target and says so, then it gets the target's epoch and those partitions of it
        that no other member owns any more; the others follow as their owners revoke them.

A partition belongs to one member at a time: it is given away only after its owner has reported that it does not own it
any more, or is gone. Everything a response says is in the log before the response is sent.

The group decides; what it decides with has an owner each: :mod:`.subscriptions` counts what members subscribe to,
:mod:`.owners` knows whose each partition is, :mod:`.reconciliation` makes the steps to a target, :mod:`.heartbeats`
keeps those that wait, :mod:`.appends` what is on its way to the log, and :mod:`.deadlines` when to look at whom.

Members of the classic protocol may be in the group, too (:mod:`barnabas_broker.groups.migration`). They come with the
requests of that protocol, and are reconciled as the others are: JoinGroup and SyncGroup are their heartbeats that
report and get partitions, Heartbeat only says whether they have to rejoin (`classic_heartbeat`). When the last member
of the consumer protocol is gone, the group may become classic (`_downgrade`).

Behaves like the consumer groups of Kafka 4.3. Source: ``GroupMetadataManager`` (consumerGroupHeartbeat,
maybeReconcile, consumerGroupLeave, classicGroupJoinToConsumerGroup, ...), ``ConsumerGroup``,
``CurrentAssignmentBuilder``, ``TargetAssignmentBuilder``; KIP-848, KIP-1082 (member ids of clients), KIP-1101 (metadata
hash), KIP-1251 (commits with an older epoch). Better here:

- a static member that joins again with its own member id, because a response was lost, is not refused;
- topics of a regular expression that is replaced by one without matches go to others at once; and one that matches the
  same topics as before is not recorded again;
- members that wait for a target, or for partitions of others, are asked to heartbeat soon, and those that have waited
  for a target together get the partitions in the same heartbeat if the others revoke them at once: a rebalance does not
  take one heartbeat interval more for each of these.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain
from math import inf
from typing import Any, Final, NamedTuple, Self

from barnabas_broker.groups.classic.group import reason_of
from barnabas_broker.groups.classic.members import protocols_of
from barnabas_broker.groups.consumer import records
from barnabas_broker.groups.consumer.appends import Appends
from barnabas_broker.groups.consumer.assignment import Assign, GroupSpec, MemberSpec, NewTargets, Target, target_record
from barnabas_broker.groups.consumer.classic_members import ClassicMetadata, MigrationPolicy
from barnabas_broker.groups.consumer.deadlines import Deadlines
from barnabas_broker.groups.consumer.heartbeats import Computation, Heartbeat, ReleasedHeartbeats
from barnabas_broker.groups.consumer.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
    CurrentAssignment,
    Description,
    Owned,
)
from barnabas_broker.groups.consumer.owners import Owners
from barnabas_broker.groups.consumer.reconciliation import (
    Goal,
    has_more,
    next_assignment,
    same_partitions,
    without,
)
from barnabas_broker.groups.consumer.records import ReplayedGroup
from barnabas_broker.groups.consumer.regex import Resolve, ResolvedRegex
from barnabas_broker.groups.consumer.repair import superseded, targets_fit
from barnabas_broker.groups.consumer.settings import ConsumerGroupSettings, GroupTimes
from barnabas_broker.groups.consumer.states import ConsumerGroupState
from barnabas_broker.groups.consumer.subscriptions import Subscriptions
from barnabas_broker.groups.consumer.topics import NO_TOPICS
from barnabas_broker.groups.consumer.validation import changes_instance, check_heartbeat, is_full
from barnabas_broker.groups.effects import Caller, Effect, Persist, Reply, Token
from barnabas_broker.groups.embedded_protocol import Subscription, assignment_of, read_subscription
from barnabas_broker.groups.errors import failed, heartbeat_error, join_error, sync_error
from barnabas_broker.steps import Steps, finish
from barnabas_explain.catalog import (
    AssignorFailed,
    Departure,
    EpochBumped,
    GroupEmpty,
    GroupEvent,
    GroupReconciled,
    GroupUpgraded,
    InstanceInUse,
    MemberAway,
    MemberExpired,
    MemberFenced,
    MemberIdGiven,
    MemberJoined,
    MemberLeft,
    MemberNotRejoined,
    MemberNotRevoked,
    MemberNotSynced,
    MemberReplaced,
    MemberRevoked,
    MemberRevoking,
    MemberStillRevoking,
    PersistFailed,
    RegexFailed,
    RegexResolved,
    SubscriptionChanged,
    TargetAssigned,
    TopicChanged,
)
from barnabas_explain.members import Member, Move
from barnabas_protocol.coordinator_records import (
    CoordinatorRecord,
    GroupMetadataKey,
    MemberState,
)
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas_protocol.subscriptions import CONSUMER

NONE: Final = ErrorCode.NONE
#: The epoch of a new group, whose target is empty. Members reconcile to it until the first assignment, which has the
#: next one (KAFKA-20268).
INITIAL_EPOCH: Final = 1
#: From this version on OffsetCommit and OffsetFetch know member epochs.
_MEMBER_EPOCHS: Final = 9
#: From this version of JoinGroup on a dynamic member gets its id first, and joins with it (KIP-394).
_MEMBER_ID_REQUIRED: Final = 4
#: Seconds between two attempts of an assignor that fails.
_RETRY_SECONDS: Final = 1.0
#: Seconds after the start of an assignor in which heartbeats wait for its target. Those of joins wait in any case.
_ASSIGNOR_SECONDS: Final = 0.5
#: Seconds after a new target in which heartbeats that have waited for it wait for partitions that others revoke, too.
_RELEASE_SECONDS: Final = 0.5
#: Minimum seconds between two heartbeats of a member that waits for a target or for partitions; and how many of these
#: heartbeats there are per second, about.
_SOON_SECONDS: Final = 0.1
_SOON_PER_SECOND: Final = 20_000
#: Records that one step makes.
_RECORDS_PER_STEP: Final = 500
#: Maximum number of members that one call reconciles after a new target, or checks because they are due. The others
#: follow _STEP_SECONDS later, when the loop has done other work.
_MEMBERS_PER_STEP: Final = 100
#: As long as their targets do not have more topics than this.
_TOPICS_PER_STEP: Final = 1_000
_STEP_SECONDS: Final = 0.001
#: Seconds beyond the end of a session: more than what a float rounds.
_MOMENT: Final = 0.001

#: Maximum bytes of a record beside the names in its key and what is variable in its value.
RECORD_BYTES: Final = 80
#: Heartbeat intervals that a member may take to revoke partitions before the first warning.
_HEARTBEATS_TO_REVOKE: Final = 2

#: Maximum number of members whose gains and losses one group event lists, and the topics of their targets, together.
_MAX_MOVES: Final = 200
_MAX_MOVED_TOPICS: Final = 2_000

#: Maximum number of topics that an event about a regular expression names.
_MAX_NAMED: Final = 20


class Downgrade(NamedTuple):
    """A classic group with its members takes the place of this one, which may only be read until then.

    It is the last effect of a call.

    Attributes:
        generation: the group epoch.
        members: the remaining members, all of the classic protocol.
        replies: the responses that wait until the records of the classic group are in the log.
        cause: why the last member of the consumer protocol is gone.
        by: the members that are gone, or the one that has changed its protocol.
        rebalance: why the classic group rebalances, in Kafka's words.
    """

    generation: int
    members: list[ConsumerGroupMember]
    replies: list[Reply]
    cause: type[GroupEvent]
    by: list[ConsumerGroupMember]
    rebalance: str


#: What the machine asks its shell to do.
ConsumerEffect = Effect | Assign | Resolve | Downgrade
_Out = list[ConsumerEffect]

#: Why time removes members, in the order of their removal.
_CAUSES: Final = (
    MemberExpired,
    MemberNotRevoked,
    MemberNotRejoined,
    MemberNotSynced,
)


class _Said(NamedTuple):
    """Fields of a request about its member; None, or -1, where it does not have them."""

    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    topics: frozenset[str] | None
    regex: str | None
    classic: ClassicMetadata | None = None
    client_reason: str = ""


@dataclass(slots=True)
class _Resolution:
    """Regular expressions that are being resolved.

    Attributes:
        ticket: of the effect.
        resolved: whether something is known now of one of them that was not, be it that nothing matches it.
        changed: whether one of them matches other topics than before.
    """

    ticket: int
    resolved: bool = False
    changed: bool = False


class ConsumerGroup:
    """The state machine of one group of the consumer protocol.

    Attributes:
        group_id: the group's name.
        epoch: the group epoch.
        assignment_epoch: the group epoch of the target.
        members: the members by id.
        static: the member id of each static member, by instance id.
        targets: the target of each member.
        subscriptions: what its members subscribe to.
        metadata_hash: of the topics that it subscribed to when its epoch grew last.
        recorded: whether records of the group are in the log, or are being appended.
        bumped_at: when the group epoch grew last, in seconds on the clock of `now`.

    Args:
        group_id: the group's name.
        settings: of the coordinator.
        now: the time.
    """

    __slots__ = (
        "_appends",
        "_assigned_at",
        "_assignment_due",
        "_check_at",
        "_classic",
        "_computation",
        "_dead",
        "_deadlines",
        "_lagging",
        "_mixed",
        "_owners",
        "_protocols",
        "_released",
        "_resolving",
        "_settings",
        "_step_at",
        "_target_records",
        "_topics_version",
        "_unsubscribed",
        "_wall_ms_of_target",
        "assignment_epoch",
        "bumped_at",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "recorded",
        "static",
        "subscriptions",
        "targets",
    )

    def __init__(self, group_id: str, settings: ConsumerGroupSettings, now: float) -> None:
        self.group_id = group_id
        self.epoch = self.assignment_epoch = INITIAL_EPOCH
        self.members: dict[str, ConsumerGroupMember] = {}
        self.static: dict[str, str] = {}
        self.targets: dict[str, Target] = {}
        self.subscriptions = Subscriptions()
        self.metadata_hash = NO_TOPICS
        self.recorded = False
        self.bumped_at = now
        self._settings = settings
        self._dead = False
        self._owners = Owners()
        self._deadlines = Deadlines(self.members)
        self._appends = Appends()
        #: When the last target was computed, or could not be; -inf if there is none.
        self._assigned_at = -inf
        self._wall_ms_of_target = 0
        #: The version of the topic catalog that the group epoch takes into account.
        self._topics_version = -1
        #: The resolution that is under way.
        self._resolving: _Resolution | None = None
        #: The members that are not reconciled to the target.
        self._lagging: set[str] = set()
        self._computation: Computation | None = None
        #: The heartbeats that have waited for the target; and when the next of those that go on with it do.
        self._released = ReleasedHeartbeats()
        self._step_at = inf
        #: When to check the group as a whole.
        self._check_at = inf
        #: The records of the targets that have just been computed: made where they were, as they may be thousands.
        self._target_records: Mapping[str, tuple[Target, CoordinatorRecord]] = {}
        #: Number of members of the classic protocol, and how many of them support each assignor.
        self._classic = 0
        self._protocols: Counter[str] = Counter()
        #: Whether it has had members of the classic protocol when events said last how many there are.
        self._mixed = False
        #: Whether a classic group was upgraded that has not assigned all its partitions, or not to all its members.
        self._assignment_due = False
        #: Whether a member does not subscribe to topics any more that are in its target.
        self._unsubscribed = False

    @property
    def state(self) -> ConsumerGroupState:
        """The group's state."""
        if self._dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.RECONCILING if self._lagging else ConsumerGroupState.STABLE

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members and not self._dead

    @property
    def is_dead(self) -> bool:
        """Whether the group was deleted, has expired, or is coordinated by another broker."""
        return self._dead

    @property
    def is_unused(self) -> bool:
        """Whether the group may be deleted."""
        return self.is_empty

    @property
    def protocol_type(self) -> str:
        """The protocol type of its members."""
        return CONSUMER

    def forget_pending(self) -> None:
        """The consumer protocol has no pending members."""

    @property
    def generation(self) -> int:
        """The group epoch, which group events call generation."""
        return self.epoch

    @property
    def times(self) -> GroupTimes:
        """The group's timeouts and intervals."""
        return self._settings.own_times.get(self.group_id, self._settings.times)

    @property
    def session_timeout(self) -> float:
        """Seconds without a heartbeat after which a member is removed."""
        return self.times.session_timeout

    def times_changed(self, now: float) -> None:
        """The group has other timeouts: sessions are checked with them from now on."""
        for member in self.members.values():
            self._check_member(member)

    @property
    def assignor(self) -> str:
        """The assignor that most members prefer; the coordinator's default if no member does."""
        names = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return names.most_common(1)[0][0] if names else self._settings.assignors[0]

    # ConsumerGroupHeartbeat

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        caller: Caller,
        token: Token,
        now: float,
    ) -> list[ConsumerEffect]:
        """ConsumerGroupHeartbeat: joins, leaves, reports, and gets an assignment.

        The response is deferred until its records are in the log, and while a target is computed that it asked for.

        Args:
            request: the request.
            version: its version.
            caller: the client that sends it.
            token: identifies it in the :class:`~barnabas_broker.groups.effects.Reply`.
            now: the time.
        """
        out: _Out = []
        try:
            check_heartbeat(request, version, self._settings)
            if self._dead:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                self._leave(request, token, out, now)
            else:
                self._heartbeat(request, caller, token, out, now)
        except KafkaError as error:
            out.append(Reply(token, heartbeat_error(error)))
        return out

    def _heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        token: Token,
        out: _Out,
        now: float,
    ) -> None:
        reported = _reported(request)
        known = self._member_of(request, caller, reported, out)
        names = request.subscribed_topic_names
        said = _Said(
            request.instance_id,
            request.rack_id,
            request.rebalance_timeout_ms,
            request.server_assignor,
            None if names is None else frozenset(names),
            request.subscribed_topic_regex,
        )
        assigned_before: Owned = {} if known is None else known.assigned
        self.subscriptions.check_room("" if known is None else known.regex, said.regex, self.group_id)
        member, changed = self._update(known, request.member_id or self._settings.new_id(), said, caller, out, now)
        joins = request.member_epoch == JOIN_EPOCH
        full = joins or (request.rebalance_timeout_ms != -1 and names is not None and reported is not None)
        full = full or member.was_told_elsewhere(caller.connection)
        connection = caller.connection
        heartbeat = Heartbeat(token, member.member_id, full, reported, assigned_before, changed, connection=connection)
        self._advance(heartbeat, caller, joins, out, now)

    def _update(
        self,
        member: ConsumerGroupMember | None,
        member_id: str,
        said: _Said,
        caller: Caller,
        out: _Out,
        now: float,
    ) -> tuple[ConsumerGroupMember, bool]:
        """Add a member, or update it with what its request says; bump the group epoch if it or a topic has changed.

        Returns:
            The member, and whether it subscribes to something else than before.
        """
        joins = member is None
        topics_changed = self._topics_changed()
        replaced: str | None = None
        if member is not None and (member.member_id != member_id or member.epoch == LEAVE_STATIC_EPOCH):
            replaced = member.member_id
            member = self._bring_back(member, member_id)
        known = Description() if member is None else member.description
        preferred = self.assignor if said.assignor not in (None, known.assignor) else None
        described = Description(
            known.instance_id if said.instance_id is None else said.instance_id,
            known.rack_id if said.rack_id is None else said.rack_id,
            caller.client_id,
            caller.host,
            known.topics if said.topics is None else said.topics,
            known.regex if said.regex is None else said.regex,
            known.rebalance_timeout_ms if said.rebalance_timeout_ms == -1 else said.rebalance_timeout_ms,
            known.assignor if said.assignor is None else said.assignor,
            said.classic,
        )
        if joins or described != known:
            self._put(records.MEMBER, member_id, described)
        member = self.members[member_id]
        member.last_seen = now
        member.fenced = False
        member.contested = member.contested and replaced is None
        if joins or replaced is not None or described.classic != known.classic:
            if described.classic is None:
                member.join_by = member.sync_by = inf
            self._check_member(member)
        # Since Kafka 4.4 members get a new assignment when they have chosen another assignor.
        chosen = preferred is not None and not joins and self.assignor != preferred
        if replaced is not None:
            out.append(
                MemberReplaced(
                    generation=self.epoch,
                    member=member.identity(),
                    old_member_id=replaced,
                    protocol=_protocol_of(member),
                    members=len(self.members),
                    classic=self._migration(),
                    session_ms=self._session_of(member) * 1000,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    owned=self._by_name(member.owned()),
                )
            )
        if joins:
            out.append(
                MemberJoined(
                    generation=self.epoch,
                    member=member.identity(),
                    client_reason=said.client_reason,
                    protocol=_protocol_of(member),
                    session_ms=self._session_of(member) * 1000,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                )
            )
        changed = member.topics != known.topics or member.regex != known.regex
        bumps = False
        if changed:
            subscription = self.subscriptions.topics_of(known.topics, known.regex)
            self._forget_regex(known.regex)
            now_subscribed = self.subscription(member)
            # An expression that is not resolved yet bumps the epoch when it is, so that there is one rebalance.
            bumps = member.topics != known.topics or not member.regex or member.regex in self.subscriptions.resolved
            self._unsubscribed = self._unsubscribed or not now_subscribed >= subscription
            if not joins:
                out.append(
                    SubscriptionChanged(
                        generation=self.epoch,
                        member=member.identity(),
                        added=tuple(nsmallest(_MAX_NAMED, now_subscribed - subscription)),
                        removed=tuple(nsmallest(_MAX_NAMED, subscription - now_subscribed)),
                        regex=member.regex if member.regex != known.regex else None,
                    )
                )
        if self._assignment_due and not bumps:
            self._bump(GroupUpgraded, [member], out, now)
        elif bumps or chosen:
            cause = MemberJoined if joins else SubscriptionChanged
            self._bump(cause, [member], out, now)
        elif topics_changed:
            self._bump(TopicChanged, [], out, now)
        return member, changed

    def _advance(self, heartbeat: Heartbeat, caller: Caller, waits: bool, out: _Out, now: float) -> None:
        """Compute a target if that is due; then reconcile the member, and respond.

        Args:
            heartbeat: of the member.
            caller: the client that sends it.
            waits: whether it waits for a target that is being computed, however long that takes.
            out: gets the effects.
            now: the time.
        """
        if self._may_assign(now):
            self._start_assignment([heartbeat], out, now)
        elif self._computation is not None and (waits or now < self._computation.started + _ASSIGNOR_SECONDS):
            # Members that joined together heartbeat together: with the old target, they would get the new one after
            # another interval. A slow assignor of a plugin does not keep them for longer.
            self._computation.waiting.append(heartbeat)
            self._append([], out)
        else:
            self._finish(heartbeat, out, now)
        self._resolve_if_due(caller, out, now)
        self._assign_without_heartbeats(now)

    def _member_of(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        reported: Target | None,
        out: list[ConsumerEffect],
    ) -> ConsumerGroupMember | None:
        """The member that a heartbeat comes from, or that it replaces; None if it is a new one.

        Raises:
            KafkaError: it may not join, or has to join again.
        """
        member_id, instance_id, epoch = request.member_id, request.instance_id, request.member_epoch
        known = self.members.get(member_id)
        self._check_room(known)
        if instance_id is None:
            if known is None and epoch != JOIN_EPOCH:
                raise self._unknown(member_id)
            owner = known
        else:
            owner = self._static_member(instance_id)
            if epoch == JOIN_EPOCH:
                if known is not None and known is not owner:
                    raise changes_instance(member_id, instance_id)
                released = owner is None or owner.epoch == LEAVE_STATIC_EPOCH or owner.classic is not None
                if owner is not None and owner is not known and not released:
                    if not owner.contested:
                        owner.contested = True
                        refused = Member(member_id, caller.client_id, caller.host, instance_id)
                        out.append(InstanceInUse(generation=self.epoch, member=refused, owner=owner.identity()))
                    raise KafkaError(
                        ErrorCode.UNRELEASED_INSTANCE_ID,
                        f"Static member {member_id} with instance id {instance_id} cannot join the group because the"
                        f" instance id is owned by {owner.member_id} member.",
                    )
            else:
                owner = self._static_owner(instance_id, member_id)
        if owner is not None:
            try:
                owner.check_epoch(epoch, reported)
            except KafkaError:
                if not owner.fenced:
                    # Once: a client can repeat it as often as it wants to, and nothing changes.
                    owner.fenced = True
                    out.append(
                        MemberFenced(
                            generation=self.epoch,
                            member=owner.identity(),
                            member_epoch=epoch,
                            known_epoch=owner.epoch,
                        )
                    )
                raise
        return owner

    def _check_room(self, known: ConsumerGroupMember | None) -> None:
        """Check that a member may join.

        Raises:
            KafkaError: it is not `known`, and the group is full.
        """
        if known is None and len(self.members) >= self._settings.max_size:
            raise is_full(self._settings)

    def _static_member(self, instance_id: str) -> ConsumerGroupMember | None:
        member_id = self.static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def _static_owner(self, instance_id: str, member_id: str) -> ConsumerGroupMember:
        """The static member with this instance id, if `member_id` is its own.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
        """
        owner = self._static_member(instance_id)
        if owner is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if owner.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {owner.member_id}.",
            )
        return owner

    def _unknown(self, member_id: str) -> KafkaError:
        return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")

    def _session_of(self, member: ConsumerGroupMember) -> float:
        """Seconds without a heartbeat after which a member is removed."""
        return self.session_timeout if member.classic is None else member.classic.session_timeout_ms / 1000

    def _bring_back(self, member: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
        """A static member that was away is back, usually with a new member id: it keeps its target and partitions."""
        back = member.current()._replace(epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        old_id = member.member_id
        if old_id != member_id:
            description, target = member.description, self.targets.get(old_id)
            revoking_since, warn_at = member.revoking_since, member.warn_at
            for record_type in (records.CURRENT, records.TARGET, records.MEMBER):
                self._put(record_type, old_id, None)
            self._put(records.MEMBER, member_id, description)
            self._put(records.TARGET, member_id, target)
            if self._computation is not None:
                self._computation.replaced[old_id] = member_id
            member = self.members[member_id]
            member.revoking_since, member.warn_at = revoking_since, warn_at
        member.join_by = member.sync_by = inf
        self._put(records.CURRENT, member_id, back)
        return member

    # Members of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup

    def join(
        self,
        request: JoinGroupRequest,
        version: int,
        caller: Caller,
        token: Token,
        now: float,
        subscription: Subscription | None = None,
    ) -> list[ConsumerEffect]:
        """JoinGroup of a member of the classic protocol: its generation is its member epoch, and no member leads.

        The response is deferred until its records are in the log, and while a target is computed.

        Args:
            request: the request.
            version: its version.
            caller: the client that sends it.
            token: identifies it in the :class:`~barnabas_broker.groups.effects.Reply`.
            now: the time.
            subscription: of its first protocol, if that was read beforehand: it may be large.
        """
        out: _Out = []
        try:
            self._join(request, version, caller, token, out, now, subscription)
        except KafkaError as error:
            out.append(Reply(token, join_error(error.code, "")))
        return out

    def _join(
        self,
        request: JoinGroupRequest,
        version: int,
        caller: Caller,
        token: Token,
        out: _Out,
        now: float,
        subscription: Subscription | None,
    ) -> None:
        settings, instance_id = self._settings, request.group_instance_id
        if settings.migration is MigrationPolicy.DISABLED:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self._dead:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        known = self.members.get(request.member_id)
        self._check_room(known)
        metadata, subscription = self._read_protocols(request, subscription)
        member_id = request.member_id or settings.new_id()
        if not request.member_id and instance_id is None and version >= _MEMBER_ID_REQUIRED:
            out.append(Reply(token, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)))
            given = Member(member_id, caller.client_id, caller.host)
            out.append(MemberIdGiven(generation=self.epoch, member=given))
            return
        if instance_id is not None:
            known = self._static_member(instance_id)
            if request.member_id:
                known = self._static_owner(instance_id, request.member_id)
        elif known is None and any(subscription.owned.values()):
            # It was removed, and others may have its partitions: it has to lose them first.
            raise self._unknown(member_id)
        # A static member that comes back with the classic protocol may be the last one of the consumer protocol.
        downgrades = known is not None and instance_id is not None and known.classic is None
        downgrades = downgrades and self._may_downgrade([known] if known is not None else [], 1)
        session_ms, rebalance_ms = request.session_timeout_ms, request.rebalance_timeout_ms
        said = _Said(
            instance_id,
            subscription.rack_id,
            rebalance_ms if version >= 1 else session_ms,
            None,
            subscription.topics,
            "",
            metadata,
            reason_of(request.reason),
        )
        assigned_before: Owned = {} if known is None else known.assigned
        epoch = self.epoch
        member, changed = self._update(known, member_id, said, caller, out, now)
        topics = settings.topics.by_name
        reported = {topics[name].topic_id: owned for name, owned in subscription.owned.items() if name in topics}
        heartbeat = Heartbeat(token, member.member_id, True, reported, assigned_before, changed, True)
        if not downgrades:
            self._advance(heartbeat, caller, True, out, now)
            return
        stale = self.epoch > self.assignment_epoch
        if not stale and (changed or not member.is_reconciled_to(self.assignment_epoch)):
            self._reconcile(member, reported, changed, out, now)
        reply = Reply(token, self._join_response(member, now))
        # The new epoch, if there is one, is that of the rebalance.
        self._downgrade([], [member], MemberReplaced, [reply], out, now, generation=epoch)

    def _read_protocols(
        self, request: JoinGroupRequest, subscription: Subscription | None
    ) -> tuple[ClassicMetadata, Subscription]:
        """The protocols of a JoinGroup, and the subscription of the first one: all have the same.

        Raises:
            KafkaError: the group does not support them, or they cannot be read or recorded.
        """
        protocols = protocols_of(request.protocols)
        supported = any(self._protocols[name] == self._classic for name, _ in protocols)
        if request.protocol_type != CONSUMER or not supported:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        # The names of the topics are in the member's record once more.
        if 2 * sum(len(name) + len(metadata) for name, metadata in protocols) > self._settings.max_record_bytes:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            subscription = read_subscription(protocols[0][1]) if subscription is None else subscription
            return ClassicMetadata(request.session_timeout_ms, protocols), subscription
        except ValueError as error:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error

    def supported_protocols(self) -> list[str]:
        """The assignors that all members of the classic protocol support."""
        return [name for name, members in self._protocols.items() if members == self._classic]

    def _join_response(self, member: ConsumerGroupMember, now: float) -> JoinGroupResponse:
        """A successful JoinGroup: the member has to send SyncGroup within its rebalance timeout."""
        member.join_by = inf
        member.sync_by = now + max(member.rebalance_timeout_ms, 0) / 1000
        member.last_seen = now
        self._check_member(member)
        return JoinGroupResponse(
            error_code=NONE,
            generation_id=member.epoch,
            protocol_type=CONSUMER,
            protocol_name="" if member.classic is None else member.classic.protocol,
            leader="",
            member_id=member.member_id,
            members=[],
        )

    def sync(self, request: SyncGroupRequest, token: Token, now: float) -> list[ConsumerEffect]:
        """SyncGroup of a member of the classic protocol: the partitions that it owns and keeps."""
        out: _Out = []
        try:
            member, metadata = self._classic_member(request.member_id, request.group_instance_id, request.generation_id)
            for sent, known in ((request.protocol_type, CONSUMER), (request.protocol_name, metadata.protocol)):
                if sent is not None and sent != known:
                    raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if member.epoch < self.assignment_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._rejoin_by(member, now)
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            out.append(Reply(token, sync_error(error.code)))
            return out
        member.sync_by = inf
        member.last_seen = now
        response = SyncGroupResponse(
            error_code=NONE,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_of(self._existing(member.assigned), metadata.version),
        )
        self._append([Reply(token, response)], out)
        return out

    def classic_heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        """Heartbeat of a member of the classic protocol: REBALANCE_IN_PROGRESS asks it to rejoin.

        It has to rejoin if there is a newer target, if it has to revoke partitions, or if the partitions that it waits
        for are free.
        """
        try:
            member, _ = self._classic_member(member_id, instance_id, generation)
        except KafkaError as error:
            return error.code
        member.last_seen = now
        if self._classic == len(self.members) and self._topics_version != self._settings.topics.version:
            self._check_by(now)
        if (
            member.epoch < self.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not self.waits_for(member))
        ):
            self._rejoin_by(member, now)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return NONE

    def _rejoin_by(self, member: ConsumerGroupMember, now: float) -> None:
        """A member of the classic protocol is asked to rejoin: it has its rebalance timeout for that."""
        if member.join_by == inf:
            member.join_by = now + max(member.rebalance_timeout_ms, 0) / 1000
            self._check_member(member)

    def _classic_member(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerGroupMember, ClassicMetadata]:
        """The member that a request of the classic protocol comes from.

        Raises:
            KafkaError: it is none, uses the consumer protocol, or has another generation.
        """
        if self._dead:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = self.members.get(member_id) if instance_id is None else self._static_owner(instance_id, member_id)
        if member is None or member.classic is None:
            raise self._unknown(member_id)
        if member.epoch != generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member, member.classic

    def leave(self, identities: list[MemberIdentity], token: Token, now: float) -> list[ConsumerEffect]:
        """LeaveGroup: each leaving member gets its own result. Administrators remove members of either protocol."""
        out: _Out = []
        if self._dead:
            return [Reply(token, LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))]
        results: list[MemberResponse] = []
        left: dict[str, ConsumerGroupMember] = {}
        for each in identities:
            code = NONE
            try:
                member = self._leaving(each)
                if member.member_id not in left:
                    reason = reason_of(each.reason)
                    out.append(self._left(member, reason))
                left[member.member_id] = member
            except KafkaError as error:
                code = error.code
            results.append(
                MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
            )
        reply = Reply(token, LeaveGroupResponse(error_code=NONE, members=results))
        if left:
            self._remove(list(left.values()), MemberLeft, [reply], out, now)
        else:
            self._append([reply], out)
        return out

    def _leaving(self, identity: MemberIdentity) -> ConsumerGroupMember:
        """The member that leaves.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
        """
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if instance_id is None:
            member = self.members.get(member_id)
        else:
            # An administrator names only the instance.
            member = self._static_owner(instance_id, member_id) if member_id else self._static_member(instance_id)
        if member is None:
            raise self._unknown(member_id)
        return member

    def _count_classic(self, classic: ClassicMetadata | None, by: int) -> None:
        """Count a member of the classic protocol, and the assignors that it supports."""
        if classic is None:
            return
        self._classic += by
        for name in {name for name, _ in classic.protocols}:
            self._protocols[name] += by
            if not self._protocols[name]:
                del self._protocols[name]

    def _existing(self, partitions: Mapping[bytes, Collection[int]]) -> dict[str, Collection[int]]:
        """Partitions by the topic's name, without those of deleted topics."""
        by_id = self._settings.topics.by_id
        return {by_id[topic_id].name: numbers for topic_id, numbers in partitions.items() if topic_id in by_id}

    # Regular expressions

    def subscription(self, member: ConsumerGroupMember) -> frozenset[str]:
        """The names of the topics that a member subscribes to, by name and by regular expression."""
        return self.subscriptions.topics_of(member.topics, member.regex)

    def uses_regex(self, regex: str) -> bool:
        """Whether a member subscribes with `regex`: then it has been checked."""
        return regex in self.subscriptions.regexes

    def _forget_regex(self, regex: str) -> None:
        """Forget what a regular expression matches if no member has it any more."""
        if regex and regex not in self.subscriptions.regexes:
            self._put(records.REGEX, regex, None)

    def _resolve_if_due(self, caller: Caller, out: _Out, now: float) -> None:
        """Ask for what the regular expressions match, if that may have changed."""
        settings, subscriptions = self._settings, self.subscriptions
        if self._resolving is None and subscriptions.refresh_due(settings.topics, settings.regex_interval, now):
            ticket = self._appends.new_ticket()
            self._resolving = _Resolution(ticket)
            client = caller.principal, caller.host
            out.append(Resolve(ticket, frozenset(subscriptions.regexes), caller.may_describe, client))

    def regexes_resolved(
        self,
        ticket: int,
        matches: Mapping[str, frozenset[str]],
        version: int,
        now: float,
        wall_ms: int,
        *,
        last: bool = True,
    ) -> list[ConsumerEffect]:
        """The result of a :class:`~barnabas_broker.groups.consumer.regex.Resolve`. Stale tickets are ignored.

        Args:
            ticket: of the effect.
            matches: the names of the topics that each expression matches, and that the client may describe. One that is
                missing took too long: it keeps what it has, and is tried again.
            version: the ``names_version`` of the topics that were searched.
            now: the time.
            wall_ms: the time of day, in ms since 1970, for the records.
            last: whether no further part of the result follows. The group epoch grows with the last part.
        """
        out: _Out = []
        resolution = self._resolving
        if resolution is None or resolution.ticket != ticket or self._dead:
            return out
        subscriptions = self.subscriptions
        # In the order of their names, so that the same requests give the same records.
        for regex in sorted(matches.keys() & subscriptions.regexes.keys()):
            topics = matches[regex]
            known = subscriptions.resolved.get(regex)
            before = frozenset() if known is None else known.topics
            if known is not None and topics == before:
                continue
            reason = subscriptions.refusal(regex, topics, self._settings.max_record_bytes)
            if reason is not None:
                if subscriptions.fails_anew(regex, reason):
                    out.append(RegexFailed(generation=self.epoch, regex=regex, reason=reason))
                continue
            self._put(records.REGEX, regex, ResolvedRegex(topics, version, wall_ms))
            out.append(
                RegexResolved(
                    generation=self.epoch,
                    regex=regex,
                    topics=len(topics),
                    added=tuple(nsmallest(_MAX_NAMED, topics - before)),
                    removed=tuple(nsmallest(_MAX_NAMED, before - topics)),
                )
            )
            resolution.resolved = True
            resolution.changed = resolution.changed or topics != before
        if last:
            self._resolving = None
            subscriptions.refreshed(now, version)
            if resolution.changed or self._unsubscribed:
                # What a member subscribed to before it changed its expression goes to others, even if the new one
                # matches nothing.
                cause = RegexResolved if resolution.resolved else SubscriptionChanged
                self._bump(cause, [], out, now)
        self._append([], out)
        return out

    @property
    def _hash(self) -> int:
        """The hash of all topics that the group subscribes to."""
        return self.subscriptions.hash_of(self._settings.topics)

    # Group epoch

    def _topics_changed(self) -> bool:
        """Whether a topic has changed that the group subscribes to, since this was asked last."""
        if self._topics_version == self._settings.topics.version:
            return False
        self._topics_version = self._settings.topics.version
        return self._hash != self.metadata_hash

    def _bump(
        self,
        cause: type[GroupEvent],
        by: Collection[ConsumerGroupMember],
        out: _Out,
        now: float,
    ) -> None:
        self._put(records.EPOCH, "", (self.epoch + 1, self._hash))
        self._assignment_due = self._unsubscribed = False
        self._topics_version = self._settings.topics.version
        self.bumped_at = now
        out.append(
            EpochBumped(
                generation=self.epoch,
                cause=cause.type,
                by=tuple(member.identity() for member in by),
                members=len(self.members),
                classic=self._migration(),
            )
        )

    # Target assignment

    def _may_assign(self, now: float) -> bool:
        return (
            self.epoch > self.assignment_epoch
            and self._computation is None
            and now >= self._assigned_at + self.times.assignment_interval
        )

    def _assign_without_heartbeats(self, now: float) -> None:
        """Compute the next target as soon as it is due if no member sends the heartbeats that do so.

        Members of the classic protocol rejoin only if there is a new target.
        """
        if 0 < len(self.members) == self._classic and self.epoch > self.assignment_epoch and self._computation is None:
            self._check_by(max(now, self._assigned_at + self.times.assignment_interval))

    def _start_assignment(self, heartbeats: list[Heartbeat], out: _Out, now: float) -> None:
        """Ask for a target for the group epoch; the heartbeats wait for it, their records do not."""
        topics = self._settings.topics
        ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
        #: The ids by the names: different regular expressions may match the same topics.
        ids_of: dict[frozenset[str], frozenset[bytes]] = {}
        members = {}
        for member in self.members.values():
            subscription = (member.topics, member.regex)
            topic_ids = ids.get(subscription)
            if topic_ids is None:
                names = self.subscription(member)
                topic_ids = ids_of.get(names)
                if topic_ids is None:
                    topic_ids = ids_of[names] = topics.ids_of(names)
                ids[subscription] = topic_ids
            target = self.targets.get(member.member_id, {})
            members[member.member_id] = MemberSpec(topic_ids, target, member.instance_id, member.rack_id)
        described = {topic_id: topics.by_id[topic_id] for topic_id in frozenset[bytes]().union(*ids_of.values())}
        self._append([], out)
        ticket, assignor = self._appends.new_ticket(), self.assignor
        self._computation = Computation(ticket, self.epoch, now, assignor, heartbeats)
        out.append(Assign(ticket, assignor, GroupSpec(members, described)))

    def assigned(self, ticket: int, result: NewTargets, now: float, wall_ms: int) -> list[ConsumerEffect]:
        """The target that an :class:`~barnabas_broker.groups.consumer.assignment.Assign` asked for.

        Stale tickets are ignored. The heartbeats that wait for the target go on, some of them with the next ticks.

        Args:
            ticket: of the effect.
            result: the targets. They are the group's from now on.
            now: the time.
            wall_ms: the time of day, in ms since 1970, for the record.
        """
        out: _Out = []
        computation = self._computation
        if computation is None or computation.ticket != ticket or self._dead:
            return out
        self._computation = None
        targets, changed = result.targets, result.changed
        for old_id, new_id in computation.replaced.items():
            if old_id in targets:
                targets[new_id] = targets.pop(old_id)
            if old_id in changed:
                changed.add(new_id)
        self._target_records = result.records
        moves: list[Move] = []
        topics = 0
        for member_id, member in self.members.items():
            before = self.targets.get(member_id)
            if member_id in changed or before is None:
                target = targets.get(member_id, {})
                self._put(records.TARGET, member_id, target)
                topics += len(target)
                if len(moves) < _MAX_MOVES and topics < _MAX_MOVED_TOPICS:
                    moves.append(self._move(member, before or {}, target))
        self._assigned_at = now
        # The last member may have left since, and others may have joined.
        epoch = max(computation.epoch, self.assignment_epoch)
        self._put(records.TARGET_EPOCH, "", (epoch, wall_ms))
        self._lagging = {each.member_id for each in self.members.values() if not each.is_reconciled_to(epoch)}
        out.append(
            TargetAssigned(
                generation=computation.epoch,
                assignor=computation.assignor,
                took_ms=(now - computation.started) * 1000,
                members=len(self.members),
                moves=tuple(moves),
            )
        )
        waiting = computation.waiting
        losing = {each.member_id for each in waiting if each.member_id in result.losing}
        losing = {each for each in losing if each in self.members and self.members[each].assigned}
        self._released.add(waiting, losing, now + _RELEASE_SECONDS)
        if topics > _TOPICS_PER_STEP:
            self._append([], out)
            self._step_at = now + _STEP_SECONDS
        else:
            self._finish_some(out, now)
        self._target_records = {}
        self._assign_without_heartbeats(now)
        return out

    def _finish_some(self, out: _Out, now: float) -> None:
        """Go on with some of the heartbeats that have waited for a target, and append what has changed."""
        replies: list[Reply] = []
        members = topics = 0
        ready = self._released.ready
        while ready and members < _MEMBERS_PER_STEP and topics < _TOPICS_PER_STEP:
            heartbeat = ready.popleft()
            members += 1
            topics += len(self.targets.get(heartbeat.member_id, ()))
            owners = self._revoking_for(heartbeat.member_id) if now < self._released.until else None
            if owners:
                self._released.hold(heartbeat, owners)
                self._check_by(self._released.until)
            else:
                replies.append(self._finished(heartbeat, out, now))
        self._append(replies, out)
        self._step_at = now + _STEP_SECONDS if ready else inf

    def _revoking_for(self, member_id: str) -> set[str]:
        """The ids of the members that were asked to revoke partitions which a member gets: it waits for them."""
        owners = self._owners.ids_of_others(self.targets.get(member_id, {}), member_id)
        return {each for each in owners.intersection(self._released.losing) if self._has_to_revoke(each)}

    def _has_to_revoke(self, member_id: str) -> bool:
        member = self.members.get(member_id)
        return member is not None and member.state is MemberState.UNREVOKED_PARTITIONS

    def _move(self, member: ConsumerGroupMember, before: Target, after: Target) -> Move:
        """The partitions that a new target gives to a member, and takes from it, for a group event."""

        def without(some: Target, others: Target) -> dict[str, list[int]]:
            left = {topic_id: numbers - others.get(topic_id, frozenset()) for topic_id, numbers in some.items()}
            return self._by_name({topic_id: numbers for topic_id, numbers in left.items() if numbers})

        return Move(member.identity(), without(after, before), without(before, after))

    def assign_failed(self, ticket: int, reason: str, now: float) -> list[ConsumerEffect]:
        """The assignor has failed: the waiting heartbeats fail, too; a later one tries again."""
        out: _Out = []
        computation = self._computation
        if computation is None or computation.ticket != ticket or self._dead:
            return out
        self._computation = None
        self._assigned_at = now + _RETRY_SECONDS - self.times.assignment_interval
        message = f"Failed to compute a new target assignment for epoch {computation.epoch}: {reason}"
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        out.append(AssignorFailed(generation=self.epoch, assignor=computation.assignor, reason=reason))
        self._append([heartbeat.refusal(error) for heartbeat in computation.waiting], out)
        self._assign_without_heartbeats(now)
        return out

    # Reconciliation

    def _finish(self, heartbeat: Heartbeat, out: _Out, now: float) -> None:
        """Reconcile the member of a heartbeat, and respond."""
        self._append([self._finished(heartbeat, out, now)], out)

    def _finished(self, heartbeat: Heartbeat, out: _Out, now: float) -> Reply:
        """Reconcile the member of a heartbeat; its response, which has to wait for the records of that."""
        member = self.members.get(heartbeat.member_id)
        if member is None:
            return heartbeat.refusal(self._unknown(heartbeat.member_id))
        was_lagging = bool(self._lagging)
        if heartbeat.subscription_changed or not member.is_reconciled_to(self.assignment_epoch):
            self._reconcile(member, heartbeat.reported, heartbeat.subscription_changed, out, now)
        if was_lagging and self.state is ConsumerGroupState.STABLE:
            took_ms = (now - self.bumped_at) * 1000
            out.append(GroupReconciled(generation=self.epoch, took_ms=took_ms, members=len(self.members)))
        if heartbeat.classic:
            return Reply(heartbeat.token, self._join_response(member, now))
        return Reply(heartbeat.token, self._heartbeat_response(member, heartbeat, now))

    def _next_heartbeat(self, member: ConsumerGroupMember, now: float) -> int:
        """Milliseconds until the next heartbeat: fewer while a target is due, or others have the member's partitions.

        After a target they double, so that members do not ask often for what takes long.
        """
        interval = self.times.heartbeat_interval
        if self._computation is not None:
            wait = now - self._computation.started
        elif self.epoch > self.assignment_epoch:
            wait = self._assigned_at + self.times.assignment_interval - now
        elif member.state is MemberState.UNRELEASED_PARTITIONS:
            wait = now - self._assigned_at
        else:
            return interval
        return min(interval, round(1000 * max(wait, _SOON_SECONDS, len(self.members) / _SOON_PER_SECOND)))

    def _heartbeat_response(
        self, member: ConsumerGroupMember, heartbeat: Heartbeat, now: float
    ) -> ConsumerGroupHeartbeatResponse:
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=NONE,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._next_heartbeat(member, now),
        )
        # A disk may have lost the record that gave a member partitions. It gives up what it reports but does not own.
        owns_more = heartbeat.reported is not None and has_more(heartbeat.reported, member)
        if heartbeat.full or owns_more or not same_partitions(member.assigned, heartbeat.assigned_before):
            response.assignment = HeartbeatAssignment(
                topic_partitions=[
                    HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(member.assigned[topic_id]))
                    for topic_id in sorted(member.assigned)
                ]
            )
            member.told_on = heartbeat.connection
        return response

    def _reconcile(
        self,
        member: ConsumerGroupMember,
        reported: Target | None,
        subscription_changed: bool,
        out: _Out,
        now: float,
    ) -> None:
        """Bring a member one step closer to its target, as far as it and the others have revoked."""
        revoking = member.revoking
        goal = Goal(
            self.targets.get(member.member_id, {}),
            self.assignment_epoch,
            self.subscription(member),
            self._settings.topics.by_id,
            self._owners.by_topic,
        )
        after = next_assignment(member, reported, goal, subscription_changed=subscription_changed)
        if after is None or after == member.current():
            return
        self._put(records.CURRENT, member.member_id, after)
        if revoking and (revoked := without(revoking, member.revoking)):
            waited_ms = (now - member.revoking_since) * 1000
            member.has_revoked()
            out.append(
                MemberRevoked(
                    generation=self.epoch,
                    member=member.identity(),
                    waited_ms=waited_ms,
                    partitions=self._by_name(revoked),
                )
            )
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._must_revoke(member, now)
            out.append(
                MemberRevoking(
                    generation=self.epoch,
                    member=member.identity(),
                    partitions=self._by_name(member.revoking),
                    timeout_ms=member.rebalance_timeout_ms,
                )
            )

    def _must_revoke(self, member: ConsumerGroupMember, now: float) -> None:
        """A member has to revoke partitions, within its rebalance timeout."""
        # A member that is well reports with one of its next heartbeats.
        member.must_revoke(now, _HEARTBEATS_TO_REVOKE * self.times.heartbeat_interval / 1000)
        self._check_member(member)

    def _update_lag(self, member: ConsumerGroupMember) -> None:
        if member.is_reconciled_to(self.assignment_epoch):
            self._lagging.discard(member.member_id)
        else:
            self._lagging.add(member.member_id)

    def waits_for(self, member: ConsumerGroupMember) -> dict[str, dict[bytes, list[int]]]:
        """The partitions of a member's target that others still own: by their member id, then by topic id."""
        return self._owners.others(self.targets.get(member.member_id, {}), member.member_id)

    def _by_name(self, partitions: Mapping[bytes, Iterable[int]]) -> dict[str, list[int]]:
        """Partitions by the topic's name; a deleted topic has its id instead."""
        by_id = self._settings.topics.by_id
        return {
            by_id[topic_id].name if topic_id in by_id else topic_id.hex(): sorted(numbers)
            for topic_id, numbers in partitions.items()
        }

    # Members that leave, and those that are removed

    def _leave(self, request: ConsumerGroupHeartbeatRequest, token: Token, out: _Out, now: float) -> None:
        member_id, instance_id = request.member_id, request.instance_id
        member = self.members.get(member_id)
        if instance_id is not None:
            member = self._static_owner(instance_id, member_id)
        elif member is None:
            raise self._unknown(member_id)
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=NONE,
            member_id=member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            # It will be back within its session: its partitions wait for it, those apart that it had to revoke.
            kept = {topic_id: dict.fromkeys(owned, 0) for topic_id, owned in member.assigned.items()}
            away = member.current()._replace(epoch=LEAVE_STATIC_EPOCH, assigned=kept, revoking={})
            self._put(records.CURRENT, member_id, away)
            member.has_revoked()
            out.append(
                MemberAway(generation=self.epoch, member=member.identity(), session_ms=self.session_timeout * 1000)
            )
        else:
            out.append(self._left(member, ""))
            self._remove([member], MemberLeft, [Reply(token, response)], out, now)
            return
        self._append([Reply(token, response)], out)

    def _left(self, member: ConsumerGroupMember, reason: str) -> MemberLeft:
        owned = self._by_name(member.owned())
        return MemberLeft(generation=self.epoch, member=member.identity(), client_reason=reason, owned=owned)

    def _remove(
        self, members: list[ConsumerGroupMember], cause: type[GroupEvent], replies: list[Reply], out: _Out, now: float
    ) -> None:
        """Remove members that leave; the group becomes classic if only members of that protocol remain."""
        if self._may_downgrade(members):
            self._downgrade(members, members, cause, replies, out, now)
            return
        self._drop(members, cause, out, now)
        self._append(replies, out)

    def _drop(self, members: list[ConsumerGroupMember], cause: type[GroupEvent], out: _Out, now: float) -> None:
        """Remove members: what they own is free, and the group epoch grows."""
        for member in members:
            for record_type in (records.CURRENT, records.TARGET, records.MEMBER):
                self._put(record_type, member.member_id, None)
            self._forget_regex(member.regex)
        self._bump(cause, members, out, now)
        if not self.members:
            # As in Kafka since 4.4: without members there is nothing to assign.
            self._put(records.TARGET_EPOCH, "", (self.epoch, self._wall_ms_of_target))
            out.append(GroupEmpty(generation=self.epoch))
        self._assign_without_heartbeats(now)

    # Migration from and to the classic protocol

    @classmethod
    def upgrading(
        cls,
        group_id: str,
        settings: ConsumerGroupSettings,
        generation: int,
        members: Iterable[ConsumerGroupMember],
        stable: bool,
        topics_version: int,
        leftover: Iterable[CoordinatorRecord],
        now: float,
    ) -> Steps[Self]:
        """Make a group of the members of a classic group: each owns what it was assigned, and that is its target.

        Its records, and the tombstone of the classic group, are appended with those of its next change, or before them
        with :meth:`migration_appended`. Until then it may be thrown away. One step makes some of the members.

        Args:
            group_id: the group's name.
            settings: of the coordinator.
            generation: of the classic group; it becomes the group epoch.
            members: with their epoch and what they own.
            stable: whether the classic group had assigned partitions to all its members.
            topics_version: of the topic catalog in which the partitions of the members were looked up.
            leftover: what deletes the group of this protocol that it was before, and is not in the log.
            now: the time.
        """
        group = cls(group_id, settings, now)
        epoch = max(generation, INITIAL_EPOCH)
        group.apply(records.TARGET_EPOCH, "", (epoch, 0))
        for number, member in enumerate(members, 1):
            target = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
            group.apply(records.MEMBER, member.member_id, member.description)
            group.apply(records.TARGET, member.member_id, target)
            group.apply(records.CURRENT, member.member_id, member.current())
            group._begin_session(member.member_id, now)
            if number % _MEMBERS_PER_STEP == 0:
                yield
        yield from settings.topics.hash_each([*group.subscriptions.named])
        group.apply(records.EPOCH, "", (epoch, group._hash))
        group._topics_version = settings.topics.version
        by_name = settings.topics.by_name
        wanted = sum(by_name[name].partitions for name in group.subscriptions.named if name in by_name)
        current = stable and topics_version == settings.topics.version
        group._assignment_due = not current or len(group._owners) < wanted
        keys = [(records.CLASSIC, "")]
        # A member that is gone could be in the log: it would come back with the next load.
        keys += [
            each
            for each in dict.fromkeys(records.named_in(leftover))
            if each[0] == records.REGEX or each[1] not in group.members
        ]
        if group.members:
            keys += [(records.MEMBER, member_id) for member_id in group.members]
            keys.append((records.EPOCH, ""))
            keys += [(records.TARGET, member_id) for member_id in group.members]
            keys.append((records.TARGET_EPOCH, ""))
            keys += [(records.CURRENT, member_id) for member_id in group.members]
        for number, key in enumerate(keys, 1):
            group._appends.migrated.append((key, group._record(*key)))
            if number % _RECORDS_PER_STEP == 0:
                yield
        return group

    @property
    def migration(self) -> list[CoordinatorRecord]:
        """The records that make a classic group this one, if they are not being appended yet."""
        return [record for _, record in self._appends.migrated]

    def migration_appended(self, batch: bytearray) -> Persist:
        """Append :attr:`migration` on its own, before what the group says next.

        Args:
            batch: the records.
        """
        return self._appends.begin_migrated(batch)

    def wait_for_log(self, replies: list[Reply]) -> list[ConsumerEffect]:
        """Send responses when everything that has been appended so far is in the log."""
        out: _Out = []
        self._append(replies, out)
        return out

    def _migration(self) -> int | None:
        """How many members use the classic protocol, for group events; None once that is over."""
        mixed, self._mixed = self._mixed, self._classic > 0
        return self._classic if mixed or self._mixed else None

    def _may_downgrade(self, gone: Collection[ConsumerGroupMember], joining: int = 0) -> bool:
        """Whether the group becomes classic without the members that are `gone`, of which `joining` are replaced."""
        rest = len(self.members) - len(gone)
        classic = self._classic - sum(1 for member in gone if member.classic is not None)
        size = rest + joining
        settings = self._settings
        return (
            classic == rest
            and 0 < size <= settings.classic_max_size
            and settings.migration.downgrades
            and self._bytes_of_downgrade() <= settings.max_migration_bytes
        )

    def _bytes_of_downgrade(self) -> int:
        """The most bytes of the records that make this group a classic one, which are appended together."""
        changed = 4 * RECORD_BYTES * len(self._appends.missing())
        return changed + sum(map(self._bytes_of, self.members.values()))

    def _bytes_of(self, member: ConsumerGroupMember) -> int:
        """The most bytes that a member takes in the record of a classic group, and in the tombstones of this one."""
        subscription = 0 if member.classic is None else max(len(metadata) for _, metadata in member.classic.protocols)
        assignment = 0
        by_id = self._settings.topics.by_id
        for topic_id, partitions in self.targets.get(member.member_id, {}).items():
            topic = by_id.get(topic_id)
            if topic is not None:
                assignment += 8 + len(topic.name) + 4 * len(partitions)
        names = 4 * len(member.member_id.encode()) + 3 * len(self.group_id.encode())
        names += len(member.client_id.encode()) + len(member.client_host.encode())
        names += len(member.instance_id.encode()) if member.instance_id is not None else 0
        return 4 * RECORD_BYTES + names + subscription + assignment

    def _downgrade(
        self,
        gone: list[ConsumerGroupMember],
        by: list[ConsumerGroupMember],
        cause: type[GroupEvent],
        replies: list[Reply],
        out: _Out,
        now: float,
        *,
        generation: int | None = None,
    ) -> None:
        """The last member of the consumer protocol is gone: a classic group takes the place of this one.

        It always rebalances, so that a member leads that watches the topics, and that members rejoin which wait for
        partitions.
        """
        why = "for member leaving" if gone else "with stale assignment"
        reason = f"Downgrade group {self.group_id} from consumer to classic {why}."
        ids = {member.member_id for member in gone}
        remaining = [member for member in self.members.values() if member.member_id not in ids]
        # What they wait for is in the log before what is appended now.
        waiting = [*self._appends.replies, *replies]
        for heartbeat in self._waiting():
            if heartbeat.member_id in ids or not heartbeat.classic:
                out.append(heartbeat.refusal(self._unknown(heartbeat.member_id)))
            else:
                out.append(heartbeat.refusal(KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)))
        generation = self.epoch if generation is None else generation
        out.append(Downgrade(generation, remaining, waiting, cause, by, reason))

    def owned_by(self, member: ConsumerGroupMember) -> dict[str, Collection[int]]:
        """The partitions that a member owns, by the names of the topics, without deleted ones."""
        return self._existing(member.owned())

    def ending(self) -> Steps[list[CoordinatorRecord]]:
        """The last records of a group that is downgraded: what is not yet written, and what deletes it."""
        ending: list[CoordinatorRecord] = []
        for record in chain((self._record(*key) for key in self._appends.missing()), self._tombstones()):
            ending.append(record)
            if len(ending) % _RECORDS_PER_STEP == 0:
                yield
        return ending

    # Time

    def next_deadline(self) -> float:
        """The earliest time at which :meth:`tick` has something to do; inf for never. Heartbeats do not change it."""
        if self._step_at != inf:
            return self._step_at  # What else is due waits for that millisecond, too.
        return min(self._deadlines.first, self._check_at)

    def _check_by(self, at: float) -> None:
        """Check the group as a whole at `at` at the latest."""
        self._check_at = min(self._check_at, at)

    def _check_member(self, member: ConsumerGroupMember) -> None:
        """Check a member at its deadline, which may have become earlier. A later one is seen when the time comes."""
        self._deadlines.check(member, min(self._deadline_of(member), member.warn_at))

    def _deadline_of(self, member: ConsumerGroupMember) -> float:
        """When a member is removed unless it is heard of, or does what it has to."""
        expires = member.last_seen + self._session_of(member)
        return min(expires, member.revoke_by, member.join_by, member.sync_by)

    def tick(self, now: float) -> list[ConsumerEffect]:
        """Let time pass: sessions expire, and members are removed that have not revoked their partitions in time."""
        out: _Out = []
        if now < self.next_deadline():
            return out
        self._step_at = inf
        if now >= self._check_at:
            self._check_at = inf
        if self._released.waits:
            if now >= self._released.until:
                self._released.release()
            else:
                self._check_by(self._released.until)
        gone: dict[type[GroupEvent], list[ConsumerGroupMember]] = {}
        for member in self._deadlines.due(now, _MEMBERS_PER_STEP):
            if self._deadline_of(member) > now:
                if member.warn_at <= now:
                    self._warn(member, out, now)
                self._check_member(member)
                continue
            session = self._session_of(member)
            epoch, identity = self.epoch, member.identity()
            heard_ago_ms = (now - member.last_seen) * 1000
            event: Departure
            if member.last_seen + session <= now:
                event = MemberExpired(
                    generation=epoch,
                    member=identity,
                    heard_ago_ms=heard_ago_ms,
                    session_ms=session * 1000,
                    owned=self._by_name(member.owned()),
                )
            elif member.revoke_by <= now:
                event = MemberNotRevoked(
                    generation=epoch,
                    member=identity,
                    waited_ms=(now - member.revoking_since) * 1000,
                    partitions=self._by_name(member.revoking),
                )
            else:
                late = MemberNotRejoined if member.join_by <= now else MemberNotSynced
                waited_ms = max(member.rebalance_timeout_ms, 0)
                event = late(generation=epoch, member=identity, heard_ago_ms=heard_ago_ms, waited_ms=waited_ms)
            gone.setdefault(type(event), []).append(member)
            out.append(event)
        everyone = [member for members in gone.values() for member in members]
        if everyone and self._may_downgrade(everyone):
            self._downgrade(everyone, everyone, next(iter(gone)), [], out, now)
            return out
        for cause in sorted(gone, key=_CAUSES.index):
            self._drop(gone[cause], cause, out, now)
        if 0 < len(self.members) == self._classic:
            if self._topics_changed():
                self._bump(TopicChanged, [], out, now)
            if self._may_assign(now):
                self._start_assignment([], out, now)
            self._assign_without_heartbeats(now)
        self._finish_some(out, now)
        if self._deadlines.first <= now:
            self._step_at = now + _STEP_SECONDS
        return out

    def expire(self, member_id: str, now: float) -> list[ConsumerEffect]:
        """End the session of a member now, as if its heartbeats had stopped."""
        member = self.members[member_id]
        member.last_seen = now - self._session_of(member) - _MOMENT
        self._check_member(member)
        return self.tick(now)

    def _warn(self, member: ConsumerGroupMember, out: _Out, now: float) -> None:
        """A member has been revoking partitions for long, which others may wait for."""
        member.warned(now)
        out.append(
            MemberStillRevoking(
                generation=self.epoch,
                member=member.identity(),
                waited_ms=(now - member.revoking_since) * 1000,
                timeout_ms=member.rebalance_timeout_ms,
                partitions=self._by_name(member.revoking),
            )
        )

    # The group's records

    def apply(self, record_type: int, name: str, content: Any) -> None:
        """Take over what a record says, at a load and after a decision alike. Nothing else changes this state.

        Args:
            record_type: one of those of :mod:`~barnabas_broker.groups.consumer.records`.
            name: the id of the member, or the regular expression; "" for the others.
            content: of the record; None for a tombstone. The group epoch, and the hash of the topics; the epoch of the
                targets, and the time of day; a :class:`.Description`, target, :class:`.CurrentAssignment` or
                :class:`.ResolvedRegex`.
        """
        match record_type:
            case records.EPOCH:
                self.epoch, self.metadata_hash = content
            case records.TARGET_EPOCH:
                self.assignment_epoch, self._wall_ms_of_target = content
            case records.MEMBER:
                self._describe(name, content)
            case records.CURRENT:
                self._assign(self.members[name], content)
            case records.REGEX:
                self.subscriptions.match(name, content)
            case records.TARGET if content is None:
                self.targets.pop(name, None)
            case records.TARGET:
                self.targets[name] = content

    def _put(self, record_type: int, name: str, content: Any) -> None:
        """Decide on a record: apply it, and append it with the others of this call."""
        self.apply(record_type, name, content)
        self._appends.changed[record_type, name] = None

    def _describe(self, member_id: str, description: Description | None) -> None:
        """Add, change or remove a member, and count what it subscribes to."""
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerGroupMember(member_id, -inf)
            self._update_lag(member)
        before = member.description
        after = Description() if description is None else description
        if after.topics is not before.topics:
            after = after._replace(topics=self.subscriptions.shared(after.topics))
        self.subscriptions.change(before, after)
        if before.classic != after.classic:
            self._count_classic(before.classic, -1)
            self._count_classic(after.classic, 1)
        if description is not None:
            member.describe(after)
            if after.instance_id is not None:
                self.static[after.instance_id] = member_id
            return
        del self.members[member_id]
        self._lagging.discard(member_id)
        if before.instance_id is not None and self.static.get(before.instance_id) == member_id:
            del self.static[before.instance_id]

    def _assign(self, member: ConsumerGroupMember, current: CurrentAssignment | None) -> None:
        """Set what a member owns, and what follows from it: who owns each partition."""
        before = member.assigned, member.revoking
        if current is None:
            member.assigned = member.revoking = {}
        else:
            member.state, member.epoch, member.previous_epoch, member.assigned, member.revoking = current
        self._owners.change(member, *before)
        if not member.revoking and self._released.has_revoked(member.member_id):
            self._step_at = self._assigned_at  # at once
        self._update_lag(member)

    def _begin_session(self, member_id: str, now: float) -> None:
        """The session of a member that was loaded or migrated begins."""
        member = self.members[member_id]
        member.last_seen = now
        self._check_member(member)

    def _append(self, replies: list[Reply], out: _Out) -> None:
        """Append what has changed, and respond when it is in the log: at once if nothing is being appended."""
        if begun := self._appends.begin(self._record):
            self.recorded = True
            out += begun
        out += self._appends.wait(replies)

    def persisted(self, ticket: int, error: ErrorCode, now: float) -> list[ConsumerEffect]:
        """The result of a :class:`~barnabas_broker.groups.effects.Persist`. Stale tickets are ignored."""
        if ticket not in self._appends:
            return []
        if error == NONE:
            return [*self._appends.succeeded(ticket)]
        return [PersistFailed(generation=self.epoch, error=error.name), *self._appends.failed(ticket, error)]

    def persist_delayed(self, ticket: int, now: float) -> list[ConsumerEffect]:
        """An append takes long: requests that wait for it are refused. It may still succeed, and nothing is undone."""
        return [*self._appends.delayed(ticket)] if ticket in self._appends else []

    def _record(self, record_type: int, member_id: str) -> CoordinatorRecord:
        """The record for what the group knows now; a tombstone if that is nothing."""
        group_id = self.group_id
        match record_type:
            case records.CURRENT:
                return records.current_record(group_id, member_id, self.members.get(member_id))
            case records.CLASSIC:
                return GroupMetadataKey(group=group_id), None
            case records.EPOCH:
                return records.epoch_record(group_id, self.epoch, self.metadata_hash)
            case records.TARGET_EPOCH:
                return records.target_epoch_record(group_id, self.assignment_epoch, self._wall_ms_of_target)
            case records.MEMBER:
                return records.member_record(group_id, member_id, self.members.get(member_id))
            case records.REGEX:
                return records.regex_record(group_id, member_id, self.subscriptions.resolved.get(member_id))
        target = self.targets.get(member_id)
        made = self._target_records.get(member_id)
        if made is not None and made[0] is target:
            return made[1]
        return target_record(group_id, member_id, target)

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete the group, in Kafka's order; with those that are being appended, or could not be."""
        return [*self._tombstones()]

    def _tombstones(self) -> Iterator[CoordinatorRecord]:
        group_id = self.group_id
        pending = [*self._appends.pending()]
        if any(record_type == records.CLASSIC for record_type, _ in pending):
            yield self._record(records.CLASSIC, "")  # The log may still have the classic group that it was.
        gone = [
            name for record_type, name in pending if record_type in (records.MEMBER, records.TARGET, records.CURRENT)
        ]
        ids = list(dict.fromkeys((*self.members, *gone)))
        regexes = dict.fromkeys(
            (*self.subscriptions.resolved, *(name for record_type, name in pending if record_type == records.REGEX))
        )
        yield from records.tombstones(group_id, ids, regexes)

    @classmethod
    def restore(
        cls, group_id: str, settings: ConsumerGroupSettings, replayed: ReplayedGroup, now: float, wall_ms: int
    ) -> Self:
        """Make a group from its records at once; see :meth:`restoring`."""
        return finish(cls.restoring(group_id, settings, replayed, now, wall_ms))

    @classmethod
    def restoring(
        cls, group_id: str, settings: ConsumerGroupSettings, replayed: ReplayedGroup, now: float, wall_ms: int
    ) -> Steps[Self]:
        """Make a group from its records: every member has a full session, and a full rebalance timeout.

        One step makes some of the members.

        Args:
            group_id: from the records' keys.
            settings: of the coordinator.
            replayed: the records.
            now: the time.
            wall_ms: the time of day, in ms since 1970.
        """
        group = cls(group_id, settings, now)
        group.recorded = True
        read = 0
        for record_type in records.ORDER:
            for name, value in replayed.get(record_type, {}).items():
                read += 1
                if read % (3 * _MEMBERS_PER_STEP) == 0:
                    yield
                known: Container[str] = group.members
                if record_type == records.REGEX:
                    known = group.subscriptions.regexes
                if record_type in records.OF_OTHERS and name not in known:
                    # Left over, as the record of a member was lost: one that comes back does not get what it had.
                    group._appends.unwritten[record_type, name] = None
                else:
                    group.apply(record_type, name, records.content_of(value))
                if record_type == records.MEMBER:
                    group._begin_session(name, now)
        if group._wall_ms_of_target > 0:
            # A clock that went back must not stop the group: no target is from the future.
            group._assigned_at = min(now, now - (wall_ms - group._wall_ms_of_target) / 1000)
        for member in group.members.values():
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                group._must_revoke(member, now)
        for claim in superseded(group.members.values()):
            group.apply(records.CURRENT, claim.member.member_id, claim.left())
            group._appends.unwritten[records.CURRENT, claim.member.member_id] = None
            group._owners.give(claim.topic_id, claim.partition, claim.by.member_id)
        subscriptions = group.subscriptions
        for matched in subscriptions.resolved.values():
            # The version is that of another process: topics may have been created since, so that it does not count.
            at = min(now, now - (wall_ms - matched.timestamp_ms) / 1000)
            subscriptions.refreshed_at = max(subscriptions.refreshed_at, at)
        # One of them may just have changed it.
        group._unsubscribed = any(
            each.regex and each.regex not in subscriptions.resolved for each in group.members.values()
        )
        newest = max([group.assignment_epoch, *(member.epoch for member in group.members.values())])
        # A member whose regular expression has not matched anything yet has no target.
        without_target = any(
            group.subscription(each) and each.member_id not in group.targets for each in group.members.values()
        )
        current = newest == group.epoch
        if newest > group.epoch or (
            current
            and (without_target or not targets_fit(group.targets.values(), subscriptions.named, settings.topics))
        ):
            # A damaged disk has lost some of the records. The members can only agree on a new epoch.
            group.apply(records.EPOCH, "", (newest + 1, group.metadata_hash))
            group._appends.unwritten[records.EPOCH, ""] = None
        group._assign_without_heartbeats(now)
        return group

    # What the group's committed offsets depend on

    def check_commit(self, member_id: str, epoch: int, version: int) -> ErrorCode:
        """Whether a member may commit offsets; with an older epoch :meth:`check_commit_of` decides for each partition.

        Args:
            member_id: of the request.
            epoch: its member epoch, -1 without one.
            version: of OffsetCommit; before version 9 it does not know member epochs.
        """
        if self._dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if epoch < 0 and not self.members:
            return NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version < _MEMBER_EPOCHS and member.classic is None:
            return ErrorCode.UNSUPPORTED_VERSION
        return NONE if epoch <= member.epoch else _stale(member)

    def check_transactional_commit(self, member_id: str, instance_id: str | None, epoch: int) -> ErrorCode:
        """Whether a transaction may commit offsets; a member is checked if the request names one."""
        if epoch == -1 and not member_id and instance_id is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if self._dead else NONE
        return self.check_commit(member_id, epoch, _MEMBER_EPOCHS)

    def epoch_is_older(self, member_id: str, epoch: int) -> bool:
        """Whether a member commits with an epoch that is not its current one any more."""
        member = self.members.get(member_id)
        return member is not None and epoch < member.epoch

    def check_commit_of(self, member_id: str, epoch: int, topic: str, partition: int) -> ErrorCode:
        """Whether a member may commit a partition: it has its current epoch, or has owned it since then (KIP-1251)."""
        member = self.members.get(member_id)
        if member is None or member.epoch == epoch:
            return NONE
        known = self._settings.topics.by_name.get(topic)
        since = None if known is None else member.assignment_epoch(known.topic_id, partition)
        return NONE if since is not None and epoch >= since else _stale(member)

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether a member may fetch committed offsets; clients that are no members may, too."""
        if member_id is None and epoch < 0:
            return NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return NONE if member.epoch == epoch else _stale(member)

    @property
    def offsets_may_expire(self) -> bool:
        """Whether offsets may expire now."""
        return True

    @property
    def empty_since(self) -> float | None:
        """When the retention of offsets starts: with each commit."""
        return None

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to `topic`: its offsets must not be removed."""
        return self.subscriptions.include(topic)

    # The end

    def unload(self, now: float) -> list[ConsumerEffect]:
        """Another broker becomes the coordinator: deferred requests fail with NOT_COORDINATOR, the group is Dead."""
        error = KafkaError(ErrorCode.NOT_COORDINATOR)
        replies = [failed(reply, error) for reply in self._appends.replies]
        replies += [heartbeat.refusal(error) for heartbeat in self._waiting()]
        self.mark_dead(now)
        return [*replies]

    def mark_dead(self, now: float) -> None:
        """The group was deleted or has expired."""
        self._dead = True
        self._appends.clear()
        self._computation = None
        self._resolving = None
        self._released.clear()
        self._deadlines.clear()
        self._check_at = self._step_at = inf

    def _waiting(self) -> list[Heartbeat]:
        """The heartbeats that wait for a target, for others, or to go on with the target that there is."""
        waiting = () if self._computation is None else self._computation.waiting
        return [*self._released, *waiting]


def _stale(member: ConsumerGroupMember) -> ErrorCode:
    """The error of a request about offsets with another epoch than the member's."""
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _protocol_of(member: ConsumerGroupMember) -> str | None:
    """The protocol of a member that joins, for group events, if it is not that of the group."""
    return None if member.classic is None else "classic"


def _reported(request: ConsumerGroupHeartbeatRequest) -> Target | None:
    """The partitions that a heartbeat reports as owned; None if it reports none, because nothing has changed."""
    if request.topic_partitions is None:
        return None
    reported: dict[bytes, frozenset[int]] = {}
    for topic in request.topic_partitions:
        if not topic.partitions:
            continue
        topic_id = bytes(topic.topic_id)
        reported[topic_id] = reported.get(topic_id, frozenset()).union(topic.partitions)
    return reported
