"""Captures the log lines of the storage tests."""

import logging
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[MutableMapping[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        event: Any = record.msg
        self.lines.append({**event, "log_level": record.levelname.lower()})


@pytest.fixture(autouse=True)
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    """The log lines, as dictionaries."""
    logger, kept = logging.getLogger("barnabas_broker"), _Kept()
    level = logger.level
    logger.addHandler(kept)
    logger.setLevel(logging.DEBUG)
    yield kept.lines
    logger.setLevel(level)
    logger.removeHandler(kept)
