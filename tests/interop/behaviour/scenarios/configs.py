"""Configuration: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import NO_EFFECT, UNTOUCHED, make_topic
from tests.interop.behaviour.language import Difference, Family, Scenario, Step, ask, flat, spread

D, A, N = ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS
L = ApiKey.LIST_CONFIG_RESOURCES
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def _describe(*keys: str, kind: int = TOPIC, name: str = "$topic", version: int = 4, **content: Any) -> Step:
    wanted = list(keys) if keys else None
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": wanted}
    return ask(D, version, resources=[resource], **content)


def _set(*changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = "$topic", **content: Any) -> Step:
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    version = content.pop("version", 1)
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return ask(N, version, resources=[resource], **content)


def _replace(kind: int = TOPIC, name: str = "$topic", version: int = 2, **values: str | None) -> Step:
    configs = [{"name": key.replace("__", "."), "value": value} for key, value in values.items()]
    return ask(A, version, resources=[{"resource_type": kind, "resource_name": name, "configs": configs}])


def _changed(title: str, *changes: tuple[str, int, str | None], then: str | None = None, **configs: Any) -> Scenario:
    """Change keys. The scenario waits until the first key has the value `then`, if given."""
    until = None if then is None else {"results.0.configs.0.value": then}
    after = [] if changes[0][0].startswith("no.") else [_describe(changes[0][0], until=until)]
    return Scenario(f"IncrementalAlterConfigs v1: {title}", flat(make_topic(**configs), _set(*changes), after))


def _broker(title: str, *changes: tuple[str, int, str | None], name: str = "1", **content: Any) -> Scenario:
    step = _set(*changes, kind=BROKER, name=name, **content)
    return Scenario(f"IncrementalAlterConfigs v1: broker, {title}", (step,))


#: Keys that both brokers have, with the same values under the settings of these tests.
_BROKER_KEYS: Final = (
    "auto.leader.rebalance.enable",
    "broker.session.timeout.ms",
    "compression.type",
    "connections.max.idle.ms",
    "controlled.shutdown.enable",
    "default.replication.factor",
    "delete.topic.enable",
    "fetch.max.bytes",
    "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms",
    "group.max.size",
    "group.min.session.timeout.ms",
    "leader.imbalance.check.interval.seconds",
    "log.cleaner.backoff.ms",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.enable",
    "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleanup.policy",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.flush.offset.checkpoint.interval.ms",
    "log.index.interval.bytes",
    "log.index.size.max.bytes",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.check.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.roll.hours",
    "log.roll.ms",
    "log.segment.bytes",
    "log.segment.delete.delay.ms",
    "max.connections",
    "max.incremental.fetch.session.cache.slots",
    "message.max.bytes",
    "num.partitions",
    "offset.metadata.max.bytes",
    "offsets.commit.timeout.ms",
    "offsets.retention.check.interval.ms",
    "offsets.retention.minutes",
    "offsets.topic.num.partitions",
    "offsets.topic.segment.bytes",
    "producer.id.expiration.ms",
    "replica.fetch.backoff.ms",
    "replica.fetch.max.bytes",
    "replica.fetch.min.bytes",
    "replica.fetch.response.max.bytes",
    "replica.fetch.wait.max.ms",
    "replica.lag.time.max.ms",
    "replica.socket.timeout.ms",
    "socket.request.max.bytes",
    "unclean.leader.election.enable",
)
_TOPIC_KEYS: Final = ("retention.ms", "segment.bytes", "cleanup.policy")

SCENARIOS: Final = (
    *(
        Scenario(f"DescribeConfigs v{version}: a topic's", flat(make_topic(), _describe(*_TOPIC_KEYS, version=version)))
        for version in spread(D, 1)
    ),
    Scenario("DescribeConfigs v4: all of a topic's", flat(make_topic(), _describe())),
    *(
        Scenario(
            f"DescribeConfigs v{version}: overridden, with synonyms",
            flat(
                make_topic(retention__ms="60000", cleanup__policy="compact"),
                _describe(*_TOPIC_KEYS, version=version, include_synonyms=True),
            ),
        )
        for version in (1, 3, 4)
    ),
    Scenario(
        "DescribeConfigs v4: synonyms of all keys",
        flat(make_topic(), _describe(include_synonyms=True)),
    ),
    Scenario(
        "DescribeConfigs v4: with documentation",
        flat(make_topic(), _describe(*_TOPIC_KEYS, include_documentation=True)),
    ),
    Scenario("DescribeConfigs v4: a key that does not exist", flat(make_topic(), _describe("no.such.key"))),
    Scenario(
        "DescribeConfigs v4: no keys",
        flat(
            make_topic(),
            ask(D, 4, resources=[{"resource_type": TOPIC, "resource_name": "$topic", "configuration_keys": []}]),
        ),
    ),
    *(Scenario(f"DescribeConfigs v{version}: an unknown topic", (_describe(version=version),)) for version in (1, 4)),
    Scenario("DescribeConfigs v4: an illegal topic", (_describe(name="a/b"),)),
    Scenario("DescribeConfigs v4: an empty topic", (_describe(name=""),)),
    Scenario("DescribeConfigs v4: an unknown kind of resource", (_describe(kind=3, name="x"),)),
    Scenario("DescribeConfigs v4: a group", (_describe(kind=32, name="$group"),)),
    Scenario("DescribeConfigs v4: client metrics", (_describe(kind=16, name="x"),)),
    Scenario("DescribeConfigs v4: loggers of a broker", (_describe("root", kind=8, name="1"),)),
    Scenario(
        "DescribeConfigs v4: a broker's",
        (
            _describe(
                "num.partitions",
                "log.retention.hours",
                "log.cleaner.delete.retention.ms",
                "message.max.bytes",
                "group.initial.rebalance.delay.ms",
                kind=BROKER,
                name="1",
            ),
        ),
    ),
    Scenario(
        "DescribeConfigs v4: a broker's, with synonyms",
        (_describe("log.retention.ms", "log.segment.bytes", kind=BROKER, name="1", include_synonyms=True),),
    ),
    Scenario(
        "DescribeConfigs v4: many of a broker's keys",
        (_describe(*_BROKER_KEYS, kind=BROKER, name="1", include_synonyms=True),),
    ),
    Scenario("DescribeConfigs v4: a broker that does not exist", (_describe(kind=BROKER, name="9"),)),
    Scenario("DescribeConfigs v4: a broker id that is not a number", (_describe(kind=BROKER, name="one"),)),
    Scenario("DescribeConfigs v4: all brokers' defaults", (_describe("num.partitions", kind=BROKER, name=""),)),
    _changed("set", ("retention.ms", SET, "1000"), then="1000"),
    _changed("delete", ("retention.ms", DELETE, None), then="604800000", retention__ms="5"),
    _changed("delete what is not set", ("retention.ms", DELETE, None)),
    _changed("append to a list", ("cleanup.policy", APPEND, "compact"), then="delete,compact"),
    Scenario(
        "IncrementalAlterConfigs v1: append what is there",
        flat(
            make_topic(),
            _set(("cleanup.policy", APPEND, "delete")),
            _describe("cleanup.policy", until={"results.0.configs.0.config_source": 1}),
        ),
    ),
    _changed(
        "subtract from a list", ("cleanup.policy", SUBTRACT, "delete"), then="compact", cleanup__policy="compact,delete"
    ),
    _changed("subtract the last of a list", ("cleanup.policy", SUBTRACT, "delete"), then="", cleanup__policy="delete"),
    _changed("a list without entries", ("cleanup.policy", SET, ""), then=""),
    _changed("a list of empty entries", ("cleanup.policy", SET, " , ")),
    _changed("the same entry of a list twice", ("cleanup.policy", SET, "compact,compact"), then="compact"),
    _changed("append to a key that is not a list", ("retention.ms", APPEND, "1")),
    _changed("subtract from a key that is not a list", ("retention.ms", SUBTRACT, "1")),
    _changed("set to null", ("retention.ms", SET, None)),
    _changed("an unknown key", ("no.such.key", SET, "1")),
    _changed("delete an unknown key", ("no.such.key", DELETE, None)),
    _changed("a value that is not a number", ("retention.ms", SET, "soon")),
    _changed("a value out of range", ("segment.bytes", SET, "1")),
    _changed("an invalid cleanup policy", ("cleanup.policy", SET, "burn")),
    _changed("an unknown operation", ("retention.ms", 9, "1")),
    _changed("the same key twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
    _changed("one valid and one invalid", ("retention.ms", SET, "1"), ("segment.bytes", SET, "x")),
    Scenario(
        "IncrementalAlterConfigs v0: only checked",
        flat(
            make_topic(),
            _set(("retention.ms", SET, "1000"), version=0, validate_only=True),
            _describe("retention.ms"),
        ),
    ),
    Scenario(
        "IncrementalAlterConfigs v1: the same resource twice",
        flat(
            make_topic(),
            ask(
                N,
                1,
                resources=[
                    {"resource_type": TOPIC, "resource_name": "$topic", "configs": []},
                    {"resource_type": TOPIC, "resource_name": "$topic", "configs": []},
                ],
            ),
        ),
    ),
    Scenario(
        "IncrementalAlterConfigs v1: the offsets topic is no longer compacted, only checked",
        (_set(("cleanup.policy", SET, "delete"), name="__consumer_offsets", validate_only=True),),
    ),
    Scenario("IncrementalAlterConfigs v1: an unknown topic", (_set(("retention.ms", SET, "1")),)),
    Scenario("IncrementalAlterConfigs v1: an unknown topic and key", (_set(("no.such.key", SET, "1")),)),
    Scenario("IncrementalAlterConfigs v1: an illegal topic", (_set(("retention.ms", SET, "1"), name="a/b"),)),
    Scenario("IncrementalAlterConfigs v1: an empty topic", (_set(("retention.ms", SET, "1"), name=""),)),
    Scenario("IncrementalAlterConfigs v1: an unknown kind of resource", (_set(("a", SET, "1"), kind=3, name="x"),)),
    _broker("a key that is not dynamic", ("num.partitions", SET, "2")),
    _broker("an unknown key", ("no.such.key", SET, "1")),
    _broker("a value that is not a number", ("log.retention.ms", SET, "soon")),
    _broker("a broker that does not exist", ("log.retention.ms", SET, "1"), name="9"),
    _broker("a broker id that is not a number", ("log.retention.ms", SET, "1"), name="one"),
    *(
        _broker(f"{key}={value} for {name or 'all'}, only checked", (key, SET, value), name=name, validate_only=True)
        for key, values in {
            "max.connections": ("1000", "0"),
            "max.connection.creation.rate": ("1000", "0"),
            "max.connections.per.ip": ("1000", "0"),
            "max.connections.per.ip.overrides": ("127.0.0.1:1000", "127.0.0.1"),
            "listener.name.plaintext.max.connections": ("1000", "0"),
            "listener.name.plaintext.max.connection.creation.rate": ("1000", "0"),
        }.items()
        for value in values
        for name in ("1", "")
    ),
    *(
        _broker(f"{key}={value} for {name or 'all'}, only checked", (key, SET, value), name=name, validate_only=True)
        for key, values in {
            "num.io.threads": ("9", "many"),
            "log.cleaner.io.buffer.load.factor": ("0.8", "much"),
            "log.preallocate": ("true", "perhaps"),
            "sasl.kerberos.min.time.before.relogin": ("1000", "soon"),
            "ssl.provider": ("x",),
            "listener.name.plaintext.ssl.provider": ("x",),
            "num.replica.alter.log.dirs.threads": ("2",),
        }.items()
        for value in values
        for name in ("1", "")
    ),
    *(
        Scenario(
            f"DescribeConfigs v4: min.insync.replicas of {name or 'all brokers'}",
            (_describe("min.insync.replicas", kind=BROKER, name=name, include_synonyms=True),),
        )
        for name in ("1", "")
    ),
    Scenario(
        "IncrementalAlterConfigs v1: broker, set and delete a key without effect in Barnabas",
        (
            _set(("log.cleaner.io.buffer.size", SET, "600000"), kind=BROKER, name="1"),
            _describe(
                "log.cleaner.io.buffer.size",
                kind=BROKER,
                name="1",
                include_synonyms=True,
                until={"results.0.configs.0.value": "600000"},
            ),
            _set(("log.cleaner.io.buffer.size", DELETE, None), kind=BROKER, name="1"),
        ),
    ),
    Scenario(
        "IncrementalAlterConfigs v1: broker, set and delete",
        (
            _set(("log.cleaner.delete.retention.ms", SET, "7"), kind=BROKER, name="1"),
            _describe(
                "log.cleaner.delete.retention.ms",
                kind=BROKER,
                name="1",
                include_synonyms=True,
                until={"results.0.configs.0.value": "7"},
            ),
            _set(("log.cleaner.delete.retention.ms", DELETE, None), kind=BROKER, name="1"),
        ),
    ),
    Scenario(
        "IncrementalAlterConfigs v1: all brokers, set and delete",
        (
            _set(("log.cleaner.delete.retention.ms", SET, "8"), kind=BROKER, name=""),
            _describe(
                "log.cleaner.delete.retention.ms",
                kind=BROKER,
                name="",
                include_synonyms=True,
                until={"results.0.configs.length": 1},
            ),
            _describe(
                "log.cleaner.delete.retention.ms",
                kind=BROKER,
                name="1",
                include_synonyms=True,
                until={"results.0.configs.0.value": "8"},
            ),
            _set(("log.cleaner.delete.retention.ms", DELETE, None), kind=BROKER, name=""),
        ),
    ),
    *(
        Scenario(
            f"AlterConfigs v{version}: keys that are not named are reset",
            flat(
                make_topic(retention__ms="5", segment__bytes="2000000"),
                _replace(version=version, segment__bytes="3000000"),
                _describe("segment.bytes", until={"results.0.configs.0.value": "3000000"}),
                _describe(*_TOPIC_KEYS),
            ),
        )
        for version in spread(A)
    ),
    Scenario("AlterConfigs v2: a null value", flat(make_topic(), _replace(retention__ms=None))),
    Scenario("AlterConfigs v2: an unknown key", flat(make_topic(), _replace(no__such__key="1"))),
    Scenario("AlterConfigs v2: a value that is not a number", flat(make_topic(), _replace(retention__ms="soon"))),
    Scenario("AlterConfigs v2: an unknown topic", (_replace(retention__ms="1"),)),
    Scenario("AlterConfigs v2: an unknown kind of resource", (_replace(kind=3, name="x", a="1"),)),
    Scenario("ListConfigResources v0", (ask(L, 0),)),
    *(
        Scenario(f"ListConfigResources v1: {what}", (ask(L, 1, resource_types=kinds),), server=UNTOUCHED)
        for what, kinds in (
            ("brokers", [BROKER]),
            ("loggers of brokers", [8]),
            ("client metrics", [16]),
            ("groups", [32]),
            ("several kinds", [BROKER, 16, 32]),
            ("an unknown kind", [3]),
            ("an unknown kind beside a known one", [BROKER, 3]),
        )
    ),
    *(
        Scenario(
            f"ListConfigResources v1: {what}",
            flat(make_topic(), ask(L, 1, resource_types=kinds, only={"config_resources.resource_name": "$topic"})),
        )
        for what, kinds in (("topics", [TOPIC]), ("all kinds", []), ("topics twice", [TOPIC, TOPIC]))
    ),
)

#: The scenarios that return the whole configuration of a topic.
_ALL: Final = tuple(f"DescribeConfigs v4: {what}" for what in ("all of a topic's", "no keys", "synonyms of all keys"))

DIFFERENCES: Final = (
    Difference(
        "Keys that would have no effect are not offered for topics",
        "These are compression levels (batches stay as the producer made them), preallocation, roll jitter, "
        "replication throttles and tiered storage. Setting one is refused instead of ignored.",
        tuple((name, f"*.configs.{key}") for name in _ALL for key in NO_EFFECT),
    ),
    Difference(
        "Loggers have no configuration",
        "There is only one log level.",
        (("DescribeConfigs v4: loggers of a broker", "*"), ("ListConfigResources v1: loggers of brokers", "*")),
    ),
    Difference(
        "Groups have no keys of streams groups, and not all of share groups",
        "Streams groups are not served, and a share group is assigned anew at once, without an interval.",
        tuple(("DescribeConfigs v4: a group", f"*.configs.{kind}.*") for kind in ("share", "streams")),
    ),
    Difference(
        "producer.id.expiration.ms and unclean.leader.election.enable need a restart",
        "The broker reads them when it starts.",
        tuple(
            ("DescribeConfigs v4: many of a broker's keys", f"*.{key}.read_only")
            for key in ("producer.id.expiration.ms", "unclean.leader.election.enable")
        ),
    ),
    Difference(
        "broker.session.timeout.ms is 2,000 by default",
        "The lease of a broker in etcd can be that short, and a dead leader is replaced sooner.",
        (("DescribeConfigs v4: many of a broker's keys", "*.broker.session.timeout.ms.*"),),
    ),
    Difference(
        "An unknown operation in IncrementalAlterConfigs is INVALID_REQUEST",
        "Kafka answers UNKNOWN_SERVER_ERROR.",
        (("IncrementalAlterConfigs v1: an unknown operation", "*.error_code"),),
    ),
    Difference(
        "An unknown broker key is refused",
        "Kafka stores it for plugins. Barnabas has none, so that it can only be a typing error.",
        (("IncrementalAlterConfigs v1: broker, an unknown key", "*"),),
    ),
    Difference(
        "The offsets topic stays compacted",
        "Kafka allows another cleanup.policy, and deletes committed offsets together with old segments.",
        (("IncrementalAlterConfigs v1: the offsets topic is no longer compacted, only checked", "*"),),
    ),
)

FAMILY: Final = Family("Configuration", SCENARIOS, DIFFERENCES)
