"""An archive that receives Ctrl-C or SIGTERM while it works."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from barnabas_broker.testing import Broker
from barnabas_pipeline.cli import main
from barnabas_pipeline.lake import LOG, live_files
from tests.pipeline.support import SMALL_SPARK, produce

#: Timeout of the start and of the end in seconds.
LIMIT = 600
RECORDS = 300


def start(broker: Broker, topic: str, lake: Path) -> "subprocess.Popen[str]":
    words = ["archive", topic, "--lake", str(lake), "--format", "raw", "--batch-records", "3", "--json"]
    words += ["-b", broker.bootstrap_servers, *SMALL_SPARK]
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas_pipeline.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT + 100)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_archive_prints_a_summary_and_the_next_run_continues(
    spark: object,
    broker: Broker,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    status: int,
) -> None:
    produce(broker.bootstrap_servers, topic, (b"%d" % one for one in range(RECORDS)))
    lake = tmp_path / "lake"
    table, until = lake / f"topic={topic}", time.monotonic() + LIMIT
    process = start(broker, topic, lake)
    try:
        # The first entry creates the table, the next ones add batches.
        while len(list(table.glob(f"{LOG}/*.json"))) < 3 and process.poll() is None:
            assert time.monotonic() < until, "nothing is archived"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.01)
        process.send_signal(number)
        # The JVM has inherited both pipes: they end when it has ended.
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == status, err
    assert "Traceback" not in err and "Exception" not in err, err
    result = json.loads(out)["topics"][topic]
    assert 0 < result["records"] < RECORDS
    assert result["records"] + result["lag"] == RECORDS

    words = ["archive", topic, "--once", "-l", str(lake), "--format", "raw", "--json", "-b", broker.bootstrap_servers]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["topics"][topic]["lake_records"] == RECORDS
    values = pd.read_parquet(live_files(table))["value"]
    assert sorted(map(int, values)) == list(range(RECORDS))
