"""Discovery: Metadata, FindCoordinator, DescribeCluster, DescribeTopicPartitions."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import make_topic, when
from tests.interop.behaviour.language import Difference, Family, Scenario, ask, flat, spread

M: Final = ApiKey.METADATA


def _all(version: int) -> Scenario:
    topics: list[Any] | None = [] if version == 0 else None
    asked = ask(M, version, topics=topics, only={"topics.name": "$topic"})
    return Scenario(f"Metadata v{version}: all topics", flat(make_topic(partitions=2), asked))


def _one(version: int) -> Scenario:
    asked = ask(M, version, topics=[{"name": "$topic"}])
    return Scenario(f"Metadata v{version}: one topic", flat(make_topic(), asked))


def _bad(version: int, title: str, **content: Any) -> Scenario:
    return Scenario(f"Metadata v{version}: {title}", (ask(M, version, **content),))


def _no_create(version: int) -> Scenario:
    asked = ask(M, version, topics=[{"name": "$topic"}], allow_auto_topic_creation=False)
    return Scenario(f"Metadata v{version}: an unknown topic that may not be created", (asked,))


def _create(version: int, server: Any = "plain") -> Scenario:
    known = {"topics.0.error_code": 0, "topics.0.partitions.length": 1, "topics.0.partitions.0.error_code": 0}
    title = f"Metadata v{version}: an unknown topic that may be created"
    first = ask(M, version, topics=[{"name": "$topic"}], until=known if server == "plain" else None)
    return Scenario(
        title if server == "plain" else f"{title}, but auto.create.topics.enable=false", (first,), server=server
    )


def _find(version: int, key_type: int, key: str = "$group") -> Scenario:
    content: dict[str, Any] = {"coordinator_keys": [key, f"{key}-b"]} if version >= 4 else {"key": key}
    if version >= 1:
        content["key_type"] = key_type
    title = f"FindCoordinator v{version} of type {key_type}" + ("" if key else ", an empty key")
    return Scenario(title, (ask(ApiKey.FIND_COORDINATOR, version, **content),))


def _cluster(version: int, endpoint: int = 1, operations: bool = False) -> Scenario:
    content: dict[str, Any] = {"include_cluster_authorized_operations": operations}
    if version >= 1:
        content["endpoint_type"] = endpoint
    title = f"DescribeCluster v{version}, endpoints of type {endpoint}" + (", operations" if operations else "")
    return Scenario(title, (ask(ApiKey.DESCRIBE_CLUSTER, version, **content),))


D: Final = ApiKey.DESCRIBE_TOPIC_PARTITIONS

SCENARIOS: Final = (
    *(_all(version) for version in spread(M)),
    *(_one(version) for version in range(14)),
    *(_no_create(version) for version in (4, 9, 12, 13)),
    *(_create(version) for version in (0, 4, 13)),
    *(_create(version, "strict") for version in (0, 13)),
    *(_bad(version, "no topics at all", topics=[]) for version in (1, 9, 13)),
    *(_bad(version, "an empty name", topics=[{"name": ""}]) for version in (1, 9, 13)),
    *(_bad(version, "a name with a slash", topics=[{"name": "a/b"}]) for version in (1, 12)),
    _bad(9, "a name of two dots", topics=[{"name": ".."}]),
    _bad(9, "a name of 250 letters", topics=[{"name": "x" * 250}]),
    _bad(4, "a name with a slash that may not be created", topics=[{"name": "a/b"}], allow_auto_topic_creation=False),
    _bad(12, "an unknown id", topics=[{"name": None, "topic_id": b"0123456789abcdef"}]),
    _bad(13, "an unknown id", topics=[{"name": None, "topic_id": b"0123456789abcdef"}]),
    _bad(12, "neither name nor id", topics=[{"name": None}]),
    _bad(10, "an id in a version that asks by name", topics=[{"name": None, "topic_id": b"0123456789abcdef"}]),
    Scenario(
        "Metadata v12: by id",
        flat(make_topic(partitions=2), ask(M, 12, topics=[{"name": None, "topic_id": "$topic_id"}])),
    ),
    Scenario(
        "Metadata v12: a name and an id at once",
        flat(make_topic(), ask(M, 12, topics=[{"name": "$topic", "topic_id": "$topic_id"}])),
    ),
    Scenario(
        "Metadata v9: the same topic twice",
        flat(make_topic(), ask(M, 9, topics=[{"name": "$topic"}, {"name": "$topic"}])),
    ),
    Scenario(
        "Metadata v9: one topic that exists and one that does not",
        flat(
            make_topic(),
            ask(M, 9, topics=[{"name": "$topic"}, {"name": "$topic-b"}], allow_auto_topic_creation=False),
        ),
    ),
    *(
        Scenario(
            f"Metadata v{version}: operations that are allowed",
            flat(
                make_topic(),
                ask(
                    M,
                    version,
                    topics=[{"name": "$topic"}],
                    include_topic_authorized_operations=True,
                    **when(version <= 10, include_cluster_authorized_operations=True),
                ),
            ),
        )
        for version in (8, 10, 13)
    ),
    Scenario("Metadata v12: the offsets topic", (ask(M, 12, topics=[{"name": "__consumer_offsets"}]),)),
    *(_find(version, 0) for version in range(7)),
    *(_find(version, 0, "") for version in (0, 4, 6)),
    *(_find(version, 7) for version in (1, 4, 6)),
    Scenario("FindCoordinator v4: no keys", (ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=[]),)),
    *(_find(version, 2, "$group") for version in (5, 6)),
    *(_cluster(version) for version in (0, 1, 2)),
    _cluster(0, 1, True),
    _cluster(2, 1, True),
    _cluster(1, 2),
    _cluster(1, 3),
    Scenario("DescribeTopicPartitions v0", flat(make_topic(partitions=3), ask(D, 0, topics=[{"name": "$topic"}]))),
    Scenario("DescribeTopicPartitions v0: an unknown topic", (ask(D, 0, topics=[{"name": "$topic"}]),)),
    Scenario("DescribeTopicPartitions v0: an illegal name", (ask(D, 0, topics=[{"name": "a/b"}]),)),
    Scenario(
        "DescribeTopicPartitions v0: page by page",
        flat(
            make_topic(partitions=3),
            make_topic("$topic-b", save="second"),
            ask(D, 0, topics=[{"name": "$topic"}, {"name": "$topic-b"}], response_partition_limit=2),
            ask(
                D,
                0,
                topics=[{"name": "$topic"}, {"name": "$topic-b"}],
                response_partition_limit=2,
                cursor={"topic_name": "$topic", "partition_index": 2},
            ),
        ),
    ),
    Scenario(
        "DescribeTopicPartitions v0: a cursor in front of the first topic",
        flat(
            make_topic(),
            ask(D, 0, topics=[{"name": "$topic"}], cursor={"topic_name": "a", "partition_index": 0}),
        ),
    ),
    Scenario(
        "DescribeTopicPartitions v0: a cursor on a topic that is gone",
        flat(
            make_topic("$topic-b", save="second"),
            ask(
                D,
                0,
                topics=[{"name": "$topic"}, {"name": "$topic-b"}],
                cursor={"topic_name": "$topic", "partition_index": 0},
            ),
        ),
    ),
    Scenario(
        "DescribeTopicPartitions v0: a negative cursor",
        flat(
            make_topic(),
            ask(D, 0, topics=[{"name": "$topic"}], cursor={"topic_name": "$topic", "partition_index": -1}),
        ),
    ),
)

DIFFERENCES: Final = (
    Difference(
        "A Metadata request for a topic with neither name nor id is answered as for an illegal name",
        "Kafka fails with UNKNOWN_SERVER_ERROR.",
        (("Metadata v12: neither name nor id", "*"),),
    ),
)

FAMILY: Final = Family("Metadata", SCENARIOS, DIFFERENCES)
