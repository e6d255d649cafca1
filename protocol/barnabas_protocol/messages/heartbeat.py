"""Heartbeat (key 12), versions 0-4, flexible from 4.

Keeps a member alive and tells it that a rebalance is on.
"""

from barnabas_protocol.schema import INT16, INT32, STRING, Request, Response, field


class HeartbeatRequest(Request, api_key=12, versions="0-4", flexible="4+"):
    """What a client sends."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    """What the broker answers."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16)
