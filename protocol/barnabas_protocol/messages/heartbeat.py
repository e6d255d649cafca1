"""Heartbeat (key 12), versions 0-4, flexible from 4.

Keeps a member in its group. REBALANCE_IN_PROGRESS asks the member to rejoin.
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, STRING, Api, Request, Response, field


class HeartbeatRequest(Request, api_key=12, versions="0-4", flexible="4+"):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16)


API: Final = Api(HeartbeatRequest, HeartbeatResponse)
