"""Bounds the pauses of Python's garbage collector.

Reference counts free nearly everything that a broker uses. The collector finds the rest, reference cycles, and nothing
else runs meanwhile. With CPython's rules a collection may examine every object there is, which takes 50 ms for a few
hundred thousand. Here a collection examines what was allocated since the last ones: what has survived all three
generations counts as permanent (:func:`gc.freeze`), however much the broker holds.

Permanent objects are freed like all others when their references end. Cycles among them are found by a full collection,
which a broker makes when it has grown and has nothing to do; while it is busy, only when it has grown very much.
"""

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from barnabas_broker.periodic import PeriodicTimer

#: Allocations that start a collection of the youngest generation, and collections that start one of the next. A request
#: of many elements should not start one at every step. Together, up to 22,500 objects are examined, in 2 to 5 ms; and
#: as many as have taken the place of older ones, which CPython does not count.
THRESHOLDS: Final = (2_500, 1, 1)
#: Seconds between two checks.
_CHECK_SECONDS: Final = 2.0
#: Seconds of processor time, and of waiting for a processor, between two checks up to which a broker counts as quiet.
#: Traffic does not tell: one small request may cause much work.
QUIET_SECONDS: Final = 0.2
#: A full collection waits until a broker has grown by so many blocks of memory, most of them under 100 bytes.
LEAST_GROWTH: Final = 500_000
#: The same for one that is busy: nearly all that is new is in use, and a full collection takes long.
LEAST_GROWTH_BUSY: Final = 2_000_000
_OLDEST: Final = 2


class Collector:
    """Decides when a full collection is due.

    Args:
        used: seconds for which this process has had work to do.
        blocks: blocks of memory in use.
        collect: makes a full collection.
    """

    def __init__(self, used: Callable[[], float], blocks: Callable[[], int], collect: Callable[[], object]) -> None:
        self._used = used
        self._blocks = blocks
        self._collect = collect
        self._before = used()
        self._left = blocks()

    def check(self) -> None:
        """Make a full collection if it is due."""
        before, self._before = self._before, self._used()
        growth = self._blocks() - self._left
        busy = self._before - before > QUIET_SECONDS
        due = max(self._left, LEAST_GROWTH_BUSY) if busy else max(self._left // 4, LEAST_GROWTH)
        if growth >= due:
            self._collect()
            self._left = self._blocks()


def collect_all() -> None:
    """Examine every object."""
    gc.unfreeze()
    gc.collect()  # what survives is permanent again: see _survived
    # CPython puts the next collection of the oldest generation off until a quarter of what the last one left has been
    # added. This one leaves next to nothing.
    gc.collect()


def wanted() -> float:
    """Seconds of processor time that this process has used, and for which its first thread has waited for a processor.

    Among many other programs a busy broker gets little time: it would seem to be quiet. Only Linux tells the waiting.
    """
    try:
        waited = int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        waited = 0.0
    return time.process_time() + waited


def _survived(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == _OLDEST:
        gc.freeze()


@contextmanager
def bounded() -> Iterator[None]:
    """Bound the collector's pauses in this process while its event loop runs. What exists now is permanent."""
    enabled, thresholds = gc.isenabled(), gc.get_threshold()
    gc.freeze()
    gc.collect()  # as in collect_all: nothing is left now, so that the next one is not put off
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(_survived)
    gc.enable()
    timer = PeriodicTimer(_CHECK_SECONDS, Collector(wanted, sys.getallocatedblocks, collect_all).check)
    try:
        yield
    finally:
        timer.cancel()
        gc.callbacks.remove(_survived)
        gc.set_threshold(*thresholds)
        if not enabled:
            gc.disable()
