"""Background tasks of one owner.

`asyncio.TaskGroup` lives as long as one ``async with`` block. The parts of a client live from a `start` to a `stop`, so
they keep their tasks in a :class:`BackgroundTasks`: it holds the references that keep tasks alive, reports a task that
raised to its owner at once, and cancels all of them in the end.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def resolve(future: "asyncio.Future[T]", result: T) -> None:
    """Set the result of a future, unless it is done.

    A check with `done()` would not do: at Ctrl-C, `asyncio.run` cancels what the main task waits for in a signal
    handler, which may run between the check and `set_result`.
    """
    try:
        future.set_result(result)
    except asyncio.InvalidStateError:
        pass


def reject(future: "asyncio.Future[T]", error: BaseException) -> None:
    """Set the exception of a future, unless it is done; see :func:`resolve`."""
    try:
        future.set_exception(error)
    except asyncio.InvalidStateError:
        pass


async def end(task: "asyncio.Task[Any] | None") -> None:
    """Cancel a task, if there is one and it has not ended, and wait until it has."""
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait((task,))


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Run something to its end, even if the caller is cancelled meanwhile: the cancellation comes afterwards.

    For the end of a client: half of it would leave connections and tasks behind. The work has to be bounded in time.
    """
    task = asyncio.get_running_loop().create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise


class BackgroundTasks:
    """A set of running tasks; a task leaves it when it ends.

    Args:
        failed: called with the exception of a task that raised. A cancelled task has not failed.
    """

    __slots__ = ("_failed", "_running")

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(tuple(self._running))

    def __contains__(self, task: object) -> bool:
        return task in self._running

    def spawn(self, coroutine: Coroutine[Any, Any, None], *, name: str | None = None) -> "asyncio.Task[None]":
        """Run a coroutine as a task of the running event loop."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Cancel all tasks without waiting for them."""
        for task in self._running:
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        tasks = list(self)
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)
