"""DescribeQuorum (key 55), versions 0-2, flexible from 0.

Describes the quorum of controllers (KIP-836). Version 1 adds times, version 2 directories, nodes and error messages
(KIP-853).
"""

from typing import Final

from barnabas_protocol.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Api,
    Request,
    Response,
    Struct,
    array,
    field,
)


class DescribeQuorumRequestPartition(Struct):
    partition_index: int = field(INT32)


class DescribeQuorumRequestTopic(Struct):
    topic_name: str = field(STRING)
    partitions: list[DescribeQuorumRequestPartition] = field(array(DescribeQuorumRequestPartition))


class DescribeQuorumRequest(Request, api_key=55, versions="0-2", flexible="0+"):
    topics: list[DescribeQuorumRequestTopic] = field(array(DescribeQuorumRequestTopic))


class QuorumReplicaState(Struct):
    replica_id: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "2+", default=bytes(16))
    log_end_offset: int = field(INT64)
    last_fetch_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)


class DescribeQuorumResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "2+", nullable="2+", default="", ignorable=True)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    high_watermark: int = field(INT64)
    current_voters: list[QuorumReplicaState] = field(array(QuorumReplicaState))
    observers: list[QuorumReplicaState] = field(array(QuorumReplicaState))


class DescribeQuorumResponseTopic(Struct):
    topic_name: str = field(STRING)
    partitions: list[DescribeQuorumResponsePartition] = field(array(DescribeQuorumResponsePartition))


class QuorumListener(Struct):
    name: str = field(STRING, "2+", default="")
    host: str = field(STRING, "2+", default="")
    port: int = field(UINT16, "2+", default=0)


class QuorumNode(Struct):
    node_id: int = field(INT32, "2+", default=0)
    listeners: list[QuorumListener] = field(array(QuorumListener), "2+", default=[])


class DescribeQuorumResponse(Response, api_key=55, versions="0-2", flexible="0+"):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "2+", nullable="2+", default="", ignorable=True)
    topics: list[DescribeQuorumResponseTopic] = field(array(DescribeQuorumResponseTopic))
    nodes: list[QuorumNode] = field(array(QuorumNode), "2+", default=[])


API: Final = Api(DescribeQuorumRequest, DescribeQuorumResponse)
