"""What the process costs and how late its event loop is."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from barnabas_broker.metrics import Histogram

#: Seconds between two looks at how late the loop is.
INTERVAL: Final = 0.25
LAG_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_STATM: Final = Path("/proc/self/statm")


class LoopLag:
    """Measures by how much a timer comes late: that long a request may have waited for the loop.

    Args:
        now: a clock that never goes back, in seconds.
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
        """Begin to measure."""
        self._due = self._now() + INTERVAL
        self._timer = self._call_later(INTERVAL, self._look)

    def stop(self) -> None:
        """Measure no longer."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
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
