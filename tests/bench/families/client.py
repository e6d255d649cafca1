"""Compares our producer and consumer with the other Python clients, on one broker."""

import itertools
import statistics
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench.loads.clients import CLIENTS, PRODUCING
from tests.bench.machine import cores, pinned
from tests.bench.results import Table, count, seconds
from tests.bench.targets import Target, load
from tests.bench.wire import Link, create_topic, delete_topic, produce_one

TITLE: Final = "The client beside others"
ABOUT: Final = (
    "Each Python client runs in a process of its own, one after the other, against the same Barnabas broker. The "
    "broker and the client have a core each. The column `Barnabas, compiled` is Barnabas' client with the modules "
    "that its wheels have compiled with mypyc.\n\n"
    "Produce, record by record: acks=all, idempotent, batches of up to 128 KiB, linger 5 ms. The time runs from "
    "the first `send` to the last acknowledgement; a warm-up record is not counted. `keyed`: records have keys of "
    "36 B, and the client chooses their partitions. `send_many`: 10,000 values for a partition at a time, with "
    "confluent-kafka's `produce_batch` beside it; aiokafka and kafka-python have nothing of the kind. Consume: all "
    "clients read what Barnabas' producer wrote, in polls of up to 1,000 records (`getmany`, kafka-python's `poll`, "
    "confluent-kafka's `consume`) and record by record (`async for`, `for`, confluent-kafka's `poll`); "
    "`arrow` is Barnabas' `getmany_arrow`. The time runs from the first batch received to the last record, and the "
    "program reads every value. The table shows messages/s and the client's processor time for a "
    "million messages. Asynchronous clients run on uvloop; aiokafka has its C extension; confluent-kafka is "
    "librdkafka. All values of a row have the same size, which suits decoders best; the "
    "values of the mixed rows have 0 to 200 B.\n\n"
    "Latency: the time from when a record is due to the call that returns it, with producer and consumer in one "
    "process and no linger. First record of a new group: the time from creating the consumer, on a broker with "
    "group.initial.rebalance.delay.ms=0, in a process that has imported everything, as the first thing that it does "
    "and later in it: medians of eleven processes of each client, in turn with those of the others. pytest plugin: a "
    "file with one test sends a record with the fixtures kafka_bootstrap_servers and kafka_topic and reads it as "
    "a new group. The time runs from the start of `python -m pytest`, and from the start of the test (when the "
    "fixtures are ready), to the record."
)
ROUNDS: Final = 3
#: Barnabas' client with the modules that wheels have compiled, if ``make test-compiled`` has built them.
COMPILED: Final = "Barnabas, compiled"
COMPILED_PATH: Final = Path(__file__).parents[3] / "build" / "compiled"
#: As many times the records for `send_many`, so that it takes a second.
MANY: Final = 5
COUNTS: Final = {100: 200_000, 1000: 100_000}
#: Bytes of a value, partitions, compression, and the largest deviation from that size in bytes.
MIXED: Final = (100, 1, "none", 100)
ALL: Final = (*((*each, 0) for each in itertools.product(COUNTS, (1, 6), ("none", "lz4"))), MIXED)
QUICK: Final = ((100, 1, "none", 0), (1000, 6, "lz4", 0), MIXED)
#: Latency: records/s, and seconds.
RATE: Final = 1_000
SECONDS: Final = 10.0
#: Processes of each client that consume the first record of a new group, and new groups in each after its first one.
PROCESSES: Final = 11
GROUPS: Final = 5
#: What is measured, and the clients that can do it.
VERBS: Final[dict[str, Sequence[str]]] = {
    "produce": (*CLIENTS, COMPILED),
    "keyed": (*CLIENTS, COMPILED),
    "send_many": ("Barnabas", "confluent-kafka", COMPILED),
    "getmany": (*CLIENTS, COMPILED),
    "iterate": (*CLIENTS, COMPILED),
    "arrow": ("Barnabas", COMPILED),
}


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    """Measure against the first target; the columns are clients."""
    table = Table([*CLIENTS, COMPILED])
    mine, other = cores()
    with ExitStack() as stack:
        with pinned(mine):
            address = stack.enter_context(targets[0].run())
        stack.enter_context(pinned(other))
        for _ in range(rounds):
            _live(table, address, quick)
            _plugin(table)
            for size, partitions, codec, spread in QUICK if quick else ALL:
                records = COUNTS[size] // 20 if quick else COUNTS[size]
                _compare(table, address, partitions, records, (size - spread, size + spread), codec)
    return table


def milliseconds(value: float) -> str:
    return f"{value * 1000:.1f} ms"


def _live(table: Table, address: str, quick: bool) -> None:
    topics = {client: f"bench-{uuid.uuid4().hex}" for client in CLIENTS}
    for client, topic in topics.items():
        create_topic(address, topic, 1)
        done = load("live", client, "latency", address, topic, RATE, SECONDS / 10 if quick else SECONDS)
        table.add(f"end to end at {RATE:,} records/s, p50", client, done["p50"], milliseconds)
        table.add(f"end to end at {RATE:,} records/s, p99", client, done["p99"], milliseconds)
        delete_topic(address, topic)
    _first(table, address, quick)


def _first(table: Table, address: str, quick: bool) -> None:
    """Measure the first record of a new group, of all clients in turn: single processes differ by a factor of two."""
    topic = f"bench-{uuid.uuid4().hex}"
    create_topic(address, topic, 1)
    with Link(address) as link:
        assert produce_one(link, topic) == 0
    processes = [
        {client: load("live", client, "first", address, topic, 1 if quick else GROUPS) for client in CLIENTS}
        for _ in range(1 if quick else PROCESSES)
    ]
    rows = {"first record of a new group, in a new process": "cold", "first record of a new group": "warm"}
    for row, name in rows.items():
        for client in CLIENTS:
            table.add(row, client, statistics.median(done[client][name] for done in processes), milliseconds)
    delete_topic(address, topic)


def _plugin(table: Table) -> None:
    for client in CLIENTS:
        done = load("plugin", client)
        table.add("pytest plugin: start of pytest to the first record", client, done["start"], milliseconds)
        table.add("pytest plugin: fixtures there to the first record", client, done["ready"], milliseconds)


def _compare(table: Table, address: str, partitions: int, records: int, sizes: tuple[int, int], codec: str) -> None:
    about = {(100, 100): "100 B", (1000, 1000): "1 KB"}.get(sizes, "{} to {} B mixed".format(*sizes))
    about += f", {partitions} partition{'s' if partitions > 1 else ''}"
    if codec != "none":
        about += f", {codec}"
    written = f"bench-{uuid.uuid4().hex}"
    for verb, clients in VERBS.items():
        for client in clients:
            compiled = client == COMPILED
            if compiled and not COMPILED_PATH.exists():
                continue
            topic = written
            if verb in PRODUCING:
                if (verb, client) != ("produce", "Barnabas"):
                    topic = f"bench-{uuid.uuid4().hex}"
                create_topic(address, topic, partitions)
            number = records * MANY if verb == "send_many" else records
            done = load(
                "clients",
                *("Barnabas" if compiled else client, verb, address, topic, partitions, number, *sizes, codec),
                path=COMPILED_PATH if compiled else None,
            )
            table.add(f"{verb} {about}", client, done["count"] / done["seconds"], count)
            table.add(f"{verb} {about}, processor time / million", client, done["cpu"] * 1e6 / done["count"], seconds)
            if topic != written:
                delete_topic(address, topic)
    delete_topic(address, written)
