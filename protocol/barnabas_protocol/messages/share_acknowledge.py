"""ShareAcknowledge (key 79), versions 1-2, flexible from 0.

Acknowledges records that a member of a share group has acquired (KIP-932). Version 2 adds acknowledgements that
renew locks (KIP-1222).
"""

from typing import Final

from barnabas_protocol.schema import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
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


class AcknowledgementBatch(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    acknowledge_types: list[int] = field(array(INT8))


class AcknowledgePartition(Struct):
    partition_index: int = field(INT32)
    acknowledgement_batches: list[AcknowledgementBatch] = field(array(AcknowledgementBatch))


class AcknowledgeTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[AcknowledgePartition] = field(array(AcknowledgePartition))


class ShareAcknowledgeRequest(Request, api_key=79, versions="1-2", flexible="0+"):
    group_id: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+")
    share_session_epoch: int = field(INT32)
    is_renew_ack: bool = field(BOOLEAN, "2+", default=False)
    topics: list[AcknowledgeTopic] = field(array(AcknowledgeTopic))


class ShareAcknowledgeLeader(Struct):
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class AcknowledgedPartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    current_leader: ShareAcknowledgeLeader = field(struct(ShareAcknowledgeLeader))


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[AcknowledgedPartition] = field(array(AcknowledgedPartition))


class ShareAcknowledgeNode(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)


class ShareAcknowledgeResponse(Response, api_key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    error_code: int = field(INT16, ignorable=True)
    error_message: str | None = field(STRING, nullable="0+", default=None, ignorable=True)
    acquisition_lock_timeout_ms: int = field(INT32, "2+", default=0)
    responses: list[ShareAcknowledgeTopicResponse] = field(array(ShareAcknowledgeTopicResponse))
    node_endpoints: list[ShareAcknowledgeNode] = field(array(ShareAcknowledgeNode))


API: Final = Api(ShareAcknowledgeRequest, ShareAcknowledgeResponse)
