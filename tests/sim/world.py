"""Virtual time, chance, and what went on."""

import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any


class Violation(AssertionError):
    """An invariant does not hold. The text says which, and what led there."""


class Timer:
    """A call that is to come."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        """Let it not come."""
        self.callback = None


class World:
    """Everything that is to happen, in its order; nothing happens by itself.

    Args:
        seed: of all chance there is.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.chance = random.Random(seed)
        self.steps = 0
        #: Whether anything may go wrong.
        self.faults = True
        self.check: Callable[[], None] = lambda: None
        self._queue: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._trace: deque[tuple[float, str, tuple[Any, ...]]] = deque(maxlen=150)

    def after(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call `callback` in `delay` seconds."""
        return self.at(self.now + delay, callback, *args)

    def at(self, time: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call `callback` at `time`; what is due at the same time is called in the order in which it was asked for."""
        timer = Timer(callback, args)
        heappush(self._queue, (time, next(self._order), timer))
        return timer

    def run(self, until: float, done: Callable[[], bool] | None = None) -> None:
        """Let time pass, at most to `until`, or until `done` says so. Invariants are checked after every step."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            time, _, timer = heappop(queue)
            if timer.callback is None:
                continue
            self.now = max(self.now, time)
            timer.callback(*timer.args)
            self.steps += 1
            self.check()
            if done is not None and done():
                return
        self.now = max(self.now, until)

    def happens(self, probability: float) -> bool:
        """Chance, as long as anything may go wrong."""
        return self.faults and self.chance.random() < probability

    def between(self, low: float, high: float) -> float:
        """A time between two."""
        return low + (high - low) * self.chance.random()

    def note(self, text: str, *args: Any) -> None:
        """Remember what went on; formatted only if somebody asks."""
        self._trace.append((self.now, text, args))

    def fail(self, what: str) -> None:
        """An invariant does not hold."""
        lines = [f"{at:9.3f} {text % args if args else text}" for at, text, args in self._trace]
        raise Violation(f"seed {self.seed}, {self.now:.3f} s: {what}\n" + "\n".join(lines))
