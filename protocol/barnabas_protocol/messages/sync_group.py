"""SyncGroup (key 14), versions 0-5, flexible from 4.

Sends the leader's assignments, and returns to each member its own. Version 5 adds the protocol type and name, which the
coordinator checks.
"""

from typing import Final

from barnabas_protocol.schema import BYTES, INT16, INT32, STRING, Api, Request, Response, Struct, array, field
from barnabas_protocol.wire import Buffer


class SyncGroupRequestAssignment(Struct):
    member_id: str = field(STRING)
    assignment: Buffer = field(BYTES)


class SyncGroupRequest(Request, api_key=14, versions="0-5", flexible="4+"):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    protocol_type: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment))


class SyncGroupResponse(Response, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16)
    protocol_type: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignment: Buffer = field(BYTES)


API: Final = Api(SyncGroupRequest, SyncGroupResponse)
