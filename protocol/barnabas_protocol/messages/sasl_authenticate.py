"""SaslAuthenticate (key 36), versions 0-2, flexible from 2.

Carries the messages of a SASL exchange.
"""

from typing import Final

from barnabas_protocol.schema import BYTES, INT16, INT64, STRING, Api, Request, Response, field
from barnabas_protocol.wire import Buffer


class SaslAuthenticateRequest(Request, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: Buffer = field(BYTES)


class SaslAuthenticateResponse(Response, api_key=36, versions="0-2", flexible="2+"):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    auth_bytes: Buffer = field(BYTES)
    session_lifetime_ms: int = field(INT64, "1+", default=0, ignorable=True)


API: Final = Api(SaslAuthenticateRequest, SaslAuthenticateResponse)
