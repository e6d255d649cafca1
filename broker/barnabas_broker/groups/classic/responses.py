"""What the group machine answers and writes, built from the members. Pure."""

from barnabas_broker.groups.classic.members import Member, Membership
from barnabas_protocol.coordinator_records import GroupMetadataValue, MemberMetadata
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas_protocol.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse


def join_error(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """A JoinGroup that fails: no generation, no leader; the member id is what the client shall go on with."""
    return JoinGroupResponse(error_code=error, protocol_name=None, leader="", member_id=member_id, members=[])


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """A SyncGroup that fails."""
    return SyncGroupResponse(error_code=error, assignment=b"")


def current_generation(members: Membership, generation: int, member: Member) -> JoinGroupResponse:
    """A JoinGroup that succeeds. Only the leader is told who is in the group (rule 15)."""
    everybody = []
    if members.leader == member.member_id:
        everybody = [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata(members.protocol),
            )
            for each in members
        ]
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=generation,
        protocol_type=members.protocol_type,
        protocol_name=members.protocol,
        leader=members.leader or "",
        member_id=member.member_id,
        members=everybody,
    )


def shares(members: Membership, assigned: list[SyncGroupRequestAssignment]) -> dict[str, bytes]:
    """What the leader gives to each member; nothing to those it forgets (rule 18). Strangers get nothing either."""
    given = {each.member_id: each.assignment for each in assigned}
    return {member.member_id: bytes(given.get(member.member_id, b"")) for member in members}


def group_value(members: Membership, generation: int, assignment: dict[str, bytes] | None) -> GroupMetadataValue:
    """The record of a group; without an assignment, of a group that nobody is in."""
    if assignment is None:
        return GroupMetadataValue(
            protocol_type=(members.protocol_type or "") if generation else "",
            generation=generation,
            protocol=None,
            leader=None,
            members=[],
        )
    return GroupMetadataValue(
        protocol_type=members.protocol_type or "",
        generation=generation,
        protocol=members.protocol,
        leader=members.leader,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=round(member.rebalance * 1000),
                session_timeout=round(member.session * 1000),
                subscription=member.metadata(members.protocol),
                assignment=assignment.get(member.member_id, b""),
            )
            for member in members
        ],
    )


def own_share(members: Membership, member: Member) -> SyncGroupResponse:
    """A SyncGroup that succeeds: the member's share of the assignment."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=members.protocol_type,
        protocol_name=members.protocol,
        assignment=member.assignment,
    )
