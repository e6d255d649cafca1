"""Listeners and the connections that they accept: limits, idle connections, drain."""

import asyncio
import math
import socket
import ssl
from collections.abc import Callable, Container
from functools import partial
from typing import Final

from barnabas_broker.config import PLAINTEXT, Config
from barnabas_broker.config.keys import (
    CONNECTION_MAX_RESPONSE_BYTES,
    CONNECTIONS_MAX_IDLE_MS,
    MAX_CONNECTIONS,
    QUEUED_MAX_REQUEST_BYTES,
    SOCKET_REQUEST_MAX_BYTES,
)
from barnabas_broker.logs import logger
from barnabas_broker.metrics import Traffic
from barnabas_broker.security.principals import ANONYMOUS, Principal
from barnabas_broker.security.tls import TlsContexts
from barnabas_broker.server.budget import Budget, Waiter
from barnabas_broker.server.connection import Connection, Dispatcher, Login, Peer
from barnabas_broker.server.refusals import Refusals
from barnabas_broker.server.tls import HandshakeLane, TlsListener
from barnabas_broker.shortages import most_descriptors

log = logger("server")

#: Connections that may wait to be accepted.
BACKLOG: Final = 1024
#: Seconds between two searches for connections to close.
SWEEP_SECONDS: Final = 5.0
#: Seconds for the rest of a request while others wait for memory.
FRAME_SECONDS: Final = 10.0


def _not_logged_in(connection: ssl.SSLObject) -> Principal:
    """The principal of a client that still has to log in, whatever its certificate says."""
    return ANONYMOUS


class SocketServer:
    """Accepts connections on the broker's listeners.

    Args:
        config: the limits.
        dispatch: answers requests.
        now: a monotonic clock, in seconds.
        refusals: warns about what is not served.
        responses: counts the bytes of responses that are not sent.

    Attributes:
        dispatch: answers requests.
        now: the clock.
        refusals: warns about what is not served.
        traffic: the counters of all connections.
        max_request_bytes: bytes of a request frame at most.
        max_response_bytes: bytes of a connection's responses that may wait for an earlier one.
        requests: counts the bytes of large requests.
        responses: counts the bytes of responses that are not sent.
    """

    def __init__(
        self,
        config: Config,
        dispatch: Dispatcher,
        now: Callable[[], float],
        refusals: Refusals,
        responses: Budget,
    ) -> None:
        self.dispatch = dispatch
        self.now = now
        self.refusals = refusals
        self.traffic = Traffic()
        self.max_request_bytes = config[SOCKET_REQUEST_MAX_BYTES]
        self.max_response_bytes = config[CONNECTION_MAX_RESPONSE_BYTES]
        self.requests = Budget(config[QUEUED_MAX_REQUEST_BYTES])
        self.responses = responses
        #: The other half of the descriptors is for files: a broker that cannot open any loses partitions.
        self._max_connections = min(config[MAX_CONNECTIONS], max(most_descriptors() // 2, 1))
        self._max_idle = config[CONNECTIONS_MAX_IDLE_MS] / 1000
        self._connections: set[Connection] = set()
        self._listeners: list[asyncio.Server | TlsListener] = []
        self._handshakes = HandshakeLane()
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
        if tls is None:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(
                partial(Connection, self, name, None, login), sock=listener, backlog=BACKLOG
            )
            self._listeners.append(server)
        else:
            make = partial(Connection, self, name, tls.principal if login is None else _not_logged_in, login)
            self._listeners.append(
                TlsListener(listener, tls, make, self._admits, self.traffic, self._handshakes, BACKLOG)
            )
        if self._sweeper is None:
            self._sweep_again()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    @property
    def handshakes(self) -> int:
        """The number of connections whose TLS handshake is not complete."""
        return sum(len(each.pending) for each in self._listeners if isinstance(each, TlsListener))

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

    def admit(self, connection: Connection) -> bool:
        """Register a new connection; False if ``max.connections`` are open."""
        self.traffic.accepted += 1
        if len(self._connections) >= self._max_connections:
            self._too_many(str(connection.peer))
            return False
        self._connections.add(connection)
        return True

    def _admits(self, peer: str) -> bool:
        """Whether a handshake may begin: together with those that have begun there are not too many connections."""
        if len(self._connections) + self.handshakes < self._max_connections:
            return True
        self.traffic.accepted += 1
        self._too_many(peer)
        return False

    def _too_many(self, peer: str) -> None:
        self.traffic.refused += 1
        log.warning("connection refused", peer=peer, reason=f"max.connections={self._max_connections}")

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
        ahead = self.requests.ahead
        if ahead is not self._ahead:
            self._ahead, self._ahead_since = ahead, now
        limit = now - self._max_idle if self._max_idle > 0 else -math.inf
        for connection in list(self._connections):
            began = connection.began
            late = began is not None and connection.reading and began < limit
            if late or (connection is ahead and self._ahead_since < now - FRAME_SECONDS):
                log.warning("connection closed", peer=str(connection.peer), reason="its request does not arrive")
                self.traffic.dropped += 1
                connection.abort()
            elif connection.active >= limit:
                continue
            elif connection.stalled:
                log.warning("connection closed", peer=str(connection.peer), reason="the peer does not read")
                connection.abort()
            elif not connection.busy:
                log.info("connection closed", peer=str(connection.peer), reason="idle")
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
        for listener in self._listeners:
            listener.close()
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
