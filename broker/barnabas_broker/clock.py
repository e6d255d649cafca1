"""The time of a broker: a monotonic clock, the time of day, and the timers of what waits on them.

Sessions, rebalances, transactions, the retention of records and offsets live by it. Connections, requests, quotas,
leases and logins live by the machine's own clocks, as the other side does.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol


def wall_ms() -> int:
    """The time of day, in ms."""
    return time.time_ns() // 1_000_000


class Handle(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Clock:
    """The machine's clocks, and the timers of the running event loop. A test may put another one in its place."""

    #: Seconds on a monotonic clock, and the time of day in ms since 1970. Not methods: each request asks several times.
    now = staticmethod(time.monotonic)
    wall_ms = staticmethod(wall_ms)

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        #: A call in the next iteration of the loop, and a future of it: the loop's own, as each commit needs both.
        self.call_soon: Callable[..., Handle] = self._loop.call_soon
        self.create_future: Callable[[], asyncio.Future[Any]] = self._loop.create_future

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Call after `delay` seconds of this clock."""
        return self._loop.call_later(delay, callback, *args)
