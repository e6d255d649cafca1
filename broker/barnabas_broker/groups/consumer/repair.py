"""Damage to the records of a group, some of which a disk has lost. Pure."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from barnabas_broker.groups.consumer.assignment import Target
from barnabas_broker.groups.consumer.members import ConsumerGroupMember, CurrentAssignment, Owned
from barnabas_broker.groups.consumer.topics import TopicCatalog


class Superseded(NamedTuple):
    """A partition that the records give to two members.

    Attributes:
        topic_id: of its topic.
        partition: its number.
        by: the member that got it last. It got it when the other one had revoked it, which the disk has forgotten.
        member: the other one.
    """

    topic_id: bytes
    partition: int
    by: ConsumerGroupMember
    member: ConsumerGroupMember

    def left(self) -> CurrentAssignment:
        """The other member without the partition."""

        def without(owned: Owned) -> Owned:
            left = dict(owned)
            of_topic = owned.get(self.topic_id, {})
            left[self.topic_id] = {each: epoch for each, epoch in of_topic.items() if each != self.partition}
            return {key: epochs for key, epochs in left.items() if epochs}

        member = self.member
        return member.current()._replace(assigned=without(member.assigned), revoking=without(member.revoking))


def superseded(members: Iterable[ConsumerGroupMember]) -> Iterator[Superseded]:
    """The partitions that belong to more than one member. Each has to be taken from its former owner at once."""
    owners: dict[tuple[bytes, int], tuple[bool, int, ConsumerGroupMember]] = {}
    for member in members:
        for keeps, owned in ((True, member.assigned), (False, member.revoking)):
            for topic_id, epochs in owned.items():
                for partition, epoch in epochs.items():
                    claim = (keeps, epoch, member)
                    other = owners.setdefault((topic_id, partition), claim)
                    if other[2] is member:
                        continue
                    newest, oldest = (claim, other) if other[:2] < claim[:2] else (other, claim)
                    owners[topic_id, partition] = newest
                    yield Superseded(topic_id, partition, newest[2], oldest[2])


def targets_fit(targets: Collection[Target], subscribed: Iterable[str], topics: TopicCatalog) -> bool:
    """Whether each partition is in the target of one member.

    Args:
        targets: of all members.
        subscribed: the names of the topics that the group is subscribed to.
        topics: of the cluster.
    """
    assigned: dict[bytes, list[int]] = {}
    for target in targets:
        for topic_id, numbers in target.items():
            assigned.setdefault(topic_id, []).extend(numbers)
    if any(len(set(numbers)) < len(numbers) for numbers in assigned.values()):
        return False
    wanted = (topics.by_name[name] for name in subscribed if name in topics.by_name)
    return all(len(assigned.get(each.topic_id, ())) >= each.partitions for each in wanted)
