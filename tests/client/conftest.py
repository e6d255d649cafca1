"""Fixtures of the client's tests: a broker with a script in front, and the addresses of others.

What asks for a real one runs once with Barnabas and, marked `kafka`, once with Apache Kafka.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.handlers.features import FEATURES
from tests.client.real_broker import empty, running_broker
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import ApacheKafka
from tests.world.broker import ScriptedBroker, running

REAL: Final = ["barnabas", pytest.param("apache_kafka", marks=pytest.mark.kafka)]


@pytest.fixture
async def real(quiet: None) -> AsyncIterator[ScriptedBroker]:
    """A broker in the test's own event loop."""
    async with running() as one:
        yield one


@pytest.fixture(params=[0, 2], ids=["classic", "version2"])
def transactions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The level of ``transaction.version`` that brokers of a simulated world say they have."""
    monkeypatch.setitem(FEATURES, "transaction.version", request.param)
    return cast(int, request.param)


@pytest.fixture
async def no_complaints() -> AsyncIterator[None]:
    """Fail if asyncio reports an exception that was never retrieved, or that a callback raised."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    yield
    gc.collect()
    assert not complaints


@pytest.fixture(scope="session", params=REAL)
def bootstrap_servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """A real broker for all tests of a session."""
    if request.param == "barnabas":
        with BarnabasBroker({"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 4}) as live:
            yield live.bootstrap_servers
    else:
        kafka: ApacheKafka = request.getfixturevalue(request.param)
        yield kafka.bootstrap_servers


@pytest.fixture
async def own_broker(tmp_path: Path, quiet: None) -> AsyncIterator[BrokerServer]:
    """A broker of ours in the test's event loop, with its data in the test's folder."""
    async with running_broker(tmp_path) as broker:
        yield broker


@pytest.fixture(params=REAL)
def empty_servers(request: pytest.FixtureRequest) -> str:
    """A real broker that has neither topics nor groups."""
    if request.param == "barnabas":
        broker: BrokerServer = request.getfixturevalue("own_broker")
        return f"{broker.host}:{broker.port}"
    kafka: ApacheKafka = request.getfixturevalue(request.param)
    empty(kafka.bootstrap_servers)
    return kafka.bootstrap_servers
