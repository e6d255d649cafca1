"""The admin client about replicas, leaders and log directories, against four brokers in a simulated world."""

import pytest

from barnabas_client import Admin, BrokerCondition, ElectionType, PartitionReassignment, TopicPartition
from barnabas_client.errors import KafkaError
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from barnabas_protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from barnabas_protocol.messages.elect_leaders import ElectLeadersResponse
from barnabas_protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from barnabas_protocol.registry import ApiKey
from tests.world.answers import drop
from tests.world.broker import until
from tests.world.programs import Machine, Simulation, simulated

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def admin_of(machines: list[Machine]) -> Admin:
    return Admin(bootstrap_servers=machines[0].address, request_timeout_ms=5_000, retry_backoff_ms=1)


@simulated
async def test_replicas_are_moved_and_the_move_is_cancelled(simulation: Simulation) -> None:
    machines = await simulation.cluster(4)
    await machines[0].create("t", 2, [0, 1], [0, 1])
    for number in (2, 3):  # they copy nothing
        simulation.network.cut(f"broker-{number}", "broker-0", 60)
    image = machines[0].broker.services.cluster.image
    machines[image.controller_id].script.once(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        lambda request: AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, responses=[]),
    )
    async with admin_of(machines) as admin:
        await admin.alter_partition_reassignments({ZERO: [2, 1], ONE: [2, 3]})
        assert await admin.list_partition_reassignments() == {
            ZERO: PartitionReassignment((2, 1, 0), (2,), (0,)),
            ONE: PartitionReassignment((2, 3, 0, 1), (2, 3), (0, 1)),
        }
        await admin.alter_partition_reassignments({ZERO: None})
        assert list(await admin.list_partition_reassignments()) == [ONE]


@simulated
async def test_each_partition_has_its_own_error(simulation: Simulation) -> None:
    machines = await simulation.cluster(4)
    await machines[0].create("t", 2, [1, 0], [3, 0])
    async with admin_of(machines) as admin:
        found = await admin.alter_partition_reassignments({ZERO: [1, 0], ONE: [9]}, raise_errors=False)
        assert found[ZERO].error is None
        assert found[ONE].error is not None
        with pytest.raises(KafkaError, match="reassign t-1: INVALID_REPLICA_ASSIGNMENT"):
            await admin.alter_partition_reassignments({ZERO: [1, 0], ONE: [9]})
        cluster = machines[0].broker.services.cluster

        def led_by(partition: int) -> int:
            return cluster.image.topics["t"].partitions[partition].leader

        await machines[1].stop()
        await machines[1].start()
        await until(lambda: cluster.image.topics["t"].partitions[0].isr in ((0, 1), (1, 0)))
        machines[3].kill()
        await until(lambda: led_by(1) == 0)
        with pytest.raises(KafkaError, match="elect the leader of t-1: PREFERRED_LEADER_NOT_AVAILABLE"):
            await admin.elect_leaders(ElectionType.PREFERRED, [ZERO, ONE])
        await until(lambda: led_by(0) == 1)


@simulated
async def test_an_error_of_the_whole_request_is_raised(simulation: Simulation) -> None:
    machines = await simulation.cluster(2)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for machine in machines:
        machine.script.always(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            lambda request: AlterPartitionReassignmentsResponse(error_code=code, responses=[]),
        )
        machine.script.always(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            lambda request: ListPartitionReassignmentsResponse(error_code=code, topics=[]),
        )
        machine.script.always(
            ApiKey.ELECT_LEADERS, lambda request: ElectLeadersResponse(error_code=code, replica_election_results=[])
        )
    async with admin_of(machines) as admin:
        for asked in (
            admin.alter_partition_reassignments({ZERO: [1]}, raise_errors=False),
            admin.list_partition_reassignments(),
            admin.elect_leaders(ElectionType.UNCLEAN, [ZERO], raise_errors=False),
        ):
            with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
                await asked


@simulated
async def test_conditions_of_all_and_of_some_brokers(simulation: Simulation) -> None:
    machines = await simulation.cluster(4)

    def say(machine: Machine, text: str) -> None:
        brokers = [DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port) for each in machines]
        answer = DescribeClusterResponse(
            error_code=0, error_message=text, cluster_id="c", controller_id=0, brokers=brokers
        )
        machine.script.always(ApiKey.DESCRIBE_CLUSTER, lambda request: answer)

    say(machines[1], "disk_full: no space: To do: make room\nmetadata_slow: etcd is slow")
    say(machines[3], "what a broker of another program says")
    async with admin_of(machines) as admin:
        zero, one, _, three = await admin.describe_conditions()
        assert (zero.node_id, zero.conditions) == (0, ())
        assert one.conditions == (
            BrokerCondition("disk_full", "no space: To do: make room"),
            BrokerCondition("metadata_slow", "etcd is slow"),
        )
        assert three.conditions == ()
        assert await admin.describe_conditions([1]) == [one]
        machines[2].script.always(ApiKey.DESCRIBE_CLUSTER, drop)
        found = await admin.describe_conditions(timeout_ms=200, raise_errors=False)
        assert [broker.error is None for broker in found] == [True, True, False, True]


@simulated
async def test_log_directories_of_all_and_of_some_brokers(simulation: Simulation) -> None:
    machines = await simulation.cluster(4)
    await machines[0].create("t", 2, [0, 1], [0, 1])
    for number in range(2):
        await machines[0].write("t", [b"x" * 1000] * (number + 1), number)
    sizes = {tp: sum(map(len, machines[0].batches(*tp))) for tp in (ZERO, ONE)}
    async with admin_of(machines) as admin:
        zero, one, two, three = await admin.describe_log_dirs()
        assert [broker.node_id for broker in (zero, one, two, three)] == [0, 1, 2, 3]
        assert zero.log_dirs[0].sizes == one.log_dirs[0].sizes == sizes
        assert zero.log_dirs[0].path == "/data"
        assert zero.log_dirs[0].usable_bytes == -1, "not known: its files are in memory"
        assert two.log_dirs[0].sizes == {}
        assert [broker.node_id for broker in await admin.describe_log_dirs([1])] == [1]
        machines[2].script.always(ApiKey.DESCRIBE_LOG_DIRS, drop)
        found = await admin.describe_log_dirs(timeout_ms=200, raise_errors=False)
        assert [broker.error is None for broker in found] == [True, True, False, True]
