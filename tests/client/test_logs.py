"""Log lines go where the program's logging sends them."""

import logging
import subprocess
import sys

import pytest

from barnabas_client.logs import logger


def test_pairs_follow_the_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "barnabas_client.test"):
        logger("barnabas_client.test").info("joined the group", group="g", generation=5)
        logger("barnabas_client.test").debug("not shown")
    assert [record.getMessage() for record in caplog.records] == ["joined the group  group='g' generation=5"]


def test_an_event_alone_may_hold_anything(caplog: pytest.LogCaptureFixture) -> None:
    logger("barnabas_client.test").warning("100 % of %s")
    assert caplog.records[0].getMessage() == "100 % of %s"


def test_fields_are_there_for_handlers(caplog: pytest.LogCaptureFixture) -> None:
    logger("barnabas_client.test").warning("lost the coordinator", group="g", node=3)
    (record,) = caplog.records
    assert vars(record)["event"] == "lost the coordinator"
    assert vars(record)["fields"] == {"group": "g", "node": 3}


def test_a_record_names_the_line_that_wrote_it(caplog: pytest.LogCaptureFixture) -> None:
    log = logger("barnabas_client.test")
    for write in (log.warning, log.error, log.exception):
        write("here")
    assert {record.filename for record in caplog.records} == {"test_logs.py"}
    assert {record.funcName for record in caplog.records} == {"test_a_record_names_the_line_that_wrote_it"}


def test_an_exception_brings_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log = logger("barnabas_client.test")
    try:
        raise RuntimeError("no")
    except RuntimeError as error:
        log.exception("failed")
        log.error("failed as well", exc_info=error)
    assert "failed\nTraceback" in caplog.text
    assert "failed as well\nTraceback" in caplog.text
    assert caplog.text.count("RuntimeError: no") == 2


def test_a_line_is_written_without_structlog_if_no_file_can_be_opened(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise OSError(24, f"Too many open files: {name}")

    with monkeypatch.context() as without:
        without.setattr("barnabas_client.logs.import_module", refuse)
        logger("barnabas_client.test").warning("cannot connect", node=3)
    (record,) = caplog.records
    assert record.getMessage() == "cannot connect  node=3"
    assert record.filename == "test_logs.py"


def test_an_event_loop_does_not_import_structlog() -> None:
    program = """
import asyncio, logging, sys, threading
from barnabas_client import logs

threads = set()

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "structlog":
            threads.add(threading.current_thread().name)

sys.meta_path.insert(0, Finder())
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
log = logs.logger("barnabas_client.test")

async def main():
    log.warning("lost", group="g", node=3)
    await asyncio.to_thread(logs._importing.join, 60)
    assert "structlog.stdlib" in sys.modules
    log.warning("lost", group="g", node=3)

asyncio.run(main())
print(*threads)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines() == ["WARNING lost  group='g' node=3"] * 2 + ["barnabas-structlog"]
