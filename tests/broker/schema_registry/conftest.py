"""A broker with a schema registry, for a module's tests, and a client that knows nothing of schemas."""

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from barnabas_broker.testing import Broker

JSON = "application/vnd.schemaregistry.v1+json"


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker(process=False) as broker:
        yield broker


@pytest.fixture
def url(running: Broker) -> Iterator[str]:
    """The address of a registry that is empty."""
    yield running.serve_schema_registry()
    running.clear_schema_registry()


@pytest.fixture
async def http(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(url, headers={"Content-Type": JSON}) as session:
        yield session
