"""DescribeAcls (key 29), versions 0-3, flexible from 2.

Lists the access control entries that match a filter (KIP-140). Version 1 adds the pattern type (KIP-290).
"""

from typing import Final

from barnabas_protocol.schema import INT8, INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class DescribeAclsRequest(Request, api_key=29, versions="0-3", flexible="2+"):
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable="0+")
    pattern_type_filter: int = field(INT8, "1+", default=3)
    principal_filter: str | None = field(STRING, nullable="0+")
    host_filter: str | None = field(STRING, nullable="0+")
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class AclDescription(Struct):
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DescribeAclsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, "1+", default=3)
    acls: list[AclDescription] = field(array(AclDescription))


class DescribeAclsResponse(Response, api_key=29, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resources: list[DescribeAclsResource] = field(array(DescribeAclsResource))


API: Final = Api(DescribeAclsRequest, DescribeAclsResponse)
