"""Brokers and clients for the interop tests: a test with the fixture `client` runs once for each library.

The tests run against Barnabas. The same tests against Apache Kafka carry the marker `kafka`.
"""

import gc
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

import pytest

from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.clients.base import Admin, Client, Unsupported
from tests.interop.clients.registry import MODULES, client_class
from tests.interop.kafka_server import ApacheKafka
from tests.interop.server import Server
from tests.interop.waiting import Members

#: Groups of the consumer protocol (KIP-848). By default, their members learn of a change after up to 5 s, with the next
#: heartbeat, and a silent member is dropped after 45 s.
QUICK_GROUPS: Final = {
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.session.timeout.ms": 10_000,
    "group.consumer.session.timeout.ms": 10_000,
}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip a test of something that the library lacks."""
    try:
        return (yield)
    except Unsupported as missing:
        pytest.skip(str(missing))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Collect what a library leaves to the garbage collector, so that its warnings do not fail the next test.

    The hook is the outermost one: captured log records keep objects alive until the test is over. It runs only after
    tests with a library, because it takes a tenth of a second.
    """
    try:
        return (yield)
    finally:
        if isinstance(item, pytest.Function) and "client" in item.fixturenames:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()


@pytest.fixture(scope="session")
def barnabas() -> Iterator[BarnabasBroker]:
    """One Barnabas broker for all interop tests of a run."""
    with BarnabasBroker() as broker:
        yield broker


@pytest.fixture(scope="session", params=["barnabas", pytest.param("apache_kafka", marks=pytest.mark.kafka)])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture(scope="session", params=[BarnabasBroker, pytest.param(ApacheKafka, marks=pytest.mark.kafka)])
def quick_groups(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with `QUICK_GROUPS`, for all tests of a run that rebalance groups of the consumer protocol."""
    if request.param is ApacheKafka:
        request.getfixturevalue("needs_jars")
    with request.param(QUICK_GROUPS) as server:
        yield server


@pytest.fixture
def crashing(server: Server) -> Iterator[Server]:
    """A server that the test may kill: it is started again afterwards."""
    yield server
    if not server.runs():
        server.stop()
        server.start()


# kafka-python leaves sockets of failed connections to the garbage collector.
LEAKS = {"kafka-python": [pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")]}


def clients(*slow: str) -> list[Any]:
    """The libraries as parameters of the fixture `client`; the tests with those of `slow` are marked so."""
    return [
        pytest.param(name, marks=[*LEAKS.get(name, []), *([pytest.mark.slow] if name in slow else [])])
        for name in MODULES
    ]


@pytest.fixture(params=clients())
def client(
    request: pytest.FixtureRequest, server: Server, record_property: Callable[[str, object], None]
) -> Iterator[Client]:
    kind = client_class(request.param)
    record_property("client", kind.NAME)
    client = kind(server.bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def members() -> Iterator[Members]:
    members = Members()
    yield members
    members.close()


@pytest.fixture
def operator(server: Server) -> Iterator[Admin]:
    """An admin client for preparing a test, independent of the client that is tested."""
    with client_class("confluent-kafka")(server.bootstrap_servers).admin() as admin:
        yield admin


@pytest.fixture
def fresh() -> str:
    """A name for a topic or a group that no other test uses."""
    return f"interop-{uuid.uuid4().hex}"
