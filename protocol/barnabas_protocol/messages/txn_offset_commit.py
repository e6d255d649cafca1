"""TxnOffsetCommit (key 28), versions 0-6, flexible from 3.

Commits the offsets of a group in a transaction: they are pending until it ends. From version 3 on the member is
checked (KIP-447). Version 5 is for transactions of version 2: the broker adds the partition of ``__consumer_offsets``
(KIP-890). Version 6 names topics by their id (KIP-1319).
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, INT64, STRING, UUID, Api, Request, Response, Struct, array, field


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = field(STRING, nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(STRING, "0-5", default="", ignorable=True)
    topic_id: bytes = field(UUID, "6+", default=bytes(16), ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = field(array(TxnOffsetCommitRequestPartition))


class TxnOffsetCommitRequest(Request, api_key=28, versions="0-6", flexible="3+"):
    transactional_id: str = field(STRING)
    group_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    generation_id_or_member_epoch: int = field(INT32, "3+", default=-1)
    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic))


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class TxnOffsetCommitResponseTopic(Struct):
    name: str = field(STRING, "0-5", default="", ignorable=True)
    topic_id: bytes = field(UUID, "6+", default=bytes(16), ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = field(array(TxnOffsetCommitResponsePartition))


class TxnOffsetCommitResponse(Response, api_key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(INT32)
    topics: list[TxnOffsetCommitResponseTopic] = field(array(TxnOffsetCommitResponseTopic))


API: Final = Api(TxnOffsetCommitRequest, TxnOffsetCommitResponse)
