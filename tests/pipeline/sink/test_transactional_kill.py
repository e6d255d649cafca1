"""A query with transactions whose driver and tasks are killed shows each record once to a ``read_committed`` consumer.

The query runs in a process group of its own with its JVM. Kills with SIGKILL are of three kinds: the driver between two
ends of transactions, the driver at a random moment, and Python workers, whose tasks Spark repeats. The seed is printed.
``BARNABAS_KILLS`` sets the number of kills (default 2). `test_transactional.py` tests the states that they leave behind
one by one.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barnabas_broker.testing import Broker
from barnabas_pipeline.sink.transactional import FOLDER
from tests.pipeline.support import JVM_OPTIONS, numbered, produce
from tests.pipeline.transacting import committed_values, is_open

KILLS = int(os.environ.get("BARNABAS_KILLS", "2"))
#: New records before each run, in five micro-batches.
MORE = 300
#: Timeout of a run in seconds. From its start to the first decision it takes 30 s of processor time, one process after
#: the other: Spark starts seven Pythons for a query. With 12 busy processes for each core that took 170 to 240 s.
LIMIT = 900
CLIENT = "killed"

QUERY = f"""
import sys
import barnabas_pipeline
from pyspark.sql import SparkSession

servers, source, sink, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2, 4]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "512m")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "{JVM_OPTIONS}")
    .config("spark.sql.codegen.wholeStage", "false")
    .getOrCreate()
)
read = spark.readStream.format("barnabas").options(
    **{{"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"}}
)
writer = read.option("maxOffsetsPerTrigger", "60").load().select("key", "value").writeStream.format("barnabas")
query = writer.options(
    **{{
        "kafka.bootstrap.servers": servers,
        "kafka.client.id": "{CLIENT}",
        "topic": sink,
        "exactlyOnce": "transactional",
        "checkpointLocation": checkpoint,
    }}
).trigger(availableNow=True).start()
query.awaitTermination()
"""


class Run:
    """A run of the query."""

    def __init__(self, broker: Broker, source: str, sink: str, checkpoint: Path) -> None:
        self._folder = checkpoint / FOLDER
        self._log = checkpoint.with_suffix(".log")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", QUERY, broker.bootstrap_servers, source, sink, str(checkpoint)],
                start_new_session=True,
                stdout=log,
                stderr=log,
            )

    def decisions(self) -> int:
        """The number of micro-batches that are decided, of all runs."""
        numbers = [int(path.name.split("-")[1]) for path in self._folder.glob("decided-*")]
        return max(numbers, default=-1) + 1

    def ended(self, seconds: float) -> bool:
        """Whether it ends within this time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def wait_for_decisions(self, more: int) -> None:
        """Wait until micro-batches are decided, or the query ends."""
        until, before = time.monotonic() + LIMIT, self.decisions()
        while self.decisions() < before + more and not self.ended(0.02):
            assert time.monotonic() < until, self.state()

    def workers(self) -> list[int]:
        """The processes that run tasks, and those of Spark that plan and commit."""
        found = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = (path / "stat").read_text().rpartition(")")[2].split()
                if int(words[2]) in self._groups() and b"pyspark" in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        return sorted(found)

    def _groups(self) -> set[int]:
        """The process groups of the session: PySpark's daemon makes one of its own."""
        groups = {self.process.pid}
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = (path / "stat").read_text().rpartition(")")[2].split()
                if int(words[3]) == self.process.pid:
                    groups.add(int(words[2]))
        return groups

    def kill(self) -> None:
        """Kill all of it."""
        for group in self._groups():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.process.wait(LIMIT)

    def output(self) -> str:
        """What it has printed."""
        return self._log.read_text()

    def state(self) -> str:
        """What it has printed, what its JVM's threads wait for, and the processor time of its processes."""
        lines, groups = [], self._groups()
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = (path / "stat").read_text().rpartition(")")[2].split()
                if int(words[2]) in groups:
                    command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    seconds = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
                    lines.append(f"{path.name} {words[0]} {seconds:.1f} s: {command[:60]}...{command[-60:]}")
                    if "/java " in command.partition("-cp")[0]:
                        os.kill(int(path.name), signal.SIGQUIT)  # it prints its threads
        self.ended(10)
        return "\n".join((self.output(), *lines))


def kill_between_ends(run: Run, broker: Broker, chance: random.Random) -> str:
    nth = chance.randrange(1, 12)
    with broker.faults.delay("EndTxn", 600, nth=nth, client_id=CLIENT) as reached:
        until = time.monotonic() + LIMIT
        while not reached.fired and not run.ended(0.05):
            assert time.monotonic() < until, run.state()
        run.kill()
        fired = reached.fired
    broker.faults.disconnect()
    return f"driver at its end {nth}" if fired else "nothing: the query had ended"


def kill_somewhere(run: Run, broker: Broker, chance: random.Random) -> str:
    wanted, moment = chance.choice((0, 1, 1, 2, 3)), chance.uniform(0, 1.5)
    run.wait_for_decisions(wanted)
    run.ended(moment if wanted else 10 * moment)
    run.kill()
    return f"driver after {wanted} decisions and {moment:.2f} s"


def kill_workers(run: Run, broker: Broker, chance: random.Random) -> str:
    killed = 0
    for _ in range(3):
        run.wait_for_decisions(1)
        run.ended(chance.uniform(0, 0.5))
        workers = run.workers()
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(workers), signal.SIGKILL)
                killed += 1
    # Spark repeats tasks; without the process that plans or commits the query fails.
    assert run.ended(LIMIT), run.state()
    run.kill()
    return f"{killed} workers, then the query ended with {run.process.returncode}"


@pytest.mark.slow
@pytest.mark.programs
@pytest.mark.spark
@pytest.mark.timeout(300 * (KILLS + 3))
def test_each_record_is_seen_once_after_kills(spark: object, broker: Broker, topic: str, tmp_path: Path) -> None:
    sink = f"{topic}-out"
    broker.create_topic(sink, partitions=3)
    seed = int(os.environ.get("BARNABAS_SEED", random.randrange(1 << 32)))
    print(f"BARNABAS_SEED={seed}")
    chance, count = random.Random(seed), 0
    kinds = (kill_between_ends, kill_workers, kill_somewhere)
    for number in range(KILLS):
        produce(broker.bootstrap_servers, topic, numbered(count, MORE))
        count += MORE
        run = Run(broker, topic, sink, tmp_path / "checkpoint")
        try:
            print(f"kill {number + 1}: {kinds[number % 3](run, broker, chance)}", flush=True)
        finally:
            run.kill()
        values = committed_values(broker.bootstrap_servers, sink) if not is_open(broker.bootstrap_servers, sink) else []
        assert len(values) == len(set(values))
    for attempt in range(3):
        last, began = Run(broker, topic, sink, tmp_path / "checkpoint"), time.monotonic()
        try:
            assert last.ended(LIMIT), last.state()
        finally:
            last.kill()
        print(f"last run: ended with {last.process.returncode} after {time.monotonic() - began:.0f} s", flush=True)
        # Spark gives up on a Python process that has not started within 10 s.
        if last.process.returncode == 0:
            break
        assert attempt < 2, last.output()
    assert committed_values(broker.bootstrap_servers, sink) == sorted(numbered(0, count))
    assert not is_open(broker.bootstrap_servers, sink)
