"""FindCoordinator (key 10), versions 0-6, flexible from 3.

Finds the broker that coordinates a group (key type 0) or a transactional id (1). From version 4 a request may have
several keys.
"""

from typing import Final

from barnabas_protocol.schema import INT8, INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class FindCoordinatorRequest(Request, api_key=10, versions="0-6", flexible="3+"):
    key: str = field(STRING, "0-3", default="")
    key_type: int = field(INT8, "1+", default=0)
    coordinator_keys: list[str] = field(array(STRING), "4+", default=[])


class Coordinator(Struct):
    key: str = field(STRING, "4+", default="")
    node_id: int = field(INT32, "4+", default=0)
    host: str = field(STRING, "4+", default="")
    port: int = field(INT32, "4+", default=0)
    error_code: int = field(INT16, "4+", default=0)
    error_message: str | None = field(STRING, "4+", nullable="4+", default="", ignorable=True)


class FindCoordinatorResponse(Response, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "0-3", default=0)
    error_message: str | None = field(STRING, "1-3", nullable="1-3", default="", ignorable=True)
    node_id: int = field(INT32, "0-3", default=0)
    host: str = field(STRING, "0-3", default="")
    port: int = field(INT32, "0-3", default=0)
    coordinators: list[Coordinator] = field(array(Coordinator), "4+", default=[])


API: Final = Api(FindCoordinatorRequest, FindCoordinatorResponse)
