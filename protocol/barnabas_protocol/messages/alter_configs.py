"""AlterConfigs (key 33), versions 0-2, flexible from 2.

Replaces the whole dynamic configuration of a resource: a key that the request omits returns to its default.
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT8, INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class AlterableConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


class AlterConfigsRequest(Request, api_key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOLEAN)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class AlterConfigsResponse(Response, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))


API: Final = Api(AlterConfigsRequest, AlterConfigsResponse)
