"""DescribeCluster (key 60), versions 0-2, flexible from 0.

Returns the cluster id, the controller and the brokers (KIP-700). Version 2 adds fenced brokers (KIP-1073).
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT8, INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class DescribeClusterRequest(Request, api_key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = field(BOOLEAN)
    endpoint_type: int = field(INT8, "1+", default=1)
    include_fenced_brokers: bool = field(BOOLEAN, "2+", default=False)


class DescribeClusterBroker(Struct):
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)
    is_fenced: bool = field(BOOLEAN, "2+", default=False)


class DescribeClusterResponse(Response, api_key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    endpoint_type: int = field(INT8, "1+", default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=-2147483648)


API: Final = Api(DescribeClusterRequest, DescribeClusterResponse)
