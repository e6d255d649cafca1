"""Share groups as queues: how fast records are processed, at what cost, and how soon."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from tests.bench.families.groups import microseconds, running
from tests.bench.loads.queues import LOCKS, RECORDS
from tests.bench.machine import cores, pinned
from tests.bench.results import Chart, Table, count, mebibytes, milliseconds
from tests.bench.targets import LIMIT, Target, load
from tests.bench.wire import create_topic, named
from tests.interop.server import Server, answers

TITLE: Final = "Queues"
PARTITIONS: Final = (1, 10)
MEMBERS: Final = (1, 10, 100)
#: Records of a topic, and of each of its batches.
TOPIC_RECORDS: Final = 200_000
BATCH: Final = 100
RATE: Final = 1_000
SECONDS: Final = 10
HELD: Final = 100_000
#: Partitions that have them, and none of them more than there are record locks.
HOLDING: Final = 40
ABOUT: Final = (
    "Share groups. The server has one core, the load (uvloop) the other: members that speak the raw protocol, with "
    f"connections of their own. Records have 100 B, in batches of {BATCH}. Records/s: from the first fetch of a new "
    f"group, which has joined, until all {TOPIC_RECORDS:,} records of a topic are accepted; members ask for {RECORDS} "
    "records, and each fetch accepts what the last one has returned. Each server has processed a topic before. "
    "Produce to accept: "
    f"one producer writes {RATE:,} records/s to one partition, each in a request of its own, and members accept each "
    "fetch at once with a request of its own; the time counts from when a record is due to the response that says that "
    f"it is accepted. Memory: {HELD:,} records of {HOLDING} partitions are acquired, then every second is accepted; "
    "resident memory of Barnabas, live objects of the JVM."
)
ROUNDS: Final = 3


def _row(members: int, partitions: int) -> str:
    return f"{members} member{'s'[: members > 1]}, {partitions} partition{'s'[: partitions > 1]}"


CHARTS: Final = [
    Chart(
        f"records/s, {partitions} partition{'s'[: partitions > 1]}",
        {f"{n} members": f"records/s, {_row(n, partitions)}" for n in MEMBERS},
        "thousand/s",
        1e-3,
    )
    for partitions in PARTITIONS
]


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    records = TOPIC_RECORDS // (10 if quick else 1)
    served = [target for target in targets if target.server is not None]
    with ExitStack() as stack:
        settings = {"group.share.max.partition.max.record.locks": LOCKS}
        servers = {target: stack.enter_context(running(target, settings, answers)) for target in served}
        topics = {(target, n): _filled(servers[target], n, records) for target in served for n in PARTITIONS}
        for target in served:
            for partitions in PARTITIONS:
                _load(servers[target], "drain", topics[target, partitions], partitions, MEMBERS[1], records)
        for _ in range(rounds):
            for partitions in PARTITIONS:
                for members in MEMBERS:
                    for target in served:
                        topic = topics[target, partitions]
                        done = _load(servers[target], "drain", topic, partitions, members, records)
                        row = _row(members, partitions)
                        table.add(f"records/s, {row}", target.name, done["rate"], count)
                        table.add(f"processor time of a record, {row}", target.name, done["cpu"], microseconds)
            for members in MEMBERS[:2]:
                for target in served:
                    _latency(table, target, servers[target], members, SECONDS // (5 if quick else 1))
    for _ in range(rounds):
        for target in served:
            _memory(table, target, settings)
    return table


def _load(server: Server, what: str, topic: str, *args: int) -> dict[str, Any]:
    with pinned(cores()[1]):
        return load("queues", what, server.bootstrap_servers, server.pid, topic, *args)


def _filled(server: Server, partitions: int, records: int) -> str:
    """The name of a new topic with records."""
    topic = named()
    create_topic(server.bootstrap_servers, topic, partitions, LIMIT / 5)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as settings:
        json.dump({"batch.num.messages": BATCH, "sticky.partitioning.linger.ms": 0}, settings)
        settings.flush()
        load("produce", server.bootstrap_servers, topic, records, 100, partitions, "all", settings.name)
    return topic


def _latency(table: Table, target: Target, server: Server, members: int, seconds: int) -> None:
    topic = named()
    create_topic(server.bootstrap_servers, topic, 1, LIMIT / 5)
    done = _load(server, "latency", topic, 1, members, RATE, seconds)
    row = f"{RATE:,} records/s, {members} member{'s'[: members > 1]}"
    table.add(f"{row}, produce to accept, p50", target.name, done["p50"], milliseconds)
    table.add(f"{row}, produce to accept, p99", target.name, done["p99"], milliseconds)
    table.add(f"{row}, processor time of a record", target.name, done["cpu"], microseconds)


def _memory(table: Table, target: Target, settings: Mapping[str, str | int]) -> None:
    with running(target, settings, answers) as server:
        done = _load(server, "hold", _filled(server, HOLDING, HELD), HOLDING, 10, HELD)
    table.add(f"memory of {HELD:,} acquired records", target.name, done["acquired"], mebibytes)
    table.add("memory when every second one is accepted", target.name, done["alone"], mebibytes)
