"""InitializeShareGroupState (key 83), version 0, flexible from 0.

Creates the state of share partitions, between brokers: the group coordinator asks the share coordinator.
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, INT64, STRING, UUID, Api, Request, Response, Struct, array, field


class InitializeStatePartitionData(Struct):
    partition: int = field(INT32)
    state_epoch: int = field(INT32)
    start_offset: int = field(INT64)


class InitializeStateData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[InitializeStatePartitionData] = field(array(InitializeStatePartitionData))


class InitializeShareGroupStateRequest(Request, api_key=83, versions="0", flexible="0+"):
    group_id: str = field(STRING)
    topics: list[InitializeStateData] = field(array(InitializeStateData))


class InitializeStatePartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[InitializeStatePartitionResult] = field(array(InitializeStatePartitionResult))


class InitializeShareGroupStateResponse(Response, api_key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = field(array(InitializeStateResult))


API: Final = Api(InitializeShareGroupStateRequest, InitializeShareGroupStateResponse)
