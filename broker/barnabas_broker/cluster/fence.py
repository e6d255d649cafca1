"""When a broker has to stop acting, because its lease may be over and others may act in its place."""

import time
from typing import Final

#: Share of the session that is not used: clocks drift, and a process may stall between looking and acting.
MARGIN: Final = 0.2


class Fence:
    """Open only while a lease surely lives.

    A lease runs from when its renewal *arrived*, which is never before it was sent; so counting from then, and for
    less than the lease's time, this fence is closed before anybody can take the lease for expired. Times are seconds
    of one clock that only goes forward.

    Args:
        session: seconds that the lease lives at least after a renewal.
    """

    __slots__ = ("_open_until", "_renewed", "_seconds")

    def __init__(self, session: float) -> None:
        self._seconds = session * (1 - MARGIN)
        self._open_until = self._renewed = float("-inf")

    def renewed(self, sent: float) -> None:
        """The lease was renewed by a request that was sent at `sent`."""
        self._renewed = max(self._renewed, sent)
        self._open_until = max(self._open_until, sent + self._seconds)

    def close(self) -> None:
        """The lease is over."""
        self._open_until = float("-inf")

    def is_open(self, now: float) -> bool:
        """Whether the lease surely lives at `now`."""
        return now < self._open_until

    def age(self, now: float) -> float:
        """Seconds since the last renewal that was answered had been sent; infinite before the first."""
        return now - self._renewed

    def remaining(self, now: float) -> float:
        """Seconds until this fence closes unless the lease is renewed; 0 when it is closed."""
        return max(0.0, self._open_until - now)


def clock() -> float:
    """Seconds that go on while the machine sleeps, where the system has such a clock."""
    return time.clock_gettime(_CLOCK)


_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
