"""CreatePartitions (key 37), versions 0-3, flexible from 2.

Increases the number of partitions of topics.
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = field(array(INT32))


class CreatePartitionsTopic(Struct):
    name: str = field(STRING)
    count: int = field(INT32)
    assignments: list[CreatePartitionsAssignment] | None = field(array(CreatePartitionsAssignment), nullable="0+")


class CreatePartitionsRequest(Request, api_key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOLEAN)


class CreatePartitionsTopicResult(Struct):
    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class CreatePartitionsResponse(Response, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult))


API: Final = Api(CreatePartitionsRequest, CreatePartitionsResponse)
