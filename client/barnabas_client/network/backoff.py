"""How long to wait before the next try: exponential, bounded, with a jitter from outside (KIP-580). Pure."""

from collections.abc import Callable

#: A factor around 1 for one pause, so that many clients do not come back at the same moment.
Jitter = Callable[[], float]


def no_jitter() -> float:
    """For machines in tests and simulations."""
    return 1.0


class Backoff:
    """Counts failures in a row.

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
        """Note a failure; return the pause before the next try, in seconds."""
        pause = min(self.most, self.first * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return pause * self._jitter()

    def succeeded(self) -> None:
        """Note a success: the next failure starts over."""
        self.failures = 0
