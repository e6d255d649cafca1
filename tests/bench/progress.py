"""Shows the current measurement on one line of the terminal; nothing if standard error is not a terminal."""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench.results import LOG


class _Line(logging.Handler):
    """Overwrites its line with each log record."""

    def __init__(self, family: str) -> None:
        super().__init__()
        self._family = family
        self._started = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        minutes, seconds = divmod(round(time.monotonic() - self._started), 60)
        line = f"{self._family} {minutes}:{seconds:02} {record.getMessage()}"
        # A line that wraps could not be overwritten.
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        self.write(line[: columns - 1])

    def write(self, line: str) -> None:
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()


@contextmanager
def shown(family: str) -> Iterator[None]:
    """Show what is logged to tests.bench.results.LOG in the context."""
    if not sys.stderr.isatty():
        yield
        return
    line = _Line(family)
    LOG.setLevel(logging.INFO)
    LOG.addHandler(line)
    LOG.info("...")
    try:
        yield
    finally:
        LOG.removeHandler(line)
        line.write("")
