"""Totals, rates, means and maxima of the last half minute. Pure: `now` is an argument, in seconds of any clock."""

from collections import deque
from typing import Final

Metrics = dict[str, float | int | str | None]

#: The window of rates, means and maxima in seconds, and the number of its steps, as in Kafka's metrics.
WINDOW: Final = 30.0
STEPS: Final = 6


class _Step:
    """The values of one step of the window."""

    __slots__ = ("begun", "count", "maximum", "total")

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.count = 0
        self.total = self.maximum = 0.0


class Meter:
    """Measures events that have a size, such as the bytes or the seconds of a fetch.

    Attributes:
        count: the number of events.
        total: the sum of all sizes.
        last: the last size, None before the first event.
    """

    __slots__ = ("_begun", "_steps", "count", "last", "total")

    def __init__(self, now: float) -> None:
        self.count = 0
        self.total = 0.0
        self.last: float | None = None
        self._begun = now
        self._steps: deque[_Step] = deque()

    def add(self, size: float, now: float) -> None:
        """Add an event."""
        self.count += 1
        self.total += size
        self.last = size
        if not self._steps or now - self._steps[-1].begun >= WINDOW / STEPS:
            self._forget(now)
            self._steps.append(_Step(now))
        step = self._steps[-1]
        step.count += 1
        step.total += size
        step.maximum = max(step.maximum, size)

    def rate(self, now: float) -> float:
        """The size per second."""
        self._forget(now)
        return sum(step.total for step in self._steps) / self._seconds(now)

    def frequency(self, now: float) -> float:
        """The number of events per second."""
        self._forget(now)
        return sum(step.count for step in self._steps) / self._seconds(now)

    def mean(self, now: float) -> float | None:
        """The mean size, None without an event in the window."""
        self._forget(now)
        count = sum(step.count for step in self._steps)
        return sum(step.total for step in self._steps) / count if count else None

    def maximum(self, now: float) -> float | None:
        """The largest size, None without an event in the window."""
        self._forget(now)
        return max((step.maximum for step in self._steps), default=None)

    def _seconds(self, now: float) -> float:
        # At least a step: otherwise the first event would have a very high rate.
        return max(min(now - self._begun, WINDOW), WINDOW / STEPS)

    def _forget(self, now: float) -> None:
        while self._steps and now - self._steps[0].begun >= WINDOW:
            self._steps.popleft()


def in_ms(seconds: float | None) -> float | None:
    """Seconds in milliseconds."""
    return None if seconds is None else seconds * 1000.0
