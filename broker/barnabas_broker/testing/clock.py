"""A broker's clock that a test advances."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from barnabas_broker.clock import Clock, Handle
from barnabas_broker.testing.link import Target

#: Seconds that a broker may take for the work that has become due: a week of checks every second takes some.
_ADVANCE_SECONDS: Final = 60.0
#: Maximum number of strides in which a clock is advanced.
_MOST_STRIDES: Final = 10_000


class AdvancingClock(Clock):
    """The machine's clocks, and the time by which they were advanced.

    Args:
        ahead: seconds by which this clock is ahead of the machine's at first.

    Attributes:
        ahead: seconds by which it is ahead now.
    """

    def __init__(self, ahead: float = 0.0) -> None:
        super().__init__()
        self.ahead = ahead
        self._due: list[tuple[float, int, _Timer]] = []
        self._order = count()
        self._handle: Handle | None = None

    def now(self) -> float:
        return super().now() + self.ahead

    def wall_ms(self) -> int:
        return super().wall_ms() + round(self.ahead * 1000)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Handle:
        timer = _Timer(callback, args)
        heappush(self._due, (self.now() + delay, next(self._order), timer))
        self._arm()
        return timer

    def _arm(self) -> None:
        """Set the one timer of the event loop."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        while self._due and self._due[0][2].cancelled:
            heappop(self._due)
        if self._due:
            self._handle = super().call_later(max(self._due[0][0] - self.now(), 0.0), self._run)

    def _run(self) -> None:
        self._handle = None
        now = self.now()
        try:
            while self._due and self._due[0][0] <= now:
                heappop(self._due)[2].run()
        finally:
            self._arm()

    def advance(self, seconds: float) -> None:
        """Move the clock on. What becomes due meanwhile happens now, one after another.

        A long way is gone in strides, so that what repeats every second does not repeat 600,000 times in a week.
        """
        target, stride = self.ahead + seconds, seconds / _MOST_STRIDES
        try:
            while self._due and self._due[0][0] <= super().now() + target:
                at, _, timer = heappop(self._due)
                if self.now() < at:
                    self.ahead = min(at - super().now() + stride, target)
                timer.run()
        finally:
            self.ahead = target
            self._arm()


class _Timer:
    """A call that waits for its time."""

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._callback = callback
        self._args = args
        self.cancelled = False

    def cancel(self) -> None:
        """Do not call it any more."""
        self.cancelled = True

    def run(self) -> None:
        """Call it, unless it was cancelled."""
        if not self.cancelled:
            self._callback(*self._args)


class BrokerClock:
    """The clock of a test's broker. See :meth:`advance`.

    Args:
        broker: the broker.

    Attributes:
        ahead: seconds by which it is ahead of the machine's clock. A restart of the broker does not change that.
    """

    def __init__(self, broker: Target) -> None:
        self.ahead = 0.0
        self._broker = broker

    def __repr__(self) -> str:
        return f"<BrokerClock {self.ahead:g} s ahead>"

    def advance(self, seconds: float) -> None:
        """Move the broker's clock on; what becomes due happens at once, each at its time.

        Sessions and rebalances end, transactions are aborted, records and committed offsets expire. The time of clients
        does not change: a member that has not sent a heartbeat within the time that is skipped is removed, although it
        is alive, and joins again.

        Args:
            seconds: how far. A day is 86,400.

        Raises:
            ValueError: it is negative.
            BrokerError: the broker does not run.
        """
        if seconds < 0:
            raise ValueError(f"seconds is {seconds:g}: a clock cannot be set back")
        self.ahead = self._broker.call({"do": "advance", "seconds": seconds}, _ADVANCE_SECONDS)
