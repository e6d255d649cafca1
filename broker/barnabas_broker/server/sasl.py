"""A listener that speaks SASL: what a client may say before it has proved who it is.

Until then its frames come to a :class:`SaslGate` in place of the dispatcher. Of these, it reads ApiVersions,
SaslHandshake (versions 0 and 1) and SaslAuthenticate (0 to 2), small ones and few; whatever else a client sends closes
the connection unread. After version 0 of the handshake, the messages of the exchange come as they are, without a
header. A client has :data:`SECONDS` for all of it.

A client that fails is answered after ``connection.failed.authentication.delay.ms``, then its connection is closed:
trying passwords takes time. Source: Kafka's ``SaslServerAuthenticator``.
"""

import asyncio
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from barnabas_broker.config import Config, ConfigError
from barnabas_broker.config.keys import (
    CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
    PLAIN_SASL_JAAS_CONFIG,
    SASL_ENABLED_MECHANISMS,
    SASL_SERVER_MAX_RECEIVE_SIZE,
)
from barnabas_broker.config.listeners import SASL_PROTOCOLS
from barnabas_broker.logs import logger
from barnabas_broker.security.principals import Principal
from barnabas_broker.security.sasl import AuthenticationFailed, PlainUsers
from barnabas_broker.server.connection import Answer, CloseConnection, DeferredResponse, Dispatcher, Peer
from barnabas_protocol import codec
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_protocol.printable import printable
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Response
from barnabas_protocol.wire import Buffer

log = logger("server")

#: Seconds from the connection (with TLS, from the end of its handshake) to the end of the authentication.
SECONDS: Final = 10.0
#: Requests before the authentication: ApiVersions is asked once or twice.
REQUESTS: Final = 8
_KEY: Final = struct.Struct(">h")
_SIZE: Final = struct.Struct(">i")
_LONGEST_NAME: Final = 100


class SaslSettings(NamedTuple):
    """The keys of SASL, as they are for one listener.

    Attributes:
        mechanisms: that clients may choose.
        users: of PLAIN.
        delay: seconds until a client that failed is answered.
        max_receive_size: bytes of a frame before the authentication.
    """

    mechanisms: tuple[str, ...]
    users: PlainUsers
    delay: float
    max_receive_size: int

    def begin(self, connection: "Gated", dispatch: Dispatcher) -> "SaslGate":
        """The gate of a new connection, in front of `dispatch`."""
        return SaslGate(self, connection, dispatch)


def sasl_settings(config: Config, protocols: Mapping[str, str]) -> dict[str, SaslSettings]:
    """The keys of SASL of each listener that speaks it.

    Args:
        config: the keys; those of a single listener come first.
        protocols: what each listener speaks, by its name.

    Raises:
        ConfigError: a listener has no mechanism or no users.
    """
    found = {}
    for name in (name for name, protocol in protocols.items() if protocol in SASL_PROTOCOLS):
        of_listener = config.of_listener(name)
        mechanisms = of_listener[SASL_ENABLED_MECHANISMS]
        if not mechanisms:
            raise ConfigError(f"the listener {name} speaks SASL. To do: give sasl.enabled.mechanisms=PLAIN")
        key = f"listener.name.{name.lower()}.{PLAIN_SASL_JAAS_CONFIG.name}"
        try:
            users = PlainUsers.of_jaas(of_listener[PLAIN_SASL_JAAS_CONFIG])
        except ValueError as error:
            raise ConfigError(f"{key}: {error}") from None
        found[name] = SaslSettings(
            mechanisms,
            users,
            config[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS] / 1000,
            config[SASL_SERVER_MAX_RECEIVE_SIZE],
        )
    return found


class Gated(Protocol):
    """The connection that a gate belongs to."""

    def end(self) -> None:
        """Read nothing more; close when what was started is answered."""

    def refuse(self, reason: str) -> None:
        """Close the connection; the reason is logged."""

    def authenticated(self) -> None:
        """The client has proved who it is."""


class SaslGate:
    """The dispatcher of a connection until its client has proved who it is.

    Args:
        settings: the keys.
        connection: the connection.
        dispatch: answers ApiVersions, and all requests afterwards.
        seconds: for the authentication.
    """

    def __init__(
        self, settings: SaslSettings, connection: Gated, dispatch: Dispatcher, seconds: float = SECONDS
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._dispatch = dispatch
        self._mechanism = ""
        #: The messages of the exchange have no header.
        self._bare = False
        self._left = REQUESTS
        self._open = False
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.call_later(seconds, self._late, seconds)

    def close(self) -> None:
        """The connection is lost."""
        self._deadline.cancel()

    def __call__(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
        """Answer a request of the exchange.

        Raises:
            CloseConnection: it is not one.
            DecodeError: it cannot be read.
        """
        if self._open:
            return self._dispatch(peer, frame)
        self._left -= 1
        if self._left < 0:
            raise CloseConnection(f"it has not authenticated within {REQUESTS} requests")
        if self._bare:
            return self._authenticate_bare(peer, frame)
        key = _KEY.unpack_from(frame)[0] if len(frame) >= _KEY.size else -1
        if key == ApiKey.SASL_AUTHENTICATE and self._mechanism:
            return self._authenticate(peer, frame)
        if key == ApiKey.SASL_HANDSHAKE and not self._mechanism:
            return self._handshake(peer, frame)
        if key == ApiKey.API_VERSIONS and not self._mechanism:
            return self._dispatch(peer, frame)
        raise CloseConnection(
            f"it has sent a request with key {key} before it has authenticated: set security.protocol in the client"
        )

    def _handshake(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse:
        header = codec.decode_request_header(frame)
        if header.api_version not in SaslHandshakeRequest.VERSIONS:
            raise CloseConnection(f"SaslHandshake version {header.api_version} is not served")
        request = codec.decode_request(SaslHandshakeRequest, header, frame)
        known = request.mechanism in self._settings.mechanisms
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response = SaslHandshakeResponse(error_code=code, mechanisms=list(self._settings.mechanisms))
        answer = _encode(response, header.api_version, header.correlation_id)
        if not known:
            asked = printable(request.mechanism[:_LONGEST_NAME])
            return self._failed(peer, answer, f"the mechanism {asked} is not served")
        self._mechanism = request.mechanism
        self._bare = header.api_version == 0
        return answer

    def _authenticate(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse:
        header = codec.decode_request_header(frame)
        if header.api_version not in SaslAuthenticateRequest.VERSIONS:
            raise CloseConnection(f"SaslAuthenticate version {header.api_version} is not served")
        request = codec.decode_request(SaslAuthenticateRequest, header, frame)
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, error_message=None, auth_bytes=b"", session_lifetime_ms=0
        )
        try:
            self._check(peer, request.auth_bytes)
        except AuthenticationFailed as failed:
            response.error_code, response.error_message = ErrorCode.SASL_AUTHENTICATION_FAILED, str(failed)
            answer = _encode(response, header.api_version, header.correlation_id)
            return self._failed(peer, answer, str(failed), failed.user)
        return _encode(response, header.api_version, header.correlation_id)

    def _authenticate_bare(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse:
        try:
            self._check(peer, frame)
        except AuthenticationFailed as failed:
            return self._failed(peer, (), str(failed), failed.user)
        return [_SIZE.pack(0)]

    def _check(self, peer: Peer, message: Buffer) -> None:
        """Check a message of the exchange.

        Raises:
            AuthenticationFailed: the client is not who it says.
        """
        user = self._settings.users.authenticate(bytes(message))
        peer.principal = Principal("User", user)
        self._open = True
        self._deadline.cancel()
        self._connection.authenticated()

    def _failed(self, peer: Peer, answer: Answer, reason: str, user: str = "") -> DeferredResponse:
        """Answer later, and close the connection then."""
        log.warning(
            "authentication failed",
            peer=str(peer),
            listener=peer.listener,
            reason=reason,
            **({"user": printable(user[:_LONGEST_NAME])} if user else {}),
        )
        deferred = DeferredResponse()
        deferred.alone = True  # another password has to wait for the answer, and then comes too late
        self._deadline.cancel()
        self._deadline = self._loop.call_later(self._settings.delay, deferred.give, answer)
        # After this request has its place in the queue.
        self._loop.call_soon(self._connection.end)
        return deferred

    def _late(self, seconds: float) -> None:
        self._connection.refuse(f"it has not authenticated within {seconds:g} s")


def _encode(response: Response, version: int, correlation_id: int) -> Answer:
    return [codec.encode_response(response, version, correlation_id)]
