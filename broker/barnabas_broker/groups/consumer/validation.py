"""Requests that a group of the consumer protocol refuses whatever its members are. Pure.

Source: Kafka's ``GroupMetadataManager.throwIfConsumerGroupHeartbeatRequestIsInvalid``.
"""

from typing import Final

from barnabas_broker.groups.consumer.members import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from barnabas_broker.groups.consumer.settings import ConsumerGroupSettings
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

#: From this version on clients generate their member ids (KIP-1082).
_OWN_MEMBER_ID: Final = 1


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, settings: ConsumerGroupSettings) -> None:
    """Check what a heartbeat says, as far as that does not depend on its group.

    Raises:
        KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, or UNKNOWN_SERVER_ERROR for a record that is too large.
    """

    def refuse(message: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REQUEST, message)

    epoch = request.member_epoch
    if (version >= _OWN_MEMBER_ID or epoch > 0 or epoch == LEAVE_EPOCH) and not request.member_id.strip():
        raise refuse("MemberId can't be empty.")
    if not request.group_id.strip():
        raise refuse("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise refuse("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise refuse("RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise refuse("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise refuse("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise refuse("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise refuse("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise refuse("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors:"
            f" {', '.join(settings.assignors)}.",
        )
    size = len(request.member_id) + len(request.instance_id or "") + len(request.rack_id or "")
    if request.subscribed_topic_regex:
        size += len(request.subscribed_topic_regex)
    if request.subscribed_topic_names:
        size += sum(map(len, request.subscribed_topic_names)) + 4 * len(request.subscribed_topic_names)
    if size > settings.max_record_bytes // 4:
        # A character takes up to four bytes. Kafka notices that the record is too large when it writes it.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The subscription is larger than a record allows.")


def changes_instance(member_id: str, instance_id: str) -> KafkaError:
    """The error of a member that joins with another instance id than the group knows."""
    message = f"Member {member_id} cannot change its InstanceId to {instance_id}."
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def is_full(settings: ConsumerGroupSettings) -> KafkaError:
    """The error of a member that joins a group with as many members as it may have."""
    message = f"The consumer group has reached its maximum capacity of {settings.max_size} members."
    return KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
