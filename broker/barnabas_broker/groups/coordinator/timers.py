"""One timer for thousands of deadlines. A shell around a heap.

A deadline that moves back costs nothing until its time comes: whoever it belongs to is asked again, and put back.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, Protocol

from barnabas_broker.groups.ports import Handle, Scheduler

#: A timer that fires this many seconds late means that the loop was held up.
_LATE: Final = 1.0
#: Then the loop gets this many seconds to read the heartbeats that wait in the sockets, before anybody is called late.
_GRACE: Final = 0.25


class Timed(Protocol):
    """Something with a next deadline.

    Attributes:
        armed: the deadline under which it is in the heap; inf if it is not.
    """

    armed: float

    def next_deadline(self) -> float:
        """When :meth:`fire` is due at the earliest; inf for never."""

    def fire(self, now: float) -> None:
        """Do what is due."""


class Timers:
    """Fires what is due.

    Args:
        loop: has the one real timer.
        now: seconds on a clock that never goes back.
    """

    def __init__(self, loop: Callable[[], Scheduler], now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        self._heap: list[tuple[float, int, Timed]] = []
        self._order = count()
        self._handle: Handle | None = None
        self._set_for = inf
        self._graceful = False
        self._closed = False

    def arm(self, timed: Timed) -> None:
        """See to it that `timed` fires at its deadline. To be called when that may have come nearer."""
        at = timed.next_deadline()
        if at < timed.armed:
            timed.armed = at
            heappush(self._heap, (at, next(self._order), timed))
            if at < self._set_for:
                self._set(at)

    def run(self) -> None:
        """Fire what is due now, and set the timer for what is due next."""
        now = self._now()
        heap = self._heap
        while heap and heap[0][0] <= now:
            at, _, timed = heappop(heap)
            if at != timed.armed:
                continue  # It was armed for an earlier time since, and that was used.
            timed.armed = inf
            if timed.next_deadline() <= now:
                timed.fire(now)
            self.arm(timed)
        self._set(heap[0][0] if heap else inf)

    def close(self) -> None:
        """Fire nothing any more."""
        self._closed = True
        self._heap.clear()
        self._set(inf)

    def _set(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._set_for = at
        if at != inf and not self._closed:
            self._handle = self._loop().call_later(max(at - self._now(), 0.0), self._due)

    def _due(self) -> None:
        self._handle = None
        if not self._graceful and self._now() - self._set_for > _LATE:
            # The process was held up, and heartbeats came meanwhile that nobody has read.
            self._graceful = True
            self._handle = self._loop().call_later(_GRACE, self._due)
            return
        self._graceful = False
        self._set_for = inf
        self.run()
