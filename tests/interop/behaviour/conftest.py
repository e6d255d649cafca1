"""The servers that scenarios run against."""

from collections.abc import Iterator

import pytest

from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.behaviour.playing import Running


@pytest.fixture(scope="session")
def ours() -> Iterator[Running]:
    """Barnabas, once for each setting."""
    running = Running(BarnabasBroker)
    yield running
    running.close()
