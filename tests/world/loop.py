"""An event loop with virtual time: when nothing is ready, time jumps to the next timer.

Everything that runs belongs to a :class:`Life` (or to none): a process, found by the context that a callback runs in.
A process that is frozen takes no step until it is thawed; one that was killed takes none any more.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack
from warnings import catch_warnings, simplefilter

#: How often an exception is thrown into a coroutine that waits in one finally after the other.
_THROWS: Final = 100
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

#: The process whose step is running.
LIFE: Final[ContextVar["Life | None"]] = ContextVar("LIFE", default=None)


class Life:
    """A process.

    Args:
        loop: it runs in.
        name: what others call it.

    Attributes:
        alive: whether it has not been killed.
        frozen: whether it has been stopped (SIGSTOP).
        threads: what ends with it.
    """

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.context = copy_context()
        self.context.run(LIFE.set, self)
        self.parked: list[asyncio.Handle] = []
        self.threads: list[Life] = []
        self._loop = loop

    def call(self, step: Callable[..., object], *args: Any) -> None:
        """Run a step of the process, soon."""
        if self.alive:
            self._loop.call_soon(step, *args, context=self.context)

    def spawn(self, coroutine: Any, name: str) -> None:
        """Run a coroutine in the process."""
        self._loop.keep(asyncio.Task(coroutine, loop=self._loop, name=name, context=self.context))

    def freeze(self) -> None:
        """SIGSTOP."""
        self.frozen = True

    def thaw(self) -> None:
        """SIGCONT."""
        self.frozen = False
        parked, self.parked = self.parked, []
        self._loop.ready.extend(parked)

    def kill(self) -> None:
        """SIGKILL."""
        self.alive = False
        for handle in self.parked:
            _drop(handle)
        self.parked.clear()
        for thread in self.threads:
            thread.kill()


class _Handle(asyncio.Handle):
    __slots__ = ("life",)
    life: Life | None


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ("life",)
    life: Life | None


def _drop(handle: Any) -> None:
    """A callback of a process that has been killed: what it would have retrieved is not reported as forgotten."""
    for each in handle._args or ():
        if isinstance(each, asyncio.Future) and each.done() and not each.cancelled():
            each.exception()


def _unwind(coroutine: Any) -> None:
    """End a coroutine. Those that it waits for end as well: ``close`` would leave one that waits in a finally."""
    with suppress(Exception, asyncio.CancelledError):
        for _ in range(_THROWS):
            coroutine.throw(asyncio.CancelledError)


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop with virtual time; see the module.

    Args:
        start: its first time, in seconds.
    """

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.ready: deque[asyncio.Handle] = deque()
        self.steps = 0
        #: Called with exceptions that no task or callback has caught.
        self.uncaught: Callable[[dict[str, Any]], None] = lambda context: None
        #: How to open a connection.
        self.connector: Callable[[Any, str], Any] | None = None
        #: Seconds that work takes which a thread does.
        self.working: Callable[[], float] = lambda: 0.0
        self._readers: dict[Any, Callable[[], object]] = {}
        self._now = start
        self._timers: list[tuple[float, int, _TimerHandle]] = []
        self._order = count()
        self._kept: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        handle.life = LIFE.get() if context is None else context.get(LIFE)
        self.ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _TimerHandle(when, callback, args, self, context)
        handle.life = LIFE.get() if context is None else context.get(LIFE)
        heappush(self._timers, (when, next(self._order), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are skipped when they are due."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.uncaught(context)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> Any:
        task = asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)
        self.keep(task)
        return task

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        assert self.connector is not None
        return await self.connector(protocol_factory, host)

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_: Any) -> Any:
        protocol = protocol_factory()
        sock.connected(protocol)
        return sock, protocol

    def add_reader(self, fd: Any, callback: Callable[[Unpack[_Ts]], Any], *args: *_Ts) -> None:
        self._readers[fd] = partial(callback, *args)
        self.call_soon(self.readable, fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def readable(self, fd: Any) -> None:
        """A connection has arrived at a socket that listens."""
        if fd in self._readers:
            self._readers[fd]()

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts) -> "asyncio.Future[_T]":
        """Do the work of a thread in virtual time, in this thread."""
        future: asyncio.Future[_T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self.working(), work)
        return future

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Keep a reference to a task, so that it is not collected during the run after a kill of its process."""
        self._kept.append(task)
        if len(self._kept) > 1000:
            self._kept = [each for each in self._kept if not each.done()]

    def run(self, until: float, after_each: Callable[[], bool]) -> None:
        """Run until the time `until`, or until `after_each`, called after every step, returns true."""
        ready, timers = self.ready, self._timers
        asyncio._set_running_loop(self)
        try:
            while True:
                if not ready:
                    while timers and timers[0][2].cancelled():
                        heappop(timers)
                    if not timers or timers[0][0] > until:
                        self._now = max(self._now, until)
                        return
                    self._now = max(self._now, timers[0][0])
                    while timers and timers[0][0] <= self._now:
                        ready.append(heappop(timers)[2])
                handle: Any = ready.popleft()
                if handle._cancelled:
                    continue
                life = handle.life
                if life is not None:
                    if not life.alive:
                        _drop(handle)
                        continue
                    if life.frozen:
                        life.parked.append(handle)
                        continue
                self.steps += 1
                handle._run()
                if after_each():
                    return
        finally:
            asyncio._set_running_loop(None)

    def end(self) -> None:
        """Discard everything that is pending, without warnings."""
        self.uncaught = lambda context: None
        task: Any
        for task in self._kept:
            if not task.done():
                task._log_destroy_pending = False
                with catch_warnings():
                    simplefilter("ignore", RuntimeWarning)  # a coroutine that it begins to wait for never runs
                    _unwind(task.get_coro())
        self._kept.clear()
        self.ready.clear()
        self._timers.clear()
        self.close()
