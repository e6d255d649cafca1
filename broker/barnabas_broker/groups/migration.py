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
- **Downgrade.** The generation is the group epoch, and each member's assignment is what it owns. The classic group
  rebalances at once.
- Either way the records that delete the one group and make the other are appended together, in Kafka's order, and the
  request that has caused it gets its response when they are in the log.
- A large group is converted in steps. Until the last one it stays what it is for all who read it, and what would change
  it waits (``HostedGroups.change_protocol``). An upgrade of many members is appended before what the joining one adds.

Source: ``GroupMetadataManager`` (convertToConsumerGroup, convertToClassicGroup), ``ConsumerGroup.fromClassicGroup``,
``ClassicGroup.fromConsumerGroup``. Better here:

- records that are larger than a batch may be are compressed; only if that is not enough, an upgrade is refused with
  Kafka's UNKNOWN_SERVER_ERROR, and a group that is too large for a downgrade stays one of the consumer protocol;
- a group that has not yet formed its first generation is upgraded, too; and the epoch grows with an upgrade by a static
  member if a partition has no owner or the group was rebalancing, so that all partitions are assigned;
- a partition that a leader has given to two members goes to the first;
- members that have joined again keep what they say that they own, and so do members without an assignment, because a
  rebalance began again before it was over: others would get it while they still work on it. A member may not know its
  last assignment: its record was written, but the SyncGroup failed;
- a leader that only gives back what the members have sent, as librdkafka's sticky assignor does, does not stop the
  upgrade;
- a member of the classic protocol that was removed and rejoins with partitions gets UNKNOWN_MEMBER_ID, as in a classic
  group: others may have them already;
- a downgrade by a static member that comes back rebalances as others do: without a rebalance no member would lead, and
  none would notice that a topic grows, and members that wait for partitions would not get them;
- after a downgrade the assignment of a member is what it owns, and not its target as in Kafka: one that still has to
  revoke a partition goes on with it until it joins again, and an upgrade before that must not give it to another one;
- if only members of the classic protocol remain and the policy does not downgrade, targets are computed without
  heartbeats.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cache
from typing import Final

from barnabas_broker.groups.classic.group import ClassicGroup, GroupSettings
from barnabas_broker.groups.classic.members import ClassicGroupMember
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.consumer.classic_members import ClassicMetadata
from barnabas_broker.groups.consumer.group import (
    RECORD_BYTES,
    ConsumerGroup,
    Downgrade,
)
from barnabas_broker.groups.consumer.members import ConsumerGroupMember, Description
from barnabas_broker.groups.consumer.settings import ConsumerGroupSettings
from barnabas_broker.groups.consumer.validation import changes_instance, is_full
from barnabas_broker.groups.effects import Effect
from barnabas_broker.groups.embedded_protocol import (
    Subscription,
    assignment_of,
    read_assignment,
    read_subscription,
    version_of,
)
from barnabas_broker.steps import Steps
from barnabas_explain.catalog import GroupDowngraded, GroupUpgraded
from barnabas_explain.members import Member
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_protocol.subscriptions import CONSUMER

#: Reads the subscription of a member, or raises ValueError.
Read = Callable[[bytes], Subscription]

#: Members that are converted in one step; so many bytes of what is read count as one.
_MEMBERS_PER_STEP: Final = 100
_BYTES_PER_MEMBER: Final = 512


def check_upgrade(group: ClassicGroup, settings: ConsumerGroupSettings) -> None:
    """Check that a classic group may be upgraded, as far as that does not depend on what its members have sent.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND.
    """
    if not settings.migration.upgrades:
        raise _refusal(group, "online upgrade is disabled.")
    if group.protocol_type != CONSUMER:
        raise _refusal(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > settings.max_size:
        raise _refusal(group, "the group size exceeds the consumer group maximum size.")


def check_joins(group: ClassicGroup, request: ConsumerGroupHeartbeatRequest, settings: ConsumerGroupSettings) -> None:
    """Check that the group of the consumer protocol will accept the member that joins, before it is made for nothing.

    A client can repeat a request that is refused as often as it wants to.

    Raises:
        KafkaError: GROUP_MAX_SIZE_REACHED or INVALID_REQUEST.
    """
    if group.members.protocol is None:
        return  # No member has an assignment: none is upgraded.
    known = group.members.by_id.get(request.member_id)
    if known is None:
        if len(group.members) >= settings.max_size:
            raise is_full(settings)
    elif request.instance_id is not None and known.instance_id != request.instance_id:
        raise changes_instance(request.member_id, request.instance_id)


def upgrade(group: ClassicGroup, settings: ConsumerGroupSettings, now: float) -> Steps[ConsumerGroup]:
    """The group of the consumer protocol that a classic group becomes; the classic group is not changed.

    One step converts some of the members. Between two steps nothing else may change the group.

    Args:
        group: the classic group, with members; :func:`check_upgrade` has accepted it.
        settings: of groups of the consumer protocol.
        now: the time.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND; its members have sent what does not allow it. Or UNKNOWN_SERVER_ERROR, as in
            Kafka, if its records are too large to be appended together.
    """
    if any(_bytes_to_read(member) > settings.max_record_bytes for member in group.members):
        raise too_large(group)
    # A topic that changes meanwhile makes a new epoch.
    topics, version = settings.topics.by_name, settings.topics.version
    taken: dict[bytes, set[int]] = {}
    members = []
    # Each is read once: the members of a group may be thousands.
    read = cache(read_subscription)
    sent = yield from _sent_by_members(group, read)
    size = work = 0
    if group.members.protocol is not None:
        # What members say that they own counts more than what others were to get.
        for member in sorted(group.members, key=lambda member: not _claimed(group, member, read)):
            upgraded = _upgraded(group, member, topics, read, sent, taken, now)
            members.append(upgraded)
            size += _bytes_of(upgraded, group.group_id)
            if size > settings.max_migration_bytes:
                raise too_large(group)
            work += 1 + _bytes_to_read(member) // _BYTES_PER_MEMBER
            if work >= _MEMBERS_PER_STEP:
                work = 0
                yield
    stable = group.state is ClassicGroupState.STABLE
    return (
        yield from ConsumerGroup.upgrading(
            group.group_id, settings, group.generation, members, stable, version, group.leftover, now
        )
    )


def _bytes_to_read(member: ClassicGroupMember) -> int:
    """The bytes of a member's subscriptions and of its assignment."""
    return len(member.assignment) + sum(len(metadata) for _, metadata in member.protocols)


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


def _sent_by_members(group: ClassicGroup, read: Read) -> Steps[set[bytes]]:
    """The data of the assignor that the members have sent for this generation, and since then."""
    subscriptions = [*group.subscriptions, *(member.metadata(group.members.protocol) for member in group.members)]
    sent = set()
    work = 0
    for subscription in dict.fromkeys(subscriptions):
        with suppress(ValueError):
            sent.add(read(subscription).user_data)
        work += 1 + len(subscription) // _BYTES_PER_MEMBER
        if work >= _MEMBERS_PER_STEP:
            work = 0
            yield
    return sent


def _claimed(group: ClassicGroup, member: ClassicGroupMember, read: Read) -> Mapping[str, frozenset[int]]:
    """The partitions that a member reports as owned, if it has joined again or has no assignment.

    Members with cooperative assignors go on with what they own during a rebalance; others say that they own nothing.
    """
    if member.assignment and member.join_token is None:
        return {}
    with suppress(ValueError):
        return read(member.metadata(group.members.protocol) or member.protocols[0][1]).owned
    return {}


def _upgraded(
    group: ClassicGroup,
    classic: ClassicGroupMember,
    topics: Mapping[str, Topic],
    read: Read,
    sent: set[bytes],
    taken: dict[bytes, set[int]],
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
    member.describe(
        Description(
            classic.instance_id,
            subscription.rack_id,
            classic.client_id,
            classic.client_host,
            subscription.topics,
            rebalance_timeout_ms=round(classic.rebalance_timeout * 1000),
            classic=ClassicMetadata(round(classic.session_timeout * 1000), classic.protocols),
        )
    )
    member.epoch = member.previous_epoch = group.generation
    owned: dict[bytes, dict[int, int]] = {}
    for name, partitions in (_claimed(group, classic, read) or assigned).items():
        topic = topics.get(name)
        if topic is None:
            continue
        others = taken.setdefault(topic.topic_id, set())
        free = partitions - others
        others |= free
        if free:
            owned[topic.topic_id] = dict.fromkeys(sorted(free), group.generation)
    member.assigned = owned
    return member


def _refusal(group: ClassicGroup, why: str) -> KafkaError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {why}"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def too_large(group: ClassicGroup) -> KafkaError:
    """The error of an upgrade whose records are too large."""
    message = (
        f"Cannot upgrade classic group {group.group_id} to consumer group because the records of its"
        f" {len(group.members)} members are too large to be appended together."
    )
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)


def upgraded_event(group: ClassicGroup, upgraded: ConsumerGroup, by: Member) -> GroupUpgraded:
    """The group event of an upgrade; `by` is the identity of the member that has joined."""
    members = [member for member in upgraded.members.values() if member.classic is not None]
    return GroupUpgraded(generation=group.generation, by=(by,), members=len(members), state=group.state.value)


def downgrade(
    group: ConsumerGroup, effect: Downgrade, settings: GroupSettings, now: float
) -> Steps[tuple[ClassicGroup, list[Effect]]]:
    """The classic group that a group of the consumer protocol becomes, and what it asks its shell to do.

    One step converts some of the members. Between two steps nothing else may change the group.

    Args:
        group: the group of the consumer protocol; it is not changed.
        effect: its effect.
        settings: of classic groups.
        now: the time.
    """
    records = yield from group.ending()
    members: list[ClassicGroupMember] = []
    owned: dict[str, Mapping[str, Collection[int]]] = {}
    for member in effect.members:
        if member.classic is None:
            continue
        members.append(_downgraded(member, member.classic, now))
        owned[member.member_id] = group.owned_by(member)
        if len(members) % _MEMBERS_PER_STEP == 0:
            yield

    def assign(member: ClassicGroupMember, protocol: str | None) -> bytes:
        version = version_of(member.metadata(protocol) or member.protocols[0][1])
        return assignment_of(owned[member.member_id], version)

    classic, effects = yield from ClassicGroup.downgrading(
        group.group_id, settings, effect.generation, members, assign, records, effect.replies, now
    )
    by = tuple(member.identity() for member in effect.by)
    event = GroupDowngraded(generation=effect.generation, cause=effect.cause.type, by=by, members=len(members))
    rebalance = classic.rebalance(effect.rebalance, GroupDowngraded, now, effect.by)
    return classic, [event, *effects, *rebalance]


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
