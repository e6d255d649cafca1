"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the consumer protocol (KIP-848)."""

from typing import Final

from barnabas_broker.groups.coordinator.inspection import failed_consumer_group
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.errors import heartbeat_error
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.groups import extended, handler_for, take_out_groups
from barnabas_broker.handlers.lane import Handled
from barnabas_broker.security import acls, operations
from barnabas_broker.security.acls import requires
from barnabas_broker.security.authorizer import Access
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_protocol.registry import ApiKey

_heartbeat: Final = handler_for(GroupCoordinator.consumer_heartbeat)
_describe: Final = handler_for(GroupCoordinator.consumer_describe)


def handle_consumer_group_heartbeat(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Handled:
    """Answer ConsumerGroupHeartbeat."""
    access = context.access
    if access is not None:
        if not access.allows(acls.READ, acls.GROUP, request.group_id):
            return heartbeat_error(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        names = dict.fromkeys(request.subscribed_topic_names or ())
        if not all(access.allows(acls.DESCRIBE, acls.TOPIC, name) for name in names):
            return heartbeat_error(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return _heartbeat(context, request)


def handle_consumer_group_describe(context: RequestContext, request: ConsumerGroupDescribeRequest) -> Handled:
    """Answer ConsumerGroupDescribe."""
    access = context.access
    if access is None:
        return _describe(context, request)
    refused = take_out_groups(access, acls.DESCRIBE, request.group_ids)

    def extend(response: ConsumerGroupDescribeResponse) -> None:
        for at, group in enumerate(response.groups):
            if group.authorized_operations != operations.NOT_ASKED:
                group.authorized_operations = operations.authorized(access, acls.GROUP, group.group_id)
            if not _shows_allowed_topics(access, group):
                response.groups[at] = failed_consumer_group(
                    group.group_id,
                    KafkaError(
                        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        "The group has described topic(s) that the client is not authorized to describe.",
                    ),
                )
        response.groups += [
            failed_consumer_group(name, KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)) for name in refused
        ]

    return extended(_describe(context, request), extend)


def _shows_allowed_topics(access: Access, group: DescribedConsumerGroup) -> bool:
    """Whether the client may describe all topics of the group's members."""
    names: set[str] = set()
    for member in group.members:
        names.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            names.update(topic.topic_name for topic in assignment.topic_partitions)
    return all(access.allows(acls.DESCRIBE, acls.TOPIC, name) for name in names)


ROUTES: Final = (
    Route(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        handle_consumer_group_heartbeat,
        (
            requires((acls.READ, acls.GROUP)),
            requires((acls.DESCRIBE, acls.TOPIC), when="the request names topics"),
        ),
    ),
    Route(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        handle_consumer_group_describe,
        (
            requires((acls.DESCRIBE, acls.GROUP)),
            requires((acls.DESCRIBE, acls.TOPIC), when="the response names topics"),
        ),
    ),
)
