"""Judges how long the program's event loop keeps others waiting. Pure, but for :func:`place`.

The membership's thread asks the program's loop for a sign of life every `interval` seconds, one question at a time; how
long the answer takes is the loop's **lag**. A loop that is silent for `threshold` seconds is **blocked**: what its
thread is doing is looked at then, and when the answer comes at last the program is told once, in plain words. If the
looking itself was late the whole process stood still, and nothing that it could have done would have helped.
"""

import os
import sys
import sysconfig
from types import FrameType
from typing import Final

#: How often a loop is asked, in seconds.
INTERVAL: Final = 0.5
#: Shorter silences are not worth a warning, in seconds.
LEAST: Final = 1.0


class LoopWatch:
    """One loop.

    Args:
        heartbeat_interval: seconds; a silence of that length would have delayed a heartbeat sent by the loop itself.
        max_poll_interval: seconds.
    """

    def __init__(self, heartbeat_interval: float, max_poll_interval: float) -> None:
        self.interval = min(INTERVAL, max_poll_interval / 10)
        self.threshold = max(LEAST, heartbeat_interval)
        #: The longest answer took so long, and the last one.
        self.longest = self.last = 0.0
        #: Where the loop is blocked, once that was looked at.
        self.place: str | None = None
        self._max_poll_ms = round(max_poll_interval * 1000)
        self._asked_at = 0.0
        self._looked_late = True

    def asked(self, now: float) -> None:
        """A question was sent."""
        self._asked_at, self.place, self._looked_late = now, None, True

    def looked(self, now: float, place: str) -> None:
        """No answer for `threshold` seconds: this is what the loop's thread does."""
        self.place = place
        self._looked_late = now - self._asked_at > 1.5 * self.threshold

    def answered(self, lag: float) -> str | None:
        """The answer has come after `lag` seconds; what the program must be told, if anything."""
        self.last, self.longest = lag, max(self.longest, lag)
        place, self.place = self.place, None
        if lag < self.threshold:
            return None
        if self._looked_late or place is None:
            return (
                f"this process stood still for {lag:.1f} s, and so did the heartbeats to the group. To do: if it was "
                "not suspended on purpose, look for an extension that holds the interpreter's lock, or for a machine "
                "without free CPU or memory"
            )
        return (
            f"the event loop was blocked for {lag:.1f} s, {place}; heartbeats went on, but nothing was fetched or "
            f"committed meanwhile, and without a poll for max_poll_interval_ms ({self._max_poll_ms} ms) this consumer "
            "leaves its group. To do: move what blocks off the loop, with `await asyncio.to_thread(...)` or a process "
            "pool"
        )


_LIBRARIES: Final = tuple({os.path.normcase(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")})


def place(thread_id: int) -> str:
    """What a thread is doing now: the innermost line of the program's own code, ``in handle (app.py:42)``."""
    innermost = frame = sys._current_frames().get(thread_id)
    while frame is not None and os.path.normcase(frame.f_code.co_filename).startswith((*_LIBRARIES, "<")):
        frame = frame.f_back
    found: FrameType | None = frame or innermost
    if found is None:
        return "nobody knows where"
    return f"in {found.f_code.co_name} ({os.path.basename(found.f_code.co_filename)}:{found.f_lineno})"
