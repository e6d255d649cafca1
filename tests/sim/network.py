"""Connections that break. Each one keeps the order of its requests; there is no order among connections.

A broken connection loses its responses. Requests that were sent over it may still arrive, and late.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from barnabas_broker.groups.sightings import MemberConnection, SeenClient
from barnabas_protocol.schema import Request, Response
from tests.sim.cluster import Node
from tests.sim.world import World

Answered = Callable[[int, Response], None]
Failed = Callable[[int], None]


class _Exchange:
    __slots__ = ("request", "response", "ticket")

    def __init__(self, ticket: int, request: Request) -> None:
        self.ticket = ticket
        self.request = request
        self.response: Response | None = None


class Connection:
    """One client's connection to one broker.

    Attributes:
        open: whether the client may still use it.
        seen: what the coordinator sees of it.
    """

    def __init__(self, world: World, client: str, node: Node, answered: Answered, failed: Failed) -> None:
        self.world = world
        self.node = node
        self.open = True
        self.seen = MemberConnection(SeenClient(), client, "", lambda _: None)
        self._client = client
        self._answered = answered
        self._failed = failed
        self._life = node.life
        self._arrives_at = self._returns_at = 0.0
        self._waiting: deque[_Exchange] = deque()
        self._outstanding: set[int] = set()

    def send(self, ticket: int, request: Request, timeout: float) -> None:
        """Send a request; the client gets its result once: a response or a failure."""
        world = self.world
        self._outstanding.add(ticket)
        exchange = _Exchange(ticket, request)
        self._arrives_at = max(self._arrives_at, world.now + self._delay())
        world.at(self._arrives_at, self._arrive, exchange)
        world.after(timeout, self._time_out, ticket)
        if world.happens(0.004):
            world.after(self._delay(), self.break_, "the network")

    def break_(self, reason: str) -> None:
        """Break: no response arrives any more, and the client notices a little later."""
        if self.open:
            self.open = False
            self.world.note("%s: connection to node %d broken by %s", self._client, self.node.node_id, reason)
            for ticket in sorted(self._outstanding):
                self.world.after(self.world.between(0.0, 0.2), self._failed, ticket)
            self._outstanding.clear()

    def close(self) -> None:
        """The client closes the connection."""
        self.open = False
        self._outstanding.clear()

    def _delay(self) -> float:
        if self.world.happens(0.02):
            return self.world.between(0.2, 3.0)
        return self.world.between(0.0005, 0.01)

    def _arrive(self, exchange: _Exchange) -> None:
        if not self.node.alive or self.node.life != self._life:
            self.break_("the broker's death")
            return
        if not self.open and self.world.chance.random() < 0.5:
            return
        self._waiting.append(exchange)

        def respond(response: Response) -> None:
            exchange.response = response
            self._return()

        self.node.handle(self._client, exchange.request, respond, self.seen)

    def _return(self) -> None:
        """Return responses in the order of their requests."""
        while self._waiting and self._waiting[0].response is not None:
            exchange = self._waiting.popleft()
            self._returns_at = max(self._returns_at, self.world.now + self._delay())
            self.world.at(self._returns_at, self._deliver, exchange)

    def _deliver(self, exchange: _Exchange) -> None:
        if self.open and exchange.ticket in self._outstanding:
            self._outstanding.discard(exchange.ticket)
            response: Any = exchange.response
            self._answered(exchange.ticket, response)

    def _time_out(self, ticket: int) -> None:
        if ticket in self._outstanding:
            self.break_("a timeout")
