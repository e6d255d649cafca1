"""The simulation finds no violation, and finds every planted bug."""

import logging
from collections.abc import Iterator

import pytest

from tests.sim.bugs import BUGS
from tests.sim.scenario import run_seed
from tests.sim.world import Violation

SEEDS = 300
STEP = 25


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log lines of thousands of rebalances are switched off."""
    logger = logging.getLogger("barnabas_broker")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def run_seeds(count: int) -> None:
    for seed in range(count):
        run_seed(seed)


@pytest.mark.parametrize("start", range(0, SEEDS, STEP))
def test_no_seed_violates_an_invariant(start: int) -> None:
    for seed in range(start, start + STEP):
        run_seed(seed)


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_every_planted_bug_is_found(bug: str) -> None:
    with BUGS[bug](), pytest.raises(Violation, match=r"^seed \d+, "):
        run_seeds(2000)


def test_a_seed_replays() -> None:
    first, again = run_seed(7), run_seed(7)
    assert (first.world.steps, first.world.now) == (again.world.steps, again.world.now)
    assert [log.contents() for log in first.logs] == [log.contents() for log in again.logs]
    assert any(log.contents() for log in first.logs)


def test_a_violation_has_a_trace() -> None:
    with BUGS["silent-members-are-kept"](), pytest.raises(Violation) as found:
        run_seeds(2000)
    text = str(found.value)
    assert "not Stable" in text.partition("\n")[0]
    assert len(text.splitlines()) > 10
