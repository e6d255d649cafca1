"""The admin client about replicas, leaders and log directories, against four brokers that answer as one cluster."""

from collections.abc import AsyncIterator

import pytest

from barnabas_client import Admin, BrokerCondition, ElectionType, PartitionReassignment, TopicPartition
from barnabas_client.errors import KafkaError
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.registry import ApiKey
from tests.client.fake_cluster import SIZE, FakeCluster, scripted_cluster
from tests.world.answers import drop, refused

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def cluster(quiet: None) -> AsyncIterator[FakeCluster]:
    async with scripted_cluster() as found:
        found.replicas = {ZERO: (0, 1), ONE: (0, 1)}
        yield found


@pytest.fixture
async def admin(cluster: FakeCluster) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=cluster.address, request_timeout_ms=5_000, retry_backoff_ms=1) as made:
        yield made


async def test_replicas_are_moved_and_the_move_is_cancelled(cluster: FakeCluster, admin: Admin) -> None:
    cluster.looks = 100
    cluster.brokers[0].script.once(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        refused(ErrorCode.NOT_CONTROLLER),
    )
    await admin.alter_partition_reassignments({ZERO: [2, 1], ONE: [2, 3]})
    moving = await admin.list_partition_reassignments()
    assert moving == {
        ZERO: PartitionReassignment((2, 1, 0), (2,), (0,)),
        ONE: PartitionReassignment((2, 3, 0, 1), (2, 3), (0, 1)),
    }
    await admin.alter_partition_reassignments({ZERO: None})
    assert list(await admin.list_partition_reassignments()) == [ONE]
    assert cluster.submitted()[-1] == {ZERO: None}


async def test_each_partition_has_its_own_error(cluster: FakeCluster, admin: Admin) -> None:
    cluster.refused = {ONE: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    found = await admin.alter_partition_reassignments({ZERO: [2], ONE: [9]}, raise_errors=False)
    assert found[ZERO].error is None
    assert found[ONE].error is not None
    with pytest.raises(KafkaError, match="reassign t-1: INVALID_REPLICA_ASSIGNMENT"):
        await admin.alter_partition_reassignments({ZERO: [2], ONE: [9]})
    cluster.refused = {ONE: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    with pytest.raises(KafkaError, match="elect the leader of t-1: PREFERRED_LEADER_NOT_AVAILABLE"):
        await admin.elect_leaders(ElectionType.PREFERRED, [ZERO, ONE])
    assert cluster.elected == [ZERO]


async def test_an_error_of_the_whole_request_is_raised(cluster: FakeCluster, admin: Admin) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for broker in cluster.brokers.values():
        for key in (
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.ELECT_LEADERS,
        ):
            broker.script.always(key, refused(code))
    for asked in (
        admin.alter_partition_reassignments({ZERO: [1]}, raise_errors=False),
        admin.list_partition_reassignments(),
        admin.elect_leaders(ElectionType.UNCLEAN, [ZERO], raise_errors=False),
    ):
        with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await asked


async def test_conditions_of_all_and_of_some_brokers(cluster: FakeCluster, admin: Admin) -> None:
    cluster.conditions[1] = "disk_full: no space: To do: make room\nmetadata_slow: etcd is slow"
    cluster.conditions[3] = "what a broker of another program says"
    zero, one, _, three = await admin.describe_conditions()
    assert (zero.node_id, zero.conditions) == (0, ())
    assert one.conditions == (
        BrokerCondition("disk_full", "no space: To do: make room"),
        BrokerCondition("metadata_slow", "etcd is slow"),
    )
    assert three.conditions == ()
    assert await admin.describe_conditions([1]) == [one]
    cluster.brokers[2].script.always(ApiKey.DESCRIBE_CLUSTER, drop)
    found = await admin.describe_conditions(timeout_ms=200, raise_errors=False)
    assert [broker.error is None for broker in found] == [True, True, False, True]


async def test_log_directories_of_all_and_of_some_brokers(cluster: FakeCluster, admin: Admin) -> None:
    zero, one, two, three = await admin.describe_log_dirs()
    assert [broker.node_id for broker in (zero, one, two, three)] == [0, 1, 2, 3]
    assert zero.log_dirs[0].sizes == {ZERO: SIZE, ONE: SIZE}
    assert (zero.log_dirs[0].path, zero.log_dirs[0].usable_bytes) == ("/data", 20 * SIZE)
    assert two.log_dirs[0].sizes == {}
    assert [broker.node_id for broker in await admin.describe_log_dirs([1])] == [1]
    cluster.brokers[2].script.always(ApiKey.DESCRIBE_LOG_DIRS, drop)
    found = await admin.describe_log_dirs(timeout_ms=200, raise_errors=False)
    assert [broker.error is None for broker in found] == [True, True, False, True]
