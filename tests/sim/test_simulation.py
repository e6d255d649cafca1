"""The simulation finds no violation in the code as it is, and finds every planted bug."""

from functools import partial

import pytest

from tests.sim.bugs import BUGS, OF_TRANSACTIONS
from tests.sim.scenario import run_seed
from tests.sim.world import Violation
from tests.witnesses import each_planted_bug, find_planted_bug

pytestmark = pytest.mark.usefixtures("quiet")

#: Seeds that `make test` runs; `make test-all` runs ALL_SEEDS, and `make sim` 20,000.
SEEDS = 50
ALL_SEEDS = 150
STEP = 25
STARTS = [
    *range(0, SEEDS, STEP),
    *(pytest.param(start, marks=pytest.mark.slow) for start in range(SEEDS, ALL_SEEDS, STEP)),
]
#: Seeds that are searched for a planted bug whose witness no longer shows it.
BUG_SEEDS = 2000
#: The seeds that show the planted bugs, except those of seed 0.
WITNESSES = {
    "a-failed-fsync-is-taken-for-a-good-one": 4,
    "a-marker-during-a-replay-is-ignored": 82,
    "a-marker-ends-the-transactions-of-all-producers": 1,
    "a-marker-from-before-a-load-ends-the-next-transaction": 4244,
    "an-empty-group-is-not-recorded-again": 1515,
    "appends-are-reported-before-they-are-synced": 1,
    "commits-are-answered-before-they-are-durable": 1,
    "commits-of-any-generation-are-accepted": 1348,
    "commits-under-way-are-not-waited-for": 900714,
    "deferred-requests-are-forgotten-when-the-coordinator-moves": 1,
    "former-leaders-go-on": 6,
    "generation-is-not-bumped": 1,
    "leaders-that-return-watch-no-topics": 74,
    "members-are-not-checked-in-transactions": 7,
    "replaced-static-members-are-not-fenced": 5,
    "returning-leaders-load-nothing": 29,
    "silent-members-are-kept": 2,
    "stable-offsets-are-not-waited-for": 7,
    "sync-is-answered-before-it-is-persisted": 1,
}


def run_seeds(first: int, count: int, *, transactional: bool = False) -> None:
    for seed in range(first, first + count):
        run_seed(seed, transactional=transactional)


@pytest.mark.parametrize("start", STARTS)
def test_no_seed_violates_an_invariant(start: int) -> None:
    run_seeds(start, STEP)


@each_planted_bug(BUGS)
def test_every_planted_bug_is_found(bug: str) -> None:
    run = partial(run_seed, transactional=bug in OF_TRANSACTIONS)
    find_planted_bug(bug, BUGS[bug], run, Violation, WITNESSES.get(bug, 0), BUG_SEEDS)


def test_a_seed_replays() -> None:
    first, again = run_seed(7), run_seed(7)
    assert (first.world.steps, first.world.now) == (again.world.steps, again.world.now)
    assert first.contents == again.contents
    assert any(first.contents)


def test_a_violation_has_a_trace() -> None:
    with BUGS["silent-members-are-kept"](), pytest.raises(Violation) as found:
        run_seeds(0, BUG_SEEDS)
    text = str(found.value)
    assert "not Stable" in text.partition("\n")[0]
    assert len(text.splitlines()) > 10
