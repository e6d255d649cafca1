"""One Spark for all tests of a session, and one broker."""

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_broker.testing import Broker

OLDEST_JAVA = 17


def _missing_java() -> str | None:
    """Why Spark cannot run here, in one line; None if it can."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    how = f"install Java {OLDEST_JAVA} or 21, for example with: apt install openjdk-17-jre-headless"
    if java is None:
        return f"PySpark needs Java, there is none: {how}"
    try:
        banner = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"PySpark needs Java, {java} does not run ({type(error).__name__}): {how}"
    found = re.search(r'version "(\d+)', banner)
    if found is None or int(found[1]) < OLDEST_JAVA:
        return f"PySpark needs Java {OLDEST_JAVA}, this is {found[1] if found else 'another'}: {how}"
    return None


def _quick_python(folder: Path) -> str:
    """This interpreter for Spark's workers, without the zipped PySpark that Spark puts in front of the installed one.

    Nothing out of a zip is ever compiled for good: each worker, of which a query starts several, would start twice as
    slowly.
    """
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH#*pyspark.zip:}}" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A SparkSession: two cores, little memory, no UI. Tests share it and must not stop it."""
    missing = _missing_java()
    if missing is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = _quick_python(folder)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("barnabas-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-XX:TieredStopAtLevel=1 -Dderby.system.home={folder}")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.streaming.forceDeleteTempCheckpointLocation", "true")
        .config("spark.sql.streaming.stopTimeout", "60s")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A broker in a process of its own, for all tests of this folder."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> Iterator[str]:
    """A fresh topic with three partitions."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, partitions=3)
    yield name
    broker.delete_topic(name)
