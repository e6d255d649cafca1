"""Metadata (key 3), versions 0-13, flexible from 9.

Returns the brokers, the controller, and topics with their partitions and leaders. Null topics stand for all; in version
0 an empty list does. Version 10 adds topic ids, 12 finds topics by id, 13 adds a top-level error (KIP-1102).

Known deviation: librdkafka 2.16 writes the null topics of version 13 as four bytes instead of one. Kafka reads null,
two false flags and an empty tag section from them, and ignores the three bytes that follow. A broker must do the same.
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT16, INT32, STRING, UUID, Api, Request, Response, Struct, array, field


class MetadataRequestTopic(Struct):
    topic_id: bytes = field(UUID, "10+", default=bytes(16), ignorable=True)
    name: str | None = field(STRING, nullable="10+")


class MetadataRequest(Request, api_key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = field(array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = field(BOOLEAN, "4+", default=True)
    include_cluster_authorized_operations: bool = field(BOOLEAN, "8-10", default=False)
    include_topic_authorized_operations: bool = field(BOOLEAN, "8+", default=False)


class MetadataResponseBroker(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, "1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), "5+", default=[], ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable="12+")
    topic_id: bytes = field(UUID, "10+", default=bytes(16), ignorable=True)
    is_internal: bool = field(BOOLEAN, "1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, "8+", default=-2147483648)


class MetadataResponse(Response, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(STRING, "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, "8-10", default=-2147483648)
    error_code: int = field(INT16, "13+", default=0, ignorable=True)


API: Final = Api(MetadataRequest, MetadataResponse)
