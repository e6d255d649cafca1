"""Log lines go where the program's logging sends them."""

import logging

import pytest

from barnabas_client.logs import logger


def test_pairs_follow_the_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "barnabas_client.test"):
        logger("barnabas_client.test").info("joined the group", group="g", generation=5)
        logger("barnabas_client.test").debug("not shown")
    assert [record.getMessage() for record in caplog.records] == ["joined the group  group='g' generation=5"]


def test_an_exception_brings_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log = logger("barnabas_client.test")
    try:
        raise RuntimeError("no")
    except RuntimeError:
        log.exception("failed")
    assert "failed\nTraceback" in caplog.text
    assert "RuntimeError: no" in caplog.text
