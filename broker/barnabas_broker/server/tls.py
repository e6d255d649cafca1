"""A listener that speaks TLS: few steps of handshakes are done in a turn of the event loop.

A step of a handshake, the answer to what the client has sent, takes the processor a millisecond or two, in which the
event loop does nothing else. A hundred clients that take their steps at once would keep all others waiting for all of
them. So a connection is not read during its handshake, except when its step has its turn (:class:`HandshakeSteps`);
whatever else is ready comes between the steps.

A handshake takes 60 KB and a second descriptor, so few are done at a time. It begins when the client has sent
something; until then, and while it waits for its place, a connection is hardly more than its socket. While others wait,
a handshake ends whose client has sent nothing for :data:`PATIENCE_SECONDS`, and its place gets the client that came
last: clients that begin thousands of handshakes and do not end them cannot keep others out.

The first byte shows what is not TLS. A connection that does not get through its handshake causes a log line with
the peer and the reason, once a minute for a host and a reason. It has :data:`HANDSHAKE_SECONDS` for it, and counts in
``max.connections`` meanwhile; if there is no place for another connection, the oldest of them is closed.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from typing import Final, cast

from barnabas_broker.log_throttle import Folded
from barnabas_broker.metrics import Traffic
from barnabas_broker.security.tls import HandshakeFailed, TlsContexts
from barnabas_broker.server.acceptor import ConnectionSlot
from barnabas_broker.server.connection import Connection

#: Seconds from the connection to the end of the handshake.
HANDSHAKE_SECONDS: Final = 10.0
#: Seconds for a client to answer while other handshakes wait for their place.
PATIENCE_SECONDS: Final = 1.0
#: Seconds for the peer to confirm the end of a connection.
SHUTDOWN_SECONDS: Final = 1.0
#: Steps of handshakes in a turn of the event loop.
AT_ONCE: Final = 2
#: Bytes that are read of what is not TLS.
_LEFT: Final = 64 * 1024
#: The first byte of a TLS handshake.
_HANDSHAKE: Final = b"\x16"

#: What clients of the broker most often do wrong, by OpenSSL's name for it.
_REASONS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has sent no certificate, which ssl.client.auth=required asks for",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate of this broker",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate of this broker",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate of this broker",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate of this broker has expired",
    "UNSUPPORTED_PROTOCOL": "it has no version of TLS in common with ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "it has no cipher suite in common with this broker",
}


class HandshakeSteps:
    """Bounds the handshakes at a time, and their steps in a turn of the event loop.

    Steps wait in the order in which they ask for a turn. Of the clients that wait for a place, the last one is the
    first: after 5,000 clients that do not end their handshakes, an honest one would have to wait for all of them, until
    its own time is over. A step ends with its turn, whether the peer has sent all of its message or not, so that peers
    which are slow or never end their handshakes cannot keep others out.

    Args:
        most: handshakes at a time.
    """

    def __init__(self, most: int) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._places = most
        #: Those that wait for a place, in the order in which they came.
        self._waiting: dict[asyncio.Future[None], None] = {}

    @property
    def waiting(self) -> int:
        """Handshakes that wait for others to end."""
        return len(self._waiting)

    @asynccontextmanager
    async def handshake(self) -> AsyncIterator[None]:
        """Wait for the place of a handshake, which it has in the context."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[place] = None
        self._give()
        try:
            await place
            yield
        finally:
            if place.cancelled():
                self._waiting.pop(place, None)
            else:
                self._places += 1
                self._give()

    def _give(self) -> None:
        """Give free places to those that came last."""
        while self._places and self._waiting:
            place, _ = self._waiting.popitem()
            if not place.cancelled():
                place.set_result(None)
                self._places -= 1

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        """Wait for the turn of a step; what is ready to be read from a socket in the context is read before its end."""
        async with self._turns:
            yield
            await _turn()


async def _turn() -> None:
    """Wait until the event loop has looked for what can be read, and has read it: asyncio needs two turns for it."""
    for _ in range(2):
        await asyncio.sleep(0)


class _Opening(asyncio.Protocol):
    """Keeps what a peer sends until its connection has a protocol; of a transport that it has made, the first bytes."""

    def __init__(self) -> None:
        self.first = b""
        self.heard = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
        self.first += data
        self.heard.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.heard.set()


class _Silent(Exception):
    """A client has not answered while others wait for the place of its handshake."""


class TlsListener:
    """Makes TLS connections of the sockets that an acceptor hands to :meth:`begin`.

    Args:
        contexts: the certificates.
        make: makes the protocol of a connection.
        traffic: the counters of all connections.
        steps: the order of handshakes, the same for all listeners.
        failed: logs failed handshakes.
        protocol: what clients have to set as their ``security.protocol``.

    Attributes:
        pending: the connections whose handshake is not complete.
    """

    def __init__(
        self,
        contexts: TlsContexts,
        make: Callable[[ConnectionSlot], Connection],
        traffic: Traffic,
        steps: HandshakeSteps,
        failed: Folded,
        protocol: str,
    ) -> None:
        self.pending: set[asyncio.Task[None]] = set()
        self._contexts = contexts
        self._make = make
        self._traffic = traffic
        self._steps = steps
        self._failed = failed
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()

    def begin(self, accepted: socket.socket, peer: str, place: ConnectionSlot) -> None:
        """Make a connection of an accepted socket, or close it."""
        task = self._loop.create_task(self._begin(accepted, peer, place))

        def drop() -> None:
            task.cancel()

        place.offer(drop)
        self.pending.add(task)
        task.add_done_callback(self.pending.discard)

    def close(self) -> None:
        """Drop what has not completed its handshake. May be called twice."""
        for task in self.pending:
            task.cancel()

    async def _begin(self, accepted: socket.socket, peer: str, place: ConnectionSlot) -> None:
        connection: Connection | None = None
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                first = await self._first(accepted)
                if first == _HANDSHAKE:
                    async with self._steps.handshake():
                        connection = self._make(place)
                        await self._connect(accepted, peer, connection)
                # Without a byte it was a port scan, or a load balancer that looks whether the port is open.
                elif first:
                    accepted.recv(_LEFT)  # closing a socket with unread bytes would reset the connection
                    self._refuse(peer, f"it does not speak TLS: set security.protocol={self._protocol} in the client")
        except TimeoutError:
            self._refuse(peer, f"it has not completed a TLS handshake within {HANDSHAKE_SECONDS:g} s")
        except _Silent:
            self._refuse(peer, f"it has sent nothing for {PATIENCE_SECONDS:g} s while other handshakes waited")
        except OSError as error:
            self._refuse(peer, reason_of(error))
        finally:
            if connection is None:
                accepted.close()
            # Otherwise it leaves its place when it is lost.
            if connection is None or not connection.made:
                place.leave()

    async def _first(self, accepted: socket.socket) -> bytes:
        """Wait for the first byte, which stays in the socket; b"" if the peer has closed the connection."""
        heard = asyncio.Event()
        self._loop.add_reader(accepted.fileno(), heard.set)
        try:
            await heard.wait()
        finally:
            self._loop.remove_reader(accepted.fileno())
        return accepted.recv(1, socket.MSG_PEEK)

    async def _connect(self, accepted: socket.socket, peer: str, connection: Connection) -> None:
        raw: asyncio.Transport | None = None
        try:
            # The loop closes the socket of a failed handshake at once, and the peer still has to learn why.
            with closing(accepted.dup()) as spare:
                try:
                    raw, opening = await self._loop.connect_accepted_socket(_Opening, accepted)
                    await opening.heard.wait()
                    await self._shake_hands(raw, spare, opening.first, connection)
                except HandshakeFailed as failed:
                    with suppress(OSError):
                        spare.send(failed.alert)
                    self._refuse(peer, reason_of(failed.error))
        finally:
            if connection.made:
                pass
            elif raw is not None:
                raw.abort()
            else:
                accepted.close()

    async def _shake_hands(
        self, raw: asyncio.Transport, spare: socket.socket, first: bytes, connection: Connection
    ) -> None:
        """Do a handshake step by step; `first` has arrived already."""
        wake = asyncio.Event()

        def done(task: "asyncio.Task[None]") -> None:
            wake.set()
            if not task.cancelled():
                task.exception()  # it may come after the time is over

        upgrade: asyncio.Task[None] | None = None
        try:
            async with self._steps.step():
                upgrade = self._loop.create_task(self._upgrade(raw, connection))
                upgrade.add_done_callback(done)
                await _turn()  # the protocol is that of TLS then
                _feed(cast(asyncio.BufferedProtocol, raw.get_protocol()), first)
            while not upgrade.done():
                raw.pause_reading()
                await self._readable(spare, wake)
                async with self._steps.step():
                    raw.resume_reading()
            await upgrade
        finally:
            if upgrade is not None:
                upgrade.cancel()
            del upgrade  # the traceback of its error has this frame: a reference cycle with the whole connection

    async def _upgrade(self, raw: asyncio.Transport, connection: Connection) -> None:
        opening = _Opening()
        transport = await self._loop.start_tls(
            raw,
            opening,
            self._contexts.server,
            server_side=True,
            ssl_handshake_timeout=2 * HANDSHAKE_SECONDS,  # the one of this listener comes first
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )
        if transport is None or raw.is_closing():
            raise ConnectionResetError
        raw.resume_reading()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if not transport.is_closing():
            _feed(connection, opening.first)  # with the end of the handshake, the first request may have arrived

    async def _readable(self, spare: socket.socket, wake: asyncio.Event) -> None:
        """Wait until the peer has sent something, or `wake` is set.

        Raises:
            _Silent: others have waited for the place of this handshake meanwhile.
        """
        self._loop.add_reader(spare.fileno(), wake.set)
        try:
            while not wake.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        await wake.wait()
                        return
                if self._steps.waiting:
                    raise _Silent
        finally:
            wake.clear()
            self._loop.remove_reader(spare.fileno())

    def _refuse(self, peer: str, reason: str) -> None:
        self._traffic.dropped += 1
        host = peer.rpartition(":")[0]
        self._failed.add(host, peer, reason=reason)


def _feed(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Give a protocol bytes that were received before."""
    while data:
        buffer = memoryview(protocol.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        protocol.buffer_updated(size)
        data = data[size:]


def reason_of(error: OSError) -> str:
    """Why a handshake failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{_REASONS['CERTIFICATE_VERIFY_FAILED']}: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _REASONS.get(error.reason, error.reason.replace("_", " ").lower())
    if isinstance(error, ConnectionError | EOFError):
        return "it has closed the connection"
    return error.strerror or str(error)
