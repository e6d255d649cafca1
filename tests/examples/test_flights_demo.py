"""The flights demo with generated flights: a group that gains and loses a member counts each flight once."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from examples.flights.demo import Flight, run
from examples.flights.ledger import Ledger
from tests.interop import process

CARRIERS = ("AA", "B6", "DL", "UA")


def flights(count: int) -> list[Flight]:
    rows = []
    for number in range(count):
        carrier = CARRIERS[number % 7 % 4]
        tail = f"N{number % 97}".encode() if number % 50 else None
        rows.append((tail, carrier, json.dumps({"flight": number, "carrier": carrier}).encode()))
    return rows


@pytest.mark.programs
async def test_every_flight_is_counted_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert await run(flights(6000), rate=2000)
    out = capfd.readouterr().out
    assert "counter-3 joins" in out
    assert "counter-2 is killed with kill -9" in out
    assert "Every flight was counted once." in out


PROGRAM = f"""
import runpy
from examples.flights import demo
from tests.examples.test_flights_demo import flights
{process.HEAR_CTRL_C}
signal.signal(signal.SIGINT, signal.default_int_handler)
demo.read_flights = lambda: flights(30_000)
runpy.run_module("examples.flights", None, "__main__")
"""


@pytest.mark.programs
@pytest.mark.slow
def test_ctrl_c_ends_the_demo_and_what_it_started() -> None:
    demo = process.spawn(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    timer = threading.Timer(100, demo.kill)
    timer.start()
    try:
        assert demo.stdout is not None
        said = []
        for line in demo.stdout:
            said.append(line)
            if "counter-3 joins" in line:
                break
        assert "counter-3 joins" in said[-1], said
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
        rest, _ = demo.communicate()
    finally:
        timer.cancel()
        process.end(demo, 0)
    assert "Traceback" not in rest, rest
    assert demo.returncode == 130, (said, rest)


def test_a_ledger_counts_an_offset_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.create(2)
    assert ledger.add(0, 0, 3, {"AA": 3})
    assert not ledger.add(0, 0, 3, {"AA": 3})
    assert not ledger.add(0, 2, 5, {"AA": 3})
    assert ledger.add(0, 3, 4, {"AA": 1})
    assert ledger.add(1, 0, 1, {"UA": 1})
    assert ledger.counts() == {"AA": 4, "UA": 1}
    assert ledger.progress() == {0: 4, 1: 1}
    ledger.close()
