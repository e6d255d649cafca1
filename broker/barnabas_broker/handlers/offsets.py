"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: offset look-ups, and moves of the log start offset."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from barnabas_broker.config.keys import CLEANUP_POLICY
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.replication.durability import DelayedOperation
from barnabas_broker.replication.replica import Replica
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
    """Answer ListOffsets, each partition on its own."""
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
    """Every partition once, with whether the request names it more than once."""
    indexes = [partition.partition_index for partition in partitions]
    return [(p, indexes.count(index) > 1) for index, p in {p.partition_index: p for p in partitions}.items()]


def _list_offset(
    context: RequestContext, topic: str, asked: ListOffsetsPartition, twice: bool
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=ErrorCode.NONE)
    try:
        if twice:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        replica = context.services.replicas.find(topic, asked.partition_index)
        replica.check_epoch(asked.current_leader_epoch)
        if asked.timestamp < EARLIEST and context.version < _SINCE.get(asked.timestamp, 2**15):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        answer.timestamp, answer.offset, answer.leader_epoch = _look_up(replica, asked.timestamp)
        if context.version == 0:
            answer.old_style_offsets = _old_style(replica, asked, answer.offset)
            answer.timestamp, answer.offset = -1, -1
    except KafkaError as error:
        answer.error_code = error.code
    if context.version < 4:
        answer.leader_epoch = -1
    return answer


def _look_up(replica: Replica, timestamp: int) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch for a requested timestamp; -1 where there is none."""
    log = replica.log
    if timestamp == LATEST:
        if not replica.settled:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, replica.high_watermark, replica.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, log.leader_epochs.epoch_for(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1  # nothing is tiered
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None or found[1] >= replica.high_watermark:
        return -1, -1, -1
    return found


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


def handle_offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answer OffsetForLeaderEpoch, each partition on its own."""
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
        replica = context.services.replicas.find(topic, asked.partition)
        replica.check_epoch(asked.current_leader_epoch)
        if asked.leader_epoch == replica.leader_epoch:
            answer.leader_epoch, answer.end_offset = replica.leader_epoch, replica.high_watermark
        else:
            answer.leader_epoch, answer.end_offset = replica.log.epoch_end_offset(asked.leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def handle_delete_records(
    context: RequestContext, request: DeleteRecordsRequest
) -> "DeleteRecordsResponse | asyncio.Future[DeleteRecordsResponse]":
    """Delete records and answer when all live replicas have deleted them, as Kafka's ``DelayedDeleteRecords`` does."""
    delayed: DelayedOperation[DeleteRecordsResponse] = DelayedOperation()
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete_records(context, topic.name, p, delayed) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    return delayed.respond(response, request.timeout_ms / 1000)


def _delete_records(
    context: RequestContext,
    topic: str,
    asked: DeleteRecordsPartition,
    delayed: DelayedOperation[DeleteRecordsResponse],
) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=-1, error_code=ErrorCode.NONE
    )
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        replica = context.services.replicas.find(topic, asked.partition_index)
        if "delete" not in replica.log.config[CLEANUP_POLICY]:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        before = replica.high_watermark if asked.offset == -1 else asked.offset
        if not 0 <= before <= replica.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        answer.low_watermark, deleted = context.services.replicas.delete_records(replica, before)
        if deleted is not None:
            delayed.add([deleted], partial(_deleted, answer, deleted))
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _deleted(answer: DeleteRecordsPartitionResult, deleted: "asyncio.Future[int]", error: KafkaError | None) -> None:
    """Write the outcome of waiting for the followers into a partition's answer."""
    if error is None:
        answer.low_watermark = deleted.result()
    else:
        answer.error_code = error.code
        if error.code is not ErrorCode.REQUEST_TIMED_OUT:
            answer.low_watermark = -1


ROUTES: Final = (
    Route(ApiKey.LIST_OFFSETS, handle_list_offsets, (requires((acls.DESCRIBE, acls.TOPIC)),)),
    Route(ApiKey.DELETE_RECORDS, handle_delete_records, (requires((acls.DELETE, acls.TOPIC)),)),
    Route(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        handle_offset_for_leader_epoch,
        (requires((acls.CLUSTER_ACTION, acls.CLUSTER), (acls.DESCRIBE, acls.TOPIC)),),
    ),
)
