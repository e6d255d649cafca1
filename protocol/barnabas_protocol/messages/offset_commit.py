"""OffsetCommit (key 8), versions 0-10, flexible from 8.

Commits the offsets of a group. Generation -1 without a member id commits outside of the group protocol. Version 9 adds
GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-848), version 10 names topics by their id.
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, INT64, STRING, UUID, Api, Request, Response, Struct, array, field


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, "6+", default=-1, ignorable=True)
    commit_timestamp: int = field(INT64, "1", default=-1)
    committed_metadata: str | None = field(STRING, nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = field(STRING, "0-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=bytes(16), ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Request, api_key=8, versions="0-10", flexible="8+"):
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING, "1+", default="", ignorable=True)
    group_instance_id: str | None = field(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = field(INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class OffsetCommitResponseTopic(Struct):
    name: str = field(STRING, "0-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=bytes(16), ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Response, api_key=8, versions="0-10", flexible="8+"):
    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))


API: Final = Api(OffsetCommitRequest, OffsetCommitResponse)
