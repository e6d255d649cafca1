"""One client's connection: bytes in, frames to the dispatcher, responses out in the order of their requests.

A connection may pipeline. Each request is handed to the dispatcher when its turn comes. A response that is not ready
yet keeps its place in the queue, and the responses after it wait. Responses that are ready leave in one ``writelines``.

Backpressure: no further request is started while the transport's write buffer is over its mark or while
:data:`MAX_IN_FLIGHT` requests wait for their responses; the socket is not read while requests at hand are not started.
A frame over ``socket.request.max.bytes`` is refused before it is buffered. The parts of a response that are in files
are read piece by piece, as the peer reads them.

A request that has no response in its protocol closes its own connection; one log line names the peer and the reason.

The types that a dispatcher needs are here as well: :class:`Peer`, :class:`DeferredResponse`, :class:`CloseConnection`.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

from barnabas_broker.config import PLAINTEXT
from barnabas_broker.logs import logger
from barnabas_broker.metrics import Traffic
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.framing import Framer
from barnabas_protocol.hot import Unread
from barnabas_protocol.wire import Buffer

log = logger("server")

#: Requests of one connection that may wait for their responses.
MAX_IN_FLIGHT: Final = 512
#: Responses are handed to the transport when they exceed this many bytes, so that a slow reader is noticed between two.
FLUSH_BYTES: Final = 256 * 1024
#: The transport's mark above which a peer counts as a slow reader, in bytes.
WRITE_MARK: Final = 1024 * 1024
#: Bytes that are read from a file at a time: few enough to be in the processor's cache when they are sent.
PIECE: Final = 256 * 1024
#: Bytes that a connection may send before other connections get their turn.
TURN: Final = 4 * 1024 * 1024
_IN_MEMORY: Final = (bytes, bytearray, memoryview)
#: More follows: the kernel need not send a packet for this alone (Linux).
_MORE: Final = getattr(socket, "MSG_MORE", 0)

Answer = Sequence[Buffer | Unread]


class CloseConnection(Exception):
    """This request cannot be answered in the protocol; the text is the reason that is logged."""


class DeferredResponse:
    """A response that is sent later, in its place in the connection's queue.

    The dispatcher that returned it calls :meth:`give` or :meth:`refuse` once, after it has returned.

    Attributes:
        answer: the encoded response, once it is ready.
        reason: why the connection must be closed instead.
        settled: called when the response is given or refused. The connection sets it.
    """

    __slots__ = ("answer", "reason", "settled")

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.reason = ""
        self.settled: Callable[[DeferredResponse], None] = _ignore

    def give(self, answer: Answer) -> None:
        """Send `answer` as the response."""
        self.answer = answer
        self.settled(self)

    def refuse(self, reason: str) -> None:
        """Close the connection: the request has no response in its protocol."""
        self.reason = reason
        self.settled(self)


def _ignore(deferred: DeferredResponse) -> None:
    """Do nothing: the connection has not queued the response."""


class Peer:
    """The client at the other end of a connection, as handlers see it.

    Attributes:
        host: its address.
        port: its port.
        software: the name and version that it sent in ApiVersions (KIP-511); "" before that.
        listener: the name of the listener that accepted the connection.
        cached: a slot that belongs to the dispatcher; the connection empties it when it is lost.
    """

    __slots__ = ("cached", "host", "listener", "port", "software")

    def __init__(self, host: str, port: int, listener: str = PLAINTEXT) -> None:
        self.host = host
        self.port = port
        self.listener = listener
        self.software = ""
        self.cached: Any = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Dispatcher(Protocol):
    """Answers requests: at once, later, or (Produce with acks=0) never."""

    def __call__(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
        """Answer one request frame.

        Raises:
            CloseConnection: the request has no response in its protocol.
            DecodeError: the frame is not a request.
        """


class ConnectionOwner(Protocol):
    """What a connection needs of the server that accepted it.

    Attributes:
        dispatch: answers requests.
        now: a monotonic clock, in seconds.
        traffic: the counters of all connections.
        max_request_bytes: bytes of a request frame at most.
    """

    dispatch: Dispatcher
    now: Callable[[], float]
    traffic: Traffic
    max_request_bytes: int

    def admit(self, connection: "Connection") -> bool:
        """Register a new connection; False if there are too many."""

    def forget(self, connection: "Connection") -> None:
        """Unregister a connection that is lost."""


class Connection(asyncio.BufferedProtocol):
    """One client's connection.

    Args:
        server: accepted it.
        listener: the name of the listener.

    Attributes:
        peer: the client.
        active: when the client last sent or read bytes, on the server's clock.
    """

    def __init__(self, server: ConnectionOwner, listener: str = PLAINTEXT) -> None:
        self.server = server
        self.peer = Peer("?", 0, listener)
        self.active = 0.0
        self._traffic = server.traffic
        self._framer = Framer(server.max_request_bytes)
        self._transport: asyncio.Transport | None = None
        self._backlog: deque[Buffer] = deque()
        #: Responses that are not sent, in the order of their requests; the first one is not ready.
        self._pending: deque[DeferredResponse] = deque()
        #: The rest of a large response and what follows it, while the peer has not read what was sent before.
        self._unsent: deque[Buffer | Unread] = deque()
        #: A second descriptor of the socket, to send from files past the transport; opened when first needed.
        self._socket: socket.socket | None = None
        self._writable = True
        self._reading = True
        self._working = False
        self._ending = False
        self._closing = False

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's, they only have the same methods.
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
        self.peer.cached = None
        self._backlog.clear()
        self._pending.clear()
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

    # Requests in, responses out

    @property
    def busy(self) -> bool:
        """Whether a request waits for its response, or a response for the peer to read it."""
        return bool(self._pending or self._backlog or self._unsent or not self._writable)

    @property
    def stalled(self) -> bool:
        """Whether the peer has to read before it is sent more."""
        return not self._writable

    def _work(self) -> None:
        """Start the requests at hand while the peer keeps up, and send the responses that are ready, in order."""
        transport = self._transport
        if self._working or transport is None:
            return
        self._working = True
        backlog, pending, dispatch, peer = self._backlog, self._pending, self.server.dispatch, self.peer
        out: list[Buffer | Unread] = []
        size = 0
        try:
            while True:
                answer = pending[0].answer if pending else None
                if answer is not None:
                    pending.popleft()
                elif backlog and self._writable and len(pending) < MAX_IN_FLIGHT and not (self._unsent or self._ending):
                    started = dispatch(peer, backlog.popleft())
                    if started is None:
                        continue
                    if isinstance(started, DeferredResponse):
                        started.settled = self._settled
                        pending.append(started)
                        continue
                    if pending:
                        pending.append(DeferredResponse(started))
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
            # Without this the peer would wait for ever for a response that never comes.
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

    def _settled(self, deferred: DeferredResponse) -> None:
        if deferred.answer is None:
            self._refuse(deferred.reason)
        elif self._pending and self._pending[0] is deferred:
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
                direct = self._direct_socket(transport)
                left -= self._pass_on(transport) if direct is None else self._push(direct)
        except ConnectionError:
            transport.abort()
        except OSError as error:
            # The frame's length has been sent, so the connection can carry nothing else.
            self._drop(transport, f"a response cannot be completed: {error}")
        if self._closing and not unsent:
            transport.close()

    def _direct_socket(self, transport: asyncio.Transport) -> socket.socket | None:
        """The socket, if a file may be sent straight into it: no TLS, and the transport's buffer is empty."""
        if self._socket is None:
            given = transport.get_extra_info("socket")
            if given is None or transport.get_extra_info("sslcontext") is not None:
                return None
            # A descriptor of our own: the loop watches the transport's for the transport alone.
            try:
                self._socket = socket.socket(fileno=os.dup(given.fileno()))
            except OSError:
                return None  # too many are open; the transport sends it instead
        return None if transport.get_write_buffer_size() else self._socket

    def _push(self, direct: socket.socket) -> int:
        """Write the first unsent part past the transport; how many bytes of it."""
        unsent = self._unsent
        part = unsent[0]
        try:
            if isinstance(part, _IN_MEMORY):
                sent = direct.send(part, _MORE if len(unsent) > 1 else 0)
                unsent[0] = memoryview(part)[sent:]
            else:
                sent = part.send(direct.fileno(), TURN)
        except BlockingIOError:
            self._writable = False
            asyncio.get_running_loop().add_writer(direct.fileno(), self._drained, direct)
            return 0
        if not len(unsent[0]):
            unsent.popleft()
        return sent

    def _drained(self, direct: socket.socket) -> None:
        asyncio.get_running_loop().remove_writer(direct.fileno())
        self.resume_writing()

    def _pass_on(self, transport: asyncio.Transport) -> int:
        """Give the transport the parts in memory and a piece of the next file; how many bytes."""
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
        """Read nothing more; close when the requests that were started are answered."""
        self._ending = True
        self._backlog.clear()
        if self._transport is not None and self._reading:
            self._reading = False
            self._transport.pause_reading()
        self._end_if_answered()

    def _end_if_answered(self) -> None:
        if not self._pending:
            self.close()

    def close(self) -> None:
        """Close when the bytes that are written have left."""
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
