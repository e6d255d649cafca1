"""ListConfigResources (key 74), versions 0-1, flexible.

Lists what configuration may be asked of (KIP-1142). Version 0 lists client metrics only, and was called
ListClientMetricsResources (KIP-714).
"""

from barnabas_protocol.schema import INT8, INT16, INT32, STRING, Request, Response, Struct, array, field


class ListConfigResourcesRequest(Request, api_key=74, versions="0-1", flexible="0+"):
    """What a client sends."""

    resource_types: list[int] = field(array(INT8), "1+")


class ConfigResource(Struct):
    resource_name: str = field(STRING)
    resource_type: int = field(INT8, "1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Response, api_key=74, versions="0-1", flexible="0+"):
    """What the broker answers."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    config_resources: list[ConfigResource] = field(array(ConfigResource))
