"""Resident memory: idle, and after load."""

import time
import uuid
from collections.abc import Sequence
from typing import Final

from tests.bench.results import Chart, Table, mebibytes
from tests.bench.targets import Target, load
from tests.bench.wire import create_topic

TITLE: Final = "Memory"
ABOUT: Final = (
    "Resident memory of the server's process: one second after its start; after 1,000,000 records of 100 B and "
    "300,000 of 1 KB were produced into six partitions and consumed, with some ten thousand heartbeats and "
    "commits; and its peak. rich is installed, and structlog imports it: 5 MiB of the broker's figures, which a broker "
    "without the extra `cli` does not need."
)
ROUNDS: Final = 3
WORK: Final = ((100, 1_000_000), (1000, 300_000))
REST, WORKED, MOST = "at rest", "after work", "at most"
CHARTS: Final = [
    Chart("resident memory", {row: row for row in (REST, WORKED, MOST)}, "MiB", 1 / 1024**2, less_is_better=True)
]


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    for _ in range(rounds):
        for target in targets:
            if target.server is None:
                continue
            with target.server() as server:
                time.sleep(1)
                table.add(REST, target.name, server.rss(), mebibytes)
                for size, full in WORK:
                    records = full // 10 if quick else full
                    topic = f"bench-{uuid.uuid4().hex}"
                    create_topic(server.bootstrap_servers, topic, 6)
                    done = load("produce", server.bootstrap_servers, topic, records, size, 6)
                    load("consume", server.bootstrap_servers, topic, done["count"])
                for kind in ("Heartbeat v4", "OffsetCommit v8"):
                    load("requests", server.bootstrap_servers, kind, 0.5, 16)
                table.add(WORKED, target.name, server.rss(), mebibytes)
                table.add(MOST, target.name, server.peak_rss(), mebibytes)
    return table
