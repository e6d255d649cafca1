"""Fixtures of the client's tests: fake brokers for scripted answers, and the address of a real one for the end-to-end
tests."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.fake_broker import FakeBroker, brokers
from tests.interop.barnabas_server import BarnabasBroker

#: Seconds. No test here takes nearly as long: a hang becomes a failure that names its place.
BOUND = 30


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bound every wait."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(BOUND))


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with brokers() as (one,):
        yield one


@pytest.fixture
async def pair() -> AsyncIterator[tuple[FakeBroker, FakeBroker]]:
    """Two brokers of one cluster, 0 and 1."""
    async with brokers(2) as (one, other):
        yield one, other


@pytest.fixture(scope="session")
def quick_collections() -> None:
    """Take what was imported out of the garbage collector's sight: tests collect garbage often."""
    gc.collect()
    gc.freeze()


@pytest.fixture
async def no_complaints(quick_collections: None) -> AsyncIterator[None]:
    """Fail if asyncio has to report an exception that nobody looked at, or that left a callback."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    yield
    gc.collect()
    assert not complaints


@pytest.fixture(scope="session")
def bootstrap_servers() -> Iterator[str]:
    """A live broker for the end-to-end tests: ours, or the one that BARNABAS_TEST_BOOTSTRAP names."""
    address = os.environ.get("BARNABAS_TEST_BOOTSTRAP")
    if address is not None:
        yield address
        return
    with BarnabasBroker({"offsets.topic.num.partitions": 4}) as live:
        yield live.bootstrap_servers
