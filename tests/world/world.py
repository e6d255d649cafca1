"""Virtual time, random choices, and the trace of a run."""

import random
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

from tests.world.loop import LIFE, VirtualLoop

#: Lines of the trace that a violation shows.
TRACE: Final = 120


class Violation(AssertionError):
    """An invariant does not hold; the text has the trace."""


class World:
    """The state that all parts of a run have in common.

    Args:
        seed: of all chance there is.
        start: the first time of the clock.
    """

    def __init__(self, seed: int, start: float = 0.0) -> None:
        self.seed = seed
        self.loop = VirtualLoop(start)
        self.loop.uncaught = self._uncaught
        self.chance = random.Random(seed)
        #: Whether faults are allowed.
        self.faults = True
        self.violation: str | None = None
        #: Callbacks that do not belong to a process.
        self.no_life = Context()
        self.trace: deque[tuple[float, str, tuple[Any, ...]]] = deque(maxlen=TRACE)

    @property
    def now(self) -> float:
        """The time, in seconds."""
        return self.loop.time()

    def after(self, delay: float, step: Callable[..., object], *args: Any) -> Any:
        """Call `step` in `delay` seconds, outside of all processes."""
        return self.loop.call_later(delay, step, *args, context=self.no_life)

    def happens(self, probability: float) -> bool:
        """Whether a fault of this probability happens; never when faults are not allowed."""
        return self.faults and self.chance.random() < probability

    def between(self, low: float, high: float) -> float:
        """A random number between two."""
        return low + (high - low) * self.chance.random()

    def note(self, text: str, *args: Any) -> None:
        """Add a line to the trace; it is formatted only when the trace is shown."""
        self.trace.append((self.now, text, args))

    def fail(self, what: str) -> None:
        """Report a violation; the run ends after this step, even if an exception is caught."""
        if self.violation is None:
            self.violation = f"seed {self.seed}, {self.now:.3f} s: {what}\n" + "\n".join(self.history())

    def history(self) -> list[str]:
        """The lines of the trace."""
        return [f"{at:9.3f} {text % args if args else text}" for at, text, args in self.trace]

    def _uncaught(self, context: dict[str, Any]) -> None:
        life = LIFE.get()
        error = context.get("exception")
        if life is None or life.alive:
            self.fail(f"uncaught {type(error).__name__}: {error} ({context.get('message')})")

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> None:
        """Run until the time `until`, or until `done`.

        Raises:
            Violation: an invariant does not hold.
        """
        self.loop.run(until, lambda: self.violation is not None or done())
        if self.violation is not None:
            raise Violation(self.violation)
