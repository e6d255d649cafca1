"""The APIs of the group coordinator. Each handler passes the request and its sender on to the coordinator."""

from asyncio import Future
from collections.abc import Callable
from typing import Any, Final

from barnabas_broker.groups.classic.group import Caller
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Handler, Route
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


ROUTES: Final[dict[ApiKey, Route]] = {
    ApiKey.OFFSET_COMMIT: Route(
        handler_for(GroupCoordinator.commit_offsets),
        decode=decode_offset_commit,
        encode=encode_offset_commit,
    ),
    ApiKey.OFFSET_FETCH: Route(handler_for(GroupCoordinator.fetch_offsets)),
    ApiKey.JOIN_GROUP: Route(handler_for(GroupCoordinator.join)),
    ApiKey.HEARTBEAT: Route(handler_for(GroupCoordinator.heartbeat)),
    ApiKey.LEAVE_GROUP: Route(handler_for(GroupCoordinator.leave)),
    ApiKey.SYNC_GROUP: Route(handler_for(GroupCoordinator.sync)),
    ApiKey.DESCRIBE_GROUPS: Route(handler_for(GroupCoordinator.describe)),
    ApiKey.LIST_GROUPS: Route(handler_for(GroupCoordinator.list_groups)),
    ApiKey.DELETE_GROUPS: Route(handler_for(GroupCoordinator.delete_groups)),
    ApiKey.OFFSET_DELETE: Route(handler_for(GroupCoordinator.delete_offsets)),
}
