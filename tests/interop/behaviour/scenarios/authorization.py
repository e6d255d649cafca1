"""What each API answers to a client that may, to one that may not, and to one that may not and asks for what does not
exist: the answers of the last two are the same."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import add_group, commit, end_transaction, fetch, init_transactions, make_topic
from tests.interop.behaviour.language import Ask, Batch, Difference, Family, Scenario, Step, ask, flat
from tests.interop.behaviour.scenarios.acls import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    acl,
    grant,
)

_T, _U, _G = "$topic", "$topic-unknown", "$group"
_READ_TOPIC, _WRITE_TOPIC, _DESCRIBE_TOPIC = acl(TOPIC, _T, READ), acl(TOPIC, _T, WRITE), acl(TOPIC, _T, DESCRIBE)
_READ_GROUP, _DESCRIBE_GROUP = acl(GROUP, _G, READ), acl(GROUP, _G, DESCRIBE)
_WRITE_ID = acl(TRANSACTIONAL_ID, _G, WRITE)


def _on_cluster(*operations: int) -> list[Step]:
    return grant(*(acl(CLUSTER, "kafka-cluster", each, principal="User:operator") for each in operations))


def _both(known: Ask, unknown: Ask | None = None) -> list[Step]:
    """The same request as the user that may, the user that may not, and for what does not exist."""

    def on(user: str, asked: Ask) -> Ask:
        return Ask(**{**vars(asked), "on": user})

    steps = [on("denied", known), on("allowed", known)]
    return [*steps, on("denied", unknown)] if unknown is not None else list(steps)


def _scenario(name: str, *steps: Any) -> Scenario:
    return Scenario(f"{name}, with ACLs", flat(*steps), server="secured")


def _produce(topic: str, version: int = 9, **more: Any) -> Ask:
    where = {"name": topic} if version < 13 else {"topic_id": "$topic_id"}
    data = [{**where, "partition_data": [{"index": 0, "records": Batch(**more)}]}]
    transactional: dict[str, Any] = {"transactional_id": _G} if more.get("transactional") else {}
    return ask(ApiKey.PRODUCE, version, acks=-1, timeout_ms=30_000, topic_data=data, **transactional)


def _list_offsets(topic: str, version: int) -> Ask:
    partition = {"partition_index": 0, "timestamp": -1, **({"max_num_offsets": 1} if version == 0 else {})}
    return ask(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=[{"name": topic, "partitions": [partition]}])


def _metadata(*topics: str, version: int = 9, create: bool = False, **more: Any) -> Ask:
    return ask(
        ApiKey.METADATA, version, topics=[{"name": each} for each in topics], allow_auto_topic_creation=create, **more
    )


def _offset_fetch(version: int, *topics: str) -> Ask:
    asked = [{"name": each, "partition_indexes": [0]} for each in topics] or None
    if version >= 8:
        return ask(ApiKey.OFFSET_FETCH, version, groups=[{"group_id": _G, "topics": asked}])
    return ask(ApiKey.OFFSET_FETCH, version, group_id=_G, topics=asked)


def _join(group: str) -> Ask:
    return ask(
        ApiKey.JOIN_GROUP,
        5,
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )


def _create(*topics: str, version: int = 7) -> Ask:
    new = [{"name": each, "num_partitions": 1, "replication_factor": 1} for each in topics]
    return ask(ApiKey.CREATE_TOPICS, version, topics=[each | {"assignments": [], "configs": []} for each in new])


def _configs(api: ApiKey, version: int, *resources: tuple[int, str]) -> Ask:
    asked: list[dict[str, Any]] = [{"resource_type": kind, "resource_name": name} for kind, name in resources]
    for each in asked:
        if api is ApiKey.DESCRIBE_CONFIGS:
            each["configuration_keys"] = ["retention.ms", "consumer.session.timeout.ms"]
        elif api is ApiKey.ALTER_CONFIGS:
            each["configs"] = [{"name": "retention.ms", "value": "100000"}] if each["resource_type"] == 2 else []
        else:
            each["configs"] = (
                [{"name": "retention.ms", "config_operation": 0, "value": "100000"}]
                if each["resource_type"] == 2
                else []
            )
    return ask(api, version, resources=asked)


def _add_partitions(topic: str, version: int = 3) -> Ask:
    return ask(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        v3_and_below_transactional_id=_G,
        v3_and_below_producer_id="$pid",
        v3_and_below_producer_epoch="$epoch",
        v3_and_below_topics=[{"name": topic, "partitions": [0]}],
    )


def _txn_commit(topic: str, group: str = _G) -> Ask:
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    return ask(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        transactional_id=_G,
        group_id=group,
        producer_id="$pid",
        producer_epoch="$epoch",
        topics=[{"name": topic, "partitions": [part]}],
    )


def _heartbeat(topics: list[str] | None) -> Ask:
    return ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=_G,
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        topic_partitions=[],
    )


def _quota(rate: float | None) -> Ask:
    """Set a quota of two users, or remove it."""
    op = {"key": "producer_byte_rate", "value": rate or 0.0, "remove": rate is None}
    entries = [
        {"entity": [{"entity_type": "user", "entity_name": name}], "ops": [op]} for name in ("$group", "$group-unknown")
    ]
    return ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False)


_MEMBER: Final[dict[str, Any]] = {"group_id": _G, "generation_id": 1, "member_id": "m"}
_REASSIGN: Final[dict[str, Any]] = {
    "topics": [{"name": _T, "partitions": [{"partition_index": 0, "replicas": [1]}]}],
    "timeout_ms": 1000,
}
_MARKER: Final[dict[str, Any]] = {
    "producer_id": 5,
    "producer_epoch": 0,
    "transaction_result": True,
    "topics": [{"name": _T, "partition_indexes": [0]}],
    "coordinator_epoch": 0,
}
_OPERATOR: Final = (
    (DESCRIBE, ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=[])),
    (DESCRIBE, ask(ApiKey.DESCRIBE_LOG_DIRS, 1, topics=[])),
    (ALTER, ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=[{"path": "/no", "topics": [{"name": _T, "partitions": [0]}]}])),
    (
        ALTER,
        ask(
            ApiKey.ELECT_LEADERS,
            2,
            election_type=0,
            topic_partitions=[{"topic": _T, "partitions": [0]}],
            timeout_ms=1000,
        ),
    ),
    (
        ALTER,
        ask(ApiKey.ELECT_LEADERS, 0, topic_partitions=[{"topic": _T, "partitions": [0]}], timeout_ms=1000),
    ),
    (ALTER, ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, **_REASSIGN)),
    (DESCRIBE, ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=[{"name": _T, "partition_indexes": [0]}])),
    (DESCRIBE_CONFIGS, ask(ApiKey.LIST_CONFIG_RESOURCES, 0)),
    (
        DESCRIBE_CONFIGS,
        ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=[{"entity_type": "user", "match_type": 2, "match": None}]),
    ),
    (ALTER_CONFIGS, _quota(1024.0)),
    (ALTER_CONFIGS, _quota(None)),
    # Apache Kafka does not answer if it names no users, and the client may not.
    (DESCRIBE, ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": "nobody"}])),
    (IDEMPOTENT_WRITE, ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000)),
    (CLUSTER_ACTION, ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[])),
    (
        CLUSTER_ACTION,
        ask(ApiKey.FETCH, 12, replica_id=1, max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[]),
    ),
    (CREATE, _create("$topic-new")),
    (DESCRIBE, ask(ApiKey.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True)),
    (DESCRIBE, ask(ApiKey.METADATA, 9, topics=[], include_cluster_authorized_operations=True)),
    (ALTER_CONFIGS, _configs(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, (4, ""))),
    (DESCRIBE_CONFIGS, _configs(ApiKey.DESCRIBE_CONFIGS, 4, (4, "1"))),
)

SCENARIOS: Final = (
    *(
        _scenario(f"Produce v{v}", make_topic(), grant(_WRITE_TOPIC), _both(_produce(_T, v), _produce(_U, v)))
        for v in (3, 9)
    ),
    _scenario("Produce v13", make_topic(), grant(_WRITE_TOPIC), _both(_produce(_T, 13))),
    _scenario(
        "Produce v9 in a transaction",
        make_topic(),
        init_transactions(),
        grant(_WRITE_TOPIC),
        Ask(**{**vars(_produce(_T, transactional=True, producer_id="$pid", epoch=0, sequence=0)), "on": "allowed"}),
    ),
    *(
        _scenario(f"Fetch v{v}", make_topic(), grant(_READ_TOPIC), _both(fetch(version=v), fetch(version=v, topic=_U)))
        for v in (4, 12)
    ),
    _scenario("Fetch v13", make_topic(), grant(_READ_TOPIC), _both(fetch(version=13))),
    _scenario("Fetch v12 as a follower", make_topic(), _both(fetch(replica_id=1), fetch(topic=_U, replica_id=1))[:1]),
    *(
        _scenario(
            f"ListOffsets v{v}",
            make_topic(),
            grant(_DESCRIBE_TOPIC),
            _both(_list_offsets(_T, v), _list_offsets(_U, v)),
        )
        for v in (1, 10)
    ),
    *(
        _scenario(
            f"Metadata v{v}",
            make_topic(),
            grant(_DESCRIBE_TOPIC),
            _both(_metadata(_T, version=v), _metadata(_U, version=v)),
        )
        for v in (4, 9)
    ),
    _scenario(
        "Metadata v12 by id",
        make_topic(),
        grant(_DESCRIBE_TOPIC),
        _both(ask(ApiKey.METADATA, 12, topics=[{"topic_id": "$topic_id", "name": None}])),
    ),
    _scenario(
        "Metadata v12 of all topics",
        make_topic(),
        make_topic("$topic-b"),
        grant(_DESCRIBE_TOPIC),
        *(ask(ApiKey.METADATA, 12, on=who, topics=None, only={"topics.name": _T}) for who in ("allowed", "denied")),
        *(ask(ApiKey.METADATA, 12, on=who, topics=None, only={"topics.name": "$topic-b"}) for who in ("allowed", "a")),
    ),
    _scenario(
        "Metadata v9 creates topics",
        grant(_DESCRIBE_TOPIC, acl(TOPIC, "$topic-new", CREATE), acl(TOPIC, "$topic-new", DESCRIBE)),
        _metadata(_T, create=True, on="allowed"),
        _metadata(_U, create=True, on="allowed"),
        _metadata("$topic-new", create=True, on="allowed", until={"topics.0.error_code": 0}),
    ),
    _scenario(
        "Metadata v9 with authorized operations",
        make_topic(),
        grant(_READ_TOPIC, acl(TOPIC, _T, ALTER_CONFIGS)),
        _both(_metadata(_T, include_topic_authorized_operations=True), _metadata(_U)),
        _metadata(_T, _U, include_topic_authorized_operations=True, on="root"),
        _metadata(include_cluster_authorized_operations=True, on="denied"),
    ),
    _scenario(
        "DescribeTopicPartitions v0",
        make_topic(),
        grant(_DESCRIBE_TOPIC),
        _both(
            ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": _T}], response_partition_limit=10),
            ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": _U}], response_partition_limit=10),
        ),
    ),
    *(
        _scenario(
            f"OffsetCommit v{v}",
            make_topic(),
            grant(_READ_GROUP, _READ_TOPIC),
            _both(commit(version=v), commit(version=v, topic=_U)),
            commit(version=v, topic=_U, on="allowed"),
            commit(version=v, group="$group-b", on="allowed"),
        )
        for v in (2, 8)
    ),
    *(
        _scenario(
            f"OffsetFetch v{v}",
            make_topic(),
            make_topic("$topic-b"),
            commit(quiet=True),
            commit(topic="$topic-b", quiet=True),
            grant(_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
            _both(_offset_fetch(v, _T, "$topic-b"), _offset_fetch(v, _U)),
            *([Ask(**{**vars(_offset_fetch(v)), "on": "allowed"})] if v > 1 else []),
        )
        for v in (1, 5, 7, 9)
    ),
    _scenario(
        "FindCoordinator v4",
        grant(_DESCRIBE_GROUP, acl(TRANSACTIONAL_ID, _G, DESCRIBE)),
        *(
            ask(
                ApiKey.FIND_COORDINATOR,
                4,
                on=who,
                key_type=kind,
                coordinator_keys=[_G],
                until={"coordinators.0.error_code": code},
            )
            for kind, refused in ((0, 30), (1, 53))
            for who, code in (("allowed", 0), ("denied", refused))
        ),
    ),
    _scenario("JoinGroup v5", grant(_READ_GROUP), ask(ApiKey.JOIN_GROUP, 5, on="denied", **_join(_G).content)),
    *(
        _scenario(f"{name}", grant(_READ_GROUP), _both(asked))
        for name, asked in {
            "Heartbeat v4": ask(ApiKey.HEARTBEAT, 4, **_MEMBER),
            "SyncGroup v3": ask(ApiKey.SYNC_GROUP, 3, assignments=[], **_MEMBER),
            "LeaveGroup v2": ask(ApiKey.LEAVE_GROUP, 2, group_id=_G, member_id="m"),
            "LeaveGroup v5": ask(ApiKey.LEAVE_GROUP, 5, group_id=_G, members=[{"member_id": "m"}]),
        }.items()
    ),
    _scenario(
        "DescribeGroups v6, ListGroups v5 and DeleteGroups v2",
        make_topic(),
        commit(quiet=True),
        grant(_DESCRIBE_GROUP),
        _both(
            ask(ApiKey.DESCRIBE_GROUPS, 6, groups=[_G], include_authorized_operations=True),
            ask(ApiKey.DESCRIBE_GROUPS, 6, groups=["$group-unknown"], include_authorized_operations=True),
        ),
        *(ask(ApiKey.LIST_GROUPS, 5, on=who, only={"groups.group_id": _G}) for who in ("root", "allowed", "denied")),
        _both(ask(ApiKey.DELETE_GROUPS, 2, groups_names=[_G]), ask(ApiKey.DELETE_GROUPS, 2, groups_names=["$group-u"])),
        grant(acl(GROUP, _G, DELETE)),
        ask(ApiKey.DELETE_GROUPS, 2, on="allowed", groups_names=[_G]),
    ),
    _scenario(
        "OffsetDelete v0",
        make_topic(),
        commit(quiet=True),
        grant(acl(GROUP, _G, DELETE), _READ_TOPIC),
        *(
            ask(
                ApiKey.OFFSET_DELETE,
                0,
                on=who,
                group_id=_G,
                topics=[{"name": each, "partitions": [{"partition_index": 0}]} for each in topics],
            )
            for who, topics in (("denied", [_T]), ("allowed", [_U]), ("allowed", [_T, _U]))
        ),
    ),
    _scenario(
        "ConsumerGroupHeartbeat v1 and ConsumerGroupDescribe v1",
        make_topic(),
        make_topic("$topic-b"),
        grant(_READ_GROUP, _DESCRIBE_TOPIC),
        _both(_heartbeat([_T])),
        Ask(**{**vars(_heartbeat(["$topic-b"])), "on": "allowed"}),
        Ask(**{**vars(_heartbeat([_T, _U])), "on": "allowed"}),
        _both(ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[_G], include_authorized_operations=True))[:1],
        grant(acl(GROUP, _G, READ, principal="User:denied")),
        ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, on="denied", group_ids=[_G], include_authorized_operations=False),
    ),
    _scenario(
        "CreateTopics v7",
        make_topic(),
        grant(acl(TOPIC, "$topic", CREATE, resource_pattern_type=PREFIXED), acl(TOPIC, "$topic-b", DESCRIBE_CONFIGS)),
        Ask(**{**vars(_create("$topic-a")), "on": "denied"}),
        Ask(**{**vars(_create(_T)), "on": "denied"}),
        Ask(**{**vars(_create("$topic-a")), "on": "allowed"}),
        Ask(**{**vars(_create("$topic-b", version=5)), "on": "allowed", "quiet": True}),
        Ask(**{**vars(_create("$topic-c", version=4)), "on": "allowed"}),
        Ask(**{**vars(_create(_T)), "on": "allowed"}),
    ),
    *(
        _scenario(
            f"DeleteTopics v{v}",
            make_topic(),
            make_topic("$topic-b"),
            grant(acl(TOPIC, _T, DELETE), acl(TOPIC, "$topic-b", DESCRIBE)),
            *(
                ask(
                    ApiKey.DELETE_TOPICS,
                    v,
                    on=who,
                    timeout_ms=10_000,
                    **({"topics": [{"name": topic}]} if v >= 6 else {"topic_names": [topic]}),
                )
                for who, topic in (
                    ("denied", _T),
                    ("denied", _U),
                    ("allowed", "$topic-b"),
                    ("allowed", _U),
                    ("allowed", _T),
                    ("allowed", _T),
                )
            ),
        )
        for v in (3, 6)
    ),
    _scenario(
        "DeleteTopics v6 by id",
        make_topic(),
        make_topic("$topic-b", save="id_b"),
        grant(acl(TOPIC, "$topic-b", DESCRIBE)),
        *(
            ask(ApiKey.DELETE_TOPICS, 6, on=who, timeout_ms=10_000, topics=[{"name": None, "topic_id": topic}])
            for who, topic in (("allowed", "$topic_id"), ("allowed", "$id_b"), ("allowed", b"\1" * 16))
        ),
    ),
    _scenario(
        "CreatePartitions v3",
        make_topic(),
        grant(acl(TOPIC, _T, ALTER)),
        _both(
            ask(ApiKey.CREATE_PARTITIONS, 3, topics=[{"name": _T, "count": 2, "assignments": None}], timeout_ms=9000),
            ask(ApiKey.CREATE_PARTITIONS, 3, topics=[{"name": _U, "count": 2, "assignments": None}], timeout_ms=9000),
        ),
    ),
    _scenario(
        "DeleteRecords v2",
        make_topic(),
        grant(acl(TOPIC, _T, DELETE)),
        _both(
            *(
                ask(
                    ApiKey.DELETE_RECORDS,
                    2,
                    topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}],
                    timeout_ms=9000,
                )
                for topic in (_T, _U)
            )
        ),
    ),
    _scenario(
        "OffsetForLeaderEpoch v4",
        make_topic(),
        grant(_DESCRIBE_TOPIC),
        _both(
            *(
                ask(
                    ApiKey.OFFSET_FOR_LEADER_EPOCH,
                    4,
                    replica_id=-2,
                    topics=[
                        {
                            "topic": topic,
                            "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                        }
                    ],
                )
                for topic in (_T, _U)
            )
        ),
    ),
    _scenario(
        "DescribeProducers v0",
        make_topic(),
        grant(_READ_TOPIC),
        _both(
            *(
                ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": topic, "partition_indexes": [0]}])
                for topic in (_T, _U)
            )
        ),
    ),
    *(
        _scenario(
            f"{api.name} v{v}",
            make_topic(),
            grant(acl(TOPIC, _T, operation), acl(GROUP, _G, operation)),
            _both(_configs(api, v, (2, _T), (32, _G), (4, "1")), _configs(api, v, (2, _U))),
        )
        for api, v, operation in (
            (ApiKey.DESCRIBE_CONFIGS, 4, DESCRIBE_CONFIGS),
            (ApiKey.ALTER_CONFIGS, 2, ALTER_CONFIGS),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, ALTER_CONFIGS),
        )
    ),
    _scenario(
        "InitProducerId v4 with a transactional id",
        init_transactions(),
        grant(_WRITE_ID),
        *(
            ask(
                ApiKey.INIT_PRODUCER_ID,
                4,
                on=who,
                transactional_id=_G,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
                quiet=who == "allowed",
                until={"error_code": 0} if who == "allowed" else None,
            )
            for who in ("denied", "allowed")
        ),
    ),
    _scenario(
        "InitProducerId v4 without one, for a client that may write to some topic",
        grant(_WRITE_TOPIC),
        *(
            ask(
                ApiKey.INIT_PRODUCER_ID,
                4,
                on=who,
                transactional_id=None,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            for who in ("denied", "allowed")
        ),
    ),
    _scenario(
        "A transaction",
        make_topic(),
        make_topic("$topic-b"),
        init_transactions(),
        grant(_WRITE_ID, _WRITE_TOPIC, _READ_TOPIC, _READ_GROUP),
        Ask(**{**vars(_add_partitions(_T)), "on": "denied"}),
        Ask(**{**vars(_add_partitions("$topic-b")), "on": "allowed"}),
        Ask(**{**vars(_add_partitions(_U)), "on": "allowed"}),
        Ask(**{**vars(_add_partitions(_T)), "on": "allowed"}),
        ask(ApiKey.ADD_PARTITIONS_TO_TXN, 4, on="denied", transactions=[]),
        add_group(on="denied", until=False),
        add_group(group="$group-b", on="allowed", until=False),
        add_group(on="allowed"),
        Ask(**{**vars(_txn_commit(_T)), "on": "denied"}),
        Ask(**{**vars(_txn_commit(_T, "$group-b")), "on": "allowed"}),
        Ask(**{**vars(_txn_commit("$topic-b")), "on": "allowed"}),
        Ask(**{**vars(_txn_commit(_T)), "on": "allowed"}),
        *(ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, on=who, transactional_ids=[_G]) for who in ("denied", "allowed")),
        ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, on="denied", transactional_ids=["$group-unknown"]),
        *(
            ask(ApiKey.LIST_TRANSACTIONS, 1, on=who, only={"transaction_states.transactional_id": _G})
            for who in ("root", "denied", "allowed")
        ),
        end_transaction(True, quiet=False, on="denied"),
        end_transaction(True, quiet=False, on="allowed"),
    ),
    _scenario(
        "What is allowed on the cluster",
        make_topic(),
        *(Ask(**{**vars(asked), "on": "denied"}) for _, asked in _OPERATOR),
        ask(ApiKey.WRITE_TXN_MARKERS, 1, on="denied", markers=[_MARKER]),
        _on_cluster(*sorted({operation for operation, _ in _OPERATOR})),
        *(
            Ask(**{**vars(asked), "on": "operator", "quiet": asked.api is ApiKey.CREATE_TOPICS})
            for _, asked in _OPERATOR
            if asked.api
            not in (ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.LIST_CONFIG_RESOURCES)
        ),
    ),
)

DIFFERENCES: Final[tuple[Difference, ...]] = ()

FAMILY: Final = Family("Authorization", SCENARIOS, DIFFERENCES)
