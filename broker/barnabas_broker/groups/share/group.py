"""The state machine of a share group: members, epochs, assignment, and which share partitions have a state. Pure.

How it works. A heartbeat joins, changes or keeps a member. When a subscription, a topic, or the set of partitions with
a state changes, the group epoch grows, and the heartbeat assigns anew (:mod:`~barnabas_broker.groups.share.assignor`).
Several members may have a partition, so that nothing has to be revoked first: a member gets its target, and with it the
epoch of the assignment, with its next heartbeat.

Only partitions are assigned whose state the share coordinator has created. :attr:`ShareGroup.missing` are the others;
the shell creates their states and reports with :meth:`ShareGroup.initialized`.

A decision changes nothing; :meth:`ShareGroup.apply` takes over its records, after the append and at a load alike. Only
the deadlines of sessions are not in the log.

Source: Kafka's ``ShareGroup`` and ``GroupMetadataManager.shareGroupHeartbeat``.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from typing import Any, Final, NamedTuple

from barnabas_broker.coordinators.result import Result
from barnabas_broker.groups.consumer.topics import NO_TOPICS, TopicCatalog
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.share.assignor import NAME, Partitions, assign
from barnabas_explain.catalog import (
    EpochBumped,
    GroupDeleted,
    GroupEmpty,
    GroupEvent,
    GroupReconciled,
    MemberEvent,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    ShareOffsetsAltered,
    SharePartitionsOpened,
    SubscriptionChanged,
    TargetAssigned,
    TopicChanged,
)
from barnabas_explain.members import MOST_MEMBERS, Member, Move, moves_of
from barnabas_protocol.coordinator_records import (
    CoordinatorRecord,
    CurrentShareTopicPartitions,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TargetTopicPartition,
    TopicPartitionsInfo,
)
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.share_group_heartbeat import (
    ShareAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareTopicPartitions,
)
from barnabas_protocol.wire import MAX_STRING

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
#: Characters of a member id, as in Kafka.
MAX_MEMBER_ID: Final = 36
#: The epoch of a group without members so far.
INITIAL_EPOCH: Final = 1
#: Seconds by which the end of a session is postponed while a change of the group is under way.
_POSTPONED: Final = 0.5
#: Bytes of a subscription in a record, estimated.
_MOST_BYTES: Final = 256 * 1024


class ShareGroupTimes(NamedTuple):
    """Timeouts of a group.

    Attributes:
        session: seconds without a heartbeat after which a member is removed.
        heartbeat_ms: ms between two heartbeats of a member.
    """

    session: float
    heartbeat_ms: int


@dataclass(frozen=True)
class ShareGroupSettings:
    """Settings of all share groups of a coordinator.

    Attributes:
        topics: the topics of the cluster.
        times: the timeouts of a group, by its id.
        max_size: members of a group at most.
    """

    topics: TopicCatalog
    times: Callable[[str], ShareGroupTimes]
    max_size: int


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member.

    Attributes:
        member_id: its id, which it has chosen.
        rack_id: where it runs.
        client_id: of its client.
        client_host: the address of its client, as Kafka prints it.
        topics: the names that it subscribes to.
        epoch: the epoch of its assignment.
        previous_epoch: the one before that.
        assigned: its partitions.
    """

    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    assigned: Partitions = field(default_factory=dict)

    @property
    def identity(self) -> Member:
        """The member, as its events name it."""
        return Member(self.member_id, self.client_id, self.client_host)


Decision = Result[CoordinatorRecord, Any, GroupEvent]

#: Topics with partitions: the name by id, and the partitions by id.
StateTopics = dict[bytes, tuple[str, frozenset[int]]]


class ShareGroup:
    """The state machine of a share group.

    Args:
        group_id: its id.
        settings: of all share groups.

    Attributes:
        group_id: its id.
        epoch: the group epoch; 0 if the group is not in the log.
        metadata_hash: of the topics that members subscribe to, at that epoch.
        assignment_epoch: the group epoch of the targets.
        members: by id.
        targets: the target assignment of each member.
        initializing: share partitions whose states are being created.
        initialized: share partitions that have a state.
    """

    def __init__(self, group_id: str, settings: ShareGroupSettings) -> None:
        self.group_id = group_id
        self._settings = settings
        self.epoch = 0
        self.metadata_hash = NO_TOPICS
        self.assignment_epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.initializing: StateTopics = {}
        self.initialized: StateTopics = {}
        #: When the group epoch grew, or the group was loaded.
        self._bumped_at = 0.0
        #: When the session of each member ends.
        self._deadlines: dict[str, float] = {}

    @property
    def gone(self) -> bool:
        """Whether nothing about the group is in the log."""
        return not self.epoch and not self.members

    @property
    def state(self) -> str:
        """The state, as Kafka names it."""
        return "Dead" if self.gone else "Stable" if self.members else "Empty"

    # Requests

    def heartbeat(self, request: ShareGroupHeartbeatRequest, caller: Caller, now: float) -> Decision:
        """ShareGroupHeartbeat: joins, changes, keeps or removes a member."""
        try:
            check_heartbeat(request)
            member = self._member(request)
        except KafkaError as error:
            return Result(response=heartbeat_error(error))
        if request.member_epoch == LEAVE_EPOCH:
            response = ShareGroupHeartbeatResponse(
                error_code=ErrorCode.NONE,
                member_id=request.member_id,
                member_epoch=LEAVE_EPOCH,
                heartbeat_interval_ms=0,
                throttle_time_ms=0,
            )
            left = MemberLeft(generation=self.epoch, member=self.members[request.member_id].identity)
            return self._without([request.member_id], [left], response, now)
        return self._keep(request, caller, member, now)

    def _member(self, request: ShareGroupHeartbeatRequest) -> ShareMember | None:
        """The member of a heartbeat; None for a new one.

        Raises:
            KafkaError: it may not go on.
        """
        member = self.members.get(request.member_id)
        epoch = request.member_epoch
        if epoch == JOIN_EPOCH:
            if member is None and len(self.members) >= self._settings.max_size:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {self._settings.max_size} members.",
                )
            return member
        if self.gone:
            what = "Group" if epoch == LEAVE_EPOCH else "Share group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {self.group_id} not found.")
        if member is None:
            text = f"Member {request.member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
        if epoch in (LEAVE_EPOCH, member.epoch, member.previous_epoch):
            return member
        how, other = "greater", ""
        if epoch < member.epoch:
            how, other = "smaller", f", and it does not match the previous member epoch ({member.previous_epoch})"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}){other}. The member must abandon all its partitions and rejoin.",
        )

    def _keep(
        self, request: ShareGroupHeartbeatRequest, caller: Caller, known: ShareMember | None, now: float
    ) -> Decision:
        """Update a member, and assign if that is due."""
        names = request.subscribed_topic_names
        before = known or ShareMember(request.member_id, None, caller.client_id, caller.host, frozenset())
        member = replace(
            before,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            client_id=caller.client_id,
            client_host=caller.host,
            topics=before.topics if names is None else frozenset(names),
        )
        records: list[CoordinatorRecord] = []
        events: list[GroupEvent] = []
        cause: type[GroupEvent] | None = None
        if known is None:
            cause = MemberJoined
            session_ms = self._times().session * 1000
            events.append(MemberJoined(generation=self.epoch, member=member.identity, session_ms=session_ms))
        elif member.topics != before.topics:
            cause = SubscriptionChanged
        if known is None or member != before:
            records.append(self._metadata(member))
        members = {**self.members, member.member_id: member}
        epoch, digest = self.epoch or INITIAL_EPOCH, self._hash(members.values())
        due = epoch > self.assignment_epoch
        if cause is None and digest != self.metadata_hash:
            cause = TopicChanged
        elif cause is None and not due and self._is_stale(members):
            cause = SharePartitionsOpened
        if cause is not None:
            epoch += 1
            self._bumped_at = now
            records.append(_record(ShareGroupMetadataKey(group_id=self.group_id), _epoch(epoch, digest)))
            by = (member.identity,) if issubclass(cause, MemberEvent) else ()
            events.append(EpochBumped(generation=epoch, cause=cause.type, by=by, members=len(members)))
        assignment_epoch = self.assignment_epoch
        targets: Mapping[str, Partitions] = self.targets
        if epoch > assignment_epoch:
            targets = self._assign(members, epoch, records)
            assignment_epoch = epoch
            moves = self._moves(members, targets)
            events.append(
                TargetAssigned(generation=epoch, assignor=NAME, took_ms=0.0, members=len(members), moves=moves)
            )
        target = targets.get(member.member_id, {})
        moved = member.epoch != assignment_epoch
        if moved:
            member = replace(member, epoch=assignment_epoch, previous_epoch=member.epoch, assigned=target)
            records.append(self._current(member))
            if all(each.epoch == assignment_epoch for each in {**members, member.member_id: member}.values()):
                took_ms = (now - self._bumped_at) * 1000
                events.append(GroupReconciled(generation=assignment_epoch, took_ms=took_ms, members=len(members)))
        self._deadlines[member.member_id] = now + self._times().session
        response = ShareGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._times().heartbeat_ms,
            throttle_time_ms=0,
        )
        # As in Kafka: to a member that joins, that says everything about itself, or whose assignment is new.
        if request.member_epoch != member.epoch or names is not None or moved:
            response.assignment = ShareAssignment(
                topic_partitions=[
                    ShareTopicPartitions(topic_id=topic_id, partitions=list(numbers))
                    for topic_id, numbers in member.assigned.items()
                ]
            )
        return Result(records, response, events)

    def delete(self) -> Decision:
        """Delete the group, whose share partitions have no states any more."""
        if self.members:
            return Result(response=ErrorCode.NON_EMPTY_GROUP)
        name = self.group_id
        records: list[CoordinatorRecord] = [
            (ShareGroupTargetAssignmentMetadataKey(group_id=name), None),
            (ShareGroupStatePartitionMetadataKey(group_id=name), None),
            (ShareGroupMetadataKey(group_id=name), None),
        ]
        return Result(records, ErrorCode.NONE, (GroupDeleted(generation=self.epoch, offsets=0),))

    # Share partitions

    @property
    def missing(self) -> StateTopics:
        """The partitions of topics to which members subscribe, and which have no state."""
        by_name, found = self._settings.topics.by_name, {}
        for name in sorted(set().union(*(member.topics for member in self.members.values()))):
            topic = by_name.get(name)
            if topic is None:
                continue
            _, has = self.initialized.get(topic.topic_id, ("", frozenset()))
            if len(has) < topic.partitions:
                found[topic.topic_id] = name, frozenset(range(topic.partitions)) - has
        return found

    def begin(self, topics: StateTopics) -> Decision:
        """The states of share partitions are going to be created, or begun anew."""
        return Result((self._states(_joined(self.initializing, topics), self.initialized),), ErrorCode.NONE)

    def begin_again(self, topics: StateTopics) -> Decision:
        """The states of share partitions are going to be begun anew at other offsets: in a new epoch, which fences what
        leaders write that have read the old state."""
        if self.members:
            return Result(response=ErrorCode.NON_EMPTY_GROUP)
        epoch = _record(ShareGroupMetadataKey(group_id=self.group_id), _epoch(self.epoch + 1, self.metadata_hash))
        states = self._states(_joined(self.initializing, topics), self.initialized)
        altered = ShareOffsetsAltered(generation=self.epoch, partitions=_by_name(topics))
        bumped = EpochBumped(generation=self.epoch + 1, cause=altered.type, by=(), members=0)
        return Result((epoch, states), ErrorCode.NONE, (altered, bumped))

    def have_states(self, topics: StateTopics) -> Decision:
        """The states of share partitions have been created."""
        initializing, opened = _without(self.initializing, topics), _without(topics, self.initialized)
        events = (SharePartitionsOpened(generation=self.epoch, partitions=_by_name(opened)),) if opened else ()
        return Result((self._states(initializing, _joined(self.initialized, topics)),), ErrorCode.NONE, events)

    def have_no_states(self, topic_ids: Collection[bytes]) -> Decision:
        """The topics are deleted, or the states of their share partitions are."""
        left = [
            {topic_id: each for topic_id, each in topics.items() if topic_id not in topic_ids}
            for topics in (self.initializing, self.initialized)
        ]
        if left == [self.initializing, self.initialized]:
            return Result(response=ErrorCode.NONE)
        return Result((self._states(*left),), ErrorCode.NONE)

    # Time

    def next_deadline(self) -> float:
        """When the next session ends."""
        return min(self._deadlines.values(), default=inf)

    def expire(self, now: float) -> Decision:
        """Remove the members whose sessions have ended."""
        session = self._times().session
        for member_id in [each for each, deadline in self._deadlines.items() if deadline <= now]:
            if member_id not in self.members:
                del self._deadlines[member_id]  # its join could not be written
        late = [member_id for member_id in self.members if self._deadlines.get(member_id, inf) <= now]
        events: list[GroupEvent] = [
            MemberExpired(
                generation=self.epoch,
                member=self.members[member_id].identity,
                heard_ago_ms=(now - self._deadlines[member_id] + session) * 1000,
                session_ms=session * 1000,
            )
            for member_id in late
        ]
        return self._without(late, events, None, now) if late else Result()

    def end_session(self, member_id: str, now: float) -> None:
        """Let the session of a member end now."""
        if member_id in self.members:
            self._deadlines[member_id] = now

    def postpone(self, now: float) -> None:
        """Members whose sessions have ended stay a moment longer: a change of the group is under way."""
        for member_id, deadline in self._deadlines.items():
            if deadline <= now:
                self._deadlines[member_id] = now + _POSTPONED

    def restored(self, now: float) -> None:
        """The group was loaded: all sessions begin anew."""
        session, self._bumped_at = self._times().session, now
        self._deadlines = dict.fromkeys(self.members, now + session)

    def _without(
        self,
        gone: Collection[str],
        events: Iterable[GroupEvent],
        response: ShareGroupHeartbeatResponse | None,
        now: float,
    ) -> Decision:
        """Remove members; the others are assigned anew with their next heartbeats."""
        self._bumped_at = now
        records: list[CoordinatorRecord] = []
        for key in (
            ShareGroupCurrentMemberAssignmentKey,
            ShareGroupTargetAssignmentMemberKey,
            ShareGroupMemberMetadataKey,
        ):
            records += [(key(group_id=self.group_id, member_id=member_id), None) for member_id in gone]
        members = [member for member_id, member in self.members.items() if member_id not in gone]
        value = _epoch(self.epoch + 1, self._hash(members))
        records.append(_record(ShareGroupMetadataKey(group_id=self.group_id), value))
        published = list(events)
        by = tuple(self.members[member_id].identity for member_id in gone)
        published.append(EpochBumped(generation=self.epoch + 1, cause=published[0].type, by=by, members=len(members)))
        if not members:
            published.append(GroupEmpty(generation=self.epoch + 1))
        return Result(records, response, published)

    # Assignment

    def _assignable(self, members: Iterable[ShareMember]) -> dict[bytes, frozenset[int]]:
        """The partitions that have a state and a subscriber."""
        wanted = self._ids(frozenset().union(*(member.topics for member in members)))
        return {
            topic_id: numbers for topic_id, (_, numbers) in self.initialized.items() if topic_id in wanted and numbers
        }

    def _is_stale(self, members: Mapping[str, ShareMember]) -> bool:
        """Whether partitions have got or lost their states since the last assignment, or topics are deleted."""
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, numbers in target.items():
                assigned.setdefault(topic_id, set()).update(numbers)
        return assigned != self._assignable(members.values())

    def _assign(
        self, members: Mapping[str, ShareMember], epoch: int, records: list[CoordinatorRecord]
    ) -> Mapping[str, Partitions]:
        """Compute the targets, and add the records of those that have changed."""
        ids: dict[frozenset[str], frozenset[bytes]] = {}
        subscriptions = {}
        for member_id, member in sorted(members.items()):
            if member.topics not in ids:
                ids[member.topics] = self._ids(member.topics)
            subscriptions[member_id] = ids[member.topics]
        partitions = {topic_id: sorted(each) for topic_id, each in self._assignable(members.values()).items()}
        targets = assign(subscriptions, partitions, self.targets)
        for member_id, target in targets.items():
            if self.targets.get(member_id) != target:
                records.append(
                    _record(
                        ShareGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=member_id),
                        ShareGroupTargetAssignmentMemberValue(
                            topic_partitions=[
                                TargetTopicPartition(topic_id=topic_id, partitions=list(numbers))
                                for topic_id, numbers in target.items()
                            ]
                        ),
                    )
                )
        records.append(
            _record(
                ShareGroupTargetAssignmentMetadataKey(group_id=self.group_id),
                ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
            )
        )
        return targets

    def _moves(self, members: Mapping[str, ShareMember], targets: Mapping[str, Partitions]) -> tuple[Move, ...]:
        """The partitions that members gain and lose, as far as an event lists them."""
        changed = (each for each in members if targets.get(each, {}) != self.targets.get(each, {}))
        some = list(islice(changed, MOST_MEMBERS))
        had, has = (
            {
                each: {
                    (self.initialized[topic_id][0], number)
                    for topic_id, numbers in of.get(each, {}).items()
                    if topic_id in self.initialized
                    for number in numbers
                }
                for each in some
            }
            for of in (self.targets, targets)
        )
        return moves_of({each: members[each].identity for each in some}, had, has)

    def _ids(self, names: frozenset[str]) -> frozenset[bytes]:
        return self._settings.topics.ids_of(names)

    def _hash(self, members: Iterable[ShareMember]) -> int:
        names = dict.fromkeys(sorted(frozenset().union(*(member.topics for member in members))))
        return self._settings.topics.hash_of(names.keys())

    def _times(self) -> ShareGroupTimes:
        return self._settings.times(self.group_id)

    # Records

    def _metadata(self, member: ShareMember) -> CoordinatorRecord:
        return _record(
            ShareGroupMemberMetadataKey(group_id=self.group_id, member_id=member.member_id),
            ShareGroupMemberMetadataValue(
                rack_id=member.rack_id,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics),
            ),
        )

    def _current(self, member: ShareMember) -> CoordinatorRecord:
        return _record(
            ShareGroupCurrentMemberAssignmentKey(group_id=self.group_id, member_id=member.member_id),
            ShareGroupCurrentMemberAssignmentValue(
                member_epoch=member.epoch,
                previous_member_epoch=member.previous_epoch,
                state=0,
                assigned_partitions=[
                    CurrentShareTopicPartitions(topic_id=topic_id, partitions=list(numbers))
                    for topic_id, numbers in member.assigned.items()
                ],
            ),
        )

    def _states(self, initializing: StateTopics, initialized: StateTopics) -> CoordinatorRecord:
        def written(topics: StateTopics) -> list[TopicPartitionsInfo]:
            return [
                TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
                for topic_id, (name, numbers) in sorted(topics.items())
            ]

        return _record(
            ShareGroupStatePartitionMetadataKey(group_id=self.group_id),
            ShareGroupStatePartitionMetadataValue(
                initializing_topics=written(initializing), initialized_topics=written(initialized), deleting_topics=[]
            ),
        )

    def apply(self, record: CoordinatorRecord) -> None:
        """Take over a record."""
        match record:
            case (ShareGroupMetadataKey(), ShareGroupMetadataValue() as value):
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case (ShareGroupMetadataKey(), None):
                self.epoch, self.metadata_hash = 0, NO_TOPICS
            case (ShareGroupMemberMetadataKey() as key, ShareGroupMemberMetadataValue() as value):
                self._described(key.member_id, value)
            case (ShareGroupMemberMetadataKey() as key, None):
                self.members.pop(key.member_id, None)
                self._deadlines.pop(key.member_id, None)
            case (ShareGroupTargetAssignmentMetadataKey(), ShareGroupTargetAssignmentMetadataValue() as value):
                self.assignment_epoch = value.assignment_epoch
            case (ShareGroupTargetAssignmentMetadataKey(), None):
                self.assignment_epoch = 0
            case (ShareGroupTargetAssignmentMemberKey() as key, ShareGroupTargetAssignmentMemberValue() as value):
                self.targets[key.member_id] = _partitions(value.topic_partitions)
            case (ShareGroupTargetAssignmentMemberKey() as key, None):
                self.targets.pop(key.member_id, None)
            case (ShareGroupCurrentMemberAssignmentKey() as key, ShareGroupCurrentMemberAssignmentValue() as value):
                # After compaction the member's description may come later.
                self.members[key.member_id] = replace(
                    self.members.get(key.member_id) or ShareMember(key.member_id, None, "", "", frozenset()),
                    epoch=value.member_epoch,
                    previous_epoch=value.previous_member_epoch,
                    assigned=_partitions(value.assigned_partitions),
                )
            case (ShareGroupStatePartitionMetadataKey(), ShareGroupStatePartitionMetadataValue() as value):
                self.initializing, self.initialized = (
                    _topics(value.initializing_topics),
                    _topics(value.initialized_topics),
                )
            case (ShareGroupStatePartitionMetadataKey(), None):
                self.initializing, self.initialized = {}, {}

    def _described(self, member_id: str, value: ShareGroupMemberMetadataValue) -> None:
        """Take over what a member says about itself."""
        known = self.members.get(member_id)
        names = frozenset(value.subscribed_topic_names)
        member = ShareMember(member_id, value.rack_id, value.client_id, value.client_host, names)
        if known is not None:
            epochs = known.epoch, known.previous_epoch
            member = replace(member, epoch=epochs[0], previous_epoch=epochs[1], assigned=known.assigned)
        self.members[member_id] = member


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Check what a heartbeat says, as far as that does not depend on its group.

    Raises:
        KafkaError: INVALID_REQUEST, or UNKNOWN_SERVER_ERROR for a record that is too large.
    """
    for name, text in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if text is not None and not text.strip():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
        if text is not None and len(text.encode()) > MAX_STRING:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is too long.")
    if len(request.member_id) > MAX_MEMBER_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"MemberId can't be longer than {MAX_MEMBER_ID} characters.")
    names = request.subscribed_topic_names
    if request.member_epoch == JOIN_EPOCH and not names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if names is not None and sum(map(len, names)) + 4 * len(names) > _MOST_BYTES:
        # A character takes up to four bytes. Kafka notices that the record is too large when it writes it.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The subscription is larger than a record allows.")


def heartbeat_error(error: KafkaError) -> ShareGroupHeartbeatResponse:
    """A failed ShareGroupHeartbeat."""
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=error.message or None,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


def _record(key: Any, value: Any) -> CoordinatorRecord:
    return key, value


def _epoch(epoch: int, digest: int) -> ShareGroupMetadataValue:
    return ShareGroupMetadataValue(epoch=epoch, metadata_hash=digest)


def _partitions(
    topics: Iterable[TargetTopicPartition] | Iterable[CurrentShareTopicPartitions],
) -> dict[bytes, tuple[int, ...]]:
    return {bytes(topic.topic_id): tuple(topic.partitions) for topic in topics}


def _topics(topics: Iterable[TopicPartitionsInfo]) -> StateTopics:
    return {bytes(each.topic_id): (each.topic_name, frozenset(each.partitions)) for each in topics}


def _joined(some: StateTopics, more: StateTopics) -> StateTopics:
    return {
        topic_id: (
            (more.get(topic_id) or some[topic_id])[0],
            some.get(topic_id, ("", frozenset()))[1] | more.get(topic_id, ("", frozenset()))[1],
        )
        for topic_id in some | more
    }


def _without(some: StateTopics, less: StateTopics) -> StateTopics:
    left = {
        topic_id: (name, numbers - less.get(topic_id, ("", frozenset()))[1])
        for topic_id, (name, numbers) in some.items()
    }
    return {topic_id: each for topic_id, each in left.items() if each[1]}


def _by_name(topics: StateTopics) -> dict[str, list[int]]:
    """The partitions by the names of their topics."""
    return {name: sorted(numbers) for _, (name, numbers) in sorted(topics.items())}
