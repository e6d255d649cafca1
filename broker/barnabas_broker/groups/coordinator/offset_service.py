"""OffsetCommit, OffsetFetch, OffsetDelete and the expiry of offsets. A shell around :mod:`groups.offsets`."""

from asyncio import Future
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from math import inf
from typing import Final

from barnabas_broker.groups.classic.group import APPEND_ERRORS
from barnabas_broker.groups.classic.members import NONE
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.coordinator.hosting import HostedGroup, HostedGroups, event_of_group
from barnabas_broker.groups.coordinator.responses import (
    FetchedGroup,
    FetchedOffset,
    commit_error,
    delete_response,
    fetch_response,
    requested_groups,
)
from barnabas_broker.groups.effects import EventType
from barnabas_broker.groups.records import Committed, offset_value
from barnabas_broker.groups.subscriptions import CONSUMER
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

#: Groups that one step of the expiry checks.
_GROUPS_PER_STEP: Final = 200


class OffsetService:
    """The requests about offsets.

    Args:
        hosted_groups: the groups.
        max_metadata: ``offset.metadata.max.bytes``.
        retention_ms: ``offsets.retention.minutes`` in ms.

    Attributes:
        topics: number of partitions by topic; None until the coordinator knows the topics.
    """

    def __init__(self, hosted_groups: HostedGroups, max_metadata: int, retention_ms: int) -> None:
        self._hosted_groups = hosted_groups
        self._max_metadata = max_metadata
        self._retention_ms = retention_ms
        #: Responses to commits whose appends have ended.
        self._responses: list[tuple[Future[OffsetCommitResponse], OffsetCommitResponse]] = []
        self.topics: Mapping[str, int] | None = None

    # OffsetCommit

    def commit(
        self, request: OffsetCommitRequest, version: int
    ) -> "OffsetCommitResponse | Future[OffsetCommitResponse]":
        """OffsetCommit: validated at once, answered when its records are in the log."""
        hosted_groups = self._hosted_groups
        generation = request.generation_id_or_member_epoch
        hosted = hosted_groups.by_id.get(request.group_id)
        if hosted is None:
            try:
                hosted = self._group_to_commit_to(request.group_id, generation, version)
            except KafkaError as refused:
                return commit_error(request, refused.code)
        error = hosted.group.check_commit(request.member_id, request.group_instance_id, generation, hosted_groups.now())
        if error:
            return commit_error(request, error)
        records: list[tuple[bytes, bytes | None]] = []
        commits: list[tuple[str, int, Committed]] = []
        response = self._validate_offsets(hosted, request, records, commits)
        if not records:
            return response
        hosted_groups.keep(hosted)
        future: Future[OffsetCommitResponse] = hosted_groups.loop.create_future()
        appended = partial(self._commit_appended, hosted, commits, request, response, future)
        hosted_groups.writer.add(hosted.partition, records, appended)
        return future

    def _group_to_commit_to(self, group_id: str, generation: int, version: int) -> HostedGroup:
        """The group of a commit; a new one for a commit without a generation.

        Raises:
            KafkaError: this broker does not coordinate the group, or a member commits to a group that does not exist.
        """
        hosted = self._hosted_groups.find(group_id)
        if hosted is not None:
            return hosted
        if generation >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)
        return self._hosted_groups.create(group_id)

    def _validate_offsets(
        self,
        hosted: HostedGroup,
        request: OffsetCommitRequest,
        records: list[tuple[bytes, bytes | None]],
        commits: list[tuple[str, int, Committed]],
    ) -> OffsetCommitResponse:
        """Put the valid offsets into `records` and `commits`; returns the response for when these are in the log."""
        wall_ms = self._hosted_groups.wall_ms()
        expire_ms = -1 if request.retention_time_ms < 0 else wall_ms + request.retention_time_ms
        sequence = self._hosted_groups.next_sequence()
        topics = []
        for topic in request.topics:
            name, partitions = topic.name, []
            count = inf if self.topics is None else self.topics.get(name, 0)
            for requested in topic.partitions:
                index, metadata = requested.partition_index, requested.committed_metadata or ""
                error = NONE
                if not 0 <= index < count:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif metadata and _java_length(metadata) > self._max_metadata:
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    commit_ms = wall_ms if requested.commit_timestamp < 0 else requested.commit_timestamp
                    offset, epoch = requested.committed_offset, requested.committed_leader_epoch
                    committed = Committed(offset, epoch, metadata, commit_ms, expire_ms, sequence)
                    try:
                        records.append((hosted.offset_key(name, index), offset_value(committed)))
                        commits.append((name, index, committed))
                    except ValueError:
                        error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
                partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=error))
            topics.append(OffsetCommitResponseTopic(name=name, partitions=partitions))
        return OffsetCommitResponse(topics=topics)

    def _commit_appended(
        self,
        hosted: HostedGroup,
        commits: list[tuple[str, int, Committed]],
        request: OffsetCommitRequest,
        response: OffsetCommitResponse,
        future: "Future[OffsetCommitResponse]",
        error: ErrorCode,
    ) -> None:
        """The result of a commit's append: its offsets are committed, and it gets its response."""
        if error == NONE:
            offsets = hosted.offsets
            for topic, partition, committed in commits:
                offsets.commit(topic, partition, committed)
            hosted.group.recorded = True
        else:
            unused = not hosted.offsets and not hosted.group.recorded and hosted.group.state is ClassicGroupState.EMPTY
            if unused and error != ErrorCode.REQUEST_TIMED_OUT:
                self._hosted_groups.forget(hosted)  # It was created for this commit.
            if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            response = commit_error(request, APPEND_ERRORS.get(error, error))
        if not self._responses:
            self._hosted_groups.loop.call_soon(self._send_responses)
        self._responses.append((future, response))

    def _send_responses(self) -> None:
        """Send the responses to the commits of one iteration together, the newest first.

        A connection sends responses in the order of its requests: all of a connection's leave in one write when its
        oldest one is there.
        """
        responses, self._responses = self._responses, []
        for future, response in reversed(responses):
            if not future.done():
                future.set_result(response)

    # OffsetFetch

    def fetch(self, request: OffsetFetchRequest, version: int) -> "OffsetFetchResponse | Future[OffsetFetchResponse]":
        """OffsetFetch, from memory. With `require_stable` it waits for the commits that are being appended."""
        groups = requested_groups(request, version)
        hosted_groups = self._hosted_groups
        writer = hosted_groups.writer

        def response() -> OffsetFetchResponse:
            fetched = [self._fetch(group, request.require_stable) for group in groups]
            return fetch_response(request, version, fetched)

        unsettled: set[int] = set()
        if request.require_stable:
            partitions = {
                found.partition for group in groups if (found := hosted_groups.by_id.get(group.group_id)) is not None
            }
            unsettled = {partition for partition in partitions if writer.unsettled(partition)}
        if not unsettled:
            return response()
        future: Future[OffsetFetchResponse] = hosted_groups.loop.create_future()

        def settled(partition: int) -> None:
            unsettled.discard(partition)
            if not unsettled and not future.done():
                future.set_result(response())

        for partition in tuple(unsettled):
            writer.when_settled(partition, partial(settled, partition))
        return future

    def _fetch(self, requested: OffsetFetchRequestGroup, require_stable: bool) -> FetchedGroup:
        try:
            hosted = self._hosted_groups.find(requested.group_id)
        except KafkaError as error:
            return FetchedGroup(requested.group_id, error.code, [])
        offsets = None if hosted is None else hosted.offsets
        wanted: Iterable[tuple[str, Iterable[int]]]
        if requested.topics is not None:
            wanted = [(topic.name, topic.partition_indexes) for topic in requested.topics]
        else:
            wanted = () if offsets is None else list(offsets.topics.items())
        topics = []
        for name, indexes in wanted:
            if offsets is None:
                fetched = [FetchedOffset(index, None) for index in indexes]
            else:
                fetched = [
                    FetchedOffset(index, None, unstable=True)
                    if require_stable and offsets.is_pending(name, index)
                    else FetchedOffset(index, offsets.find(name, index))
                    for index in indexes
                ]
            topics.append((name, fetched))
        return FetchedGroup(requested.group_id, ErrorCode.NONE, topics)

    # OffsetDelete, and expiry

    def delete(self, request: OffsetDeleteRequest) -> "OffsetDeleteResponse | Future[OffsetDeleteResponse]":
        """OffsetDelete: removes the offsets of topics that the group does not subscribe to (KIP-496)."""
        hosted_groups = self._hosted_groups
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=[])
        try:
            hosted = hosted_groups.find(request.group_id)
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=error.code, topics=[])
        if hosted is None:
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, topics=[])
        group, offsets = hosted.group, hosted.offsets
        if group.state is not ClassicGroupState.EMPTY and group.members.protocol_type != CONSUMER:
            return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP, topics=[])
        subscribed = {topic.name for topic in request.topics if group.is_subscribed_to(topic.name)}
        response = delete_response(request, subscribed, self.topics)
        keys = [
            (topic.name, each.partition_index)
            for topic in request.topics
            if topic.name not in subscribed
            for each in topic.partitions
            if offsets.find(topic.name, each.partition_index) is not None
            or offsets.is_pending(topic.name, each.partition_index)
        ]
        if not keys:
            return response
        future: Future[OffsetDeleteResponse] = hosted_groups.loop.create_future()

        def done(error: ErrorCode) -> None:
            if not future.done():
                failed = OffsetDeleteResponse(error_code=APPEND_ERRORS.get(error, error), topics=[])
                future.set_result(failed if error != ErrorCode.NONE else response)

        hosted_groups.append_tombstones(hosted, keys, done)
        return future

    def topics_deleted(self, names: set[str]) -> None:
        """Remove the offsets of deleted topics."""
        for hosted in list(self._hosted_groups.by_id.values()):
            keys = [key for key in hosted.offsets if key[0] in names] if hosted.offsets else []
            if keys:
                self._hosted_groups.append_tombstones(hosted, keys)

    def expire(self) -> Iterator[None]:
        """Remove expired offsets, a few groups per step; groups without offsets and members are deleted, too."""
        by_id = self._hosted_groups.by_id
        for at, group_id in enumerate(list(by_id)):
            if at % _GROUPS_PER_STEP == _GROUPS_PER_STEP - 1:
                yield
            hosted = by_id.get(group_id)
            if hosted is not None:
                self._expire_group(hosted)

    def _expire_group(self, hosted: HostedGroup) -> None:
        hosted_groups, group = self._hosted_groups, hosted.group
        keys = hosted.offsets.expired(group, hosted_groups.now(), hosted_groups.wall_ms(), self._retention_ms)
        if keys is None or hosted_groups.writer.unsettled(hosted.partition):
            # A commit that is being appended may renew what looks expired: the next expiry decides.
            return
        if keys:
            event = event_of_group(EventType.OFFSETS_EXPIRED, group, offsets=len(keys), keys=keys[:100])
            hosted_groups.publish(group.group_id, event)
        unused = group.state is ClassicGroupState.EMPTY and not group.members.pending
        if unused and len(keys) == len(hosted.offsets):
            event = event_of_group(EventType.GROUP_DELETED, group, offsets=len(keys), expired=True)
            hosted_groups.publish(group.group_id, event)
            hosted_groups.append_tombstones(hosted, keys, whole_group=True)
        elif keys:
            hosted_groups.append_tombstones(hosted, keys)


class OffsetExpiry:
    """Runs :meth:`OffsetService.expire` regularly, one step per iteration of the loop.

    Args:
        hosted_groups: the groups.
        offsets: removes what is expired.
        interval: ``offsets.retention.check.interval.ms`` in seconds.
    """

    def __init__(self, hosted_groups: HostedGroups, offsets: OffsetService, interval: float) -> None:
        self.armed = inf
        self._hosted_groups = hosted_groups
        self._offsets = offsets
        self._interval = interval
        self._next = hosted_groups.now() + interval
        self._steps: Iterator[None] | None = None

    def next_deadline(self) -> float:
        return self._next

    def fire(self, now: float) -> None:
        self._next = now + self._interval
        if self._steps is None:
            self._steps = self._offsets.expire()
            self._step()

    def _step(self) -> None:
        if self._steps is not None:
            try:
                next(self._steps)
                self._hosted_groups.loop.call_soon(self._step)
            except StopIteration:
                self._steps = None


def _java_length(text: str) -> int:
    """UTF-16 code units, which is what Kafka counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
