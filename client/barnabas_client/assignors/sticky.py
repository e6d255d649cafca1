"""The `sticky` and the `cooperative-sticky` assignor: balanced, with as few moves as possible (KIP-54, 341, 429).

Members with equal subscriptions, the usual case, take the fast path of :mod:`~barnabas_client.assignors.constrained`,
others that of :mod:`~barnabas_client.assignors.general`. Source: ``AbstractStickyAssignor.java`` and the two classes
derived from it.

Results differ from Kafka's where members send invalid data, or where Kafka's result would not be an assignment. Claims
to partitions that no longer exist do not count (in Kafka, two members can receive them). A partition that a member
names twice counts once. Members without a topic never count as subscribed to everything. A partition never moves back
to a former owner that no longer subscribes to its topic.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import cast

from barnabas_client.assignors.base import Assignments, Assignor, MemberSubscription, RebalanceProtocol
from barnabas_client.assignors.user_data import (
    NO_GENERATION,
    Claim,
    decode_claim,
    decode_generation,
    encode_claim,
    encode_generation,
)
from barnabas_client.structs import TopicPartition

_Assigned = tuple[Assignments, frozenset[TopicPartition] | None]


class StickyAssignor(Assignor):
    """Balanced; members preferably receive the partitions that they had before.

    All partitions of a member are revoked before it rejoins, and most of them assigned to it again. The member itself
    reports to the leader which ones it had: this object remembers them from one rebalance to the next.
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
        claims = {member: decode_claim(subscription.user_data) for member, subscription in members.items()}
        result, _ = _assign(partitions, members, claims)
        return result


class CooperativeStickyAssignor(Assignor):
    """Balanced; members keep their partitions, and read them during the rebalance, as far as the balance allows.

    A partition that moves is not assigned at once: it is first revoked from its owner, which rejoins, and the next
    rebalance assigns it.
    """

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """The generation of the last assignment, for leaders that do not read it from the subscription."""
        return encode_generation(self._generation)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """See :meth:`Assignor.assigned`."""
        self._generation = generation

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignments:
        """See :meth:`Assignor.assign`; partitions that must be revoked first are not assigned."""
        claims = {
            member: Claim(one.owned, one.generation if one.generation >= 0 else decode_generation(one.user_data))
            for member, one in members.items()
        }
        result, moving = _assign(partitions, members, claims)
        if moving is None:
            moving = _moving(members, result)
        return {member: [tp for tp in assigned if tp not in moving] for member, assigned in result.items()}


def _assign(
    partitions: Mapping[str, int], members: Mapping[str, MemberSubscription], claims: Mapping[str, Claim]
) -> _Assigned:
    """The assignment, and the partitions that another member has owned until now; None if they are not known."""
    if not members:
        return {}, None
    # Imported here: all members can be asked to use these assignors, and only a leader assigns.
    now = import_module(f"{__package__}.ownership").resolve_ownership(partitions, members, claims)
    if now.equal:
        return cast("_Assigned", import_module(f"{__package__}.constrained").assign_constrained(now))
    return import_module(f"{__package__}.general").assign_general(now), None


def _moving(members: Mapping[str, MemberSubscription], result: Assignments) -> frozenset[TopicPartition]:
    """The partitions that one member receives while another one owns them."""
    owned = {member: frozenset(subscription.owned) for member, subscription in members.items()}
    added = {tp for member, assigned in result.items() for tp in assigned if tp not in owned[member]}
    return frozenset(tp for had in owned.values() for tp in had if tp in added)
