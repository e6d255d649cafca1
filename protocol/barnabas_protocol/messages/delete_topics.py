"""DeleteTopics (key 20), versions 0-6, flexible from 4.

Deletes topics, by name or, from version 6, by id.
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, STRING, UUID, Api, Request, Response, Struct, array, field


class DeleteTopicState(Struct):
    name: str | None = field(STRING, "6+", nullable="6+", default=None)
    topic_id: bytes = field(UUID, "6+", default=bytes(16))


class DeleteTopicsRequest(Request, api_key=20, versions="0-6", flexible="4+"):
    topics: list[DeleteTopicState] = field(array(DeleteTopicState), "6+", default=[])
    topic_names: list[str] = field(array(STRING), "0-5", default=[], ignorable=True)
    timeout_ms: int = field(INT32)


class DeletableTopicResult(Struct):
    name: str | None = field(STRING, nullable="6+")
    topic_id: bytes = field(UUID, "6+", default=bytes(16), ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, api_key=20, versions="0-6", flexible="4+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult))


API: Final = Api(DeleteTopicsRequest, DeleteTopicsResponse)
