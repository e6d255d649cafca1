"""What the watchdog says of an event loop that is held."""

import asyncio
import gc
import logging
import sys
import threading
import time
from pathlib import Path

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.watchdog import LoopTurns, Watchdog, shown


class Loop:
    """A loop with manual clocks, and the reports about it."""

    def __init__(self, limit: float) -> None:
        self.now = 100.0
        self.processor = 1.0
        self.reports: list[tuple[float, float, float, str]] = []
        self.watch = LoopTurns(limit, lambda: self.now, lambda: self.processor, self.report)

    def report(self, held: float, processor: float, collector: float, stack: str) -> None:
        self.reports.append((round(held, 6), round(processor, 6), round(collector, 6), stack))

    def runs(self, seconds: float, processor: float) -> None:
        self.now += seconds
        self.processor += processor


def test_a_loop_that_turns_in_time_is_not_reported() -> None:
    loop = Loop(0.05)
    for _ in range(3):
        loop.runs(0.07, 0.07)  # its timer, due after 25 ms, is 45 ms late
        loop.watch.look(lambda: "never")
        loop.watch.turned()
    assert loop.reports == []


def test_a_report_has_the_stack_and_what_the_time_was_spent_on() -> None:
    loop = Loop(0.05)
    loop.runs(0.03, 0.03)
    loop.watch.look(lambda: "too early")
    loop.watch.collector("start", {"generation": 0})
    loop.runs(0.02, 0.01)
    loop.watch.collector("stop", {"generation": 0})
    loop.runs(0.075, 0.0)
    loop.watch.look(lambda: "handle < work")
    loop.watch.look(lambda: "later")
    loop.watch.turned()
    assert loop.reports == [(0.1, 0.04, 0.02, "handle < work")]


def test_a_report_has_nothing_of_an_earlier_one() -> None:
    loop = Loop(0.05)
    loop.runs(0.1, 0.1)
    loop.watch.look(lambda: "first")
    loop.watch.turned()
    loop.runs(0.1, 0.0)
    loop.watch.turned()
    assert loop.reports == [(0.075, 0.1, 0.0, "first"), (0.075, 0.0, 0.0, "")]


def test_a_stack_that_is_taken_when_the_loop_turns_again_is_not_used() -> None:
    loop = Loop(0.05)

    def stack() -> str:
        loop.watch.turned()
        return "not the cause"

    loop.runs(0.2, 0.2)
    loop.watch.look(stack)
    loop.runs(0.2, 0.2)
    loop.watch.turned()
    assert [each[3] for each in loop.reports] == ["", ""]


def test_a_stack_is_shown_on_one_line() -> None:
    assert shown(sys._getframe()).startswith("test_a_stack_is_shown_on_one_line (test_watchdog.py:")
    assert shown(None) == ""


async def test_a_broker_that_is_held_says_by_what(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = {"log.dirs": str(tmp_path), "event.loop.watchdog.ms": "20"}
    broker = await BrokerServer.start(Config(BROKER_KEYS, config), port=0)
    try:
        with caplog.at_level(logging.WARNING, "barnabas_broker.watchdog"):
            async with asyncio.timeout(60):
                while "hold_the_loop" not in caplog.text:
                    hold_the_loop()
                    await asyncio.sleep(0.01)
        assert "event loop was held" in caplog.text
    finally:
        await broker.stop()
    assert not any(thread.name == "watchdog" for thread in threading.enumerate())


async def test_one_line_is_for_the_longest_of_many(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = list(gc.callbacks)
    watchdog = Watchdog(1000.0)
    try:
        with caplog.at_level(logging.WARNING, "barnabas_broker.watchdog"):
            for held in (1.0, 3.0, 2.0):
                watchdog._report(held, 1.0, 0.5, f"work of {held}")
            watchdog.stop()
    finally:
        if callbacks != gc.callbacks:
            watchdog.stop()
    (record,) = caplog.records
    for text in ("ms=3000", "processor_ms=1000", "collector_ms=500", "work of 3.0", "times=3"):
        assert text in record.getMessage()
    assert gc.callbacks == callbacks


def hold_the_loop() -> None:
    """As a handler would that takes too long: other threads run."""
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
