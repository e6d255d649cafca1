"""One TCP connection to a broker: sends requests, and matches responses to them, each with a timeout.

:class:`~barnabas_protocol.framing.Framer` splits the bytes into frames, and
:class:`~barnabas_protocol.exchange.Exchange` finds the request that a frame answers. :meth:`Connection.open` connects
and requests the broker's API versions (KIP-35, KIP-511); each request is then sent in the newest version that both
sides have. Requests are pipelined. A response that does not arrive within its timeout ends the connection, as in
Kafka's ``NetworkClient``, because the responses behind it would not arrive either. When a connection ends, each request
on it fails with :class:`~barnabas_client.errors.KafkaConnectionError`. It does not connect again:
:mod:`barnabas_client.network.connections` does, with back-off.
"""

import asyncio
import math
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeVar, cast

from barnabas_client.errors import KafkaConnectionError, KafkaTimeoutError, error_for
from barnabas_client.network.versions import ApiRange, choose_version, downgrade, upgrade
from barnabas_client.tasks import reject, resolve
from barnabas_client.tokens import Login
from barnabas_protocol.codec import decode_response, encode_request_parts
from barnabas_protocol.errors import DecodeError, EncodeError, ErrorCode, KafkaError
from barnabas_protocol.exchange import Exchange
from barnabas_protocol.framing import Framer
from barnabas_protocol.hot.api_versions import decode_api_ranges
from barnabas_protocol.messages.api_versions import ApiVersionsRequest
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request, Response
from barnabas_protocol.version import VERSION
from barnabas_protocol.wire import Buffer

R = TypeVar("R", bound=Response)
T = TypeVar("T")

#: The largest response in bytes; a larger size field means that the peer is not a Kafka broker.
MAX_FRAME: Final = 256 * 1024 * 1024
#: The correlation id of a request without a response (acks=0).
_NO_RESPONSE: Final = -1
_INT32: Final = struct.Struct(">i")
_CORRELATION_ID_AT: Final = 8  # after size, key and version
_CORRELATION_ID_SIZE: Final = 4
#: The largest response to ApiVersions in bytes that is kept decoded; one with 66 APIs and features has 616.
_KEPT_SIZE: Final = 4096
_OF_LOGIN: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)

#: The parts of a session after which a connection logs in again: when nothing is in flight, and in any case.
_RENEW: Final = 0.85
_RENEW_NOW: Final = 0.95
#: Minimum seconds between two logins: a broker takes none sooner.
_LEAST: Final = 1.1
#: Why a connection has ended, if the broker did it.
_BROKE_OFF: Final = "it broke off"
_CLOSED: Final = "the broker closed it"

#: Decodes a response: takes the version of the request, and the frame.
Decoder = Callable[[int, Buffer], T]


#: TCP probes a connection on which nothing has arrived for so many seconds, and again after so many, so often. A broker
#: whose machine has lost power sends nothing, and a JoinGroup may wait for five minutes.
_IDLE_SECONDS: Final = 20
_PROBE_SECONDS: Final = 5
_PROBES: Final = 4
#: After so many seconds it is known that the other end does not exist.
KEEPALIVE_SECONDS: Final = _IDLE_SECONDS + _PROBES * _PROBE_SECONDS
#: The options of TCP for that; some systems lack some of them, and have their own times.
_KEEPALIVE: Final = (("TCP_KEEPIDLE", _IDLE_SECONDS), ("TCP_KEEPINTVL", _PROBE_SECONDS), ("TCP_KEEPCNT", _PROBES))


def _keep_alive(given: Any) -> None:
    """Let TCP look from time to time whether the other end of a connection still exists.

    Args:
        given: the socket; None without one.
    """
    if given is None:
        return
    with suppress(OSError):  # the other end has gone already, which the connection hears by itself
        given.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                given.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _InFlight:
    """A request that has no response yet."""

    __slots__ = ("decode", "future", "name", "timer", "version")

    def __init__(self, name: str, version: int, decode: Decoder[Any], future: "asyncio.Future[Any]") -> None:
        self.name = name
        self.version = version
        self.decode = decode
        self.future = future
        self.timer: asyncio.TimerHandle | None = None


class Connection(asyncio.BufferedProtocol):
    """A connection to a broker. Create it with :meth:`open`."""

    def __init__(self, host: str, port: int, client_id: str, received: bytearray | None = None) -> None:
        self.host, self.port = host, port
        self.versions: Mapping[int, ApiRange] = {}
        self.last_used = 0.0
        #: When bytes arrived last, or when the first of the requests in flight was sent, whichever is later.
        self._heard = 0.0
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._framer = Framer(MAX_FRAME, received)
        self._exchange: Exchange[_InFlight] = Exchange()
        self._reason = ""
        self._lost: asyncio.Future[None] = self._loop.create_future()
        #: How it has logged in, and when to do so again: the first time that suits, and the last (KIP-368).
        self._login: Login | None = None
        self._renew_at = self._renew_by = math.inf
        self._renewal: asyncio.Task[None] | None = None
        #: Requests that wait until it has logged in again, and what their responses resolve.
        self._held: list[tuple[list[Buffer], _InFlight | None]] = []

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout: float,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
        versions: Mapping[int, ApiRange] | None = None,
        received: bytearray | None = None,
    ) -> "Connection":
        """Connect, and learn which API versions the broker has.

        Args:
            host: name or address.
            port: TCP port.
            client_id: sent with every request.
            timeout: seconds for all of it.
            tls: None for plain text.
            login: how to log in; None to not do so.
            versions: the broker's API versions, if another connection has just learnt them. They are requested on
                this connection as well, but other requests do not wait for the response.
            received: the buffer of all connections of an event loop, see :class:`Framer`; None for one of its own.

        Raises:
            KafkaConnectionError: nothing listens there, or it is not a Kafka broker.
            KafkaTimeoutError: it took longer than `timeout`.
            AuthenticationFailedError: the broker does not accept the login.
            UnsupportedVersionError: the broker has no version of ApiVersions in common with this client.
        """
        connection = cls(host, port, client_id, received)
        try:
            async with asyncio.timeout(timeout):
                try:
                    await connection._loop.create_connection(lambda: connection, host, port, ssl=tls)
                except ssl.SSLCertVerificationError as error:
                    why = error.verify_message.rstrip(".")
                    raise KafkaConnectionError(
                        f"cannot connect to {host}:{port}: its certificate is not accepted, {why}. "
                        "To do: give the authority that issued it as ssl_cafile, and connect by a name that is in it"
                    ) from error
                except OSError as error:
                    closed = "the connection was closed" if isinstance(error, ConnectionError) else repr(error)
                    reason = error.strerror or str(error) or closed
                    remedy = "check that a broker listens there" + (", and with TLS" if tls is not None else "")
                    raise KafkaConnectionError(f"cannot connect to {host}:{port}: {reason}. To do: {remedy}") from error
                if versions is None:
                    try:
                        await connection._learn_versions(timeout)
                    except KafkaConnectionError as error:
                        if tls is None and connection._reason.startswith((_BROKE_OFF, _CLOSED)):
                            raise KafkaConnectionError(
                                f"{error}. To do: connect with TLS if it expects that"
                            ) from error
                        raise
                else:
                    connection._confirm_versions(versions, timeout)
                if login is not None:
                    connection._login = login
                    await connection._log_in(login, timeout)
        except TimeoutError as error:
            connection.abort("it did not answer in time")
            raise KafkaTimeoutError(
                f"no Kafka broker answered at {host}:{port} within {timeout:g} s. To do: check address and firewall, "
                "or raise "
                f"request_timeout_ms"
            ) from error
        except BaseException:
            connection.abort("it could not be set up")
            raise
        return connection

    @property
    def closed(self) -> bool:
        """Whether the connection has ended, so that nothing can be sent."""
        return self._transport is None or self._transport.is_closing() or self._lost.done()

    @property
    def in_flight(self) -> int:
        """The number of requests without a response yet."""
        return len(self._exchange)

    @property
    def silence(self) -> float:
        """Seconds for which requests have been in flight and nothing was received."""
        return self._loop.time() - self._heard if len(self._exchange) else 0.0

    def send(
        self, request: Request, decode: Decoder[T], *, timeout: float, at_most: int | None = None
    ) -> asyncio.Future[T]:
        """Send a request now, and return a future of the decoded response.

        Cancel the future to ignore the response. The caller must await it or read its exception.

        Args:
            request: in its newest form.
            decode: decodes the response from the version and the frame.
            timeout: seconds; without a response within this time the connection ends.
            at_most: the newest version to use; the newest that both sides have if None.

        Raises:
            KafkaConnectionError: the connection is closed.
            UnsupportedVersionError: broker and client have no version in common.
            KafkaError: a value does not fit its field, or that version does not have the field.
        """
        transport = self._connected()
        self._renew(timeout)
        chosen = self._version(request, at_most)
        future: asyncio.Future[T] = self._loop.create_future()
        asked = _InFlight(ApiKey(request.API_KEY).name, chosen, decode, future)
        self._write(transport, request, chosen, asked)
        asked.timer = self._loop.call_later(timeout, self._timed_out, asked, timeout)
        return future

    def send_only(self, request: Request, *, at_most: int | None = None) -> None:
        """Send a request that gets no response: Produce with acks=0.

        Raises:
            KafkaError: as :meth:`send`.
        """
        self._write(self._connected(), request, self._version(request, at_most), None)

    def asked(
        self, request: Request, answer: type[R], *, timeout: float, at_most: int | None = None
    ) -> asyncio.Future[R]:
        """Send a request now, and return a future of the response in its newest form; see :meth:`send`."""

        def decode(version: int, frame: Buffer) -> R:
            return upgrade(request, decode_response(answer, version, frame), version)

        return self.send(request, decode, timeout=timeout, at_most=at_most)

    async def ask(self, request: Request, answer: type[R], *, timeout: float, at_most: int | None = None) -> R:
        """Send a request and wait for the response, which is returned in its newest form.

        Raises:
            KafkaConnectionError: the connection is closed, or ends before the response.
            KafkaTimeoutError: the response did not arrive within `timeout` seconds.
            KafkaError: the request cannot be sent: see :meth:`send`.
        """
        return await self.asked(request, answer, timeout=timeout, at_most=at_most)

    def abort(self, reason: str) -> None:
        """End the connection at once; requests in flight fail with `reason`."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()
        self._fail_all()

    async def close(self, patience: float = 1.0) -> None:
        """End the connection when all written requests are sent, and wait until it has ended.

        Args:
            patience: seconds to wait; a peer that does not read must not delay the end of the program.
        """
        self._reason = self._reason or "it was closed by this client"
        if self._transport is not None and not self._lost.done():
            self._transport.close()
            await asyncio.wait([self._lost], timeout=patience)
            if not self._lost.done():
                self._transport.abort()
        self._fail_all()

    async def wait_closed(self) -> None:
        """Wait until the connection has ended, from either side."""
        await asyncio.shield(self._lost)

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)
        _keep_alive(transport.get_extra_info("socket"))
        self.last_used = self._loop.time()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return a buffer for received bytes."""
        return self._framer.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the complete frames among the received bytes."""
        self._heard = self._loop.time()
        try:
            for frame in self._framer.received(nbytes):
                self._answered(self._exchange.answered(frame), frame)
        except DecodeError as error:
            self.abort(
                f"it sent something that is not a Kafka response ({error}). To do: check that a Kafka broker listens "
                "there"
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests in flight."""
        self._reason = self._reason or (f"{_BROKE_OFF} ({exc})" if exc else _CLOSED)
        resolve(self._lost, None)
        self._fail_all()

    # Inside.

    def _version(self, request: Request, at_most: int | None) -> int:
        return choose_version(type(request), self.versions.get(request.API_KEY), at_most)

    def _connected(self) -> asyncio.Transport:
        """The open transport.

        Raises:
            KafkaConnectionError: the connection is closed.
        """
        if self._transport is None or self.closed:
            raise self._error()
        return self._transport

    def _write(self, transport: asyncio.Transport, request: Request, chosen: int, asked: _InFlight | None) -> None:
        # The correlation id is written last: no response may be expected for a request that cannot be encoded.
        try:
            parts = encode_request_parts(downgrade(request, chosen), chosen, _NO_RESPONSE, self._client_id)
        except EncodeError as error:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{type(request).__name__} cannot be sent to {self.host}:{self.port} in its version {chosen}: "
                f"{error}. To do: "
                "shorten what is too long, or leave out what this broker does not know",
            ) from error
        if self._renewal is not None and request.API_KEY not in _OF_LOGIN:
            self._held.append((parts, asked))
        else:
            self._put(transport, parts, asked)

    def _put(self, transport: asyncio.Transport, parts: list[Buffer], asked: _InFlight | None) -> None:
        self.last_used = self._loop.time()
        if asked is not None:
            if not len(self._exchange):
                self._heard = self.last_used
            head = bytearray(parts[0])
            _INT32.pack_into(head, _CORRELATION_ID_AT, self._exchange.sent(asked))
            parts[0] = head
        transport.writelines(parts)

    def _renew(self, timeout: float) -> None:
        """Log in again, if it is time. Requests wait meanwhile: the broker accepts none before it is done."""
        now = self._loop.time()
        if now < self._renew_at or self._renewal is not None or (now < self._renew_by and len(self._exchange)):
            return
        self._renewal = self._loop.create_task(self._log_in_again(timeout))

    async def _log_in_again(self, timeout: float) -> None:
        assert self._login is not None
        try:
            async with asyncio.timeout(timeout):
                await self._log_in(self._login, timeout)
        except (KafkaError, TimeoutError) as error:
            self.abort(f"it could not log in again: {str(error) or 'it took too long'}")
        finally:
            self._renewal = None
            held, self._held = self._held, []
            for parts, asked in held:
                if self._transport is None or self.closed:
                    if asked is not None:
                        self._fail(asked)
                elif asked is None or not asked.future.done():
                    self._put(self._transport, parts, asked)

    def _answered(self, asked: _InFlight, frame: Buffer) -> None:
        if asked.timer is not None:
            asked.timer.cancel()
        if asked.future.done():
            return
        try:
            result = asked.decode(asked.version, frame)
        except DecodeError as error:
            self._reason = self._reason or f"its answer to {asked.name} cannot be read ({error})"
            reject(asked.future, self._error())
            raise
        except KafkaError as error:
            reject(asked.future, error)
        else:
            resolve(asked.future, result)

    async def _learn_versions(self, timeout: float) -> None:
        chosen = ApiVersionsRequest.VERSIONS.high
        request = api_versions_request()
        for _ in range(2):
            self.versions = {request.API_KEY: ApiRange(chosen, chosen)}
            response = await self.send(request, _decode_versions, timeout=timeout, at_most=chosen)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
            # The body is of version 0, and may have the range of this one API (KIP-511). Version 0 always works.
            known = response.ranges.get(request.API_KEY)
            chosen = min(chosen - 1, 0 if known is None else known.high)
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, f"ask {self.host}:{self.port} for its API versions")
        self.versions = response.ranges

    async def _log_in(self, login: Login, timeout: float) -> None:
        # Imported here: most programs do not log in.
        log_in = import_module("barnabas_client.network.login").log_in
        began, lifetime = await log_in(self, login, timeout)
        self._renew_at = began + max(lifetime * _RENEW, _LEAST)
        self._renew_by = began + max(lifetime * _RENEW_NOW, _LEAST)

    def _confirm_versions(self, known: Mapping[int, ApiRange], timeout: float) -> None:
        """Request the API versions without waiting; requests before the response use the `known` ones."""

        def confirmed(answer: asyncio.Future[_ApiVersions]) -> None:
            if answer.cancelled() or answer.exception() is not None:
                return  # the connection has ended
            response = answer.result()
            if response.error_code != ErrorCode.NONE:
                self.abort(f"it is another broker now ({ErrorCode.of(response.error_code).name})")
            else:
                self.versions = response.ranges

        self.versions = known
        self.send(api_versions_request(), _decode_versions, timeout=timeout).add_done_callback(confirmed)

    def _timed_out(self, asked: _InFlight, timeout: float) -> None:
        error = KafkaTimeoutError(
            f"{self.host}:{self.port} did not answer {asked.name} within {timeout:g} s. To do: check the broker's "
            "load, or raise request_timeout_ms"
        )
        reject(asked.future, error)
        self.abort(f"{asked.name} got no answer within {timeout:g} s")

    def _error(self) -> KafkaConnectionError:
        return KafkaConnectionError(
            f"connection to {self.host}:{self.port} is closed: {self._reason or 'it was never open'}"
        )

    def _fail_all(self) -> None:
        held, self._held = self._held, []
        for asked in (*self._exchange.abandon(), *(asked for _, asked in held if asked is not None)):
            self._fail(asked)

    def _fail(self, asked: _InFlight) -> None:
        if asked.timer is not None:
            asked.timer.cancel()
        reject(asked.future, self._error())


def api_versions_request() -> ApiVersionsRequest:
    """The request for the API versions and the features of a broker."""
    return ApiVersionsRequest(client_software_name="barnabas", client_software_version=VERSION)


class _ApiVersions(NamedTuple):
    """The response to ApiVersions: its error code, and the range of each API."""

    error_code: int
    ranges: Mapping[int, ApiRange]


def _decode_versions(chosen: int, frame: Buffer) -> _ApiVersions:
    content = bytes(frame[_CORRELATION_ID_SIZE:])
    decode = _kept_versions if len(content) <= _KEPT_SIZE else _api_versions
    return decode(chosen, content)


def _api_versions(chosen: int, content: bytes) -> _ApiVersions:
    """Decode a response without its correlation id."""
    # The header is always of version 0, so the error code is always at the same position.
    if int.from_bytes(content[:2], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
        chosen = 0
    error_code, ranges = decode_api_ranges(chosen, content)
    return _ApiVersions(error_code, {key: ApiRange(low, high) for key, low, high in ranges})


#: All connections to a broker get the same response.
_kept_versions: Final = lru_cache(maxsize=16)(_api_versions)
