"""Listeners and the connections that they accept: limits, idle connections, drain."""

import asyncio
import math
import socket
import ssl
from collections.abc import Callable, Container
from functools import partial
from heapq import nsmallest
from typing import Final

from barnabas_broker.config import PLAINTEXT, Config
from barnabas_broker.config.keys import (
    CONNECTION_MAX_RESPONSE_BYTES,
    CONNECTIONS_MAX_IDLE_MS,
    QUEUED_MAX_REQUEST_BYTES,
    SOCKET_REQUEST_MAX_BYTES,
)
from barnabas_broker.log_throttle import Folded
from barnabas_broker.logs import logger
from barnabas_broker.metrics import Traffic
from barnabas_broker.quotas.connections import ConnectionLimits, ConnectionQuotas
from barnabas_broker.resource_errors import share_of_descriptors
from barnabas_broker.security.principals import ANONYMOUS, Principal
from barnabas_broker.security.tls import TlsContexts
from barnabas_broker.server.acceptor import Acceptor, ConnectionSlot, Evictable, RefusedConnections
from barnabas_broker.server.connection import Connection, Dispatcher, Login, Peer
from barnabas_broker.server.memory_pool import Budget, Waiter
from barnabas_broker.server.refusals import Refusals
from barnabas_broker.server.tls import HandshakeSteps, TlsListener
from barnabas_broker.slicer import Slicer
from barnabas_protocol.framing import ROOM

log = logger("server")

#: Connections that may wait to be accepted.
BACKLOG: Final = 1024
#: Seconds between two searches for connections to close.
SWEEP_SECONDS: Final = 5.0
#: Connections that are closed before others get their turn.
_CLOSES: Final = 64
#: Second descriptors of sockets, and TLS handshakes: a part of all descriptors each, the fewest and the most.
DIRECT: Final = 32, 8, 1024
HANDSHAKES: Final = 32, 8, 512
#: Seconds for the rest of a request while others wait for memory.
FRAME_SECONDS: Final = 10.0


def _not_logged_in(connection: ssl.SSLObject) -> Principal:
    """The principal of a client that still has to log in, whatever its certificate says."""
    return ANONYMOUS


def _ignore(peer: Peer) -> None:
    """Do nothing with a client that is known."""


class SocketServer:
    """Accepts connections on the broker's listeners.

    Args:
        config: the limits.
        dispatch: answers requests.
        now: a monotonic clock, in seconds.
        refusals: warns about what is not served.
        responses: counts the bytes of responses that are not sent.
        quotas: the limits of connections.
        slicer: shares the event loop's time among all connections.
        identified: called with a client whose certificate says who it is.

    Attributes:
        dispatch: answers requests.
        now: the clock.
        refusals: warns about what is not served.
        traffic: the counters of all connections.
        max_request_bytes: bytes of a request frame at most.
        max_response_bytes: bytes of a connection's responses that may wait for an earlier one.
        received: the buffer into which all connections read.
        requests: counts the bytes of large requests.
        responses: counts the bytes of responses that are not sent.
        slicer: shares the event loop's time among all connections.
        direct: counts the second descriptors of sockets.
        closed: logs connections that are closed because of their clients.
        broken: logs connections that are closed because of a failure of the broker.
    """

    def __init__(
        self,
        config: Config,
        dispatch: Dispatcher,
        now: Callable[[], float],
        refusals: Refusals,
        responses: Budget,
        quotas: ConnectionQuotas,
        slicer: Slicer,
        identified: Callable[[Peer], None] = _ignore,
    ) -> None:
        self.identified = identified
        self.dispatch = dispatch
        self.now = now
        self.refusals = refusals
        self.traffic = Traffic()
        self.max_request_bytes = config[SOCKET_REQUEST_MAX_BYTES]
        self.max_response_bytes = config[CONNECTION_MAX_RESPONSE_BYTES]
        self.received = bytearray(ROOM)
        self.requests = Budget(config[QUEUED_MAX_REQUEST_BYTES])
        self.responses = responses
        self.slicer = slicer
        self.direct = Budget(share_of_descriptors(*DIRECT))
        self._quotas = quotas
        self._evictable = Evictable()
        self._refused = RefusedConnections(self.traffic, now)
        self._failed_handshakes = Folded(log.warning, "TLS handshake failed", "TLS handshakes failed", now)
        self.closed = Folded(log.warning, "connection closed", "connections closed", now)
        self.broken = Folded(log.error, "connection closed", "connections closed", now)
        self._idle = Folded(log.info, "connection closed", "connections closed", now)
        self._max_idle = config[CONNECTIONS_MAX_IDLE_MS] / 1000
        self._connections: set[Connection] = set()
        self._acceptors: list[Acceptor] = []
        self._tls: list[TlsListener] = []
        #: Connections that are being made.
        self._beginning: set[asyncio.Task[None]] = set()
        self._handshakes = HandshakeSteps(share_of_descriptors(*HANDSHAKES))
        #: The connection that goes on while others wait for memory, and since when.
        self._ahead: Waiter | None = None
        self._ahead_since = 0.0
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event = asyncio.Event()

    async def listen(
        self,
        listener: socket.socket,
        name: str = PLAINTEXT,
        tls: TlsContexts | None = None,
        login: Login | None = None,
    ) -> None:
        """Start to accept connections on a bound socket, the listener `name`; there may be several.

        Args:
            listener: the socket.
            name: the listener's name.
            tls: its certificates; None for plain text.
            login: what clients have to get through first; None if they need not log in.
        """
        begin: Callable[[socket.socket, str, ConnectionSlot], None]
        if tls is None:
            make = partial(self._make, name, None, login)
            begin = partial(self._begin, make)
        else:
            make = partial(self._make, name, tls.principal if login is None else _not_logged_in, login)
            protocol = "SSL" if login is None else "SASL_SSL"
            shaking = TlsListener(tls, make, self.traffic, self._handshakes, self._failed_handshakes, protocol)
            self._tls.append(shaking)
            begin = shaking.begin
        acceptor = Acceptor(listener, name, self._quotas, self._refused, self._evictable, self.now, begin, BACKLOG)
        self._acceptors.append(acceptor)
        if self._sweeper is None:
            self._sweep_again()

    def _make(
        self,
        name: str,
        identify: Callable[[ssl.SSLObject], Principal] | None,
        login: Login | None,
        place: ConnectionSlot,
    ) -> Connection:
        return Connection(self, name, identify, login, place)

    def _begin(
        self, make: Callable[[ConnectionSlot], Connection], accepted: socket.socket, peer: str, place: ConnectionSlot
    ) -> None:
        """Make a connection of an accepted socket."""
        task = asyncio.get_running_loop().create_task(self._connect(make(place), accepted, place))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _connect(self, connection: Connection, accepted: socket.socket, place: ConnectionSlot) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
        except OSError:  # the peer is gone already
            accepted.close()
        finally:
            if not connection.made:
                place.leave()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    @property
    def delayed(self) -> int:
        """How often a connection had to wait because too many were created."""
        return self._quotas.delayed

    @property
    def handshakes(self) -> int:
        """The number of connections whose TLS handshake is not complete."""
        return sum(len(each.pending) for each in self._tls)

    @property
    def peers(self) -> list[Peer]:
        """The clients of the open connections."""
        return [connection.peer for connection in self._connections]

    def disconnect(self, peers: Container[Peer]) -> int:
        """Close the connections of these clients now, without a response to their requests.

        Returns:
            How many were closed.
        """
        closing = [connection for connection in self._connections if connection.peer in peers]
        for connection in closing:
            connection.abort()
        return len(closing)

    def limit(self, limits: ConnectionLimits) -> None:
        """Take other limits of connections. Of more than the broker may have, those are closed that were used least
        recently, as in Kafka; the other limits are for new connections."""
        self._quotas.limits = limits
        excess = self._quotas.total - limits.connections
        if excess > 0:
            others = [each for each in self._connections if each.peer.listener != limits.protected]
            log.warning("connections closed", reason="max.connections was lowered", count=min(excess, len(others)))
            self._close_excess(nsmallest(excess, others, key=lambda each: each.active))

    def _close_excess(self, excess: list[Connection]) -> None:
        for connection in excess[:_CLOSES]:
            if connection in self._connections:
                connection.abort()
        if len(excess) > _CLOSES:
            asyncio.get_running_loop().call_soon(self._close_excess, excess[_CLOSES:])

    def admit(self, connection: Connection) -> None:
        """Register a new connection. If there are too many with it, because it is one of a broker, another is closed:
        the one that was used least recently."""
        self.traffic.accepted += 1
        self._connections.add(connection)
        if self._quotas.exceeded:
            protected = self._quotas.limits.protected
            others = [each for each in self._connections if each.peer.listener != protected]
            if others:
                oldest = min(others, key=lambda each: each.active)
                self._refused.add(oldest.peer.host, oldest.peer.port, "max.connections, for a connection of a broker")
                oldest.abort()

    def forget(self, connection: Connection) -> None:
        """Unregister a connection that is lost."""
        self._connections.discard(connection)
        if not self._connections:
            self._emptied.set()

    def sweep(self) -> None:
        """Close idle connections, and those whose peer reads nothing: their responses keep memory and files.

        A request must arrive within the same time, and in :data:`FRAME_SECONDS` while others wait for its memory.
        """
        now = self.now()
        self._refused.tick()
        for lines in self._failed_handshakes, self.closed, self.broken, self._idle:
            lines.tick()
        self.refusals.tick(now)
        self._quotas.tick(now)
        ahead = self.requests.ahead
        if ahead is not self._ahead:
            self._ahead, self._ahead_since = ahead, now
        limit = now - self._max_idle if self._max_idle > 0 else -math.inf
        for connection in list(self._connections):
            began = connection.began
            late = began is not None and connection.reading and began < limit
            if late or (connection is ahead and self._ahead_since < now - FRAME_SECONDS):
                self.closed.add(connection.peer.host, str(connection.peer), reason="its request does not arrive")
                self.traffic.dropped += 1
                connection.abort()
            elif connection.active >= limit:
                continue
            elif connection.stalled:
                self.closed.add(connection.peer.host, str(connection.peer), reason="the peer does not read")
                connection.abort()
            elif not connection.busy:
                self._idle.add(connection.peer.host, str(connection.peer), reason="idle")
                connection.close()

    def _sweep_again(self) -> None:
        self.sweep()
        wait = min(max(self._max_idle / 4, 0.05), SWEEP_SECONDS) if self._max_idle > 0 else SWEEP_SECONDS
        self._sweeper = asyncio.get_running_loop().call_later(wait, self._sweep_again)

    async def stop(self, grace: float) -> None:
        """Accept nothing more, answer the requests that were started, close.

        Args:
            grace: seconds to wait for responses and for peers to read them; connections are aborted after that.
        """
        for acceptor in self._acceptors:
            acceptor.close()
        for each in self._tls:
            each.close()
        for task in self._beginning:
            task.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._emptied.clear()
        for connection in list(self._connections):
            connection.end()
        if self._connections:
            try:
                await asyncio.wait_for(self._emptied.wait(), grace)
            except TimeoutError:
                for connection in list(self._connections):
                    connection.abort()
