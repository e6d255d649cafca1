"""A listener that speaks TLS: few of its connections have their handshakes at a time.

A handshake takes the processor a millisecond or more, in which the event loop does nothing else. A hundred clients that
connect at once would keep all others waiting for all of it. So the broker waits for a client's first byte without TLS,
and then lets :data:`AT_ONCE` handshakes go on together; whatever else is ready comes between them.

The first byte also shows what is not TLS. A connection that does not get through its handshake causes a log line with
the peer and the reason, once a minute for a host and a reason. It has :data:`HANDSHAKE_SECONDS` for it, and counts in
``max.connections`` meanwhile.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from typing import Final

from barnabas_broker.metrics import Traffic
from barnabas_broker.security.tls import HandshakeFailed, TlsContexts
from barnabas_broker.server.acceptor import Place
from barnabas_broker.server.connection import Connection
from barnabas_broker.server.folded import Folded

#: Seconds from the connection to the end of the handshake.
HANDSHAKE_SECONDS: Final = 10.0
#: Seconds for the peer to confirm the end of a connection.
SHUTDOWN_SECONDS: Final = 1.0
#: Handshakes that go on together, and the seconds after which a slow one lets another begin.
AT_ONCE: Final = 2
TURN_SECONDS: Final = 0.01
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


class HandshakeLane:
    """Bounds the handshakes that take the event loop's time together; the others wait in the order in which they ask.

    A peer that is slow gives its place to the next one after :data:`TURN_SECONDS` and goes on without it, so that peers
    that never end their handshakes cannot keep others out.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a place, and give it back at the end or when it was held for long enough."""
        await self._places.acquire()
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                self._places.release()

        timer = asyncio.get_running_loop().call_later(TURN_SECONDS, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()


class TlsListener:
    """Makes TLS connections of the sockets that an acceptor hands to :meth:`begin`.

    Args:
        contexts: the certificates.
        make: makes the protocol of a connection.
        traffic: the counters of all connections.
        lane: the order of handshakes, the same for all listeners.
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
        lane: HandshakeLane,
        failed: Folded,
        protocol: str,
        seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self.pending: set[asyncio.Task[None]] = set()
        self._contexts = contexts
        self._make = make
        self._traffic = traffic
        self._lane = lane
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
            try:
                async with asyncio.timeout(self._seconds):
                    first = await self._first_byte(accepted)
                    if first == _HANDSHAKE:
                        async with self._lane.turn():
                            await self._loop.connect_accepted_socket(
                                lambda: connection,
                                accepted,
                                ssl=self._contexts.server,
                                ssl_handshake_timeout=2 * self._seconds,  # the one above comes first
                                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
                            )
                        return
                # Without a byte it was a port scan, or a load balancer that looks whether the port is open.
                if first:
                    self._refuse(peer, f"it does not speak TLS: set security.protocol={self._protocol} in the client")
            except HandshakeFailed as failed:
                with suppress(OSError):
                    spare.send(failed.alert)
                self._refuse(peer, reason_of(failed.error))
            except TimeoutError:
                self._refuse(peer, f"it has not completed a TLS handshake within {self._seconds:g} s")
            except OSError as error:
                self._refuse(peer, reason_of(error))
            except asyncio.CancelledError:
                accepted.close()
                raise
            accepted.close()

    async def _first_byte(self, accepted: socket.socket) -> bytes:
        """What a client says first, without taking it from the socket; empty if it says nothing."""
        try:
            return accepted.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            pass
        readable = asyncio.Event()
        self._loop.add_reader(accepted.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(accepted.fileno())
        return accepted.recv(1, socket.MSG_PEEK)

    def _refuse(self, peer: str, reason: str) -> None:
        self._traffic.dropped += 1
        host, _, port = peer.rpartition(":")
        self._failed.add(host, int(port), reason)


def reason_of(error: OSError) -> str:
    """Why a handshake failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{_REASONS['CERTIFICATE_VERIFY_FAILED']}: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _REASONS.get(error.reason, error.reason.replace("_", " ").lower())
    if isinstance(error, ConnectionError | EOFError):
        return "it has closed the connection"
    return error.strerror or str(error)
