"""GetTelemetrySubscriptions (key 71), version 0, flexible from 0.

Returns which of its metrics a client shall push, and how often (KIP-714).
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT8, INT16, INT32, STRING, UUID, Api, Request, Response, array, field


class GetTelemetrySubscriptionsRequest(Request, api_key=71, versions="0", flexible="0+"):
    client_instance_id: bytes = field(UUID)


class GetTelemetrySubscriptionsResponse(Response, api_key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    client_instance_id: bytes = field(UUID)
    subscription_id: int = field(INT32)
    accepted_compression_types: list[int] = field(array(INT8))
    push_interval_ms: int = field(INT32)
    telemetry_max_bytes: int = field(INT32)
    delta_temporality: bool = field(BOOLEAN)
    requested_metrics: list[str] = field(array(STRING))


API: Final = Api(GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse)
