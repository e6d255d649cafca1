"""The member that owns each partition of a group. Pure.

A partition is given away only after its owner has reported that it does not own it any more, or is gone.
"""

from collections.abc import Mapping

from barnabas_broker.groups.consumer.assignment import Target
from barnabas_broker.groups.consumer.members import ConsumerGroupMember, Owned


class Owners:
    """The owners of partitions.

    Attributes:
        by_topic: the id of the member that owns each partition, by topic id.
    """

    __slots__ = ("by_topic",)

    def __init__(self) -> None:
        self.by_topic: dict[bytes, dict[int, str]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_topic.values()))

    def change(self, member: ConsumerGroupMember, kept_before: Owned, revoking_before: Owned) -> None:
        """Note what a member owns now, and give back what it does not own any more.

        Thousands of topics may not have changed: those are the very objects that they were.

        Args:
            member: as it is now.
            kept_before: what it was assigned before.
            revoking_before: what it had to revoke before.
        """
        assigned, revoking, member_id, all_owners = member.assigned, member.revoking, member.member_id, self.by_topic
        nothing: Mapping[int, int] = {}
        for before in (kept_before, revoking_before):
            for topic_id, partitions in before.items():
                kept = assigned.get(topic_id, nothing)
                if kept is partitions:
                    continue
                left, owners = revoking.get(topic_id, nothing), all_owners.get(topic_id)
                if left is partitions or owners is None:
                    continue
                for partition in partitions:
                    if partition not in kept and partition not in left and owners.get(partition) == member_id:
                        del owners[partition]
                if not owners:
                    del all_owners[topic_id]
        for after in (assigned, revoking):
            for topic_id, partitions in after.items():
                before_it = kept_before.get(topic_id, nothing)
                if partitions is before_it or (before_it and partitions.keys() <= before_it.keys()):
                    continue
                owned, owners = dict.fromkeys(partitions, member_id), all_owners.get(topic_id)
                if owners is None:
                    all_owners[topic_id] = owned
                else:
                    owners.update(owned)

    def give(self, topic_id: bytes, partition: int, member_id: str) -> None:
        """Give a partition to a member, from another one if that has it."""
        self.by_topic.setdefault(topic_id, {})[partition] = member_id

    def others(self, target: Target, member_id: str) -> dict[str, dict[bytes, list[int]]]:
        """The partitions of a member's target that others own: by their member id, then by topic id."""
        out: dict[str, dict[bytes, list[int]]] = {}
        for topic_id, wanted in target.items():
            owners = self.by_topic.get(topic_id, {})
            for partition in sorted(wanted):
                owner = owners.get(partition, member_id)
                if owner != member_id:
                    out.setdefault(owner, {}).setdefault(topic_id, []).append(partition)
        return out

    def ids_of_others(self, target: Target, member_id: str) -> set[str]:
        """The ids of the other members that own partitions of a member's target."""
        ids: set[str] = set()
        for topic_id, wanted in target.items():
            if of_topic := self.by_topic.get(topic_id):
                ids.update(of_topic.get(partition, member_id) for partition in wanted)
        return ids - {member_id}
