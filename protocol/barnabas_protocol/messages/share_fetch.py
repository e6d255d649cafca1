"""ShareFetch (key 78), versions 1-2, flexible from 0.

Acquires records for a member of a share group (KIP-932), and acknowledges earlier ones on the way. Version 2 adds the
acquire mode (KIP-1206) and acknowledgements that renew locks (KIP-1222).
"""

from typing import Final

from barnabas_protocol.schema import (
    BOOLEAN,
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


class FetchAcknowledgementBatch(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    acknowledge_types: list[int] = field(array(INT8))


class ShareFetchPartition(Struct):
    partition_index: int = field(INT32)
    acknowledgement_batches: list[FetchAcknowledgementBatch] = field(array(FetchAcknowledgementBatch))


class ShareFetchTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ShareFetchPartition] = field(array(ShareFetchPartition))


class ShareForgottenTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


class ShareFetchRequest(Request, api_key=78, versions="1-2", flexible="0+"):
    group_id: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+")
    share_session_epoch: int = field(INT32)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, default=2147483647)
    max_records: int = field(INT32)
    batch_size: int = field(INT32)
    share_acquire_mode: int = field(INT8, "2+", default=0)
    is_renew_ack: bool = field(BOOLEAN, "2+", default=False)
    topics: list[ShareFetchTopic] = field(array(ShareFetchTopic))
    forgotten_topics_data: list[ShareForgottenTopic] = field(array(ShareForgottenTopic))


class ShareFetchLeader(Struct):
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class AcquiredRecords(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_count: int = field(INT16)


class SharePartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    acknowledge_error_code: int = field(INT16)
    acknowledge_error_message: str | None = field(STRING, nullable="0+", default=None)
    current_leader: ShareFetchLeader = field(struct(ShareFetchLeader))
    records: Buffer = field(RECORDS)
    acquired_records: list[AcquiredRecords] = field(array(AcquiredRecords))


class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[SharePartitionData] = field(array(SharePartitionData))


class ShareFetchNode(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)


class ShareFetchResponse(Response, api_key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    error_code: int = field(INT16, ignorable=True)
    error_message: str | None = field(STRING, nullable="0+", default=None, ignorable=True)
    acquisition_lock_timeout_ms: int = field(INT32)
    responses: list[ShareFetchableTopicResponse] = field(array(ShareFetchableTopicResponse))
    node_endpoints: list[ShareFetchNode] = field(array(ShareFetchNode))


API: Final = Api(ShareFetchRequest, ShareFetchResponse)
