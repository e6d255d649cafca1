"""ShareGroupHeartbeat (key 76), version 1, flexible from 1.

Joins a share group, reports what a member subscribes to, and returns its assignment (KIP-932). Null means unchanged.
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, STRING, UUID, Api, Request, Response, Struct, array, field, struct


class ShareGroupHeartbeatRequest(Request, api_key=76, versions="1", flexible="1+"):
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    rack_id: str | None = field(STRING, nullable="1+", default=None)
    subscribed_topic_names: list[str] | None = field(array(STRING), nullable="1+", default=None)


class ShareTopicPartitions(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


class ShareAssignment(Struct):
    topic_partitions: list[ShareTopicPartitions] = field(array(ShareTopicPartitions))


class ShareGroupHeartbeatResponse(Response, api_key=76, versions="1", flexible="1+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="1+", default=None)
    member_id: str | None = field(STRING, nullable="1+", default=None)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: ShareAssignment | None = field(struct(ShareAssignment), nullable="1+", default=None)


API: Final = Api(ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse)
