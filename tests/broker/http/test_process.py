"""Metrics of the process, and the lag of its event loop, measured with a manual clock."""

import asyncio
from collections.abc import Callable

from barnabas_broker.http.process import INTERVAL, LoopLag, cpu_seconds, resident_bytes


class Clock:
    """An event loop with one timer and a manual clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timer: tuple[float, Callable[[], None]] | None = None

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self.timer = (self.now + delay, callback)
        return asyncio.get_running_loop().call_later(0, int)

    def ring(self, late: float) -> None:
        assert self.timer is not None
        when, callback = self.timer
        self.now = when + late
        callback()


async def test_the_lag_of_a_late_timer_is_counted() -> None:
    clock = Clock()
    lag = LoopLag(lambda: clock.now, clock.call_later)
    lag.start()
    for late in (0.0, 0.02, 0.7, 60.0):
        clock.ring(late)
    counted = dict(zip((*lag.lag.bounds, "more"), lag.lag.counts, strict=True))
    assert {bound: count for bound, count in counted.items() if count} == {0.001: 1, 0.025: 1, 1.0: 1, "more": 1}
    assert abs(lag.lag.total - 60.72) < 1e-6
    assert clock.timer is not None
    assert clock.timer[0] == clock.now + INTERVAL
    lag.stop()


def test_memory_and_processor_time_are_positive() -> None:
    resident = resident_bytes()
    assert resident is None or resident > 1_000_000
    assert cpu_seconds() > 0
