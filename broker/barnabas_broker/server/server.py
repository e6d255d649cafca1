"""Connections: bytes in, frames to the dispatcher, answers out in the order of their requests.

A connection may pipeline. Each request is handed to the dispatcher when its turn comes; an answer that is not ready yet
keeps its place, and what comes after it waits. Answers that are ready leave together in one ``writelines``.

A peer that does not read is not read from: while the transport's write buffer is over its mark, or
:data:`MAX_IN_FLIGHT` requests wait for their answers, no further request is started and, once the frames at hand are
all waiting, the socket is not read. Nothing is kept for a frame over ``socket.request.max.bytes``. What an
answer leaves in a file is read piece by piece, as the peer takes it.

A request that cannot be answered in its protocol closes its connection and no other; one log line says who and why.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast

from barnabas_broker.config.config import Config
from barnabas_broker.config.keys import CONNECTIONS_MAX_IDLE_MS, MAX_CONNECTIONS, SOCKET_REQUEST_MAX_BYTES
from barnabas_broker.config.listeners import PLAINTEXT
from barnabas_broker.logs import logger
from barnabas_broker.metrics import Traffic
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.framing import Framer
from barnabas_protocol.hot import Unread
from barnabas_protocol.wire import Buffer

if TYPE_CHECKING:
    from barnabas_broker.handlers.context import RequestContext

log = logger("server")

#: Requests of one connection that may wait for their answers.
MAX_IN_FLIGHT: Final = 512
#: Answers are handed to the transport when they exceed this many bytes, so that a slow reader is noticed between two.
FLUSH_BYTES: Final = 256 * 1024
#: The transport's mark above which a peer counts as a slow reader, in bytes.
WRITE_MARK: Final = 1024 * 1024
#: Connections that may wait to be accepted.
BACKLOG: Final = 1024

#: What is read from a file at a time: little enough to be in the processor's cache still when it is sent.
PIECE: Final = 256 * 1024
#: What a connection may send before it is the turn of others.
TURN: Final = 4 * 1024 * 1024
_IN_MEMORY: Final = (bytes, bytearray, memoryview)
#: More follows: the kernel need not send a packet for this alone (Linux).
_MORE: Final = getattr(socket, "MSG_MORE", 0)

Answer = Sequence[Buffer | Unread]


class CloseConnection(Exception):
    """This request cannot be answered in the protocol; the text is the reason that is logged."""


class Later:
    """An answer that is not ready. Whoever owes it calls :meth:`give` or :meth:`refuse`, once, and not before the
    dispatcher has returned.

    Attributes:
        answer: the answer, once it is there.
        reason: why the connection must be closed instead.
        settled: is told when one of them is there.
    """

    __slots__ = ("answer", "reason", "settled")

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.reason = ""
        self.settled: Callable[[Later], None] = _nobody

    def give(self, answer: Answer) -> None:
        """The answer is ready."""
        self.answer = answer
        self.settled(self)

    def refuse(self, reason: str) -> None:
        """There is no answer in the protocol."""
        self.reason = reason
        self.settled(self)


def _nobody(later: Later) -> None:
    """Nobody waits."""


class Dispatcher(Protocol):
    """What answers requests: at once, later, or (acks=0) never."""

    def __call__(self, peer: "Peer", frame: Buffer) -> Answer | Later | None:
        """Answer one request frame.

        Raises:
            CloseConnection: the request has no answer in its protocol.
            DecodeError: the frame is no request.
        """


class Peer:
    """Who is at the other end of a connection, as handlers see it.

    Attributes:
        host: its address.
        port: its port.
        software: what it says it is, "" as long as it has not.
        listener: the name of the listener that it came in by.
        context: of the last request; a connection's requests are much alike, so most share one.
    """

    __slots__ = ("context", "host", "listener", "port", "software")

    def __init__(self, host: str, port: int, listener: str = PLAINTEXT) -> None:
        self.host = host
        self.port = port
        self.listener = listener
        self.software = ""
        self.context: RequestContext | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(self, server: "Server", listener: str = PLAINTEXT) -> None:
        self.server = server
        self.peer = Peer("?", 0, listener)
        self.active = 0.0
        self._traffic = server.traffic
        self._framer = Framer(server.max_request_bytes)
        self._transport: asyncio.Transport | None = None
        self._backlog: deque[Buffer] = deque()
        #: The answers that are owed, in the order of their requests; the first one is not ready.
        self._owed: deque[Later] = deque()
        #: The rest of a large answer and what comes after it, while the peer has not taken what came before.
        self._unsent: deque[Buffer | Unread] = deque()
        #: Past the transport, for what is in files; made when there is some.
        self._socket: socket.socket | None = None
        self._writable = True
        self._reading = True
        self._working = False
        self._ending = False
        self._closing = False

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, only of their kind.
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.peer = Peer(str(name[0]), int(name[1]), self.peer.listener)
        self._transport.set_write_buffer_limits(high=WRITE_MARK)
        self.active = self.server.now()
        if not self.server.admit(self):
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.peer.context = None
        self._backlog.clear()
        self._owed.clear()
        self._unsent.clear()
        if self._socket is not None:
            asyncio.get_running_loop().remove_writer(self._socket.fileno())
            self._socket.close()
        self.server.forget(self)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.active = self.server.now()
        self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framer.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.active = self.server.now()
        self._traffic.bytes_in += nbytes
        try:
            self._backlog.extend(self._framer.received(nbytes))
        except DecodeError as error:
            self._refuse(str(error))
            return
        self._work()

    def eof_received(self) -> bool:
        self.close()
        return True

    # Requests in, answers out

    @property
    def busy(self) -> bool:
        """Whether a request waits for its answer or an answer for the peer to read it."""
        return bool(self._owed or self._backlog or self._unsent or not self._writable)

    @property
    def stalled(self) -> bool:
        """Whether the peer has to read before it is sent more."""
        return not self._writable

    def _work(self) -> None:
        """Start the requests at hand as far as the peer keeps up, and send what is ready, in the order of requests."""
        transport = self._transport
        if self._working or transport is None:
            return
        self._working = True
        backlog, owed, dispatch, peer = self._backlog, self._owed, self.server.dispatch, self.peer
        out: list[Buffer | Unread] = []
        size = 0
        try:
            while True:
                answer = owed[0].answer if owed else None
                if answer is not None:
                    owed.popleft()
                elif backlog and self._writable and len(owed) < MAX_IN_FLIGHT and not (self._unsent or self._ending):
                    started = dispatch(peer, backlog.popleft())
                    if started is None:
                        continue
                    if isinstance(started, Later):
                        started.settled = self._settled
                        owed.append(started)
                        continue
                    if owed:
                        owed.append(Later(started))
                        continue
                    answer = started
                else:
                    break
                out += answer
                for part in answer:
                    size += len(part)
                if size > FLUSH_BYTES:
                    self._send(transport, out, size)
                    out, size = [], 0
            if out:
                self._send(transport, out, size)
        except (CloseConnection, DecodeError) as error:
            self._send(transport, out, size)
            self._refuse(str(error))
            return
        except Exception as error:
            # A peer that waits for ever for what nobody will send would be worse.
            log.exception("connection failed", peer=str(peer))
            self._drop(transport, repr(error))
            return
        finally:
            self._working = False
        if self._ending:
            self._end_if_answered()
        elif (not backlog) is not self._reading:
            self._reading = not self._reading
            if self._reading:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _settled(self, later: Later) -> None:
        if later.answer is None:
            self._refuse(later.reason)
        elif self._owed and self._owed[0] is later:
            self._work()

    def _send(self, transport: asyncio.Transport, out: Sequence[Buffer | Unread], size: int) -> None:
        self._traffic.bytes_out += size
        if self._unsent or not all(isinstance(part, _IN_MEMORY) for part in out):
            self._unsent += out
            self._pump(transport)
        elif len(out) == 1:
            transport.write(cast(Buffer, out[0]))
        elif out:
            transport.writelines(cast(Sequence[Buffer], out))

    def _go_on(self) -> None:
        if self._transport is not None:
            self._pump(self._transport)
            self._work()

    def _pump(self, transport: asyncio.Transport) -> None:
        """Send what is unsent for as long as the peer keeps up and no other connection has to wait for long."""
        unsent, left = self._unsent, TURN
        try:
            while unsent and self._writable and not transport.is_closing():
                if left <= 0:
                    asyncio.get_running_loop().call_soon(self._go_on)
                    return
                left -= self._push(transport) if self._is_direct(transport) else self._pass_on(transport)
        except ConnectionError:
            transport.abort()
        except OSError as error:
            # The frame's length has been told: nothing else can be said on this connection any more.
            self._drop(transport, f"an answer cannot be completed: {error}")
        if self._closing and not unsent:
            transport.close()

    def _is_direct(self, transport: asyncio.Transport) -> bool:
        """Whether a file may go straight into the socket: it is one, and the transport has nothing to send before."""
        if self._socket is None:
            given = transport.get_extra_info("socket")
            if given is None or transport.get_extra_info("sslcontext") is not None:
                return False
            # A descriptor of our own, because the loop watches the transport's for the transport alone.
            try:
                self._socket = socket.socket(fileno=os.dup(given.fileno()))
            except OSError:
                return False  # too many are open: the transport does it too
        return not transport.get_write_buffer_size()

    def _push(self, transport: asyncio.Transport) -> int:
        """Write the first unsent part past the transport; how many bytes of it."""
        assert self._socket is not None
        unsent = self._unsent
        part = unsent[0]
        try:
            if isinstance(part, _IN_MEMORY):
                sent = self._socket.send(part, _MORE if len(unsent) > 1 else 0)
                unsent[0] = memoryview(part)[sent:]
            else:
                sent = part.send(self._socket.fileno(), TURN)
        except BlockingIOError:
            self._writable = False
            asyncio.get_running_loop().add_writer(self._socket.fileno(), self._drained)
            return 0
        if not len(unsent[0]):
            unsent.popleft()
        return sent

    def _drained(self) -> None:
        assert self._socket is not None
        asyncio.get_running_loop().remove_writer(self._socket.fileno())
        self.resume_writing()

    def _pass_on(self, transport: asyncio.Transport) -> int:
        """Give the transport what is in memory, and a piece of what is not; how many bytes of it."""
        out: list[Buffer] = []
        size, unsent = 0, self._unsent
        while unsent:
            part = unsent[0]
            if isinstance(part, _IN_MEMORY):
                unsent.popleft()
            elif size < PIECE:
                piece = part.read(PIECE - size)
                if not len(part):
                    unsent.popleft()
                part = piece
            else:
                break
            out.append(part)
            size += len(part)
        transport.writelines(out)
        return size

    def _refuse(self, reason: str) -> None:
        if self._transport is not None and not self._closing:
            log.warning("connection closed", peer=str(self.peer), reason=reason)
            self._traffic.dropped += 1
            self.close()

    def _drop(self, transport: asyncio.Transport, reason: str) -> None:
        log.error("connection closed", peer=str(self.peer), reason=reason)
        self._traffic.dropped += 1
        self._closing = self._ending = True
        self._backlog.clear()
        self._unsent.clear()
        transport.abort()

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
        if not self._owed:
            self.close()

    def close(self) -> None:
        """Close after what is written has left."""
        self._closing = self._ending = True
        self._backlog.clear()
        if self._transport is None:
            return
        if not self._unsent:
            self._transport.close()
        elif self._reading:
            self._reading = False
            self._transport.pause_reading()

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
        """Close the connections that are idle, and those whose peers read nothing: answers hold memory and files."""
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
        """Accept nothing more, answer what was asked, close.

        Args:
            grace: seconds to wait for answers and for peers to read them.
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
