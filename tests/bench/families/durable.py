"""What `--durable` costs: the same load on the disk's cache and on the disk."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from tests.bench.results import Table, count, milliseconds
from tests.bench.targets import SHORT_LIVED, Target, load
from tests.bench.wire import create_topic, delete_topic
from tests.interop.barnabas_server import BarnabasBroker

TITLE: Final = "On the disk"
ABOUT: Final = (
    "The default, where an acknowledgement means the page cache, beside `--durable`, where it means the disk. "
    "Messages/s with confluent-kafka in a process of its own, acks=all, no compression, linger 5 ms, batches of up to "
    "1 MB. Records/s at a rate: the time from when a record of 100 B is due to the call that returns it, without "
    "linger. The disk decides the difference: measure yours with TMPDIR on it."
)
ROUNDS: Final = 3
BROKERS: Final[Mapping[str, Mapping[str, str | int]]] = {
    "Barnabas --durable": {"log.flush.interval.messages": 1},
    "Barnabas": {},
}
#: Records, bytes of a value, partitions.
PRODUCED: Final = ((1_000_000, 100, 1), (300_000, 1_000, 1), (300_000, 1_000, 6))
RATES: Final = (100, 1_000)
SECONDS: Final = 6.0


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table(list(BROKERS))
    with ExitStack() as stack:
        addresses = {
            name: stack.enter_context(BarnabasBroker({**SHORT_LIVED, **keys})).bootstrap_servers
            for name, keys in BROKERS.items()
        }
        for _ in range(rounds):
            for records, size, partitions in PRODUCED:
                for name, address in addresses.items():
                    topic = _topic(address, partitions)
                    done = load("produce", address, topic, records // (10 if quick else 1), size, partitions)
                    delete_topic(address, topic)
                    row = f"produce {size:,} B, {partitions} partition{'s' if partitions > 1 else ''}"
                    table.add(row, name, done["count"] / done["seconds"], count)
            for rate in RATES:
                for name, address in addresses.items():
                    topic = _topic(address, 1)
                    arguments = ("confluent-kafka", "latency", address, topic, rate, SECONDS / (6 if quick else 1))
                    done = load("live", *arguments)
                    delete_topic(address, topic)
                    for percentile in ("p50", "p99"):
                        table.add(f"{rate:,} records/s, {percentile}", name, done[percentile], milliseconds)
    return table


def _topic(address: str, partitions: int) -> str:
    topic = f"bench-{uuid.uuid4().hex}"
    create_topic(address, topic, partitions)
    return topic
