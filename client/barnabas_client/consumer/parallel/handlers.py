"""The running handlers of a run, and the end of the run.

Runs of both consumers have one (``Consumer.run``, ``ShareConsumer.run``). They decide what to handle, and what happens
to a record afterwards.
"""

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import BrokenExecutor, Executor
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from barnabas_client.errors import IllegalStateError
from barnabas_client.logs import logger
from barnabas_client.tasks import resolve

_log: Final = logger("barnabas_client.consumer")

#: What a handler is running for: a record, or a batch.
J = TypeVar("J")
J_contra = TypeVar("J_contra", contravariant=True)

#: Seconds that a cancelled handler has to clean up.
_CLEANUP: Final = 5.0


class CannotRunError(Exception):
    """Neither a retry nor a dead letter would help; the cause says why."""


class HandlerOwner(Protocol[J_contra]):
    """The run that handlers belong to."""

    def finished(self, job: J_contra) -> None:
        """Its handler has returned."""

    def failed(self, job: J_contra, error: Exception) -> None:
        """Its handler raised."""

    def abandoned(self, job: J_contra) -> None:
        """Its handler was cancelled, or the run ends because handlers cannot run."""


class Handlers(Generic[J]):
    """The running handlers of one run.

    Args:
        owner: the run.
        handler: called with a record, or a batch.
        executor: runs it; None if it is a coroutine function.
        group: for the log.
        drain_timeout: seconds that running handlers have at the end of the run; then they are cancelled.

    Attributes:
        failure: why the run ends; None unless something has failed.
    """

    def __init__(
        self,
        owner: HandlerOwner[J],
        handler: Callable[[Any], object],
        executor: Executor | None,
        group: str | None,
        drain_timeout: float,
    ) -> None:
        self.failure: BaseException | None = None
        self.drain_timeout = drain_timeout
        self._owner = owner
        self._handler = handler
        self._executor = executor
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[J, asyncio.Task[None]] = {}
        self._cancelled: set[J] = set()
        self._end: asyncio.Future[None] = self._loop.create_future()
        self._over = asyncio.Event()

    def __len__(self) -> int:
        return len(self._tasks)

    # Handlers.

    def handle(self, job: J, given: object) -> None:
        """Call the handler."""
        self.spawn(job, self._handle(given))

    def spawn(self, job: J, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in place of a handler."""
        task = self._tasks[job] = self._loop.create_task(work)
        task.add_done_callback(partial(self._ended, job))

    async def _handle(self, given: object) -> None:
        if self._executor is not None:
            await self._in_executor(self._executor, given)
            return
        result = self._handler(given)
        if not inspect.isawaitable(result):
            raise CannotRunError from TypeError(
                f"the handler returned {result!r}: it is a plain function. To do: make it `async def`, or give an "
                "executor= to run it in"
            )
        await result

    async def _in_executor(self, executor: Executor, given: object) -> None:
        try:
            future = executor.submit(self._handler, given)
        except Exception as error:  # it is broken, or was shut down
            raise CannotRunError from error
        wrapped = asyncio.wrap_future(future)
        wrapped.add_done_callback(_retrieve)
        try:
            await asyncio.wait({wrapped})
        except asyncio.CancelledError:
            if not future.cancel():
                await asyncio.wait({wrapped})  # it cannot be stopped, and records behind it must not overtake it
            raise
        try:
            wrapped.result()
        except BrokenExecutor as error:
            raise CannotRunError from error

    def _ended(self, job: J, task: asyncio.Task[None]) -> None:
        del self._tasks[job]
        cancelled = job in self._cancelled
        self._cancelled.discard(job)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() and cancelled:
            self._owner.abandoned(job)
        elif task.cancelled():
            self._owner.failed(job, RuntimeError("the handler was cancelled from within"))
        elif error is None:
            self._owner.finished(job)
        elif isinstance(error, Exception) and not isinstance(error, CannotRunError):
            self._owner.failed(job, error)
        else:  # also such as KeyboardInterrupt
            self.end(error.__cause__ if isinstance(error, CannotRunError) else error)
            self._owner.abandoned(job)

    def cancel(self, jobs: Collection[J]) -> None:
        """Cancel handlers that run."""
        for job in jobs:
            task = self._tasks.get(job)
            if task is not None and not task.done() and job not in self._cancelled:
                self._cancelled.add(job)
                task.cancel()

    def cancel_all(self) -> None:
        """Cancel all handlers that run."""
        self.cancel(list(self._tasks))

    async def drain(self, jobs: Collection[J], timeout: float) -> None:
        """Wait up to `timeout` seconds for handlers to finish, then cancel them and wait for their clean-up."""
        tasks = {self._tasks[job] for job in jobs}
        if not tasks:
            return
        try:
            _, late = await asyncio.wait(tasks, timeout=timeout)
            if late:
                if timeout:
                    _log.warning(
                        "handlers are cancelled: they did not finish in time",
                        handlers=len(late),
                        drain_timeout_ms=round(timeout * 1000),
                    )
                self.cancel(jobs)
                await asyncio.wait(late, timeout=_CLEANUP)
        except asyncio.CancelledError:
            self.cancel(jobs)
            raise

    async def drain_all(self) -> None:
        """Wait for all handlers, as long as the end of the run may take."""
        await self.drain(list(self._tasks), self.drain_timeout)

    # The end of the run.

    @property
    def ending(self) -> bool:
        """Whether the run is to end."""
        return self._end.done()

    def end(self, failure: BaseException | None = None) -> None:
        """End the run, with an error if `failure` is given."""
        if not self._end.done():
            self.failure = failure
            resolve(self._end, None)
        elif failure is not None:
            _log.error("an error while a run was ending", group=self._group, reason=repr(failure))

    async def until_end(self, *works: Coroutine[Any, Any, None]) -> None:
        """Run coroutines side by side until the run is to end, or one of them ends.

        Raises:
            Exception: that of a coroutine, unless the run has failed already.
        """
        tasks = [self._loop.create_task(work, name="barnabas-run") for work in works]
        try:
            await asyncio.wait({*tasks, self._end}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if self.failure is None and not task.cancelled():
                task.result()

    def over(self) -> None:
        """The run has ended."""
        self._over.set()

    async def stop(self, timeout: float) -> None:
        """End the run, and wait for its end, for at most `timeout` seconds.

        Raises:
            IllegalStateError: called in a handler.
        """
        if asyncio.current_task() in self._tasks.values():
            raise IllegalStateError(
                "a handler cannot stop the consumer: that would wait for the handler to return. To do: call wakeup() "
                "in the handler; run() returns then, and the consumer can be stopped"
            )
        self.drain_timeout = min(self.drain_timeout, timeout / 2)
        self.end()
        try:
            async with asyncio.timeout(timeout):
                await self._over.wait()
        except TimeoutError:
            _log.warning("a run did not end in time", group=self._group)


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Retrieve an error that nothing waits for any more, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
