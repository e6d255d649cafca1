"""Produce and consume with Kafka's own performance programs: by size, number of partitions and acks."""

import itertools
import re
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from tests.bench.families.throughput import ACKS, PARTITIONS, SIZES, SOME, charts, consumed, produced
from tests.bench.results import Table, count
from tests.bench.targets import LIMIT, Target
from tests.bench.wire import create_topic, delete_topic
from tests.interop.kafka_server import SERVER_JVM, run_tool

TITLE: Final = "Produce and consume with the Java clients"
ABOUT: Final = (
    "Messages/s with Apache Kafka's kafka-producer-perf-test and kafka-consumer-perf-test against both servers, "
    "in JVMs as the scripts start them and with the Java clients' own defaults (batches of 16 KB, linger 5 ms, "
    "idempotent where acks=all), on all cores together with the server. Produce: the steady state, after a "
    "quarter of the records. Consume: fetch.nMsg.sec, which starts when the group has its assignment, over the "
    "first half of the records."
)
ROUNDS: Final = 3
CHARTS: Final = charts()
#: The settings of kafka-run-class.sh and kafka-producer-perf-test.sh.
JVM: Final = (*SERVER_JVM, "-Xmx512m")
#: Records by the size of a value in bytes; a quarter of them is the warm-up.
RECORDS: Final = {100: 800_000, 1000: 160_000, 10_000: 32_000}
_STEADY: Final = re.compile(r"^(\d+) steady state records sent, ([\d.]+) records/sec", re.MULTILINE)


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    with ExitStack() as stack:
        addresses = {target: stack.enter_context(target.run()) for target in targets if target.keeps_topics}
        for _ in range(rounds):
            for size, partitions in SOME[1:2] if quick else itertools.product(SIZES, PARTITIONS):
                records = RECORDS[size] // (10 if quick else 1)
                for target, address in addresses.items():
                    topic = f"bench-{uuid.uuid4().hex}"
                    create_topic(address, topic, partitions)
                    for acks in ACKS:
                        rate = _produce(address, topic, records, size, acks)
                        table.add(produced(size, partitions, acks), target.name, rate, count)
                    rate = _consume(address, topic, records)
                    table.add(consumed(size, partitions), target.name, rate, count)
                    delete_topic(address, topic)
    return table


def _produce(address: str, topic: str, records: int, size: int, acks: str) -> float:
    warm = records // 4
    counts = ("--num-records", str(records), "--warmup-records", str(warm), "--throughput", "-1")
    output = _tool(
        "producer", address, topic, *counts, "--record-size", str(size), "--command-property", f"acks={acks}"
    )
    steady = _STEADY.search(output)
    # The program counts only acknowledged records.
    if steady is None or int(steady[1]) != records - warm:
        raise RuntimeError(f"kafka-producer-perf-test sent less than {records} records:\n{output[-2000:]}")
    return float(steady[2])


def _consume(address: str, topic: str, records: int) -> float:
    output = _tool("consumer", address, topic, "--num-records", str(records), "--timeout", "60000")
    names, *_, values = (line.split(", ") for line in output.splitlines() if ", " in line)
    found = dict(zip(names, values, strict=True))
    if int(found["data.consumed.in.nMsg"]) < records:
        raise RuntimeError(f"kafka-consumer-perf-test consumed less than {records} records:\n{output[-2000:]}")
    return float(found["fetch.nMsg.sec"])


def _tool(kind: str, address: str, topic: str, *args: str) -> str:
    name = f"kafka-{kind}-perf-test"
    done = run_tool(name, "--bootstrap-server", address, "--topic", topic, *args, timeout=LIMIT, jvm=JVM)
    if done.returncode != 0:
        raise RuntimeError(f"{name} {topic}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
