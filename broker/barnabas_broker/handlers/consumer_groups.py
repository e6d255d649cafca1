"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the consumer protocol (KIP-848)."""

from typing import Final

from barnabas_broker.groups.coordinator.inspection import failed_consumer_group
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.errors import heartbeat_error
from barnabas_broker.handlers.authorization import split
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.groups import call, handler_for, take_out_groups
from barnabas_broker.handlers.stepwise import Handled, extended, stepwise
from barnabas_broker.security import acls, operations
from barnabas_broker.security.acls import requires
from barnabas_broker.steps import Steps, each
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_protocol.registry import ApiKey

_heartbeat: Final = handler_for(GroupCoordinator.consumer_heartbeat)
#: Members whose topics are collected in one step.
_MEMBERS_PER_STEP: Final = 20


def handle_consumer_group_heartbeat(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Handled:
    """Answer ConsumerGroupHeartbeat."""
    if not context.allows(acls.READ, acls.GROUP, request.group_id):
        return heartbeat_error(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    if context.access is None or not request.subscribed_topic_names:
        return _heartbeat(context, request)
    return _heartbeat_with_names(context, request)


@stepwise
def _heartbeat_with_names(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Steps[Handled]:
    """Answer a heartbeat that names topics, all of which the client has to be allowed to describe."""
    if (yield from split(context, request.subscribed_topic_names or (), acls.DESCRIBE)):
        return heartbeat_error(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return (yield from call(context, GroupCoordinator.consumer_heartbeat, request))


@stepwise
def handle_consumer_group_describe(context: RequestContext, request: ConsumerGroupDescribeRequest) -> Steps[Handled]:
    """Answer ConsumerGroupDescribe."""
    refused = yield from take_out_groups(context, acls.DESCRIBE, request.group_ids)

    def extend(response: ConsumerGroupDescribeResponse) -> Steps[None]:
        for at, group in enumerate(response.groups):
            yield
            if group.authorized_operations != operations.NOT_ASKED:
                group.authorized_operations = operations.authorized(context.access, acls.GROUP, group.group_id)
            if context.access is None:
                continue
            names = yield from _topics_of(group)
            if (yield from split(context, names, acls.DESCRIBE)):
                response.groups[at] = failed_consumer_group(
                    group.group_id,
                    KafkaError(
                        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        "The group has described topic(s) that the client is not authorized to describe.",
                    ),
                )
        response.groups += yield from each(
            refused, lambda name: failed_consumer_group(name, KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        )

    handled = yield from call(context, GroupCoordinator.consumer_describe, request)
    return (yield from extended(context, handled, extend))


def _topics_of(group: DescribedConsumerGroup) -> Steps[set[str]]:
    """The topics of a group's members, some members per step."""
    names: set[str] = set()
    for number, member in enumerate(group.members, 1):
        names.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            names.update(topic.topic_name for topic in assignment.topic_partitions)
        if not number % _MEMBERS_PER_STEP:
            yield
    return names


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
