"""Produce and consume with confluent-kafka: 100 bytes and 1 KB, one partition and six, acks=all."""

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from tests.bench.results import Table, count, megabytes
from tests.bench.targets import Target, load
from tests.bench.wire import create_topic, delete_topic

TITLE: Final = "Produce and consume"
ABOUT: Final = (
    "confluent-kafka in a process of its own, acks=all, no compression, linger 5 ms, batches of up to 1 MB; from the"
    " first record handed over to the last acknowledged, and from the first record that comes to the last. Messages/s,"
    " and bytes of values. The mock cluster makes every topic with four partitions, so four is what it has in the rows"
    " of six; it keeps only the last few megabytes, so it has nothing to consume."
)
ROUNDS: Final = 5
COUNTS: Final = {100: 2_000_000, 1000: 500_000}


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    with ExitStack() as stack:
        addresses = {target: stack.enter_context(target.run()) for target in targets}
        for _ in range(rounds):
            for size, full in COUNTS.items():
                records = full // 10 if quick else full
                for partitions in (1, 6):
                    for target, address in addresses.items():
                        _one(table, target, address, size, records, partitions)
    return table


def _one(table: Table, target: Target, address: str, size: int, records: int, partitions: int) -> None:
    topic = f"bench-{uuid.uuid4().hex}"
    if target.keeps_topics:
        create_topic(address, topic, partitions)
    what = f"{'100 B' if size == 100 else '1 KB'}, {partitions} partition{'s' if partitions > 1 else ''}"
    runs = {"produce": load("produce", address, topic, records, size, partitions)}
    if target.keeps_topics:
        runs["consume"] = load("consume", address, topic, runs["produce"]["count"])
    for verb, measured in runs.items():
        rate = measured["count"] / measured["seconds"]
        table.add(f"{verb} {what}", target.name, rate, count)
        table.add(f"{verb} {what}, bytes", target.name, rate * size, megabytes)
    if target.keeps_topics:
        delete_topic(address, topic)
