"""Run the simulation: ``python -m tests.sim --seeds 20000``. It prints seeds that fail; replay one by ``--seed N``.

``--protocol`` chooses what the members of the groups use: the classic protocol, the consumer protocol, both, or that of
share groups.
"""

import argparse
import logging
import signal
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from multiprocessing import Pool
from typing import Any, Final

from tests.sim.simulations import SIMULATIONS
from tests.sim.world import Violation

#: Seconds of processor time after which a seed has failed: one takes a tenth of a second, unless a loop has no end.
_ENDLESS: Final = 120.0


def _one(task: tuple[int, str | None, str]) -> tuple[int, str | None]:
    seed, bug, protocol = task
    simulation = SIMULATIONS[protocol]
    planted: AbstractContextManager[Any] = simulation.bugs[bug]() if bug is not None else nullcontext()
    run = simulation.run if bug is None else simulation.with_bug(bug)
    with planted:
        signal.setitimer(signal.ITIMER_VIRTUAL, _ENDLESS)
        try:
            run(seed)
        except Violation as violation:
            return seed, str(violation)
        except Exception as error:
            return seed, f"seed {seed}: {type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    return seed, None


def _endless(*_: object) -> None:
    raise RuntimeError(f"no end after {_ENDLESS:.0f} s of processor time")


def _prepare() -> None:
    signal.signal(signal.SIGVTALRM, _endless)
    logging.getLogger("barnabas_broker").setLevel(logging.CRITICAL)


def main() -> int:
    """Run the seeds of the command line; 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="number of seeds")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--protocol", choices=sorted(SIMULATIONS), default="classic", help="of the groups' members")
    bugs = sorted({bug for one in SIMULATIONS.values() for bug in one.bugs})
    parser.add_argument("--bug", choices=bugs, help="plant a bug of such groups, and stop when it is found")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    if arguments.bug is not None and arguments.bug not in SIMULATIONS[arguments.protocol].bugs:
        parser.error(f"--bug {arguments.bug} is not a bug of --protocol {arguments.protocol}")
    if arguments.seed is not None:
        seeds = range(arguments.seed, arguments.seed + 1)
    else:
        seeds = range(arguments.start, arguments.start + arguments.seeds)
    started = time.monotonic()
    ran = failed = 0
    with Pool(1 if len(seeds) == 1 else arguments.jobs, initializer=_prepare) as pool:
        for _, violation in pool.imap(_one, ((seed, arguments.bug, arguments.protocol) for seed in seeds), chunksize=5):
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
