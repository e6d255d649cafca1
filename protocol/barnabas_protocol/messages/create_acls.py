"""CreateAcls (key 30), versions 0-3, flexible from 2.

Adds access control entries (KIP-140).
"""

from typing import Final

from barnabas_protocol.schema import INT8, INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class AclCreation(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    resource_pattern_type: int = field(INT8, "1+", default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class CreateAclsRequest(Request, api_key=30, versions="0-3", flexible="2+"):
    creations: list[AclCreation] = field(array(AclCreation))


class AclCreationResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


class CreateAclsResponse(Response, api_key=30, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32)
    results: list[AclCreationResult] = field(array(AclCreationResult))


API: Final = Api(CreateAclsRequest, CreateAclsResponse)
