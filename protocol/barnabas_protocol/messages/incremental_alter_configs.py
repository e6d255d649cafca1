"""IncrementalAlterConfigs (key 44), versions 0-1, flexible from 1.

Sets, deletes, appends to or subtracts from single configuration keys (KIP-339).
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT8, INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class IncrementalAlterableConfig(Struct):
    name: str = field(STRING)
    config_operation: int = field(INT8)
    value: str | None = field(STRING, nullable="0+")


class IncrementalAlterConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[IncrementalAlterableConfig] = field(array(IncrementalAlterableConfig))


class IncrementalAlterConfigsRequest(Request, api_key=44, versions="0-1", flexible="1+"):
    resources: list[IncrementalAlterConfigsResource] = field(array(IncrementalAlterConfigsResource))
    validate_only: bool = field(BOOLEAN)


class IncrementalAlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class IncrementalAlterConfigsResponse(Response, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32, default=0)
    responses: list[IncrementalAlterConfigsResourceResponse] = field(array(IncrementalAlterConfigsResourceResponse))


API: Final = Api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse)
