"""Measures Barnabas, and what stands beside it, in turn: every round meets the same machine.

python tests/bench/run.py                              everything, into docs/benchmarks.md
python tests/bench/run.py --only requests --quick      one family, roughly, and printed only
python tests/bench/run.py --beside kafka               beside Apache Kafka
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Final, Protocol, cast

from tests.bench import machine, report
from tests.bench.results import Table
from tests.bench.targets import ROOT, TARGETS, Target

FAMILIES: Final = ("throughput", "requests", "groups", "startup", "memory", "storage", "client", "cluster")


class Family(Protocol):
    """A module of tests.bench.families."""

    TITLE: str
    ABOUT: str
    ROUNDS: int

    def measure(self, targets: Sequence[Target], rounds: int, quick: bool) -> Table:
        """The median of `rounds` of each; targets that cannot take part stay out."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=FAMILIES, help="this family; may be repeated")
    parser.add_argument("--beside", action="append", choices=[*TARGETS][1:], help="default: mock; may be repeated")
    parser.add_argument("--rounds", type=int, help="default: each family's own")
    parser.add_argument("--quick", action="store_true", help="one short round, not written down")
    options = parser.parse_args(argv)
    os.chdir(ROOT)
    beside = options.beside or ["mock"]
    targets = [TARGETS[name]() for name in ["barnabas", *beside]]
    where = machine.describe()
    print(where)
    for name in options.only or FAMILIES:
        family = cast(Family, importlib.import_module(f"tests.bench.families.{name}"))
        rounds = options.rounds or (1 if options.quick else family.ROUNDS)
        started = time.monotonic()
        table = family.measure(targets, rounds, options.quick).markdown()
        print(f"\n{family.TITLE} ({rounds} rounds, {time.monotonic() - started:.0f} s)\n\n{table}", flush=True)
        if not options.quick:
            section = name if beside == ["mock"] else f"{name}-{'-'.join(beside)}"
            command = " ".join(["python tests/bench/run.py", *sys.argv[1:]])
            report.write(section, family.TITLE, family.ABOUT, where, command, rounds, table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
