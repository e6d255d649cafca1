"""One client's connection: bytes in, frames to the dispatcher, responses out in the order of their requests.

A connection may pipeline. Each request is handed to the dispatcher when its turn comes. A response that is not ready
yet keeps its place in the queue, and the responses after it wait. Responses that are ready leave in one ``writelines``.

The time of the event loop is shared: once the budget of its turn is over, requests that have arrived and large
responses wait for a later turn, in which the connection that has used least comes first
(:mod:`barnabas_broker.slicer`).

Backpressure: no further request is started while the transport's write buffer is over its mark, while
:data:`MAX_IN_FLIGHT` requests wait for their responses, or while responses of many bytes wait for an earlier one; the
socket is not read while requests at hand are not started, nor while there is no room for a large request: the bytes of
all connections have a :class:`~barnabas_broker.server.memory_pool.Budget`, and so have the responses. Nor is it read,
or a request started, while the client has to wait because of a quota (:meth:`Peer.mute`).
A frame over ``socket.request.max.bytes`` is refused before it is buffered. The parts of a response that are in files
are read piece by piece, as the peer reads them.

A request that has no response in its protocol closes its own connection; one log line names the peer and the reason.
What the broker does not serve is logged once for each client (:mod:`barnabas_broker.server.refusals`).

The types that a dispatcher needs are here as well: :class:`Peer`, :class:`DeferredResponse`, :class:`CloseConnection`.
"""

import asyncio
import itertools
import os
import socket
import ssl
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, cast

from barnabas_broker.config import PLAINTEXT
from barnabas_broker.log_throttle import Folded
from barnabas_broker.logs import logger
from barnabas_broker.metrics import Traffic
from barnabas_broker.security.principals import ANONYMOUS, NoRuleApplies, Principal
from barnabas_broker.server.acceptor import ConnectionSlot
from barnabas_broker.server.memory_pool import Budget
from barnabas_broker.server.refusals import HTTP, Feature, Refusals, feature_of_bytes
from barnabas_broker.slicer import Slicer
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.framing import Framer, FrameTooLarge
from barnabas_protocol.hot.fetch import Unread
from barnabas_protocol.wire import Buffer

log = logger("server")

#: Requests of one connection that may wait for their responses.
MAX_IN_FLIGHT: Final = 512
#: Responses are handed to the transport when they exceed this many bytes, so that a slow reader is noticed between two.
FLUSH_BYTES: Final = 256 * 1024
#: The transport's mark above which a peer counts as a slow reader, in bytes.
WRITE_MARK: Final = 1024 * 1024
#: Whether asyncio's ``writelines`` never pauses a protocol (CVE-2024-12254). uvloop's does.
_NEVER_PAUSES: Final = (3, 12) <= sys.version_info < (3, 12, 9) or (3, 13) <= sys.version_info < (3, 13, 2)
#: Bytes that are read from a file at a time: few enough to be in the processor's cache when they are sent.
PIECE: Final = 256 * 1024
#: The numbers of connections.
_NUMBERS: Final = itertools.count(1)
#: Bytes that the kernel copies from a file at a time: less than a slice of the event loop takes.
STRETCH: Final = 1024 * 1024
_IN_MEMORY: Final = (bytes, bytearray, memoryview)
#: More follows: the kernel need not send a packet for this alone (Linux).
_MORE: Final = getattr(socket, "MSG_MORE", 0)
_NOT_HTTP: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This port speaks Apache Kafka's protocol. Start the broker with --http-port for metrics and health.\n"
)

#: Bytes of a request that has a buffer of its own, and so counts.
LARGE: Final = 64 * 1024
#: Frames that are cut at a time of the bytes that have arrived. There may be thousands, which takes milliseconds, and
#: many connections may have some in one turn of the event loop.
CUT: Final = 100

Answer = Sequence[Buffer | Unread]


class CloseConnection(Exception):
    """This request cannot be answered in the protocol; the text is the reason that is logged."""


class NotServed(CloseConnection):
    """The request is for something that this broker does not serve.

    Args:
        reason: why it is refused.
        feature: what it asks for.
        client_id: the client that asks; None if it is unknown.
    """

    def __init__(self, reason: str, feature: Feature, client_id: str | None) -> None:
        super().__init__(reason)
        self.feature = feature
        self.client_id = client_id


class DeferredResponse:
    """A response that is sent later, in its place in the connection's queue.

    The dispatcher that returned it calls :meth:`give` or :meth:`refuse` once, after it has returned.

    Attributes:
        alone: no further request is started before this one is answered, as Kafka does with all. For responses whose
            size is large and not known before.
        answer: the encoded response, once it is ready.
        held: its bytes in memory, if it waits for an earlier one.
        reason: why the connection must be closed instead.
        settled: called when the response is given or refused. The connection sets it.
    """

    __slots__ = ("alone", "answer", "held", "reason", "settled")

    def __init__(self, answer: Answer | None = None) -> None:
        self.alone = False
        self.answer = answer
        self.held = 0
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


def _in_memory(answer: Answer) -> int:
    """The bytes of a response that are not in files."""
    size = 0
    for part in answer:
        if isinstance(part, _IN_MEMORY):
            size += len(part)
    return size


def _write_lines(transport: asyncio.Transport, parts: Sequence[Buffer]) -> None:
    transport.writelines(parts)
    if _NEVER_PAUSES:
        transport.set_write_buffer_limits(high=WRITE_MARK)  # this pauses it


def _ignore(deferred: DeferredResponse) -> None:
    """Do nothing: the connection has not queued the response."""


class Peer:
    """The client at the other end of a connection, as handlers see it.

    Attributes:
        host: its address.
        port: its port.
        number: tells which of two connections is the newer one.
        software: the name and version that it sent in ApiVersions (KIP-511); "" before that.
        listener: the name of the listener that accepted the connection.
        principal: who it is. :meth:`identify` sets it.
        cached: a slot that belongs to the dispatcher; empty after a login, and when the connection is lost.
        is_known: whether it has sent a request; the dispatcher sets it.
        left: whether the client has closed its end, or the connection is lost.
        seen: gets to know that the connection is closed, and by whom. The dispatcher sets it; None without.
        works: what is being carried out in steps or in a thread; the next request starts after it. See :meth:`hold`.
        muted: ends the time in which nothing is read, because of a quota; None without. See :meth:`mute`.
        spent: seconds for which its requests held the event loop after their handlers had returned; the dispatcher
            takes them.
        used: seconds of the event loop that it has had while others waited; the slicer counts them.
        released: called when `works` has become empty, or it is no longer muted. The connection sets it.
        ended: called when the connection is lost: what belongs to it ends as well.
    """

    __slots__ = (
        "cached",
        "ended",
        "host",
        "is_known",
        "left",
        "listener",
        "muted",
        "number",
        "port",
        "principal",
        "released",
        "seen",
        "software",
        "spent",
        "used",
        "works",
    )

    def __init__(self, host: str, port: int, listener: str = PLAINTEXT) -> None:
        self.host = host
        self.port = port
        self.number = next(_NUMBERS)
        self.listener = listener
        self.principal = ANONYMOUS
        self.software = ""
        self.cached: Any = None
        self.is_known = False
        self.left = False
        self.seen: Watcher | None = None
        self.ended: set[Callable[[], object]] = set()
        self.works: set[asyncio.Future[Any]] = set()
        self.muted: asyncio.TimerHandle | None = None
        self.spent = self.used = 0.0
        self.released: Callable[[], None] = _nothing

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def identify(self, principal: Principal) -> None:
        """The client has proved who it is. What the dispatcher knows of it no longer counts."""
        self.principal = principal
        self.cached = None

    def hold(self, work: "asyncio.Future[Any]") -> None:
        """Start no further request until `work` is done, so that requests take effect in their order.

        If the connection is lost first, it cancels the work.
        """
        self.works.add(work)
        work.add_done_callback(self._release)

    def mute(self, seconds: float) -> None:
        """Start no further request and read nothing for `seconds`; a longer time that has begun goes on."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if self.muted is not None:
            if self.muted.when() >= until:
                return
            self.muted.cancel()
        self.muted = loop.call_at(until, self._unmute)

    def _unmute(self) -> None:
        self.muted = None
        self.released()

    def _release(self, work: "asyncio.Future[Any]") -> None:
        self.works.discard(work)
        if not self.works:
            self.released()


class Watcher(Protocol):
    """Gets to know that a connection is closed."""

    def lost(self, closed_by: str, error: str) -> None:
        """The connection is closed.

        Args:
            closed_by: "client" or "broker".
            error: why, if it was because of an error; "" otherwise.
        """


def _nothing() -> None:
    """Do nothing: no connection waits for the work."""


class Dispatcher(Protocol):
    """Answers requests: at once, later, or (Produce with acks=0) never."""

    def __call__(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
        """Answer one request frame.

        Raises:
            CloseConnection: the request has no response in its protocol.
            DecodeError: the frame is not a request.
        """


class Gate(Dispatcher, Protocol):
    """Answers the requests of a client until it has proved who it is."""

    def close(self) -> None:
        """The connection is lost."""


class Login(Protocol):
    """Checks that a client has to pass before its requests are answered.

    Attributes:
        max_receive_size: bytes of a frame at most until then.
    """

    @property
    def max_receive_size(self) -> int: ...

    def begin(self, connection: "Connection", dispatch: Dispatcher) -> Gate:
        """The gate of a new connection, in front of `dispatch`."""


class ConnectionOwner(Protocol):
    """The part of the server that its connections use.

    Attributes:
        dispatch: answers requests.
        now: a monotonic clock, in seconds.
        traffic: the counters of all connections.
        refusals: warns about what is not served.
        max_request_bytes: bytes of a request frame at most.
        max_response_bytes: bytes of a connection's responses that may wait for an earlier one.
        received: the buffer into which all connections read.
        requests: counts the bytes of large requests.
        responses: counts the bytes of responses that are not sent.
        slicer: shares the event loop's time among all connections.
        direct: counts the second descriptors of sockets.
        closed: logs connections that are closed because of their clients.
        broken: logs connections that are closed because of a failure of the broker.
        identified: called with a client whose certificate says who it is.
    """

    dispatch: Dispatcher
    now: Callable[[], float]
    traffic: Traffic
    refusals: Refusals
    max_request_bytes: int
    max_response_bytes: int
    received: bytearray
    requests: Budget
    responses: Budget
    slicer: Slicer
    direct: Budget
    closed: Folded
    broken: Folded
    identified: Callable[[Peer], None]

    def admit(self, connection: "Connection") -> None:
        """Register a new connection."""

    def forget(self, connection: "Connection") -> None:
        """Unregister a connection that is lost."""


class Connection(asyncio.BufferedProtocol):
    """One client's connection.

    Args:
        server: accepted it.
        listener: the name of the listener.
        identify: the principal of a TLS connection; None for plain text.
        login: what a client has to get through before its requests are served; None if it need not log in.
        place: its place in the counts of connections, which it leaves when it is lost; None if it has none.

    Attributes:
        peer: the client.
        made: whether it was ever open.
        active: when the client last sent or read bytes, on the server's clock.
        began: when the request that has arrived in part began, or was read on after a pause; None if there is none.
    """

    def __init__(
        self,
        server: ConnectionOwner,
        listener: str = PLAINTEXT,
        identify: Callable[[ssl.SSLObject], Principal] | None = None,
        login: "Login | None" = None,
        place: ConnectionSlot | None = None,
    ) -> None:
        self.server = server
        self.made = False
        self._place = place
        self.peer = Peer("?", 0, listener)
        self._identify = identify
        self.active = 0.0
        self.began: float | None = None
        self._traffic = server.traffic
        self._login = login
        self._gate: Gate | None = None
        self._dispatch = server.dispatch
        self._slicer = server.slicer
        self._framer = Framer(server.max_request_bytes, server.received)
        self._transport: asyncio.Transport | None = None
        self._backlog: deque[Buffer] = deque()
        #: Responses that are not sent, in the order of their requests; the first one is not ready.
        self._pending: deque[DeferredResponse] = deque()
        #: The rest of a large response and what follows it, while the peer has not read what was sent before.
        self._unsent: deque[Buffer | Unread] = deque()
        #: A second descriptor of the socket, to send from files past the transport, while there is something to send.
        self._socket: socket.socket | None = None
        #: Bytes of large requests that wait, or are being carried out.
        self._large = 0
        #: Bytes that count in the budget of requests.
        self._charged = 0
        #: Bytes of responses that are ready and wait for an earlier one; and that were sent and are not read.
        self._ready = 0
        self._sending = 0
        #: Bytes that count in the budget of responses.
        self._counted = 0
        self._writable = True
        self._reading = True
        self._working = False
        #: Whether requests or responses wait for a later turn of the event loop.
        self._queued = False
        self._ending = False
        self._closing = False

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's, they only have the same methods.
        self._transport = cast(asyncio.Transport, transport)
        self.made = True
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.peer = Peer(str(name[0]), int(name[1]), self.peer.listener)
        self.peer.released = self._work
        self._slicer.join(self.peer)
        self._transport.set_write_buffer_limits(high=WRITE_MARK)
        self.active = self.server.now()
        self.server.admit(self)
        if self._identify is not None:
            try:
                self.peer.identify(self._identify(transport.get_extra_info("ssl_object")))
                if self.peer.principal is not ANONYMOUS:
                    self.server.identified(self.peer)
            except NoRuleApplies as error:
                self._refuse(str(error))
                self._transport.abort()
                return
        if self._place is not None and self._login is None:
            self._place.keep()
        elif self._place is not None:
            self._place.offer(self.abort)
        if self._login is not None:
            self._gate = self._dispatch = self._login.begin(self, self.server.dispatch)
            self._framer.max_bytes = self._login.max_receive_size

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._place is not None:
            self._place.leave()
        self.peer.cached = None
        if self.peer.seen is not None:
            by_client = self.peer.left or error is not None or not self._closing
            self.peer.seen.lost("client" if by_client else "broker", "" if error is None else str(error))
            self.peer.seen = None
        self.peer.left = True
        while self.peer.ended:
            self.peer.ended.pop()()
        # These end reference cycles: its buffers are freed now, not when the collector runs.
        self.peer.released = _nothing
        if self.peer.muted is not None:
            self.peer.muted.cancel()
        if self._gate is not None:
            self._gate.close()
            self._gate, self._dispatch = None, self.server.dispatch
        for work in tuple(self.peer.works):
            work.cancel()
        self._backlog.clear()
        self._pending.clear()
        self._unsent.clear()
        self._close_direct()
        self._large = self._ready = self._sending = 0
        self._count()
        self.server.requests.give(self._charged)
        self._charged = 0
        self.server.requests.finish(self)
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
            self._take(self._framer.received(nbytes, CUT))
        except FrameTooLarge as error:
            self._not_kafka(error)
            return
        self._work(self.active)

    def _take(self, frames: Iterable[bytearray]) -> None:
        """Let requests wait for their start.

        Raises:
            FrameTooLarge: what follows them is not a request.
        """
        backlog = self._backlog
        waited = len(backlog)
        backlog.extend(frames)
        if len(backlog) > waited:
            self.began = None
            if len(backlog[-1]) > LARGE:  # It comes alone: the framer gives it a buffer of its own.
                self._large += len(backlog[-1])
        if self.began is None and self._framer.pending and not self._framer.left:
            self.began = self.active

    def eof_received(self) -> bool:
        self.peer.left = self.peer.left or not self._closing
        self.close()
        # A TLS connection has no half that stays open.
        return self._identify is None

    # Requests in, responses out

    @property
    def busy(self) -> bool:
        """Whether a request waits for its response, or a response for the peer to read it.

        What a quota keeps waiting does not count: the connection may be closed meanwhile, as in Kafka.
        """
        waiting = (self._backlog or self._framer.left) and self.peer.muted is None
        return bool(self._pending or waiting or self._unsent or not self._writable)

    @property
    def reading(self) -> bool:
        """Whether the peer may send."""
        return self._reading

    @property
    def stalled(self) -> bool:
        """Whether the peer has to read before it is sent more."""
        return not self._writable

    def _work(self, now: float | None = None, *, granted: bool = False) -> None:
        """Start the requests at hand while the peer keeps up, and send the responses that are ready, in order.

        Args:
            now: the server's clock, if bytes have just arrived.
            granted: start one request without a look at the clock: it is the connection's turn.
        """
        transport = self._transport
        if self._working or transport is None:
            return
        self._working = True
        backlog, pending, dispatch, peer = self._backlog, self._pending, self._dispatch, self.peer
        slicer, framer, began, arrived = self._slicer, self._framer, None, now is not None
        out: list[Buffer | Unread] = []
        size = 0
        try:
            while True:
                answer = pending[0].answer if pending else None
                if answer is not None:
                    self._ready -= pending.popleft().held
                elif (
                    (backlog or framer.left)
                    and self._writable
                    and not (peer.works or peer.muted or self._unsent or self._ending or self._queued)
                    and (not pending or self._may_queue(pending))
                ):
                    if began is None:
                        began = slicer.now() if now is None else now
                        if not (granted or slicer.starts(began)):
                            self._queue(0.0, quiet=arrived and len(backlog) == 1)
                            continue
                    else:
                        now = slicer.now()
                        if now >= slicer.until:
                            self._queue(now - began)
                            continue
                    if not backlog:
                        self._take(framer.cut(CUT))
                    started = dispatch(peer, backlog.popleft())
                    if started is None:
                        continue
                    if isinstance(started, DeferredResponse):
                        started.settled = self._settled
                        pending.append(started)
                        continue
                    if pending:
                        started = DeferredResponse(started)
                        pending.append(started)
                        self._hold(started)
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
        except NotServed as error:
            self._send(transport, out, size)
            self._turn_away(error.feature, error.client_id)
            return
        except FrameTooLarge as error:
            self._send(transport, out, size)
            self._not_kafka(error)
            return
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
            if began is not None:
                slicer.did(slicer.now() - began)
        if self._ready or self._sending or self._counted:
            self._count()
        if self._ending:
            self._end_if_answered()
        elif peer.muted is not None:
            self._rest(transport)
        elif (not (backlog or framer.left) and self._has_room()) is not self._reading:
            self._reading = not self._reading
            if self._reading:
                if self.began is not None:
                    self.began = self.server.now()
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _rest(self, transport: asyncio.Transport) -> None:
        """Read nothing while the connection is muted, and count no bytes of requests that are carried out."""
        if self._reading:
            self._reading = False
            transport.pause_reading()
        if not self.peer.works:
            self._large = sum(len(frame) for frame in self._backlog if len(frame) > LARGE)
            left = min(self._framer.room + self._large, self._charged)
            if left < self._charged:
                self.server.requests.give(self._charged - left)
                self._charged = left
                self.server.requests.finish(self)

    def _may_queue(self, pending: deque[DeferredResponse]) -> bool:
        """Whether another request may be started while responses are pending."""
        last = pending[-1]
        return (
            len(pending) < MAX_IN_FLIGHT
            and not (last.alone and last.answer is None)
            # A connection without such responses goes on whatever the others hold: what they wait for may be on it.
            and (
                not self._ready
                or self._ready < min(self.server.max_response_bytes, self.server.responses.left + self._counted)
            )
        )

    def proceed(self) -> None:
        """Read on, if there is room for the request that arrives."""
        self._work()

    def _has_room(self) -> bool:
        """Whether the rest of a large request may be read; its bytes count from now on."""
        framer = self._framer
        if not self._backlog and not self.peer.works:
            self._large = 0
        wanted = framer.room + self._large
        charged = self._charged
        if wanted > charged:
            if not self.server.requests.take(self, wanted - charged):
                return False
            self._charged = wanted
        elif wanted < charged:
            self.server.requests.give(charged - wanted)
            self._charged = wanted
            if not wanted:
                self.server.requests.finish(self)
        return True

    def _count(self) -> None:
        """Count the responses that are in memory."""
        if self._writable and not self._unsent:
            self._sending = 0
        held = self._ready + self._sending
        if held != self._counted:
            self.server.responses.add(held - self._counted)
            self._counted = held

    def _settled(self, deferred: DeferredResponse) -> None:
        if deferred.answer is None:
            self._refuse(deferred.reason)
        elif self._transport is not None:
            pending = self._pending
            if pending and pending[0] is deferred:
                self._work()
            else:
                self._hold(deferred)
                if pending and deferred.alone:
                    self._work()

    def _hold(self, deferred: DeferredResponse) -> None:
        """Count a response that is ready and waits for an earlier one."""
        answer = deferred.answer or ()
        deferred.held = held = len(answer[0]) if len(answer) == 1 and type(answer[0]) is bytes else _in_memory(answer)
        self._ready += held
        self._counted += held
        self.server.responses.add(held)

    def _send(self, transport: asyncio.Transport, out: Sequence[Buffer | Unread], size: int) -> None:
        self._traffic.bytes_out += size
        in_memory = _in_memory(out)
        if self._unsent or in_memory < size:
            self._sending += in_memory
            self._unsent += out
            self._pump(transport)
            return
        if len(out) == 1:
            transport.write(cast(Buffer, out[0]))
        elif out:
            _write_lines(transport, cast(Sequence[Buffer], out))
        if not self._writable:
            self._sending += in_memory

    def _go_on(self, *, granted: bool = False) -> None:
        if self._transport is not None:
            sending = bool(self._unsent)
            if sending:
                began = self._slicer.now()
                self._pump(self._transport, granted=granted or self._slicer.starts(began))
                self._slicer.did(self._slicer.now() - began)
            else:
                self._pump(self._transport)
            self._count()
            self._work(granted=granted and not sending)

    def _queue(self, used: float, *, quiet: bool = False) -> None:
        """Let the rest wait for a later turn of the event loop, after `used` seconds of this one."""
        self._queued = True
        self._slicer.wait(self.peer, self._take_turn, used, quiet=quiet)

    def _take_turn(self) -> None:
        """Go on with one piece at least, however long this thread had no processor; the slicer calls it."""
        self._queued = False
        if self._unsent:
            self._go_on(granted=True)
        else:
            self._work(granted=True)

    def _pump(self, transport: asyncio.Transport, *, granted: bool = False) -> None:
        """Send what is unsent for as long as the peer keeps up and there is time left in this turn.

        Args:
            transport: of the connection.
            granted: send one piece without a look at the clock.
        """
        unsent, slicer = self._unsent, self._slicer
        try:
            while unsent and self._writable and not (self._queued or transport.is_closing()):
                if granted:
                    granted = False
                elif slicer.now() >= slicer.until:
                    self._queue(0.0)
                    return
                direct = self._direct_socket(transport)
                if direct is None:
                    self._pass_on(transport)
                else:
                    self._push(direct)
        except ConnectionError:
            transport.abort()
        except OSError as error:
            # The frame's length has been sent, so the connection can carry nothing else.
            self._drop(transport, f"a response cannot be completed: {error}")
        if not unsent:
            self._close_direct()
            if self._closing:
                transport.close()

    def _direct_socket(self, transport: asyncio.Transport) -> socket.socket | None:
        """The socket, if a file may be sent straight into it: no TLS, and the transport's buffer is empty."""
        if self._socket is None:
            given = transport.get_extra_info("socket")
            if given is None or transport.get_extra_info("sslcontext") is not None or not self.server.direct.left:
                return None
            # A descriptor of our own: the loop watches the transport's for the transport alone.
            try:
                self._socket = socket.socket(fileno=os.dup(given.fileno()))
            except OSError:
                return None  # too many are open; the transport sends it instead
            self.server.direct.add(1)
        return None if transport.get_write_buffer_size() else self._socket

    def _close_direct(self) -> None:
        """Close the second descriptor, if there is one: files and other connections need descriptors, too."""
        direct, self._socket = self._socket, None
        if direct is not None:
            asyncio.get_running_loop().remove_writer(direct.fileno())
            direct.close()
            self.server.direct.give(1)

    def _push(self, direct: socket.socket) -> None:
        """Write of the first unsent part past the transport."""
        unsent = self._unsent
        part = unsent[0]
        try:
            if isinstance(part, _IN_MEMORY):
                sent = direct.send(part, _MORE if len(unsent) > 1 else 0)
                unsent[0] = memoryview(part)[sent:]
            else:
                part.send(direct.fileno(), STRETCH)
        except BlockingIOError:
            self._writable = False
            asyncio.get_running_loop().add_writer(direct.fileno(), self._drained, direct)
            return
        if not len(unsent[0]):
            unsent.popleft()

    def _drained(self, direct: socket.socket) -> None:
        asyncio.get_running_loop().remove_writer(direct.fileno())
        self.resume_writing()

    def _pass_on(self, transport: asyncio.Transport) -> None:
        """Give the transport the parts in memory and a piece of the next file."""
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
        _write_lines(transport, out)

    def _not_kafka(self, error: FrameTooLarge) -> None:
        """Close the connection: its bytes are not frames."""
        feature = feature_of_bytes(error.size.to_bytes(4, "big", signed=True))
        if feature is None:
            self._refuse(str(error))
            return
        if feature is HTTP and self._transport is not None:
            self._transport.write(_NOT_HTTP)
        # A client of TLS gets no alert: it would blame the version or the certificate. After an end without one,
        # librdkafka asks "connecting to a PLAINTEXT broker listener?".
        self._turn_away(feature, None)

    def _turn_away(self, feature: Feature, client_id: str | None) -> None:
        """Close the connection; the reason is logged once for this client."""
        if self._transport is not None and not self._closing:
            self.server.refusals.warn(feature, self.peer.host, client_id)
            self._traffic.dropped += 1
            self.close()

    def _refuse(self, reason: str) -> None:
        if self._transport is not None and not self._closing:
            self.server.closed.add(self.peer.host, str(self.peer), reason=reason)
            self._traffic.dropped += 1
            self.close()

    def _drop(self, transport: asyncio.Transport, reason: str) -> None:
        self.server.broken.add(self.peer.host, str(self.peer), reason=reason)
        self._traffic.dropped += 1
        self._closing = self._ending = True
        self._backlog.clear()
        self._unsent.clear()
        transport.abort()

    # What the server calls

    def refuse(self, reason: str) -> None:
        """Close the connection; the reason is logged."""
        self._refuse(reason)

    def authenticated(self, *, again: bool) -> None:
        """The client has proved who it is: serve its requests. With `again` its gate stays, and passes them on."""
        if self._place is not None:
            self._place.keep()
        if not again:
            self._gate, self._dispatch = None, self.server.dispatch
        self._framer.max_bytes = self.server.max_request_bytes

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
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
