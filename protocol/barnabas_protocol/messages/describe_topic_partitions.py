"""DescribeTopicPartitions (key 75), version 0, flexible from 0.

Describes the partitions of topics page by page (KIP-966).
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


class TopicRequest(Struct):
    name: str = field(STRING)


class Cursor(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class DescribeTopicPartitionsRequest(Request, api_key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field(array(TopicRequest))
    response_partition_limit: int = field(INT32, default=2000)
    cursor: Cursor | None = field(struct(Cursor), nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    eligible_leader_replicas: list[int] | None = field(array(INT32), nullable="0+", default=None)
    last_known_elr: list[int] | None = field(array(INT32), nullable="0+", default=None)
    offline_replicas: list[int] = field(array(INT32), ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable="0+")
    topic_id: bytes = field(UUID, ignorable=True)
    is_internal: bool = field(BOOLEAN, default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(array(DescribeTopicPartitionsResponsePartition))
    topic_authorized_operations: int = field(INT32, default=-2147483648)


class ResponseCursor(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class DescribeTopicPartitionsResponse(Response, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(array(DescribeTopicPartitionsResponseTopic))
    next_cursor: ResponseCursor | None = field(struct(ResponseCursor), nullable="0+", default=None)


API: Final = Api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse)
