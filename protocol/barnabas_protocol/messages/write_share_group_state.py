"""WriteShareGroupState (key 85), versions 0-1, flexible from 0.

Writes the state of share partitions, between brokers. Version 1 has the count of completed deliveries.
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


class WriteStateBatch(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


class WriteStatePartitionData(Struct):
    partition: int = field(INT32)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, "1+", default=-1, ignorable=True)
    state_batches: list[WriteStateBatch] = field(array(WriteStateBatch))


class WriteStateData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[WriteStatePartitionData] = field(array(WriteStatePartitionData))


class WriteShareGroupStateRequest(Request, api_key=85, versions="0-1", flexible="0+"):
    group_id: str = field(STRING)
    topics: list[WriteStateData] = field(array(WriteStateData))


class WriteStatePartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class WriteStateResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[WriteStatePartitionResult] = field(array(WriteStatePartitionResult))


class WriteShareGroupStateResponse(Response, api_key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = field(array(WriteStateResult))


API: Final = Api(WriteShareGroupStateRequest, WriteShareGroupStateResponse)
