"""A cluster in the simulated world holds its invariants, and planted bugs are found."""

import pytest

from tests.witnesses import each_planted_bug, find_planted_bug
from tests.world.cluster import run_seed
from tests.world.cluster_bugs import BUGS
from tests.world.world import Violation

#: Seeds that `make test` runs; `make test-all` runs ALL_SEEDS, and `make sim` 5,000.
SEEDS = 15
ALL_SEEDS = 75
STEP = 15
STARTS = [
    *range(0, SEEDS, STEP),
    *(pytest.param(start, marks=pytest.mark.slow) for start in range(SEEDS, ALL_SEEDS, STEP)),
]
#: Seeds that are searched for a planted bug whose witness no longer shows it.
BUG_SEEDS = 1000
#: The seeds that show the planted bugs, except those of seed 0.
WITNESSES = {
    "a-clean-stop-outweighs-missing-files": 92,
    "a-leader-resigns-in-favour-of-any-replica": 6,
    "a-proposal-is-forgotten-after-any-change": 41,
    "a-refusal-counts-for-the-next-registration": 1,
    "appends-are-not-fenced": 37,
    "appends-compare-nothing": 2,
    "broken-watch-is-not-set-up-again": 5,
    "directories-are-not-compared": 67,
    "fence-is-ignored": 6,
    "fetches-count-for-the-node-id": 211,
    "followers-join-too-early": 2,
    "followers-proposed-for-removal-do-not-count": 21,
    "last-isr-member-is-removed": 6,
    "leader-epochs-are-not-compared": 284,
    "lease-is-trusted-for-too-long": 39,
    "lost-records-are-dropped-while-the-replica-is-in-sync": 95,
    "no-replica-is-eligible-outside-of-the-isr": 701,
    "producer-ids-only-follow-the-metadata": 25,
    "proposed-followers-do-not-count": 5,
    "restarted-broker-leads-at-once": 6,
    "the-first-report-decides": 92,
    "the-first-to-return-leads": 132,
    "the-watermark-passes-eligible-replicas": 4,
    "truncation-goes-to-the-high-watermark": 2,
    "truncation-is-skipped": 5,
    "unclean-election": 5,
    "unclean-stops-are-forgotten": 132,
}


def run_seeds(first: int, count: int) -> None:
    for seed in range(first, first + count):
        run_seed(seed)


@pytest.mark.parametrize("start", STARTS)
def test_no_seed_violates_an_invariant(start: int) -> None:
    run_seeds(start, STEP)


@each_planted_bug(BUGS)
def test_every_planted_bug_is_found(bug: str) -> None:
    find_planted_bug(bug, BUGS[bug], run_seed, Violation, WITNESSES.get(bug, 0), BUG_SEEDS)


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
