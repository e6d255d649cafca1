"""Handlers that work step by step. See :mod:`barnabas_broker.handlers.lane`."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.lane import Handled
from barnabas_broker.steps import Steps

Q = TypeVar("Q")


def stepwise(handler: Callable[[RequestContext, Q], Steps[Handled]]) -> Callable[[RequestContext, Q], Handled]:
    """Make a handler of a generator that yields after each element of the request and returns the response."""

    @wraps(handler)
    def handle(context: RequestContext, request: Q) -> Handled:
        return context.services.lane.respond(handler(context, request), context.peer)

    return handle
