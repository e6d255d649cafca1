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
    kafka_broker_init (text): a file that declares what `kafka_broker` has: topics, records, groups' offsets and more,
        see ``broker --init``; relative to the folder of pytest's configuration. Or ``--kafka-broker-init``, which wins.
        Default: "".

Markers:
    kafka_topic(partitions=1, config=None, records=()): the topic that the fixture `kafka_topic` creates: its number of
        partitions, Kafka's configuration keys for topics, and the records in it before the test begins: values, or
        pairs of key and value, in partition 0.
    kafka_cluster(brokers=3, config=None): the cluster of the fixture `kafka_cluster`: its number of brokers, and
        Kafka's configuration keys for them. A cluster serves all tests in a row that ask for the same; each test begins
        without topics, and with all brokers running.

The entry point loads this module whenever pytest starts, in projects that never use it, too. That is why it imports
:mod:`barnabas_broker.testing` when the first test uses a fixture.
"""

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from barnabas_broker.testing import Broker, Cluster, Faults, StoredRecord
    from barnabas_broker.testing.broker import Moment

_BROKER: "Final[pytest.StashKey[Broker]]" = pytest.StashKey()
_BROKERS: "Final[pytest.StashKey[list[Broker]]]" = pytest.StashKey()
_CLUSTERS: "Final[pytest.StashKey[_Clusters]]" = pytest.StashKey()
_BEGAN: "Final[pytest.StashKey[dict[Broker, Moment]]]" = pytest.StashKey()
_REPORTS: Final[pytest.StashKey[Path]] = pytest.StashKey()
#: Maximum characters of the test's name in a topic's name.
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
    group.addoption("--kafka-broker-init", metavar="FILE", help="a file that declares what kafka_broker has")
    parser.addini(
        "kafka_broker_init", "a file that declares what kafka_broker has: topics, records and more", default=""
    )
    parser.addini("kafka_broker_mode", "where kafka_broker runs: process or thread", default="process")
    parser.addini("kafka_broker_config", "Kafka's configuration keys for kafka_broker, a key=value a line", "linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    config.addinivalue_line(
        "markers", "kafka_topic(partitions=1, config=None, records=()): the topic that the fixture kafka_topic creates"
    )
    config.addinivalue_line(
        "markers", "kafka_cluster(brokers=3, config=None): the cluster that the fixture kafka_cluster starts"
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
    init = pytestconfig.getoption("--kafka-broker-init") or pytestconfig.getini("kafka_broker_init")
    file = pytestconfig.rootpath / init if init else None
    with Broker(process=process, config=config, data_dir=data, init=file) as broker:
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


class _Clusters:
    """The cluster of the tests in a row that ask for the same."""

    def __init__(self) -> None:
        self._asked: dict[str, Any] = {}
        self._cluster: Cluster | None = None

    def get(self, asked: dict[str, Any]) -> "Cluster":
        """The cluster, with all its brokers running and without topics; another one is ended."""
        from barnabas_broker.testing import Cluster

        if self._cluster is None or self._asked != asked:
            self.close()
            self._cluster, self._asked = Cluster(asked["brokers"], config=asked["config"]), asked
        self._cluster.start()
        self._cluster.delete_topics()
        return self._cluster

    def close(self) -> None:
        """End the cluster, if there is one."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> "Cluster":
    """Several brokers that form a cluster, with an etcd of their own; see the marker ``kafka_cluster``."""
    clusters = request.config.stash.get(_CLUSTERS, None)
    if clusters is None:
        clusters = request.config.stash[_CLUSTERS] = _Clusters()
        request.config.add_cleanup(clusters.close)
    cluster = clusters.get(_arguments(request.node, "kafka_cluster", {"brokers": 3, "config": None}))
    request.node.stash[_BROKERS] = list(cluster.brokers)
    request.node.stash[_BEGAN] |= {broker: broker.moment() for broker in cluster.brokers}
    return cluster


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(kafka_broker: "Broker") -> str:
    """The value for ``bootstrap.servers``: HOST:PORT."""
    return kafka_broker.bootstrap_servers


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: "Broker") -> Iterator[str]:
    """The name of a new topic for this test; see the marker ``kafka_topic``."""
    topic = _arguments(request.node, "kafka_topic", {"partitions": 1, "config": None, "records": ()})
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


def _arguments(item: pytest.Item, name: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a test's marker, over the defaults; other arguments fail the test with one line."""
    marker = item.get_closest_marker(name)
    if marker is None:
        return defaults
    if len(marker.args) > len(defaults):
        pytest.fail(f"the marker {name} takes {', '.join(defaults)}, and no more", pytrace=False)
    given = {**dict(zip(defaults, marker.args, strict=False)), **marker.kwargs}
    for each in given.keys() - defaults.keys():
        pytest.fail(f"the marker {name} has no argument {each}: it takes {', '.join(defaults)}", pytrace=False)
    return {**defaults, **given}


@pytest.fixture
def kafka_group(request: pytest.FixtureRequest) -> str:
    """A group id that no other test has."""
    return _new_name(request.node)


@pytest.fixture
def kafka_share_group(request: pytest.FixtureRequest, kafka_broker: "Broker") -> str:
    """The id of a share group that no other test has, and that reads its topics from the beginning."""
    name = _new_name(request.node)
    kafka_broker.set_group_config(name, {"share.auto.offset.reset": "earliest"})
    return name


@pytest.fixture
def kafka_records(kafka_broker: "Broker") -> "Callable[..., list[StoredRecord]]":
    """A function that returns what is in a topic: ``kafka_records(topic, count=3)`` waits for three records.

    It is :meth:`barnabas.testing.Broker.records`.
    """
    return kafka_broker.records


@pytest.fixture
def kafka_schema_registry(kafka_broker: "Broker") -> Iterator[str]:
    """The URL of a schema registry, which speaks Confluent's REST API; it is emptied after the test."""
    yield kafka_broker.serve_schema_registry()
    if kafka_broker.running:
        kafka_broker.clear_schema_registry()


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
    """Start the broker if the test before left it stopped, and note when the test begins."""
    item.stash[_BEGAN] = {}
    broker = _uses(item)
    if broker is not None:
        broker.start()
        item.stash[_BEGAN][broker] = broker.moment()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Add sections about the broker to the report of a failed test."""
    report: pytest.TestReport = yield
    broker = _uses(item) if report.failed else None
    if broker is not None:
        _add_sections(report, item, broker, item.config.stash[_REPORTS] / _stem(item), "")
    if report.failed:
        for each in item.stash.get(_BROKERS, []):
            _add_sections(report, item, each, None, f" (broker {each.node_id})")
    return report


def _add_sections(report: pytest.TestReport, item: pytest.Item, broker: "Broker", file: Path | None, of: str) -> None:
    """Add sections about a broker, with `of` behind their titles."""
    from barnabas_broker.errors import BrokerError
    from barnabas_broker.testing.report import sections

    # A broker that was started for this test has nothing from before it.
    began = item.stash.get(_BEGAN, {}).get(broker)
    try:
        found = [(f"{title}{of}", text) for title, text in sections(broker, began, file)]
        report.sections.extend(found)
    except BrokerError as error:
        report.sections.append((f"kafka requests{of}", f"The broker does not answer: {error}"))
