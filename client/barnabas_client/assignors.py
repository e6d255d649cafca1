"""Who of a group gets which partitions: decided by the group's leader, a member, not by the broker.

An assignor is pure: partition counts and the members' subscriptions in, an assignment out, the same on every machine.
The results are those of Kafka's assignors for the same input, so that members in Python and in Java may lead the same
group in turns. That needs Kafka's order of members, too: static members first, by instance id, then the others by
member id (``AbstractPartition- Assignor.MemberInfo``).

A class of one's own needs no base class, only what :class:`Assignor` has. Sources: ``RangeAssignor.java``,
``RoundRobinAssignor.java``, ``ConsumerPartitionAssignor.java``; KIP-429 for the two rebalance protocols.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import cycle, islice
from typing import Final, Protocol

from barnabas_client.structs import TopicPartition

#: What each member gets, by member id.
Assignments = dict[str, list[TopicPartition]]


class RebalanceProtocol(Enum):
    """How a member behaves in a rebalance (KIP-429)."""

    EAGER = "gives up all partitions before it rejoins"
    COOPERATIVE = "keeps its partitions, gives up afterwards what the new assignment takes away, and then rejoins"


EAGER_ONLY: Final = frozenset({RebalanceProtocol.EAGER})


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member told when it joined.

    Attributes:
        topics: what it subscribes to.
        owned: what it held when it joined; empty if it gave up everything before.
        generation: the generation in which it got these, -1 if unknown (KIP-792).
        user_data: the assignor's own, from :meth:`Assignor.user_data` of that member.
        instance_id: of a static member.
        rack: where it is.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    user_data: bytes | None = None
    instance_id: str | None = None
    rack: str | None = None


class Assignor(Protocol):
    """Distributes partitions over the members of a group."""

    @property
    def name(self) -> str:
        """What members call it when they join; all members of a group must share one."""

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        """The rebalance protocols it works with."""

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """What this member tells the leader beside its topics; None for nothing. Called before each join."""

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignments:
        """Decide.

        Args:
            partitions: the number of partitions of each topic that exists and that a member subscribes to.
            members: subscriptions by member id.

        Returns:
            The partitions of each member; one that is missing gets none.
        """

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Told on every member what it got, when a generation begins."""


class _Stateless:
    """What assignors without a memory have in common."""

    protocols: frozenset[RebalanceProtocol] = EAGER_ONLY

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return None

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        pass


class RangeAssignor(_Stateless):
    """Each topic by itself: its partitions in order, cut into ranges, the first members one longer if they do not
    divide.

    Members with the same rank get the same partition numbers of all topics, which joins of topics rely on.
    """

    name = "range"

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignments:
        """See :meth:`Assignor.assign`."""
        result: Assignments = {member: [] for member in members}
        ordered = in_order(members)
        for topic in sorted(partitions):
            subscribed = [member for member in ordered if topic in members[member].topics]
            if not subscribed:
                continue
            each, longer = divmod(partitions[topic], len(subscribed))
            start = 0
            for rank, member in enumerate(subscribed):
                end = start + each + (rank < longer)
                result[member] += (TopicPartition(topic, number) for number in range(start, end))
                start = end
        return result


class RoundRobinAssignor(_Stateless):
    """All partitions of all topics in order, dealt out to the members in turn; who does not subscribe is passed
    over."""

    name = "roundrobin"

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignments:
        """See :meth:`Assignor.assign`."""
        result: Assignments = {member: [] for member in members}
        ordered = in_order(members)
        subscribed: defaultdict[str, set[str]] = defaultdict(set)
        for member in ordered:
            for topic in members[member].topics:
                subscribed[topic].add(member)
        turn = cycle(ordered)
        for topic in sorted(partitions):
            if not subscribed[topic]:
                continue
            for number in range(partitions[topic]):
                # A whole round at most: someone subscribes.
                member = next(one for one in islice(turn, len(ordered)) if one in subscribed[topic])
                result[member].append(TopicPartition(topic, number))
        return result


def in_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids in the order that Kafka's assignors give them: static members first, by instance id."""

    def rank(member: str) -> tuple[bool, str]:
        instance = members[member].instance_id
        return (True, member) if instance is None else (False, instance)

    return sorted(members, key=rank)
