"""ReadShareGroupState (key 84), version 0, flexible from 0.

Reads the state of share partitions, between brokers: the leader of the partition asks the share coordinator.
"""

from typing import Final

from barnabas_protocol.schema import (
    INT8,
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


class ReadStatePartitionData(Struct):
    partition: int = field(INT32)
    leader_epoch: int = field(INT32)


class ReadStateData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ReadStatePartitionData] = field(array(ReadStatePartitionData))


class ReadShareGroupStateRequest(Request, api_key=84, versions="0", flexible="0+"):
    group_id: str = field(STRING)
    topics: list[ReadStateData] = field(array(ReadStateData))


class ReadStateBatch(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


class ReadStatePartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    state_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    state_batches: list[ReadStateBatch] = field(array(ReadStateBatch))


class ReadStateResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ReadStatePartitionResult] = field(array(ReadStatePartitionResult))


class ReadShareGroupStateResponse(Response, api_key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult] = field(array(ReadStateResult))


API: Final = Api(ReadShareGroupStateRequest, ReadShareGroupStateResponse)
