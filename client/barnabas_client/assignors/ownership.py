"""The start of the sticky assignors: subscriptions, current owners, and racks. Pure.

Source: ``AbstractStickyAssignor.java`` (``allSubscriptionsEqual``, ``prepopulateCurrentAssignments``, ``RackInfo``).
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_client.assignors.base import MemberSubscription, Racks, racks_matter, racks_of
from barnabas_client.assignors.java_hash import hash_order
from barnabas_client.assignors.user_data import NO_GENERATION, Claim
from barnabas_client.structs import TopicPartition

#: An ordered set of partitions.
Owned = dict[TopicPartition, None]


class Ownership(NamedTuple):
    """State before partitions are assigned. All mappings by member have Java's order.

    Attributes:
        counts: partitions of each topic that exists and has a subscriber.
        topics: the subscribed topics of each member, of these.
        equal: whether all members subscribe to the same topics.
        owned: the partitions of each member; each partition has at most one owner.
        disputed: partitions that two members claimed for the same generation. They have no owner.
        former: the member that claims a partition for an older generation than the newest.
        homes: the rack of each member that has one; empty if racks make no difference.
        racks: of each topic's partitions; empty if racks make no difference.
    """

    counts: Mapping[str, int]
    topics: Mapping[str, frozenset[str]]
    equal: bool
    owned: Mapping[str, Owned]
    disputed: frozenset[TopicPartition]
    former: Mapping[TopicPartition, str]
    homes: Mapping[str, str]
    racks: Mapping[str, Racks]

    def far(self, member: str, tp: TopicPartition) -> bool:
        """Whether the member would have to fetch the partition from another rack."""
        return member in self.homes and self.homes[member] not in self.racks[tp.topic][tp.partition]


def resolve_ownership(
    partitions: Mapping[str, int], members: Mapping[str, MemberSubscription], claims: Mapping[str, Claim]
) -> Ownership:
    """Decide which claims of the members count.

    Args:
        partitions: see :meth:`~barnabas_client.assignors.base.Assignor.assign`.
        members: see there.
        claims: the partitions that each member claims to own.
    """
    order = hash_order(members)
    wanted = {member: frozenset(members[member].topics) for member in order}
    subscribed = frozenset().union(*wanted.values())
    counts = {topic: count for topic, count in partitions.items() if topic in subscribed and count > 0}
    owned, disputed = _owned(order, members, claims, counts)
    homes, racks = _racks(partitions, counts, order, members)
    return Ownership(
        counts=counts,
        topics={member: topics & counts.keys() for member, topics in wanted.items()},
        equal=len(set(wanted.values())) <= 1,
        owned=owned,
        disputed=disputed,
        former=_former(order, claims),
        homes=homes,
        racks=racks,
    )


def _owned(
    order: list[str],
    members: Mapping[str, MemberSubscription],
    claims: Mapping[str, Claim],
    counts: Mapping[str, int],
) -> tuple[dict[str, Owned], frozenset[TopicPartition]]:
    """The newest claim to a partition counts; of two for the same generation, none."""
    owned: dict[str, Owned] = {member: {} for member in order}
    owners: dict[TopicPartition, str] = {}
    disputed: set[TopicPartition] = set()
    for member in order:
        claimed, generation = claims[member]
        for tp in dict.fromkeys(claimed):
            if not 0 <= tp.partition < counts.get(tp.topic, 0):
                continue
            other = owners.get(tp)
            if other is not None:
                # As in Kafka: the other member's generation is that of its subscription, not that of its user data.
                if generation < members[other].generation:
                    continue
                owned[other].pop(tp, None)
                if generation == members[other].generation:
                    disputed.add(tp)
            if other is None or generation > members[other].generation:
                owned[member][tp] = None
            owners[tp] = member
    return owned, frozenset(disputed)


def _former(order: list[str], claims: Mapping[str, Claim]) -> dict[TopicPartition, str]:
    newest = max((claim.generation for claim in claims.values()), default=NO_GENERATION)
    former: dict[TopicPartition, tuple[str, int]] = {}
    for member in order:
        claimed, generation = claims[member]
        if generation < max(newest, NO_GENERATION):
            for tp in claimed:
                if tp not in former or generation > former[tp][1]:
                    former[tp] = member, generation
    return {tp: member for tp, (member, _) in former.items()}


def _racks(
    partitions: Mapping[str, int],
    counts: Mapping[str, int],
    order: list[str],
    members: Mapping[str, MemberSubscription],
) -> tuple[dict[str, str], dict[str, Racks]]:
    homes = {member: rack for member in order if (rack := members[member].rack)}
    if not homes:
        return {}, {}
    racks = {topic: racks_of(partitions, topic) for topic in counts}
    matter = racks_matter(set(homes.values()), [near for topic in racks.values() for near in topic])
    return (homes, racks) if matter else ({}, {})
