"""Effects: what a group member's state machine asks its shell to do. Pure.

The machines collect these in an :class:`Outbox` and return them; :mod:`barnabas_client.membership.thread` carries them
out.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.schema import Request


class Coordinator(NamedTuple):
    """The broker that coordinates the group."""

    node_id: int
    host: str
    port: int


class Send(NamedTuple):
    """Send a request.

    Attributes:
        ticket: identifies the request when its response, or its failure, is passed back to the machine.
        request: in its newest version.
        to: the coordinator; None for any broker.
        timeout: seconds to wait for the response.
    """

    ticket: int
    request: Request
    to: Coordinator | None
    timeout: float


class Revoke(NamedTuple):
    """Take partitions from the program: at its next poll, commit (unless `lost`) and call the rebalance listener.

    Attributes:
        ticket: identifies the revocation when its end is passed back to the machine.
        partitions: may be empty: then only the program's next poll is waited for.
        lost: whether another member may own the partitions already. They are lost as well if the membership has ended
            when the program polls: see :meth:`~barnabas_client.membership.member.MemberView.has_lost`.
        generation: the member's generation, or member epoch, at the time of the decision.
    """

    ticket: int
    partitions: frozenset[TopicPartition]
    lost: bool
    generation: int


class Assign(NamedTuple):
    """The member's assignment in `generation`, or member epoch; `added` are the partitions it did not own before."""

    partitions: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    generation: int


class CountPartitions(NamedTuple):
    """Find out how many partitions these topics have, and keep their metadata fresh from now on."""

    ticket: int
    topics: frozenset[str]


class NameTopics(NamedTuple):
    """Find out the names of topics that an assignment has by their ids."""

    ticket: int
    topic_ids: frozenset[bytes]


class Disconnect(NamedTuple):
    """Close the connection to this coordinator: requests in flight on it will not be answered."""

    coordinator: Coordinator
    reason: str


class Fail(NamedTuple):
    """The membership failed for good: the program's next poll raises this error."""

    error: KafkaError


class Note(NamedTuple):
    """A line for the log; `warns` makes it a warning."""

    event: str
    fields: Mapping[str, object] = MappingProxyType({})
    warns: bool = False


Effect = Send | Revoke | Assign | CountPartitions | NameTopics | Disconnect | Fail | Note


class Outbox:
    """The effects of the event that a machine processes, and the tickets of what it asks for."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._tickets = 0

    def ticket(self) -> int:
        """Return a new ticket."""
        self._tickets += 1
        return self._tickets

    def put(self, effect: Effect) -> None:
        """Add an effect."""
        self._effects.append(effect)

    def send(self, request: Request, to: Coordinator | None, timeout: float) -> int:
        """Add a :class:`Send`, and return its ticket."""
        ticket = self.ticket()
        self.put(Send(ticket, request, to, timeout))
        return ticket

    def note(self, event: str, **fields: object) -> None:
        """Add a line for the log."""
        self.put(Note(event, fields))

    def warn(self, event: str, **fields: object) -> None:
        """Add a warning for the log."""
        self.put(Note(event, fields, warns=True))

    def take(self) -> list[Effect]:
        """Return the effects since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects
