"""What may not be given: a stock configuration of Apache Kafka, and each way to ask for what the broker does not do."""

import os
from pathlib import Path
from typing import Final

import pytest

from barnabas_broker.__main__ import read_config
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError, Listener, parse_properties
from barnabas_broker.config.checks import broker_listeners, check_config
from barnabas_broker.config.keys import ADVERTISED_LISTENERS, LISTENERS, LOG_DIRS, NODE_ID
from barnabas_broker.config.unsupported import UNSERVED
from tests.broker.config.flags import flags
from tests.lots import in_lots

#: The keys and values that all three stock files of Apache Kafka 4.3 have (config/*.properties).
COMMON: Final = """
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
SERVER: Final = """
process.roles=broker,controller
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
log.dirs=/tmp/kraft-combined-logs
"""
BROKER: Final = """
process.roles=broker
listeners=PLAINTEXT://localhost:9092
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092
log.dirs=/tmp/kraft-broker-logs
"""
CONTROLLER: Final = """
process.roles=controller
listeners=CONTROLLER://:9093
advertised.listeners=CONTROLLER://localhost:9093
log.dirs=/tmp/kraft-controller-logs
"""


def config(text: str = "", **given: str) -> Config:
    return Config(BROKER_KEYS, parse_properties(text) | {name.replace("__", "."): text for name, text in given.items()})


def warned(warnings: list[str]) -> set[str]:
    """The keys that warnings name."""
    return {name for line in warnings for name in line.partition(":")[0].split(", ")}


def test_a_stock_server_properties_is_honoured_or_named() -> None:
    stock = config(COMMON + SERVER)
    warnings = check_config(stock)
    names = {name for name in stock.given if name not in BROKER_KEYS}
    assert names == {name for name in stock.given if name in UNSERVED}
    assert warned(warnings) == names | {"CONTROLLER"}  # the listener that is not opened
    assert all(": no effect, " in line for line in warnings)
    assert stock[LOG_DIRS] == "/tmp/kraft-combined-logs"
    assert broker_listeners(stock, LISTENERS) == (Listener("PLAINTEXT", "0.0.0.0", 9092),)
    assert broker_listeners(stock, ADVERTISED_LISTENERS) == (Listener("PLAINTEXT", "localhost", 9092),)


def test_a_stock_broker_properties_needs_a_cluster() -> None:
    with pytest.raises(ConfigError, match=r"process\.roles=broker: .*--cluster"):
        check_config(config(COMMON + BROKER))
    check_config(config(COMMON + BROKER, cluster__url="etcd://127.0.0.1:2379"))


def test_a_stock_controller_properties_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"process\.roles='controller': .*has no controllers"):
        check_config(config(COMMON + CONTROLLER))


@in_lots("name", sorted(name for name, key in UNSERVED.items() if key.refused))
def test_what_would_do_less_than_asked_is_refused(name: str) -> None:
    shown = "" if name.endswith("password") else r"='org\.example\.Guard'"
    with pytest.raises(ConfigError, match=rf"^{name}{shown}: .*; leave it out$"):
        check_config(Config(BROKER_KEYS, {name: "org.example.Guard"}))
    assert check_config(Config(BROKER_KEYS, {name: UNSERVED[name].default})) == []


@in_lots("name", sorted(name for name, key in UNSERVED.items() if not key.refused))
def test_what_has_no_effect_is_named(name: str) -> None:
    assert check_config(Config(BROKER_KEYS, {name: "1"})) == [f"{name}: no effect, {UNSERVED[name].why}"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("num.partition", "no such configuration key, ignored, did you mean num.partitions?"),
        ("NUM.PARTITIONS", "no such configuration key, ignored, did you mean num.partitions?"),
        ("num.io.thread", "no such configuration key, ignored, did you mean num.io.threads?"),
        ("xyz", "no such configuration key, ignored"),
        ("port", "no effect, removed from Apache Kafka: set listeners instead"),
        ("zookeeper.connection.timeout.ms", "no effect, there is no ZooKeeper; brokers coordinate through etcd"),
        (
            "listener.name.internal.num.io.threads",
            "no effect, only keys of TLS, SASL and limits of connections",
        ),
    ],
)
def test_an_unknown_key_is_named_with_the_one_that_was_meant(name: str, said: str) -> None:
    (warning,) = check_config(Config(BROKER_KEYS, {name: "1"}))
    assert warning.startswith(f"{name}: {said}")


def test_keys_without_effect_for_one_reason_share_a_line() -> None:
    (line,) = check_config(config("num.io.threads=8\nnum.network.threads=3"))
    assert line.startswith("num.io.threads, num.network.threads: no effect, ")


def test_a_codec_that_is_not_applied_is_named() -> None:
    assert warned(check_config(config("compression.type=zstd"))) == {"compression.type"}
    assert check_config(config("compression.type=producer")) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("log.dirs=/a,/b", r"log\.dirs='/a,/b': names 2 directories, .*give one"),
        ("log.dir=/a,/b", r"log\.dir='/a,/b': names 2 directories"),
        ("log.dirs=", r"log\.dirs='': must name a directory"),
        ("log.dirs=/a\nlog.dir=/b", r"log\.dirs=/a and log\.dir=/b: give one of them"),
        ("node.id=1\nbroker.id=2", r"node\.id=1 and broker\.id=2: give one of them"),
        ("log.dirs=/a\nmetadata.log.dir=/b", r"metadata\.log\.dir='/b': .*leave it out"),
        ("process.roles=boss", r"process\.roles='boss': must be a list of broker, controller"),
        ("controller.quorum.voters=1@a:1,2@b:1,3@c:1", r"controller\.quorum\.voters has 3 controllers: .*--cluster"),
        ("ssl.keystore.type=JKS", r"ssl\.keystore\.type='JKS': only PEM .*keytool -importkeystore .*openssl pkcs12"),
        ("ssl.truststore.type=PKCS12", r"ssl\.truststore\.type='PKCS12': only PEM is served\. To do: .*openssl pkcs12"),
        ("ssl.enabled.protocols=TLSv1.1,TLSv1.2", r"ssl\.enabled\.protocols=.*must be a list of TLSv1\.2, TLSv1\.3"),
        ("ssl.client.auth=maybe", r"ssl\.client\.auth='maybe': must be one of required, requested, none"),
        (
            "listener.name.plaintext.ssl.client.auth=x",
            r"^listener\.name\.plaintext\.ssl\.client\.auth='x': must be one",
        ),
        ("listener.name.outside.ssl.client.auth=none", r"there is no such listener; listeners has PLAINTEXT"),
        ("listener.name.plaintext.ssl.cipher.suites=X", r"ssl\.cipher\.suites='X': .*; leave it out"),
        ("controller.quorum.bootstrap.servers=a:1,b:1", r"controller\.quorum\.bootstrap\.servers has 2 controllers"),
    ],
)
def test_a_contradiction_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_config(config(text))


@pytest.mark.parametrize(
    "text",
    [
        "log.dirs=/a,/a",
        "log.dirs=/a\nlog.dir=/x/../a",
        "log.dirs=/a\nmetadata.log.dir=/a",
        "node.id=2\nbroker.id=2",
    ],
)
def test_saying_the_same_twice_is_fine(text: str) -> None:
    assert warned(check_config(config(text))) <= {"metadata.log.dir"}


def test_listeners_for_controllers_only_are_refused() -> None:
    with pytest.raises(ConfigError, match="listeners has only listeners for controllers"):
        broker_listeners(config("listeners=C://:9093\ncontroller.listener.names=C"), LISTENERS)


# Where the data goes


def started(file: Path | None = None, *given: str, data_dir: str | None = None, node_id: str | None = None) -> Config:
    """The configuration of ``broker --config FILE --set GIVEN ... --data-dir DIR --node-id N``."""
    config_file = None if file is None else str(file)
    read, _ = read_config(flags(config=config_file, set=list(given), data_dir=data_dir, node_id=node_id))
    return read


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "server.properties"


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
def test_the_log_is_kept_where_the_file_says(name: str, file: Path) -> None:
    file.write_text(f"{name}=/srv/kafka\n")
    assert started(file)[LOG_DIRS] == "/srv/kafka"
    assert started(file, data_dir="/srv/kafka")[LOG_DIRS] == "/srv/kafka"
    with pytest.raises(ConfigError, match=rf"--data-dir /x and {name}=/srv/kafka are different directories: give one"):
        started(file, data_dir="/x")


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
@pytest.mark.parametrize("later", ["log.dirs", "log.dir"])
def test_a_later_source_replaces_both_names(name: str, later: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(f"{name}=/file\n")
    assert started(file, f"{later}=/flag")[LOG_DIRS] == "/flag"
    monkeypatch.setenv("KAFKA_" + later.upper().replace(".", "_"), "/environment")
    assert started(file)[LOG_DIRS] == "/environment"
    with pytest.raises(ConfigError, match="different directories"):
        started(data_dir="/flag")


def test_without_any_the_log_is_in_the_working_directory() -> None:
    assert started()[LOG_DIRS] == "barnabas-data"
    assert started(data_dir="x")[LOG_DIRS] == "x"
    with pytest.raises(ConfigError, match="names 2 directories"):
        started(data_dir="x,y")


def test_an_older_name_of_the_id_is_read(file: Path) -> None:
    file.write_text("broker.id=7\n")
    assert started(file)[NODE_ID] == 7
    assert started(file, node_id="8")[NODE_ID] == 8


def test_the_environment_is_checked_but_other_programs_variables_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    for name in ("OPTS", "HEAP_OPTS", "PORT", "SERVICE_HOST", "BOOTSTRAP_SERVERS", "BROKER", "LOG4J_OPTS", "VERSION"):
        monkeypatch.setenv(f"KAFKA_{name}", "x")
    arguments = flags()
    assert read_config(arguments)[1] == []
    monkeypatch.setenv("KAFKA_NUM_PARTITION", "3")
    monkeypatch.setenv("KAFKA_ZOOKEEPER_CONNECT", "zookeeper:2181")
    monkeypatch.setenv("KAFKA_NUM_IO_THREADS", "8")
    assert warned(read_config(arguments)[1]) == {"num.partition", "zookeeper.connect", "num.io.threads"}
    monkeypatch.setenv("KAFKA_AUTHORIZER_CLASS_NAME", "kafka.security.authorizer.AclAuthorizer")
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        read_config(arguments)
