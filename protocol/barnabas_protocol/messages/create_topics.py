"""CreateTopics (key 19), versions 0-7, flexible from 5.

Creates topics, or validates the request without creating them. -1 partitions or replicas stand for the broker's default
(KIP-464). Version 5 returns the configuration, 7 the topic id.
"""

from typing import Final

from barnabas_protocol.schema import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    Api,
    Request,
    Response,
    Struct,
    array,
    field,
)


class CreatableReplicaAssignment(Struct):
    partition_index: int = field(INT32)
    broker_ids: list[int] = field(array(INT32))


class CreatableTopicConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


class CreatableTopic(Struct):
    name: str = field(STRING)
    num_partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig))


class CreateTopicsRequest(Request, api_key=19, versions="0-7", flexible="5+"):
    topics: list[CreatableTopic] = field(array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60000)
    validate_only: bool = field(BOOLEAN, "1+", default=False)


class CreatableTopicConfigs(Struct):
    name: str = field(STRING, "5+", default="")
    value: str | None = field(STRING, "5+", nullable="5+", default="")
    read_only: bool = field(BOOLEAN, "5+", default=False)
    config_source: int = field(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOLEAN, "5+", default=False)


class CreatableTopicResult(Struct):
    name: str = field(STRING)
    topic_id: bytes = field(UUID, "7+", default=bytes(16), ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "1+", nullable="0+", default="", ignorable=True)
    topic_config_error_code: int = field(INT16, "5+", default=0, tag=0, tagged="5+", ignorable=True)
    num_partitions: int = field(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = field(INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        array(CreatableTopicConfigs), "5+", nullable="5+", default=[], ignorable=True
    )


class CreateTopicsResponse(Response, api_key=19, versions="0-7", flexible="5+"):
    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult))


API: Final = Api(CreateTopicsRequest, CreateTopicsResponse)
