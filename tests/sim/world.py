"""Virtual time, random choices, and a trace of what happened."""

import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any


class Violation(AssertionError):
    """An invariant does not hold. The text names it, and has the trace."""


class Timer:
    """A scheduled call."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        """Cancel the call."""
        self.callback = None


class World:
    """All scheduled calls in their order, and the only source of time and of random numbers.

    Args:
        seed: of the random numbers.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.chance = random.Random(seed)
        self.steps = 0
        #: Whether faults may happen.
        self.faults = True
        self.check: Callable[[], None] = lambda: None
        #: The first violation: a task may have caught it.
        self.violation: Violation | None = None
        self._queue: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._trace: deque[tuple[float, str, tuple[Any, ...]]] = deque(maxlen=150)

    def after(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call `callback` in `delay` seconds."""
        return self.at(self.now + delay, callback, *args)

    def at(self, time: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call `callback` at `time`; calls for the same time are made in the order in which they were scheduled."""
        timer = Timer(callback, args)
        heappush(self._queue, (time, next(self._order), timer))
        return timer

    def run(self, until: float, done: Callable[[], bool] | None = None) -> None:
        """Run to the time `until`, or until `done` returns True. Invariants are checked after every step."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            time, _, timer = heappop(queue)
            if timer.callback is None:
                continue
            self.now = max(self.now, time)
            timer.callback(*timer.args)
            self.steps += 1
            self.check()
            if self.violation is not None:
                raise self.violation
            if done is not None and done():
                return
        self.now = max(self.now, until)

    def happens(self, probability: float) -> bool:
        """True with this probability while faults may happen, else False."""
        return self.faults and self.chance.random() < probability

    def between(self, low: float, high: float) -> float:
        """A random time between two."""
        return low + (high - low) * self.chance.random()

    def note(self, text: str, *args: Any) -> None:
        """Add a line to the trace; it is formatted only for a violation."""
        self._trace.append((self.now, text, args))

    def fail(self, what: str) -> None:
        """An invariant does not hold."""
        lines = [f"{at:9.3f} {text % args if args else text}" for at, text, args in self._trace]
        self.violation = Violation(f"seed {self.seed}, {self.now:.3f} s: {what}\n" + "\n".join(lines))
        raise self.violation
