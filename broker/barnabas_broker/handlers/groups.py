"""The APIs of the group coordinator. Each handler passes the request and its sender on to the coordinator."""

from asyncio import Future
from collections.abc import Callable
from typing import Any, Final

from barnabas_broker.groups.classic.group import Caller
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Handler, Route
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_protocol.hot import decode_offset_commit, encode_offset_commit
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Response

Method = Callable[[GroupCoordinator, Any, int, Caller], Response | Future[Any]]


def handler_for(method: Method) -> Handler:
    """A handler that calls `method` of the coordinator."""

    def handle(context: RequestContext, request: Any) -> Response | Future[Any]:
        services = context.services
        if not services.cluster.may_serve():
            services.group_partitions.reconcile()  # Unloads all partitions: the answer is NOT_COORDINATOR.
        caller = Caller(context.client_id, f"/{context.peer.host}")
        return method(services.groups, request, context.version, caller)

    return handle


ROUTES: Final = (
    Route(
        ApiKey.OFFSET_COMMIT,
        handler_for(GroupCoordinator.commit_offsets),
        (
            requires((acls.READ, acls.GROUP)),
            requires((acls.READ, acls.TOPIC)),
        ),
        decode=decode_offset_commit,
        encode=encode_offset_commit,
    ),
    Route(
        ApiKey.OFFSET_FETCH,
        handler_for(GroupCoordinator.fetch_offsets),
        (
            requires((acls.DESCRIBE, acls.GROUP)),
            requires((acls.DESCRIBE, acls.TOPIC)),
        ),
    ),
    Route(ApiKey.JOIN_GROUP, handler_for(GroupCoordinator.join), (requires((acls.READ, acls.GROUP)),)),
    Route(ApiKey.HEARTBEAT, handler_for(GroupCoordinator.heartbeat), (requires((acls.READ, acls.GROUP)),)),
    Route(ApiKey.LEAVE_GROUP, handler_for(GroupCoordinator.leave), (requires((acls.READ, acls.GROUP)),)),
    Route(ApiKey.SYNC_GROUP, handler_for(GroupCoordinator.sync), (requires((acls.READ, acls.GROUP)),)),
    Route(ApiKey.DESCRIBE_GROUPS, handler_for(GroupCoordinator.describe), (requires((acls.DESCRIBE, acls.GROUP)),)),
    Route(
        ApiKey.LIST_GROUPS,
        handler_for(GroupCoordinator.list_groups),
        (requires((acls.DESCRIBE, acls.CLUSTER), (acls.DESCRIBE, acls.GROUP)),),
    ),
    Route(ApiKey.DELETE_GROUPS, handler_for(GroupCoordinator.delete_groups), (requires((acls.DELETE, acls.GROUP)),)),
    Route(
        ApiKey.OFFSET_DELETE,
        handler_for(GroupCoordinator.delete_offsets),
        (
            requires((acls.DELETE, acls.GROUP)),
            requires((acls.READ, acls.TOPIC)),
        ),
    ),
)
