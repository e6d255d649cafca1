"""Long work, cut into slices, so that a request does not hold the event loop.

A handler that does something for each element of a request is a generator: it yields between two elements and returns
the response, or an awaitable of it. :mod:`barnabas_broker.handlers.stepwise` makes a handler of it, and :class:`Lane`
runs it for at most :data:`SLICE` seconds at a time. All of a broker's long requests share one lane and take turns, so
that they hold the loop for one slice per iteration, however many there are. Until the steps of a request have ended,
its connection starts no further one: requests take effect in the order in which they were sent, as in Kafka.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from barnabas_broker.server.connection import Peer
from barnabas_broker.steps import Steps
from barnabas_protocol.schema import Response

T = TypeVar("T")

#: What a handler returns: the response, an awaitable of it, or None where the client asked for no response.
Handled = Response | Awaitable[Response | None] | None

#: Seconds of the event loop that long work gets per iteration.
SLICE: Final = 0.005


class Work(asyncio.Future[T]):
    """The result of steps that did not end within one slice.

    Attributes:
        spent: seconds for which the steps have held the event loop since then.
    """

    spent = 0.0


class Lane:
    """Runs the long work of all requests, in turns.

    Args:
        now: a monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._queue: deque[tuple[Steps[Any], Work[Any]]] = deque()

    def respond(self, steps: Steps[Handled], peer: Peer) -> Handled:
        """Run a handler's steps: at once as far as one slice goes, if no others wait; the rest in turns.

        Returns:
            The response, None if the client asked for none, or an awaitable of these. `peer` starts no other request
            until the steps have ended.

        Raises:
            Exception: what the steps raised in the first slice.
        """
        handled = self.run(steps)
        if not isinstance(handled, Work):
            return handled
        peer.hold(handled)
        return _response(handled, peer)

    def run(self, steps: Steps[T]) -> "T | Work[T]":
        """Run `steps`: at once as far as one slice goes, if no others wait; the rest in turns.

        Returns:
            The result, or a future of it.

        Raises:
            Exception: what `steps` raised in the first slice.
        """
        if not self._queue:
            # As _slice, written out: every Produce and Fetch takes this path, and most end with the first step.
            try:
                next(steps)
                now = self._now
                end = now() + SLICE
                while now() < end:
                    next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result
        return self.enqueue(steps)

    def enqueue(self, steps: Steps[T]) -> "Work[T]":
        """Run `steps` in turns with others. Cancelling the future ends them."""
        loop = asyncio.get_running_loop()
        future: Work[T] = Work(loop=loop)
        self._queue.append((steps, future))
        if len(self._queue) == 1:
            loop.call_soon(self._turn)
        return future

    def close(self) -> None:
        """End all work that waits for its turn: its futures are cancelled."""
        while self._queue:
            steps, future = self._queue.popleft()
            steps.close()
            future.cancel()

    def _turn(self) -> None:
        if not self._queue:
            return
        steps, future = self._queue[0]
        began = self._now()
        try:
            if future.done():
                steps.close()
            else:
                self._slice(steps)
                self._queue.append((steps, future))
        except StopIteration as stop:
            if not future.done():  # cancelled by its last step: other work continues
                future.set_result(stop.value)
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        finally:
            future.spent += self._now() - began
            del steps, future  # the traceback of an error has this frame: a reference cycle with the whole request
        self._queue.popleft()
        if self._queue:
            asyncio.get_running_loop().call_soon(self._turn)

    def _slice(self, steps: Steps[Any]) -> None:
        """Run until a slice is over. The first step needs no clock.

        Raises:
            StopIteration: `steps` have ended; its value is the result.
        """
        next(steps)
        now = self._now
        end = now() + SLICE
        while now() < end:
            next(steps)


async def _response(work: Work[Handled], peer: Peer) -> Response | None:
    try:
        handled = await work
    finally:
        peer.spent += work.spent
        del work  # as in Lane._turn
    return handled if isinstance(handled, Response | None) else await handled
