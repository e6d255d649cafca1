"""ConsumerGroupDescribe (key 69), versions 0-1, flexible from 0.

Describes groups of the consumer protocol with the current and the target assignment of each member (KIP-848). Version
1 has the type of a member (KIP-1099).
"""

from typing import Final

from barnabas_protocol.schema import (
    BOOLEAN,
    INT8,
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


class ConsumerGroupDescribeRequest(Request, api_key=69, versions="0-1", flexible="0+"):
    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOLEAN)


class DescribedTopicPartitions(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class DescribedAssignment(Struct):
    topic_partitions: list[DescribedTopicPartitions] = field(array(DescribedTopicPartitions))


class Member(Struct):
    member_id: str = field(STRING)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable="0+", default=None)
    assignment: DescribedAssignment = field(struct(DescribedAssignment))
    target_assignment: DescribedAssignment = field(struct(DescribedAssignment))
    member_type: int = field(INT8, "1+", default=-1, ignorable=True)


class DescribedConsumerGroup(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: list[Member] = field(array(Member))
    authorized_operations: int = field(INT32, default=-2147483648)


class ConsumerGroupDescribeResponse(Response, api_key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    groups: list[DescribedConsumerGroup] = field(array(DescribedConsumerGroup))


API: Final = Api(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
