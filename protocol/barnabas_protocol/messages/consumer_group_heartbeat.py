"""ConsumerGroupHeartbeat (key 68), versions 0-1, flexible from 0.

Joins a group of the consumer protocol, reports what a member owns and subscribes to, and returns its assignment
(KIP-848). Null means unchanged. Version 1 has the regular expression, and the member generates its own id (KIP-1082).
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, STRING, UUID, Api, Request, Response, Struct, array, field, struct


class HeartbeatTopicPartitions(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupHeartbeatRequest(Request, api_key=68, versions="0-1", flexible="0+"):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    subscribed_topic_names: list[str] | None = field(array(STRING), nullable="0+", default=None)
    subscribed_topic_regex: str | None = field(STRING, "1+", nullable="1+", default=None)
    server_assignor: str | None = field(STRING, nullable="0+", default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = field(
        array(HeartbeatTopicPartitions), nullable="0+", default=None
    )


class HeartbeatAssignment(Struct):
    topic_partitions: list[HeartbeatTopicPartitions] = field(array(HeartbeatTopicPartitions))


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: HeartbeatAssignment | None = field(struct(HeartbeatAssignment), nullable="0+", default=None)


API: Final = Api(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
