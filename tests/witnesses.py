"""Planted bugs of the simulations: each is found again by a seed that shows it, its witness.

``python -m tests.witnesses`` prints the table of all of them.
"""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Final

import pytest

from tests.sampling import slow_but_each

Plant = Callable[[], AbstractContextManager[Any]]
Test = Callable[[str], None]

#: Seconds. A search for a bug that few seeds show takes minutes.
SEARCH_SECONDS: Final = 900
#: The tests that find planted bugs, by what they simulate.
_SIMULATIONS: Final = {
    "tests.sim.test_simulation": "groups",
    "tests.broker.transactions.test_simulation": "transactions",
    "tests.world.test_cluster": "a cluster",
    "tests.world.test_groups": "the world",
}


def named(*plants: Plant) -> dict[str, Plant]:
    """Planted bugs by their names, as the command line has them."""
    return {plant.__name__.replace("_", "-"): plant for plant in plants}


def each_planted_bug(bugs: Iterable[str]) -> Callable[[Test], Test]:
    """Run a test that calls :func:`find_planted_bug` for each bug; `make test` runs one in four."""

    def decorate(test: Test) -> Test:
        test = pytest.mark.parametrize("bug", slow_but_each(4, sorted(bugs)))(test)
        test = pytest.mark.timeout(SEARCH_SECONDS)(test)
        marked: Test = pytest.mark.filterwarnings("default:Store seed")(test)
        return marked

    return decorate


def find_planted_bug(
    name: str, plant: Plant, run: Callable[[int], object], violation: type[Exception], witness: int, seeds: int
) -> None:
    """Find a planted bug with its witness. If this seed no longer shows the bug, search for another one.

    A change of the code under test may shift what a seed does. The test passes with another seed too, and a warning
    says which one to store, so that later runs need not search.

    Args:
        name: of the bug.
        plant: plants it.
        run: runs a seed.
        violation: what `run` raises when an invariant does not hold.
        witness: the stored seed.
        seeds: how many seeds a search runs, from the witness on.

    Raises:
        pytest.fail.Exception: no seed shows the bug.
        Exception: `violation`: the seed fails without the bug too.
    """
    searched = range(witness, witness + seeds)
    seed = next((seed for seed in searched if _shows(plant, run, violation, seed)), None)
    if seed is None:
        pytest.fail(f"no seed from the witness {witness} to {searched[-1]} shows the bug {name}")
    run(seed)
    if seed != witness:
        warnings.warn(f"Store seed {seed} as the witness of {name}: {witness} no longer shows it", stacklevel=1)


def _shows(plant: Plant, run: Callable[[int], object], violation: type[Exception], seed: int) -> bool:
    with plant():
        try:
            run(seed)
        except violation as shown:
            return str(shown).startswith(f"seed {seed}, ")
    return False


def table() -> Iterator[str]:
    """The lines of a table in Markdown: each planted bug with its witness."""
    yield "| simulation | planted bug | seed |"
    yield "|---|---|---:|"
    for module, simulated in _SIMULATIONS.items():
        tests: Any = import_module(module)
        for bug, plant in sorted(tests.BUGS.items()):
            what = (inspect.getdoc(plant) or bug).partition("\n")[0]
            yield f"| {simulated} | `{bug}`: {what} | {tests.WITNESSES.get(bug, 0)} |"


if __name__ == "__main__":
    print("\n".join(table()))
