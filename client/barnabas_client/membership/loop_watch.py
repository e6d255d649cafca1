"""Measures how long the program's event loop takes to answer. Pure, but for :func:`location`.

The membership's thread pings the program's loop every `interval` seconds, one ping at a time; the time until the answer
is the loop's **lag**. A loop that has not answered for `threshold` seconds is **blocked**: what its thread is doing is
recorded at that moment, and when the answer comes, one warning says where it was blocked. If the recording itself came
late, the whole process stood still, and the warning says that instead.
"""

import os
import sys
from functools import cache
from importlib import import_module
from types import FrameType
from typing import Final

#: Seconds between two pings.
INTERVAL: Final = 0.5
#: Seconds of lag that are never worth a warning.
LEAST: Final = 1.0


class LoopWatch:
    """Watches one loop.

    Args:
        heartbeat_interval: seconds; a longer lag would have delayed a heartbeat if the loop itself sent them.
        max_poll_interval: seconds.
    """

    def __init__(self, heartbeat_interval: float, max_poll_interval: float) -> None:
        self.interval = min(INTERVAL, max_poll_interval / 10)
        self.threshold = max(LEAST, heartbeat_interval)
        #: Seconds of lag: the longest, and the last.
        self.longest = self.last = 0.0
        #: Where the loop is blocked; None while that is not known.
        self.location: str | None = None
        self._max_poll_ms = round(max_poll_interval * 1000)
        self._asked_at = 0.0
        self._inspected_late = True

    def asked(self, now: float) -> None:
        """A ping was sent."""
        self._asked_at, self.location, self._inspected_late = now, None, True

    def inspected(self, now: float, location: str) -> None:
        """No answer for `threshold` seconds: the loop's thread was at `location`."""
        self.location = location
        self._inspected_late = now - self._asked_at > 1.5 * self.threshold

    def answered(self, lag: float) -> str | None:
        """The answer has come after `lag` seconds; returns a warning for the log, if one is due."""
        self.last, self.longest = lag, max(self.longest, lag)
        location, self.location = self.location, None
        if lag < self.threshold:
            return None
        if self._inspected_late or location is None:
            return (
                f"this process stood still for {lag:.1f} s, and so did its heartbeats to the group. To do: if it was "
                "not suspended on purpose, look for an extension that holds the interpreter's lock, or for a machine "
                "without free CPU or memory"
            )
        return (
            f"the event loop was blocked for {lag:.1f} s, {location}; heartbeats continued, but nothing was fetched or "
            f"committed, and a consumer that does not poll for max_poll_interval_ms ({self._max_poll_ms} ms) leaves "
            "its group. To do: move blocking code off the loop, with `await asyncio.to_thread(...)` or a process pool"
        )


@cache
def _libraries() -> tuple[str, ...]:
    """Folders of the standard library and of installed packages. `sysconfig` is slow to import, and rarely needed."""
    get_path = import_module("sysconfig").get_path
    return tuple({os.path.normcase(get_path(name)) for name in ("stdlib", "purelib", "platlib")})


def location(thread_id: int) -> str:
    """The innermost line of the program's own code in a thread's stack, ``in handle (app.py:42)``."""
    innermost = frame = sys._current_frames().get(thread_id)
    while frame is not None and os.path.normcase(frame.f_code.co_filename).startswith((*_libraries(), "<")):
        frame = frame.f_back
    found: FrameType | None = frame or innermost
    if found is None:
        return "at an unknown place"
    return f"in {found.f_code.co_name} ({os.path.basename(found.f_code.co_filename)}:{found.f_lineno})"
