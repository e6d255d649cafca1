"""The simulations of groups find no violation in the code as it is, and find every planted bug."""

import pytest

from tests.sampling import slow
from tests.sim.scenario import run_seed
from tests.sim.shares import run_share_seed
from tests.sim.simulations import SIMULATIONS
from tests.sim.world import Violation
from tests.witnesses import each_planted_bug, find_planted_bug

pytestmark = pytest.mark.usefixtures("quiet")

STARTS = [
    slow((protocol, start)) if start >= simulation.seeds else (protocol, start)
    for protocol, simulation in SIMULATIONS.items()
    for start in range(0, simulation.all_seeds, simulation.step)
]
#: By protocol and name.
BUGS = {f"{protocol}/{bug}": plant for protocol, one in SIMULATIONS.items() for bug, plant in one.bugs.items()}
WITNESSES = {f"{protocol}/{bug}": seed for protocol, one in SIMULATIONS.items() for bug, seed in one.witnesses.items()}


@pytest.mark.parametrize(("protocol", "start"), STARTS)
def test_no_seed_violates_an_invariant(protocol: str, start: int) -> None:
    simulation = SIMULATIONS[protocol]
    simulation.run_seeds(start, simulation.step)


@each_planted_bug(BUGS)
def test_every_planted_bug_is_found(bug: str) -> None:
    protocol, _, name = bug.partition("/")
    simulation = SIMULATIONS[protocol]
    run = simulation.with_bug(name)
    find_planted_bug(bug, BUGS[bug], run, Violation, WITNESSES.get(bug, 0), simulation.searched)


def test_a_seed_of_classic_groups_replays() -> None:
    first, again = run_seed(7), run_seed(7)
    assert (first.world.steps, first.world.now) == (again.world.steps, again.world.now)
    assert first.contents == again.contents
    assert any(first.contents)


def test_a_seed_of_share_groups_replays() -> None:
    first, again = run_share_seed(7), run_share_seed(7)
    assert (first.world.steps, first.world.now) == (again.world.steps, again.world.now)
    assert first.rules.deliveries == again.rules.deliveries > 0
    assert [records.final for records in first.rules.records] == [records.final for records in again.rules.records]


def test_a_violation_has_a_trace() -> None:
    classic = SIMULATIONS["classic"]
    with classic.bugs["silent-members-are-kept"](), pytest.raises(Violation) as found:
        classic.run_seeds(0, classic.searched)
    text = str(found.value)
    assert "not Stable" in text.partition("\n")[0]
    assert len(text.splitlines()) > 10
