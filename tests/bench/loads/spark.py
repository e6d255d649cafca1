"""Reads a topic with Spark, through our source or its own connector; prints seconds, processor seconds and bytes.

python -m tests.bench.loads.spark SOURCE JARS ADDRESS bulk TOPIC COUNT WARM FOLDER
python -m tests.bench.loads.spark SOURCE JARS ADDRESS live|live-unix TOPIC RATE SECONDS FOLDER

SOURCE is `barnabas` or `kafka`, JARS the folder of the connector's jars or `-`. It runs in a new process, because a
process has one JVM. `bulk` reads all COUNT records of TOPIC in each way, after a warm-up that reads the topic WARM in
the same way. `live` produces RATE records/s to TOPIC and measures how long micro-batches take; `live-unix` does the
same with Unix sockets between the JVM and Python's workers.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.bench.loads.spark_memory import Sampler

#: Limit of one query in seconds, and the seconds at the start of a live one that are not counted.
LIMIT: Final = 500.0
WARM: Final = 3.0
#: Records of a micro-batch that is written to Parquet.
STEP: Final = 1_000_000


def session(jars: str, folder: Path, *, unix: bool) -> Any:
    """Create a Spark session with default memory and defaults for all settings that are not named here."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
    )
    if unix:
        builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    if jars != "-":
        builder = builder.config("spark.jars", ",".join(str(jar) for jar in sorted(Path(jars).glob("*.jar"))))
    return builder.getOrCreate()


class Bulk:
    """Reads all records of a topic in each way."""

    def __init__(self, spark: Any, source: str, address: str, folder: Path) -> None:
        self._spark, self._source, self._address, self._folder = spark, source, address, folder

    def measure(self, topic: str, count: int, warm: str) -> dict[str, float]:
        found: dict[str, float] = {}
        ways: dict[str, Callable[[str], int | None]] = {
            "batch": self._batch,
            "stream": self._stream,
            "parquet": self._parquet,
        }
        if self._source == "barnabas":
            ways["archive"] = self._archive
        for name, way in ways.items():
            way(warm)
            with Sampler() as taken:
                began = time.perf_counter()
                read = way(topic)
                found[name] = time.perf_counter() - began
            if read not in (None, count):
                raise RuntimeError(f"{name}: {read} records instead of {count}")
            found[f"{name} memory"], found[f"{name} cpu"] = taken.peak, taken.cpu
            print(name, found, file=sys.stderr, flush=True)
        return found

    def _read(self, reader: Any, topic: str) -> Any:
        options = {"kafka.bootstrap.servers": self._address, "subscribe": topic, "startingOffsets": "earliest"}
        return reader.format(self._source).options(**options)

    def _batch(self, topic: str) -> None:
        self._read(self._spark.read, topic).load().write.format("noop").mode("overwrite").save()

    def _stream(self, topic: str) -> int:
        return self._run(self._read(self._spark.readStream, topic).load().writeStream.format("noop"))

    def _parquet(self, topic: str) -> int:
        """Write what the archive writes, with a hand-written query: the same columns, partitions and steps."""
        rows = self._read(self._spark.readStream, topic).options(maxOffsetsPerTrigger=STEP, includeHeaders="true")
        dated = rows.load().selectExpr("*", "CAST(timestamp AS DATE) AS date")
        written = dated.writeStream.format("parquet").option("path", str(self._fresh()))
        return self._run(written.partitionBy("topic", "date"))

    def _archive(self, topic: str) -> int:
        from barnabas_pipeline.brokers.remote import remote_for
        from barnabas_pipeline.brokers.settings import Settings
        from barnabas_pipeline.lake.archive import ArchiveJob, run_archive

        options = {"kafka.bootstrap.servers": self._address}
        job = ArchiveJob(lake=str(self._fresh()), options=options, format="raw")
        done = run_archive(self._spark, remote_for(Settings.of(options)), [topic], job, pause=None)
        return done[topic].progress.records

    def _run(self, writer: Any) -> int:
        writer = writer.option("checkpointLocation", str(self._fresh()))
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(LIMIT):
            raise RuntimeError(f"the query takes more than {LIMIT:.0f} s")
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    def _fresh(self) -> Path:
        return self._folder / f"{time.monotonic_ns()}"


def live(spark: Any, source: str, address: str, topic: str, rate: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Measure how long consecutive micro-batches take."""
    options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format(source).options(**options).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "live")).start()
    with _feeding(address, topic, rate, WARM + seconds) as feeding, Sampler() as memory:
        if feeding.wait(LIMIT) != 0:
            raise RuntimeError("the feed has failed")
        query.processAllAvailable()
    query.stop()
    batches = [one for one in query.recentProgress if one["numInputRows"]]
    read, sent = sum(one["numInputRows"] for one in batches), round(rate * (WARM + seconds))
    if read != sent:
        raise RuntimeError(f"{read} records instead of {sent}")
    counted, before = [], 0
    for one in batches:
        if before >= rate * WARM:
            counted.append(one["durationMs"]["triggerExecution"] / 1000)
        before += one["numInputRows"]
    if not counted:
        raise RuntimeError(f"no micro-batch began after the first {WARM:.0f} s: this machine has too much to do")
    counted.sort()
    p50, p95 = counted[len(counted) // 2], counted[len(counted) * 95 // 100]
    return {"p50": p50, "p95": p95, "batches": len(counted), "memory": memory.peak}


@contextlib.contextmanager
def _feeding(address: str, topic: str, rate: int, seconds: float) -> "Iterator[subprocess.Popen[bytes]]":
    command = [sys.executable, "-m", "tests.bench.loads.spark_feed", address, topic, str(rate), str(seconds)]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def main(source: str, jars: str, address: str, what: str, topic: str, *rest: str) -> None:
    folder = Path(rest[-1])
    spark = session(jars, folder, unix=what == "live-unix")
    if what == "bulk":
        found = Bulk(spark, source, address, folder).measure(topic, int(rest[0]), rest[1])
    else:
        found = live(spark, source, address, topic, int(rest[0]), float(rest[1]), folder)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
