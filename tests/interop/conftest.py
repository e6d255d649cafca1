"""Brokers and clients for the interop tests: every test that asks for `client` runs once for each library.

Against Barnabas by default; the same tests against Apache Kafka carry the marker `kafka`.
"""

import gc
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator

import pytest

from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.clients.base import Admin, Client, Unsupported
from tests.interop.clients.registry import MODULES, client_class
from tests.interop.server import Server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """What a library does not have is no failure of anybody's."""
    try:
        return (yield)
    except Unsupported as missing:
        pytest.skip(str(missing))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """What a library left to the garbage collector is collected here, and does not complain in somebody else's test.

    Outermost, because captured log records hold on to it until the test is over. Only after tests with a library: it
    takes a tenth of a second.
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
    """One broker of ours for all interop tests of a session."""
    with BarnabasBroker() as broker:
        yield broker


@pytest.fixture(scope="session", params=["barnabas", pytest.param("apache_kafka", marks=pytest.mark.kafka)])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture
def crashing(server: Server) -> Iterator[Server]:
    """A server that the test may kill: it runs again afterwards."""
    yield server
    if not server.runs():
        server.stop()
        server.start()


# It leaves sockets of failed connections to the garbage collector.
LEAKS = {"kafka-python": [pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")]}


@pytest.fixture(params=[pytest.param(name, marks=LEAKS.get(name, [])) for name in MODULES])
def client(
    request: pytest.FixtureRequest, server: Server, record_property: Callable[[str, object], None]
) -> Iterator[Client]:
    kind = client_class(request.param)
    record_property("client", kind.NAME)
    client = kind(server.bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def operator(server: Server) -> Iterator[Admin]:
    """Somebody else who looks after the cluster, where that is not what is tested."""
    with client_class("confluent-kafka")(server.bootstrap_servers).admin() as admin:
        yield admin


@pytest.fixture
def fresh() -> str:
    """A name that no other test has, for a topic or a group."""
    return f"interop-{uuid.uuid4().hex}"
