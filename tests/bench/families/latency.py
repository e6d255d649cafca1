"""End-to-end latency at fixed rates."""

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from tests.bench.results import Chart, Table, milliseconds
from tests.bench.targets import Target, load
from tests.bench.wire import create_topic, delete_topic

TITLE: Final = "End to end"
ABOUT: Final = (
    "The time from when a record of 100 B is due to the call that returns it, at a fixed, even rate into one "
    "partition: confluent-kafka with acks=all and no linger, producer and consumer in one process, on all cores "
    "together with the server. The measurement starts after a first record has arrived. The first half second is "
    "not counted, nor is a warm-up run against each server at the highest rate."
)
ROUNDS: Final = 3
RATES: Final = (1_000, 5_000)
SECONDS: Final = 8.0
PERCENTILES: Final = ("p50", "p99", "p99.9")


def _row(rate: int, percentile: str) -> str:
    return f"{rate:,} records/s, {percentile}"


CHARTS: Final = [
    Chart(percentile, {f"{rate:,}/s": _row(rate, percentile) for rate in RATES}, "ms", 1e3, less_is_better=True)
    for percentile in PERCENTILES
]


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    seconds = SECONDS / 8 if quick else SECONDS
    with ExitStack() as stack:
        addresses = {target: stack.enter_context(target.run()) for target in targets if target.keeps_topics}
        for address in addresses.values():
            _measured(address, RATES[-1], seconds)
        for _ in range(rounds):
            for rate in RATES:
                for target, address in addresses.items():
                    done = _measured(address, rate, seconds)
                    for percentile in PERCENTILES:
                        table.add(_row(rate, percentile), target.name, done[percentile], milliseconds)
    return table


def _measured(address: str, rate: int, seconds: float) -> dict[str, Any]:
    topic = f"bench-{uuid.uuid4().hex}"
    create_topic(address, topic, 1)
    done = load("live", "confluent-kafka", "latency", address, topic, rate, seconds)
    delete_topic(address, topic)
    return done
