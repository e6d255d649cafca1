"""Fetch (key 1), versions 0-18, flexible from 12.

Reads record batches from partitions, and waits for data if the client asks for it. Version 7 adds fetch sessions
(KIP-227), 12 the diverging epoch (KIP-595), 13 topic ids (KIP-516), 15 moves the replica id into a tagged structure
(KIP-903), 18 adds the follower's high watermark (KIP-1166).
"""

from typing import Final

from barnabas_protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
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
from barnabas_protocol.wire import Buffer


class ReplicaState(Struct):
    replica_id: int = field(INT32, "15+", default=-1)
    replica_epoch: int = field(INT64, "15+", default=-1)


class FetchPartition(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, "12+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "17+", default=bytes(16), tag=0, tagged="17+", ignorable=True)
    high_watermark: int = field(INT64, "18+", default=9223372036854775807, tag=1, tagged="18+", ignorable=True)


class FetchTopic(Struct):
    topic: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=bytes(16), ignorable=True)
    partitions: list[FetchPartition] = field(array(FetchPartition))


class ForgottenTopic(Struct):
    topic: str = field(STRING, "7-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=bytes(16), ignorable=True)
    partitions: list[int] = field(array(INT32), "7+", default=[])


class FetchRequest(Request, api_key=1, versions="0-18", flexible="12+"):
    cluster_id: str | None = field(STRING, "12+", nullable="12+", default=None, tag=0, tagged="12+", ignorable=True)
    replica_id: int = field(INT32, "0-14", default=-1)
    replica_state: ReplicaState | None = field(struct(ReplicaState), "15+", default=None, tag=1, tagged="15+")
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, "3+", default=2147483647, ignorable=True)
    isolation_level: int = field(INT8, "4+", default=0, ignorable=True)
    session_id: int = field(INT32, "7+", default=0, ignorable=True)
    session_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), "7+", default=[])
    rack_id: str = field(STRING, "11+", default="", ignorable=True)


class FetchEpochEndOffset(Struct):
    epoch: int = field(INT32, "12+", default=-1)
    end_offset: int = field(INT64, "12+", default=-1)


class FetchLeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "12+", default=-1)
    leader_epoch: int = field(INT32, "12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


class AbortedTransaction(Struct):
    producer_id: int = field(INT64, "4+", default=0)
    first_offset: int = field(INT64, "4+", default=0)


class PartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, "4+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: FetchEpochEndOffset | None = field(
        struct(FetchEpochEndOffset), "12+", default=None, tag=0, tagged="12+"
    )
    current_leader: FetchLeaderIdAndEpoch | None = field(
        struct(FetchLeaderIdAndEpoch), "12+", default=None, tag=1, tagged="12+"
    )
    snapshot_id: SnapshotId | None = field(struct(SnapshotId), "12+", default=None, tag=2, tagged="12+")
    aborted_transactions: list[AbortedTransaction] | None = field(
        array(AbortedTransaction), "4+", nullable="4+", default=[], ignorable=True
    )
    preferred_read_replica: int = field(INT32, "11+", default=-1)
    records: Buffer | None = field(RECORDS, nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=bytes(16), ignorable=True)
    partitions: list[PartitionData] = field(array(PartitionData))


class FetchNodeEndpoint(Struct):
    node_id: int = field(INT32, "16+", default=0)
    host: str = field(STRING, "16+", default="")
    port: int = field(INT32, "16+", default=0)
    rack: str | None = field(STRING, "16+", nullable="16+", default=None)


class FetchResponse(Response, api_key=1, versions="0-18", flexible="12+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "7+", default=0, ignorable=True)
    session_id: int = field(INT32, "7+", default=0)
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[FetchNodeEndpoint] = field(array(FetchNodeEndpoint), "16+", default=[], tag=0, tagged="16+")


API: Final = Api(FetchRequest, FetchResponse)
