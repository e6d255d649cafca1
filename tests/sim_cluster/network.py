"""The network: connections deliver in order, with delays, and not while they are cut."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.sim_cluster.loop import LIFE, Life
from tests.sim_cluster.world import World

#: Seconds after which a lost packet is sent again.
_RESEND = 0.2


class Network:
    """Connects processes, with delays and cuts.

    Attributes:
        cuts: pairs (from, to) of names between which nothing passes.
        refusing: names to which a firewall refuses connections, although the process listens.
        slow: seconds that a pair's messages take longer.
        listening: by name, the process that listens and what makes its protocols.
        jitter: how often a message takes long.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.cuts: set[tuple[str, str]] = set()
        self.refusing: set[str] = set()
        self.slow: dict[tuple[str, str], float] = {}
        self.listening: dict[str, tuple[Life, Callable[[], asyncio.BufferedProtocol]]] = {}
        self.jitter = 0.0
        self._ends: dict[Life, dict[_End, None]] = {}
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

    async def connect(self, factory: Callable[[], Any], host: str) -> Any:
        """Connect, as an event loop's ``create_connection``."""
        life = LIFE.get()
        assert life is not None
        world, protocol = self.world, factory()
        connected: asyncio.Future[None] = world.loop.create_future()
        near = _End(self, life, protocol)
        near.out = Channel(self, life.name, host)

        def arrived() -> None:
            back = Channel(self, host, life.name)
            there = self.listening.get(host)
            if there is None or not there[0].alive or host in self.refusing:
                back.send(lambda: life.call(_resolve, connected, ConnectionRefusedError("connection refused")))
                return
            far = _End(self, there[0], there[1]())
            far.out, far.peer, near.peer = back, near, far
            self.opened(far)
            there[0].call(far.protocol.connection_made, far)
            back.send(lambda: life.call(_resolve, connected, None))

        near.out.send(arrived)
        await connected
        self.opened(near)
        protocol.connection_made(near)
        return near, protocol

    def opened(self, end: "_End") -> None:
        """Add an end of a connection to its process."""
        self._ends.setdefault(end.life, {})[end] = None

    def closed(self, end: "_End") -> None:
        """Remove an end of a connection."""
        self._ends.get(end.life, {}).pop(end, None)

    def died(self, life: Life, *, silent: bool) -> None:
        """A process was killed: its kernel closes its connections, unless the machine is down."""
        for end in self._ends.pop(life, {}):
            end.is_open = False
            if not silent:
                end.reset_peer()


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


class _End(asyncio.Transport):
    """One end of a connection, as its process sees it."""

    out: Channel

    def __init__(self, network: Network, life: Life, protocol: Any) -> None:
        super().__init__()
        self.life = life
        self.protocol = protocol
        self.peer: _End | None = None
        self.is_open = True
        self._network = network

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        if self.is_open and self.peer is not None:
            peer, data = self.peer, b"".join(bytes(each) for each in list_of_data)
            self.out.send(lambda: peer.arrived(data))

    def arrived(self, data: bytes) -> None:
        """Bytes have arrived in the kernel."""
        if self.is_open:
            self.life.call(self._feed, data)
        elif not self.life.alive:
            self.reset_peer()

    def _feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self.is_open:
            buffer = self.protocol.get_buffer(len(view))
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            view = view[size:]
            self.protocol.buffer_updated(size)

    def is_closing(self) -> bool:
        return not self.is_open

    def close(self) -> None:
        self.abort()

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
        self.life.call(self.protocol.connection_lost, error)
