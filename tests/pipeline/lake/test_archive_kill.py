"""An archive that is killed repeatedly holds every record exactly once.

The command runs as users run it, in a process group of its own with its JVM. It is killed with SIGKILL at random
moments between its start and its compaction; the seed is printed. ``BARNABAS_KILLS`` sets the number of kills (default
2). `test_archive.py` tests the states that a kill leaves behind, one by one and in seconds.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pandas
import pytest

from barnabas_broker.testing import Broker
from barnabas_client import Producer
from barnabas_pipeline.lake import LOG, live_files
from tests.pipeline.support import SMALL_SPARK

KILLS = int(os.environ.get("BARNABAS_KILLS", "2"))
#: New records before each run; one in fifty is bad.
MORE = 300
#: Timeout of a run in seconds.
LIMIT = 600


async def produce(broker: Broker, topic: str, first: int) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=5) as producer:
        for number in range(first, first + MORE):
            value = b"bad %d" % number if number % 50 == 7 else b'{"number":%d}' % number
            await producer.send(topic, value, key=b"%d" % (number % 40), timestamp_ms=86_400_000 * (1 + number % 2))
        await producer.flush()


def start(broker: Broker, topic: str, lake: Path) -> "subprocess.Popen[str]":
    words = ["archive", topic, "--once", "--lake", str(lake), "--schema", "number BIGINT", "--batch-records", "50"]
    words += ["-b", broker.bootstrap_servers, *SMALL_SPARK]
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas_pipeline.cli", *words],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def entries(lake: Path) -> int:
    """Count the entries of all logs."""
    return sum(1 for place in (lake, lake / "_quarantine") for _ in place.glob(f"topic=*/{LOG}/*.json"))


def kill_somewhere(process: "subprocess.Popen[str]", lake: Path, chance: random.Random) -> str:
    """Kill the process shortly after some number of entries, or during its start; return when that was."""
    before, wanted = entries(lake), chance.choice((0, 0, 1, 1, 2, 3, 5))
    until = time.monotonic() + LIMIT
    while wanted and process.poll() is None and entries(lake) - before < wanted:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert time.monotonic() < until, f"no {wanted} entries within {LIMIT} s"
    moment = chance.uniform(0, 1.5 if wanted else 12)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(moment)
    if process.poll() is not None:
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, out + err
        return f"its end, with {entries(lake) - before} entries"
    # Half of the time the JVM outlives its driver for a moment, and finishes its current call.
    alone = chance.random() < 0.5
    if alone:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=chance.uniform(0, 4))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=LIMIT)
    return f"{entries(lake) - before} entries and {moment:.2f} s{', driver only' if alone else ''}"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(120 * (KILLS + 2))
def test_every_record_is_archived_once_after_kills(spark: object, broker: Broker, tmp_path: Path) -> None:
    topic = "killed"
    # The timestamps are of 1970: with Kafka's defaults retention would delete the records at once.
    broker.create_topic(topic, partitions=3, config={"retention.ms": "-1"})
    seed = int(os.environ.get("BARNABAS_SEED", random.randrange(1 << 32)))
    print(f"BARNABAS_SEED={seed}")
    chance, lake, count = random.Random(seed), tmp_path / "lake", 0
    for number in range(KILLS):
        asyncio.run(produce(broker, topic, count))
        count += MORE
        print(f"kill {number + 1}: after {kill_somewhere(start(broker, topic, lake), lake, chance)}", flush=True)
    last = start(broker, topic, lake)
    out, err = last.communicate(timeout=LIMIT)
    assert last.returncode == 0, out + err

    for path in (lake / f"topic={topic}", lake / "_quarantine" / f"topic={topic}"):
        rows = pandas.read_parquet(live_files(path))
        assert not rows.duplicated(["partition", "offset"]).any()
        # A reader that lists the folder sees the same while no archive runs.
        assert len(pandas.read_parquet(path)) == len(rows)
    good = pandas.read_parquet(live_files(lake / f"topic={topic}"))
    assert Counter(value["number"] for value in good["value"]) == Counter(n for n in range(count) if n % 50 != 7)
    bad = pandas.read_parquet(live_files(lake / "_quarantine" / f"topic={topic}"))
    assert Counter(bad["value"]) == Counter(b"bad %d" % n for n in range(count) if n % 50 == 7)
