"""Totals, rates, means and peaks of the last half minute. Pure: each call is told the time, in seconds of any clock."""

from collections import deque
from dataclasses import dataclass
from typing import Final

#: What a rate, a mean and a peak look back on, in seconds, and in how many steps it moves on. As Kafka's metrics do.
WINDOW: Final = 30.0
STEPS: Final = 6


@dataclass(slots=True)
class _Step:
    begun: float
    count: int = 0
    total: float = 0.0
    most: float = 0.0


class Meter:
    """Measures something that happens now and then and has a size: bytes of a fetch, or its seconds."""

    __slots__ = ("_begun", "_steps", "count", "last", "total")

    def __init__(self, now: float) -> None:
        #: How often it happened, all in all.
        self.count = 0
        #: The sum of all sizes.
        self.total = 0.0
        #: The last size.
        self.last: float | None = None
        self._begun = now
        self._steps: deque[_Step] = deque()

    def add(self, size: float, now: float) -> None:
        """It happened."""
        self.count += 1
        self.total += size
        self.last = size
        if not self._steps or now - self._steps[-1].begun >= WINDOW / STEPS:
            self._forget(now)
            self._steps.append(_Step(now))
        step = self._steps[-1]
        step.count += 1
        step.total += size
        step.most = max(step.most, size)

    def rate(self, now: float) -> float:
        """Size a second."""
        self._forget(now)
        return sum(step.total for step in self._steps) / self._seconds(now)

    def frequency(self, now: float) -> float:
        """Times a second."""
        self._forget(now)
        return sum(step.count for step in self._steps) / self._seconds(now)

    def mean(self, now: float) -> float | None:
        """Size each time, None if it did not happen lately."""
        self._forget(now)
        count = sum(step.count for step in self._steps)
        return sum(step.total for step in self._steps) / count if count else None

    def most(self, now: float) -> float | None:
        """The largest size, None if it did not happen lately."""
        self._forget(now)
        return max((step.most for step in self._steps), default=None)

    def _seconds(self, now: float) -> float:
        # Not less than a step, so that the first event of all does not look like a flood.
        return max(min(now - self._begun, WINDOW), WINDOW / STEPS)

    def _forget(self, now: float) -> None:
        while self._steps and now - self._steps[0].begun >= WINDOW:
            self._steps.popleft()
