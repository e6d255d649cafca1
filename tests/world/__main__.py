"""Run seeds: ``python -m tests.world --seeds 200``. A failing one prints its history; ``--seed N`` replays it."""

import argparse
import logging
import sys
import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from multiprocessing import Pool
from typing import Any, Final

from tests.world import cluster_bugs, groups
from tests.world.cluster import Cluster
from tests.world.groups import Group
from tests.world.world import Violation

_BUGS: Final = groups.BUGS | cluster_bugs.BUGS


def _scenario(arguments: argparse.Namespace, seed: int, **settings: Any) -> Group | Cluster:
    if arguments.cluster:
        return Cluster(seed, **settings)
    return Group(seed, arguments.brokers, **settings)


def _run(scenario: Group | Cluster, bug: str | None) -> str | None:
    planted: AbstractContextManager[Any] = _BUGS[bug]() if bug is not None else nullcontext()
    with planted:
        try:
            scenario.run()
        except Violation as violation:
            return str(violation)
        except Exception as error:
            return f"seed {scenario.world.seed}: {type(error).__name__}: {error}"
    return None


def _one(task: tuple[argparse.Namespace, int]) -> str | None:
    arguments, seed = task
    return _run(_scenario(arguments, seed), arguments.bug)


def _replay(arguments: argparse.Namespace) -> int:
    """Run one seed and print its history, with what brokers and clients log."""
    scenario = _scenario(arguments, arguments.seed, level=logging.INFO)
    scenario.world.trace = deque()
    violation = _run(scenario, arguments.bug)
    print(violation or "\n".join(scenario.world.history()))
    return 0 if violation is None else 1


def main() -> int:
    """Run the seeds that the command line names; 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one and print its history")
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3), help="3 for a group on replicated partitions")
    parser.add_argument("--cluster", action="store_true", help="replication and the controller, without a group")
    parser.add_argument("--bug", choices=sorted(_BUGS), help="plant a bug, and stop when it is found")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    arguments.cluster |= arguments.bug in cluster_bugs.BUGS
    if arguments.seed is not None:
        return _replay(arguments)
    seeds = range(arguments.start, arguments.start + arguments.seeds)
    started, ran, failed = time.monotonic(), 0, 0
    with Pool(arguments.jobs) as pool:
        for violation in pool.imap(_one, ((arguments, seed) for seed in seeds), chunksize=4):
            ran += 1
            if violation is not None:
                failed += 1
                print(violation if failed == 1 else violation.partition("\n")[0], flush=True)
                if arguments.bug is not None:
                    break
    print(f"{ran} seeds, {failed} failed, {time.monotonic() - started:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
