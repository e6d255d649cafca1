"""Failed responses of the group APIs. Pure."""

from barnabas_broker.groups.effects import Reply
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupResponse
from barnabas_protocol.messages.sync_group import SyncGroupResponse


def join_error(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """A failed JoinGroup: no generation, no leader; `member_id` is the one that the client should use next."""
    return JoinGroupResponse(error_code=error, protocol_name=None, leader="", member_id=member_id, members=[])


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """A failed SyncGroup."""
    return SyncGroupResponse(error_code=error, assignment=b"")


def heartbeat_error(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    """A failed ConsumerGroupHeartbeat."""
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=error.message or None,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


def failed(reply: Reply, error: KafkaError) -> Reply:
    """The response to the same request if it fails with `error`."""
    match reply.response:
        case JoinGroupResponse():
            return Reply(reply.token, join_error(error.code, ""))
        case SyncGroupResponse():
            return Reply(reply.token, sync_error(error.code))
        case LeaveGroupResponse():
            return Reply(reply.token, LeaveGroupResponse(error_code=error.code))
        case _:
            return Reply(reply.token, heartbeat_error(error))
