"""Request and response headers.

A request header is version 2 where the request is flexible, else 1 (0 only for ControlledShutdown v0); a response
header is version 1 where the response is flexible, else 0, and always 0 for ApiVersions (KIP-511). `client_id` is
never compact.
"""

from barnabas_protocol.schema import INT16, INT32, STRING, Data, field


class RequestHeader(Data, versions="0-2", flexible="2+"):
    """Kafka's RequestHeader."""

    request_api_key: int = field(INT16)
    request_api_version: int = field(INT16)
    correlation_id: int = field(INT32)
    client_id: str | None = field(STRING, "1+", nullable="1+", default="", ignorable=True, flexible="none")


class ResponseHeader(Data, versions="0-1", flexible="1+"):
    """Kafka's ResponseHeader."""

    correlation_id: int = field(INT32)
