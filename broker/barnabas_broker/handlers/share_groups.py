"""ShareGroupHeartbeat, ShareGroupDescribe, DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets
(KIP-932).

The rules are in :mod:`barnabas_broker.groups.share`; here requests and responses are translated.

Known deviation: the lag of a partition that another broker leads is -1, unknown.
"""

import asyncio
from collections.abc import Iterable, Mapping, Set
from functools import partial
from typing import Final
from uuid import UUID

from barnabas_broker.cluster.image import Image
from barnabas_broker.groups.coordinator.inspection import failed_share_group
from barnabas_broker.groups.share.group import ShareGroup, StateTopics, heartbeat_error
from barnabas_broker.handlers.authorization import split
from barnabas_broker.handlers.consumer_groups import describe_handler, heartbeat_handler
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.groups import coordinator_of
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.security.audit import Change
from barnabas_broker.shares.records import ShareKey
from barnabas_broker.steps import Steps, by_key, each
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from barnabas_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from barnabas_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from barnabas_protocol.printable import printable
from barnabas_protocol.registry import ApiKey

#: A topic of a request, its id, and why it is refused.
_Asked = tuple[AlterShareGroupOffsetsRequestTopic, bytes, ErrorCode]
_UNKNOWN: Final = -1
_NO_ID: Final = bytes(16)
_NO_GROUP_ID: Final = "The group id is invalid."
_UNKNOWN_TOPIC: Final = "This server does not host this topic-partition."


# DescribeShareGroupOffsets


async def handle_describe_share_group_offsets(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Answer DescribeShareGroupOffsets, one group after the other."""
    ids = [group.group_id for group in request.groups]
    refused = await context.sliced(split(context, ids, acls.DESCRIBE, acls.GROUP))
    response = DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=[])
    asked, _ = await context.sliced(by_key(request.groups, lambda group: group.group_id))
    for group in asked.values():
        await asyncio.sleep(0)  # what fails at once must not keep others waiting
        try:
            if group.group_id in refused:
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            try:
                machine = coordinator_of(context).share_groups.find(group.group_id)
            except KafkaError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                machine = None  # as in Kafka: a group that does not exist has no offsets
            described = await _described_offsets(context, machine, group)
        except KafkaError as error:
            described = DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, topics=[], error_code=error.code, error_message=error.message or None
            )
        response.groups.append(described)
    return response


async def _described_offsets(
    context: RequestContext, machine: ShareGroup | None, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    image = context.services.cluster.image
    states: StateTopics = {} if machine is None else machine.initialized
    if asked.topics is None:
        wanted = {name: sorted(numbers) for name, numbers in states.values()}
    else:
        wanted = await context.sliced(_wanted_offsets(asked.topics))
    audit = asked.topics is not None
    refused = await context.sliced(split(context, wanted, acls.DESCRIBE, audit=audit))
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    for name, numbers in wanted.items():
        await asyncio.sleep(0)
        if name in refused and not audit:
            continue
        known = image.topics.get(name)
        topic_id = _NO_ID if known is None else known.topic_id
        if name in refused:
            error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            partitions = await context.sliced(each(dict.fromkeys(numbers), partial(_no_offset, error=error)))
        else:
            partitions = []
            for number in dict.fromkeys(numbers):
                await asyncio.sleep(0)
                key = ShareKey(asked.group_id, UUID(bytes=topic_id), number)
                partitions.append(await _offset(context, key, name, states))
        topics.append(DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=partitions))
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id, topics=topics, error_code=ErrorCode.NONE, error_message=None
    )


def _wanted_offsets(topics: Iterable[DescribeShareGroupOffsetsRequestTopic]) -> Steps[dict[str, list[int]]]:
    """The partitions that a request names, by topic."""
    wanted: dict[str, list[int]] = {}
    for topic in topics:
        wanted.setdefault(topic.topic_name, []).extend(topic.partitions)
        yield
    return wanted


async def _offset(
    context: RequestContext, key: ShareKey, topic: str, states: StateTopics
) -> DescribeShareGroupOffsetsResponsePartition:
    _, numbers = states.get(key.topic_id.bytes, ("", frozenset()))
    if key.partition not in numbers:
        return _no_offset(key.partition, None)
    try:
        answer = await context.services.persister.summary(key)
    except KafkaError as error:
        return _no_offset(key.partition, error)
    state = answer.state
    if state is None or state.start_offset < 0:
        return _no_offset(key.partition, None)
    lag = _UNKNOWN
    try:
        end = context.services.replicas.find(topic, key.partition).log.high_watermark
    except KafkaError:
        pass  # another broker leads it
    else:
        lag = max(end - state.start_offset - max(state.delivery_complete_count, 0), 0)
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=key.partition,
        start_offset=state.start_offset,
        leader_epoch=answer.leader_epoch,
        lag=lag,
        error_code=ErrorCode.NONE,
        error_message=None,
    )


def _no_offset(partition: int, error: KafkaError | None) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition,
        start_offset=_UNKNOWN if error is None else 0,
        leader_epoch=0,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message or None,
    )


# AlterShareGroupOffsets


async def handle_alter_share_group_offsets(
    context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Answer AlterShareGroupOffsets."""
    response = AlterShareGroupOffsetsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, responses=[]
    )
    if not context.allows(acls.READ, acls.GROUP, request.group_id):
        response.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return response
    names = [topic.topic_name for topic in request.topics]
    refused = await context.sliced(split(context, names, acls.READ))
    image = context.services.cluster.image
    offsets, asked = await context.sliced(_new_offsets(request, image, refused))
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, _NO_GROUP_ID)
        errors = await coordinator_of(context).share_groups.alter_offsets(request.group_id, offsets, image.names)
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message or None
        return response
    response.responses = await context.sliced(_altered_offsets(request.group_id, asked, errors))
    if any(error is None for error in errors.values()):
        context.changed(Change.OFFSETS_SET, group=printable(request.group_id))
    return response


def _new_offsets(
    request: AlterShareGroupOffsetsRequest, image: Image, refused: Set[str]
) -> Steps[tuple[dict[ShareKey, int], list[_Asked]]]:
    """The offsets that a request sets, and its topics."""
    offsets: dict[ShareKey, int] = {}
    asked: list[_Asked] = []
    for topic in request.topics:
        known, code = image.topics.get(topic.topic_name), ErrorCode.NONE
        if topic.topic_name in refused:
            known, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif known is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic_id = _NO_ID if known is None else known.topic_id
        asked.append((topic, topic_id, code))
        partitions = 0 if known is None else len(known.partitions)
        for one in topic.partitions:
            if one.start_offset >= 0 and 0 <= one.partition_index < partitions:
                offsets[ShareKey(request.group_id, UUID(bytes=topic_id), one.partition_index)] = one.start_offset
            yield
        yield
    return offsets, asked


def _altered_offsets(
    group_id: str, asked: list[_Asked], errors: Mapping[ShareKey, KafkaError | None]
) -> Steps[list[AlterShareGroupOffsetsResponseTopic]]:
    topics = []
    for topic, topic_id, code in asked:
        answer = partial(_altered, group_id, topic_id, code, errors)
        partitions = yield from each(topic.partitions, answer)
        topics.append(
            AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, topic_id=topic_id, partitions=partitions)
        )
        yield
    return topics


def _altered(
    group_id: str,
    topic_id: bytes,
    code: ErrorCode,
    errors: Mapping[ShareKey, KafkaError | None],
    asked: AlterShareGroupOffsetsRequestPartition,
) -> AlterShareGroupOffsetsResponsePartition:
    error = None if code is ErrorCode.NONE else KafkaError(code, _why(code))
    if error is None and asked.start_offset < 0:
        error = KafkaError(ErrorCode.INVALID_REQUEST, "The start offset must not be negative.")
    elif error is None:
        key = ShareKey(group_id, UUID(bytes=topic_id), asked.partition_index)
        error = errors.get(key, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))  # there is no such partition
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=asked.partition_index,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message or _why(error.code),
    )


def _why(code: ErrorCode) -> str:
    """The text of an error that has none."""
    return _UNKNOWN_TOPIC if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else code.name


# DeleteShareGroupOffsets


async def handle_delete_share_group_offsets(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Answer DeleteShareGroupOffsets."""
    response = DeleteShareGroupOffsetsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, responses=[]
    )
    if not context.allows(acls.DELETE, acls.GROUP, request.group_id):
        response.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return response
    names, _ = await context.sliced(by_key(request.topics, lambda topic: topic.topic_name))
    refused = await context.sliced(split(context, names, acls.READ))
    image = context.services.cluster.image
    found = await context.sliced(each(names, image.topics.get))
    ids = {topic.name: topic.topic_id for topic in found if topic is not None and topic.name not in refused}
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, _NO_GROUP_ID)
        errors = await coordinator_of(context).share_groups.delete_offsets(request.group_id, ids.values())
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message or None
        return response

    def answer(name: str) -> DeleteShareGroupOffsetsResponseTopic:
        failed = errors.get(ids[name]) if name in ids else KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if name in refused:
            failed = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=ids[name] if failed is None else _NO_ID,
            error_code=ErrorCode.NONE if failed is None else failed.code,
            error_message=None if failed is None else failed.message or _why(failed.code),
        )

    response.responses = await context.sliced(each(names, answer))
    if any(error is None for error in errors.values()):
        context.changed(Change.OFFSETS_DELETED, group=printable(request.group_id))
    return response


ROUTES: Final = (
    Route(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        heartbeat_handler(lambda groups, *asked: groups.share_groups.heartbeat(*asked), heartbeat_error),
        (
            requires((acls.READ, acls.GROUP)),
            requires((acls.DESCRIBE, acls.TOPIC), when="the request names topics"),
        ),
    ),
    Route(
        ApiKey.SHARE_GROUP_DESCRIBE,
        describe_handler(lambda groups, *asked: groups.share_groups.describe(*asked), failed_share_group),
        (
            requires((acls.DESCRIBE, acls.GROUP)),
            requires((acls.DESCRIBE, acls.TOPIC), when="the response names topics"),
        ),
    ),
    Route(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        handle_describe_share_group_offsets,
        (requires((acls.DESCRIBE, acls.GROUP)), requires((acls.DESCRIBE, acls.TOPIC))),
    ),
    Route(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        handle_alter_share_group_offsets,
        (requires((acls.READ, acls.GROUP)), requires((acls.READ, acls.TOPIC))),
        changes=(Change.OFFSETS_SET,),
    ),
    Route(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        handle_delete_share_group_offsets,
        (requires((acls.DELETE, acls.GROUP)), requires((acls.READ, acls.TOPIC))),
        changes=(Change.OFFSETS_DELETED,),
    ),
)
