"""DescribeConfigs (key 32), versions 0-4, flexible from 4.

Returns the configuration of topics and brokers, and the source of each value. Version 1 adds synonyms, 3 documentation.
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT8, INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class DescribeConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(array(STRING), nullable="0+")


class DescribeConfigsRequest(Request, api_key=32, versions="0-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOLEAN, "1+", default=False)
    include_documentation: bool = field(BOOLEAN, "3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: str = field(STRING, "1+", default="")
    value: str | None = field(STRING, "1+", nullable="0+", default="")
    source: int = field(INT8, "1+", default=0)


class DescribeConfigsResourceResult(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    read_only: bool = field(BOOLEAN)
    is_default: bool = field(BOOLEAN, "0", default=False)
    config_source: int = field(INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOLEAN)
    synonyms: list[DescribeConfigsSynonym] = field(array(DescribeConfigsSynonym), "1+", default=[], ignorable=True)
    config_type: int = field(INT8, "3+", default=0, ignorable=True)
    documentation: str | None = field(STRING, "3+", nullable="0+", default="", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult))


class DescribeConfigsResponse(Response, api_key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult))


API: Final = Api(DescribeConfigsRequest, DescribeConfigsResponse)
