"""What every assignor has, and what it is given. Pure.

Sources: ``ConsumerPartitionAssignor.java``, ``AbstractPartitionAssignor.java``; KIP-429 for the two rebalance
protocols, KIP-792 for the generation, KIP-881 for racks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from barnabas_client.structs import TopicPartition

#: What each member gets, by member id.
Assignments = dict[str, list[TopicPartition]]

#: The racks where a topic's partitions have replicas, by partition number.
Racks = Sequence[frozenset[str]]


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


class PartitionCounts(dict[str, int]):
    """How many partitions each topic has, and in `racks`, where known, the racks of each partition's replicas."""

    __slots__ = ("racks",)

    def __init__(self, counts: Mapping[str, int], racks: Mapping[str, Racks] | None = None) -> None:
        super().__init__(counts)
        self.racks: Mapping[str, Racks] = racks or {}

    @classmethod
    def of(cls, counts: Mapping[str, int], topics: Iterable[str], *, with_racks: bool) -> "PartitionCounts":
        """Of these topics only, of those that exist."""
        known = [topic for topic in topics if topic in counts]
        racks = counts.racks if with_racks and isinstance(counts, PartitionCounts) else {}
        return cls(
            {topic: counts[topic] for topic in known}, {topic: racks[topic] for topic in known if topic in racks}
        )

    def changed(self, before: "PartitionCounts") -> list[str]:
        """The topics for which something else was known before."""
        return sorted(
            topic
            for topic in self.keys() | before.keys()
            if (self.get(topic), self.racks.get(topic)) != (before.get(topic), before.racks.get(topic))
        )


class Assignor(Protocol):
    """Distributes partitions over the members of a group. One object belongs to one consumer."""

    @property
    def name(self) -> str:
        """What members call it when they join; all members of a group must share one."""

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        """The rebalance protocols it works with; unless told otherwise, the eager one."""
        return EAGER_ONLY

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """What this member tells the leader beside its topics; None for nothing. Called before each join."""
        return None

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignments:
        """Decide.

        Args:
            partitions: the number of partitions of each topic that exists and that a member subscribes to; a
                :class:`PartitionCounts` if racks are known.
            members: subscriptions by member id, in the coordinator's order.

        Returns:
            The partitions of each member; one that is missing gets none.
        """

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Told on every member what it got, when a generation begins."""
        return


def in_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids in the order that Kafka's `range` and `roundrobin` give them: static members first, by instance id."""

    def rank(member: str) -> tuple[bool, bytes]:
        instance = members[member].instance_id
        return (True, java_order(member)) if instance is None else (False, java_order(instance))

    return sorted(members, key=rank)


def java_order(text: str) -> bytes:
    """A sort key that orders as Java does, by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def racks_of(partitions: Mapping[str, int], topic: str) -> Racks:
    """The racks of a topic's partitions; of none if unknown."""
    known = partitions.racks.get(topic, ()) if isinstance(partitions, PartitionCounts) else ()
    count = partitions[topic]
    return [*known[:count], *[frozenset[str]()] * (count - len(known))]


def racks_matter(members: Iterable[str], partitions: Sequence[frozenset[str]]) -> bool:
    """Whether the choice of the member changes who reads from a replica in its own rack (KIP-881).

    Args:
        members: the racks that members are in.
        partitions: the racks of each partition.
    """
    everywhere = frozenset().union(*partitions)
    return not everywhere.isdisjoint(members) and any(racks != everywhere for racks in partitions)
