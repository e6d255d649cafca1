"""The pause before the next attempt: exponential, bounded, with jitter (KIP-580). Pure: the jitter is an argument."""

from collections.abc import Callable

#: Returns a factor around 1 for one pause, so that many clients do not retry at the same moment.
Jitter = Callable[[], float]


def no_jitter() -> float:
    """Return 1, for tests and simulations."""
    return 1.0


class Backoff:
    """Counts consecutive failures and computes the pause after each.

    Args:
        first: the pause after the first failure, in seconds; each further one doubles it.
        most: the longest pause, in seconds.
        jitter: multiplies each pause.
    """

    __slots__ = ("_jitter", "failures", "first", "most")

    def __init__(self, first: float, most: float, jitter: Jitter = no_jitter) -> None:
        self.first = first
        self.most = max(first, most)
        self._jitter = jitter
        self.failures = 0

    def failed(self) -> float:
        """Count a failure; returns the pause before the next attempt, in seconds."""
        self.failures += 1
        return self.pause_after(self.failures)

    def pause_after(self, failures: int) -> float:
        """The pause after so many consecutive failures, in seconds; 0 after none."""
        if failures == 0:
            return 0.0
        return min(self.most, self.first * 2.0 ** min(failures - 1, 30)) * self._jitter()

    def succeeded(self) -> None:
        """Count a success: the pauses start over."""
        self.failures = 0
