"""LeaveGroup (key 13), versions 0-5, flexible from 4.

Removes members from a group. From version 3 a request may have several members, each with a member id or an instance
id; version 5 adds a reason (KIP-800).
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class MemberIdentity(Struct):
    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    reason: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupRequest(Request, api_key=13, versions="0-5", flexible="4+"):
    group_id: str = field(STRING)
    member_id: str = field(STRING, "0-2", default="")
    members: list[MemberIdentity] = field(array(MemberIdentity), "3+", default=[])


class MemberResponse(Struct):
    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default="")
    error_code: int = field(INT16, "3+", default=0)


class LeaveGroupResponse(Response, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16)
    members: list[MemberResponse] = field(array(MemberResponse), "3+", default=[])


API: Final = Api(LeaveGroupRequest, LeaveGroupResponse)
