"""The network: connections deliver in order, with delays, and not while they are cut."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

from barnabas_client.network.connection import KEEPALIVE_SECONDS, Connection
from tests.world.loop import LIFE, Life
from tests.world.world import World

#: Seconds after which a lost packet is sent again.
_RESEND: Final = 0.2
#: Bytes that the kernels keep of what one end has sent.
WINDOW: Final = 64 * 1024


class Network:
    """Connects processes, with delays and cuts.

    Attributes:
        cuts: pairs (from, to) of names between which nothing passes.
        refusing: names to which a firewall refuses connections, although the process listens.
        slow: seconds that a pair's messages take longer.
        listening: by name, the process that listens, and what it does with a connection that arrives.
        jitter: how often a message takes long.
        torn: how often bytes that were written at once arrive in pieces.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.cuts: set[tuple[str, str]] = set()
        self.refusing: set[str] = set()
        self.slow: dict[tuple[str, str], float] = {}
        self.listening: dict[str, tuple[Life, Callable[[End], None]]] = {}
        self.jitter = self.torn = 0.0
        #: Descriptors of sockets that listen, and ports of clients.
        self.numbers = count(40_000)
        self._ends: dict[Life, dict[End, None]] = {}
        world.loop.connector = self.connect

    def cut(self, one: str, other: str, seconds: float, *, back: bool = True) -> None:
        """Cut the connection of two processes for some seconds.

        Args:
            one: what this process sends is lost.
            other: to this one.
            seconds: for how long.
            back: what the other one sends is lost, too.
        """
        pairs = {(one, other), (other, one)} if back else {(one, other)}
        self.cuts |= pairs
        self.world.after(seconds, self.cuts.difference_update, pairs)

    def refuse(self, life: Life, seconds: float) -> None:
        """Close the connections of a process that lives, in both directions, and refuse new ones to it."""
        self.refusing.add(life.name)
        self.world.after(seconds, self.refusing.discard, life.name)
        for end in list(self._ends.get(life, {})):
            if end.is_open and end.peer is not None:
                end.reset_peer()
                end.reset()

    def delay(self, source: str, target: str) -> float:
        """The delay of a message, in seconds."""
        world = self.world
        seconds = world.between(0.0002, 0.002) + self.slow.get((source, target), 0.0)
        return seconds + (world.between(0.01, 0.4) if world.happens(self.jitter) else 0.0)

    def pieces(self, data: bytes) -> list[bytes]:
        """The pieces in which bytes arrive."""
        if len(data) < 2 or not self.torn or not self.world.happens(self.torn):
            return [data]
        at = self.world.chance.randrange(1, len(data))
        return [data[:at], *self.pieces(data[at:])]

    async def connect(self, factory: Callable[[], Any], host: str) -> Any:
        """Connect, as an event loop's ``create_connection``."""
        life = LIFE.get()
        assert life is not None
        world, protocol = self.world, factory()
        connected: asyncio.Future[None] = world.loop.create_future()
        near = End(self, life, protocol, (host, 0))
        near.out = Channel(self, life.name, host)

        def arrived() -> None:
            back = Channel(self, host, life.name)
            there = self.listening.get(host)
            if there is None or not there[0].alive or host in self.refusing:
                back.send(lambda: life.call(_resolve, connected, ConnectionRefusedError("connection refused")))
                return
            far = End(self, there[0], None, (life.name, next(self.numbers)))
            far.out, far.peer, near.peer = back, near, far
            self.opened(far)
            there[0].call(there[1], far)
            back.send(lambda: life.call(_resolve, connected, None))

        near.out.send(arrived)
        await connected
        self.opened(near)
        near.connected(protocol)
        return near, protocol

    def opened(self, end: "End") -> None:
        """Add an end of a connection to its process."""
        self._ends.setdefault(end.life, {})[end] = None

    def closed(self, end: "End") -> None:
        """Remove an end of a connection."""
        self._ends.get(end.life, {}).pop(end, None)

    def died(self, life: Life, *, silent: bool) -> None:
        """A process was killed: its kernel closes its connections, unless the machine is down. Then the client's TCP
        finds out after some time."""
        for end in self._ends.pop(life, {}):
            end.is_open = False
            if not silent:
                end.reset_peer()
            elif end.peer is not None and isinstance(end.peer.protocol, Connection):
                self.world.after(KEEPALIVE_SECONDS, end.peer.reset)


def _resolve(waiter: "asyncio.Future[None]", error: Exception | None) -> None:
    if not waiter.done():
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


class Channel:
    """One direction of a connection; messages arrive in order."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network = network
        self._pair = source, target
        self._queue: deque[tuple[float, Callable[[], None]]] = deque()

    def send(self, arrive: Callable[[], None], later: float = 0.0) -> None:
        """Call `arrive` at the other end, `later` seconds after the network's delay."""
        world = self._network.world
        due = world.now + self._network.delay(*self._pair) + later
        self._queue.append((due, arrive))
        if len(self._queue) == 1:
            world.after(due - world.now, self._deliver)

    def _deliver(self) -> None:
        world, queue = self._network.world, self._queue
        if self._pair in self._network.cuts:
            world.after(_RESEND, self._deliver)
            return
        while queue and queue[0][0] <= world.now:
            queue[0][1]()
            queue.popleft()
        if queue:
            world.after(max(0.0, queue[0][0] - world.now), self._deliver)


class End(asyncio.Transport):
    """One end of a connection: its socket, and the transport of its process.

    Bytes beyond :data:`WINDOW` that the peer has not read are in the transport's buffer, as those that kernels do not
    take: it pauses its protocol, and a close waits for them.
    """

    out: Channel

    def __init__(self, network: Network, life: Life, protocol: Any, peername: tuple[str, int]) -> None:
        super().__init__({"peername": peername})
        self.life = life
        self.protocol = protocol
        self.peer: End | None = None
        self.is_open = True
        self._network = network
        #: Bytes that were sent and that the peer has not read, and the marks of the buffer.
        self._unread = 0
        self._high, self._low = 64 * 1024, 16 * 1024
        self._paused = self._closing = self._finished = False
        self._reading = True
        #: What has arrived and is not read; None for the end.
        self._arrived: deque[bytes | None] = deque()

    # As a socket that was accepted

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def connected(self, protocol: Any) -> None:
        """Begin: called in its process."""
        self.protocol = protocol
        protocol.connection_made(self)
        self._feed()

    # What is sent

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        data = b"".join(bytes(each) for each in list_of_data)
        if not data or not self.is_open or self._closing or self._finished or self.peer is None:
            return
        for piece in self._network.pieces(data):
            self.out.send(partial(self.peer.arrived, piece))
        self._unread += len(data)
        self._check_high()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._check_high()

    def get_write_buffer_size(self) -> int:
        return max(0, self._unread - WINDOW)

    def _check_high(self) -> None:
        if not self._paused and self.get_write_buffer_size() > self._high:
            self._paused = True
            self.protocol.pause_writing()

    def was_read(self, size: int) -> None:
        """The peer has read some bytes."""
        self._unread -= size
        if self._paused and self.get_write_buffer_size() <= self._low:
            self._paused = False
            self.life.call(self.protocol.resume_writing)
        self._finish()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self.is_open and not self._finished and self.peer is not None:
            self._finished = True
            self.out.send(partial(self.peer.arrived, None))

    # What has arrived

    def arrived(self, data: bytes | None) -> None:
        """Bytes, or the end of them, have arrived in the kernel."""
        if self.is_open:
            self._arrived.append(data)
            self.life.call(self._feed)
        elif data is not None and (self._finished or not self.life.alive):
            self.reset_peer()

    def _feed(self) -> None:
        while self._arrived and self._reading and self.is_open and not self._closing and self.protocol is not None:
            data = self._arrived.popleft()
            if data is None:
                if not self.protocol.eof_received():
                    self.close()
                return
            if self.peer is not None:
                self.peer.was_read(len(data))
            view = memoryview(data)
            while view and self.is_open:
                buffer = self.protocol.get_buffer(len(view))
                size = min(len(buffer), len(view))
                buffer[:size] = view[:size]
                view = view[size:]
                self.protocol.buffer_updated(size)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self.life.call(self._feed)

    # The end

    def is_closing(self) -> bool:
        return self._closing or not self.is_open

    def close(self) -> None:
        if self.is_open and not self._closing:
            self._closing = True
            self._finish()

    def _finish(self) -> None:
        if self._closing and self.is_open and not self.get_write_buffer_size():
            self.write_eof()
            self._lost(None)

    def abort(self) -> None:
        if self.is_open:
            self._lost(None)
            self.reset_peer()

    def reset_peer(self) -> None:
        """Reset the connection: this end does not exist."""
        if self.peer is not None:
            self.out.send(self.peer.reset)

    def reset(self) -> None:
        """The other end has reset the connection."""
        if self.is_open:
            self._lost(ConnectionResetError("connection reset by peer"))

    def _lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._network.closed(self)
        if self.protocol is not None:
            self.life.call(self.protocol.connection_lost, error)


class Listener:
    """A socket on which a process listens, as the broker's acceptor uses it."""

    def __init__(self, network: Network, life: Life, port: int) -> None:
        self._network = network
        self._life = life
        self._port = port
        self._number = next(network.numbers)
        self._waiting: deque[End] = deque()

    def getsockname(self) -> tuple[str, int]:
        """Its host and port."""
        return self._life.name, self._port

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def listen(self, backlog: int) -> None:
        """Queue connections from now on."""
        self._network.listening[self._life.name] = self._life, self._arrived

    def _arrived(self, end: End) -> None:
        self._waiting.append(end)
        self._network.world.loop.readable(self._number)

    def fileno(self) -> int:
        """A number for the event loop; -1 when it is closed."""
        return self._number

    def accept(self) -> tuple[End, tuple[str, int]]:
        """The next connection, and its peer.

        Raises:
            BlockingIOError: there is none.
        """
        if not self._waiting:
            raise BlockingIOError
        end = self._waiting.popleft()
        return end, end.get_extra_info("peername")

    def close(self) -> None:
        """Refuse connections from now on."""
        self._number = -1
        self._network.listening.pop(self._life.name, None)
        while self._waiting:
            self._waiting.popleft().abort()
