"""The records of a group of the consumer protocol: how each is written, and how it is read. Pure.

The records of a group come in the order of its log, of which compaction may have removed any that a later one replaces.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final

from barnabas_broker.groups.consumer.classic_members import ClassicMetadata
from barnabas_broker.groups.consumer.members import ConsumerGroupMember, CurrentAssignment, Description, Owned
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

#: The types of the records, which are those of their keys. The first is that of the classic group that it was.
CLASSIC: Final = 2
EPOCH: Final = 3
MEMBER: Final = 5
TARGET_EPOCH: Final = 6
TARGET: Final = 7
CURRENT: Final = 8
REGEX: Final = 16
#: The order in which a load applies them: what members have follows the members.
ORDER: Final = (EPOCH, TARGET_EPOCH, MEMBER, TARGET, CURRENT, REGEX)
#: Those that say something of members, or of what members subscribe with, and are nothing without these.
OF_OTHERS: Final = (TARGET, CURRENT, REGEX)


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


#: The last records of a group that are not deleted, by their type, and by the id of their member or their expression.
ReplayedGroup = dict[int, dict[str, Data]]

#: The types of the keys, and their field that names a member or a regular expression.
_KEYS: Final[Mapping[type[Data], tuple[int, str | None]]] = {
    ConsumerGroupMetadataKey: (EPOCH, None),
    ConsumerGroupMemberMetadataKey: (MEMBER, "member_id"),
    ConsumerGroupTargetAssignmentMetadataKey: (TARGET_EPOCH, None),
    ConsumerGroupTargetAssignmentMemberKey: (TARGET, "member_id"),
    ConsumerGroupCurrentMemberAssignmentKey: (CURRENT, "member_id"),
    ConsumerGroupRegularExpressionKey: (REGEX, "regular_expression"),
}


def replay_record(groups: MutableMapping[str, ReplayedGroup], key: Any, value: Data | None) -> None:
    """Keep a record, or remove the one that a tombstone deletes; keys of other kinds are ignored."""
    record_type, field = _KEYS.get(type(key), (0, None))
    if not record_type:
        return
    if record_type == EPOCH and value is None:
        groups.pop(key.group_id, None)
        return
    of_type = groups.setdefault(key.group_id, {}).setdefault(record_type, {})
    name = "" if field is None else getattr(key, field)
    if value is None:
        of_type.pop(name, None)
    else:
        of_type[name] = value


def named_in(records: Iterable[CoordinatorRecord]) -> Iterator[tuple[int, str]]:
    """The types of records that are about members and regular expressions, with their names."""
    for key, _ in records:
        record_type, field = _KEYS.get(type(key), (0, None))
        if field is not None:
            yield record_type, getattr(key, field)


def content_of(value: Data) -> Any:
    """The content of a record, as :meth:`ConsumerGroup.apply` takes it over."""
    match value:
        case ConsumerGroupMetadataValue():
            return value.epoch, value.metadata_hash
        case ConsumerGroupTargetAssignmentMetadataValue():
            return value.assignment_epoch, value.assignment_timestamp
        case ConsumerGroupMemberMetadataValue():
            return _description(value)
        case ConsumerGroupTargetAssignmentMemberValue():
            return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions if each.partitions}
        case ConsumerGroupCurrentMemberAssignmentValue():
            return _current_assignment(value)
        case ConsumerGroupRegularExpressionValue():
            return ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    raise TypeError(f"{type(value).__name__} is no value of a consumer group")


def _description(value: ConsumerGroupMemberMetadataValue) -> Description:
    classic, metadata = value.classic_member_metadata, None
    if classic is not None and classic.supported_protocols:
        protocols = tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols)
        metadata = ClassicMetadata(classic.session_timeout_ms, protocols)
    return Description(
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        frozenset(value.subscribed_topic_names),
        value.subscribed_topic_regex or "",
        value.rebalance_timeout_ms,
        value.server_assignor,
        metadata,
    )


def _current_assignment(value: ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    def owned(topics: list[CurrentTopicPartitions]) -> dict[bytes, dict[int, int]]:
        # Before Kafka 4.3 partitions had no epoch of their own (KIP-1251): the member's is the oldest that is certain.
        return {
            each.topic_id: dict(zip(each.partitions, each.assignment_epochs, strict=True))
            if each.assignment_epochs is not None and len(each.assignment_epochs) == len(each.partitions)
            else dict.fromkeys(each.partitions, value.member_epoch)
            for each in topics
            if each.partitions
        }

    # A state that a newer version has written: the member moves on from what it owns.
    known = value.state in MemberState._value2member_map_
    return CurrentAssignment(
        MemberState(value.state) if known else MemberState.UNRELEASED_PARTITIONS,
        value.member_epoch,
        value.previous_member_epoch,
        owned(value.assigned_partitions),
        owned(value.partitions_pending_revocation),
    )
