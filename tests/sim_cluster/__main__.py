"""Run seeds: ``python -m tests.sim_cluster --seeds 2000``. A failing one prints itself; ``--seed N`` replays it."""

import argparse
import logging
import sys
import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from multiprocessing import Pool
from typing import Any

from tests.sim_cluster.bugs import BUGS
from tests.sim_cluster.scenario import Scenario, run_seed
from tests.world.loop import LIFE
from tests.world.world import Violation


def _one(task: tuple[int, str | None]) -> tuple[int, str | None]:
    seed, bug = task
    planted: AbstractContextManager[Any] = BUGS[bug]() if bug is not None else nullcontext()
    with planted:
        try:
            run_seed(seed)
        except Violation as violation:
            return seed, str(violation)
        except Exception as error:
            return seed, f"seed {seed}: {type(error).__name__}: {error}"
    return seed, None


def _replay(seed: int, bug: str | None) -> int:
    """Run one seed and print its trace, with the log lines of the brokers."""
    planted: AbstractContextManager[Any] = BUGS[bug]() if bug is not None else nullcontext()
    scenario = Scenario(seed)
    world = scenario.world
    world.trace = deque()

    class Noted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            life = LIFE.get()
            world.note("  %s %s: %s", life and life.name, record.levelname.lower(), record.getMessage())

    logger = logging.getLogger("barnabas_broker")
    logger.addHandler(Noted())
    logger.setLevel(logging.INFO)
    logger.propagate = False
    with planted:
        try:
            scenario.run()
        except Violation as violation:
            print(violation)
            return 1
    print("\n".join(world.history()))
    return 0


def _quiet() -> None:
    logging.getLogger("barnabas_broker").setLevel(logging.CRITICAL)


def main() -> int:
    """Run the seeds that the command line names; 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim_cluster", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one and print what went on")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant a bug, and stop when it is found")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _replay(arguments.seed, arguments.bug)
    seeds = range(arguments.start, arguments.start + arguments.seeds)
    started = shown = time.monotonic()
    ran = failed = 0
    with Pool(arguments.jobs, initializer=_quiet) as pool:
        for _, violation in pool.imap(_one, ((seed, arguments.bug) for seed in seeds), chunksize=4):
            ran += 1
            if violation is not None:
                failed += 1
                print(violation if failed == 1 else violation.partition("\n")[0], flush=True)
                if arguments.bug is not None:
                    break
            if sys.stderr.isatty() and time.monotonic() > shown + 0.5:
                shown = time.monotonic()
                print(f"\r{ran} of {len(seeds)} seeds, {failed} failed", end="", file=sys.stderr, flush=True)
    print(f"{ran} seeds, {failed} failed, {time.monotonic() - started:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
