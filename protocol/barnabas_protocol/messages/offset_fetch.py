"""OffsetFetch (key 9), versions 0-10, flexible from 6.

Returns the committed offsets of a group, from version 8 on of several groups; -1 for a partition without one. Null
topics stand for all. Version 10 names topics by their id (KIP-848).
"""

from typing import Final

from barnabas_protocol.schema import (
    BOOLEAN,
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
)


class OffsetFetchRequestTopic(Struct):
    name: str = field(STRING, "0-7", default="")
    partition_indexes: list[int] = field(array(INT32), "0-7", default=[])


class OffsetFetchRequestTopics(Struct):
    name: str = field(STRING, "8-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=bytes(16), ignorable=True)
    partition_indexes: list[int] = field(array(INT32), "8+", default=[])


class OffsetFetchRequestGroup(Struct):
    group_id: str = field(STRING, "8+", default="")
    member_id: str | None = field(STRING, "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(
        array(OffsetFetchRequestTopics), "8+", nullable="8+", default=[]
    )


class OffsetFetchRequest(Request, api_key=9, versions="0-10", flexible="6+"):
    group_id: str = field(STRING, "0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(
        array(OffsetFetchRequestTopic), "0-7", nullable="2-7", default=[]
    )
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), "8+", default=[])
    require_stable: bool = field(BOOLEAN, "7+", default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = field(INT32, "0-7", default=0)
    committed_offset: int = field(INT64, "0-7", default=0)
    committed_leader_epoch: int = field(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = field(STRING, "0-7", nullable="0-7", default="")
    error_code: int = field(INT16, "0-7", default=0)


class OffsetFetchResponseTopic(Struct):
    name: str = field(STRING, "0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition), "0-7", default=[])


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = field(INT32, "8+", default=0)
    committed_offset: int = field(INT64, "8+", default=0)
    committed_leader_epoch: int = field(INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = field(STRING, "8+", nullable="8+", default="")
    error_code: int = field(INT16, "8+", default=0)


class OffsetFetchResponseTopics(Struct):
    name: str = field(STRING, "8-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=bytes(16), ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(array(OffsetFetchResponsePartitions), "8+", default=[])


class OffsetFetchResponseGroup(Struct):
    group_id: str = field(STRING, "8+", default="")
    topics: list[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics), "8+", default=[])
    error_code: int = field(INT16, "8+", default=0)


class OffsetFetchResponse(Response, api_key=9, versions="0-10", flexible="6+"):
    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), "0-7", default=[])
    error_code: int = field(INT16, "2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), "8+", default=[])


API: Final = Api(OffsetFetchRequest, OffsetFetchResponse)
