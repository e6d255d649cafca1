"""Log lines of the storage tests: kept for those who look, not printed."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    """What was logged, as dictionaries."""
    with structlog.testing.capture_logs() as lines:
        yield lines
