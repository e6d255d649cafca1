"""DeleteRecords (key 21), versions 0-2, flexible from 2.

Moves the log start offset of partitions forward; -1 stands for the high watermark.
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, INT64, STRING, Api, Request, Response, Struct, array, field


class DeleteRecordsPartition(Struct):
    partition_index: int = field(INT32)
    offset: int = field(INT64)


class DeleteRecordsTopic(Struct):
    name: str = field(STRING)
    partitions: list[DeleteRecordsPartition] = field(array(DeleteRecordsPartition))


class DeleteRecordsRequest(Request, api_key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = field(array(DeleteRecordsTopic))
    timeout_ms: int = field(INT32)


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = field(INT32)
    low_watermark: int = field(INT64)
    error_code: int = field(INT16)


class DeleteRecordsTopicResult(Struct):
    name: str = field(STRING)
    partitions: list[DeleteRecordsPartitionResult] = field(array(DeleteRecordsPartitionResult))


class DeleteRecordsResponse(Response, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[DeleteRecordsTopicResult] = field(array(DeleteRecordsTopicResult))


API: Final = Api(DeleteRecordsRequest, DeleteRecordsResponse)
