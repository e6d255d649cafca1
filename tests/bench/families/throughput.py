"""Produce and consume with confluent-kafka: by size, number of partitions and acks."""

import itertools
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from tests.bench.results import Chart, Table, count
from tests.bench.targets import Target, load
from tests.bench.wire import create_topic, delete_topic

TITLE: Final = "Produce and consume"
ABOUT: Final = (
    "Messages/s with confluent-kafka in a process of its own, no compression, linger 5 ms, batches of up to 1 MB, "
    "on all cores together with the server. Produce: from the first record handed over to the last "
    "acknowledgement. Consume: from the first records received to the last, over the first half of the records. "
    "The mock cluster creates every topic with four partitions, so its rows have four; it keeps only the last few "
    "megabytes, so there is nothing to consume."
)
ROUNDS: Final = 3
#: By the size of a value in bytes: its label, and the number of records.
SIZES: Final = {100: ("100 B", 1_000_000), 1000: ("1 KB", 300_000), 10_000: ("10 KB", 60_000)}
PARTITIONS: Final = (1, 6, 100)
ACKS: Final = ("1", "all")
SOME: Final = ((100, 1), (1000, 6), (10_000, 100))


def produced(size: int, partitions: int, acks: str) -> str:
    """Return the label of a row."""
    return f"produce {SIZES[size][0]}, {_plural(partitions)}, acks={acks}"


def consumed(size: int, partitions: int) -> str:
    """Return the label of a row."""
    return f"consume {SIZES[size][0]}, {_plural(partitions)}"


def _plural(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''}"


def charts() -> list[Chart]:
    """Return a chart for each direction and size, in MB/s of values."""
    found = []
    for size, (name, _) in SIZES.items():
        rows = {f"{n} p.\nacks={acks}": produced(size, n, acks) for n in PARTITIONS for acks in ACKS}
        found.append(Chart(f"produce {name}", rows, "MB/s", size / 1e6))
    for size, (name, _) in SIZES.items():
        rows = {_plural(n): consumed(size, n) for n in PARTITIONS}
        found.append(Chart(f"consume {name}", rows, "MB/s", size / 1e6))
    return found


CHARTS: Final = charts()


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    with ExitStack() as stack:
        addresses = {target: stack.enter_context(target.run()) for target in targets}
        for _ in range(rounds):
            for size, partitions in SOME if quick else itertools.product(SIZES, PARTITIONS):
                for target, address in addresses.items():
                    _one(table, target, address, size, partitions, SIZES[size][1] // (10 if quick else 1))
    return table


def _one(table: Table, target: Target, address: str, size: int, partitions: int, records: int) -> None:
    topic = f"bench-{uuid.uuid4().hex}"
    if target.keeps_topics:
        create_topic(address, topic, partitions)
    for acks in ACKS:
        done = load("produce", address, topic, records, size, partitions, acks)
        table.add(produced(size, partitions, acks), target.name, done["count"] / done["seconds"], count)
    if target.keeps_topics:
        done = load("consume", address, topic, records)
        table.add(consumed(size, partitions), target.name, done["count"] / done["seconds"], count)
        delete_topic(address, topic)
