"""The port between a group's machine and the assignors that run in the coordinator. Pure.

An assignor gets the members, what they subscribe to and what their target has been (:class:`GroupSpec`), and returns
the target of each member. It may run in a thread: a spec is never changed once it is made.

Source: Kafka's ``ConsumerGroupPartitionAssignor``, ``GroupSpec``, ``SubscribedTopicDescriber``.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

#: Partitions by topic id.
Partitions = Mapping[bytes, Collection[int]]


class Topic(NamedTuple):
    """A topic as assignors and the metadata hash see it.

    Attributes:
        topic_id: its id, 16 bytes.
        name: its name.
        partitions: number of its partitions.
        racks: for each partition the racks of its replicas, one for each replica whose rack is known (the metadata hash
            counts equal ones); () if no rack is known.
    """

    topic_id: bytes
    name: str
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()


class MemberSpec(NamedTuple):
    """A member as assignors see it.

    Attributes:
        topic_ids: the topics that it subscribes to and that exist, those that its regular expression matches included.
        assigned: its target so far: sets of partitions by topic id, each of them not empty.
        instance_id: of a static member.
        rack_id: its rack, if it says so.
    """

    topic_ids: frozenset[bytes]
    assigned: Mapping[bytes, frozenset[int]]
    instance_id: str | None = None
    rack_id: str | None = None


class GroupSpec(NamedTuple):
    """What an assignor decides on.

    Attributes:
        members: by member id.
        topics: by topic id: every topic that a member subscribes to.
    """

    members: Mapping[str, MemberSpec]
    topics: Mapping[bytes, Topic]

    @property
    def homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        members = iter(self.members.values())
        first = next(members, None)
        if first is None:
            return True
        topics = first.topic_ids
        return all(member.topic_ids is topics or member.topic_ids == topics for member in members)


class Assign(NamedTuple):
    """Compute a target assignment, then report with ``ConsumerGroup.assigned`` or ``assign_failed``."""

    ticket: int
    assignor: str
    spec: GroupSpec


class Assignor(Protocol):
    """Computes target assignments. Pure: the same spec gives the same target."""

    @property
    def name(self) -> str:
        """What clients call it in ``group.remote.assignor``."""

    def assign(self, spec: GroupSpec) -> Mapping[str, Partitions]:
        """The target of each member; a member without partitions may be missing.

        Raises:
            ValueError: the group cannot be assigned.
        """
