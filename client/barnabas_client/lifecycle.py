"""The states of a client object from its creation to its end, and the event loop that it belongs to."""

import asyncio
import threading
from enum import Enum
from typing import TYPE_CHECKING, NoReturn

from barnabas_client.errors import IllegalStateError


class Lifecycle(Enum):
    """The state of a producer or an admin client.

    NEW: created, not started: nothing is connected, and only `start` may be called. Goes to STARTING or CLOSED.
    STARTING: `start` is connecting. Goes to RUNNING, or to CLOSED if it fails, or if it is stopped meanwhile.
    RUNNING: started. Goes to CLOSED.
    CLOSED: stopped, or `start` failed. It cannot be started again.
    """

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    CLOSED = "closed"


class AsyncOnly:
    """Base of the async clients: a plain ``with`` is an error that names the way."""

    if not TYPE_CHECKING:  # type checkers refuse the block themselves

        def __enter__(self) -> NoReturn:
            name = type(self).__name__
            raise TypeError(f"a {name} has no `with` block: write `async with`, or take barnabas.sync.{name}")

        def __exit__(self, *error: object) -> None: ...


class Home:
    """The event loop in which a client object was started: its methods work nowhere else.

    Args:
        name: what it belongs to, such as "producer".
    """

    __slots__ = ("_loop", "_name", "_thread")

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def settle(self) -> None:
        """The running event loop is the one from now on."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def check(self) -> None:
        """Refuse a call from another event loop or thread; before :meth:`settle` every place is right.

        The thread of the event loop may call plain methods also while the loop does not run.

        Raises:
            IllegalStateError: it is called from elsewhere.
        """
        try:
            if self._loop is None or asyncio.get_running_loop() is self._loop:
                return
        except RuntimeError:
            if threading.get_ident() == self._thread:
                return
        raise IllegalStateError(
            f"this {self._name} belongs to the event loop that started it, and this is another event loop or thread. "
            "To do: make one for each loop, or call it in its own: asyncio.run_coroutine_threadsafe(...) for "
            "coroutines, loop.call_soon_threadsafe(...) for plain methods; the clients of barnabas.sync may be called "
            "anywhere"
        )
