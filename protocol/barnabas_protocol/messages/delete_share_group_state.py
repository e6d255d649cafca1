"""DeleteShareGroupState (key 86), version 0, flexible from 0.

Deletes the state of share partitions, between brokers: the group coordinator asks the share coordinator.
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, STRING, UUID, Api, Request, Response, Struct, array, field


class DeleteStatePartitionData(Struct):
    partition: int = field(INT32)


class DeleteStateData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[DeleteStatePartitionData] = field(array(DeleteStatePartitionData))


class DeleteShareGroupStateRequest(Request, api_key=86, versions="0", flexible="0+"):
    group_id: str = field(STRING)
    topics: list[DeleteStateData] = field(array(DeleteStateData))


class DeleteStatePartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class DeleteStateResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[DeleteStatePartitionResult] = field(array(DeleteStatePartitionResult))


class DeleteShareGroupStateResponse(Response, api_key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = field(array(DeleteStateResult))


API: Final = Api(DeleteShareGroupStateRequest, DeleteShareGroupStateResponse)
