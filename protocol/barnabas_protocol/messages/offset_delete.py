"""OffsetDelete (key 47), version 0, never flexible.

Deletes the committed offsets of topics that no member of the group subscribes to (KIP-496).
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(INT32)


class OffsetDeleteRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition))


class OffsetDeleteRequest(Request, api_key=47, versions="0"):
    group_id: str = field(STRING)
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class OffsetDeleteResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteResponsePartition] = field(array(OffsetDeleteResponsePartition))


class OffsetDeleteResponse(Response, api_key=47, versions="0"):
    error_code: int = field(INT16)
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic))


API: Final = Api(OffsetDeleteRequest, OffsetDeleteResponse)
