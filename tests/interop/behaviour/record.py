"""Record the responses of Apache Kafka in the golden files, so that tests can compare Barnabas without Java.

python -m tests.interop.behaviour.record                every family
python -m tests.interop.behaviour.record fetch topics   some
python -m tests.interop.behaviour.record --beside       also runs them against Barnabas and prints the differences
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.behaviour.compare import differences, judge
from tests.interop.behaviour.families import GOLDEN, families, golden
from tests.interop.behaviour.language import Family, Scenario
from tests.interop.behaviour.runner import Player, Transcript, warm_up
from tests.interop.behaviour.servers import SETTINGS, launch
from tests.interop.kafka_server import ApacheKafka
from tests.interop.server import Server


async def _play(port: int, scenarios: Sequence[Scenario]) -> dict[str, Transcript]:
    await warm_up(port, scenarios[0].server)
    transcripts = {}
    for scenario in scenarios:
        try:
            transcripts[scenario.name] = await Player(port).play(scenario)
        except AssertionError as error:
            print(f"NOT PLAYED: {str(error)[:1500]}", file=sys.stderr)
    return transcripts


def _all(kind: type[ApacheKafka] | type[BarnabasBroker], chosen: Sequence[Family]) -> dict[str, Transcript]:
    """Play families, one server after the other for each of the two settings."""
    transcripts: dict[str, Transcript] = {}
    for name in SETTINGS:
        wanted = [scenario for family in chosen for scenario in family.scenarios if scenario.server == name]
        if not wanted:
            continue
        server: AbstractContextManager[Server] = launch(kind, name)
        with server as running:
            begin = time.monotonic()
            transcripts |= asyncio.run(_play(running.port, wanted))
            print(f"{kind.NAME}, {name}: {len(wanted)} scenarios in {time.monotonic() - begin:.1f} s", file=sys.stderr)
    return transcripts


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write down what Apache Kafka answers.")
    parser.add_argument("family", nargs="*", help="default: all")
    parser.add_argument("--beside", action="store_true", help="play them against Barnabas too, print what differs")
    parser.add_argument("--no-record", action="store_true", help="keep the golden files as they are")
    options = parser.parse_args(argv)
    every = families()
    chosen = {name: every[name] for name in options.family or every}
    if not options.no_record:
        transcripts = _all(ApacheKafka, list(chosen.values()))
        for name, family in chosen.items():
            answers = {scenario.name: transcripts.get(scenario.name, []) for scenario in family.scenarios}
            (GOLDEN / f"{name}.json").write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n")
    if options.beside:
        ours = _all(BarnabasBroker, list(chosen.values()))
        for name, family in chosen.items():
            theirs = golden(name)
            for scenario in family.scenarios:
                found = differences(theirs[scenario.name], ours.get(scenario.name, []))
                undeclared, gone = judge(family, scenario, found)
                for line in [*map(str, undeclared), *gone]:
                    print(f"[{name}] {scenario.name}\n      {line}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
