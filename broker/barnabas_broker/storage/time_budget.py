"""A share of the time for work that may be left out."""

from collections.abc import Callable
from typing import Final

#: Of each second, the seconds for looking inside batches: so few that a broker with nothing else to do keeps over 95 %
#: of its throughput.
SHARE: Final = 0.03
#: A broker with little to do saves the share of this many seconds.
SAVED_SECONDS: Final = 5.0


class Allowance:
    """Limits work to a share of the time. The work is not interrupted: it is charged afterwards.

    Args:
        now: a monotonic clock, in seconds.
        share: the part of each second that the work may take.
        saved: seconds of idle time at most whose share is kept for later work.

    Attributes:
        left: the seconds that the work may take at present; not more than 0 if it has to be left out.
    """

    __slots__ = ("_most", "_now", "_share", "_since", "left")

    def __init__(self, now: Callable[[], float], share: float = SHARE, saved: float = SAVED_SECONDS) -> None:
        self._now = now
        self._share = share
        self._most = self.left = share * saved
        self._since = now()

    def begin(self) -> float:
        """When the work begins, for :meth:`end`; `left` says whether it may."""
        now = self._now()
        left = self.left + (now - self._since) * self._share
        self.left = left if left < self._most else self._most
        self._since = now
        return now

    def end(self, began: float) -> None:
        """The work has been done since `began`."""
        self.left -= self._now() - began
