"""Handlers that work step by step, so that a request does not hold the event loop.

A handler that does something for each element of a request is a generator: it yields between two elements and returns
the response, or an awaitable of it. :func:`stepwise` makes a handler of it: the broker's
:class:`~barnabas_broker.slicer.Slicer` runs its steps. Until they have ended, its connection starts no further request:
requests take effect in the order in which they were sent, as in Kafka.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.slicer import Work
from barnabas_broker.steps import Steps
from barnabas_protocol.schema import Response

Q = TypeVar("Q")
T = TypeVar("T")

#: What a handler returns: the response, an awaitable of it, or None where the client asked for no response.
Handled = Response | Awaitable[Response | None] | None


def stepwise(handler: Callable[[RequestContext, Q], Steps[Handled]]) -> Callable[[RequestContext, Q], Handled]:
    """Make a handler of a generator that yields after each element of the request and returns the response."""

    @wraps(handler)
    def handle(context: RequestContext, request: Q) -> Handled:
        # respond, written out: every Produce, Fetch and Metadata takes this path.
        handled = context.services.slicer.run(handler(context, request), context.peer)
        return _later(context, handled) if isinstance(handled, Work) else handled

    return handle


def respond(context: RequestContext, steps: Steps[Handled]) -> Handled:
    """Run a handler's steps: at once as far as the budget of the turn goes, the rest in later turns.

    Returns:
        The response, None if the client asked for none, or an awaitable of these. The client's connection starts no
        other request until the steps have ended.

    Raises:
        Exception: what the steps raised at once.
    """
    handled = context.services.slicer.run(steps, context.peer)
    return _later(context, handled) if isinstance(handled, Work) else handled


def _later(context: RequestContext, work: Work[Handled]) -> Awaitable[Response | None]:
    context.peer.hold(work)
    return _response(work)


async def _response(work: Work[Handled]) -> Response | None:
    try:
        handled = await work
    finally:
        del work  # the traceback of an error has this frame: a reference cycle with the whole request
    return handled if isinstance(handled, Response | None) else await handled


async def complete(context: RequestContext, steps: Steps[T]) -> T:
    """Run steps in a coroutine: at once as far as the budget of the turn goes, the rest in later turns."""
    done = context.services.slicer.run(steps, context.peer)
    return await done if isinstance(done, Work) else done


def extended(context: RequestContext, handled: Handled, extend: Callable[[Any], Steps[None]]) -> Steps[Handled]:
    """Let `extend` add to a response, a slice at a time: now, or when the response is there."""
    if handled is None:
        return None
    if isinstance(handled, Response):
        yield from extend(handled)
        return handled
    return _extended_later(context, handled, extend)


async def _extended_later(
    context: RequestContext, handled: Awaitable[Response | None], extend: Callable[[Any], Steps[None]]
) -> Response | None:
    response = await handled
    await complete(context, extend(response))
    return response
