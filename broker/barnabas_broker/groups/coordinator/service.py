"""The group coordinator: the requests about groups, and the life of the partitions that hold them. A shell.

It holds no rules of its own: those are in the pure machines. It knows which groups this broker coordinates, hands
requests to their machines, carries out what they decide (:mod:`~barnabas_broker.groups.coordinator.hosting`), and
replays and lets go of partitions of ``__consumer_offsets``. Every request method answers with a response or a future of
one, already in the shape of the request's version.

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
from barnabas_broker.groups.classic.group import APPEND_ERRORS, Caller, GroupSettings
from barnabas_broker.groups.classic.responses import join_error, sync_error
from barnabas_broker.groups.classic.states import GroupState
from barnabas_broker.groups.coordinator.hosting import Host, Hosted, Parked, note_of
from barnabas_broker.groups.coordinator.inspection import describe_group, list_groups, missing_group, refused_group
from barnabas_broker.groups.coordinator.loading import Loader
from barnabas_broker.groups.coordinator.offset_service import OffsetService, Sweep
from barnabas_broker.groups.coordinator.responses import leave_response, leaving
from barnabas_broker.groups.effects import Kind, Note
from barnabas_broker.groups.events.journal import Journal
from barnabas_broker.groups.ports import EventSink, OffsetsLog, Scheduler
from barnabas_broker.groups.records import MAX_STRING
from barnabas_broker.logs import logger
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import partition_for
from barnabas_protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas_protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["Caller", "EventSink", "GroupCoordinator", "OffsetsLog"]

log = logger("coordinator")

#: Responses to Heartbeat: there is nothing in them but the code, so each is made once.
_HEARTBEATS: Final = {code: HeartbeatResponse(error_code=code) for code in ErrorCode}


class GroupCoordinator:
    """Coordinates the groups whose partition of ``__consumer_offsets`` this broker leads.

    Args:
        config: of the broker.
        port: appends to and reads ``__consumer_offsets``.
        now: seconds on a clock that never goes back.
        wall_ms: the time of day, in ms since 1970.
        new_id: makes the second half of member ids.
        loop: an event loop; the one that is running at the first request if None.
        events: where the story of every group is written to; nowhere if None.
        listen: hears every note of every group beside that.

    Attributes:
        journal: the story of every group, and what it adds up to.
    """

    def __init__(
        self,
        config: Config,
        port: OffsetsLog,
        *,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        new_id: Callable[[], str] = lambda: str(uuid4()),
        loop: Scheduler | None = None,
        events: EventSink | None = None,
        listen: Callable[[str, Note], None] | None = None,
    ) -> None:
        self._now = now
        self._partitions = config[OFFSETS_TOPIC_NUM_PARTITIONS]
        self._least_session = config[GROUP_MIN_SESSION_TIMEOUT_MS]
        self._most_session = config[GROUP_MAX_SESSION_TIMEOUT_MS]
        self._commit_timeout = config[OFFSETS_COMMIT_TIMEOUT_MS] / 1000
        settings = GroupSettings(
            new_id=new_id,
            initial_delay=config[GROUP_INITIAL_REBALANCE_DELAY_MS] / 1000,
            max_size=config[GROUP_MAX_SIZE],
        )
        self._host = Host(settings, port, now, wall_ms, self._commit_timeout, loop, self._hear)
        self._listen = listen
        self.journal = Journal(events, self.partition_for, now, wall_ms, self._host.loop)
        self._groups = self._host.groups
        self._offsets = OffsetService(
            self._host,
            self._find,
            self.partition_for,
            config[OFFSET_METADATA_MAX_BYTES],
            config[OFFSETS_RETENTION_MINUTES] * 60_000,
        )
        self._sweep = Sweep(self._host, self._offsets, config[OFFSETS_RETENTION_CHECK_INTERVAL_MS] / 1000)
        self._loader = Loader(self._host, port)
        self._topics: dict[str, int] = {}
        self._closed = False

    def _hear(self, group_id: str, note: Note) -> bool:
        if self._listen is not None:
            self._listen(group_id, note)
        return self.journal.note(group_id, note)

    # Where a group belongs

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` that a group belongs to (rule 31)."""
        return partition_for(group_id, self._partitions)

    def _find(self, group_id: str) -> Hosted | ErrorCode:
        """A group, or why it cannot be had; NONE if there is just no such group."""
        hosted = self._groups.get(group_id)
        if hosted is not None:
            return hosted
        if self._closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = self._host.partitions.get(self.partition_for(group_id))
        if partition is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if partition.loading else ErrorCode.NONE

    # Membership

    def join(
        self, request: JoinGroupRequest, version: int, caller: Caller
    ) -> JoinGroupResponse | Future[JoinGroupResponse]:
        """JoinGroup (C2)."""
        host = self._host
        parked = Parked(version)
        hosted = self._groups.get(request.group_id)
        error = self._join_error(request, hosted)
        if error != ErrorCode.NONE:
            parked.answer(join_error(error, request.member_id))
            return _join_outcome(parked, host)
        if hosted is None:
            hosted = host.create(request.group_id, self.partition_for(request.group_id))
        group = hosted.group
        effects = group.join(request, version, caller, parked, self._now())
        if not group.fresh:
            host.keep(hosted)
        if group.generation == 0:
            host.watch_embryo(hosted)
        host.act(hosted, effects)
        return _join_outcome(parked, host)

    def _join_error(self, request: JoinGroupRequest, hosted: Hosted | None) -> ErrorCode:
        """Why a JoinGroup does not even reach a machine; NONE if it does."""
        # A longer one cannot be a key in `__consumer_offsets`: Kafka finds out while it writes, and says no more.
        if not request.group_id or len(request.group_id.encode()) > MAX_STRING:
            return ErrorCode.INVALID_GROUP_ID
        if not self._least_session <= request.session_timeout_ms <= self._most_session:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if hosted is not None:
            return ErrorCode.NONE
        found = self._find(request.group_id)
        if isinstance(found, ErrorCode) and found != ErrorCode.NONE:
            return found
        return ErrorCode.UNKNOWN_MEMBER_ID if request.member_id else ErrorCode.NONE

    def sync(
        self, request: SyncGroupRequest, version: int, caller: Caller
    ) -> SyncGroupResponse | Future[SyncGroupResponse]:
        """SyncGroup (C3)."""
        if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            return sync_error(ErrorCode.INVALID_GROUP_ID)
        hosted = self._find(request.group_id)
        if isinstance(hosted, ErrorCode):
            if hosted == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # The rebalance that this belongs to is lost; clients take it for fatal if they are told so (rule 30).
                return sync_error(ErrorCode.REBALANCE_IN_PROGRESS)
            return sync_error(hosted or ErrorCode.UNKNOWN_MEMBER_ID)
        parked = Parked(version)
        self._host.act(hosted, hosted.group.sync(request, parked, self._now()))
        outcome: SyncGroupResponse | Future[SyncGroupResponse] = parked.outcome(self._host.loop())
        return outcome

    def heartbeat(self, request: HeartbeatRequest, version: int, caller: Caller) -> HeartbeatResponse:
        """Heartbeat (C5)."""
        hosted = self._groups.get(request.group_id)
        if hosted is None or not request.group_id:  # a simple consumer may have committed to the group ""
            return _HEARTBEATS[self._heartbeat_error(request.group_id)]
        return _HEARTBEATS[
            hosted.group.heartbeat(request.member_id, request.group_instance_id, request.generation_id, self._now())
        ]

    def _heartbeat_error(self, group_id: str) -> ErrorCode:
        """What a heartbeat to a group that is not there is told."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        found = self._find(group_id)
        if found == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # Rule 30: blindly, the member shall not give up.
        return (isinstance(found, ErrorCode) and found) or ErrorCode.UNKNOWN_MEMBER_ID

    def leave(self, request: LeaveGroupRequest, version: int, caller: Caller) -> LeaveGroupResponse:
        """LeaveGroup (C6)."""
        identities = leaving(request, version)
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        hosted = self._find(request.group_id)
        if isinstance(hosted, ErrorCode):
            if hosted != ErrorCode.NONE:
                return LeaveGroupResponse(error_code=hosted)
            return leave_response(identities, [ErrorCode.UNKNOWN_MEMBER_ID] * len(identities), version)
        codes, effects = hosted.group.leave(identities, self._now())
        self._host.act(hosted, effects)
        return leave_response(identities, codes, version)

    # Offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, version: int, caller: Caller
    ) -> OffsetCommitResponse | Future[OffsetCommitResponse]:
        """OffsetCommit (C8). That the topics exist is the caller's to check."""
        return self._offsets.commit(request, version, caller)

    def fetch_offsets(
        self, request: OffsetFetchRequest, version: int, caller: Caller
    ) -> OffsetFetchResponse | Future[OffsetFetchResponse]:
        """OffsetFetch (C8)."""
        return self._offsets.fetch(request, version, caller)

    def delete_offsets(
        self, request: OffsetDeleteRequest, version: int, caller: Caller
    ) -> OffsetDeleteResponse | Future[OffsetDeleteResponse]:
        """OffsetDelete (C10)."""
        return self._offsets.delete(request, version, caller)

    # Inspection

    def describe(self, request: DescribeGroupsRequest, version: int, caller: Caller) -> DescribeGroupsResponse:
        """DescribeGroups (C10)."""
        operations = request.include_authorized_operations
        described = []
        for group_id in request.groups:
            hosted = self._find(group_id)
            if not isinstance(hosted, ErrorCode):
                described.append(describe_group(hosted.group, operations))
            elif hosted == ErrorCode.NONE:
                described.append(missing_group(group_id, version, operations))
            else:
                described.append(refused_group(group_id, hosted))
        return DescribeGroupsResponse(groups=described)

    def list_groups(self, request: ListGroupsRequest, version: int, caller: Caller) -> ListGroupsResponse:
        """ListGroups (C10): the groups of this broker."""
        error = ErrorCode.NONE
        if self._closed:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif any(partition.loading for partition in self._host.partitions.values()):
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if error != ErrorCode.NONE:
            return ListGroupsResponse(error_code=error, groups=[])
        groups = list_groups((hosted.group for hosted in self._groups.values()), request)
        return ListGroupsResponse(error_code=error, groups=groups)

    def delete_groups(
        self, request: DeleteGroupsRequest, version: int, caller: Caller
    ) -> DeleteGroupsResponse | Future[DeleteGroupsResponse]:
        """DeleteGroups (C10): groups without members, with their offsets."""
        host = self._host
        results: dict[str, DeletableGroupResult] = {}
        future: Future[DeleteGroupsResponse] | None = None
        left = 0

        def response() -> DeleteGroupsResponse:
            return DeleteGroupsResponse(results=[results[name] for name in dict.fromkeys(request.groups_names)])

        def settled(group_id: str, error: ErrorCode) -> None:
            nonlocal left
            left -= 1
            results[group_id].error_code = APPEND_ERRORS.get(error, error)
            if left == 0 and future is not None and not future.done():
                future.set_result(response())

        for group_id in dict.fromkeys(request.groups_names):
            hosted = self._find(group_id)
            result = results[group_id] = DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE)
            if isinstance(hosted, ErrorCode):
                result.error_code = hosted or ErrorCode.GROUP_ID_NOT_FOUND
            elif hosted.group.state is not GroupState.EMPTY:
                result.error_code = ErrorCode.NON_EMPTY_GROUP
            else:
                keys = list(hosted.offsets)
                left += 1
                host.note(group_id, note_of(Kind.GROUP_DELETED, hosted.group, offsets=len(keys), expired=False))
                hosted.group.members.pending.clear()
                host.bury(hosted, keys, partial(settled, group_id), whole=True)
        if not left:
            return response()
        future = host.loop().create_future()
        return future

    @property
    def groups(self) -> Mapping[str, Hosted]:
        """The groups that are coordinated here, by id. For looking only."""
        return self._groups

    @property
    def loaded(self) -> frozenset[int]:
        """The partitions of ``__consumer_offsets`` that are coordinated here and whose replay is over."""
        return frozenset(index for index, place in self._host.partitions.items() if not place.loading)

    # The life of partitions

    async def load(self, partition: int, leader_epoch: int) -> None:
        """Become the coordinator of a partition's groups, which takes as long as its log is to be read."""
        self._host.timers.arm(self._sweep)
        await self._loader.load(partition, leader_epoch)

    def unload(self, partition: int) -> None:
        """Be the coordinator of a partition's groups no longer: what is parked is told NOT_COORDINATOR."""
        self._loader.unload(partition)

    def topics_changed(self, partitions: Mapping[str, int]) -> None:
        """The number of partitions of each topic there is: what is new or has grown is told to whom it concerns."""
        grown = {name: count for name, count in partitions.items() if count > self._topics.get(name, 0)}
        before, self._topics = self._topics, dict(partitions)
        self._offsets.topics = self._topics
        if not before or not grown:
            return
        for group_id, hosted in self._groups.items():
            group = hosted.group
            if group.state is GroupState.STABLE:
                for name, count in grown.items():
                    if name not in before or hosted.offsets.subscribes(group, name):
                        data = {"topic": name, "before": before.get(name, 0), "partitions": count}
                        host_note = note_of(Kind.TOPIC_CHANGED, group, **data)
                        self._host.note(group_id, host_note)

    def topics_deleted(self, names: Iterable[str]) -> None:
        """Topics are gone: the offsets in them are removed."""
        gone = set(names)
        for name in gone:
            self._topics.pop(name, None)
        self._offsets.topics_deleted(gone)

    def tick(self) -> None:
        """Do what is due. The loop's timer calls it; whoever moves the clock by hand does so too."""
        self._host.timers.run()

    async def close(self) -> None:
        """Write what is waiting to be written, then answer everything that is parked."""
        self._closed = True
        host = self._host
        host.writer.flush()
        waiting = []
        for partition in list(host.partitions):
            settled: Future[None] = asyncio.get_running_loop().create_future()
            if host.writer.barrier(partition, _Settled(settled)):
                waiting.append(settled)
        if waiting:
            await asyncio.wait(waiting, timeout=self._commit_timeout)
        for partition in list(host.partitions):
            self.unload(partition)
        host.timers.close()
        self.journal.flush()


def _join_outcome(parked: Parked, host: Host) -> JoinGroupResponse | Future[JoinGroupResponse]:
    outcome: JoinGroupResponse | Future[JoinGroupResponse] = parked.outcome(host.loop())
    return outcome


class _Settled:
    """Somebody who waits until a partition's appends are over."""

    __slots__ = ("_future",)

    def __init__(self, future: "Future[None]") -> None:
        self._future = future

    def done(self, error: ErrorCode) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def late(self) -> None:
        pass
