"""Fixtures for pytest: a real broker, a fresh topic, and faults.

::

    def test_orders(kafka_bootstrap_servers: str, kafka_topic: str) -> None: ...

Options:
    kafka_broker_mode (text): where `kafka_broker` runs: ``process``, or ``thread`` for a thread of pytest, which starts
        sooner but cannot be killed. In the configuration of pytest, or ``--kafka-broker-mode``, which wins. Default:
        "process".
    kafka_broker_config (lines of text): Kafka's configuration keys for `kafka_broker`, one ``key=value`` a line, over
        the defaults of :data:`barnabas_broker.testing.broker.TEST_DEFAULTS`. In the configuration of pytest, or
        ``--kafka-broker-config key=value``, repeatable, which wins. Default: [].

Markers:
    kafka_topic(partitions=1, config=None, records=()): the topic that the fixture `kafka_topic` creates: its number of
        partitions, Kafka's configuration keys for topics, and the records in it before the test begins: values, or
        pairs of key and value, in partition 0.

The entry point loads this module whenever pytest starts, in projects that never use it, too. That is why it imports
:mod:`barnabas_broker.testing` when the first test uses a fixture.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from barnabas_broker.testing import Broker, Faults, StoredRecord

_BROKER: "Final[pytest.StashKey[Broker]]" = pytest.StashKey()
_STARTED: Final[pytest.StashKey[float]] = pytest.StashKey()
_REPORTS: Final[pytest.StashKey[Path]] = pytest.StashKey()
#: Characters of the test's name in a topic's name at most.
_MOST_CHARACTERS: Final = 150


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("kafka", "Kafka broker (barnabas)")
    group.addoption(
        "--kafka-broker-mode", choices=("process", "thread"), help="where kafka_broker runs (default: process)"
    )
    group.addoption(
        "--kafka-broker-config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one of Kafka's configuration keys for kafka_broker; repeatable",
    )
    parser.addini("kafka_broker_mode", "where kafka_broker runs: process or thread", default="process")
    parser.addini("kafka_broker_config", "Kafka's configuration keys for kafka_broker, a key=value a line", "linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers", "kafka_topic(partitions=1, config=None, records=()): the topic that the fixture kafka_topic creates"
    )


def _settings(config: pytest.Config) -> tuple[bool, dict[str, str]]:
    """Whether the broker gets a process of its own, and its configuration."""
    mode = config.getoption("--kafka-broker-mode") or config.getini("kafka_broker_mode")
    if mode not in ("process", "thread"):
        raise pytest.UsageError(f"kafka_broker_mode = {mode}: must be process or thread")
    given = {}
    for line in [*config.getini("kafka_broker_config"), *config.getoption("--kafka-broker-config")]:
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise pytest.UsageError(f"kafka_broker_config: {line!r} must be key=value")
        given[key.strip()] = value.strip()
    return mode == "process", given


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Broker]":
    """A broker for all tests of this session; with pytest-xdist one for each worker."""
    from barnabas_broker.testing import Broker

    process, config = _settings(pytestconfig)
    data = tmp_path_factory.mktemp("kafka-broker") / "data"
    with Broker(process=process, config=config, data_dir=data) as broker:
        pytestconfig.stash[_BROKER] = broker
        pytestconfig.stash[_REPORTS] = data.parent
        yield broker
        del pytestconfig.stash[_BROKER]


@pytest.fixture(scope="session")
def kafka_secure_broker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Broker]":
    """Another broker, whose clients log in over TLS: as ``test`` with the password ``test-secret``.

    For other users, or for TLS alone, make a fixture of your own with ``Broker(security=..., users=...)``.
    """
    from barnabas_broker.testing import Broker

    process, config = _settings(pytestconfig)
    data = tmp_path_factory.mktemp("kafka-secure-broker") / "data"
    users = {"test": "test-secret"}
    with Broker(process=process, config=config, data_dir=data, security="SASL_SSL", users=users) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(kafka_broker: "Broker") -> str:
    """The value for ``bootstrap.servers``: HOST:PORT."""
    return kafka_broker.bootstrap_servers


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: "Broker") -> Iterator[str]:
    """The name of a new topic for this test; see the marker ``kafka_topic``."""
    marker = request.node.get_closest_marker("kafka_topic")
    topic = _topic(marker)
    name = _new_name(request.node)
    kafka_broker.create_topic(name, topic["partitions"], topic["config"])
    kafka_broker.append(name, topic["records"])
    yield name
    if kafka_broker.running:
        kafka_broker.delete_topic(name)


def _stem(item: pytest.Item) -> str:
    """The name of a test with the characters that topics and files may have."""
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", item.name).strip("-")[:_MOST_CHARACTERS]


def _new_name(item: pytest.Item) -> str:
    """A name that no other test has, and no other run of this one."""
    return f"{_stem(item)}-{uuid.uuid4().hex[:8]}"


def _topic(marker: "pytest.Mark | None") -> dict[str, Any]:
    """The arguments of the marker ``kafka_topic``.

    Raises:
        pytest.UsageError: it has others.
    """
    arguments = {"partitions": 1, "config": None, "records": ()}
    if marker is None:
        return arguments
    if len(marker.args) > len(arguments):
        raise pytest.UsageError(f"the marker kafka_topic takes {', '.join(arguments)}, and no more")
    given = {**dict(zip(arguments, marker.args, strict=False)), **marker.kwargs}
    for name in given.keys() - arguments.keys():
        raise pytest.UsageError(f"the marker kafka_topic has no argument {name}: it takes {', '.join(arguments)}")
    return {**arguments, **given}


@pytest.fixture
def kafka_group(request: pytest.FixtureRequest) -> str:
    """A group id that no other test has."""
    return _new_name(request.node)


@pytest.fixture
def kafka_records(kafka_broker: "Broker") -> "Callable[..., list[StoredRecord]]":
    """A function that returns what is in a topic: ``kafka_records(topic, count=3)`` waits for three records.

    It is :meth:`barnabas.testing.Broker.records`.
    """
    return kafka_broker.records


@pytest.fixture
def kafka_faults(kafka_broker: "Broker") -> "Iterator[Faults]":
    """Faults for this test; they end with it."""
    yield kafka_broker.faults
    kafka_broker.faults.clear()


def _uses(item: pytest.Item) -> "Broker | None":
    """The broker, if the session has one and the test uses it."""
    broker = item.config.stash.get(_BROKER, None)
    return broker if broker is not None and "kafka_broker" in getattr(item, "fixturenames", ()) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note the start of the test, and start the broker if the test before left it stopped."""
    item.stash[_STARTED] = time.time()
    broker = _uses(item)
    if broker is not None:
        broker.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Add sections about the broker to the report of a failed test."""
    report: pytest.TestReport = yield
    broker = _uses(item) if report.failed else None
    if broker is not None:
        from barnabas_broker.errors import BrokerError
        from barnabas_broker.testing.report import sections

        try:
            file = item.config.stash[_REPORTS] / _stem(item)
            report.sections.extend(sections(broker, item.stash.get(_STARTED, 0.0), file))
        except BrokerError as error:
            report.sections.append(("kafka requests", f"The broker does not answer: {error}"))
    return report
