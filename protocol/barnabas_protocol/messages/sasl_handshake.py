"""SaslHandshake (key 17), versions 0-1, never flexible.

Chooses a SASL mechanism.
"""

from barnabas_protocol.schema import INT16, STRING, Request, Response, array, field


class SaslHandshakeRequest(Request, api_key=17, versions="0-1"):
    """What a client sends."""

    mechanism: str = field(STRING)


class SaslHandshakeResponse(Response, api_key=17, versions="0-1"):
    """What the broker answers."""

    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))
