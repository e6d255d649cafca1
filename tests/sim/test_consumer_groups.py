"""Groups of the consumer protocol alone: no seed violates an invariant, and every planted bug is found."""

import pytest

from tests.sampling import slow_but_each
from tests.sim.consumer_bugs import BUGS
from tests.sim.consumer_groups import run_consumer_group_seed
from tests.sim.world import Violation

pytestmark = pytest.mark.usefixtures("quiet")

#: Seeds that `make test` runs, and those of `make test-all`.
SEEDS = 25
ALL_SEEDS = 200
STEP = 25
STARTS = [
    *range(0, SEEDS, STEP),
    *(pytest.param(start, marks=pytest.mark.slow) for start in range(SEEDS, ALL_SEEDS, STEP)),
]
#: Seeds in which a planted bug must show.
BUG_SEEDS = 500
#: The seed to start from for bugs that few seeds show: a little before the first one that does.
BUG_START = {
    "a-member-that-leaves-bumps-no-epoch": 5,
    "a-topic-that-grows-bumps-no-epoch": 25,
    "failed-appends-are-not-repeated": 80,
    "full-heartbeats-get-no-assignment": 15,
}


def run_seeds(first: int, count: int) -> None:
    for seed in range(first, first + count):
        run_consumer_group_seed(seed)


@pytest.mark.parametrize("start", STARTS)
def test_no_seed_violates_an_invariant(start: int) -> None:
    run_seeds(start, STEP)


@pytest.mark.parametrize("seed", [1272, 2593, 400212, 500163, 500291])
def test_seeds_that_have_found_bugs(seed: int) -> None:
    run_consumer_group_seed(seed)


@pytest.mark.parametrize("bug", slow_but_each(4, sorted(BUGS)))
def test_every_planted_bug_is_found(bug: str) -> None:
    with BUGS[bug](), pytest.raises(Violation, match=r"^seed \d+, "):
        run_seeds(BUG_START.get(bug, 0), BUG_SEEDS)
