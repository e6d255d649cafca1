"""A broker of :mod:`barnabas_broker.testing` for a module's tests, in a process and on a thread."""

from collections.abc import AsyncIterator, Iterator

import pytest

from barnabas_broker.testing import Broker, Faults
from tests.wire import Wire


@pytest.fixture(scope="module", params=["process", "thread"])
def running(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(process=request.param == "process") as broker:
        yield broker


@pytest.fixture
def faults(running: Broker) -> Iterator[Faults]:
    yield running.faults
    running.faults.clear()


@pytest.fixture
async def line(running: Broker) -> AsyncIterator[Wire]:
    """A connection to the broker, nothing else."""
    async with await Wire.connect(running.port) as wire:
        yield wire
