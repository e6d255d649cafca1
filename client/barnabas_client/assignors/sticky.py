"""The `sticky` and the `cooperative-sticky` assignor: even shares, and as few moves as possible (KIP-54, 341, 429).

Members with equal subscriptions, the usual case, take the fast way of :mod:`~barnabas_client.assignors.equal`, others
that of :mod:`~barnabas_client.assignors.mixed`. Source: ``AbstractStickyAssignor.java`` and the two classes built on
it.

Results differ from Kafka's where members tell what cannot be, or where Kafka's would not be an assignment: partitions
that do not exist any more are no claim (there they can end up with two members), and what a member names twice it
claims once; members without a topic never count as subscribing to everything; and a partition never goes back to a
former owner that has stopped subscribing to its topic.
"""

from collections.abc import Mapping, Sequence

from barnabas_client.assignors.base import Assignments, Assignor, MemberSubscription, RebalanceProtocol
from barnabas_client.assignors.equal import assign_equal
from barnabas_client.assignors.mixed import assign_mixed
from barnabas_client.assignors.owners import situation
from barnabas_client.assignors.user_data import (
    NO_GENERATION,
    Claim,
    decode_claim,
    decode_generation,
    encode_claim,
    encode_generation,
)
from barnabas_client.structs import TopicPartition


class StickyAssignor(Assignor):
    """Even shares, and who had a partition before preferably has it again.

    A member gives up all it has before it rejoins, and gets most of it back. What it had it tells the leader itself:
    this object remembers it from one rebalance to the next.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._last: Claim | None = None

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """The last assignment and its generation; None before the first."""
        return None if self._last is None else encode_claim(*self._last)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """See :meth:`Assignor.assigned`."""
        self._last = Claim(tuple(partitions), generation)

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignments:
        """See :meth:`Assignor.assign`."""
        claims = {member: decode_claim(told.user_data) for member, told in members.items()}
        result, _ = _assign(partitions, members, claims)
        return result


class CooperativeStickyAssignor(Assignor):
    """Even shares, and who has a partition keeps it, and goes on reading it, unless it is another one's turn.

    Then that one does not get it at once: the owner first gives it up and rejoins, and the next rebalance hands it out.
    """

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """The generation of the last assignment, for leaders that do not read it beside the owned partitions."""
        return encode_generation(self._generation)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """See :meth:`Assignor.assigned`."""
        self._generation = generation

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignments:
        """See :meth:`Assignor.assign`; what must be given up first is in nobody's share."""
        claims = {
            member: Claim(told.owned, told.generation if told.generation >= 0 else decode_generation(told.user_data))
            for member, told in members.items()
        }
        result, moving = _assign(partitions, members, claims)
        if moving is None:
            moving = _moving(members, result)
        return {member: [tp for tp in share if tp not in moving] for member, share in result.items()}


def _assign(
    partitions: Mapping[str, int], members: Mapping[str, MemberSubscription], claims: Mapping[str, Claim]
) -> tuple[Assignments, frozenset[TopicPartition] | None]:
    """The assignment, and what another member had until now if the way it was found tells that."""
    if not members:
        return {}, None
    now = situation(partitions, members, claims)
    return assign_equal(now) if now.equal else (assign_mixed(now), None)


def _moving(members: Mapping[str, MemberSubscription], result: Assignments) -> frozenset[TopicPartition]:
    """The partitions that one member gets while another one has them."""
    owned = {member: frozenset(told.owned) for member, told in members.items()}
    added = {tp for member, share in result.items() for tp in share if tp not in owned[member]}
    return frozenset(tp for had in owned.values() for tp in had if tp in added)
