"""Fixtures for pytest: a real broker, a fresh topic, and things that go wrong.

Loaded by its entry point whenever pytest starts, so nothing of the broker is imported before a test asks for it.
"""

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from barnabas_broker.testing import Broker, Faults

_BROKER: "Final[pytest.StashKey[Broker]]" = pytest.StashKey()
_STARTED: Final[pytest.StashKey[float]] = pytest.StashKey()
#: Characters of a topic's name that come from the test's.
_MOST_CHARACTERS: Final = 150


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare what can be set."""
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
        "markers", "kafka_topic(partitions=1, config=None): what the topic of the fixture kafka_topic is like"
    )


def _settings(config: pytest.Config) -> tuple[bool, dict[str, str]]:
    """Whether the broker gets a process, and its configuration."""
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
    """A broker for all tests of this run; under pytest-xdist one for each worker."""
    from barnabas_broker.testing import Broker

    process, config = _settings(pytestconfig)
    data = tmp_path_factory.mktemp("kafka-broker") / "data"
    with Broker(process=process, config=config, data_dir=data) as broker:
        pytestconfig.stash[_BROKER] = broker
        yield broker
        del pytestconfig.stash[_BROKER]


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(kafka_broker: "Broker") -> str:
    """What clients want to be given: HOST:PORT."""
    return kafka_broker.bootstrap_servers


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: "Broker") -> Iterator[str]:
    """The name of a topic that was made for this test; see the marker ``kafka_topic``."""
    marker = request.node.get_closest_marker("kafka_topic")
    partitions, config = _topic(*marker.args, **marker.kwargs) if marker is not None else _topic()
    stem = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-")[:_MOST_CHARACTERS]
    name = f"{stem}-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(name, partitions, config)
    yield name
    if kafka_broker.running:
        kafka_broker.delete_topic(name)


def _topic(partitions: int = 1, config: Mapping[str, object] | None = None) -> tuple[int, Mapping[str, object] | None]:
    """The arguments of the marker."""
    return partitions, config


@pytest.fixture
def kafka_faults(kafka_broker: "Broker") -> "Iterator[Faults]":
    """Things that go wrong in this test, and not in the next one."""
    yield kafka_broker.faults
    kafka_broker.faults.clear()


def _uses(item: pytest.Item) -> "Broker | None":
    """The broker, if it runs for this session and the test asks for it."""
    broker = item.config.stash.get(_BROKER, None)
    return broker if broker is not None and "kafka_broker" in getattr(item, "fixturenames", ()) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when the test began, and bring a broker back that the test before it left stopped."""
    item.stash[_STARTED] = time.time()
    broker = _uses(item)
    if broker is not None:
        broker.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Tell a test that failed what the broker saw of it."""
    report: pytest.TestReport = yield
    broker = _uses(item) if report.failed else None
    if broker is not None:
        from barnabas_broker.errors import BrokerError
        from barnabas_broker.testing.report import sections

        try:
            report.sections.extend(sections(broker, item.stash.get(_STARTED, 0.0)))
        except BrokerError as error:
            report.sections.append(("kafka requests", f"The broker cannot tell: {error}"))
    return report
