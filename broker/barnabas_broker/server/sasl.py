"""A listener that speaks SASL: what a client may say before it has proved who it is.

Until then its frames come to a :class:`SaslGate` in place of the dispatcher. Of these, it reads ApiVersions,
SaslHandshake (versions 0 and 1) and SaslAuthenticate (0 to 2), small ones and few; whatever else a client sends closes
the connection unread. After version 0 of the handshake, the messages of the exchange come as they are, without a
header. A client has :data:`SECONDS` for all of it.

A client that fails is answered after ``connection.failed.authentication.delay.ms``, then its connection is closed:
trying passwords takes time.

With ``connections.max.reauth.ms``, or a token that ends, a client has to authenticate again on the same connection
(KIP-368). The gate then stays in front of the dispatcher, and closes the connection at the first request that comes
too late. Source: Kafka's ``SaslServerAuthenticator``.
"""

import asyncio
import math
import os
import secrets
import struct
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final, NamedTuple, Protocol

from barnabas_broker.cluster.users import Users
from barnabas_broker.config import Config, ConfigError
from barnabas_broker.config.keys import (
    CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
    CONNECTIONS_MAX_REAUTH_MS,
    INT_MAX,
    OAUTHBEARER_SASL_JAAS_CONFIG,
    PLAIN_SASL_JAAS_CONFIG,
    SASL_ENABLED_MECHANISMS,
    SASL_JAAS_CONFIG,
    SASL_MECHANISM_INTER_BROKER_PROTOCOL,
    SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS,
    SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
    SASL_OAUTHBEARER_EXPECTED_ISSUER,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
    SASL_OAUTHBEARER_SCOPE_CLAIM_NAME,
    SASL_OAUTHBEARER_SUB_CLAIM_NAME,
    SASL_SERVER_CALLBACK_HANDLER_CLASS,
    SASL_SERVER_MAX_RECEIVE_SIZE,
    SCRAM_SHA_256_SASL_JAAS_CONFIG,
    SCRAM_SHA_512_SASL_JAAS_CONFIG,
    UNSECURED_TOKENS,
)
from barnabas_broker.config.listeners import SASL_PROTOCOLS, prefix_of
from barnabas_broker.logs import logger
from barnabas_broker.optional import require
from barnabas_broker.security.audit import Audit
from barnabas_broker.security.bearer import (
    OAUTHBEARER,
    OAUTHBEARER_MODULE,
    Check,
    ClaimNames,
    TokenRules,
    UnsecuredTokens,
    bearer,
)
from barnabas_broker.security.principals import Principal
from barnabas_broker.security.sasl import (
    Authenticated,
    AuthenticationFailed,
    Credentials,
    Exchange,
    PlainUsers,
    plain,
)
from barnabas_broker.security.scram import ScramUsers, scram
from barnabas_broker.server.connection import Answer, CloseConnection, DeferredResponse, Dispatcher, Peer
from barnabas_protocol import codec
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.jaas import parse_jaas
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_protocol.printable import printable
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.sasl import PLAIN
from barnabas_protocol.schema import Response
from barnabas_protocol.scram import ScramMechanism
from barnabas_protocol.wire import Buffer

log = logger("server")

#: Seconds from the connection (with TLS, from the end of its handshake) to the end of the authentication.
SECONDS: Final = 10.0
#: Requests before the authentication: ApiVersions is asked once or twice.
REQUESTS: Final = 8
#: Seconds after an authentication again until the next one may begin, as in Kafka.
AGAIN_SECONDS: Final = 1.0
_KEY: Final = struct.Struct(">h")
_SIZE: Final = struct.Struct(">i")
_LONGEST_NAME: Final = 100


class BearerSettings(NamedTuple):
    """The keys of OAUTHBEARER, as they are for one listener.

    Attributes:
        rules: what tokens must say.
        url: where the keys are by which they are checked; "" if they are not signed.
        cafile: a PEM file with the authorities of the provider's certificate; "" for those of the system.
        refresh: seconds between two readings of the keys.
        backoff: seconds to wait after a failure.
        backoff_max: seconds to wait at most.
        required: scopes that a token without a signature must have.
    """

    rules: TokenRules
    url: str
    cafile: str
    refresh: float
    backoff: float
    backoff_max: float
    required: tuple[str, ...]


class SaslSettings(NamedTuple):
    """The keys of SASL, as they are for one listener.

    Attributes:
        mechanisms: that clients may choose.
        users: of PLAIN; None if it is not among the mechanisms.
        bearer: the keys of OAUTHBEARER; None if it is not among the mechanisms.
        delay: seconds until a client that failed is answered.
        max_receive_size: bytes of a frame before the authentication.
        lifetimes: seconds until a client has to authenticate again, by mechanism; 0 for never.
    """

    mechanisms: tuple[str, ...]
    users: PlainUsers | None
    bearer: BearerSettings | None
    delay: float
    max_receive_size: int
    lifetimes: Mapping[str, float]


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
            raise ConfigError(f"the listener {name} speaks SASL. To do: give sasl.enabled.mechanisms=SCRAM-SHA-256")
        users = None
        if PLAIN in mechanisms:
            try:
                users = PlainUsers.of_jaas(of_listener[PLAIN_SASL_JAAS_CONFIG])
            except ValueError as error:
                raise ConfigError(f"{prefix_of(name)}{PLAIN_SASL_JAAS_CONFIG.name}: {error}") from None
        found[name] = SaslSettings(
            mechanisms,
            users,
            _bearer_settings(config, name) if OAUTHBEARER in mechanisms else None,
            config[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS] / 1000,
            config[SASL_SERVER_MAX_RECEIVE_SIZE],
            {each: config.of_listener(name, each)[CONNECTIONS_MAX_REAUTH_MS] / 1000 for each in mechanisms},
        )
    return found


def _bearer_settings(config: Config, name: str) -> BearerSettings:
    """The keys of OAUTHBEARER for the listener `name`.

    Raises:
        ConfigError: it is not said how tokens are checked, or an option is not valid.
    """
    given = config.of_listener(name, OAUTHBEARER)
    where = f"{prefix_of(name)}{OAUTHBEARER_SASL_JAAS_CONFIG.name}"
    options: Mapping[str, str] = {}
    jaas = OAUTHBEARER_SASL_JAAS_CONFIG if given[OAUTHBEARER_SASL_JAAS_CONFIG] else SASL_JAAS_CONFIG
    if given[jaas]:
        try:
            login = parse_jaas(given[jaas])
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None
        # Another one is that of another mechanism.
        if login.module == OAUTHBEARER_MODULE:
            options = login.options
        elif jaas is OAUTHBEARER_SASL_JAAS_CONFIG:
            raise ConfigError(f"{where}: must be for {OAUTHBEARER_MODULE}")
    unsecured = given[SASL_SERVER_CALLBACK_HANDLER_CLASS] == UNSECURED_TOKENS
    url = given[SASL_OAUTHBEARER_JWKS_ENDPOINT_URL]
    if not unsecured and not url:
        raise ConfigError(
            f"the listener {name} serves {OAUTHBEARER}. To do: give {SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name}, where "
            "the keys of the token provider are"
        )
    names = ClaimNames(given[SASL_OAUTHBEARER_SUB_CLAIM_NAME], given[SASL_OAUTHBEARER_SCOPE_CLAIM_NAME])
    skew = given[SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS] * 1000
    if unsecured:
        url = ""
        names = ClaimNames(
            options.get("unsecuredValidatorPrincipalClaimName", "").strip() or names.user,
            options.get("unsecuredValidatorScopeClaimName", "").strip() or names.scope,
        )
        text = options.get("unsecuredValidatorAllowableClockSkewMs", "").strip() or "0"
        if not text.isdecimal() or len(text) > len(str(INT_MAX)):
            raise ConfigError(f"{where}: unsecuredValidatorAllowableClockSkewMs must be a number of ms from 0")
        skew = int(text)
    return BearerSettings(
        TokenRules(given[SASL_OAUTHBEARER_EXPECTED_AUDIENCE], given[SASL_OAUTHBEARER_EXPECTED_ISSUER], names, skew),
        url,
        options.get("ssl.truststore.location", ""),
        given[SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS] / 1000,
        given[SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS] / 1000,
        given[SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS] / 1000,
        tuple(options.get("unsecuredValidatorRequiredScope", "").split()),
    )


async def open_check(
    settings: BearerSettings, listener: str, wall_ms: Callable[[], int], stack: AsyncExitStack
) -> Check:
    """Checker of the tokens of a listener; it reads the keys of the provider until `stack` is closed.

    Args:
        settings: the keys of the configuration.
        listener: the name of the listener.
        wall_ms: the time of day, in ms.
        stack: closes what is opened.

    Raises:
        BrokerError: a package is not installed; a ConfigError if a file cannot be used.
    """
    if not settings.url:
        log.warning("tokens are not checked: each client is whom it says", listener=listener)
        return UnsecuredTokens(settings.rules.names, settings.required, settings.rules.skew_ms, wall_ms)
    rules = settings.rules
    keys = ((SASL_OAUTHBEARER_EXPECTED_AUDIENCE, rules.audiences), (SASL_OAUTHBEARER_EXPECTED_ISSUER, rules.issuer))
    for key in (key for key, value in keys if not value):
        log.warning("tokens of the provider that are for others are accepted", listener=listener, missing=key.name)
    module = require("barnabas_broker.server.jwks", wanted_by=f"sasl.enabled.mechanisms={OAUTHBEARER}", extra="oauth")
    check: Check = await module.open_tokens(settings, wall_ms, stack)
    return check


#: The keys of a broker's own user, by mechanism.
_OWN: Final = {
    PLAIN: PLAIN_SASL_JAAS_CONFIG,
    ScramMechanism.SCRAM_SHA_256.title: SCRAM_SHA_256_SASL_JAAS_CONFIG,
    ScramMechanism.SCRAM_SHA_512.title: SCRAM_SHA_512_SASL_JAAS_CONFIG,
}


def own_credentials(config: Config, name: str) -> Credentials:
    """The user by whom this broker logs in to others, on their listener `name`.

    Raises:
        ConfigError: there is none, or the mechanism is not served there.
    """
    of_listener = config.of_listener(name)
    key, mechanism = SASL_MECHANISM_INTER_BROKER_PROTOCOL.name, config[SASL_MECHANISM_INTER_BROKER_PROTOCOL]
    served = of_listener[SASL_ENABLED_MECHANISMS]
    if mechanism == OAUTHBEARER:
        raise ConfigError(
            f"{key}={mechanism}: brokers log in to each other with {', '.join(_OWN)} only. To do: add one of them to "
            f"{prefix_of(name)}{SASL_ENABLED_MECHANISMS.name} and name it here, or give brokers a listener with "
            "certificates (SSL)"
        )
    if mechanism not in _OWN or mechanism not in served:
        raise ConfigError(
            f"{key}={mechanism}: must be one of sasl.enabled.mechanisms of the listener {name}, by which brokers log "
            f"in to each other: {', '.join(each for each in served if each in _OWN)}"
        )
    jaas = _OWN[mechanism] if of_listener[_OWN[mechanism]] else SASL_JAAS_CONFIG
    where = f"{prefix_of(name)}{_OWN[mechanism].name}"
    try:
        options = parse_jaas(of_listener[jaas]).options
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    user, password = options.get("username"), options.get("password")
    if not user or not password:
        raise ConfigError(
            f'{where}: must have username="..." and password="...", by which brokers log in to each other'
        )
    return Credentials(mechanism, user, password)


class ScramDirectory:
    """The users of SCRAM in the cluster image, prepared for lookups once for each image.

    Args:
        users: the users now.
    """

    def __init__(self, users: Callable[[], Users]) -> None:
        self._users = users
        self._known: Users | None = None
        self._found: dict[ScramMechanism, ScramUsers] = {}
        #: For a cluster without users.
        self._secret = os.urandom(32)

    def of(self, mechanism: ScramMechanism) -> ScramUsers:
        """The users of a mechanism."""
        users = self._users()
        if users is not self._known:
            self._known, self._found = users, {}
        if mechanism not in self._found:
            self._found[mechanism] = ScramUsers(mechanism, users.of(mechanism), users.secret or self._secret)
        return self._found[mechanism]


class SaslLogin:
    """How clients of a listener log in.

    Args:
        settings: the keys.
        directory: the users of SCRAM.
        wall_ms: the time of day, in ms.
        audit: writes logins and failed ones.
        check: checks the tokens of OAUTHBEARER; None if it is not among the mechanisms.
    """

    def __init__(
        self,
        settings: SaslSettings,
        directory: ScramDirectory,
        wall_ms: Callable[[], int],
        audit: Audit,
        check: Check | None = None,
    ) -> None:
        self.settings = settings
        self.wall_ms = wall_ms
        self.audit = audit
        self._directory = directory
        self._check = check

    @property
    def max_receive_size(self) -> int:
        """Bytes of a frame before the authentication."""
        return self.settings.max_receive_size

    def begin(self, connection: "Gated", dispatch: Dispatcher) -> "SaslGate":
        """The gate of a new connection, in front of `dispatch`."""
        return SaslGate(self, connection, dispatch)

    def exchange(self, mechanism: str) -> Exchange:
        """The exchange of a mechanism that is served."""
        if mechanism == PLAIN and self.settings.users is not None:
            return plain(self.settings.users)
        if mechanism == OAUTHBEARER and self._check is not None:
            return bearer(self._check)
        return scram(self._directory.of(ScramMechanism.of(mechanism)), secrets.token_urlsafe(24))


class Gated(Protocol):
    """The connection that a gate belongs to."""

    def end(self) -> None:
        """Read nothing more; close when what was started is answered."""

    def refuse(self, reason: str) -> None:
        """Close the connection; the reason is logged."""

    def authenticated(self, *, again: bool) -> None:
        """The client has proved who it is; with `again` it will have to do so again."""


class SaslGate:
    """The dispatcher of a connection until its client has proved who it is, or for as long as it has to do so again.

    Args:
        login: how clients log in.
        connection: the connection.
        dispatch: answers ApiVersions, and all requests afterwards.
    """

    def __init__(self, login: SaslLogin, connection: Gated, dispatch: Dispatcher) -> None:
        self._login = login
        self._connection = connection
        self._dispatch = dispatch
        self._mechanism = ""
        self._exchange: Exchange | None = None
        #: The messages of the exchange have no header.
        self._bare = False
        self._left = REQUESTS
        self._open = False
        #: Who the client was before it authenticates again, and by which mechanism.
        self._before: tuple[Principal, str] | None = None
        #: Whether it has to authenticate again, until when, and when it last began to.
        self._again = False
        self._until = 0.0
        self._again_since = -math.inf
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.call_later(SECONDS, self._late)

    def close(self) -> None:
        """The connection is lost."""
        self._deadline.cancel()

    def __call__(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
        """Answer a request of the exchange.

        Raises:
            CloseConnection: it is not one, or the client should have authenticated again.
            DecodeError: it cannot be read.
        """
        key = _KEY.unpack_from(frame)[0] if len(frame) >= _KEY.size else -1
        if self._open:
            if not self._again:
                return self._dispatch(peer, frame)
            now = self._loop.time()
            if key != ApiKey.SASL_HANDSHAKE or now < self._again_since + AGAIN_SECONDS:
                if now >= self._until:
                    raise CloseConnection("it has not authenticated again in time (connections.max.reauth.ms)")
                return self._dispatch(peer, frame)
            self._begin_again(peer)
        self._left -= 1
        if self._left < 0:
            raise CloseConnection(f"it has not authenticated within {REQUESTS} requests")
        if len(frame) > self._login.max_receive_size:
            raise CloseConnection(f"frame of {len(frame)} bytes, at most {self._login.max_receive_size} are accepted")
        if self._bare:
            return self._authenticate_bare(peer, frame)
        if key == ApiKey.SASL_AUTHENTICATE and self._exchange is not None:
            return self._authenticate(peer, frame)
        if key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(peer, frame)
        if key == ApiKey.API_VERSIONS and self._exchange is None:
            return self._dispatch(peer, frame)
        raise CloseConnection(
            f"it has sent a request with key {key} before it has authenticated: set security.protocol in the client"
        )

    def _begin_again(self, peer: Peer) -> None:
        self._again_since = self._loop.time()
        self._before = peer.principal, self._mechanism
        self._open, self._left = False, REQUESTS
        self._deadline = self._loop.call_later(SECONDS, self._late)

    def _handshake(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse:
        header = codec.decode_request_header(frame)
        if header.api_version not in SaslHandshakeRequest.VERSIONS:
            raise CloseConnection(f"SaslHandshake version {header.api_version} is not served")
        request = codec.decode_request(SaslHandshakeRequest, header, frame)
        if self._exchange is not None:
            refused = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
            answer = _encode(refused, header.api_version, header.correlation_id)
            return self._failed(peer, answer, "it has sent a second handshake in place of the exchange")
        mechanisms = self._login.settings.mechanisms
        known = request.mechanism in mechanisms
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response = SaslHandshakeResponse(error_code=code, mechanisms=list(mechanisms))
        answer = _encode(response, header.api_version, header.correlation_id)
        if not known:
            asked = printable(request.mechanism[:_LONGEST_NAME])
            return self._failed(peer, answer, f"the mechanism {asked} is not served")
        self._mechanism = request.mechanism
        self._bare = header.api_version == 0
        self._exchange = self._login.exchange(request.mechanism)
        next(self._exchange)
        return answer

    def _authenticate(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse:
        header = codec.decode_request_header(frame)
        if header.api_version not in SaslAuthenticateRequest.VERSIONS:
            raise CloseConnection(f"SaslAuthenticate version {header.api_version} is not served")
        request = codec.decode_request(SaslAuthenticateRequest, header, frame)
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, error_message="", auth_bytes=b"", session_lifetime_ms=0
        )
        try:
            response.auth_bytes, lifetime = self._receive(peer, request.auth_bytes)
            response.session_lifetime_ms = int(lifetime * 1000)
        except AuthenticationFailed as failed:
            response.error_code, response.error_message = ErrorCode.SASL_AUTHENTICATION_FAILED, str(failed)
            answer = _encode(response, header.api_version, header.correlation_id)
            return self._failed(peer, answer, failed.reason, failed.user)
        return _encode(response, header.api_version, header.correlation_id)

    def _authenticate_bare(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse:
        try:
            answer, _ = self._receive(peer, frame)
        except AuthenticationFailed as failed:
            return self._failed(peer, (), failed.reason, failed.user)
        return [_SIZE.pack(len(answer)), answer]

    def _receive(self, peer: Peer, message: Buffer) -> tuple[bytes, float]:
        """Give a message to the exchange: the answer, and the seconds until the client has to authenticate again.

        Raises:
            AuthenticationFailed: the client is not who it says.
        """
        assert self._exchange is not None
        try:
            return self._exchange.send(bytes(message)), 0.0
        except StopIteration as done:
            who: Authenticated = done.value
        return who.answer, self._let_in(peer, who)

    def _let_in(self, peer: Peer, who: Authenticated) -> float:
        """Serve a client from now on: the seconds until it has to authenticate again, 0 for never.

        Raises:
            AuthenticationFailed: it is another one than before, or has no time.
        """
        principal = Principal("User", who.user)
        if self._before is not None and self._before != (principal, self._mechanism):
            raise AuthenticationFailed(
                "Authentication failed: Cannot change principals or SASL mechanisms during re-authentication", who.user
            )
        lifetime = self._login.settings.lifetimes.get(self._mechanism, 0.0)
        if who.expires_ms is not None:
            left = (who.expires_ms - self._login.wall_ms()) / 1000
            lifetime = min(lifetime or left, left)
            if lifetime <= 0:
                raise AuthenticationFailed("Authentication failed: The token has expired", who.user)
        peer.identify(principal)
        self._login.audit.logged_in(principal, peer.host, peer.listener, self._mechanism)
        self._open, self._bare, self._exchange = True, False, None
        self._again = lifetime > 0
        self._until = self._loop.time() + lifetime
        self._deadline.cancel()
        self._connection.authenticated(again=self._again)
        return lifetime

    def _failed(self, peer: Peer, answer: Answer, reason: str, user: str = "") -> DeferredResponse:
        """Answer later, and close the connection then."""
        self._login.audit.login_failed(peer.host, peer.listener, reason, user)
        deferred = DeferredResponse()
        deferred.alone = True  # another password has to wait for the answer, and then comes too late
        self._deadline.cancel()
        self._deadline = self._loop.call_later(self._login.settings.delay, deferred.give, answer)
        # After this request has its place in the queue.
        self._loop.call_soon(self._connection.end)
        return deferred

    def _late(self) -> None:
        self._connection.refuse(f"it has not authenticated within {SECONDS:g} s")


def _encode(response: Response, version: int, correlation_id: int) -> Answer:
    return [codec.encode_response(response, version, correlation_id)]
