"""The demo, with fewer flights: it ends with its totals right, and says so when they are not."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from barnabas_client import OffsetAndMetadata
from examples import flights_demo
from tests.interop import process

pytestmark = pytest.mark.interop

DEMO = Path(__file__).parents[2] / "examples" / "flights_demo.py"


def test_every_flight_is_counted_once() -> None:
    done = process.run([sys.executable, str(DEMO), "--generate", "6000", "--rate", "0"], 100)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("6,000 flights counted, 6,000 in the data")
    for what in ("a third consumer, cy, is started", "bob is killed", "everything is counted"):
        assert any(what in line for line in lines), what


def test_wrong_totals_are_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def nothing(*args: object) -> None:
        """A play in which no flight is counted twice, but one is not counted."""

    def one_less(state: flights_demo.State) -> Counter[str]:
        counts = Counter(carrier for _, _, carrier in flights_demo.generated_flights(100))
        return counts - Counter({"AA": 1})

    monkeypatch.setattr(flights_demo, "play", nothing)
    monkeypatch.setattr(flights_demo.State, "counts", one_less)
    assert flights_demo.main(["--generate", "100"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_what_a_commit_carries_comes_back() -> None:
    assert flights_demo.counts_of(None) == Counter()
    assert flights_demo.counts_of(OffsetAndMetadata(7)) == Counter()
    assert flights_demo.counts_of(OffsetAndMetadata(7, '{"UA": 4, "AA": 3}')) == Counter(UA=4, AA=3)
