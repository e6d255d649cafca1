"""OffsetCommit, OffsetFetch, OffsetDelete and the expiry of offsets. A shell around :mod:`offsets`."""

from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any

from barnabas_broker.groups.classic.group import APPEND_ERRORS, Caller
from barnabas_broker.groups.classic.members import NONE
from barnabas_broker.groups.classic.states import GroupState
from barnabas_broker.groups.coordinator.hosting import NOBODY, Host, Hosted, note_of
from barnabas_broker.groups.coordinator.responses import (
    GroupAnswer,
    asked_groups,
    delete_response,
    fetch_response,
    refuse_commit,
)
from barnabas_broker.groups.effects import Kind
from barnabas_broker.groups.offsets.offsets import NOTHING
from barnabas_broker.groups.records import Committed, offset_value
from barnabas_broker.groups.subscriptions import CONSUMER
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

#: Groups that one step of the expiry looks at.
_SWEEP = 200


def commit_error(error: ErrorCode) -> ErrorCode:
    """How the failure to append a commit is told."""
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return APPEND_ERRORS.get(error, error)


class _CommitWaiter:
    """A commit on its way into the log."""

    __slots__ = ("_entries", "_future", "_hosted", "_request", "_response", "_service")

    def __init__(
        self,
        service: "OffsetService",
        hosted: Hosted,
        entries: list[tuple[str, int, Committed]],
        request: OffsetCommitRequest,
        response: OffsetCommitResponse,
        future: "Future[OffsetCommitResponse]",
    ) -> None:
        self._service = service
        self._hosted = hosted
        self._entries = entries
        self._request = request
        self._response = response
        self._future = future

    def done(self, error: ErrorCode) -> None:
        if error == NONE:
            self.late()
            response = self._response
        else:
            self._service.dropped(self._hosted, error)
            response = refuse_commit(self._request, commit_error(error))
        self._service.answer(self._future, response)

    def late(self) -> None:
        offsets = self._hosted.offsets
        for topic, partition, committed in self._entries:
            offsets.commit(topic, partition, committed)
        self._hosted.group.fresh = False


class _Barrier:
    """An OffsetFetch that waits for the commits before it."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def done(self, error: ErrorCode) -> None:
        self._then()

    def late(self) -> None:
        pass


class OffsetService:
    """The requests about offsets.

    Args:
        host: the groups.
        find: the group of that name, or why it cannot be had; NONE if there is just no such group.
        partition_for: the partition that a group belongs to.
        max_metadata: ``offset.metadata.max.bytes``.
        retention_ms: ``offsets.retention.minutes`` in ms.
    """

    def __init__(
        self,
        host: Host,
        find: Callable[[str], Hosted | ErrorCode],
        partition_for: Callable[[str], int],
        max_metadata: int,
        retention_ms: int,
    ) -> None:
        self._host = host
        self._find = find
        self._partition_for = partition_for
        self._max_metadata = max_metadata
        self._retention_ms = retention_ms
        self.commits = 0
        #: Answers to commits that are settled.
        self._answers: list[tuple[Future[OffsetCommitResponse], OffsetCommitResponse]] = []
        #: Partitions by topic; None while nobody has said which topics there are.
        self.topics: Mapping[str, int] | None = None

    def commit(
        self, request: OffsetCommitRequest, version: int, caller: Caller
    ) -> "OffsetCommitResponse | Future[OffsetCommitResponse]":
        """OffsetCommit: checked at once, answered when it is in the log (C8)."""
        host = self._host
        group_id = request.group_id
        hosted = host.groups.get(group_id)
        generation = request.generation_id_or_member_epoch
        if hosted is None:
            refused = self._refuse(group_id, generation, version)
            if refused != ErrorCode.NONE:
                return refuse_commit(request, refused)
            hosted = host.create(group_id, self._partition_for(group_id))
        group = hosted.group
        error = group.check_commit(request.member_id, request.group_instance_id, generation, host.now())
        if error:
            return refuse_commit(request, error)
        records: list[tuple[bytes, bytes | None]] = []
        entries: list[tuple[str, int, Committed]] = []
        response = self._take(hosted, request, records, entries)
        if not records:
            return response
        self.commits += len(records)
        host.keep(hosted)
        future: Future[OffsetCommitResponse] = host.loop().create_future()
        waiter = _CommitWaiter(self, hosted, entries, request, response, future)
        host.writer.add(hosted.partition, records, waiter)
        return future

    def dropped(self, hosted: Hosted, error: ErrorCode) -> None:
        """A commit did not get into the log: a group that was to exist for it does not."""
        unused = not hosted.offsets and hosted.group.fresh and hosted.group.state is GroupState.EMPTY
        if unused and error != ErrorCode.REQUEST_TIMED_OUT:
            self._host.forget(hosted)

    def answer(self, future: "Future[OffsetCommitResponse]", response: OffsetCommitResponse) -> None:
        """Answer a commit, in the next turn of the loop together with all that are settled in this one."""
        if not self._answers:
            self._host.loop().call_soon(self._give_answers)
        self._answers.append((future, response))

    def _give_answers(self) -> None:
        """Give answers, the newest first: a connection sends them in the order of its requests, so that all that it
        has leave in one write when the oldest is there."""
        answers, self._answers = self._answers, []
        for future, response in reversed(answers):
            if not future.done():
                future.set_result(response)

    def _refuse(self, group_id: str, generation: int, version: int) -> ErrorCode:
        """Why nothing can be committed to a group that is not there; NONE if it can be made for that (rules 22, 23)."""
        found = self._find(group_id)
        if isinstance(found, ErrorCode) and found != ErrorCode.NONE:
            return found
        if generation < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION

    def _take(
        self,
        hosted: Hosted,
        request: OffsetCommitRequest,
        records: list[tuple[bytes, bytes | None]],
        entries: list[tuple[str, int, Committed]],
    ) -> OffsetCommitResponse:
        """Take what may be committed into `records` and `entries`; the answer once these are in the log."""
        wall_ms = self._host.wall_ms()
        expire_ms = -1 if request.retention_time_ms < 0 else wall_ms + request.retention_time_ms
        sequence = self._host.next_sequence()
        answered = []
        for topic in request.topics:
            name, codes = topic.name, []
            count = inf if self.topics is None else self.topics.get(name, 0)
            for asked in topic.partitions:
                index, metadata = asked.partition_index, asked.committed_metadata or ""
                error = NONE
                if not 0 <= index < count:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif metadata and _java_length(metadata) > self._max_metadata:
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    commit_ms = wall_ms if asked.commit_timestamp < 0 else asked.commit_timestamp
                    offset, epoch = asked.committed_offset, asked.committed_leader_epoch
                    committed = Committed(offset, epoch, metadata, commit_ms, expire_ms, sequence)
                    try:
                        records.append((hosted.key(name, index), offset_value(committed)))
                        entries.append((name, index, committed))
                    except ValueError:
                        error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
                codes.append(OffsetCommitResponsePartition(partition_index=index, error_code=error))
            answered.append(OffsetCommitResponseTopic(name=name, partitions=codes))
        return OffsetCommitResponse(topics=answered)

    def fetch(
        self, request: OffsetFetchRequest, version: int, caller: Caller
    ) -> "OffsetFetchResponse | Future[OffsetFetchResponse]":
        """OffsetFetch: from memory. A client that asks for stable offsets waits for commits that are on their way."""
        asked = asked_groups(request, version)
        host = self._host
        waits: set[int] = set()
        if request.require_stable:
            waits = {found.partition for group in asked if (found := host.groups.get(group.group_id)) is not None}
        waits = {partition for partition in waits if host.writer.unsettled(partition)}
        if not waits:
            return fetch_response(request, version, [self._fetch(group, request.require_stable) for group in asked])
        future: Future[OffsetFetchResponse] = host.loop().create_future()
        left = len(waits)

        def settled() -> None:
            nonlocal left
            left -= 1
            if not left and not future.done():
                found = [self._fetch(group, request.require_stable) for group in asked]
                future.set_result(fetch_response(request, version, found))

        for partition in waits:
            host.writer.barrier(partition, _Barrier(settled))
        return future

    def _fetch(self, asked: Any, require_stable: bool) -> GroupAnswer:
        hosted = self._find(asked.group_id)
        topics = asked.topics
        if isinstance(hosted, ErrorCode):
            if hosted != ErrorCode.NONE:
                return GroupAnswer(asked.group_id, hosted, [])
            found = [(topic.name, [(p, NOTHING) for p in topic.partition_indexes]) for topic in topics or ()]
            return GroupAnswer(asked.group_id, ErrorCode.NONE, found)
        offsets = hosted.offsets
        wanted: Iterable[tuple[str, Iterable[int]]]
        if topics is None:
            wanted = list(offsets.topics.items())
        else:
            wanted = [(topic.name, topic.partition_indexes) for topic in topics]
        found = [(name, [(p, offsets.find(name, p, require_stable)) for p in indexes]) for name, indexes in wanted]
        return GroupAnswer(asked.group_id, ErrorCode.NONE, found)

    def delete(
        self, request: OffsetDeleteRequest, version: int, caller: Caller
    ) -> "OffsetDeleteResponse | Future[OffsetDeleteResponse]":
        """OffsetDelete: what nobody subscribes to is removed (KIP-496)."""
        host = self._host
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=[])
        hosted = self._find(request.group_id)
        if isinstance(hosted, ErrorCode):
            return OffsetDeleteResponse(error_code=hosted or ErrorCode.GROUP_ID_NOT_FOUND, topics=[])
        group = hosted.group
        if group.state is not GroupState.EMPTY and group.members.protocol_type != CONSUMER:
            return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP, topics=[])
        kept = {topic.name for topic in request.topics if hosted.offsets.subscribes(group, topic.name)}
        response = delete_response(request, kept, self.topics)
        keys = [
            (topic.name, p.partition_index)
            for topic in request.topics
            if topic.name not in kept
            for p in topic.partitions
            if p.partition_index in hosted.offsets.topics.get(topic.name, ())
            or hosted.offsets.is_pending(topic.name, p.partition_index)
        ]
        if not keys:
            return response
        future: Future[OffsetDeleteResponse] = host.loop().create_future()

        def settled(error: ErrorCode) -> None:
            if not future.done():
                failed = OffsetDeleteResponse(error_code=APPEND_ERRORS.get(error, error), topics=[])
                future.set_result(failed if error != ErrorCode.NONE else response)

        host.bury(hosted, keys, settled)
        return future

    def topics_deleted(self, names: set[str]) -> None:
        """Topics are gone: so are the offsets in them."""
        for hosted in list(self._host.groups.values()):
            keys = [key for key in hosted.offsets if key[0] in names] if hosted.offsets else []
            if keys:
                self._host.bury(hosted, keys, NOBODY.done)

    def sweep(self) -> Iterator[None]:
        """Remove what is expired, a few groups at a time; a group without offsets and members goes with them."""
        host = self._host
        for at, group_id in enumerate(list(host.groups)):
            if at % _SWEEP == _SWEEP - 1:
                yield
            hosted = host.groups.get(group_id)
            if hosted is not None:
                self._sweep(hosted)

    def _sweep(self, hosted: Hosted) -> None:
        host, group = self._host, hosted.group
        keys = hosted.offsets.expired(group, host.now(), host.wall_ms(), self._retention_ms)
        if keys is None or host.writer.unsettled(hosted.partition):
            # A commit on its way may be about to renew what looks expired: the next sweep will see.
            return
        if keys:
            host.note(group.group_id, note_of(Kind.OFFSETS_EXPIRED, group, offsets=len(keys), keys=keys[:100]))
        idle = group.state is GroupState.EMPTY and not group.members.pending
        if idle and len(keys) == len(hosted.offsets):
            host.note(group.group_id, note_of(Kind.GROUP_DELETED, group, offsets=len(keys), expired=True))
            host.bury(hosted, keys, NOBODY.done, whole=True)
        elif keys:
            self._host.bury(hosted, keys, NOBODY.done)


class Sweep:
    """The regular removal of what is expired, a step a turn.

    Args:
        host: the groups.
        offsets: knows what is expired.
        interval: ``offsets.retention.check.interval.ms`` in seconds.
    """

    def __init__(self, host: Host, offsets: OffsetService, interval: float) -> None:
        self.armed = inf
        self._host = host
        self._offsets = offsets
        self._interval = interval
        self._next = host.now() + interval
        self._steps: Iterator[None] | None = None

    def next_deadline(self) -> float:
        return self._next

    def fire(self, now: float) -> None:
        self._next = now + self._interval
        if self._steps is None:
            self._steps = self._offsets.sweep()
            self._step()

    def _step(self) -> None:
        if self._steps is not None:
            try:
                next(self._steps)
                self._host.loop().call_soon(self._step)
            except StopIteration:
                self._steps = None


def _java_length(text: str) -> int:
    """UTF-16 code units, which is what Kafka counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
