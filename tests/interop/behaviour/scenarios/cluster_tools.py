"""Requests of tools: descriptions of partitions, disks and transactions; elections and reassignments."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import make_topic, produce, when
from tests.interop.behaviour.language import Difference, Family, Scenario, Step, ask, flat, spread

L, A = ApiKey.DESCRIBE_LOG_DIRS, ApiKey.ALTER_REPLICA_LOG_DIRS
E, R, G = ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS
P, T = ApiKey.DESCRIBE_PRODUCERS, ApiKey.LIST_TRANSACTIONS
F, Q = ApiKey.UPDATE_FEATURES, ApiKey.DESCRIBE_QUORUM
OWN: Final = {"transaction_states.transactional_id": "$group"}


def _dirs(version: int, *partitions: int, topic: str = "$topic") -> Step:
    return ask(L, version, topics=[{"topic": topic, "partitions": list(partitions)}])


def _move(version: int, path: str, topic: str = "$topic") -> Step:
    return ask(A, version, dirs=[{"path": path, "topics": [{"name": topic, "partitions": [0]}]}])


def _elect(version: int, *partitions: int, topic: str = "$topic", kind: int = 0) -> Step:
    content: dict[str, Any] = {"topic_partitions": [{"topic": topic, "partitions": list(partitions)}]}
    if version >= 1:
        content["election_type"] = kind
    return ask(E, version, timeout_ms=10_000, **content)


def _reassign(replicas: list[int] | None, partition: int = 0, version: int = 0, **content: Any) -> Step:
    parts = [{"partition_index": partition, "replicas": replicas}]
    return ask(R, version, timeout_ms=10_000, topics=[{"name": "$topic", "partitions": parts}], **content)


def _as_many(replicas: list[int] | None) -> Step:
    return _reassign(replicas, version=1, allow_replication_factor_change=False)


def _ongoing(*partitions: int, topic: str = "$topic") -> Step:
    return ask(G, 0, timeout_ms=10_000, topics=[{"name": topic, "partition_indexes": list(partitions)}])


def _with(title: str, *steps: Any) -> Scenario:
    return Scenario(title, flat(make_topic(partitions=2), *steps))


def _feature(version: int, *changes: tuple[str, int, int]) -> Step:
    """UpdateFeatures of (feature, level, kind of change), only checked where a version can."""
    updates = [
        {"feature": name, "max_version_level": level, **when(version > 0, upgrade_type=kind)}
        for name, level, kind in changes
    ]
    return ask(F, version, timeout_ms=10_000, feature_updates=updates, **when(version > 0, validate_only=True))


def _quorum(version: int, *topics: tuple[str, tuple[int, ...]]) -> Step:
    asked = [
        {"topic_name": name, "partitions": [{"partition_index": each} for each in partitions]}
        for name, partitions in topics
    ]
    return ask(Q, version, topics=asked)


SCENARIOS: Final = (
    *(
        Scenario(f"UpdateFeatures v{v}: {what}", (_feature(v, *changes),))
        for v in (0, 1, 2)
        for what, changes in {
            "a feature that does not exist": (("made.up", 1, 1),),
            "a feature without a name": (("", 1, 1),),
            "the level that it has": (("group.version", 1, 1),),
            "a level that does not exist": (("group.version", 2, 1),),
            "a lower level, as an upgrade": (("group.version", 0, 1),),
            "a negative level": (("group.version", -3, 1),),
            "the level that it has, beside a feature that does not exist": (
                ("transaction.version", 2, 1),
                ("made.up", 1, 1),
            ),
            "two features": (("group.version", 1, 1), ("transaction.version", 2, 1)),
            "nothing": (),
        }.items()
    ),
    *(
        Scenario(f"UpdateFeatures v{v}: {what}", (_feature(v, change),))
        for v in (1, 2)
        for what, change in {
            "a lower level": ("group.version", 0, 2),
            "a lower level, which may lose data": ("group.version", 0, 3),
            "an invalid kind of change": ("group.version", 1, 9),
        }.items()
    ),
    *(
        Scenario(f"DescribeQuorum v{v}: {what}", (_quorum(v, *topics),))
        for v in (0, 1, 2)
        for what, topics in {
            "the quorum": (("__cluster_metadata", (0,)),),
            "another topic": (("$topic", (0,)),),
            "another partition": (("__cluster_metadata", (1,)),),
            "another partition, too": (("__cluster_metadata", (0, 1)),),
            "nothing": (),
        }.items()
    ),
    *(_with(f"DescribeLogDirs v{v}", produce("a"), _dirs(v, 0, 1)) for v in (1, 2, 3, 4, 5)),
    _with("DescribeLogDirs v4: an unknown partition", _dirs(4, 0, 9)),
    Scenario("DescribeLogDirs v4: an unknown topic", (_dirs(4, 0),)),
    Scenario("DescribeLogDirs v4: no topics", (ask(L, 4, topics=[]),)),
    *(_with(f"AlterReplicaLogDirs v{v}: a directory that does not exist", _move(v, "/nowhere")) for v in (1, 2)),
    _with("AlterReplicaLogDirs v2: a relative directory", _move(2, "nowhere")),
    _with("AlterReplicaLogDirs v2: an unknown topic", _move(2, "/nowhere", "$topic-b")),
    *(_with(f"ElectLeaders v{v}: the preferred one leads", _elect(v, 0)) for v in spread(E)),
    _with("ElectLeaders v2: any leader will do", _elect(2, 0, kind=1)),
    _with("ElectLeaders v2: an unknown partition", _elect(2, 7)),
    _with("ElectLeaders v2: an unknown topic", _elect(2, 0, topic="$topic-b")),
    _with("ElectLeaders v2: an invalid election type", _elect(2, 0, kind=9)),
    _with("AlterPartitionReassignments v0: where it is", _reassign([1]), _ongoing(0)),
    _with("AlterPartitionReassignments v0: a broker that does not exist", _reassign([7])),
    _with("AlterPartitionReassignments v0: nowhere", _reassign([])),
    _with("AlterPartitionReassignments v0: twice on one broker", _reassign([1, 1])),
    _with("AlterPartitionReassignments v0: a negative broker", _reassign([-1])),
    _with("AlterPartitionReassignments v0: cancelled without any", _reassign(None)),
    _with("AlterPartitionReassignments v0: an unknown partition", _reassign([1], 7)),
    Scenario("AlterPartitionReassignments v0: an unknown topic", (_reassign([1]),)),
    _with("AlterPartitionReassignments v1: where it is", _reassign([1], version=1), _ongoing(0)),
    _with("AlterPartitionReassignments v1: as many replicas as before", _as_many([1])),
    _with("AlterPartitionReassignments v1: as many replicas, cancelled without any", _as_many(None)),
    _with("AlterPartitionReassignments v1: as many replicas, but one more that does not exist", _as_many([1, 7])),
    _with("AlterPartitionReassignments v1: as many replicas, but none", _as_many([])),
    _with("ListPartitionReassignments v0: none", _ongoing(0, 1)),
    _with("ListPartitionReassignments v0: an unknown partition", _ongoing(7)),
    Scenario("ListPartitionReassignments v0: an unknown topic", (_ongoing(0),)),
    Scenario("ListPartitionReassignments v0: all", (ask(G, 0, timeout_ms=10_000, topics=None),)),
    _with(
        "DescribeProducers v0",
        ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id=None,
            transaction_timeout_ms=-1,
            save={"pid": "producer_id"},
            quiet=True,
        ),
        produce("a", "b", producer_id="$pid", epoch=0, sequence=0),
        ask(P, 0, topics=[{"name": "$topic", "partition_indexes": [0, 1]}]),
    ),
    _with(
        "DescribeProducers v0: an unknown partition", ask(P, 0, topics=[{"name": "$topic", "partition_indexes": [9]}])
    ),
    Scenario(
        "DescribeProducers v0: an unknown topic", (ask(P, 0, topics=[{"name": "$topic", "partition_indexes": [0]}]),)
    ),
    Scenario(
        "DescribeProducers v0: an illegal topic", (ask(P, 0, topics=[{"name": "a/b", "partition_indexes": [0]}]),)
    ),
    # Of this scenario, which has none: other scenarios have transactions on the same broker.
    *(Scenario(f"ListTransactions v{v}", (ask(T, v, only=OWN),)) for v in (0, 1)),
    Scenario(
        "ListTransactions v0: states, one of them invalid", (ask(T, 0, state_filters=["Ongoing", "Lost"], only=OWN),)
    ),
    Scenario("ListTransactions v0: of a producer", (ask(T, 0, producer_id_filters=[12345], only=OWN),)),
)

DIFFERENCES: Final = (
    Difference(
        "The levels of features do not change",
        "group.version and transaction.version have the highest level. Kafka can lower them.",
        (
            ("UpdateFeatures v[12]: a lower level", "*"),
            ("UpdateFeatures v[12]: a lower level, which may lose data", "*"),
        ),
    ),
    Difference(
        "DescribeQuorum gets UNSUPPORTED_VERSION",
        "There is no quorum of controllers: the brokers of a cluster coordinate through etcd, which has its own tools.",
        (("DescribeQuorum v[012]: the quorum", "*"),),
    ),
    Difference(
        "An unknown election type gets one error for the whole request",
        "Kafka repeats the error for every partition.",
        (("ElectLeaders v2: an invalid election type", "*.replica_election_results*"),),
    ),
)

FAMILY: Final = Family("Cluster tools", SCENARIOS, DIFFERENCES)
