"""Migration of groups between the classic and the consumer protocol while they have members (KIP-848). Pure.

How it works, with ``group.consumer.migration.policy`` = ``bidirectional``, the default::

    classic group --a member of the consumer protocol joins (upgrade)--> group of the consumer protocol
    group of the consumer protocol --its last member of that protocol is gone (downgrade)--> classic group

- **Upgrade.** The group epoch is the generation, and each member owns the partitions that it was assigned; then the
  new member joins, which bumps the epoch. Deferred JoinGroups and SyncGroups get REBALANCE_IN_PROGRESS. A group with
  another protocol type than "consumer", or whose leader gives data of its own to the members, is not upgraded.
- **In between**, members of the classic protocol go on with JoinGroup, SyncGroup and Heartbeat: their generation is
  their member epoch, JoinGroup reports what they own and reconciles them, SyncGroup returns what they may own, and
  Heartbeat asks them to rejoin when their target changes. The coordinator assigns, so that none of them leads.
- **Downgrade.** The generation is the group epoch, and each member's assignment is its target. The classic group
  rebalances at once.
- Either way the records that delete the one group and make the other are appended together, in Kafka's order, and the
  request that has caused it gets its response when they are in the log.

Source: ``GroupMetadataManager`` (convertToConsumerGroup, convertToClassicGroup), ``ConsumerGroup.fromClassicGroup``,
``ClassicGroup.fromConsumerGroup``. Better here:

- a group that has not yet formed its first generation is upgraded, too; and the epoch grows with an upgrade by a static
  member if a partition has no owner or the group was rebalancing, so that all partitions are assigned;
- a partition that a leader has given to two members goes to the first;
- members without an assignment, because a rebalance began again before it was over, keep what they say that they own:
  others would get it while they still work on it;
- a leader that only gives back what the members have sent, as librdkafka's sticky assignor does, does not stop the
  upgrade;
- a member of the classic protocol that was removed and rejoins with partitions gets UNKNOWN_MEMBER_ID, as in a classic
  group: others may have them already;
- a downgrade by a static member that comes back rebalances as others do: without a rebalance no member would lead, and
  none would notice that a topic grows, and members that wait for partitions would not get them;
- if only members of the classic protocol remain and the policy does not downgrade, targets are computed without
  heartbeats.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from barnabas_broker.groups.classic.group import ClassicGroup, GroupSettings
from barnabas_broker.groups.classic.members import ClassicGroupMember
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.consumer.classic_members import (
    ClassicMetadata,
    Subscription,
    assignment_of,
    read_assignment,
    read_subscription,
    version_of,
)
from barnabas_broker.groups.consumer.group import RECORD_BYTES, ConsumerGroup, ConsumerGroupSettings, Downgrade
from barnabas_broker.groups.consumer.members import ConsumerGroupMember
from barnabas_broker.groups.effects import Effect, EventType, GroupEvent
from barnabas_broker.groups.subscriptions import CONSUMER
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Reads the subscription of a member, or raises ValueError.
Read = Callable[[bytes], Subscription]


def upgrade(group: ClassicGroup, settings: ConsumerGroupSettings, now: float) -> ConsumerGroup:
    """The group of the consumer protocol that a classic group becomes; the classic group is not changed.

    Args:
        group: the classic group, with members.
        settings: of groups of the consumer protocol.
        now: the time.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND; the group cannot be upgraded.
    """
    if not settings.migration.upgrades:
        raise _refusal(group, "online upgrade is disabled.")
    if group.protocol_type != CONSUMER:
        raise _refusal(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > settings.max_size:
        raise _refusal(group, "the group size exceeds the consumer group maximum size.")
    taken: set[tuple[bytes, int]] = set()
    members = []
    # Each is read once: the members of a group may be thousands.
    read = cache(read_subscription)
    sent = _sent_by_members(group, read)
    size = 0
    if group.members.protocol is not None:
        for member in group.members:
            upgraded = _upgraded(group, member, settings, read, sent, taken, now)
            members.append(upgraded)
            size += _bytes_of(upgraded, group.group_id)
    if size > settings.max_record_bytes:
        raise _refusal(group, "the records of its members do not fit into one batch.")
    stable = group.state is ClassicGroupState.STABLE
    return ConsumerGroup.upgraded(group.group_id, settings, group.generation, members, stable, now)


def _bytes_of(member: ConsumerGroupMember, group_id: str) -> int:
    """The most bytes that the three records of a member take: itself, its target, and what it owns."""
    texts = (member.instance_id, member.rack_id, member.client_id, member.client_host, *member.topics)
    protocols = () if member.classic is None else member.classic.protocols
    return (
        3 * (RECORD_BYTES + len(group_id.encode()) + len(member.member_id.encode()))
        + sum(5 + len((text or "").encode()) for text in texts)
        + sum(10 + len(name.encode()) + len(metadata) for name, metadata in protocols)
        # In the target: the id of a topic, and each partition. In what it owns: its epoch as well.
        + sum(2 * 32 + 3 * 4 * len(partitions) for partitions in member.assigned.values())
    )


def _sent_by_members(group: ClassicGroup, read: Read) -> set[bytes]:
    """The data of the assignor that the members have sent for this generation, and since then."""
    subscriptions = [*group.subscriptions, *(member.metadata(group.members.protocol) for member in group.members)]
    sent = set()
    for subscription in dict.fromkeys(subscriptions):
        with suppress(ValueError):
            sent.add(read(subscription).user_data)
    return sent


def _upgraded(
    group: ClassicGroup,
    classic: ClassicGroupMember,
    settings: ConsumerGroupSettings,
    read: Read,
    sent: set[bytes],
    taken: set[tuple[bytes, int]],
    now: float,
) -> ConsumerGroupMember:
    """The member of a group of the consumer protocol that a classic member becomes."""
    try:
        subscription = read(classic.metadata(group.members.protocol) or classic.protocols[0][1])
        assigned, user_data = read_assignment(classic.assignment)
        for _, metadata in classic.protocols:
            version_of(metadata)
    except ValueError as error:
        raise _refusal(group, "the embedded consumer protocol is malformed.") from error
    if user_data and user_data not in sent:
        raise _refusal(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default"
            " assignor before re-attempting the upgrade.",
        )
    member = ConsumerGroupMember(classic.member_id, now)
    member.instance_id, member.rack_id = classic.instance_id, subscription.rack_id
    member.client_id, member.client_host = classic.client_id, classic.client_host
    member.rebalance_timeout_ms = round(classic.rebalance_timeout * 1000)
    member.topics = subscription.topics
    member.classic = ClassicMetadata(round(classic.session_timeout * 1000), classic.protocols)
    member.epoch = member.previous_epoch = group.generation
    owned: dict[bytes, dict[int, int]] = {}
    # Members with cooperative assignors go on with what they own during a rebalance; others say that they own nothing.
    for name, partitions in (assigned if classic.assignment else subscription.owned).items():
        topic = settings.topics.by_name.get(name)
        if topic is None:
            continue
        free = {each for each in partitions if (topic.topic_id, each) not in taken}
        taken.update((topic.topic_id, each) for each in free)
        if free:
            owned[topic.topic_id] = dict.fromkeys(sorted(free), group.generation)
    member.assigned = owned
    return member


def _refusal(group: ClassicGroup, why: str) -> KafkaError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {why}"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def upgraded_event(group: ClassicGroup, upgraded: ConsumerGroup, by: dict[str, Any]) -> GroupEvent:
    """The group event of an upgrade; `by` is the identity of the member that has joined."""
    members = [member for member in upgraded.members.values() if member.classic is not None]
    data = {"by": [by], "members": len(members), "state": group.state.value}
    return GroupEvent(EventType.GROUP_UPGRADED, group.generation, data)


def downgrade(
    group_id: str, effect: Downgrade, settings: GroupSettings, now: float
) -> tuple[ClassicGroup, list[Effect]]:
    """The classic group that a group of the consumer protocol becomes, and what it asks its shell to do.

    Args:
        group_id: the group's name.
        effect: of the group of the consumer protocol.
        settings: of classic groups.
        now: the time.
    """
    members = [_downgraded(member, member.classic, now) for member in effect.members if member.classic is not None]

    def assign(member: ClassicGroupMember, protocol: str | None) -> bytes:
        partitions = effect.assignments.get(member.member_id, {})
        return assignment_of(partitions, version_of(member.metadata(protocol) or member.protocols[0][1]))

    group, effects = ClassicGroup.downgraded(
        group_id, settings, effect.generation, members, assign, effect.records, effect.replies, now
    )
    by = [member.identity() for member in effect.by]
    data = {"cause": effect.cause.value, "by": by, "members": len(members)}
    event = GroupEvent(EventType.GROUP_DOWNGRADED, effect.generation, data)
    rebalance = group.rebalance(effect.rebalance, EventType.GROUP_DOWNGRADED, now, effect.by)
    return group, [event, *effects, *rebalance]


def _downgraded(member: ConsumerGroupMember, classic: ClassicMetadata, now: float) -> ClassicGroupMember:
    """The classic member that a member of the classic protocol becomes, without its assignment."""
    rebalance_ms = member.rebalance_timeout_ms if member.rebalance_timeout_ms >= 0 else classic.session_timeout_ms
    return ClassicGroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        classic.session_timeout_ms / 1000,
        rebalance_ms / 1000,
        classic.protocols,
        now,
    )
