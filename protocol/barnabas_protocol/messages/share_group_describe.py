"""ShareGroupDescribe (key 77), version 1, flexible from 1.

Describes share groups: members, epochs and assignments.
"""

from typing import Final

from barnabas_protocol.schema import (
    BOOLEAN,
    INT16,
    INT32,
    STRING,
    UUID,
    Api,
    Request,
    Response,
    Struct,
    array,
    field,
    struct,
)


class ShareGroupDescribeRequest(Request, api_key=77, versions="1", flexible="1+"):
    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOLEAN)


class DescribedShareTopicPartitions(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class DescribedShareAssignment(Struct):
    topic_partitions: list[DescribedShareTopicPartitions] = field(array(DescribedShareTopicPartitions))


class ShareMember(Struct):
    member_id: str = field(STRING)
    rack_id: str | None = field(STRING, nullable="1+", default=None)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    assignment: DescribedShareAssignment = field(struct(DescribedShareAssignment))


class DescribedShareGroup(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="1+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: list[ShareMember] = field(array(ShareMember))
    authorized_operations: int = field(INT32, default=-2147483648)


class ShareGroupDescribeResponse(Response, api_key=77, versions="1", flexible="1+"):
    throttle_time_ms: int = field(INT32)
    groups: list[DescribedShareGroup] = field(array(DescribedShareGroup))


API: Final = Api(ShareGroupDescribeRequest, ShareGroupDescribeResponse)
