"""The requests that :mod:`barnabas_client.membership.classic` sends, and what it reads out of the answers. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from barnabas_client.assignors import Assignor, MemberSubscription
from barnabas_client.errors import FencedInstanceIdError
from barnabas_client.membership.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas_client.membership.types import MemberConfig, Note
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.heartbeat import HeartbeatRequest
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


def join_request(
    config: MemberConfig,
    member_id: str,
    subscription: MemberSubscription,
    assignors: Iterable[Assignor],
    reason: str | None,
) -> JoinGroupRequest:
    """Join with `subscription` under the name of each assignor, the preferred one first.

    Raises:
        KafkaError: an assignor raised, or returned what is no user data.
    """
    protocols = []
    for assignor in assignors:
        try:
            metadata = encode_subscription(replace(subscription, user_data=assignor.user_data(subscription.topics)))
        except Exception as error:
            raise _raised(assignor, error) from error
        protocols.append(JoinGroupRequestProtocol(name=assignor.name, metadata=metadata))
    return JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=round(config.session_timeout * 1000),
        rebalance_timeout_ms=round(config.rebalance_timeout * 1000),
        member_id=member_id,
        group_instance_id=config.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=reason,
    )


def sync_request(
    config: MemberConfig,
    member_id: str,
    generation: int,
    protocol: str | None,
    assignments: list[SyncGroupRequestAssignment],
) -> SyncGroupRequest:
    """Hand in the leader's decision, or nothing, and ask for one's own share."""
    return SyncGroupRequest(
        group_id=config.group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=config.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=assignments,
    )


def heartbeat_request(config: MemberConfig, member_id: str, generation: int) -> HeartbeatRequest:
    """Say that this member is alive."""
    return HeartbeatRequest(
        group_id=config.group_id, generation_id=generation, member_id=member_id, group_instance_id=config.instance_id
    )


def leave_request(config: MemberConfig, member_id: str, reason: str) -> LeaveGroupRequest:
    """Leave, for a reason that the coordinator logs (KIP-800)."""
    identity = MemberIdentity(member_id=member_id, group_instance_id=None, reason=reason)
    return LeaveGroupRequest(group_id=config.group_id, members=[identity])


def subscriptions(response: JoinGroupResponse) -> tuple[dict[str, MemberSubscription], list[Note]]:
    """What the leader is told about the members, and what there is to say about those that cannot be read."""
    members: dict[str, MemberSubscription] = {}
    notes: list[Note] = []
    for member in response.members:
        try:
            members[member.member_id] = decode_subscription(member.metadata, member.group_instance_id)
        except DecodeError as error:
            # One broken member must not stop the group: it gets nothing.
            members[member.member_id] = MemberSubscription(())
            fields = {"member": member.member_id, "reason": str(error)}
            notes.append(Note("a member's subscription cannot be read", fields, warns=True))
    return members, notes


def assignments(
    assignor: Assignor, counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> list[SyncGroupRequestAssignment]:
    """The leader's decision, for its SyncGroup.

    Raises:
        KafkaError: the assignor raised, or returned what is no assignment.
    """
    try:
        shares = assignor.assign(counts, members)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(shares.get(member, ())))
            for member in members
        ]
    except Exception as error:
        raise _raised(assignor, error) from error


def tell_assignor(assignor: Assignor, assigned: Iterable[TopicPartition], generation: int) -> list[Note]:
    """Tell an assignor what its member got."""
    try:
        assignor.assigned(tuple(sorted(assigned)), generation)
    except Exception as error:
        return [Note(str(_raised(assignor, error)), warns=True)]
    return []


def _raised(assignor: Assignor, error: Exception) -> KafkaError:
    """An assignor may be the user's: whatever it raises must not end the membership without a word."""
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"assignor {assignor.name!r} raised {type(error).__name__}: {error}. To do: repair it and subscribe again",
    )


def fenced(config: MemberConfig) -> KafkaError:
    """Another consumer has this instance id now."""
    return FencedInstanceIdError(
        f"another consumer of group {config.group_id!r} has taken over group_instance_id {config.instance_id!r}. "
        f"To do: give each running consumer a group_instance_id of its own"
    )
