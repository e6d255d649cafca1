"""ListOffsets (key 2), versions 0-11, flexible from 6.

Finds the offset of a timestamp. Special timestamps: -1 latest, -2 earliest, -3 the offset of the largest timestamp
(KIP-734), -4 earliest local, -5 latest tiered, -6 earliest pending upload. Version 0 returned several offsets; 10 adds
a timeout.
"""

from typing import Final

from barnabas_protocol.schema import INT8, INT16, INT32, INT64, STRING, Api, Request, Response, Struct, array, field


class ListOffsetsPartition(Struct):
    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = field(INT64)
    max_num_offsets: int = field(INT32, "0", default=1)


class ListOffsetsTopic(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


class ListOffsetsRequest(Request, api_key=2, versions="0-11", flexible="6+"):
    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, "2+", default=0)
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(INT32, "10+", default=0, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    old_style_offsets: list[int] = field(array(INT64), "0", default=[])
    timestamp: int = field(INT64, "1+", default=-1)
    offset: int = field(INT64, "1+", default=-1)
    leader_epoch: int = field(INT32, "4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


class ListOffsetsResponse(Response, api_key=2, versions="0-11", flexible="6+"):
    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))


API: Final = Api(ListOffsetsRequest, ListOffsetsResponse)
