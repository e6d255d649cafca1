"""Answers in the shape of the version that was asked in. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas_broker.groups.offsets.offsets import UNSTABLE
from barnabas_broker.groups.records import Committed
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)


class GroupAnswer(NamedTuple):
    """What an OffsetFetch found for one group."""

    group_id: str
    error: ErrorCode
    topics: list[tuple[str, list[tuple[int, Committed]]]]


def leaving(request: LeaveGroupRequest, version: int) -> list[MemberIdentity]:
    """Who leaves; below version 3 it is one member without further ado."""
    return request.members if version >= 3 else [MemberIdentity(member_id=request.member_id)]


def leave_response(identities: list[MemberIdentity], codes: list[ErrorCode], version: int) -> LeaveGroupResponse:
    """An error for each who leaves; below version 3 the only one is the answer's own (rule 27)."""
    if version < 3:
        return LeaveGroupResponse(error_code=codes[0] if codes else ErrorCode.NONE)
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
            for each, code in zip(identities, codes, strict=True)
        ],
    )


def refuse_commit(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def asked_groups(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """The groups that an OffsetFetch asks about, below version 8 the one."""
    if version >= 8:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def fetch_response(request: OffsetFetchRequest, version: int, groups: list[GroupAnswer]) -> OffsetFetchResponse:
    """An error is a group's from version 8, the answer's from version 2, and each partition's before."""
    if version >= 8:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    error_code=group.error,
                    topics=[
                        OffsetFetchResponseTopics(
                            name=name,
                            partitions=[
                                OffsetFetchResponsePartitions(**_partition(index, found)) for index, found in partitions
                            ],
                        )
                        for name, partitions in group.topics
                    ],
                )
                for group in groups
            ]
        )
    group = groups[0]
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[OffsetFetchResponsePartition(**_partition(index, found)) for index, found in partitions],
        )
        for name, partitions in group.topics
    ]
    if version < 2 and group.error != ErrorCode.NONE:
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=group.error)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    return OffsetFetchResponse(error_code=group.error, topics=topics)


def _partition(index: int, found: Committed) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT if found is UNSTABLE else ErrorCode.NONE,
    }


def delete_response(
    request: OffsetDeleteRequest, kept: set[str], topics: Mapping[str, int] | None
) -> OffsetDeleteResponse:
    """An OffsetDelete that leaves the topics `kept` alone, because somebody subscribes to them.

    `topics` are the partitions of each topic there is, if that is known.
    """

    def error(topic: str, partition: int) -> ErrorCode:
        if topics is not None and not 0 <= partition < topics.get(topic, 0):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in kept else ErrorCode.NONE

    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=error(topic.name, partition.partition_index),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
