"""A listener that speaks TLS: few steps of handshakes are done in a turn of the event loop.

A step of a handshake, the answer to what the client has sent, takes the processor a millisecond or two, in which the
event loop does nothing else. A hundred clients that take their steps at once would keep all others waiting for all of
them. So a connection is not read during its handshake, except when its step has its turn (:class:`HandshakeSteps`);
whatever else is ready comes between the steps.

The first byte shows what is not TLS. A connection that does not get through its handshake causes a log line with
the peer and the reason, once a minute for a host and a reason. It has :data:`HANDSHAKE_SECONDS` for it, and counts in
``max.connections`` meanwhile.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from typing import Final, cast

from barnabas_broker.metrics import Traffic
from barnabas_broker.security.tls import HandshakeFailed, TlsContexts
from barnabas_broker.server.acceptor import Place
from barnabas_broker.server.connection import Connection
from barnabas_broker.server.folded import Folded

#: Seconds from the connection to the end of the handshake.
HANDSHAKE_SECONDS: Final = 10.0
#: Seconds for the peer to confirm the end of a connection.
SHUTDOWN_SECONDS: Final = 1.0
#: Steps of handshakes in a turn of the event loop.
AT_ONCE: Final = 2
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
    """Bounds the steps of handshakes in a turn of the event loop; the others wait in the order in which they ask.

    A step ends with its turn, whether the peer has sent all of its message or not, so that peers which are slow or
    never end their handshakes cannot keep others out.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        """Wait for the turn of a step; what is ready to be read from a socket in the context is read before its end."""
        async with self._places:
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


class TlsListener:
    """Makes TLS connections of the sockets that an acceptor hands to :meth:`begin`.

    Args:
        contexts: the certificates.
        make: makes the protocol of a connection.
        traffic: the counters of all connections.
        steps: the order of handshakes, the same for all listeners.
        failed: logs failed handshakes.
        protocol: what clients have to set as their ``security.protocol``.
        seconds: from the connection to the end of its handshake.

    Attributes:
        pending: the connections whose handshake is not complete.
    """

    def __init__(
        self,
        contexts: TlsContexts,
        make: Callable[[Place], Connection],
        traffic: Traffic,
        steps: HandshakeSteps,
        failed: Folded,
        protocol: str,
        seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self.pending: set[asyncio.Task[None]] = set()
        self._contexts = contexts
        self._make = make
        self._traffic = traffic
        self._steps = steps
        self._failed = failed
        self._protocol = protocol
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()

    def begin(self, accepted: socket.socket, peer: str, place: Place) -> None:
        """Make a connection of an accepted socket, or close it."""
        task = self._loop.create_task(self._begin(accepted, peer, place))
        self.pending.add(task)
        task.add_done_callback(self.pending.discard)

    def close(self) -> None:
        """Drop what has not completed its handshake. May be called twice."""
        for task in self.pending:
            task.cancel()

    async def _begin(self, accepted: socket.socket, peer: str, place: Place) -> None:
        connection = self._make(place)
        try:
            await self._connect(accepted, peer, connection)
        finally:
            # Otherwise it leaves its place when it is lost.
            if not connection.made:
                place.leave()

    async def _connect(self, accepted: socket.socket, peer: str, connection: Connection) -> None:
        # The loop closes the socket of a failed handshake at once, and the peer still has to learn why.
        with closing(accepted.dup()) as spare:
            raw: asyncio.Transport | None = None
            try:
                raw, opening = await self._loop.connect_accepted_socket(_Opening, accepted)
                async with asyncio.timeout(self._seconds):
                    await opening.heard.wait()
                    if opening.first.startswith(_HANDSHAKE):
                        await self._shake_hands(raw, spare, opening.first, connection)
                        return
                # Without a byte it was a port scan, or a load balancer that looks whether the port is open.
                if opening.first:
                    self._refuse(peer, f"it does not speak TLS: set security.protocol={self._protocol} in the client")
            except HandshakeFailed as failed:
                with suppress(OSError):
                    spare.send(failed.alert)
                self._refuse(peer, reason_of(failed.error))
            except TimeoutError:
                self._refuse(peer, f"it has not completed a TLS handshake within {self._seconds:g} s")
            except OSError as error:
                self._refuse(peer, reason_of(error))
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
            ssl_handshake_timeout=2 * self._seconds,  # the one of this listener comes first
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
        """Wait until the peer has sent something, or `wake` is set."""
        self._loop.add_reader(spare.fileno(), wake.set)
        try:
            await wake.wait()
        finally:
            wake.clear()
            self._loop.remove_reader(spare.fileno())

    def _refuse(self, peer: str, reason: str) -> None:
        self._traffic.dropped += 1
        host, _, port = peer.rpartition(":")
        self._failed.add(host, int(port), reason)


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
