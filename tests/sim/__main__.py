"""Run the simulation: ``python -m tests.sim --seeds 20000``. It prints seeds that fail; replay one by ``--seed N``.

``--protocol`` chooses what the members of the groups use: the classic protocol, the consumer protocol, both, or that of
share groups.
"""

import argparse
import logging
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from multiprocessing import Pool
from typing import Any, Final

from tests.sim import consumer_bugs, mixed_bugs, share_bugs
from tests.sim.bugs import BUGS, OF_TRANSACTIONS
from tests.sim.consumer_groups import run_consumer_group_seed
from tests.sim.mixed import run_mixed_seed
from tests.sim.scenario import run_seed
from tests.sim.shares import run_share_seed
from tests.sim.world import Violation

#: Seconds of processor time after which a seed has failed: one takes a tenth of a second, unless a loop has no end.
_ENDLESS: Final = 120.0

Plant = Callable[[], AbstractContextManager[Any]]
#: The planted bugs by protocol.
_BUGS: Final[Mapping[str, Mapping[str, Plant]]] = {
    "classic": BUGS,
    "consumer": consumer_bugs.BUGS,
    "mixed": mixed_bugs.BUGS,
    "share": share_bugs.BUGS,
}


def _one(task: tuple[int, str | None, str]) -> tuple[int, str | None]:
    seed, bug, protocol = task
    planted: AbstractContextManager[Any] = _BUGS[protocol][bug]() if bug is not None else nullcontext()
    with planted:
        signal.setitimer(signal.ITIMER_VIRTUAL, _ENDLESS)
        try:
            if protocol == "mixed":
                run_mixed_seed(seed)
            elif protocol == "consumer":
                run_consumer_group_seed(seed)
            elif protocol == "share":
                run_share_seed(seed)
            else:
                run_seed(seed, transactional=bug in OF_TRANSACTIONS)
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
    parser.add_argument("--protocol", choices=sorted(_BUGS), default="classic", help="of the groups' members")
    bugs = sorted({bug for some in _BUGS.values() for bug in some})
    parser.add_argument("--bug", choices=bugs, help="plant a bug of such groups, and stop when it is found")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    if arguments.bug is not None and arguments.bug not in _BUGS[arguments.protocol]:
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
