"""Configuration: layers, Kafka's notations, and errors that name key and value."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.__main__ import read_config
from barnabas_broker.config import (
    BROKER_KEYS,
    TOPIC_KEYS,
    Config,
    ConfigError,
    ConfigSource,
    GroupConfig,
    TopicConfig,
    layered,
    parse_environment,
    parse_properties,
    show,
)
from barnabas_broker.config.checks import check_config
from barnabas_broker.config.keys import (
    CLEANUP_POLICY,
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    CONSUMER_SESSION_TIMEOUT_MS,
    LOG_RETENTION_MS,
    LOG_SEGMENT_BYTES,
    NUM_PARTITIONS,
    RETENTION_MS,
    SEGMENT_BYTES,
)
from tests.broker.config.flags import flags


def test_properties_are_read_as_java_reads_them() -> None:
    text = "# comment\n! comment\na=1\n b : 2 \nc=x=y\nd=one,\\\n  two\nempty=\nalone\n"
    assert parse_properties(text) == {"a": "1", "b": "2", "c": "x=y", "d": "one,two", "empty": "", "alone": ""}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("log.dirs /data", {"log.dirs": "/data"}),
        ("log.dirs\t:\t/data", {"log.dirs": "/data"}),
        ("log.dirs=C\\:\\\\kafka", {"log.dirs": "C:\\kafka"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=\\u0041\\t.", {"a": "A\t."}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("a=1\r\nb=2\rc=3\\", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\u2028b=2", {"a": "1\u2028b=2"}),
    ],
)
def test_separators_and_escapes_of_properties(text: str, read: dict[str, str]) -> None:
    assert parse_properties(text) == read


@given(st.dictionaries(st.text(min_size=1), st.text().map(str.strip)))
def test_properties_written_with_escapes_are_read_back(properties: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in properties.items())
    assert parse_properties(text) == properties


def test_environment_variables_have_kafkas_names() -> None:
    given = {"KAFKA_LOG_SEGMENT_BYTES": "1", "KAFKA_A__B": "2", "KAFKA_A___B": "3", "HOME": "/"}
    assert parse_environment(given) == {"log.segment.bytes": "1", "a_b": "2", "a-b": "3"}


def test_the_last_layer_wins() -> None:
    config = layered(BROKER_KEYS, [{"num.partitions": "2"}, {"num.partitions": "3"}])
    assert config[NUM_PARTITIONS] == 3
    assert config.explain(NUM_PARTITIONS) == (3, ConfigSource.STATIC_BROKER_CONFIG)
    assert config.explain(LOG_SEGMENT_BYTES) == (2**30, ConfigSource.DEFAULT_CONFIG)


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_key_with_the_finer_unit_wins(given: dict[str, str], milliseconds: int) -> None:
    assert Config(BROKER_KEYS, given)[LOG_RETENTION_MS] == milliseconds


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("num.partitions", "many", "num.partitions='many': not a whole number"),
        ("num.partitions", "0", "num.partitions='0': must be from 1 to 2147483647"),
        ("auto.create.topics.enable", "maybe", "must be true or false"),
        ("log.cleanup.policy", "shred", "must be a list of delete, compact"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "must be from 0 to 1"),
    ],
)
def test_the_error_of_a_bad_value_names_its_key(key: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_config(Config(BROKER_KEYS, {key: value}))


def test_every_default_is_accepted_by_its_own_key() -> None:
    for key in BROKER_KEYS.values():
        text = show(key.default)
        if text is not None:
            assert key.read(text) == key.default, key.name


def test_a_topic_overrides_its_brokers_defaults() -> None:
    broker = Config(BROKER_KEYS, {"log.segment.bytes": "1000"})
    topic = TopicConfig(broker, {"retention.ms": "5", "cleanup.policy": "compact,delete"}, TOPIC_KEYS)
    assert topic[SEGMENT_BYTES] == 1000
    assert topic[RETENTION_MS] == 5
    assert topic[CLEANUP_POLICY] == ("compact", "delete")
    assert topic.explain(SEGMENT_BYTES) == (1000, ConfigSource.STATIC_BROKER_CONFIG)
    assert topic.explain(RETENTION_MS) == (5, ConfigSource.DYNAMIC_TOPIC_CONFIG)


def test_dynamic_values_win_over_static_ones() -> None:
    config = Config(BROKER_KEYS, {"log.segment.bytes": "1000"})
    assert config[LOG_SEGMENT_BYTES] == 1000
    config.set_dynamic({"log.segment.bytes": "2000"}, {})
    assert config[LOG_SEGMENT_BYTES] == 2000
    assert config.explain(LOG_SEGMENT_BYTES) == (2000, ConfigSource.DYNAMIC_BROKER_CONFIG)


def test_a_topic_rejects_unknown_keys() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        TopicConfig(Config(BROKER_KEYS), {"num.partitions": "1"}, TOPIC_KEYS)


def test_a_group_overrides_its_brokers_defaults() -> None:
    broker = Config(BROKER_KEYS, {"group.consumer.heartbeat.interval.ms": "6000"})
    group = GroupConfig(broker, {"consumer.session.timeout.ms": "50000"})
    group.check()
    assert group.explain(CONSUMER_SESSION_TIMEOUT_MS) == (50_000, ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert group.explain(CONSUMER_HEARTBEAT_INTERVAL_MS) == (6_000, ConfigSource.STATIC_BROKER_CONFIG)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"consumer.session.timeout.ms": "44999"}, r"must be between .*\(45000\) and .*\(60000\)"),
        ({"consumer.session.timeout.ms": "60001"}, "must be between"),
        ({"consumer.heartbeat.interval.ms": "15001"}, "must be between"),
        ({"consumer.assignment.interval.ms": "15001"}, "must be between"),
        ({"retention.ms": "1"}, "Unknown group config name: retention.ms"),
    ],
)
def test_a_group_rejects_values_out_of_the_brokers_bounds(overrides: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        GroupConfig(Config(BROKER_KEYS), overrides).check()


def test_a_groups_session_is_longer_than_its_heartbeat_interval() -> None:
    low = {"group.consumer.min.session.timeout.ms": "5000"}
    with pytest.raises(ConfigError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        GroupConfig(Config(BROKER_KEYS, low), {"consumer.session.timeout.ms": "5000"}).check()


def test_a_groups_value_is_used_within_bounds_that_changed_later() -> None:
    broker = Config(BROKER_KEYS, {"group.consumer.min.session.timeout.ms": "52000"})
    group = GroupConfig(broker, {"consumer.session.timeout.ms": "50000"})
    assert (group[CONSUMER_SESSION_TIMEOUT_MS], group.bounded(CONSUMER_SESSION_TIMEOUT_MS)) == (50_000, 52_000)


def test_flags_win_over_environment_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.segment.bytes=1000\nnode.id=5\n")
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "3")
    monkeypatch.setenv("KAFKA_OPTS", "-Xmx1g")
    config, unknown = read_config(flags(config=str(file), set=["num.partitions=4"], node_id="7"))
    assert (config[NUM_PARTITIONS], config[LOG_SEGMENT_BYTES]) == (4, 1000)
    assert config[BROKER_KEYS["node.id"]] == 7
    assert unknown == []


@pytest.mark.parametrize(
    "given", [{"set": ["novalue"]}, {"set": ["=1"]}, {"config": "/no/such/file"}, {"node_id": "x"}]
)
def test_bad_flags_are_rejected(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        read_config(flags(**given))
