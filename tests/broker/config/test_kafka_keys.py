"""Every configuration key of Apache Kafka's brokers is served, refused or named as having no effect.

`kafka_keys.tsv` holds the keys of Apache Kafka 4.4.0, as tests/interop/java/BrokerKeys.java prints them; a test marked
`kafka` prints them again.
"""

from pathlib import Path
from typing import Final, NamedTuple

import pytest

from barnabas_broker.config import BROKER_KEYS, show
from barnabas_broker.config.keys import DYNAMIC_KEYS
from barnabas_broker.config.unsupported import DYNAMIC_UNSERVED, REMOVED, UNSERVED
from tests.interop.kafka_server import run_tool
from tests.lots import in_lots

FILE: Final = Path(__file__).with_name("kafka_keys.tsv")
PROGRAM: Final = Path(__file__).parents[2] / "interop" / "java" / "BrokerKeys.java"

#: Keys that Apache Kafka does not have, or that its authorizer has and not the broker.
OURS: Final = {
    "allow.everyone.if.no.acl.found",
    "cluster.url",
    "connection.max.response.bytes",
    "etcd.password.file",
    "etcd.ssl.cafile",
    "etcd.ssl.certfile",
    "etcd.ssl.keyfile",
    "etcd.user",
    "group.stuck.offset.ms",
    "event.loop.watchdog.ms",
    "http.max.connections",
    "http.ssl.cafile",
    "http.ssl.certfile",
    "http.ssl.keyfile",
    "http.token.file",
    "log.dir.mode",
    "max.incremental.fetch.session.cache.partitions",
    "message.max.decompressed.bytes",
    "oauthbearer.sasl.jaas.config",
    "plain.sasl.jaas.config",
    "scram-sha-256.sasl.jaas.config",
    "scram-sha-512.sasl.jaas.config",
    "queued.max.response.bytes",
    "super.users",
    "unclean.recovery.timeout.ms",
}
#: Served keys with another default than in Kafka.
OTHER_DEFAULT: Final = {
    "broker.session.timeout.ms": "2000",  # a lease of etcd can be that short
    "inter.broker.listener.name": "PLAINTEXT",  # in Kafka the same, by way of another key
    "listener.security.protocol.map": "",  # in Kafka each protocol under its own name, which is the same
    "listeners": "",  # PLAINTEXT at --host and --port
    "log.dir": "barnabas-data",
    "log.dirs": "barnabas-data",
    "node.id": "1",
    "sasl.enabled.mechanisms": "",  # Kafka's own, GSSAPI, is not served
    "ssl.keystore.type": "PEM",  # the only type that is served
    "ssl.truststore.type": "PEM",
    "queued.max.request.bytes": "268435456",  # without a limit, clients that send a part can take all memory
}
#: Keys without a default in Kafka, because a coarser key or no limit applies; here they hold what applies.
FINER: Final = {"log.flush.interval.ms", "log.retention.minutes", "log.retention.ms", "log.roll.ms"}


class KafkaKey(NamedTuple):
    type: str
    default: str
    scope: str


def kafka_keys() -> dict[str, KafkaKey]:
    rows = (line.split("\t") for line in FILE.read_text("utf-8").splitlines())
    return {name: KafkaKey(*rest) for name, *rest in rows}


def test_each_key_of_kafka_is_either_served_or_not() -> None:
    kafka = kafka_keys().keys()
    assert BROKER_KEYS.keys() - kafka == OURS
    assert UNSERVED.keys() - kafka == set()
    assert BROKER_KEYS.keys() & UNSERVED.keys() == set()
    assert kafka - BROKER_KEYS.keys() - UNSERVED.keys() == set()
    assert REMOVED.keys() & kafka == set()


@in_lots("name", sorted(BROKER_KEYS.keys() - OURS))
def test_a_served_key_has_kafkas_type_and_default(name: str) -> None:
    key, kafka = BROKER_KEYS[name], kafka_keys()[name]
    assert key.type.name == ("STRING" if name == "listener.security.protocol.map" else kafka.type)
    default = show(key.default) or ""
    if name in FINER:
        assert kafka.default == ""
    elif key.type.name == "DOUBLE":
        assert float(default) == float(kafka.default)
    else:
        assert default == OTHER_DEFAULT.get(name, kafka.default)
        assert OTHER_DEFAULT.get(name) != kafka.default


def test_keys_that_are_not_served_have_kafkas_default() -> None:
    kafka = kafka_keys()
    assert {name: key.default for name, key in UNSERVED.items()} == {name: kafka[name].default for name in UNSERVED}


def test_what_is_dynamic_is_dynamic_in_kafka() -> None:
    kafka = kafka_keys()
    assert [name for name in sorted(DYNAMIC_KEYS) if kafka[name].scope != "cluster-wide"] == []


def test_keys_without_effect_are_dynamic_as_in_kafka() -> None:
    scopes = {"cluster-wide": False, "per-broker": True}
    theirs = {
        name: (key.type, key.default, scopes[key.scope])
        for name, key in kafka_keys().items()
        if key.scope in scopes and name in UNSERVED and not UNSERVED[name].refused
    }
    assert {
        name: (found.key.type.name, show(found.key.default) or "", found.per_broker)
        for name, found in DYNAMIC_UNSERVED.items()
    } == theirs


def test_each_key_says_what_it_does() -> None:
    docs = [(key.name, key.doc) for key in BROKER_KEYS.values()] + [(key.name, key.doc) for key in UNSERVED.values()]
    assert [name for name, doc in docs if not doc.endswith(".")] == []


@pytest.mark.kafka
@pytest.mark.usefixtures("needs_jars")
def test_the_file_is_what_apache_kafka_has() -> None:
    done = run_tool(str(PROGRAM), timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == FILE.read_text("utf-8")
