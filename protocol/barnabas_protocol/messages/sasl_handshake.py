"""SaslHandshake (key 17), versions 0-1, never flexible.

Selects a SASL mechanism.
"""

from typing import Final

from barnabas_protocol.schema import INT16, STRING, Api, Request, Response, array, field


class SaslHandshakeRequest(Request, api_key=17, versions="0-1"):
    mechanism: str = field(STRING)


class SaslHandshakeResponse(Response, api_key=17, versions="0-1"):
    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))


API: Final = Api(SaslHandshakeRequest, SaslHandshakeResponse)
