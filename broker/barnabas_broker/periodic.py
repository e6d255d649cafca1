"""A timer that repeats until it is cancelled."""

import asyncio
from collections.abc import Callable


class PeriodicTimer:
    """Calls a function at once, and again after every interval until :meth:`cancel`. It needs a running event loop.

    Args:
        seconds: the interval.
        call: the function. If it raises, the event loop logs the exception and the timer continues.
    """

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self._seconds = seconds
        self._call = call
        self._loop = asyncio.get_running_loop()
        call()
        self._next = self._loop.call_later(seconds, self._run)

    def _run(self) -> None:
        self._next = self._loop.call_later(self._seconds, self._run)
        self._call()

    def cancel(self) -> None:
        """Do not call the function again."""
        self._next.cancel()
