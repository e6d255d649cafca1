"""Replays the records of groups of the consumer protocol. Pure.

The records of a group come in the order of its log, of which compaction may have removed any that a later one replaces.
"""

from collections.abc import MutableMapping
from typing import TypeVar

from barnabas_broker.groups.consumer.group import ReplayedGroup
from barnabas_protocol.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from barnabas_protocol.schema import Data

V = TypeVar("V")


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
