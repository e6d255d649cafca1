"""Produce (key 0), versions 0-13, flexible from 9.

Appends record batches to partitions. Versions 0 to 2 are declared because old clients look for them (KAFKA-18659); the
broker answers them with UNSUPPORTED_VERSION, for they carry message formats that Kafka 4 does not accept. Version 10
adds the current leader (KIP-951), 12 is 11 under KIP-890, 13 names topics by id (KIP-516).
"""

from typing import Final

from barnabas_protocol.schema import (
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


class PartitionProduceData(Struct):
    index: int = field(INT32)
    records: Buffer | None = field(RECORDS, nullable="0+")


class TopicProduceData(Struct):
    name: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=bytes(16), ignorable=True)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


class ProduceRequest(Request, api_key=0, versions="0-13", flexible="9+"):
    transactional_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = field(INT32, "8+", default=0)
    batch_index_error_message: str | None = field(STRING, "8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "10+", default=-1)
    leader_epoch: int = field(INT32, "10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, "2+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array(BatchIndexAndErrorMessage), "8+", default=[], ignorable=True
    )
    error_message: str | None = field(STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = field(struct(LeaderIdAndEpoch), "10+", default=None, tag=0, tagged="10+")


class TopicProduceResponse(Struct):
    name: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=bytes(16), ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "10+", default=0)
    host: str = field(STRING, "10+", default="")
    port: int = field(INT32, "10+", default=0)
    rack: str | None = field(STRING, "10+", nullable="10+", default=None)


class ProduceResponse(Response, api_key=0, versions="0-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "10+", default=[], tag=0, tagged="10+")


API: Final = Api(ProduceRequest, ProduceResponse)
