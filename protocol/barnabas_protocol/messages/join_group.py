"""JoinGroup (key 11), versions 0-9, flexible from 6.

Joins a group, or its next generation. Version 4 adds MEMBER_ID_REQUIRED (KIP-394), 5 static members (KIP-345), 7 the
protocol type in the response, 8 a reason (KIP-800), 9 skipAssignment (KIP-814).
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, BYTES, INT16, INT32, STRING, Api, Request, Response, Struct, array, field
from barnabas_protocol.wire import Buffer


class JoinGroupRequestProtocol(Struct):
    name: str = field(STRING)
    metadata: Buffer = field(BYTES)


class JoinGroupRequest(Request, api_key=11, versions="0-9", flexible="6+"):
    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "5+", nullable="5+", default=None)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(STRING, "8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    metadata: Buffer = field(BYTES)


class JoinGroupResponse(Response, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = field(STRING, nullable="7+")
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOLEAN, "9+", default=False)
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))


API: Final = Api(JoinGroupRequest, JoinGroupResponse)
