"""Connections to other brokers: of followers, of coordinators. Every request has a timeout.

Where the listener of other brokers speaks SASL, a connection logs in first, and again in good time before its session
ends (KIP-368).
"""

import asyncio
import math
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar, cast

from barnabas_broker.security.sasl import Credentials
from barnabas_broker.security.tls import TlsContexts
from barnabas_protocol.codec import decode_response, encode_request
from barnabas_protocol.errors import DecodeError, ErrorCode
from barnabas_protocol.exchange import Exchange
from barnabas_protocol.framing import Framer
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_protocol.sasl import SaslError, exchange
from barnabas_protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

#: The size of a response: ``replica.fetch.response.max.bytes``, or one batch that is larger.
_MOST_BYTES: Final = 256 * 1024 * 1024
#: The part of a session after which a connection logs in again.
_RENEW: Final = 0.85


class BrokerSecurity(NamedTuple):
    """How this broker connects to others.

    Attributes:
        tls: its certificates; None for plain text.
        login: by what it logs in; None where it need not.
    """

    tls: TlsContexts | None = None
    login: Credentials | None = None


#: Plain text, without a login.
PLAIN_TEXT: Final = BrokerSecurity()


class BrokerConnection(asyncio.BufferedProtocol):
    """One connection; see :meth:`open`.

    Args:
        client_id: the client id of this broker.
        login: by what it logs in; None where it need not.

    Attributes:
        lost: why it was closed; None while it is open.
        on_lost: called when it is closed.
    """

    def __init__(self, client_id: str, login: Credentials | None = None) -> None:
        self.lost: ConnectionError | None = None
        self.on_lost: Callable[[], object] | None = None
        self._client_id = client_id
        self._framer = Framer(_MOST_BYTES)
        self._exchange: Exchange[asyncio.Future[bytes | bytearray]] = Exchange()
        self._transport: asyncio.Transport | None = None
        self._login = login
        self._logging_in = asyncio.Lock()
        #: When to log in again, on the loop's clock.
        self._renew_at = math.inf

    @classmethod
    async def open(
        cls, host: str, port: int, client_id: str, timeout: float, security: BrokerSecurity = PLAIN_TEXT
    ) -> "BrokerConnection":
        """Connect, and log in.

        Args:
            host: the broker's address.
            port: its port.
            client_id: the client id of this broker.
            timeout: seconds for all of it.
            security: the certificates of this broker, and by what it logs in.

        Raises:
            OSError: no connection, or not in time (TimeoutError); the other broker does not accept the login.
        """
        loop = asyncio.get_running_loop()
        tls = None if security.tls is None else security.tls.client
        async with asyncio.timeout(timeout):
            _, connection = await loop.create_connection(lambda: cls(client_id, security.login), host, port, ssl=tls)
            if security.login is not None:
                try:
                    await connection._log_in(security.login, timeout)
                except BaseException:
                    connection.close()
                    raise
        return connection

    async def _log_in(self, login: Credentials, timeout: float) -> None:
        """Prove to the other broker who this one is.

        Raises:
            OSError: it does not accept that, or is not the right one.
        """
        request = SaslHandshakeRequest(mechanism=login.mechanism)
        chosen = await self._ask(request, 1, SaslHandshakeResponse, timeout)
        _check_login(chosen.error_code, None)
        messages = exchange(*login, nonce=partial(secrets.token_urlsafe, 24))
        answer: SaslAuthenticateResponse | None = None
        try:
            message = next(messages)
            while True:
                began = asyncio.get_running_loop().time()
                answer = await self._ask(
                    SaslAuthenticateRequest(auth_bytes=message), 2, SaslAuthenticateResponse, timeout
                )
                _check_login(answer.error_code, answer.error_message)
                lifetime = answer.session_lifetime_ms / 1000
                self._renew_at = began + lifetime * _RENEW if lifetime > 0 else math.inf
                message = messages.send(bytes(answer.auth_bytes))
        except StopIteration:
            pass
        except SaslError as error:
            raise ConnectionError(f"the login failed: {error}") from error

    async def _ask(self, request: Request, version: int, response: type[R], timeout: float) -> R:
        """Send a request of a login and wait for the response.

        Raises:
            OSError: the connection was closed, or the response cannot be read.
        """
        frame = await self._send(request, version, timeout)
        try:
            return decode_response(response, version, frame)
        except DecodeError as error:
            raise ConnectionError(f"the login failed: {error}") from error

    @property
    def closed(self) -> bool:
        """Whether it is closed, by whichever side."""
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop."""
        return self._framer.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop."""
        try:
            for frame in self._framer.received(nbytes):
                waiter = self._exchange.answered(frame)
                if not waiter.done():
                    waiter.set_result(frame)
        except DecodeError as error:
            self._end(ConnectionError(str(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._end(ConnectionError("the connection was closed" if exc is None else str(exc)))

    def _end(self, error: ConnectionError) -> None:
        self.close()
        self.lost = self.lost or error
        if self.on_lost is not None:
            self.on_lost()
        for waiter in self._exchange.abandon():
            if not waiter.done():
                waiter.set_exception(error)

    async def send(self, request: Request, version: int, timeout: float) -> bytes | bytearray:
        """Send a request and wait for the response, a frame.

        Raises:
            OSError: the connection was closed, or the response did not arrive in time (TimeoutError).
        """
        if self._login is not None and asyncio.get_running_loop().time() >= self._renew_at:
            async with self._logging_in:
                if asyncio.get_running_loop().time() >= self._renew_at:
                    await self._log_in(self._login, timeout)
        return await self._send(request, version, timeout)

    async def _send(self, request: Request, version: int, timeout: float) -> bytes | bytearray:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("the connection was closed")
        waiter: asyncio.Future[bytes | bytearray] = asyncio.get_running_loop().create_future()
        correlation_id = self._exchange.sent(waiter)
        self._transport.write(encode_request(request, version, correlation_id, self._client_id))
        async with asyncio.timeout(timeout):
            return await waiter

    def close(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()


def _check_login(code: int, message: str | None) -> None:
    """Check what the other broker says to a login.

    Raises:
        ConnectionError: it refuses it.
    """
    if code != ErrorCode.NONE:
        raise ConnectionError(f"the login is refused: {message or ErrorCode.of(code).name}")


class BrokerConnections:
    """One connection to each broker that something is asked of, opened when it is first needed.

    Args:
        client_id: of this broker.
        address: finds the host and port of a broker; None while it is not registered.
        security: the certificates of this broker, and by what it logs in.
    """

    def __init__(
        self,
        client_id: str,
        address: Callable[[int], tuple[str, int] | None],
        security: BrokerSecurity = PLAIN_TEXT,
    ) -> None:
        self._client_id = client_id
        self._security = security
        self._address = address
        self._open: dict[int, tuple[tuple[str, int], asyncio.Task[BrokerConnection]]] = {}

    async def ask(self, node_id: int, request: Request, version: int, timeout: float) -> bytes | bytearray:
        """Send a request to a broker and wait for the response, a frame.

        A request that is given up, because it was cancelled or took too long, takes its connection with it: what the
        broker has not received of it by then never arrives. TCP would send it again for seconds after the network has
        come back, and the broker carry it out then.

        Raises:
            OSError: the broker is not registered, cannot be reached, or does not answer in time (TimeoutError). The
                next request opens another connection.
        """
        address = self._address(node_id)
        if address is None:
            raise ConnectionError(f"broker {node_id} is not registered")
        known = self._open.get(node_id)
        if known is None or known[0] != address or _is_closed(known[1]):
            self._drop(node_id, known)
            opening = BrokerConnection.open(*address, self._client_id, timeout, self._security)
            known = self._open[node_id] = address, asyncio.get_running_loop().create_task(opening)
        try:
            # Others wait for the same connection: it goes on to be opened if this request is cancelled.
            connection = await asyncio.shield(known[1])
        except OSError:
            self._drop(node_id, known)
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not known[1].cancelled() or (task is not None and task.cancelling()):
                raise
            raise ConnectionError("the connection was given up while it was opened") from None
        try:
            return await connection.send(request, version, timeout)
        except (OSError, asyncio.CancelledError):
            self._drop(node_id, known)
            raise

    def _drop(self, node_id: int, known: "tuple[tuple[str, int], asyncio.Task[BrokerConnection]] | None") -> None:
        """Close a connection, if it is still the current one."""
        if known is not None and self._open.get(node_id) is known:
            del self._open[node_id]
            _close(known[1])

    async def close(self) -> None:
        """Close all connections."""
        opened, self._open = list(self._open.values()), {}
        for _, task in opened:
            _close(task)
        await asyncio.gather(*(task for _, task in opened), return_exceptions=True)


def _is_closed(task: "asyncio.Task[BrokerConnection]") -> bool:
    """Whether a connection that was open is closed: a broker closes those that have been idle for long."""
    return task.done() and not task.cancelled() and task.exception() is None and task.result().closed


def _close(task: "asyncio.Task[BrokerConnection]") -> None:
    if not task.done():
        task.cancel()
    elif not task.cancelled() and task.exception() is None:
        task.result().close()
