"""The states of a client object from its creation to its end, and the event loop that it belongs to."""

import asyncio
import threading
import warnings
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from barnabas_client.errors import IllegalStateError
from barnabas_client.tasks import end, uninterrupted


class State(Enum):
    """The state of a client object.

    NEW: created, not started: nothing is connected. Goes to STARTING or STOPPED.
    STARTING: `start` is connecting. Goes to RUNNING, to STOPPING if it fails or is stopped meanwhile, or to STOPPED.
    RUNNING: started. Goes to STOPPING or STOPPED.
    STOPPING: a consumer commits and leaves its group: polls are refused, the rebalance listener may still commit. Goes
        to STOPPED.
    STOPPED: stopped, or `start` failed. It cannot be started again.
    """

    NEW = "not started"
    STARTING = "starting"
    RUNNING = "started"
    STOPPING = "stopping"
    STOPPED = "stopped"


class AsyncOnly:
    """Base of the async clients: a plain ``with`` is an error that names the way, and so is a client that is dropped
    while it runs."""

    _life: "Life"

    if not TYPE_CHECKING:  # type checkers refuse the block themselves

        def __enter__(self) -> NoReturn:
            name = type(self).__name__
            raise TypeError(f"{name} has no `with` block: write `async with`, or take barnabas.sync.{name}")

        def __exit__(self, *error: object) -> None: ...

    def __del__(self) -> None:
        life = getattr(self, "_life", None)  # one whose settings were refused has none
        if life is not None and life.state is State.RUNNING:
            self._abandon()
            warnings.warn(
                f"{self!r} was never stopped: await stop(), or use `async with`", ResourceWarning, stacklevel=2
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self._life.state.value}>"

    def _abandon(self) -> None:
        """The program has dropped the client without stopping it."""


class Life:
    """The state of a client object, and the event loop in which it was started: its methods work nowhere else.

    Args:
        name: what it belongs to, such as "producer".
        stopped: the error of calls after its end.
    """

    __slots__ = ("_loop", "_name", "_starting", "_stopped", "_thread", "state")

    def __init__(self, name: str, stopped: type[IllegalStateError] = IllegalStateError) -> None:
        self.state = State.NEW
        self._name = name
        self._stopped = stopped
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._starting: asyncio.Task[None] | None = None

    async def start(
        self, connect: Callable[[], Coroutine[Any, Any, None]], disconnect: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Connect; the running event loop is the one from now on.

        Args:
            connect: runs in a task of its own, so that a stop can cancel it wherever it waits.
            disconnect: called if that fails, unless it was stopped: then the stop disconnects.

        Raises:
            IllegalStateError: it was started before, or was stopped meanwhile.
        """
        if self.state is not State.NEW:
            raise IllegalStateError(f"start(): this {self._name} is {self.state.value} already. To do: make a new one")
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.state = State.STARTING
        self._starting = self._loop.create_task(connect(), name=f"barnabas-{self._name}-start")
        try:
            await self._starting
        except BaseException as error:
            caller = asyncio.current_task()
            if self.state is State.STARTING:
                self.state = State.STOPPING
                try:
                    await uninterrupted(disconnect())
                finally:
                    self.state = State.STOPPED
            elif isinstance(error, asyncio.CancelledError) and caller is not None and not caller.cancelling():
                raise self._stopped(f"this {self._name} was stopped while it started") from None
            raise
        if self.state is not State.STARTING:
            raise self._stopped(f"this {self._name} was stopped while it started")
        self.state = State.RUNNING

    async def end_start(self) -> None:
        """Cancel a start in progress, and wait until it has ended."""
        await end(self._starting)

    def check_running(self) -> None:
        """Refuse a call unless the client runs, and is in its event loop.

        Raises:
            IllegalStateError: it is not started, was stopped, or is called from elsewhere.
        """
        if self.state in (State.STOPPING, State.STOPPED):
            raise self.stopped()
        if self.state is not State.RUNNING:
            raise self.not_started()
        self.check()

    def stopped(self) -> IllegalStateError:
        """The error of a call that comes too late."""
        return self._stopped(f"this {self._name} was stopped. To do: make a new one")

    def not_started(self) -> IllegalStateError:
        """The error of a call that comes too early."""
        return IllegalStateError(
            f"this {self._name} is not started. To do: start() it first, or use it in a `with` block"
        )

    def check(self) -> None:
        """Refuse a call from another event loop or thread; before the start every place is right.

        The thread of the event loop may call plain methods also while the loop does not run.

        Raises:
            IllegalStateError: it is called from elsewhere.
        """
        if self._loop is None:
            return
        here = threading.get_ident() == self._thread
        if here and self._loop.is_running():
            return  # a thread runs one loop at a time; asking for the running one is a system call until Python 3.12
        try:
            if asyncio.get_running_loop() is self._loop:
                return
        except RuntimeError:
            if here:
                return
        raise IllegalStateError(
            f"this {self._name} belongs to the event loop that started it, and this is another event loop or thread. "
            "To do: make one for each loop, or call it in its own: asyncio.run_coroutine_threadsafe(...) for "
            "coroutines, loop.call_soon_threadsafe(...) for plain methods; the clients of barnabas.sync may be called "
            "anywhere"
        )
