"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: offset look-ups, and moves of the log start offset."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from barnabas_broker.config.keys import CLEANUP_POLICY
from barnabas_broker.handlers.authorization import split
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.replication.durability import DelayedOperation
from barnabas_broker.replication.replica import Replica
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.security.audit import Change
from barnabas_broker.steps import Steps, by_key, each
from barnabas_explain.members import Partition
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import INTERNAL_TOPICS
from barnabas_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas_protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from barnabas_protocol.registry import ApiKey

LATEST: Final = -1
_READ_COMMITTED: Final = 1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
#: Timestamp, offset and leader epoch of an answer without a place.
_NOWHERE: Final = (-1, -1, -1)
#: The version that brought each of the special timestamps.
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


#: Completes a partition's answer.
_LookUp = Callable[[], Awaitable[None]]


@stepwise
def handle_list_offsets(
    context: RequestContext, request: ListOffsetsRequest
) -> "Steps[ListOffsetsResponse | asyncio.Future[ListOffsetsResponse]]":
    """Answer ListOffsets, each partition on its own; look-ups of timestamps, in a thread, after all others."""
    response = ListOffsetsResponse(topics=[])
    look_ups: list[_LookUp] = []
    committed = request.isolation_level == _READ_COMMITTED
    refused = yield from split(context, (topic.name for topic in request.topics), acls.DESCRIBE)
    for topic in request.topics:
        yield
        answer = ListOffsetsTopicResponse(name=topic.name, partitions=[])
        response.topics.append(answer)
        if topic.name in refused:
            answer.partitions = yield from each(topic.partitions, _not_listed)
            continue
        partitions, repeated = yield from by_key(topic.partitions, lambda partition: partition.partition_index)
        for index, partition in partitions.items():
            twice = index in repeated
            answer.partitions.append(_list_offset(context, topic.name, partition, twice, committed, look_ups))
            yield
    if not look_ups:
        return response
    looking = context.services.slicer.start(_look_up_all(response, look_ups), context.peer)
    context.peer.hold(looking)
    return looking


def _not_listed(asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )


async def _look_up_all(response: ListOffsetsResponse, look_ups: list[_LookUp]) -> ListOffsetsResponse:
    for look_up in look_ups:
        await look_up()
        await asyncio.sleep(0)
    return response


def _list_offset(
    context: RequestContext,
    topic: str,
    asked: ListOffsetsPartition,
    twice: bool,
    committed: bool,
    look_ups: list[_LookUp],
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=ErrorCode.NONE)
    try:
        if twice:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        replica = context.services.replicas.find(topic, asked.partition_index)
        replica.check_epoch(asked.current_leader_epoch)
        if asked.timestamp < EARLIEST and context.version < _SINCE.get(asked.timestamp, 2**15):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        place = _special(replica, asked.timestamp, committed)
        if place is not None:
            _fill(answer, place, context.version, replica, asked)
            if asked.timestamp in (LATEST, EARLIEST):
                where, latest = (topic, asked.partition_index), asked.timestamp == LATEST
                context.services.groups.fetches.looked_up(context.client, where, place[1], latest=latest)
        elif replica.log.segments.max_timestamp < max(asked.timestamp, 0):
            _fill(answer, _NOWHERE, context.version, replica, asked)
        else:
            look_ups.append(
                partial(_look_up, context, (topic, asked.partition_index), replica, asked, committed, answer)
            )
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _fill(
    answer: ListOffsetsPartitionResponse,
    place: tuple[int, int, int],
    version: int,
    replica: Replica,
    asked: ListOffsetsPartition,
) -> None:
    """Write timestamp, offset and leader epoch into the answer, as far as the version has them."""
    answer.timestamp, answer.offset, answer.leader_epoch = place
    if version == 0:
        answer.old_style_offsets = _old_style(replica, asked, answer.offset)
        answer.timestamp, answer.offset = -1, -1
    if version < 4:
        answer.leader_epoch = -1


async def _look_up(
    context: RequestContext,
    where: Partition,
    replica: Replica,
    asked: ListOffsetsPartition,
    committed: bool,
    answer: ListOffsetsPartitionResponse,
) -> None:
    """Complete the answer for a timestamp."""
    log = replica.log
    try:
        if asked.timestamp == MAX_TIMESTAMP:
            found = await log.max_timestamp()
        else:
            found = await log.offset_for_timestamp(asked.timestamp)
    except KafkaError as error:
        answer.error_code = error.code
        return
    visible = found is not None and found.offset < _end(replica, committed)
    if found is not None and visible:
        context.services.groups.fetches.looked_up_time(context.client, where, found.offset)
    _fill(answer, found if found is not None and visible else _NOWHERE, context.version, replica, asked)


def _end(replica: Replica, committed: bool) -> int:
    """The end of what a consumer may read: with `read_committed` the last stable offset."""
    return replica.log.last_stable_offset if committed else replica.high_watermark


def _special(replica: Replica, timestamp: int, committed: bool) -> tuple[int, int, int] | None:
    """Timestamp, offset and leader epoch for the timestamps that are places in the log; None for all others."""
    log = replica.log
    if timestamp == LATEST:
        if not replica.settled:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, _end(replica, committed), replica.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, log.leader_epochs.epoch_for(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOWHERE  # nothing is tiered
    return None


def _old_style(replica: Replica, asked: ListOffsetsPartition, offset: int) -> list[int]:
    """Version 0: offsets from the newest at or before the timestamp down to the start of the log."""
    start = replica.log.log_start_offset
    if asked.timestamp == LATEST:
        offsets = [replica.high_watermark] + ([start] if replica.high_watermark > start else [])
    elif asked.timestamp == EARLIEST or offset < 0:
        offsets = [start]
    else:
        offsets = [offset]
    return offsets[: max(asked.max_num_offsets, 0)]


@stepwise
def handle_offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Steps[OffsetForLeaderEpochResponse]:
    """Answer OffsetForLeaderEpoch, each partition on its own."""
    response = OffsetForLeaderEpochResponse(topics=[])
    names = (topic.topic for topic in request.topics)
    refused = yield from split(context, names, acls.DESCRIBE, unless=acls.CLUSTER_ACTION)
    for topic in request.topics:
        yield
        work = _no_epoch_end if topic.topic in refused else partial(_epoch_end, context, topic.topic)
        ends = yield from each(topic.partitions, work)
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
    return response


def _epoch_end(context: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition, error_code=ErrorCode.NONE)
    try:
        replica = context.services.replicas.find(topic, asked.partition)
        replica.check_epoch(asked.current_leader_epoch)
        if asked.leader_epoch == replica.leader_epoch:
            answer.leader_epoch, answer.end_offset = replica.leader_epoch, replica.high_watermark
        else:
            answer.leader_epoch, answer.end_offset = replica.log.epoch_end_offset(asked.leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _no_epoch_end(asked: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(partition=asked.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


#: A partition's answer, and a future of its followers.
_Moved = tuple[DeleteRecordsPartitionResult, "asyncio.Future[int] | None"]


@stepwise
def handle_delete_records(
    context: RequestContext, request: DeleteRecordsRequest
) -> "Steps[DeleteRecordsResponse | asyncio.Future[DeleteRecordsResponse]]":
    """Delete records and answer when all live replicas have deleted them, as Kafka's ``DelayedDeleteRecords`` does.

    The new log start offsets are on the disk before the response.
    """
    delayed: DelayedOperation[DeleteRecordsResponse] = DelayedOperation()
    moved: list[_Moved] = []
    response = DeleteRecordsResponse(topics=[])
    refused = yield from split(context, (topic.name for topic in request.topics), acls.DELETE)
    # As in Kafka, of several offsets for one partition the last one counts, and is answered.
    wanted: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        by_index, _ = yield from by_key(topic.partitions, lambda partition: partition.partition_index)
        wanted.setdefault(topic.name, {}).update(by_index)
        yield
    for name, partitions in wanted.items():
        yield
        work = partial(_delete_records, context, name, name not in refused, moved=moved)
        results = yield from each(partitions.values(), work)
        response.topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    if moved:
        saved = context.services.replicas.directory.save_log_starts()
        for answer, deleted in moved:
            conditions: list[asyncio.Future[Any]] = [saved] if deleted is None else [saved, deleted]
            delayed.add(conditions, partial(_deleted, answer, deleted))
    # The timeout is for the followers: a client that gives none still learns what this broker has done.
    alone = all(deleted is None for _, deleted in moved)
    return delayed.respond(response, None if alone else request.timeout_ms / 1000)


def _delete_records(
    context: RequestContext,
    topic: str,
    allowed: bool,
    asked: DeleteRecordsPartition,
    moved: list[_Moved],
) -> DeleteRecordsPartitionResult:
    """Delete records of a partition; adds what its answer waits for to `moved`."""
    answer = DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=-1, error_code=ErrorCode.NONE
    )
    try:
        if not allowed:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        replica = context.services.replicas.find(topic, asked.partition_index)
        if "delete" not in replica.log.config[CLEANUP_POLICY]:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        before = replica.high_watermark if asked.offset == -1 else asked.offset
        if not 0 <= before <= replica.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        answer.low_watermark, deleted = context.services.replicas.delete_records(replica, before)
        moved.append((answer, deleted))
        context.changed(Change.RECORDS_DELETED, partition=f"{topic}-{asked.partition_index}", before=before)
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _deleted(
    answer: DeleteRecordsPartitionResult, deleted: "asyncio.Future[int] | None", error: KafkaError | None
) -> None:
    """Write the outcome of waiting for the disk and the followers into a partition's answer."""
    if error is None:
        if deleted is not None:
            answer.low_watermark = deleted.result()
    else:
        answer.error_code = error.code
        if error.code is not ErrorCode.REQUEST_TIMED_OUT:
            answer.low_watermark = -1


ROUTES: Final = (
    Route(ApiKey.LIST_OFFSETS, handle_list_offsets, (requires((acls.DESCRIBE, acls.TOPIC)),)),
    Route(
        ApiKey.DELETE_RECORDS,
        handle_delete_records,
        (requires((acls.DELETE, acls.TOPIC)),),
        changes=(Change.RECORDS_DELETED,),
    ),
    Route(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        handle_offset_for_leader_epoch,
        (requires((acls.CLUSTER_ACTION, acls.CLUSTER), (acls.DESCRIBE, acls.TOPIC)),),
    ),
)
