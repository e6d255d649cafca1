"""The records of a group of the consumer protocol: how each is written, and how it is read. Pure.

The records of a group come in the order of its log, of which compaction may have removed any that a later one replaces.
"""

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from barnabas_broker.groups.consumer.classic_members import ClassicMetadata
from barnabas_broker.groups.consumer.members import ConsumerGroupMember, Owned
from barnabas_broker.groups.consumer.regex import ResolvedRegex
from barnabas_protocol.coordinator_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CoordinatorRecord,
    CurrentTopicPartitions,
    MemberState,
)
from barnabas_protocol.schema import Data

V = TypeVar("V")

#: The types of the records, which are those of their keys. The first is that of the classic group that it was.
CLASSIC: Final = 2
EPOCH: Final = 3
MEMBER: Final = 5
TARGET_EPOCH: Final = 6
TARGET: Final = 7
CURRENT: Final = 8
REGEX: Final = 16


# Writing


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The record of the group epoch, and of the topics that it takes into account."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return ConsumerGroupMetadataKey(group_id=group_id), value


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    """The record of the epoch of the targets, and of when they were computed, in ms since 1970."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    return ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value


def member_record(group_id: str, member_id: str, member: ConsumerGroupMember | None) -> CoordinatorRecord:
    """The record of a member; a tombstone without one."""
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return key, None if member is None else _member_value(member)


def current_record(group_id: str, member_id: str, member: ConsumerGroupMember | None) -> CoordinatorRecord:
    """The record of what a member owns; a tombstone without one."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return key, None if member is None else _current_value(member)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex | None) -> CoordinatorRecord:
    """The record of what a regular expression matches; a tombstone without that."""
    return (
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        None
        if resolved is None
        else ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        ),
    )


def tombstones(group_id: str, members: Iterable[str], regexes: Iterable[str]) -> Iterator[CoordinatorRecord]:
    """The records that delete a group, in Kafka's order.

    Args:
        group_id: the group's name.
        members: the ids of all members that it has records of.
        regexes: all regular expressions that it has records of.
    """
    ids = list(members)
    for each in ids:
        yield ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=each), None
    for each in ids:
        yield ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=each), None
    yield ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None
    for each in ids:
        yield ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=each), None
    for regex in regexes:
        yield ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None
    yield ConsumerGroupPartitionMetadataKey(group_id=group_id), None
    yield ConsumerGroupMetadataKey(group_id=group_id), None


def assignment_content(member: ConsumerGroupMember) -> tuple[object, ...]:
    """The content of a member's record of type 8."""
    return member.state, member.epoch, member.previous_epoch, member.assigned, member.revoking


def member_content(member: ConsumerGroupMember) -> tuple[object, ...]:
    """The content of a member's record of type 5."""
    return (
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topics,
        member.regex,
        member.rebalance_timeout_ms,
        member.assignor,
        member.classic,
    )


def _member_value(member: ConsumerGroupMember) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if member.classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
            ],
        ),
    )


def _current_value(member: ConsumerGroupMember) -> ConsumerGroupCurrentMemberAssignmentValue:
    def topics(owned: Owned) -> list[CurrentTopicPartitions]:
        out = []
        for topic_id in sorted(owned):
            epochs = owned[topic_id]
            partitions = sorted(epochs)
            assignment_epochs = list(map(epochs.__getitem__, partitions))
            out.append(
                CurrentTopicPartitions(topic_id=topic_id, partitions=partitions, assignment_epochs=assignment_epochs)
            )
        return out

    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=topics(member.assigned),
        partitions_pending_revocation=topics(member.revoking),
    )


# Reading


@dataclass(slots=True)
class ReplayedGroup:
    """The records of a group, as far as they are not deleted: what :meth:`ConsumerGroup.restore` reads."""

    epoch: ConsumerGroupMetadataValue | None = None
    members: dict[str, ConsumerGroupMemberMetadataValue] = field(default_factory=dict)
    target_epoch: ConsumerGroupTargetAssignmentMetadataValue | None = None
    targets: dict[str, ConsumerGroupTargetAssignmentMemberValue] = field(default_factory=dict)
    current: dict[str, ConsumerGroupCurrentMemberAssignmentValue] = field(default_factory=dict)
    regexes: dict[str, ConsumerGroupRegularExpressionValue] = field(default_factory=dict)


def replay_record(groups: MutableMapping[str, ReplayedGroup], key: Data, value: Data | None) -> None:
    """Apply a record, or a tombstone; keys of other kinds are ignored."""
    match key:
        case ConsumerGroupMetadataKey(group_id=group_id):
            if value is None:
                groups.pop(group_id, None)
            elif isinstance(value, ConsumerGroupMetadataValue):
                _group(groups, group_id).epoch = value
        case ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id):
            members = _group(groups, group_id).members
            _put(members, member_id, value if isinstance(value, ConsumerGroupMemberMetadataValue) else None)
        case ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id):
            _group(groups, group_id).target_epoch = (
                value if isinstance(value, ConsumerGroupTargetAssignmentMetadataValue) else None
            )
        case ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id):
            targets = _group(groups, group_id).targets
            _put(targets, member_id, value if isinstance(value, ConsumerGroupTargetAssignmentMemberValue) else None)
        case ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id):
            current = _group(groups, group_id).current
            _put(current, member_id, value if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue) else None)
        case ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex):
            regexes = _group(groups, group_id).regexes
            _put(regexes, regex, value if isinstance(value, ConsumerGroupRegularExpressionValue) else None)


def _group(groups: MutableMapping[str, ReplayedGroup], group_id: str) -> ReplayedGroup:
    group = groups.get(group_id)
    if group is None:
        group = groups[group_id] = ReplayedGroup()
    return group


def _put(values: dict[str, V], member_id: str, value: V | None) -> None:
    if value is None:
        values.pop(member_id, None)
    else:
        values[member_id] = value


def member_from(
    member_id: str,
    value: ConsumerGroupMemberMetadataValue,
    current: ConsumerGroupCurrentMemberAssignmentValue | None,
    now: float,
) -> ConsumerGroupMember:
    """A member from its records. One without a current assignment has joined, and got no response yet."""
    member = ConsumerGroupMember(member_id, now)
    member.instance_id, member.rack_id = value.instance_id, value.rack_id
    member.client_id, member.client_host = value.client_id, value.client_host
    member.topics = frozenset(value.subscribed_topic_names)
    member.regex = value.subscribed_topic_regex or ""
    member.rebalance_timeout_ms = value.rebalance_timeout_ms
    member.assignor = value.server_assignor
    classic = value.classic_member_metadata
    if classic is not None and classic.supported_protocols:
        protocols = tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols)
        member.classic = ClassicMetadata(classic.session_timeout_ms, protocols)
    if current is None:
        return member

    def owned(topics: list[CurrentTopicPartitions]) -> dict[bytes, dict[int, int]]:
        # Before Kafka 4.3 partitions had no epoch of their own (KIP-1251): the member's is the oldest that is certain.
        return {
            each.topic_id: dict(zip(each.partitions, each.assignment_epochs, strict=True))
            if each.assignment_epochs is not None and len(each.assignment_epochs) == len(each.partitions)
            else dict.fromkeys(each.partitions, current.member_epoch)
            for each in topics
            if each.partitions
        }

    member.epoch, member.previous_epoch = current.member_epoch, current.previous_member_epoch
    member.assigned = owned(current.assigned_partitions)
    member.revoking = owned(current.partitions_pending_revocation)
    # A state that a newer version has written: the member moves on from what it owns.
    known = current.state in MemberState._value2member_map_
    member.state = MemberState(current.state) if known else MemberState.UNRELEASED_PARTITIONS
    return member
