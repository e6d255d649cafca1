"""OffsetForLeaderEpoch (key 23), versions 0-4, flexible from 4.

Returns the end offset of a leader epoch. Consumers and followers find with it where their log and the leader's diverge
(KIP-101, KIP-320). librdkafka speaks version 2 only.
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, INT64, STRING, Api, Request, Response, Struct, array, field


class OffsetForLeaderPartition(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, "2+", default=-1, ignorable=True)
    leader_epoch: int = field(INT32)


class OffsetForLeaderTopic(Struct):
    topic: str = field(STRING)
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition))


class OffsetForLeaderEpochRequest(Request, api_key=23, versions="0-4", flexible="4+"):
    replica_id: int = field(INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic))


class EpochEndOffset(Struct):
    error_code: int = field(INT16)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, "1+", default=-1, ignorable=True)
    end_offset: int = field(INT64, default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = field(STRING)
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset))


class OffsetForLeaderEpochResponse(Response, api_key=23, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult))


API: Final = Api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
