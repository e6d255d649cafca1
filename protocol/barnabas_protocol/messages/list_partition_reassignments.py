"""ListPartitionReassignments (key 46), version 0, flexible from 0.

Lists the partitions that are being reassigned (KIP-455). Null topics stand for all.
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class ListPartitionReassignmentsTopics(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class ListPartitionReassignmentsRequest(Request, api_key=46, versions="0", flexible="0+"):
    timeout_ms: int = field(INT32, default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        array(ListPartitionReassignmentsTopics), nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = field(INT32)
    replicas: list[int] = field(array(INT32))
    adding_replicas: list[int] = field(array(INT32))
    removing_replicas: list[int] = field(array(INT32))


class OngoingTopicReassignment(Struct):
    name: str = field(STRING)
    partitions: list[OngoingPartitionReassignment] = field(array(OngoingPartitionReassignment))


class ListPartitionReassignmentsResponse(Response, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default="")
    topics: list[OngoingTopicReassignment] = field(array(OngoingTopicReassignment))


API: Final = Api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse)
