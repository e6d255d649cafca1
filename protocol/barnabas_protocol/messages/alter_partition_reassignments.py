"""AlterPartitionReassignments (key 45), versions 0-1, flexible from 0.

Moves partitions to other brokers (KIP-455). A partition with null replicas cancels its reassignment. From version 1 the
client may ask that the number of replicas stays the same (KIP-860).
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class ReassignablePartition(Struct):
    partition_index: int = field(INT32)
    replicas: list[int] | None = field(array(INT32), nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = field(STRING)
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition))


class AlterPartitionReassignmentsRequest(Request, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = field(INT32, default=60_000)
    allow_replication_factor_change: bool = field(BOOLEAN, "1+", default=True)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic))


class ReassignablePartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ReassignablePartitionResponse] = field(array(ReassignablePartitionResponse))


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    allow_replication_factor_change: bool = field(BOOLEAN, "1+", default=True, ignorable=True)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default="")
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse))


API: Final = Api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse)
