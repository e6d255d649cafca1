"""Groups with members of both protocols: no seed violates an invariant, and every planted bug is found."""

import pytest

from tests.sampling import slow_but_each
from tests.sim.mixed import run_mixed_seed
from tests.sim.mixed_bugs import BUGS
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
BUG_START = {"an-upgrade-answers-no-deferred-requests": 30, "an-upgrade-forgets-what-members-own": 10}


def run_seeds(first: int, count: int) -> None:
    for seed in range(first, first + count):
        run_mixed_seed(seed)


@pytest.mark.parametrize("start", STARTS)
def test_no_seed_violates_an_invariant(start: int) -> None:
    run_seeds(start, STEP)


@pytest.mark.parametrize("seed", [79, 96, 97, 139, 190, 250, 432, 1107, 4950])
def test_seeds_that_have_found_bugs(seed: int) -> None:
    run_mixed_seed(seed)


@pytest.mark.parametrize("bug", slow_but_each(4, sorted(BUGS)))
def test_every_planted_bug_is_found(bug: str) -> None:
    with BUGS[bug](), pytest.raises(Violation, match=r"^seed \d+, "):
        run_seeds(BUG_START.get(bug, 0), BUG_SEEDS)
