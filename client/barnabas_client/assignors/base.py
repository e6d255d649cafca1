"""The interface of assignors, and what they receive. Pure.

Sources: ``ConsumerPartitionAssignor.java``, ``AbstractPartitionAssignor.java``; KIP-429 for the two rebalance
protocols, KIP-792 for the generation, KIP-881 for racks.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from barnabas_client.structs import TopicPartition

#: The partitions of each member, by member id.
Assignments = dict[str, list[TopicPartition]]

#: The racks where a topic's partitions have replicas, by partition number.
Racks = Sequence[frozenset[str]]


class RebalanceProtocol(Enum):
    """When a member's partitions are revoked in a rebalance (KIP-429)."""

    #: All of them, before the member rejoins.
    EAGER = auto()
    #: Those that the new assignment moves to other members, after it is known. The member then rejoins, so that they
    #: can be assigned.
    COOPERATIVE = auto()


EAGER_ONLY: Final = frozenset({RebalanceProtocol.EAGER})


class MemberSubscription(NamedTuple):
    """A member's subscription, as it sent it when it joined.

    Attributes:
        topics: that it subscribes to.
        owned: partitions that it owned when it joined; empty if they were revoked before.
        generation: the generation in which they were assigned, -1 if unknown (KIP-792).
        user_data: bytes of the assignor, from :meth:`Assignor.user_data` of that member.
        instance_id: of a static member.
        rack: of the member.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    user_data: bytes | None = None
    instance_id: str | None = None
    rack: str | None = None


class PartitionCounts(dict[str, int]):
    """How many partitions each topic has.

    Attributes:
        counts: the number of partitions by topic, which is the dictionary itself.
        racks: where known, the racks of each partition's replicas, by topic.
    """

    __slots__ = ("racks",)

    def __init__(self, counts: Mapping[str, int], racks: Mapping[str, Racks] | None = None) -> None:
        super().__init__(counts)
        self.racks: Mapping[str, Racks] = racks or {}

    @classmethod
    def of(cls, counts: Mapping[str, int], topics: Iterable[str], *, with_racks: bool) -> "PartitionCounts":
        """The counts of these topics, if they exist."""
        known = [topic for topic in topics if topic in counts]
        racks = counts.racks if with_racks and isinstance(counts, PartitionCounts) else {}
        return cls(
            {topic: counts[topic] for topic in known}, {topic: racks[topic] for topic in known if topic in racks}
        )

    def changed(self, before: "PartitionCounts") -> list[str]:
        """The topics that differ from `before`."""
        return sorted(
            topic
            for topic in self.keys() | before.keys()
            if (self.get(topic), self.racks.get(topic)) != (before.get(topic), before.racks.get(topic))
        )


class Assignor(Protocol):
    """Assigns partitions to the members of a group. Each consumer has an object of its own."""

    @property
    def name(self) -> str:
        """Its name in JoinGroup; all members of a group need one in common."""

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        """The rebalance protocols that it supports; the eager one by default."""
        return EAGER_ONLY

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """Bytes to send to the leader beside the topics; None for none. Called before each join."""
        return None

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignments:
        """Compute the assignment. Called on the leader.

        Args:
            partitions: the number of partitions of each topic that exists and that a member subscribes to; a
                :class:`PartitionCounts` if racks are known.
            members: subscriptions by member id, in the coordinator's order.

        Returns:
            The partitions of each member; members that are missing receive none.
        """

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Receives the member's own assignment. Called on every member, when a generation begins."""
        return


def in_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids in the order of Kafka's `range` and `roundrobin`: static members first, by instance id."""

    def rank(member: str) -> tuple[bool, "array[int]"]:
        instance = members[member].instance_id
        return (True, java_order(member)) if instance is None else (False, java_order(instance))

    return sorted(members, key=rank)


def java_order(text: str) -> "array[int]":
    """A sort key that orders strings as Java does, by UTF-16 units."""
    # Python imports a module for "utf-16-be", which takes a millisecond of a process's first rebalance.
    return array("H", text.encode("utf-16", "surrogatepass"))


def racks_of(partitions: Mapping[str, int], topic: str) -> Racks:
    """The racks of each of a topic's partitions; empty if unknown."""
    known = partitions.racks.get(topic, ()) if isinstance(partitions, PartitionCounts) else ()
    count = partitions[topic]
    return [*known[:count], *[frozenset[str]()] * (count - len(known))]


def racks_matter(members: Iterable[str], partitions: Sequence[frozenset[str]]) -> bool:
    """Whether racks make a difference: some assignments let members fetch from their own rack, others do not (KIP-881).

    Args:
        members: the racks of the members.
        partitions: the racks of each partition.
    """
    everywhere = frozenset().union(*partitions)
    return not everywhere.isdisjoint(members) and any(racks != everywhere for racks in partitions)
