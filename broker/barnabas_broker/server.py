"""Connections: bytes in, frames to the dispatcher, answers out in the order of their requests.

A connection may pipeline. Each request is handed to the dispatcher when its turn comes; an answer that is not ready yet
keeps its place, and what comes after it waits. Answers that are ready leave together in one ``writelines``.

A peer that does not read is not read from: while the transport's write buffer is over its mark, or
:data:`MAX_IN_FLIGHT` requests wait for their answers, no further request is started and, once the frames at hand are
all waiting, the socket is not read. Nothing is kept for a frame over ``socket.request.max.bytes``.

A request that cannot be answered in its protocol closes its connection and no other; one log line says who and why.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

import structlog

from barnabas_broker.config import Config
from barnabas_broker.config_keys import CONNECTIONS_MAX_IDLE_MS, MAX_CONNECTIONS, SOCKET_REQUEST_MAX_BYTES
from barnabas_broker.metrics import Traffic
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.framing import Framer
from barnabas_protocol.wire import Buffer

log = structlog.get_logger("broker.server")

#: Requests of one connection that may wait for their answers.
MAX_IN_FLIGHT: Final = 512
#: Answers are handed to the transport when they exceed this many bytes, so that a slow reader is noticed between two.
FLUSH_BYTES: Final = 256 * 1024
#: The transport's mark above which a peer counts as a slow reader, in bytes.
WRITE_MARK: Final = 1024 * 1024

Answer = list[Buffer]


class CloseConnection(Exception):
    """This request cannot be answered in the protocol; the text is the reason that is logged."""


class Dispatcher(Protocol):
    """What answers requests: at once, later, or (acks=0) never."""

    def __call__(self, peer: "Peer", frame: Buffer) -> "Answer | asyncio.Future[Answer] | None":
        """Answer one request frame.

        Raises:
            CloseConnection: the request has no answer in its protocol.
            DecodeError: the frame is no request.
        """


class Peer:
    """Who is at the other end of a connection, as handlers see it."""

    __slots__ = ("host", "port", "software")

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.software = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class _Slot:
    """The place of an answer that is not ready."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: Answer | None = None


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(self, server: "Server") -> None:
        self.server = server
        self.peer = Peer("?", 0)
        self.active = 0.0
        self._framer = Framer(server.max_request_bytes)
        self._transport: asyncio.Transport | None = None
        self._backlog: deque[Buffer] = deque()
        self._slots: deque[_Slot] = deque()
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._writable = True
        self._reading = True
        self._working = False
        self._ending = False

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, only of their kind.
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.peer = Peer(str(name[0]), int(name[1]))
        self._transport.set_write_buffer_limits(high=WRITE_MARK)
        self.active = self.server.now()
        if not self.server.admit(self):
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._backlog.clear()
        self._slots.clear()
        self._out.clear()
        self.server.forget(self)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._work()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framer.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.active = self.server.now()
        self.server.traffic.bytes_in += nbytes
        try:
            self._backlog.extend(self._framer.received(nbytes))
        except DecodeError as error:
            self._refuse(str(error))
            return
        self._work()

    def eof_received(self) -> bool:
        return False

    # Requests in, answers out

    @property
    def busy(self) -> bool:
        """Whether a request waits for its answer or an answer for the peer to read it."""
        return bool(self._slots or self._backlog or not self._writable)

    def _work(self) -> None:
        """Start the requests at hand as far as the peer keeps up, then send what is ready."""
        if self._working or self._transport is None:
            return  # an answer that became ready while a request was being started: the loop below sees it
        self._working = True
        try:
            backlog, slots = self._backlog, self._slots
            while backlog and self._writable and len(slots) < MAX_IN_FLIGHT and not self._ending:
                self._start(backlog.popleft())
                if self._out_bytes > FLUSH_BYTES:
                    self._flush()
            self._flush()
        except (CloseConnection, DecodeError) as error:
            self._flush()
            self._refuse(str(error))
            return
        finally:
            self._working = False
        if self._ending:
            self._end_if_answered()
        elif self._transport is not None and (not backlog) is not self._reading:
            self._reading = not self._reading
            if self._reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _start(self, frame: Buffer) -> None:
        answer = self.server.dispatch(self.peer, frame)
        if answer is None:
            return
        if isinstance(answer, list):
            if self._slots:
                slot = _Slot()
                slot.answer = answer
                self._slots.append(slot)
            else:
                self._put(answer)
            return
        slot = _Slot()
        self._slots.append(slot)
        answer.add_done_callback(lambda done: self._ready(slot, done))

    def _ready(self, slot: _Slot, done: "asyncio.Future[Answer]") -> None:
        if done.cancelled():
            self._refuse("the broker is going down")
            return
        error = done.exception()
        if error is not None:
            self._refuse(str(error) or type(error).__name__)
            return
        slot.answer = done.result()
        if self._slots and self._slots[0] is slot:
            while self._slots and self._slots[0].answer is not None:
                self._put(self._slots.popleft().answer or [])
            self._work()

    def _put(self, answer: Answer) -> None:
        self._out.extend(answer)
        self._out_bytes += sum(map(len, answer))

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            self.server.traffic.bytes_out += self._out_bytes
            out, self._out, self._out_bytes = self._out, [], 0
            if len(out) == 1:
                self._transport.write(out[0])
            else:
                self._transport.writelines(out)

    def _refuse(self, reason: str) -> None:
        if self._transport is not None and not self._transport.is_closing():
            log.warning("connection closed", peer=str(self.peer), reason=reason)
            self.server.traffic.dropped += 1
            self._backlog.clear()
            self._transport.close()

    # What the server calls

    def end(self) -> None:
        """Read nothing more; close once what was asked is answered."""
        self._ending = True
        self._backlog.clear()
        if self._transport is not None and self._reading:
            self._reading = False
            self._transport.pause_reading()
        self._end_if_answered()

    def _end_if_answered(self) -> None:
        if not self._slots:
            self.close()

    def close(self) -> None:
        """Close after what is written has left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()


class Server:
    """Accepts connections.

    Args:
        config: the limits.
        dispatch: answers requests.
        now: a monotonic clock, in seconds.

    Attributes:
        traffic: what all connections together did.
    """

    def __init__(self, config: Config, dispatch: Dispatcher, now: Callable[[], float]) -> None:
        self.dispatch = dispatch
        self.now = now
        self.traffic = Traffic()
        self.max_request_bytes = config[SOCKET_REQUEST_MAX_BYTES]
        self._max_connections = config[MAX_CONNECTIONS]
        self._max_idle = config[CONNECTIONS_MAX_IDLE_MS] / 1000
        self._connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event = asyncio.Event()

    async def listen(self, listener: socket.socket) -> None:
        """Start to accept connections on a bound socket."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self), sock=listener, backlog=1024)
        if self._max_idle > 0:
            self._sweep_again()

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    def admit(self, connection: Connection) -> bool:
        """Count a new connection in, unless there are too many."""
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
        """Count a connection out."""
        self._connections.discard(connection)
        if not self._connections:
            self._emptied.set()

    def sweep(self) -> None:
        """Close the connections that are idle."""
        limit = self.now() - self._max_idle
        for connection in [c for c in self._connections if c.active < limit and not c.busy]:
            log.info("connection closed", peer=str(connection.peer), reason="idle")
            connection.close()

    def _sweep_again(self) -> None:
        self.sweep()
        wait = min(max(self._max_idle / 4, 0.05), 30.0)
        self._sweeper = asyncio.get_running_loop().call_later(wait, self._sweep_again)

    async def stop(self, grace: float) -> None:
        """Accept nothing more, answer what was asked, close.

        Args:
            grace: seconds to wait for answers and for peers to read them.
        """
        if self._listener is not None:
            self._listener.close()
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
