"""Envelope (key 58), version 0, flexible from 0.

Carries a message from one broker to another. In Kafka it is a request of a client, which a broker forwards to the
controller.
"""

from typing import Final

from barnabas_protocol.schema import BYTES, INT16, Api, Request, Response, field
from barnabas_protocol.wire import Buffer


class EnvelopeRequest(Request, api_key=58, versions="0", flexible="0+"):
    request_data: Buffer = field(BYTES)
    request_principal: Buffer | None = field(BYTES, nullable="0+")
    client_host_address: Buffer = field(BYTES)


class EnvelopeResponse(Response, api_key=58, versions="0", flexible="0+"):
    response_data: Buffer | None = field(BYTES, nullable="0+", default=None)
    error_code: int = field(INT16)


API: Final = Api(EnvelopeRequest, EnvelopeResponse)
