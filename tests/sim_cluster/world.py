"""Virtual time, chance, and what went on."""

import random
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

from tests.sim_cluster.loop import LIFE, VirtualLoop

#: Lines of the trace that a violation shows.
TRACE: Final = 120


class Violation(AssertionError):
    """An invariant does not hold. The text says which, and what led there."""


class World:
    """What everything shares.

    Args:
        seed: of all chance there is.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = VirtualLoop()
        self.loop.uncaught = self._uncaught
        self.chance = random.Random(seed)
        #: Whether anything may go wrong.
        self.faults = True
        self.violation: str | None = None
        #: Callbacks that belong to no process.
        self.nobody = Context()
        self.trace: deque[tuple[float, str, tuple[Any, ...]]] = deque(maxlen=TRACE)

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.loop.time()

    def after(self, delay: float, step: Callable[..., object], *args: Any) -> Any:
        """Call `step` in `delay` seconds, on behalf of nobody."""
        return self.loop.call_later(delay, step, *args, context=self.nobody)

    def happens(self, probability: float) -> bool:
        """Chance, as long as anything may go wrong."""
        return self.faults and self.chance.random() < probability

    def between(self, low: float, high: float) -> float:
        """A number between two."""
        return low + (high - low) * self.chance.random()

    def note(self, text: str, *args: Any) -> None:
        """Remember what went on; formatted only if somebody asks."""
        self.trace.append((self.now, text, args))

    def fail(self, what: str) -> None:
        """An invariant does not hold; the run ends after this step, whoever catches what."""
        if self.violation is None:
            lines = [f"{at:9.3f} {text % args if args else text}" for at, text, args in self.trace]
            self.violation = f"seed {self.seed}, {self.now:.3f} s: {what}\n" + "\n".join(lines)

    def _uncaught(self, context: dict[str, Any]) -> None:
        life = LIFE.get()
        error = context.get("exception")
        if life is None or life.alive:
            self.fail(f"nobody caught {type(error).__name__}: {error} ({context.get('message')})")

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Let time pass, at most to `until`, or until `done`.

        Raises:
            Violation: an invariant does not hold.
        """
        self.loop.run(until, lambda: self.violation is not None or done())
        if self.violation is not None:
            raise Violation(self.violation)
