"""Logs what holds the event loop: a switch for finding out why clients wait (``event.loop.watchdog.ms``).

While the loop is held, no request is answered. A timer of the loop notices afterwards that it comes late; a thread that
watches the timer takes the stack of the loop's thread meanwhile. The line says for how long the loop was held, how much
of that the thread had a processor, and how much the garbage collector took: if the thread had none, other programs had
it, or the thread waited for the disk.
"""

import asyncio
import gc
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Final

from barnabas_broker.logs import logger

log = logger("watchdog")

#: Frames of the stack that the line shows, the innermost ones.
_FRAMES: Final = 12
#: Seconds between two lines: one is for the longest hold since the line before.
_PAUSE: Final = 1.0


class LoopTurns:
    """The times at which the loop turned, and what was seen while it did not.

    Args:
        limit: seconds for which the loop may be held.
        now: a monotonic clock, in seconds.
        processor: seconds for which the loop's thread had a processor.
        report: gets what has held the loop.
    """

    def __init__(
        self,
        limit: float,
        now: Callable[[], float],
        processor: Callable[[], float],
        report: "Callable[[float, float, float, str], None]",
    ) -> None:
        self.interval = limit / 2
        self._limit = limit
        self._now = now
        self._processor = processor
        self._report = report
        self._turned, self._used = now(), processor()
        self._collected = self._collecting = 0.0
        self._stack = ""

    def turned(self) -> None:
        """The loop turns; called by it every `interval` seconds."""
        now, used = self._now(), self._processor()
        held = now - self._turned - self.interval
        if held > self._limit:
            self._report(held, used - self._used, self._collected, self._stack)
        self._turned, self._used, self._collected, self._stack = now, used, 0.0, ""

    def look(self, stack: Callable[[], str]) -> None:
        """Take the loop's stack if the loop is held; called by the thread."""
        turned = self._turned
        if not self._stack and self._now() - turned > self._limit + self.interval:
            taken = stack()
            if self._turned == turned:
                self._stack = taken

    def collector(self, phase: str, info: dict[str, int]) -> None:
        """The collector starts or stops; called by it."""
        if phase == "start":
            self._collecting = self._now()
        else:
            self._collected += self._now() - self._collecting


class Watchdog:
    """Watches the running event loop until :meth:`stop`.

    Args:
        limit: seconds for which the loop may be held.
    """

    def __init__(self, limit: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._watch = LoopTurns(limit, time.monotonic, time.thread_time, self._report)
        self._logged = -_PAUSE
        #: Of those that are not logged: the longest one, and their number.
        self._longest = (0.0, 0.0, 0.0, "")
        self._held = 0
        self._stopped = threading.Event()
        self._timer = self._loop.call_later(self._watch.interval, self._turn)
        gc.callbacks.append(self._watch.collector)
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        gc.callbacks.remove(self._watch.collector)
        self._stopped.set()
        self._thread.join()
        self._log()

    def _turn(self) -> None:
        self._watch.turned()
        if self._held and time.monotonic() >= self._logged + _PAUSE:
            self._log()
        self._timer = self._loop.call_later(self._watch.interval, self._turn)

    def _run(self) -> None:
        while not self._stopped.wait(self._watch.interval / 2):
            self._watch.look(self._stack)

    def _stack(self) -> str:
        return shown(sys._current_frames().get(self._thread_id))

    def _report(self, held: float, processor: float, collector: float, stack: str) -> None:
        self._longest = max(self._longest, (held, processor, collector, stack))
        self._held += 1

    def _log(self) -> None:
        if self._held:
            held, processor, collector, stack = self._longest
            log.warning(
                "event loop was held",
                ms=round(held * 1000),
                processor_ms=round(processor * 1000),
                collector_ms=round(collector * 1000),
                by=stack or "not seen",
                times=self._held,
            )
            self._longest, self._held, self._logged = (0.0, 0.0, 0.0, ""), 0, time.monotonic()


def shown(frame: FrameType | None) -> str:
    """A stack on one line, the innermost frame first: function, file and line."""
    frames = traceback.extract_stack(frame)[-_FRAMES:] if frame is not None else []
    return " < ".join(f"{each.name} ({each.filename.rpartition('/')[2]}:{each.lineno})" for each in reversed(frames))
