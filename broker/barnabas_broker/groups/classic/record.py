"""The record of a classic group in the log: made of its members, and read. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from barnabas_broker.groups.classic.members import ClassicGroupMember, Members
from barnabas_protocol.coordinator_records import GroupMetadataValue, MemberMetadata


def empty_record(generation: int, members: Members) -> GroupMetadataValue:
    """The record of a group without members."""
    return GroupMetadataValue(
        protocol_type=(members.protocol_type or "") if generation else "",
        generation=generation,
        protocol=None,
        leader=None,
        members=[],
    )


def record_of(
    generation: int, members: Members, assignments: Mapping[str, bytes], returning: ClassicGroupMember | None = None
) -> GroupMetadataValue:
    """The record of a generation.

    Args:
        generation: its number.
        members: its members.
        assignments: by member id.
        returning: a static member that takes its place.
    """
    leader = members.leader
    listed: Iterable[ClassicGroupMember] = members
    if returning is not None:
        old_id = members.static[returning.instance_id or ""]
        leader = returning.member_id if leader == old_id else leader
        listed = [returning if each.member_id == old_id else each for each in members]
        assignments = {**assignments, returning.member_id: returning.assignment}
    return GroupMetadataValue(
        protocol_type=members.protocol_type or "",
        generation=generation,
        protocol=members.protocol,
        leader=leader,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=round(member.rebalance_timeout * 1000),
                session_timeout=round(member.session_timeout * 1000),
                subscription=member.metadata(members.protocol),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in listed
        ],
    )


def members_of(value: GroupMetadataValue, now: float) -> Iterator[ClassicGroupMember]:
    """The members that a record lists, each with a full session from `now` on."""
    for each in value.members:
        session_timeout = each.session_timeout / 1000
        member = ClassicGroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            session_timeout,
            session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout / 1000,
            ((value.protocol or "", bytes(each.subscription)),),
            now,
        )
        member.assignment = bytes(each.assignment)
        yield member
