"""ListGroups (key 16), versions 0-5, flexible from 3.

Lists the groups that the broker coordinates. Version 4 filters by state (KIP-518), 5 by type (KIP-848).
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class ListGroupsRequest(Request, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = field(array(STRING), "4+", default=[])
    types_filter: list[str] = field(array(STRING), "5+", default=[])


class ListedGroup(Struct):
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, "4+", default="", ignorable=True)
    group_type: str = field(STRING, "5+", default="", ignorable=True)


class ListGroupsResponse(Response, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16)
    groups: list[ListedGroup] = field(array(ListedGroup))


API: Final = Api(ListGroupsRequest, ListGroupsResponse)
