"""Transactions of one producer: how many in a second, and how long a commit takes."""

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from tests.bench.results import Chart, Table, count, milliseconds
from tests.bench.targets import Target, load
from tests.bench.wire import create_topic, delete_topic

TITLE: Final = "Transactions"
ABOUT: Final = (
    "One producer of confluent-kafka writes transactions to one partition, one after the other, on all cores together "
    "with the server; records have 100 B, without linger. The first transactions are not counted. Commit: the time "
    "that `commit_transaction` takes for one record that is acknowledged already. Commit to consumer: the time from "
    "that call to the `poll` of a read_committed consumer in the same process that returns the record. Barnabas writes "
    "the markers of its own partitions before it answers a commit, Kafka afterwards. When Barnabas answered first, a "
    "commit took 0.44 ms in place of 0.70, but there were 0.75 times as many transactions/s: the next one often found "
    "the former one unfinished, and its client waited to try again."
)
ROUNDS: Final = 3
#: Transactions by the number of records of each.
COUNTS: Final = {1: 2_000, 100: 1_000, 10_000: 60}
LATENCIES: Final = 1_000
#: Rows by the names of the load.
TIMES: Final = {
    "commit p50": "commit, p50",
    "commit p99": "commit, p99",
    "read p50": "commit to consumer, p50",
    "read p99": "commit to consumer, p99",
}


def transactions_row(records: int) -> str:
    """The name of the row of transactions of as many records."""
    return f"transactions/s, {records:,} record{'s' if records > 1 else ''} each"


CHARTS: Final = [
    Chart("transactions/s", {f"{n:,} rec.": transactions_row(n) for n in (1, 100)}, "1/s"),
    Chart("transactions/s", {"10,000 rec.": transactions_row(10_000)}, "1/s"),
    Chart("latency", {row: row for row in TIMES.values()}, "ms", 1e3, less_is_better=True),
]


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    share = 10 if quick else 1
    with ExitStack() as stack:
        addresses = {target: stack.enter_context(target.run()) for target in targets if target.keeps_topics}
        for address in addresses.values():
            _measured(address, "latency", LATENCIES // share)  # a warm-up, not counted
        for _ in range(rounds):
            for records, transactions in COUNTS.items():
                for target, address in addresses.items():
                    done = _measured(address, "rate", records, transactions // share)
                    table.add(transactions_row(records), target.name, done["count"] / done["seconds"], count)
            for target, address in addresses.items():
                done = _measured(address, "latency", LATENCIES // share)
                for name, row in TIMES.items():
                    table.add(row, target.name, done[name], milliseconds)
    return table


def _measured(address: str, verb: str, *counts: int) -> dict[str, Any]:
    topic = f"bench-{uuid.uuid4().hex}"
    create_topic(address, topic, 1)
    done = load("transactions", verb, address, topic, *counts)
    delete_topic(address, topic)
    return done
