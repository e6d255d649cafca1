"""Spark's own Kafka connector, unmodified, against Barnabas: read as a batch, as a stream, and written to."""

import json
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.interop import process
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import KafkaUnavailable, has_tools, jars
from tests.needs import missing

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

POM: Final = Path(__file__).with_name("spark") / "pom.xml"


@pytest.fixture(scope="module")
def connector() -> Path:
    """Folder of the connector's jars."""
    pytest.importorskip("pyspark")
    try:
        return jars("spark-connector", POM)
    except KafkaUnavailable as error:
        missing(f"Spark's Kafka connector cannot be loaded: {error.reason}", on_this_machine=has_tools())


def _written(count: int) -> list[list[str]]:
    return sorted([f"k{n}", f"v{n}", f"{n}"] for n in range(count))


def test_read_streamed_and_written(connector: Path, barnabas: BarnabasBroker, fresh: str, tmp_path: Path) -> None:
    arguments = (str(connector), barnabas.bootstrap_servers, fresh, str(tmp_path))
    done = process.run([sys.executable, "-m", "tests.interop.spark_program", *arguments], 240)
    assert done.returncode == 0, done.stderr[-4000:]
    results = json.loads(done.stdout.splitlines()[-1])
    assert [row[:3] for row in results["all"]] == _written(100)
    assert sorted(row[3:] for row in results["all"]) == [[0, offset] for offset in range(100)]
    assert sorted(row[4] for row in results["part"]) == list(range(10, 20))
    # 60 records per batch; the second run resumes where the first one stopped.
    assert results["batches"] == [2, 1]
    assert [row[:3] for row in results["copy"]] == _written(150)
