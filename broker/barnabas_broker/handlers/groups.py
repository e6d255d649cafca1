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
        caller = Caller(context.client_id, f"/{context.peer.host}")
        return method(context.services.groups, request, context.version, caller)

    return handle
