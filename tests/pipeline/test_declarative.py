"""The Spark Declarative Pipeline of examples/declarative, run twice with its documented command."""

import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from barnabas_broker.testing import Broker
from tests.interop import process
from tests.needs import missing
from tests.pipeline.support import produce

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "declarative"
#: Timeout of a run in seconds: it starts two JVMs, one after the other.
LIMIT = 600


def flight(number: int) -> bytes:
    return b'{"carrier":"%s","hour":6,"dep_delay":%d}' % (b"UA" if number % 2 else b"AA", number)


def run(folder: Path, broker: Broker) -> None:
    """Run the command of docs/spark.md in the folder of the pipeline."""
    page = (ROOT / "docs" / "spark.md").read_text()
    (documented,) = re.findall(r"spark-pipelines (run .*?)\n```", page, re.DOTALL)
    script = Path(sys.executable).with_name("spark-pipelines")
    command = ["env", "-C", str(folder), f"BARNABAS_BOOTSTRAP_SERVERS={broker.bootstrap_servers}"]
    command += [f"PYSPARK_PYTHON={sys.executable}", str(script), *shlex.split(documented.replace("\\\n", " "))]
    command += ["--remote", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.memory=1g"]
    done = process.run(command, LIMIT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(folder / "spark-warehouse" / name)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(2 * LIMIT + 100)
def test_each_run_adds_new_records(spark: object, broker: Broker, tmp_path: Path) -> None:
    if not all(map(find_spec, ("grpc_status", "yaml"))):
        missing("declarative pipelines need pyspark[pipelines]: pip install 'barnabas[dev]'")
    folder = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    spec = folder / "spark-pipeline.yml"
    text, changed = re.subn(r"^storage: .*$", f"storage: file://{tmp_path}/storage", spec.read_text(), flags=re.M)
    assert changed == 1
    spec.write_text(text)
    broker.create_topic("flights", partitions=2)
    try:
        for first in (0, 20):
            produce(broker.bootstrap_servers, "flights", map(flight, range(first, first + 20)))
            run(folder, broker)
            flights = table(folder, "flights")
            assert sorted(flights["dep_delay"]) == list(range(first + 20))
            assert not flights.duplicated(["partition", "offset"]).any()
        delays = table(folder, "delays").set_index("carrier")
        assert delays["flights"].to_dict() == {"AA": 20, "UA": 20}
        assert delays["delay"].to_dict() == {"AA": 19.0, "UA": 20.0}
    finally:
        broker.delete_topic("flights")


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    (shown,) = re.findall(r"^```python\n(from pyspark import pipelines.*?)^```", page, re.DOTALL | re.MULTILINE)
    code = (EXAMPLE / "transformations" / "flights.py").read_text()
    assert [line for line in shown.splitlines() if line.strip()] == [
        line for line in code.splitlines() if line.strip() and not line.startswith(('"""', "import os"))
    ]
    assert (EXAMPLE / "transformations" / "delays.sql").read_text() in page
