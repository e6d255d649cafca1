"""DescribeTopicPartitions, DescribeLogDirs, AlterReplicaLogDirs: partitions and their log directories, for tools."""

import shutil
from collections.abc import Iterable
from typing import Final

from barnabas_broker.cluster.image import Image, PartitionInfo, TopicInfo
from barnabas_broker.handlers.authorization import split
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.handlers.topic_names import missing_code
from barnabas_broker.security import acls, operations
from barnabas_broker.security.acls import requires
from barnabas_broker.steps import Steps, distinct, each, in_order
from barnabas_broker.storage.names import parse_stray_directory
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import INTERNAL_TOPICS
from barnabas_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from barnabas_protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas_protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from barnabas_protocol.registry import ApiKey

#: Maximum number of partitions of one response (max.request.partition.size.limit).
_LIMIT: Final = 2000


@stepwise
def handle_describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    """Answer DescribeTopicPartitions: topics by name, up to the requested number of partitions, and the next cursor.

    A cursor must name one of the requested topics.
    """
    image, cursor = context.services.cluster.image, request.cursor
    asked = yield from distinct(topic.name for topic in request.topics)
    # Without a list, topics that the client may not describe are left out.
    refused = yield from split(context, asked or image.topics, acls.DESCRIBE, audit=bool(asked))
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        failed = yield from each(request.topics, lambda topic: _failed(topic.name, ErrorCode.INVALID_REQUEST))
        return DescribeTopicPartitionsResponse(topics=failed)
    names = yield from in_order(asked or image.topics)
    left = max(min(request.response_partition_limit, _LIMIT), 1)
    answer = DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        yield
        first = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            first = cursor.partition_index if name == cursor.topic_name else 0
        if name in refused:
            if asked:
                answer.topics.append(_failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        allowed = operations.authorized(context.access, acls.TOPIC, name)
        topic = image.topics.get(name)
        if topic is None:
            answer.topics.append(_failed(name, missing_code(name), allowed))
            continue
        if left <= 0:
            answer.next_cursor = ResponseCursor(topic_name=name, partition_index=first)
            break
        shown = topic.partitions[first : first + left]
        answer.topics.append(_described(image, topic, shown, first, allowed))
        left -= len(shown)
        if first + len(shown) < len(topic.partitions):
            answer.next_cursor = ResponseCursor(topic_name=name, partition_index=first + len(shown))
            break
    return answer


def _failed(name: str, code: ErrorCode, allowed: int = operations.NOT_ASKED) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=bytes(16), partitions=[], topic_authorized_operations=allowed
    )


def _described(
    image: Image, topic: TopicInfo, shown: tuple[PartitionInfo, ...], first: int, allowed: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if p.leader in image.brokers else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=p.leader,
                leader_epoch=p.leader_epoch,
                replica_nodes=list(p.replicas),
                isr_nodes=list(p.isr),
                eligible_leader_replicas=list(p.elr),
                last_known_elr=[each.node_id for each in p.last_known],
                offline_replicas=[r for r in p.replicas if r not in image.brokers],
            )
            for index, p in enumerate(shown, first)
        ],
        topic_authorized_operations=allowed,
    )


@stepwise
def handle_describe_log_dirs(
    context: RequestContext, request: DescribeLogDirsRequest
) -> Steps[DescribeLogDirsResponse]:
    """Answer DescribeLogDirs: the one directory, and the sizes of the requested partitions.

    Known deviation: with all partitions, also those that were set aside (`barnabas log strays`), as topics with the
    names of their directories, which are not names of topics in the metadata. Apache Kafka does not show them.
    """
    if not context.allows_on_cluster(acls.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    asked = None if request.topics is None else (yield from _partitions(request.topics))
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for where, replica in context.services.replicas.all():
        yield
        if asked is None or where.partition in asked.get(where.topic, ()):
            topics.setdefault(where.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=where.partition, partition_size=replica.log.size, offset_lag=0, is_future_key=False
                )
            )
    directory = context.services.replicas.directory
    if asked is None:
        for name, size in directory.strays.items():
            stray = parse_stray_directory(name)
            if stray is not None:
                topics[name] = [
                    DescribeLogDirsPartition(
                        partition_index=stray.partition, partition_size=size, offset_lag=0, is_future_key=False
                    )
                ]
    shown = yield from each(topics.items(), lambda of: DescribeLogDirsTopic(name=of[0], partitions=of[1]))
    failed = directory.failure is not None
    try:
        disk = shutil.disk_usage(directory.path)
        total, usable = disk.total, disk.free
    except OSError:
        total = usable = -1
    result = DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NONE,
        log_dir=str(directory.path.absolute()),
        topics=shown,
        total_bytes=total,
        usable_bytes=usable,
    )
    return DescribeLogDirsResponse(results=[result])


def _partitions(topics: Iterable[DescribableLogDirTopic]) -> Steps[dict[str, set[int]]]:
    """The partitions that a request names, by topic."""
    named: dict[str, set[int]] = {}
    for topic in topics:
        indexes = named.setdefault(topic.topic, set())
        for index in topic.partitions:
            indexes.add(index)
            yield
        yield
    return named


@stepwise
def handle_alter_replica_log_dirs(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> Steps[AlterReplicaLogDirsResponse]:
    """Answer AlterReplicaLogDirs: there is one directory, so a replica cannot move."""
    replicas = context.services.replicas
    here = str(replicas.directory.path.absolute())
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    allowed = context.allows_on_cluster(acls.ALTER)
    for asked in request.dirs:
        yield
        for topic in asked.topics:
            yield
            for index in topic.partitions:
                yield
                if not allowed:
                    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                elif asked.path != here:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif replicas.holds(topic.name, index):
                    code = ErrorCode.NONE
                else:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                result = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                topics.setdefault(topic.name, []).append(result)
    results = yield from each(
        topics.items(), lambda of: AlterReplicaLogDirTopicResult(topic_name=of[0], partitions=of[1])
    )
    return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=results)


ROUTES: Final = (
    Route(ApiKey.DESCRIBE_LOG_DIRS, handle_describe_log_dirs, (requires((acls.DESCRIBE, acls.CLUSTER)),)),
    Route(ApiKey.DESCRIBE_TOPIC_PARTITIONS, handle_describe_topic_partitions, (requires((acls.DESCRIBE, acls.TOPIC)),)),
    Route(ApiKey.ALTER_REPLICA_LOG_DIRS, handle_alter_replica_log_dirs, (requires((acls.ALTER, acls.CLUSTER)),)),
)
