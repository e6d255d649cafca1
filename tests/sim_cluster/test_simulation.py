"""The simulation finds no violation in the code as it is, and finds every planted bug."""

import pytest

from tests.sampling import slow_but_each
from tests.sim_cluster.bugs import BUGS
from tests.sim_cluster.scenario import run_seed
from tests.sim_cluster.world import Violation

pytestmark = pytest.mark.usefixtures("quiet")

#: Seeds that `make test` runs; `make test-all` runs ALL_SEEDS, and `make sim` 5,000.
SEEDS = 15
ALL_SEEDS = 150
STEP = 15
STARTS = [
    *range(0, SEEDS, STEP),
    *(pytest.param(start, marks=pytest.mark.slow) for start in range(SEEDS, ALL_SEEDS, STEP)),
]
#: Seeds in which a planted bug must show.
BUG_SEEDS = 200
#: The seed to start from for bugs that few seeds show: a little before the first one that does.
BUG_START = {
    "a-proposal-is-forgotten-after-any-change": 130,
    "appends-are-not-fenced": 6,
    "fetches-count-for-the-node-id": 320,
    "leader-epochs-are-not-compared": 315,
    "lost-records-are-dropped-while-the-replica-is-in-sync": 285,
    "no-replica-is-eligible-outside-of-the-isr": 1160,
    "producer-ids-only-follow-the-metadata": 905,
    "the-first-report-decides": 360,
    "the-first-to-return-leads": 285,
    "unclean-stops-are-forgotten": 285,
}


def run_seeds(first: int, count: int) -> None:
    for seed in range(first, first + count):
        run_seed(seed)


@pytest.mark.parametrize("start", STARTS)
def test_no_seed_violates_an_invariant(start: int) -> None:
    run_seeds(start, STEP)


@pytest.mark.parametrize("bug", slow_but_each(4, sorted(BUGS)))
def test_every_planted_bug_is_found(bug: str) -> None:
    with BUGS[bug](), pytest.raises(Violation, match=r"^seed \d+, "):
        run_seeds(BUG_START.get(bug, 0), BUG_SEEDS)


def test_a_seed_replays() -> None:
    first, again = run_seed(7), run_seed(7)
    assert (first.world.loop.steps, first.world.now) == (again.world.loop.steps, again.world.now)
    assert [p.acknowledged for p in first.producers] == [p.acknowledged for p in again.producers]
    assert any(p.acknowledged for p in first.producers)


def test_a_violation_shows_the_trace() -> None:
    with BUGS["high-watermark-is-the-leaders-end"](), pytest.raises(Violation) as found:
        run_seed(0)
    text = str(found.value)
    assert "committed records" in text.partition("\n")[0]
    assert "BrokerRegistered" in text
