"""Groups of the consumer protocol alone: no seed violates an invariant, and every planted bug is found."""

import pytest

from tests.sim.consumer_bugs import BUGS
from tests.sim.consumer_groups import run_consumer_group_seed
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
    "a-member-that-leaves-bumps-no-epoch": 1,
    "a-topic-that-grows-bumps-no-epoch": 19,
    "failed-appends-are-not-repeated": 2,
    "full-heartbeats-get-no-assignment": 1,
    "heartbeats-are-answered-before-they-are-in-the-log": 27,
    "partitions-are-given-away-before-they-are-revoked": 1,
    "removed-members-keep-their-partitions": 1,
    "replayed-members-do-not-expire": 1,
    "sessions-do-not-expire": 1,
    "what-is-being-revoked-is-free-after-a-failover": 8,
}


def run_seeds(first: int, count: int) -> None:
    for seed in range(first, first + count):
        run_consumer_group_seed(seed)


@pytest.mark.parametrize("start", STARTS)
def test_no_seed_violates_an_invariant(start: int) -> None:
    run_seeds(start, STEP)


@each_planted_bug(BUGS)
def test_every_planted_bug_is_found(bug: str) -> None:
    find_planted_bug(bug, BUGS[bug], run_consumer_group_seed, Violation, WITNESSES.get(bug, 0), BUG_SEEDS)
