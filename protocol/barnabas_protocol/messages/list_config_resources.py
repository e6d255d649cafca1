"""ListConfigResources (key 74), versions 0-1, flexible from 0.

Lists the resources that have a configuration (KIP-1142). Version 0 lists client metrics only, and was called
ListClientMetricsResources (KIP-714).
"""

from typing import Final

from barnabas_protocol.schema import INT8, INT16, INT32, STRING, Api, Request, Response, Struct, array, field

#: The type of subscriptions to metrics of clients.
CLIENT_METRICS: Final = 16


class ListConfigResourcesRequest(Request, api_key=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = field(array(INT8), "1+")


class ConfigResource(Struct):
    resource_name: str = field(STRING)
    resource_type: int = field(INT8, "1+", default=CLIENT_METRICS, ignorable=True)


class ListConfigResourcesResponse(Response, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    config_resources: list[ConfigResource] = field(array(ConfigResource))


API: Final = Api(ListConfigResourcesRequest, ListConfigResourcesResponse)
