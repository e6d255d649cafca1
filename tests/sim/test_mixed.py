"""Groups with members of both protocols: no seed violates an invariant, and every planted bug is found."""

import pytest

from tests.sim.mixed import run_mixed_seed
from tests.sim.mixed_bugs import BUGS
from tests.sim.world import Violation
from tests.witnesses import each_planted_bug, find_planted_bug

pytestmark = pytest.mark.usefixtures("quiet")

#: Seeds that `make test` runs, and those of `make test-all`.
SEEDS = 25
ALL_SEEDS = 75
STEP = 25
STARTS = [
    *range(0, SEEDS, STEP),
    *(pytest.param(start, marks=pytest.mark.slow) for start in range(SEEDS, ALL_SEEDS, STEP)),
]
#: Seeds that are searched for a planted bug whose witness no longer shows it.
BUG_SEEDS = 500
#: The seeds that show the planted bugs, except those of seed 0.
WITNESSES = {
    "a-downgrade-does-not-rebalance": 41,
    "a-member-that-leaves-bumps-no-epoch": 4,
    "an-upgrade-answers-no-deferred-requests": 20,
    "an-upgrade-forgets-what-members-own": 1,
    "an-upgrade-leaves-what-a-downgrade-could-not-delete": 900592,
    "heartbeats-do-not-ask-to-rejoin": 7,
    "partitions-are-given-away-before-they-are-revoked": 4,
    "removed-members-keep-their-partitions": 8,
    "sessions-of-classic-members-do-not-expire": 13,
    "what-a-restarted-member-had-to-revoke-has-no-owner": 912262,
}


def run_seeds(first: int, count: int) -> None:
    for seed in range(first, first + count):
        run_mixed_seed(seed)


@pytest.mark.parametrize("start", STARTS)
def test_no_seed_violates_an_invariant(start: int) -> None:
    run_seeds(start, STEP)


@each_planted_bug(BUGS)
def test_every_planted_bug_is_found(bug: str) -> None:
    find_planted_bug(bug, BUGS[bug], run_mixed_seed, Violation, WITNESSES.get(bug, 0), BUG_SEEDS)
