"""One Spark session and one broker, shared by all tests of a run."""

import logging
import os
import sys
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from barnabas_broker.testing import Broker
from tests.needs import java_problem, missing
from tests.pipeline.support import JVM_OPTIONS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test that uses the Spark session without the marker by which all such tests run in one worker."""
    for item in items:
        if _uses_spark(item) and item.get_closest_marker("spark") is None:
            raise pytest.UsageError(f"{item.nodeid} uses the fixture `spark`: mark it with pytest.mark.spark")


#: The test in whose middle a call of Spark was interrupted: what Spark answered later would go to the next calls.
_OUT_OF_STEP = pytest.StashKey[str]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note that a test that uses the Spark session has run into its timeout."""
    if _uses_spark(item) and call.excinfo is not None and str(call.excinfo.value).startswith("Timeout"):
        item.config.stash.setdefault(_OUT_OF_STEP, item.nodeid)
    return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail, with the reason, the tests that come after one that has left the Spark session out of step."""
    culprit = item.config.stash.get(_OUT_OF_STEP, None)
    if culprit is not None and _uses_spark(item):
        pytest.fail(f"not run: {culprit} was interrupted in a call of the Spark session", pytrace=False)


def _uses_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def _quick_python(folder: Path) -> str:
    """Return a command that runs this interpreter with the installed PySpark instead of Spark's zipped copy.

    Python does not store compiled modules for a zip: each worker, and a query starts several of them, would compile
    PySpark again and start twice as slowly.
    """
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH#*pyspark.zip:}}" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A SparkSession with two cores and no UI. Tests share it and must not stop it."""
    problem = java_problem()
    if problem is not None:
        missing(f"Spark needs Java: {problem}")
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = _quick_python(folder)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    # Spark's loggers change the formatter of each handler that they get. Some do not propagate: pytest adds its handler
    # to those, and later tests of other corners would read their log lines as JSON.
    setattr(PySparkLogger, "addHandler", logging.Logger.addHandler)  # noqa: B010 - mypy refuses the assignment
    session = (
        SparkSession.builder.master("local[2]")
        .appName("barnabas-tests")
        .config("spark.ui.enabled", "false")
        # All tests of a run share the session: with 1 GB its JVM once ended in the middle of a run.
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"{JVM_OPTIONS} -Dderby.system.home={folder}")
        .config("spark.sql.shuffle.partitions", "2")
        # A query over a few records takes less time than compiling it; the tests of commands compile theirs.
        .config("spark.sql.codegen.wholeStage", "false")
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
    """A broker process, shared by all tests of this folder."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> Iterator[str]:
    """A fresh topic with three partitions."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, partitions=3)
    yield name
    broker.delete_topic(name)
