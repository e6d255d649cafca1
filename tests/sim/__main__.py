"""Run the simulation: ``python -m tests.sim --seeds 20000``. It prints seeds that fail; replay one by ``--seed N``.

``--mixed`` runs groups with members of the classic and of the consumer protocol.
"""

import argparse
import logging
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from multiprocessing import Pool
from typing import Any

from tests.sim import mixed_bugs
from tests.sim.bugs import BUGS, OF_TRANSACTIONS
from tests.sim.mixed import run_mixed_seed
from tests.sim.scenario import run_seed
from tests.sim.world import Violation


def _one(task: tuple[int, str | None, bool]) -> tuple[int, str | None]:
    seed, bug, mixed = task
    bugs = mixed_bugs.BUGS if mixed else BUGS
    planted: AbstractContextManager[Any] = bugs[bug]() if bug is not None else nullcontext()
    with planted:
        try:
            if mixed:
                run_mixed_seed(seed)
            else:
                run_seed(seed, transactional=bug in OF_TRANSACTIONS)
        except Violation as violation:
            return seed, str(violation)
        except Exception as error:
            return seed, f"seed {seed}: {type(error).__name__}: {error}"
    return seed, None


def _quiet() -> None:
    logging.getLogger("barnabas_broker").setLevel(logging.CRITICAL)


def main() -> int:
    """Run the seeds of the command line; 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="number of seeds")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--mixed", action="store_true", help="members of both group protocols")
    bugs = sorted({*BUGS, *mixed_bugs.BUGS})
    parser.add_argument("--bug", choices=bugs, help="plant a bug of such groups, and stop when it is found")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        seeds = range(arguments.seed, arguments.seed + 1)
    else:
        seeds = range(arguments.start, arguments.start + arguments.seeds)
    started = time.monotonic()
    ran = failed = 0
    with Pool(1 if len(seeds) == 1 else arguments.jobs, initializer=_quiet) as pool:
        for _, violation in pool.imap(_one, ((seed, arguments.bug, arguments.mixed) for seed in seeds), chunksize=5):
            ran += 1
            if violation is not None:
                failed += 1
                print(violation if failed <= 3 else violation.partition("\n")[0], flush=True)
                if arguments.bug is not None:
                    break
    seconds = time.monotonic() - started
    print(f"{ran} seeds, {failed} failed, {seconds:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
