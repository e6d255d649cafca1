"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848).

Handlers of share groups (KIP-932) are made in the same way: there, too, the coordinator knows the topics of members.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from barnabas_broker.groups.coordinator.inspection import failed_consumer_group
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.errors import heartbeat_error
from barnabas_broker.handlers.authorization import split
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Handler, Route
from barnabas_broker.handlers.groups import Method, call, caller_of, handler_for, take_out_groups
from barnabas_broker.handlers.stepwise import Handled, extended, stepwise
from barnabas_broker.security import acls, operations
from barnabas_broker.security.acls import requires
from barnabas_broker.steps import Steps, each
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_describe import DescribedConsumerGroup, Member
from barnabas_protocol.messages.share_group_describe import DescribedShareGroup, ShareMember
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Response

#: Members whose topics are collected in one step.
_MEMBERS_PER_STEP: Final = 20

D = TypeVar("D", DescribedConsumerGroup, DescribedShareGroup)


def heartbeat_handler(method: Method, refused: Callable[[KafkaError], Response]) -> Handler:
    """A handler of heartbeats, which needs READ on the group and DESCRIBE on the topics that the request names.

    Args:
        method: of the coordinator.
        refused: makes the response with an error.
    """
    heartbeat = handler_for(method)

    @stepwise
    def with_names(context: RequestContext, request: Any) -> Steps[Handled]:
        if (yield from split(context, request.subscribed_topic_names, acls.DESCRIBE)):
            return refused(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return (yield from call(context, method, request))

    def handle(context: RequestContext, request: Any) -> Handled:
        if not context.allows(acls.READ, acls.GROUP, request.group_id):
            context.services.groups.denied(request.group_id, caller_of(context))
            return refused(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        if context.access is None or not request.subscribed_topic_names:
            return heartbeat(context, request)
        return with_names(context, request)

    return handle


def describe_handler(method: Method, failed: Callable[[str, KafkaError], D]) -> Handler:
    """A handler that describes groups, which needs DESCRIBE on them and on the topics of their members.

    Args:
        method: of the coordinator.
        failed: a group that is not described.
    """

    @stepwise
    def handle(context: RequestContext, request: Any) -> Steps[Handled]:
        refused = yield from take_out_groups(context, acls.DESCRIBE, request.group_ids)

        def extend(response: Any) -> Steps[None]:
            groups: list[D] = response.groups
            for at, group in enumerate(groups):
                yield
                if group.authorized_operations != operations.NOT_ASKED:
                    group.authorized_operations = operations.authorized(context.access, acls.GROUP, group.group_id)
                if context.access is None:
                    continue
                names = yield from _topics_of(group)
                if (yield from split(context, names, acls.DESCRIBE)):
                    text = "The group has described topic(s) that the client is not authorized to describe."
                    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
                    groups[at] = failed(group.group_id, error)
            not_allowed = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            groups += yield from each(refused, lambda name: failed(name, not_allowed))

        handled = yield from call(context, method, request)
        return (yield from extended(context, handled, extend))

    return handle


def _topics_of(group: DescribedConsumerGroup | DescribedShareGroup) -> Steps[set[str]]:
    """The topics of a group's members, some members per step."""
    names: set[str] = set()
    members: Sequence[Member | ShareMember] = group.members
    for number, member in enumerate(members, 1):
        names.update(member.subscribed_topic_names)
        names.update(topic.topic_name for topic in member.assignment.topic_partitions)
        if isinstance(member, Member):
            names.update(topic.topic_name for topic in member.target_assignment.topic_partitions)
        if not number % _MEMBERS_PER_STEP:
            yield
    return names


ROUTES: Final = (
    Route(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        heartbeat_handler(GroupCoordinator.consumer_heartbeat, heartbeat_error),
        (
            requires((acls.READ, acls.GROUP)),
            requires((acls.DESCRIBE, acls.TOPIC), when="the request names topics"),
        ),
    ),
    Route(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        describe_handler(GroupCoordinator.consumer_describe, failed_consumer_group),
        (
            requires((acls.DESCRIBE, acls.GROUP)),
            requires((acls.DESCRIBE, acls.TOPIC), when="the response names topics"),
        ),
    ),
)
