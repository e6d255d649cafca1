"""The next assignment of a member on its way to its target. Pure: functions of the member and of what the group knows.

A member revokes first what is not in its target. When it has reported that, it gets the target's epoch, and those
partitions of the target that no other member owns; the others follow as their owners revoke them.

Source: Kafka's ``CurrentAssignmentBuilder``.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_broker.groups.consumer.assignment import Target, Topic
from barnabas_broker.groups.consumer.members import ConsumerGroupMember, CurrentAssignment, Owned
from barnabas_protocol.coordinator_records import MemberState


class Goal(NamedTuple):
    """Where a member is to get, and what is in its way.

    Attributes:
        target: its target.
        epoch: the group epoch of the target.
        names: the names of the topics that it subscribes to.
        topics: the topics that exist, by id.
        owners: the member that owns each partition.
    """

    target: Target
    epoch: int
    names: frozenset[str]
    topics: Mapping[bytes, Topic]
    owners: Mapping[bytes, Mapping[int, str]]

    def subscribes(self, topic_id: bytes) -> bool:
        """Whether the member subscribes to a topic, and it exists."""
        topic = self.topics.get(topic_id)
        return topic is not None and topic.name in self.names


def next_assignment(
    member: ConsumerGroupMember, reported: Target | None, goal: Goal, *, subscription_changed: bool
) -> CurrentAssignment | None:
    """The member's next assignment; None if it stays as it is.

    Args:
        member: as it is.
        reported: the partitions that it reports as owned; None if it reports none, because nothing has changed.
        goal: where it is to get.
        subscription_changed: whether it subscribes to something else than before.
    """
    waits = member.state is MemberState.UNREVOKED_PARTITIONS and owns(reported, member.revoking)
    if not waits and not member.is_reconciled_to(goal.epoch):
        return _towards_target(member, reported, goal)
    return _without_unsubscribed(member, reported, goal) if subscription_changed else None


def _towards_target(member: ConsumerGroupMember, reported: Target | None, goal: Goal) -> CurrentAssignment:
    """One step to the target: the member revokes first, then it gets the partitions that are free."""
    target, epoch, me = goal.target, goal.epoch, member.member_id
    keep: dict[bytes, Mapping[int, int]] = {}
    revoke: dict[bytes, Mapping[int, int]] = {}
    free: dict[bytes, list[int]] = {}
    unreleased = False
    nothing: frozenset[int] = frozenset()
    # In the order of the target, so that sorting for the record and the response has little to do.
    for topic_id in {**target, **member.assigned}:
        wanted = target.get(topic_id, nothing) if goal.subscribes(topic_id) else nothing
        missing = wanted
        owned = member.assigned.get(topic_id)
        if owned:
            if owned.keys() <= wanted:
                # The very object: thousands of topics do not change.
                keep[topic_id] = owned
                if len(owned) == len(wanted):
                    continue
                missing = wanted - owned.keys()
            elif not wanted:
                # The very object, too: no other member becomes its owner yet.
                revoke[topic_id] = owned
            else:
                kept = {partition: epoch for partition, epoch in owned.items() if partition in wanted}
                revoke[topic_id] = {each: epoch for each, epoch in owned.items() if each not in wanted}
                if kept:
                    keep[topic_id] = kept
                    missing = wanted - kept.keys()
        if not missing:
            continue
        owners = goal.owners.get(topic_id)
        # What the member has just revoked is still its own.
        available = [each for each in missing if owners.get(each, me) == me] if owners else [*missing]
        if len(available) < len(missing):
            unreleased = True
        if available:
            free[topic_id] = available
    if revoke and owns(reported, revoke):
        return CurrentAssignment(MemberState.UNREVOKED_PARTITIONS, member.epoch, member.epoch, keep, revoke)
    for topic_id, available in free.items():
        gained = dict.fromkeys(available, epoch)
        kept_before = keep.get(topic_id)
        keep[topic_id] = gained if kept_before is None else {**kept_before, **gained}
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return CurrentAssignment(state, epoch, member.epoch, keep, {})


def _without_unsubscribed(member: ConsumerGroupMember, reported: Target | None, goal: Goal) -> CurrentAssignment | None:
    """A member has unsubscribed from topics: it revokes their partitions without waiting for a new target."""
    keep = {topic_id: owned for topic_id, owned in member.assigned.items() if goal.subscribes(topic_id)}
    if len(keep) == len(member.assigned):
        return None
    revoke = {topic_id: dict(owned) for topic_id, owned in member.revoking.items()}
    for topic_id, owned in member.assigned.items():
        if topic_id not in keep:
            revoke.setdefault(topic_id, {}).update(owned)
    if owns(reported, revoke):
        return CurrentAssignment(MemberState.UNREVOKED_PARTITIONS, member.epoch, member.epoch, keep, revoke)
    return CurrentAssignment(member.state, member.epoch, member.epoch, keep, member.revoking)


def owns(reported: Target | None, revoking: Owned) -> bool:
    """Whether a member may still own partitions that it has to revoke. It does not if it reports none of them."""
    if reported is None:
        return bool(revoking)
    return any(not partitions.isdisjoint(revoking.get(topic_id, ())) for topic_id, partitions in reported.items())


def has_more(reported: Target, member: ConsumerGroupMember) -> bool:
    """Whether a member reports partitions that it does not own."""
    assigned, revoking = member.assigned, member.revoking
    nothing: Mapping[int, int] = {}
    return any(
        not partitions <= assigned.get(topic_id, nothing).keys()
        and not partitions <= assigned.get(topic_id, nothing).keys() | revoking.get(topic_id, nothing).keys()
        for topic_id, partitions in reported.items()
    )


def without(one: Owned, other: Owned) -> dict[bytes, set[int]]:
    """The partitions of one that the other does not have."""
    found = {topic_id: partitions.keys() - other.get(topic_id, {}).keys() for topic_id, partitions in one.items()}
    return {topic_id: partitions for topic_id, partitions in found.items() if partitions}


def same_partitions(one: Owned, other: Owned) -> bool:
    """Whether both are the same partitions, whatever their epochs."""
    return one is other or (
        one.keys() == other.keys() and all(one[topic_id].keys() == other[topic_id].keys() for topic_id in one)
    )
