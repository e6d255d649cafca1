"""DeleteGroups (key 42), versions 0-2, flexible from 2.

Deletes groups that are empty.
"""

from barnabas_protocol.schema import INT16, INT32, STRING, Request, Response, Struct, array, field


class DeleteGroupsRequest(Request, api_key=42, versions="0-2", flexible="2+"):
    """What a client sends."""

    groups_names: list[str] = field(array(STRING))


class DeletableGroupResult(Struct):
    group_id: str = field(STRING)
    error_code: int = field(INT16)


class DeleteGroupsResponse(Response, api_key=42, versions="0-2", flexible="2+"):
    """What the broker answers."""

    throttle_time_ms: int = field(INT32, default=0)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
