"""PushTelemetry (key 72), version 0, flexible from 0.

Brings metrics of a client, in OpenTelemetry's format of messages (KIP-714).
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, BYTES, INT8, INT16, INT32, UUID, Api, Request, Response, field
from barnabas_protocol.wire import Buffer


class PushTelemetryRequest(Request, api_key=72, versions="0", flexible="0+"):
    client_instance_id: bytes = field(UUID)
    subscription_id: int = field(INT32)
    terminating: bool = field(BOOLEAN)
    compression_type: int = field(INT8)
    metrics: Buffer = field(BYTES)


class PushTelemetryResponse(Response, api_key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)


API: Final = Api(PushTelemetryRequest, PushTelemetryResponse)
