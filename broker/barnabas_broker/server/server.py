"""Listeners and the connections that they accept: limits, idle connections, drain."""

import asyncio
import socket
from collections.abc import Callable, Container
from typing import Final

from barnabas_broker.config import PLAINTEXT, Config
from barnabas_broker.config.keys import CONNECTIONS_MAX_IDLE_MS, MAX_CONNECTIONS, SOCKET_REQUEST_MAX_BYTES
from barnabas_broker.logs import logger
from barnabas_broker.metrics import Traffic
from barnabas_broker.server.connection import Connection, Dispatcher, Peer

log = logger("server")

#: Connections that may wait to be accepted.
BACKLOG: Final = 1024


class SocketServer:
    """Accepts connections on the broker's listeners.

    Args:
        config: the limits.
        dispatch: answers requests.
        now: a monotonic clock, in seconds.

    Attributes:
        dispatch: answers requests.
        now: the clock.
        traffic: the counters of all connections.
        max_request_bytes: bytes of a request frame at most.
    """

    def __init__(self, config: Config, dispatch: Dispatcher, now: Callable[[], float]) -> None:
        self.dispatch = dispatch
        self.now = now
        self.traffic = Traffic()
        self.max_request_bytes = config[SOCKET_REQUEST_MAX_BYTES]
        self._max_connections = config[MAX_CONNECTIONS]
        self._max_idle = config[CONNECTIONS_MAX_IDLE_MS] / 1000
        self._connections: set[Connection] = set()
        self._listeners: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event = asyncio.Event()

    async def listen(self, listener: socket.socket, name: str = PLAINTEXT) -> None:
        """Start to accept connections on a bound socket, the listener `name`; there may be several."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self, name), sock=listener, backlog=BACKLOG)
        self._listeners.append(server)
        if self._max_idle > 0 and self._sweeper is None:
            self._sweep_again()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

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
            self.traffic.refused += 1
            log.warning(
                "connection refused", peer=str(connection.peer), reason=f"max.connections={self._max_connections}"
            )
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        """Unregister a connection that is lost."""
        self._connections.discard(connection)
        if not self._connections:
            self._emptied.set()

    def sweep(self) -> None:
        """Close idle connections, and those whose peer reads nothing: their responses keep memory and files."""
        limit = self.now() - self._max_idle
        for connection in [c for c in self._connections if c.active < limit]:
            if connection.stalled:
                log.warning("connection closed", peer=str(connection.peer), reason="the peer does not read")
                connection.abort()
            elif not connection.busy:
                log.info("connection closed", peer=str(connection.peer), reason="idle")
                connection.close()

    def _sweep_again(self) -> None:
        self.sweep()
        wait = min(max(self._max_idle / 4, 0.05), 30.0)
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
