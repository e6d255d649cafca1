"""Compares our source for Spark with Spark's own Kafka connector, on one broker."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench.results import Table, count, mebibytes, seconds
from tests.bench.targets import Target, load
from tests.bench.wire import create_topic, delete_topic
from tests.interop.kafka_server import KafkaUnavailable, jars
from tests.interop.process import owned_folder

TITLE: Final = "Spark"
ABOUT: Final = (
    "PySpark on local[2] with Spark's own defaults. Each source runs in a process of its own, one after the "
    "other, against the same Barnabas broker, on all cores together with it.\n\n"
    "Rows/s count from the start of a query to its end: 5,000,000 records of 100 B in six partitions, after a "
    "warm-up of 200,000. Queries: a batch and a stream (AvailableNow) to Spark's noop sink; a stream to Parquet, "
    "partitioned by topic and day, with headers, a million records per micro-batch; and `barnabas-pipeline "
    "archive --format raw --once`, which chooses its own batch size, beside the connector's stream to Parquet. "
    "Micro-batches: back to back while 1,000 records/s arrive, to noop; the table shows the duration of each, and "
    "once more with spark.python.unix.domain.socket.enabled, which matters only where Python reads. Processor "
    "time and memory include Python's driver, the JVM and Python's workers, without the broker; memory is the "
    "peak, with shared pages counted once."
)
ROUNDS: Final = 3
RECORDS: Final = 5_000_000
WARM: Final = 200_000
SIZE: Final = 100
PARTITIONS: Final = 6
#: Latency: records/s, and seconds.
RATE: Final = 1_000
SECONDS: Final = 30.0
OURS_NAME, BESIDE = "barnabas", "Spark's Kafka connector"
POM: Final = Path(__file__).parents[2] / "interop" / "spark" / "pom.xml"


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    """Measure against the first target; the columns are sources."""
    table = Table([OURS_NAME, BESIDE])
    sources = {OURS_NAME: ("barnabas", "-"), **_beside()}
    records = RECORDS // 5 if quick else RECORDS
    with targets[0].run() as address:
        bulk, warm = _filled(address, records), _filled(address, min(WARM, records))
        for _ in range(rounds):
            for column, (source, jars_) in sources.items():
                with owned_folder("barnabas-bench-") as folder:
                    done = load("spark", source, jars_, address, "bulk", bulk, records, warm, str(folder))
                _add(table, column, records, done)
            for column, (source, jars_) in sources.items():
                done = _live(address, source, jars_, quick, "live")
                for name in ("p50", "p95"):
                    table.add(f"micro-batch at {RATE:,} records/s, {name}", column, done[name], milliseconds)
                table.add("memory, micro-batches", column, done["memory"], mebibytes)
            done = _live(address, *sources[OURS_NAME], quick, "live-unix")
            for name in ("p50", "p95"):
                table.add(f"the same over Unix sockets, {name}", OURS_NAME, done[name], milliseconds)
    return table


def _live(address: str, source: str, jars_: str, quick: bool, what: str) -> dict[str, Any]:
    topic = f"bench-{uuid.uuid4().hex}"
    create_topic(address, topic, PARTITIONS)
    lasting = SECONDS / 5 if quick else SECONDS
    with owned_folder("barnabas-bench-") as folder:
        done = load("spark", source, jars_, address, what, topic, RATE, lasting, str(folder))
    delete_topic(address, topic)
    return done


def milliseconds(value: float) -> str:
    return f"{value * 1000:.0f} ms"


def _add(table: Table, column: str, records: int, done: Mapping[str, float]) -> None:
    # The connector has no archive: the comparison is a query with the same result.
    ways = {"batch to noop": "batch", "stream to noop": "stream", "stream to Parquet": "parquet"}
    ways["archive to Parquet"] = "archive" if "archive" in done else "parquet"
    for row, way in ways.items():
        table.add(f"{row}, rows/s", column, records / done[way], count)
    for row, way in ways.items():
        table.add(f"{row}, processor s for a million rows", column, done[f"{way} cpu"] * 1e6 / records, seconds)
    for row, way in ways.items():
        table.add(f"memory, {row}", column, done[f"{way} memory"], mebibytes)


def _beside() -> dict[str, tuple[str, str]]:
    try:
        return {BESIDE: ("kafka", str(jars("spark-connector", POM)))}
    except KafkaUnavailable as error:
        print(f"without Spark's Kafka connector: {error.reason}")
        return {}


def _filled(address: str, records: int) -> str:
    topic = f"bench-{uuid.uuid4().hex}"
    create_topic(address, topic, PARTITIONS)
    load("produce", address, topic, records, SIZE, PARTITIONS)
    return topic
