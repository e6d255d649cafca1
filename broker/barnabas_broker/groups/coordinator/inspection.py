"""DescribeGroups and ListGroups. Pure.

Source: ``GroupMetadataManager.describeGroups`` and ``listGroups``; KIP-518 (state filter), KIP-848 (type filter),
KIP-1043 (GROUP_ID_NOT_FOUND from DescribeGroups 6).
"""

from collections.abc import Iterable
from typing import Final

from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.security.operations import GROUP
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas_protocol.messages.list_groups import ListedGroup, ListGroupsRequest

#: The type of the groups here (KIP-848).
CLASSIC: Final = "classic"


def describe_group(group: ClassicGroup, operations: bool) -> DescribedGroup:
    """A group as DescribeGroups returns it: with protocol and subscriptions only while it is Stable."""
    members = group.members
    protocol = members.protocol if group.state is ClassicGroupState.STABLE else None
    described = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=members.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.metadata(protocol),
                member_assignment=member.assignment,
            )
            for member in members
        ],
    )
    if operations:
        described.authorized_operations = GROUP
    return described


def missing_group(group_id: str, version: int, operations: bool) -> DescribedGroup:
    """A group that does not exist: its state is Dead; from version 6 on it is an error, too."""
    described = failed_group(group_id, ErrorCode.NONE)
    described.group_state = ClassicGroupState.DEAD.value
    if version >= 6:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} not found."
    elif operations:
        described.authorized_operations = GROUP
    return described


def failed_group(group_id: str, error: ErrorCode) -> DescribedGroup:
    """A group that cannot be described, for instance because another broker coordinates it."""
    return DescribedGroup(
        error_code=error, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )


def list_groups(groups: Iterable[ClassicGroup], request: ListGroupsRequest) -> list[ListedGroup]:
    """The groups that match the request's filters, which ignore case."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {each.strip().lower() for each in request.types_filter}
    if types and CLASSIC not in types:
        return []
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.members.protocol_type or "",
            group_state=group.state.value,
            group_type=CLASSIC,
        )
        for group in groups
        if not states or group.state.value.lower() in states
    ]
