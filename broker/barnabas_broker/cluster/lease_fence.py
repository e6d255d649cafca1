"""When a broker must stop acting as leader: before its lease may have expired and other brokers may take over."""

import time
from typing import Final

#: Fraction of the session that is not used: clocks drift, and a process may stall between the check and the act.
MARGIN: Final = 0.2


class Fence:
    """Open only while this broker certainly holds its lease.

    etcd counts a lease from when it *received* the renewal, which is never before the renewal was sent. The fence
    counts a shorter time from when it was sent, so it closes before the lease can expire. All times are seconds of one
    monotonic clock.

    Args:
        session: the lease's time to live after a renewal, in seconds.
    """

    __slots__ = ("_open_until", "_renewed", "_seconds")

    def __init__(self, session: float) -> None:
        self._seconds = session * (1 - MARGIN)
        self._open_until = self._renewed = float("-inf")

    def renewed(self, sent: float) -> None:
        """A renewal that was sent at `sent` has succeeded."""
        self._renewed = max(self._renewed, sent)
        self._open_until = max(self._open_until, sent + self._seconds)

    def close(self) -> None:
        """The lease is lost."""
        self._open_until = float("-inf")

    def is_open(self, now: float) -> bool:
        """Whether this broker certainly holds its lease at `now`."""
        return now < self._open_until

    def age(self, now: float) -> float:
        """Seconds since the last successful renewal was sent; infinite before the first."""
        return now - self._renewed

    def remaining(self, now: float) -> float:
        """Seconds until the fence closes unless the lease is renewed; 0 if it is closed."""
        return max(0.0, self._open_until - now)


def clock() -> float:
    """A monotonic clock in seconds, which includes the time that the machine sleeps if the system has such a clock."""
    return time.clock_gettime(_CLOCK)


_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
