"""Groups of the simulated world hold their invariants, and planted bugs are found."""

from typing import Final

import pytest

from tests.witnesses import each_planted_bug, find_planted_bug
from tests.world.groups import BUGS, run_seed
from tests.world.world import Violation

#: A seed that shows each planted bug.
WITNESSES: Final = {
    "an-abort-marker-that-begins-a-fetch-hides-what-follows": 99,
    "generation-is-not-bumped": 2,
    "silent-members-are-kept": 2,
    "the-metadata-journal-has-no-copy": 30,
    "transactions-live-by-the-time-of-day": 41,
}


@pytest.mark.parametrize("seed", range(3))
def test_a_group_holds_its_invariants(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("seed", range(2))
def test_a_group_on_replicated_partitions_holds_its_invariants(seed: int) -> None:
    run_seed(seed, brokers=3)


@each_planted_bug(BUGS)
def test_every_planted_bug_is_found(bug: str) -> None:
    find_planted_bug(bug, BUGS[bug], run_seed, Violation, WITNESSES[bug], 100)


def test_a_seed_repeats_its_run() -> None:
    assert run_seed(5).world.history() == run_seed(5).world.history()
