"""The APIs of the group coordinator: each is handed on with who asks."""

from asyncio import Future
from collections.abc import Callable
from typing import Any

from barnabas_broker.context import RequestContext
from barnabas_broker.coordinator.service import Caller, GroupCoordinator
from barnabas_broker.dispatch import Handler
from barnabas_protocol.schema import Response

Method = Callable[[GroupCoordinator, Any, int, Caller], Response | Future[Any]]


def handler_for(method: Method) -> Handler:
    """A handler that asks the coordinator by `method`."""

    def handle(context: RequestContext, request: Any) -> Response | Future[Any]:
        services = context.services
        if not services.cluster.may_serve():
            services.group_partitions.look()  # lets go of all, so that the answer is NOT_COORDINATOR
        caller = Caller(context.client_id, f"/{context.peer.host}")
        return method(services.groups, request, context.version, caller)

    return handle
