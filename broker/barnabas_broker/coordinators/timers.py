"""One timer of the event loop for thousands of deadlines. A shell around a heap.

A deadline that moves to a later time costs nothing until its earlier time comes; then it is put back into the heap.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, Protocol

from barnabas_broker.clock import Handle
from barnabas_broker.coordinators.ports import Scheduler

#: A timer that fires this many seconds late means that the event loop was blocked.
_LATE_SECONDS: Final = 1.0
#: After that the loop gets this many seconds to read the heartbeats in its sockets, before sessions expire.
_GRACE_SECONDS: Final = 0.25


class Timed(Protocol):
    """An object with a deadline.

    Attributes:
        armed: the deadline for which it is in the heap; inf if it is not.
    """

    armed: float

    def next_deadline(self) -> float:
        """The earliest time at which :meth:`fire` has something to do; inf for never."""

    def fire(self, now: float) -> None:
        """Do what is due."""


class Timers:
    """Fires objects at their deadlines.

    Args:
        loop: has the one real timer.
        now: seconds on a monotonic clock.
    """

    def __init__(self, loop: Scheduler, now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        self._heap: list[tuple[float, int, Timed]] = []
        self._order = count()
        self._handle: Handle | None = None
        self._set_for = inf
        self._in_grace = False
        self._closed = False

    def __len__(self) -> int:
        """The entries of the heap."""
        return len(self._heap)

    def arm(self, timed: Timed) -> None:
        """Make `timed` fire at its deadline. Call it whenever the deadline may have become earlier."""
        at = timed.next_deadline()
        if at < timed.armed:
            timed.armed = at
            heappush(self._heap, (at, next(self._order), timed))
            if at < self._set_for:
                self._set(at)

    def run(self) -> None:
        """Fire what is due now, and set the timer for the next deadline.

        Each object is fired once. One that is due again afterwards waits for the next turn of the loop: a machine that
        leaves its deadline in the past must not hold the loop.
        """
        now = self._now()
        heap = self._heap
        fired: set[Timed] = set()
        again: list[tuple[float, int, Timed]] = []
        try:
            while heap and heap[0][0] <= now:
                entry = heappop(heap)
                at, _, timed = entry
                if at != timed.armed:
                    continue  # It has fired already, for an earlier deadline.
                if timed in fired:
                    again.append(entry)
                    continue
                timed.armed = inf
                if timed.next_deadline() <= now:
                    fired.add(timed)
                    timed.fire(now)
                self.arm(timed)
        finally:
            for entry in again:
                heappush(heap, entry)
            self._set(heap[0][0] if heap else inf)

    def close(self) -> None:
        """Cancel the timer; nothing fires any more."""
        self._closed = True
        self._heap.clear()
        self._set(inf)

    def _set(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._set_for = at
        if at != inf and not self._closed:
            self._handle = self._loop.call_later(max(at - self._now(), 0.0), self._due)

    def _due(self) -> None:
        self._handle = None
        if not self._in_grace and self._now() - self._set_for > _LATE_SECONDS:
            # The loop was blocked, and heartbeats that arrived meanwhile have not been read yet.
            self._in_grace = True
            self._handle = self._loop.call_later(_GRACE_SECONDS, self._due)
            return
        self._in_grace = False
        self._set_for = inf
        self.run()
