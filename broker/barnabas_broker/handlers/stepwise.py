"""Handlers that work step by step. See :mod:`barnabas_broker.handlers.lane`."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.lane import Handled, Lane
from barnabas_broker.steps import Steps
from barnabas_protocol.schema import Response

Q = TypeVar("Q")


def stepwise(handler: Callable[[RequestContext, Q], Steps[Handled]]) -> Callable[[RequestContext, Q], Handled]:
    """Make a handler of a generator that yields after each element of the request and returns the response."""

    @wraps(handler)
    def handle(context: RequestContext, request: Q) -> Handled:
        return context.services.lane.respond(handler(context, request), context.peer)

    return handle


def extended(context: RequestContext, handled: Handled, extend: Callable[[Any], Steps[None]]) -> Steps[Handled]:
    """Let `extend` add to a response, a slice at a time: now, or when the response is there."""
    if handled is None:
        return None
    if isinstance(handled, Response):
        yield from extend(handled)
        return handled
    return _extended_later(context.services.lane, handled, extend)


async def _extended_later(
    lane: Lane, handled: Awaitable[Response | None], extend: Callable[[Any], Steps[None]]
) -> Response | None:
    response = await handled
    extending = lane.run(extend(response))
    if extending is not None:
        await extending
    return response
