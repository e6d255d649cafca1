"""One timer for many deadlines, and an event loop that was blocked."""

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from barnabas_broker.coordinators.timers import Timers


class Loop:
    """Keeps scheduled calls; `run` moves the clock."""

    def __init__(self) -> None:
        self.time = 0.0
        self.calls: list[tuple[float, Callable[..., object]]] = []

    def now(self) -> float:
        return self.time

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Any:
        return self.call_later(0.0, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Any:
        entry = (self.time + delay, callback)
        self.calls.append(entry)
        loop = self

        class Handle:
            def cancel(self) -> None:
                if entry in loop.calls:
                    loop.calls.remove(entry)

        return Handle()

    def create_future(self) -> Any:
        raise NotImplementedError

    def run(self, until: float) -> None:
        while self.calls and min(self.calls)[0] <= until:
            entry = min(self.calls)
            self.calls.remove(entry)
            self.time = max(self.time, entry[0])
            entry[1]()
        self.time = until


class Deadline:
    def __init__(self, at: float) -> None:
        self.at = at
        self.armed = inf
        self.fired: list[float] = []

    def next_deadline(self) -> float:
        return self.at

    def fire(self, now: float) -> None:
        self.fired.append(now)
        self.at = inf


def made() -> tuple[Loop, Timers]:
    loop = Loop()
    return loop, Timers(loop, loop.now)


def test_deadlines_fire_at_their_time_with_one_timer() -> None:
    loop, timers = made()
    deadlines = [Deadline(float(at)) for at in range(1, 6)]
    for deadline in reversed(deadlines):
        timers.arm(deadline)
        assert len(loop.calls) == 1
    loop.run(10.0)
    assert [deadline.fired for deadline in deadlines] == [[1.0], [2.0], [3.0], [4.0], [5.0]]
    assert loop.calls == []


def test_a_deadline_that_becomes_later_fires_at_the_later_time() -> None:
    loop, timers = made()
    deadline = Deadline(1.0)
    timers.arm(deadline)
    deadline.at = 5.0
    timers.arm(deadline)
    loop.run(4.0)
    assert deadline.fired == []
    loop.run(6.0)
    assert deadline.fired == [5.0]


def test_a_deadline_that_becomes_earlier_fires_once() -> None:
    loop, timers = made()
    deadline = Deadline(5.0)
    timers.arm(deadline)
    deadline.at = 1.0
    timers.arm(deadline)
    loop.run(10.0)
    assert deadline.fired == [1.0]


def test_a_loop_that_was_blocked_reads_its_sockets_before_deadlines_fire() -> None:
    loop, timers = made()
    deadline = Deadline(1.0)
    timers.arm(deadline)
    loop.time = 9.0
    loop.run(9.0)
    assert deadline.fired == []
    deadline.at = 20.0  # By a heartbeat that was waiting in its socket.
    loop.run(10.0)
    assert deadline.fired == []
    loop.run(21.0)
    assert deadline.fired == [20.0]


class Stuck(Deadline):
    """Leaves its deadline in the past, and arms objects when it fires."""

    def __init__(self, at: float, timers: Timers) -> None:
        super().__init__(at)
        self.timers = timers
        self.arms: list[Deadline] = [self]

    def fire(self, now: float) -> None:
        assert len(self.fired) < 3, "fired again and again"
        self.fired.append(now)
        for each in self.arms:
            self.timers.arm(each)


def test_an_object_that_stays_due_fires_once_per_turn() -> None:
    loop, timers = made()
    one, two, other = Stuck(1.0, timers), Stuck(1.0, timers), Deadline(2.0)
    one.arms, two.arms = [one, two], [two, one]
    for deadline in (one, two, other):
        timers.arm(deadline)
    loop.time = 2.0
    timers.run()
    assert (one.fired, two.fired, other.fired) == ([2.0], [2.0], [2.0])
    # What is due goes on with the next turn.
    assert [at for at, _ in loop.calls] == [2.0]
    timers.run()
    assert (one.fired, two.fired) == ([2.0, 2.0], [2.0, 2.0])


def test_an_object_that_fails_does_not_stop_the_others() -> None:
    class Broken(Deadline):
        def fire(self, now: float) -> None:
            raise ArithmeticError

    loop, timers = made()
    broken, other = Broken(1.0), Deadline(2.0)
    timers.arm(broken)
    timers.arm(other)
    with pytest.raises(ArithmeticError):
        loop.run(3.0)
    loop.run(3.0)
    assert other.fired == [2.0]


def test_nothing_fires_after_close() -> None:
    loop, timers = made()
    deadline = Deadline(1.0)
    timers.arm(deadline)
    timers.close()
    loop.run(5.0)
    assert deadline.fired == []
    assert loop.calls == []
