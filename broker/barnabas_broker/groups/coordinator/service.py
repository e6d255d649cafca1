"""The group coordinator: the requests about groups, and the partitions of ``__consumer_offsets``. A shell.

The rules of the protocol are in the pure machines. The coordinator finds a request's group, calls its machine, carries
out the effects (:mod:`~barnabas_broker.groups.coordinator.hosting`), and loads and unloads partitions
(:mod:`~barnabas_broker.groups.coordinator.loading`). Each request method returns a response or a future of one, in the
shape of the request's version.

Source: Kafka's ``GroupCoordinatorService``.
"""

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final
from uuid import uuid4

from barnabas_broker.config import Config
from barnabas_broker.config.keys import (
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    OFFSET_METADATA_MAX_BYTES,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    OFFSETS_RETENTION_MINUTES,
    OFFSETS_TOPIC_NUM_PARTITIONS,
)
from barnabas_broker.groups.classic.group import APPEND_ERRORS, Caller, GroupSettings, join_error, sync_error
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.coordinator.hosting import HostedGroup, HostedGroups, PendingReply, event_of_group
from barnabas_broker.groups.coordinator.inspection import describe_group, failed_group, list_groups, missing_group
from barnabas_broker.groups.coordinator.loading import PartitionLoader
from barnabas_broker.groups.coordinator.offset_service import OffsetExpiry, OffsetService
from barnabas_broker.groups.coordinator.responses import leave_response, leaving_members
from barnabas_broker.groups.effects import EventType, GroupEvent
from barnabas_broker.groups.events.journal import Journal
from barnabas_broker.groups.ports import EventsLog, OffsetsLog, Scheduler
from barnabas_broker.groups.records import MAX_STRING
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas_protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

#: Heartbeat responses have nothing but an error code, so there is one of each.
_HEARTBEATS: Final = {code: HeartbeatResponse(error_code=code) for code in ErrorCode}


class GroupCoordinator:
    """Coordinates the groups whose partition of ``__consumer_offsets`` this broker leads.

    Args:
        config: of the broker.
        offsets_log: appends to and reads ``__consumer_offsets``.
        now: seconds on a monotonic clock.
        wall_ms: the time of day, in ms since 1970.
        new_id: makes the second part of member ids.
        loop: an event loop; the running one if None.
        events: the log of ``__group_events``; None writes no events.
        on_event: gets every group event, too.

    Attributes:
        journal: the recent group events, and the metrics derived from them.
    """

    def __init__(
        self,
        config: Config,
        offsets_log: OffsetsLog,
        *,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        new_id: Callable[[], str] = lambda: str(uuid4()),
        loop: Scheduler | None = None,
        events: EventsLog | None = None,
        on_event: Callable[[str, GroupEvent], None] = lambda group_id, event: None,
    ) -> None:
        scheduler: Scheduler = asyncio.get_running_loop() if loop is None else loop
        self._min_session_timeout = config[GROUP_MIN_SESSION_TIMEOUT_MS]
        self._max_session_timeout = config[GROUP_MAX_SESSION_TIMEOUT_MS]
        self._commit_timeout = config[OFFSETS_COMMIT_TIMEOUT_MS] / 1000
        settings = GroupSettings(
            new_id=new_id,
            initial_delay=config[GROUP_INITIAL_REBALANCE_DELAY_MS] / 1000,
            max_size=config[GROUP_MAX_SIZE],
        )
        self._hosted_groups = HostedGroups(
            settings,
            offsets_log,
            config[OFFSETS_TOPIC_NUM_PARTITIONS],
            self._commit_timeout,
            now,
            wall_ms,
            scheduler,
            self._event_happened,
        )
        self._on_event = on_event
        self.journal = Journal(events, self.partition_for, now, wall_ms, scheduler)
        self._offsets = OffsetService(
            self._hosted_groups, config[OFFSET_METADATA_MAX_BYTES], config[OFFSETS_RETENTION_MINUTES] * 60_000
        )
        expiry_interval = config[OFFSETS_RETENTION_CHECK_INTERVAL_MS] / 1000
        self._expiry = OffsetExpiry(self._hosted_groups, self._offsets, expiry_interval)
        self._loader = PartitionLoader(self._hosted_groups, offsets_log)
        self._topics: dict[str, int] = {}

    def _event_happened(self, group_id: str, event: GroupEvent) -> bool:
        self._on_event(group_id, event)
        return self.journal.add(group_id, event)

    # JoinGroup, SyncGroup, Heartbeat, LeaveGroup

    def join(
        self, request: JoinGroupRequest, version: int, caller: Caller
    ) -> JoinGroupResponse | Future[JoinGroupResponse]:
        """JoinGroup: a future until the join phase is over."""
        hosted_groups = self._hosted_groups
        reply = PendingReply(version)
        try:
            hosted = self._group_to_join(request)
        except KafkaError as error:
            reply.respond(join_error(error.code, request.member_id))
        else:
            effects = hosted.group.join(request, version, caller, reply, hosted_groups.now())
            if hosted.group.recorded:
                hosted_groups.keep(hosted)
            if hosted.group.generation == 0:
                hosted_groups.limit_unused(hosted)
            hosted_groups.act(hosted, effects)
        response: JoinGroupResponse | Future[JoinGroupResponse] = reply.result(hosted_groups.loop)
        return response

    def _group_to_join(self, request: JoinGroupRequest) -> HostedGroup:
        """The group of a JoinGroup; a new one if the client has no member id yet.

        Raises:
            KafkaError: the request is invalid, or this broker does not coordinate the group.
        """
        # A longer id does not fit into a record's key. Kafka notices that only when it writes the record.
        if not request.group_id or len(request.group_id.encode()) > MAX_STRING:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        if not self._min_session_timeout <= request.session_timeout_ms <= self._max_session_timeout:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        hosted = self._hosted_groups.find(request.group_id)
        if hosted is not None:
            return hosted
        if request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self._hosted_groups.create(request.group_id)

    def sync(
        self, request: SyncGroupRequest, version: int, caller: Caller
    ) -> SyncGroupResponse | Future[SyncGroupResponse]:
        """SyncGroup: a future until the leader's assignment is in the log."""
        if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            return sync_error(ErrorCode.INVALID_GROUP_ID)
        hosted_groups = self._hosted_groups
        try:
            hosted = hosted_groups.find(request.group_id)
        except KafkaError as error:
            if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # The rebalance that the request belongs to is lost, and clients treat LOAD_IN_PROGRESS as fatal here.
                return sync_error(ErrorCode.REBALANCE_IN_PROGRESS)
            return sync_error(error.code)
        if hosted is None:
            return sync_error(ErrorCode.UNKNOWN_MEMBER_ID)
        reply = PendingReply(version)
        hosted_groups.act(hosted, hosted.group.sync(request, reply, hosted_groups.now()))
        response: SyncGroupResponse | Future[SyncGroupResponse] = reply.result(hosted_groups.loop)
        return response

    def heartbeat(self, request: HeartbeatRequest, version: int, caller: Caller) -> HeartbeatResponse:
        """Heartbeat."""
        hosted_groups = self._hosted_groups
        hosted = hosted_groups.by_id.get(request.group_id)
        if hosted is None or not request.group_id:  # Offsets may be committed to the group "", but it has no members.
            return _HEARTBEATS[self._heartbeat_error(request.group_id)]
        return _HEARTBEATS[
            hosted.group.heartbeat(
                request.member_id, request.group_instance_id, request.generation_id, hosted_groups.now()
            )
        ]

    def _heartbeat_error(self, group_id: str) -> ErrorCode:
        """The result of a heartbeat to a group that this broker does not have."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        try:
            self._hosted_groups.find(group_id)
        except KafkaError as error:
            # While the group is being loaded its members must not give up.
            return ErrorCode.NONE if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error.code
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(self, request: LeaveGroupRequest, version: int, caller: Caller) -> LeaveGroupResponse:
        """LeaveGroup."""
        identities = leaving_members(request, version)
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        hosted_groups = self._hosted_groups
        try:
            hosted = hosted_groups.find(request.group_id)
        except KafkaError as error:
            return LeaveGroupResponse(error_code=error.code)
        if hosted is None:
            return leave_response(identities, [ErrorCode.UNKNOWN_MEMBER_ID] * len(identities), version)
        codes, effects = hosted.group.leave(identities, hosted_groups.now())
        hosted_groups.act(hosted, effects)
        return leave_response(identities, codes, version)

    # Offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, version: int, caller: Caller
    ) -> OffsetCommitResponse | Future[OffsetCommitResponse]:
        """OffsetCommit: a future until the offsets are in the log."""
        return self._offsets.commit(request, version)

    def fetch_offsets(
        self, request: OffsetFetchRequest, version: int, caller: Caller
    ) -> OffsetFetchResponse | Future[OffsetFetchResponse]:
        """OffsetFetch: a future if the client asks for stable offsets and commits are being appended."""
        return self._offsets.fetch(request, version)

    def delete_offsets(
        self, request: OffsetDeleteRequest, version: int, caller: Caller
    ) -> OffsetDeleteResponse | Future[OffsetDeleteResponse]:
        """OffsetDelete: a future until the tombstones are in the log."""
        return self._offsets.delete(request)

    # DescribeGroups, ListGroups, DeleteGroups

    def describe(self, request: DescribeGroupsRequest, version: int, caller: Caller) -> DescribeGroupsResponse:
        """DescribeGroups."""
        operations = request.include_authorized_operations
        return DescribeGroupsResponse(
            groups=[self._describe(group_id, version, operations) for group_id in request.groups]
        )

    def _describe(self, group_id: str, version: int, operations: bool) -> DescribedGroup:
        try:
            hosted = self._hosted_groups.find(group_id)
        except KafkaError as error:
            return failed_group(group_id, error.code)
        if hosted is None:
            return missing_group(group_id, version, operations)
        return describe_group(hosted.group, operations)

    def list_groups(self, request: ListGroupsRequest, version: int, caller: Caller) -> ListGroupsResponse:
        """ListGroups: the groups that this broker coordinates."""
        hosted_groups = self._hosted_groups
        if hosted_groups.closed:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, groups=[])
        if any(partition.loading for partition in hosted_groups.partitions.values()):
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[])
        groups = list_groups((hosted.group for hosted in self.groups.values()), request)
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)

    def delete_groups(
        self, request: DeleteGroupsRequest, version: int, caller: Caller
    ) -> DeleteGroupsResponse | Future[DeleteGroupsResponse]:
        """DeleteGroups: deletes groups without members, with their offsets. A future until that is in the log."""
        hosted_groups = self._hosted_groups
        results = {
            group_id: DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE)
            for group_id in request.groups_names
        }
        response = DeleteGroupsResponse(results=list(results.values()))
        deletable: dict[str, HostedGroup] = {}
        for group_id, result in results.items():
            try:
                deletable[group_id] = self._group_to_delete(group_id)
            except KafkaError as error:
                result.error_code = error.code
        if not deletable:
            return response
        future: Future[DeleteGroupsResponse] = hosted_groups.loop.create_future()
        remaining = set(deletable)

        def appended(group_id: str, error: ErrorCode) -> None:
            if group_id in remaining:
                results[group_id].error_code = APPEND_ERRORS.get(error, error)
                remaining.remove(group_id)
            if not remaining and not future.done():
                future.set_result(response)

        for group_id, hosted in deletable.items():
            keys = list(hosted.offsets)
            event = event_of_group(EventType.GROUP_DELETED, hosted.group, offsets=len(keys), expired=False)
            hosted_groups.publish(group_id, event)
            hosted.group.members.pending.clear()
            hosted_groups.append_tombstones(hosted, keys, partial(appended, group_id), whole_group=True)
        return future

    def _group_to_delete(self, group_id: str) -> HostedGroup:
        """The group to delete.

        Raises:
            KafkaError: it does not exist, has members, or another broker coordinates it.
        """
        hosted = self._hosted_groups.find(group_id)
        if hosted is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if hosted.group.state is not ClassicGroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        return hosted

    # What this broker coordinates

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` that a group belongs to."""
        return self._hosted_groups.partition_for(group_id)

    @property
    def groups(self) -> Mapping[str, HostedGroup]:
        """The groups that this broker coordinates, by id. Read-only."""
        return self._hosted_groups.by_id

    @property
    def loaded(self) -> frozenset[int]:
        """The partitions of ``__consumer_offsets`` that are loaded."""
        partitions = self._hosted_groups.partitions
        return frozenset(index for index, partition in partitions.items() if not partition.loading)

    async def load(self, partition: int, leader_epoch: int) -> None:
        """Load a partition and start to coordinate its groups; takes as long as reading its log."""
        self._hosted_groups.timers.arm(self._expiry)
        await self._loader.load(partition, leader_epoch)

    def unload(self, partition: int) -> None:
        """Stop to coordinate a partition's groups: deferred requests fail with NOT_COORDINATOR."""
        self._loader.unload(partition)

    # Topics

    def topics_changed(self, partitions: Mapping[str, int]) -> None:
        """Set the number of partitions of each topic. Groups that subscribe to a topic that has grown get an event."""
        grown = {name: count for name, count in partitions.items() if count > self._topics.get(name, 0)}
        before, self._topics = self._topics, dict(partitions)
        self._offsets.topics = self._topics
        if not before or not grown:
            return
        for group_id, hosted in self.groups.items():
            group = hosted.group
            if group.state is not ClassicGroupState.STABLE:
                continue
            for name, count in grown.items():
                if name not in before or group.is_subscribed_to(name):
                    data = {"topic": name, "before": before.get(name, 0), "partitions": count}
                    event = event_of_group(EventType.TOPIC_CHANGED, group, **data)
                    self._hosted_groups.publish(group_id, event)

    def topics_deleted(self, names: Iterable[str]) -> None:
        """Topics were deleted: remove the offsets of their partitions."""
        deleted = set(names)
        for name in deleted:
            self._topics.pop(name, None)
        self._offsets.topics_deleted(deleted)

    # Time

    def tick(self) -> None:
        """Do what is due. The loop's timer does this by itself; tests that move the clock call it."""
        self._hosted_groups.timers.run()

    async def close(self) -> None:
        """Append the collected records, then respond to all deferred requests."""
        hosted_groups = self._hosted_groups
        hosted_groups.closed = True
        hosted_groups.writer.flush()
        waiting = []
        for partition in list(hosted_groups.partitions):
            settled: Future[None] = asyncio.get_running_loop().create_future()
            if hosted_groups.writer.when_settled(partition, partial(_resolve, settled)):
                waiting.append(settled)
        if waiting:
            await asyncio.wait(waiting, timeout=self._commit_timeout)
        for partition in list(hosted_groups.partitions):
            self.unload(partition)
        hosted_groups.timers.close()
        self.journal.flush()


def _resolve(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
