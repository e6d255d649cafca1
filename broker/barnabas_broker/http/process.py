"""Resources of the process, and the lag of its event loop."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from barnabas_broker.metrics import Histogram

#: Seconds between two measurements of the lag.
INTERVAL: Final = 0.25
LAG_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_STATM: Final = Path("/proc/self/statm")


class LoopLag:
    """Measures how late a timer fires: a request may have waited that long for the event loop.

    Args:
        now: a monotonic clock, in seconds.
        call_later: the loop's.

    Attributes:
        lag: seconds, one observation per :data:`INTERVAL`.
    """

    def __init__(
        self, now: Callable[[], float], call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]
    ) -> None:
        self.lag = Histogram(LAG_BOUNDS)
        self._now = now
        self._call_later = call_later
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to measure."""
        self._due = self._now() + INTERVAL
        self._timer = self._call_later(INTERVAL, self._measure)

    def stop(self) -> None:
        """Stop to measure."""
        if self._timer is not None:
            self._timer.cancel()

    def _measure(self) -> None:
        self.lag.observe(max(self._now() - self._due, 0.0))
        self.start()


def cpu_seconds() -> float:
    """Seconds of CPU, user and system, of all threads."""
    return time.process_time()


def resident_bytes() -> int | None:
    """Bytes of memory that are in use; None where the system does not say, which is outside of Linux."""
    try:
        return int(_STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None
