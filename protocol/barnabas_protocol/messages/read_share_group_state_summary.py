"""ReadShareGroupStateSummary (key 87), versions 0-1, flexible from 0.

Reads the start offset of share partitions, between brokers, without the states of their records.
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, INT64, STRING, UUID, Api, Request, Response, Struct, array, field


class ReadStateSummaryPartitionData(Struct):
    partition: int = field(INT32)
    leader_epoch: int = field(INT32)


class ReadStateSummaryData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ReadStateSummaryPartitionData] = field(array(ReadStateSummaryPartitionData))


class ReadShareGroupStateSummaryRequest(Request, api_key=87, versions="0-1", flexible="0+"):
    group_id: str = field(STRING)
    topics: list[ReadStateSummaryData] = field(array(ReadStateSummaryData))


class ReadStateSummaryPartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, "1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ReadStateSummaryPartitionResult] = field(array(ReadStateSummaryPartitionResult))


class ReadShareGroupStateSummaryResponse(Response, api_key=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult] = field(array(ReadStateSummaryResult))


API: Final = Api(ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse)
