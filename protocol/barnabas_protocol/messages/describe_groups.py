"""DescribeGroups (key 15), versions 0-6, flexible from 5.

Describes groups of the classic protocol: state, protocol, members with their metadata and assignment. Version 6 answers
GROUP_ID_NOT_FOUND for an unknown group, and adds an error message (KIP-1043).
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, BYTES, INT16, INT32, STRING, Api, Request, Response, Struct, array, field
from barnabas_protocol.wire import Buffer


class DescribeGroupsRequest(Request, api_key=15, versions="0-6", flexible="5+"):
    groups: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOLEAN, "3+", default=False)


class DescribedGroupMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: Buffer = field(BYTES)
    member_assignment: Buffer = field(BYTES)


class DescribedGroup(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "6+", nullable="6+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    authorized_operations: int = field(INT32, "3+", default=-2147483648)


class DescribeGroupsResponse(Response, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = field(array(DescribedGroup))


API: Final = Api(DescribeGroupsRequest, DescribeGroupsResponse)
