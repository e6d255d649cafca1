"""Request and response headers as Kafka declares them: the twins of those that the codec reads and writes by hand.

A request header is version 2 if the request is flexible, else 1. Version 0 was that of ControlledShutdown v0, which
Kafka 4.0 removed. A response header is version 1 if the response is flexible, else 0, and always 0 for ApiVersions
(KIP-511). The client id is never compact.
"""

from barnabas_protocol.schema import INT16, INT32, STRING, Data, field


class RequestHeaderData(Data, versions="0-2", flexible="2+"):
    request_api_key: int = field(INT16)
    request_api_version: int = field(INT16)
    correlation_id: int = field(INT32)
    client_id: str | None = field(STRING, "1+", nullable="1+", default="", ignorable=True, flexible="none")


class ResponseHeaderData(Data, versions="0-1", flexible="1+"):
    correlation_id: int = field(INT32)
