"""Share groups: no seed violates an invariant, and every planted bug is found."""

import pytest

from tests.sim.share_bugs import BUGS
from tests.sim.shares import run_share_seed
from tests.sim.world import Violation
from tests.witnesses import each_planted_bug, find_planted_bug

pytestmark = pytest.mark.usefixtures("quiet")

#: Seeds that `make test` runs, and those of `make test-all`.
SEEDS = 10
ALL_SEEDS = 40
STEP = 10
STARTS = [
    *range(0, SEEDS, STEP),
    *(pytest.param(start, marks=pytest.mark.slow) for start in range(SEEDS, ALL_SEEDS, STEP)),
]
#: Seeds that are searched for a planted bug whose witness no longer shows it.
BUG_SEEDS = 200
#: The seeds that show the planted bugs, except those of seed 0.
WITNESSES = {
    "a-replay-forgets-a-group-before-its-epoch": 30,
    "counts-grow-with-failed-writes": 2,
    "former-leaders-may-write": 1,
    "gaps-stay-available": 2,
    "members-that-are-gone-get-back-what-could-not-be-written": 89,
    "members-that-are-gone-keep-their-records": 13,
    "new-leaders-read-no-delivery-counts": 2,
    "the-window-passes-what-is-being-released": 1,
}


def run_seeds(first: int, count: int) -> None:
    for seed in range(first, first + count):
        run_share_seed(seed)


@pytest.mark.parametrize("start", STARTS)
def test_no_seed_violates_an_invariant(start: int) -> None:
    run_seeds(start, STEP)


@each_planted_bug(BUGS)
def test_every_planted_bug_is_found(bug: str) -> None:
    find_planted_bug(bug, BUGS[bug], run_share_seed, Violation, WITNESSES.get(bug, 0), BUG_SEEDS)


def test_a_seed_replays() -> None:
    first, again = run_share_seed(7), run_share_seed(7)
    assert (first.world.steps, first.world.now) == (again.world.steps, again.world.now)
    assert first.rules.deliveries == again.rules.deliveries > 0
    assert [records.final for records in first.rules.records] == [records.final for records in again.rules.records]
