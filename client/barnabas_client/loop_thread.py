"""An event loop on a thread of its own, for code that is not async: one for all of a process.

:func:`loop_thread` returns it. It lives as long as the process; at the end of the process it closes what is registered
with it. A forked process has one of its own.
"""

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Generic, Protocol, TypeVar

from barnabas_client.errors import IllegalStateError
from barnabas_client.program import new_event_loop
from barnabas_client.tasks import reject, resolve

T = TypeVar("T")

#: Seconds that closing takes at the end of the process, unless what is closed has a shorter limit of its own.
_PATIENCE: Final = 15.0


class Closable(Protocol):
    """A client that is closed at the end of the process."""

    async def aclose(self) -> None:
        """Close it."""


class Call(Generic[T]):
    """A coroutine on the loop, and the thread that waits for it. Meanwhile the thread runs functions for the loop."""

    def __init__(
        self, work: Coroutine[Any, Any, T], calls: "list[Call[Any]]", before: Callable[[], None] | None
    ) -> None:
        self._work = work
        self._calls = calls
        self._before = before
        self._task: asyncio.Task[T] | None = None
        self._inbox: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    # In the loop.

    def begin(self) -> None:
        """Start the coroutine."""
        if self._before is not None:
            self._before()
        self._task = asyncio.get_running_loop().create_task(self._work)
        self._calls.append(self)
        self._task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Cancel the coroutine."""
        if self._task is not None:
            self._task.cancel()

    async def run_in_caller(self, function: Callable[[], T]) -> T:
        """Run a function in the thread that waits, and return its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = function()
            except Exception as error:
                loop.call_soon_threadsafe(reject, future, error)
            except BaseException:  # Ctrl-C: the thread raises it
                loop.call_soon_threadsafe(future.cancel)
                raise
            else:
                loop.call_soon_threadsafe(resolve, future, result)

        self._inbox.put(partial(copy_context().run, run))
        return await future

    def _done(self, task: "asyncio.Task[T]") -> None:
        self._calls.remove(self)
        self._inbox.put(None)

    # In the thread.

    def wait(self) -> "asyncio.Task[T]":
        """Wait for the coroutine's end, and return its task."""
        while (function := self._inbox.get()) is not None:
            function()
        assert self._task is not None
        return self._task


class LoopThread:
    """The event loop and its thread."""

    def __init__(self) -> None:
        #: Closed at the end of the process, unless nothing else refers to it any more.
        self.closing: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._pid = os.getpid()
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="barnabas-loop", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it runs: not after its end, nor in a forked process."""
        return self._pid == os.getpid() and not self._loop.is_closed()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine on the loop, and return a future of its result."""
        self._check(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(
        self,
        work: Coroutine[Any, Any, T],
        calls: list[Call[Any]] | None = None,
        before: Callable[[], None] | None = None,
        unused: Callable[[T], object] | None = None,
    ) -> T:
        """Run a coroutine on the loop, and wait for its result.

        Args:
            work: the coroutine. Ctrl-C cancels it, and is raised when it has ended.
            calls: has the call while it lasts, for :meth:`Call.run_in_caller`.
            before: called in the loop first.
            unused: called in the loop with a result that came together with Ctrl-C.

        Raises:
            IllegalStateError: called in the loop itself, or in another process.
        """
        self._check(work)
        if threading.current_thread() is self._thread:
            work.close()
            raise IllegalStateError(
                "this call would wait for itself: it is made in the event loop that has to answer it. To do: make it "
                "outside of callbacks, serializers and deserializers"
            )
        call = Call(work, [] if calls is None else calls, before)
        self._loop.call_soon_threadsafe(call.begin)
        try:
            task = call.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(call.cancel)
            task = call.wait()
            if unused is not None and not task.cancelled() and task.exception() is None:
                self._loop.call_soon_threadsafe(unused, task.result())
            raise
        return task.result()

    def close(self) -> None:
        """Close what is registered, and stop the loop."""
        if not self.alive:
            return
        try:
            self.start(self._close_all()).result(_PATIENCE)
        except Exception:  # the process exits; the operating system closes what is left
            pass
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            self._loop.close()

    async def _close_all(self) -> None:
        await asyncio.gather(*(one.aclose() for one in list(self.closing)), return_exceptions=True)

    def _check(self, work: Coroutine[Any, Any, Any]) -> None:
        if not self.alive:
            work.close()
            raise IllegalStateError(
                "it belongs to another process, or the process ends. To do: make a new one after the fork"
            )


_lock: Final = threading.Lock()
_current: LoopThread | None = None


def loop_thread() -> LoopThread:
    """Return the loop of this process."""
    global _current
    with _lock:
        if _current is None or not _current.alive:
            _current = LoopThread()
        return _current


def close_loop_thread() -> None:
    """Close everything on the loop of this process, and the loop. :func:`loop_thread` then makes another."""
    global _current
    with _lock:
        loop, _current = _current, None
    if loop is not None:
        loop.close()


atexit.register(close_loop_thread)
