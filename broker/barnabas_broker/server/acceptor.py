"""Accepts connections on a bound socket, within their limits (:mod:`barnabas_broker.quotas.connections`).

The socket is not read while a connection waits because too many were created. If there is no place for another
connection, one that is not in use is closed for it, if there is one (:class:`Evictable`).
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

from barnabas_broker.log_throttle import Folded
from barnabas_broker.logs import logger
from barnabas_broker.metrics import Traffic
from barnabas_broker.quotas.connections import ALL, ConnectionQuotas, RefusedSocket

log = logger("server")

#: Connections that are accepted before others get their turn.
ACCEPTS: Final = 64
#: Seconds until connections are accepted again after descriptors or memory were used up.
PAUSE_SECONDS: Final = 1.0
#: Refused connections that may wait until they are closed; others are closed at once.
MOST_DELAYED: Final = 100
_NOTHING_LEFT: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class ConnectionSlot:
    """The place of a connection in the counts, until :meth:`leave`; called again, that does nothing.

    Attributes:
        listener: the listener that has accepted the connection.
        address: of the client.
    """

    __slots__ = ("_evictable", "_quotas", "address", "listener")

    def __init__(self, quotas: ConnectionQuotas, listener: str, address: str, evictable: "Evictable") -> None:
        self._quotas: ConnectionQuotas | None = quotas
        self._evictable = evictable
        self.listener = listener
        self.address = address

    def leave(self) -> None:
        """The connection is closed."""
        self._evictable.keep(self)
        quotas, self._quotas = self._quotas, None
        if quotas is not None:
            quotas.close(self.listener, self.address)

    def offer(self, close: Callable[[], None]) -> None:
        """Until :meth:`keep`, the connection may be closed by `close` when there is no place for another one."""
        if self._quotas is not None:
            self._evictable.offer(self, close)

    def keep(self) -> None:
        """The connection is needed."""
        self._evictable.keep(self)


class Evictable:
    """Connections that are closed when there is no place for another one, the oldest first.

    Those whose clients have not proved yet who they are, for instance: they must not keep out those that can. A client
    that is honest and quick has logged in long before its turn comes.
    """

    def __init__(self) -> None:
        self._closing: dict[ConnectionSlot, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._closing)

    def offer(self, place: ConnectionSlot, close: Callable[[], None]) -> None:
        """From now on it is the newest one."""
        self._closing.pop(place, None)
        self._closing[place] = close

    def keep(self, place: ConnectionSlot) -> None:
        """It must not be closed any more."""
        self._closing.pop(place, None)

    def evict(self, listener: str) -> ConnectionSlot | None:
        """Close the oldest one of a listener, or of :data:`~barnabas_broker.quotas.connections.ALL`.

        Returns:
            Its place, which it has left; None if there is none.
        """
        for place, close in self._closing.items():
            if listener in (ALL, place.listener):
                place.leave()
                close()
                return place
        return None


class RefusedConnections:
    """Counts refused connections, and logs them.

    Args:
        traffic: the counters of all connections.
        now: a monotonic clock, in seconds.
    """

    def __init__(self, traffic: Traffic, now: Callable[[], float]) -> None:
        self._traffic = traffic
        self._lines = Folded(log.warning, "connection refused", "connections refused", now)
        self._waits = Folded(log.warning, "connections wait", "connections waited", now)

    def add(self, host: str, port: int, reason: str) -> None:
        """Count a connection that was refused, and log it."""
        self._traffic.accepted += 1
        self._traffic.refused += 1
        self._lines.add(host, f"{host}:{port}", reason=reason)

    def evicted(self, place: ConnectionSlot, reason: str) -> None:
        """Count a connection that was closed for another one, and log it."""
        self._traffic.evicted += 1
        self._lines.add(place.address, reason=f"{reason}: it was not in use, and another one needed its place")

    def wait(self, error: OSError) -> None:
        """Log that connections wait, because the system has no descriptors or memory left."""
        self._waits.add("", reason=str(error))

    def tick(self) -> None:
        """Log what was repeated. To be called every few seconds."""
        self._lines.tick()
        self._waits.tick()


class Acceptor:
    """Accepts connections.

    Args:
        listener: the socket, bound.
        name: of the listener.
        quotas: the limits.
        refused: logs what is over them.
        evictable: connections that are closed when there is no place for another one.
        now: a monotonic clock, in seconds.
        begin: gets each connection that is accepted, the name of its peer and its place.
        backlog: connections that may wait to be accepted.
    """

    def __init__(
        self,
        listener: socket.socket,
        name: str,
        quotas: ConnectionQuotas,
        refused: RefusedConnections,
        evictable: Evictable,
        now: Callable[[], float],
        begin: Callable[[socket.socket, str, ConnectionSlot], None],
        backlog: int,
    ) -> None:
        self._listener = listener
        self._name = name
        self._quotas = quotas
        self._refused = refused
        self._evictable = evictable
        self._now = now
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        #: A connection that waits until others may be created, and those that wait until they are closed.
        self._next: tuple[socket.socket, str, ConnectionSlot] | None = None
        self._closing: dict[socket.socket, asyncio.TimerHandle] = {}
        listener.setblocking(False)
        listener.listen(backlog)
        self._resume()

    def close(self) -> None:
        """Accept nothing more, and close what waits. May be called twice."""
        if self._listener.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        if self._next is not None:
            accepted, _, place = self._next
            self._next = None
            accepted.close()
            place.leave()
        for timer in self._closing.values():
            timer.cancel()
        for each in self._closing:
            each.close()
        self._closing.clear()

    def _wait(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._pause = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._pause = None
        if self._next is not None:
            following, self._next = self._next, None
            self._begin(*following)
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NOTHING_LEFT:
                    raise
                self._refused.wait(error)
                self._wait(PAUSE_SECONDS)
                return
            accepted.setblocking(False)
            host, port = address[0], address[1]
            decision = self._quotas.open(self._name, host, self._now())
            if isinstance(decision, RefusedSocket) and decision.full is not None:
                evicted = self._evictable.evict(decision.full)
                if evicted is not None:
                    self._refused.evicted(evicted, decision.reason)
                    decision = self._quotas.open(self._name, host, self._now())
            if isinstance(decision, RefusedSocket):
                self._refused.add(host, port, decision.reason)
                self._close_later(accepted, decision.wait)
                continue
            place = ConnectionSlot(self._quotas, self._name, host, self._evictable)
            if decision.wait > 0:
                self._next = accepted, f"{host}:{port}", place
                self._wait(decision.wait)
                return
            self._begin(accepted, f"{host}:{port}", place)

    def _close_later(self, accepted: socket.socket, wait: float) -> None:
        if wait <= 0 or len(self._closing) >= MOST_DELAYED:
            accepted.close()
            return

        def close() -> None:
            del self._closing[accepted]
            accepted.close()

        self._closing[accepted] = self._loop.call_later(wait, close)
