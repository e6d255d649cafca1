"""Measures Barnabas and the programs it is compared with, in turn, so that each round has the same conditions.

python tests/bench/run.py                              everything, into docs/benchmarks.md
python tests/bench/run.py --only requests --quick      one family, roughly, and printed only
python tests/bench/run.py --beside kafka               what Apache Kafka can do too, beside it
python tests/bench/run.py --before ../before           the broker of another checkout beside it
"""

import argparse
import compileall
import os
import sys
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

from tests.bench import machine, progress, report
from tests.bench.results import Chart, Table
from tests.bench.targets import ROOT, TARGETS, Target, version
from tests.interop.cache import Unavailable

#: Families that are measured by default.
FAMILIES: Final = (
    "throughput",
    "transactions",
    "requests",
    "groups",
    "consumer_groups",
    "replay",
    "startup",
    "topics",
    "memory",
    "storage",
    "durable",
    "client",
    "cluster",
    "lake",
    "spark",
)
#: Families that are measured by default with another broker.
BESIDE: Final = (
    "startup",
    "topics",
    "memory",
    "throughput",
    "perf",
    "latency",
    "transactions",
    "requests",
    "security",
    "groups",
    "consumer_groups",
    "queues",
    "recovery",
    "cluster",
)


class Family(Protocol):
    """A module of tests.bench.families. It may also have CHARTS, which are drawn if another broker is measured too."""

    TITLE: str
    ABOUT: str
    ROUNDS: int

    def measure(self, targets: Sequence[Target], rounds: int, quick: bool) -> Table:
        """Measure each target `rounds` times; leave out targets that do not support the family."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = sorted({*FAMILIES, *BESIDE})
    parser.add_argument("--only", action="append", choices=every, help="this family; may be repeated")
    parser.add_argument("--beside", action="append", choices=[*TARGETS][1:], help="default: mock; may be repeated")
    parser.add_argument("--before", type=Path, help="a checkout of another version, installed: its broker, instead")
    parser.add_argument("--rounds", type=int, help="default: each family's own")
    parser.add_argument("--quick", action="store_true", help="one short round, not written down")
    parser.add_argument("--report", type=Path, help="write it down here (default: docs/benchmarks.md)")
    options = parser.parse_args(argv)
    os.chdir(ROOT)
    beside = options.beside or ([] if options.before else ["mock"])
    try:
        targets = [TARGETS[name]() for name in ("barnabas", *beside)]
        if options.before:
            targets.append(version(options.before))
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    where = machine.describe()
    print(where)
    for root in (ROOT, *([options.before] if options.before else [])):
        for package in ("protocol", "explain", "broker", "client", "pipeline"):
            # pip compiles packages at installation. With PYTHONDONTWRITEBYTECODE, each start would compile them all.
            compileall.compile_dir(root / package, quiet=1)
    path = options.report or (None if options.quick or options.before else report.PATH)
    failed = []
    for name in options.only or (FAMILIES if beside == ["mock"] else BESIDE):
        family = cast(Family, import_module(f"tests.bench.families.{name}"))
        rounds = options.rounds or (1 if options.quick else family.ROUNDS)
        started = time.monotonic()
        try:
            with progress.shown(name):
                table = family.measure(targets, rounds, options.quick)
        except Exception:
            # The others take up to an hour: they are measured all the same.
            traceback.print_exc()
            failed.append(name)
            continue
        print(
            f"\n{family.TITLE} ({rounds} rounds, {time.monotonic() - started:.0f} s)\n\n{table.markdown()}", flush=True
        )
        if path is not None:
            # A family measured alone, or only with a mock, has no chart.
            section, title, drawn = name, family.TITLE, beside != ["mock"]
            if drawn:
                section += f"-{'-'.join(beside)}"
                title += f" beside {' and '.join(target.name for target in targets[1:])}"
            parts = [family.ABOUT, table.markdown(), f"{where}; `{_command()}`; rounds: {rounds}."]
            if drawn and (charts := getattr(family, "CHARTS", None)):
                chart = report.chart(path, section)
                _draw(chart, title, where, table, charts)
                parts.insert(1, f"![{title}]({chart.relative_to(path.parent)})")
            report.write(path, section, title, "\n\n".join(parts))
    if failed:
        print(f"not measured, see above: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _command() -> str:
    return " ".join(["python tests/bench/run.py", *sys.argv[1:]])


def _draw(path: Path, title: str, where: str, table: Table, charts: Sequence[Chart]) -> None:
    # Imported here because the import takes half a second, which must not delay a measurement.
    from tests.bench import plot

    plot.draw(path, title, where, table, charts)


if __name__ == "__main__":
    raise SystemExit(main())
