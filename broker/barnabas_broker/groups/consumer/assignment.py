"""The port between a group's machine and the assignors that run in the coordinator. Pure.

An assignor gets the members, what they subscribe to and what their target has been (:class:`GroupSpec`), and returns
the target of each member. It may run in a thread: a spec is never changed once it is made.

Source: Kafka's ``ConsumerGroupPartitionAssignor``, ``GroupSpec``, ``SubscribedTopicDescriber``.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol, Self

from barnabas_protocol.coordinator_records import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    CoordinatorRecord,
    TargetTopicPartition,
)

#: Partitions by topic id.
Partitions = Mapping[bytes, Collection[int]]

#: Sets of partitions by topic id, without empty ones.
Target = Mapping[bytes, frozenset[int]]


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
    assigned: Target
    instance_id: str | None = None
    rack_id: str | None = None


class GroupSpec(NamedTuple):
    """Input of an assignor.

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


class NewTargets(NamedTuple):
    """Result of an assignor, compared with the targets before: the group takes it over without much work.

    Attributes:
        targets: of each member of the spec. The very object that the spec has if it is not changed.
        changed: the members that get another target.
        records: the record of each changed target, with the target.
        losing: the members that get another target without some of their partitions.
    """

    targets: dict[str, Target]
    changed: set[str]
    records: Mapping[str, tuple[Target, CoordinatorRecord]]
    losing: Collection[str] = ()

    @classmethod
    def of(cls, group_id: str, spec: GroupSpec, result: Mapping[str, Partitions]) -> Self:
        """Compare the result of an assignor with the targets of its spec. May run in a thread, as assignors do."""
        targets: dict[str, Target] = {}
        records: dict[str, tuple[Target, CoordinatorRecord]] = {}
        losing: set[str] = set()
        nothing: Target = {}
        for member_id, member in spec.members.items():
            target = before = member.assigned
            given = result.get(member_id, nothing)
            if given is not before:
                # Sorted here, where it may run in a thread: sorting again, on the event loop, takes little then.
                target = {topic_id: frozenset(given[topic_id]) for topic_id in sorted(given) if given[topic_id]}
                if target == before:
                    target = before
                else:
                    records[member_id] = target, target_record(group_id, member_id, target)
                    if not all(before[topic_id] <= target.get(topic_id, frozenset()) for topic_id in before):
                        losing.add(member_id)
            targets[member_id] = target
        return cls(targets, set(records), records, losing)


def target_record(group_id: str, member_id: str, target: Target | None) -> CoordinatorRecord:
    """The record of a member's target; a tombstone without one."""
    return (
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        None
        if target is None
        else ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TargetTopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(target.items())
            ]
        ),
    )


class Assign(NamedTuple):
    """Compute a target assignment, then report with ``ConsumerGroup.assigned`` or ``assign_failed``."""

    ticket: int
    assignor: str
    spec: GroupSpec


class Assignor(Protocol):
    """Computes target assignments. Pure: the same spec gives the same target."""

    @property
    def name(self) -> str:
        """Its name in ``group.remote.assignor`` of clients."""

    def assign(self, spec: GroupSpec) -> Mapping[str, Partitions]:
        """The target of each member; a member without partitions may be missing.

        Raises:
            ValueError: the group cannot be assigned.
        """
