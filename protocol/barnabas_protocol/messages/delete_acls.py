"""DeleteAcls (key 31), versions 0-3, flexible from 2.

Removes the access control entries that match filters (KIP-140).
"""

from typing import Final

from barnabas_protocol.schema import INT8, INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class DeleteAclsFilter(Struct):
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable="0+")
    pattern_type_filter: int = field(INT8, "1+", default=3)
    principal_filter: str | None = field(STRING, nullable="0+")
    host_filter: str | None = field(STRING, nullable="0+")
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsRequest(Request, api_key=31, versions="0-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = field(array(DeleteAclsFilter))


class DeleteAclsMatchingAcl(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, "1+", default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsFilterResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field(array(DeleteAclsMatchingAcl))


class DeleteAclsResponse(Response, api_key=31, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32)
    filter_results: list[DeleteAclsFilterResult] = field(array(DeleteAclsFilterResult))


API: Final = Api(DeleteAclsRequest, DeleteAclsResponse)
