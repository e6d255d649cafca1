"""CreateTopics, CreatePartitions, DeleteTopics."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import NO_EFFECT, make_topic
from tests.interop.behaviour.language import Difference, Family, Scenario, ask, flat, spread

C, P, X = ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS
#: Timeout of the controller in ms.
T: Final = 30_000


def _new(name: str = "$topic", partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, **more}


def _create(title: str, *topics: dict[str, Any], version: int = 7, **content: Any) -> Scenario:
    return Scenario(f"CreateTopics v{version}: {title}", (ask(C, version, topics=list(topics), **content),))


def _config(name: str, value: str | None) -> dict[str, Any]:
    return {"configs": [{"name": name, "value": value}]}


def _placed(*brokers: tuple[int, ...]) -> dict[str, Any]:
    return {"assignments": [{"partition_index": n, "broker_ids": list(ids)} for n, ids in enumerate(brokers)]}


def _grow(title: str, count: int, version: int = 3, partitions: int = 1, **more: Any) -> Scenario:
    asked = ask(P, version, timeout_ms=T, topics=[{"name": "$topic", "count": count, "assignments": None, **more}])
    return Scenario(f"CreatePartitions v{version}: {title}", flat(make_topic(partitions=partitions), asked))


def _named(version: int) -> dict[str, Any]:
    return {"topics": [{"name": "$topic"}]} if version >= 6 else {"topic_names": ["$topic"]}


def _delete(version: int) -> Scenario:
    known = _named(version)
    gone: dict[str, Any] = {"topics": [{"name": "$topic"}], "allow_auto_topic_creation": False}
    return Scenario(
        f"DeleteTopics v{version}",
        flat(
            make_topic(),
            ask(X, version, timeout_ms=T, **known),
            ask(ApiKey.METADATA, 12, **gone, until={"topics.0.error_code": 3}),
            ask(X, version, timeout_ms=T, **known),
        ),
    )


SCENARIOS: Final = (
    *(_create("one", _new(partitions=2), version=version) for version in range(2, 8)),
    *(_create("only checked", _new(), version=version, validate_only=True) for version in spread(C, 2)),
    *(_create("the broker's defaults", _new(partitions=-1, factor=-1), version=version) for version in (4, 7)),
    _create("with a configuration", _new(**_config("retention.ms", "60000")), version=5),
    _create("with a configuration that is null", _new(**_config("retention.ms", None))),
    _create("no partitions", _new(partitions=0)),
    _create("-2 partitions", _new(partitions=-2)),
    _create("0 replicas", _new(factor=0)),
    _create("more replicas than brokers", _new(factor=3)),
    _create("more replicas than brokers, only checked", _new(factor=3), validate_only=True),
    _create("an empty name", _new("")),
    _create("a dot", _new(".")),
    _create("two dots", _new("..")),
    _create("a slash", _new("a/b")),
    _create("250 letters", _new("x" * 250)),
    _create("an umlaut", _new("ä")),
    _create("an unknown configuration", _new(**_config("no.such.key", "1"))),
    _create("a value that is not a number", _new(**_config("retention.ms", "soon"))),
    _create("a value out of range", _new(**_config("segment.bytes", "1"))),
    _create("no cleanup policy", _new(**_config("cleanup.policy", ""))),
    _create("an invalid cleanup policy", _new(**_config("cleanup.policy", "burn"))),
    _create("an invalid timestamp type", _new(**_config("message.timestamp.type", "Whenever"))),
    _create("twice in one request", _new(), _new()),
    _create("one valid and one invalid", _new(), _new("$topic-b", partitions=0)),
    _create("placed by hand", _new(partitions=-1, factor=-1, **_placed((1,), (1,)))),
    _create("placed by hand, and a number of partitions", _new(partitions=1, factor=-1, **_placed((1,)))),
    _create("placed on a broker that does not exist", _new(partitions=-1, factor=-1, **_placed((9,)))),
    _create("placed twice on one broker", _new(partitions=-1, factor=-1, **_placed((1, 1)))),
    _create("placed nowhere", _new(partitions=-1, factor=-1, **_placed(()))),
    _create(
        "placed with a gap",
        _new(partitions=-1, factor=-1, assignments=[{"partition_index": 1, "broker_ids": [1]}]),
    ),
    _create("no topics"),
    _create("the metadata log of Kafka", _new("__cluster_metadata")),
    _create("an internal topic, only checked", _new("__share_group_state"), validate_only=True),
    *(
        Scenario(f"CreateTopics v{version}: it exists already", flat(make_topic(), ask(C, version, topics=[_new()])))
        for version in (2, 7)
    ),
    Scenario(
        "CreateTopics v7: a name that collides with another",
        flat(make_topic("$topic.x"), ask(C, 7, topics=[_new("${topic}_x")])),
    ),
    *(_grow("from 1 to 3", 3, version) for version in spread(P)),
    _grow("as many as there are", 2, partitions=2),
    _grow("fewer", 1, partitions=2),
    _grow("none", 0),
    _grow("negative", -1),
    _grow("placed by hand", 2, assignments=[{"broker_ids": [1]}]),
    _grow("placed on a broker that does not exist", 2, assignments=[{"broker_ids": [9]}]),
    _grow("fewer places than partitions", 3, assignments=[{"broker_ids": [1]}]),
    _grow("more places than partitions", 2, assignments=[{"broker_ids": [1]}, {"broker_ids": [1]}]),
    Scenario(
        "CreatePartitions v3: an unknown topic", (ask(P, 3, timeout_ms=T, topics=[{"name": "$topic", "count": 2}]),)
    ),
    Scenario(
        "CreatePartitions v3: the offsets topic, only checked",
        (
            ask(
                P,
                3,
                timeout_ms=T,
                topics=[{"name": "__consumer_offsets", "count": 9, "assignments": None}],
                validate_only=True,
            ),
        ),
    ),
    Scenario(
        "CreatePartitions v3: only checked",
        flat(
            make_topic(),
            ask(P, 3, timeout_ms=T, topics=[{"name": "$topic", "count": 2, "assignments": None}], validate_only=True),
            ask(ApiKey.METADATA, 9, topics=[{"name": "$topic"}]),
        ),
    ),
    Scenario(
        "CreatePartitions v3: twice in one request",
        flat(
            make_topic(),
            ask(
                P,
                3,
                timeout_ms=T,
                topics=[
                    {"name": "$topic", "count": 2, "assignments": None},
                    {"name": "$topic", "count": 3, "assignments": None},
                ],
            ),
        ),
    ),
    *(_delete(version) for version in range(1, 7)),
    Scenario(
        "DeleteTopics v6: by id",
        flat(make_topic(), ask(X, 6, timeout_ms=T, topics=[{"name": None, "topic_id": "$topic_id"}])),
    ),
    Scenario(
        "DeleteTopics v6: an unknown id",
        (ask(X, 6, timeout_ms=T, topics=[{"name": None, "topic_id": b"0123456789abcdef"}]),),
    ),
    Scenario(
        "DeleteTopics v6: a name and an id",
        flat(make_topic(), ask(X, 6, timeout_ms=T, topics=[{"name": "$topic", "topic_id": "$topic_id"}])),
    ),
    Scenario("DeleteTopics v6: neither name nor id", (ask(X, 6, timeout_ms=T, topics=[{"name": None}]),)),
    Scenario("DeleteTopics v6: an illegal name", (ask(X, 6, timeout_ms=T, topics=[{"name": "a/b"}]),)),
    Scenario(
        "DeleteTopics v6: twice in one request",
        flat(make_topic(), ask(X, 6, timeout_ms=T, topics=[{"name": "$topic"}, {"name": "$topic"}])),
    ),
    Scenario("DeleteTopics v6: none", (ask(X, 6, timeout_ms=T, topics=[]),)),
    *(
        Scenario(
            f"DeleteTopics v{version}: delete.topic.enable=false",
            flat(
                make_topic(),
                ask(
                    X,
                    version,
                    timeout_ms=T,
                    **_named(version),
                ),
            ),
            server="strict",
        )
        for version in (1, 3, 6)
    ),
)

#: The scenarios that return the whole configuration of a topic.
_CREATED: Final = (
    "CreateTopics v[567]: one",
    "CreateTopics v[57]: only checked",
    "CreateTopics v5: with a configuration",
    "CreateTopics v7: one valid and one invalid",
    "CreateTopics v7: placed by hand",
    "CreateTopics v7: the broker's defaults",
    "CreateTopics v7: no cleanup policy",
)

DIFFERENCES: Final = (
    Difference(
        "Keys that would have no effect are not offered for topics",
        "These are compression levels (batches stay as the producer made them), preallocation, roll jitter, "
        "replication throttles and tiered storage. Setting one is refused instead of ignored.",
        tuple((name, f"*.configs.{key}") for name in _CREATED for key in NO_EFFECT),
    ),
    Difference(
        "Clients cannot create, delete or grow internal topics",
        "Kafka allows it, except for __cluster_metadata. Deleting __consumer_offsets deletes every committed offset; "
        "growing it moves groups away from their offsets.",
        (
            ("CreateTopics v7: an internal topic, only checked", "*"),
            ("CreatePartitions v3: the offsets topic, only checked", "*"),
        ),
    ),
)

FAMILY: Final = Family("Topics", SCENARIOS, DIFFERENCES)
