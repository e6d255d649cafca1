"""DeleteGroups (key 42), versions 0-3, flexible from 2.

Deletes empty groups. Version 3 adds error messages.
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class DeleteGroupsRequest(Request, api_key=42, versions="0-3", flexible="2+"):
    groups_names: list[str] = field(array(STRING))


class DeletableGroupResult(Struct):
    group_id: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)


class DeleteGroupsResponse(Response, api_key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))


API: Final = Api(DeleteGroupsRequest, DeleteGroupsResponse)
