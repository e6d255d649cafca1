"""ListPartitionReassignments (key 46), version 0, flexible (KIP-455).

Tells which partitions are being moved.
"""

from barnabas_protocol.schema import INT16, INT32, STRING, Request, Response, Struct, array, field


class ListPartitionReassignmentsTopics(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class ListPartitionReassignmentsRequest(Request, api_key=46, versions="0", flexible="0+"):
    """What a client sends; no topics stand for all."""

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
    """What the broker answers."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default="")
    topics: list[OngoingTopicReassignment] = field(array(OngoingTopicReassignment))
