"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: looking offsets up, and moving the log's start."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final

from barnabas_broker.config.keys import CLEANUP_POLICY
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.replication.partition import Hosted
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
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
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
#: The version that brought each of the special timestamps.
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def handle_list_offsets(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answer ListOffsets, each partition for itself."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_list_offset(context, topic.name, p, twice) for p, twice in _each_once(topic.partitions)],
            )
            for topic in request.topics
        ]
    )


def _each_once(partitions: Sequence[ListOffsetsPartition]) -> list[tuple[ListOffsetsPartition, bool]]:
    """Every partition once, with whether it was asked for more often."""
    indexes = [partition.partition_index for partition in partitions]
    return [(p, indexes.count(index) > 1) for index, p in {p.partition_index: p for p in partitions}.items()]


def _list_offset(
    context: RequestContext, topic: str, asked: ListOffsetsPartition, twice: bool
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=ErrorCode.NONE)
    try:
        if twice:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        hosted = context.services.replicas.find(topic, asked.partition_index)
        hosted.check_epoch(asked.current_leader_epoch)
        if asked.timestamp < EARLIEST and context.version < _SINCE.get(asked.timestamp, 2**15):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        answer.timestamp, answer.offset, answer.leader_epoch = _look_up(hosted, asked.timestamp)
        if context.version == 0:
            answer.old_style_offsets = _old_style(hosted, asked, answer.offset)
            answer.timestamp, answer.offset = -1, -1
    except KafkaError as error:
        answer.error_code = error.code
    if context.version < 4:
        answer.leader_epoch = -1
    return answer


def _look_up(hosted: Hosted, timestamp: int) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch of what is asked for; -1 for what is not there."""
    log = hosted.log
    if timestamp == LATEST:
        if not hosted.settled:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, hosted.high_watermark, hosted.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, log.leader_epochs.epoch_for(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1  # nothing is tiered
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None or found[1] >= hosted.high_watermark:
        return -1, -1, -1
    return found


def _old_style(hosted: Hosted, asked: ListOffsetsPartition, offset: int) -> list[int]:
    """Version 0: offsets from the newest at or before the timestamp down to the start of the log."""
    start = hosted.log.log_start_offset
    if asked.timestamp == LATEST:
        offsets = [hosted.high_watermark] + ([start] if hosted.high_watermark > start else [])
    elif asked.timestamp == EARLIEST or offset < 0:
        offsets = [start]
    else:
        offsets = [offset]
    return offsets[: max(asked.max_num_offsets, 0)]


def handle_offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answer OffsetForLeaderEpoch, each partition for itself."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_epoch_end(context, topic.topic, p) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _epoch_end(context: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition, error_code=ErrorCode.NONE)
    try:
        hosted = context.services.replicas.find(topic, asked.partition)
        hosted.check_epoch(asked.current_leader_epoch)
        if asked.leader_epoch == hosted.leader_epoch:
            answer.leader_epoch, answer.end_offset = hosted.leader_epoch, hosted.high_watermark
        else:
            answer.leader_epoch, answer.end_offset = hosted.log.epoch_end_offset(asked.leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def handle_delete_records(
    context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    """Answer DeleteRecords when every replica that lives has deleted them, as Kafka's DelayedDeleteRecords does."""
    pending: list[_Deletion] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete_records(context, topic.name, p, pending) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    return _when_deleted(response, pending, request.timeout_ms) if pending else response


#: What is answered for a partition, and when its low watermark will be where it shall be.
_Deletion = tuple[DeleteRecordsPartitionResult, "asyncio.Future[int]"]


async def _when_deleted(
    response: DeleteRecordsResponse, pending: Sequence[_Deletion], timeout_ms: int
) -> DeleteRecordsResponse:
    """The response when followers have deleted, too, or the client waits no longer."""
    try:
        await asyncio.wait([waiter for _, waiter in pending], timeout=max(timeout_ms, 0) / 1000)
        for answer, waiter in pending:
            try:
                answer.low_watermark = waiter.result()
            except asyncio.InvalidStateError:
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            except KafkaError as error:
                answer.error_code, answer.low_watermark = error.code, -1
    finally:
        for _, waiter in pending:
            waiter.cancel()
    return response


def _delete_records(
    context: RequestContext, topic: str, asked: DeleteRecordsPartition, pending: list[_Deletion]
) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=-1, error_code=ErrorCode.NONE
    )
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        hosted = context.services.replicas.find(topic, asked.partition_index)
        if "delete" not in hosted.log.config[CLEANUP_POLICY]:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        before = hosted.high_watermark if asked.offset == -1 else asked.offset
        if not 0 <= before <= hosted.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        answer.low_watermark, waiter = context.services.replicas.delete_records(hosted, before)
        if waiter is not None:
            pending.append((answer, waiter))
    except KafkaError as error:
        answer.error_code = error.code
    return answer


ROUTES: Final = (
    Route(ApiKey.LIST_OFFSETS, handle_list_offsets, (requires((acls.DESCRIBE, acls.TOPIC)),)),
    Route(ApiKey.DELETE_RECORDS, handle_delete_records, (requires((acls.DELETE, acls.TOPIC)),)),
    Route(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        handle_offset_for_leader_epoch,
        (requires((acls.CLUSTER_ACTION, acls.CLUSTER), (acls.DESCRIBE, acls.TOPIC)),),
    ),
)
