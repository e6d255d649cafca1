"""Responses in the shape of the request's version. Pure."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas_broker.steps import Steps, consumed, each
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.group_records import Committed
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


class FetchedOffset(NamedTuple):
    """The result of an OffsetFetch for one partition.

    Attributes:
        partition: its number.
        committed: the committed offset; None if there is none.
        unstable: whether an open transaction has committed the partition, and the client asked for stable offsets.
    """

    partition: int
    committed: Committed | None
    unstable: bool = False


#: The id of a topic that is named by its name.
NO_ID: Final = bytes(16)


class FetchedTopic(NamedTuple):
    """The result of an OffsetFetch for one topic.

    Attributes:
        name: its name; "" if it is unknown.
        offsets: its partitions.
        topic_id: its id, from version 10 on.
        unknown: whether the request names an id that no topic has.
    """

    name: str
    offsets: list[FetchedOffset]
    topic_id: bytes = NO_ID
    unknown: bool = False


class FetchedGroup(NamedTuple):
    """The result of an OffsetFetch for one group: an error, or offsets by topic."""

    group_id: str
    error: ErrorCode
    topics: list[FetchedTopic]


def leaving_members(request: LeaveGroupRequest, version: int) -> list[MemberIdentity]:
    """The members that leave; below version 3 there is one."""
    return request.members if version >= 3 else [MemberIdentity(member_id=request.member_id)]


def leave_response(identities: list[MemberIdentity], codes: list[ErrorCode], version: int) -> LeaveGroupResponse:
    """A result for each leaving member; below version 3 the member's error is that of the response."""
    if version < 3:
        return LeaveGroupResponse(error_code=codes[0] if codes else ErrorCode.NONE)
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
            for each, code in zip(identities, codes, strict=True)
        ],
    )


def together(parts: list[LeaveGroupResponse]) -> LeaveGroupResponse:
    """The response to a LeaveGroup of which each part has got its own; an error of one of them is that of all."""
    error = next((part.error_code for part in parts if part.error_code), ErrorCode.NONE)
    return LeaveGroupResponse(
        error_code=error, members=[] if error else [each for part in parts for each in part.members]
    )


def commit_error(request: OffsetCommitRequest, error: ErrorCode) -> Steps[OffsetCommitResponse]:
    """A failed OffsetCommit: the same error for every partition, one per step."""
    response = OffsetCommitResponse(topics=[])
    for topic in request.topics:
        answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])
        response.topics.append(answer)
        for partition in topic.partitions:
            answer.partitions.append(
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            )
            yield
        yield
    return response


def requested_groups(request: OffsetFetchRequest, version: int) -> Steps[list[OffsetFetchRequestGroup]]:
    """The groups of an OffsetFetch; below version 8 there is one."""
    if version >= 8:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = yield from each(
            request.topics,
            lambda topic: OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes),
        )
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def fetch_response(request: OffsetFetchRequest, version: int, groups: list[FetchedGroup]) -> Steps[OffsetFetchResponse]:
    """One partition per step; it consumes `groups`.

    An error is its group's from version 8 on, the response's from 2 on, else each one's.
    """
    if version >= 8:
        response = OffsetFetchResponse(groups=[])
        for group in consumed(groups):
            answer = OffsetFetchResponseGroup(group_id=group.group_id, error_code=group.error, topics=[])
            response.groups.append(answer)
            for fetched in consumed(group.topics):
                partitions = yield from each(consumed(fetched.offsets), partial(_partition, fetched.unknown))
                answer.topics.append(
                    OffsetFetchResponseTopics(name=fetched.name, topic_id=fetched.topic_id, partitions=partitions)
                )
                yield
            yield
        return response
    group = groups[0]
    topics = []
    if version < 2 and group.error != ErrorCode.NONE:
        for topic in request.topics or ():
            failed = yield from each(
                topic.partition_indexes,
                lambda index: OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, error_code=group.error
                ),
            )
            topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=failed))
            yield
    else:
        for name, offsets, *_ in consumed(group.topics):
            found = yield from each(consumed(offsets), lambda one: OffsetFetchResponsePartition(**_fetched(one)))
            topics.append(OffsetFetchResponseTopic(name=name, partitions=found))
            yield
    return OffsetFetchResponse(error_code=group.error, topics=topics)


def _partition(unknown_topic: bool, fetched: FetchedOffset) -> OffsetFetchResponsePartitions:
    answer = OffsetFetchResponsePartitions(**_fetched(fetched))
    if unknown_topic:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
    return answer


def _fetched(fetched: FetchedOffset) -> dict[str, Any]:
    committed = fetched.committed
    return {
        "partition_index": fetched.partition,
        "committed_offset": -1 if committed is None else committed.offset,
        "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
        "error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT if fetched.unstable else ErrorCode.NONE,
    }


def delete_response(
    request: OffsetDeleteRequest, subscribed: set[str], topics: Mapping[str, int] | None
) -> Steps[OffsetDeleteResponse]:
    """The response to an OffsetDelete: offsets of `subscribed` topics are not deleted.

    `topics` has the number of partitions of each topic; None if that is unknown.
    """

    def error(topic: str, partition: int) -> ErrorCode:
        if topics is not None and not 0 <= partition < topics.get(topic, 0):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in subscribed else ErrorCode.NONE

    response = OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=[])
    for topic in request.topics:
        answer = OffsetDeleteResponseTopic(name=topic.name, partitions=[])
        response.topics.append(answer)
        for partition in topic.partitions:
            index = partition.partition_index
            answer.partitions.append(
                OffsetDeleteResponsePartition(partition_index=index, error_code=error(topic.name, index))
            )
            yield
        yield
    return response
