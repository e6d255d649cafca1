"""Partitions that move to preferred leaders and to other brokers; and behaviour without etcd."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_protocol.codec import decode_response
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from barnabas_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from barnabas_protocol.messages.metadata import MetadataResponse
from tests.cluster.harness import SHORT_LEASE, Brokers, Etcd, Node, create, eventually, leaders, new_prefix
from tests.wire import Wire

pytestmark = pytest.mark.cluster


def replicas(metadata: MetadataResponse, topic: str) -> list[list[int]]:
    partitions = next(each for each in metadata.topics if each.name == topic).partitions
    return [list(p.replica_nodes) for p in sorted(partitions, key=lambda p: p.partition_index)]


def in_sync(metadata: MetadataResponse, topic: str) -> list[set[int]]:
    partitions = next(each for each in metadata.topics if each.name == topic).partitions
    return [set(p.isr_nodes) for p in sorted(partitions, key=lambda p: p.partition_index)]


async def reassign(
    node: Node, topic: str, targets: dict[int, list[int] | None], *, allow_factor_change: bool = True
) -> list[int]:
    async with await Wire.connect(node.port) as wire:
        partitions = [ReassignablePartition(partition_index=n, replicas=target) for n, target in targets.items()]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=partitions)],
            allow_replication_factor_change=allow_factor_change,
        )
        answer = await wire.ask(request, 1, AlterPartitionReassignmentsResponse)
        return [p.error_code for p in answer.responses[0].partitions]


async def moving(node: Node) -> int:
    """Return the number of topics with reassignments."""
    async with await Wire.connect(node.port) as wire:
        answer = await wire.ask(ListPartitionReassignmentsRequest(), 0, ListPartitionReassignmentsResponse)
        return len(answer.topics)


async def test_partitions_move_to_other_brokers(cluster: Brokers) -> None:
    await cluster.start(3)
    assert await create(cluster[1], "moving", 2, 1) == ErrorCode.NONE
    await cluster.agree("it is everywhere", lambda metadata: len(leaders(metadata, "moving")) == 2, "moving")
    more = await reassign(cluster[2], "moving", {0: [1, 2]}, allow_factor_change=False)
    assert more == [ErrorCode.INVALID_REPLICATION_FACTOR]
    targets: dict[int, list[int] | None] = {0: [3], 1: [2, 3]}
    assert await reassign(cluster[2], "moving", targets) == [ErrorCode.NONE] * 2
    assert await reassign(cluster[2], "moving", {0: [9], 7: [1]}) == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]

    def done(metadata: MetadataResponse) -> bool:
        placed = replicas(metadata, "moving") == [[3], [2, 3]] and in_sync(metadata, "moving") == [{3}, {2, 3}]
        return placed and leaders(metadata, "moving")[0] == 3 and leaders(metadata, "moving")[1] in (2, 3)

    await cluster.agree("both have moved", done, "moving")
    assert await moving(cluster[1]) == 0
    assert await reassign(cluster[3], "moving", {0: None}) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


async def test_preferred_leaders_are_elected_on_request(cluster: Brokers) -> None:
    await cluster.start(2)
    assert await create(cluster[1], "led", 2, 2) == ErrorCode.NONE
    await cluster[2].stop()
    await cluster.live(1)
    await cluster[2].start()

    def back(metadata: MetadataResponse) -> bool:
        return in_sync(metadata, "led") == [{1, 2}, {1, 2}] and leaders(metadata, "led") == [1, 1]

    await cluster.agree("both are in sync again", back, "led")
    async with await Wire.connect(cluster[2].port) as wire:
        asked = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="led", partitions=[0, 1])])
        answer = await wire.ask(asked, 2, ElectLeadersResponse)
    codes = [p.error_code for p in answer.replica_election_results[0].partition_result]
    assert sorted(codes) == [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED]
    await cluster.agree("each leads one", lambda metadata: sorted(leaders(metadata, "led")) == [1, 2], "led")


async def serves(node: Node, topic: str) -> bool:
    """Return whether a broker answers as the leader of partition 0."""
    async with await Wire.connect(node.port) as wire:
        partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
        )
        answer = await wire.ask(request, 6, ListOffsetsResponse)
        return answer.topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd for fault injection."""
    server = Etcd(tmp_path)
    yield server
    server.kill()


@pytest.mark.parametrize("freeze", [False, True])
async def test_without_etcd_leaders_stop_and_resume_after_its_return(
    own_etcd: Etcd, tmp_path: Path, freeze: bool
) -> None:
    cluster = Brokers(f"etcd://127.0.0.1:{own_etcd.port}/{new_prefix()}", tmp_path, [SHORT_LEASE])
    try:
        await cluster.start(2)
        assert await create(cluster[1], "led", 1, 2) == ErrorCode.NONE
        await cluster.agree("it is everywhere", lambda metadata: len(leaders(metadata, "led")) == 1, "led")
        (leader,) = leaders(await cluster[1].metadata("led"), "led")

        async def leads() -> bool:
            return await serves(cluster[leader], "led")

        async def stopped() -> bool:
            return not await serves(cluster[leader], "led")

        await eventually("it leads", leads)
        if freeze:
            own_etcd.signal(signal.SIGSTOP)
        else:
            own_etcd.kill()
        await eventually("it stops leading", stopped)
        if freeze:
            own_etcd.signal(signal.SIGCONT)
        else:
            own_etcd.start()
        await cluster.live(2)

        async def one_leads() -> bool:
            metadata = await cluster[1].metadata("led")
            now = leaders(metadata, "led")
            return now != [-1] and await serves(cluster[now[0]], "led")

        await eventually("one leads again", one_leads)
        assert await create(cluster[2], "after", 1, 2) == ErrorCode.NONE
    finally:
        cluster.close()
        print(cluster.logs())


@pytest.mark.parametrize("cluster", [[SHORT_LEASE]], indirect=True)
async def test_a_frozen_broker_does_not_lead_after_it_wakes_up(cluster: Brokers) -> None:
    await cluster.start(3)
    assert await create(cluster[1], "led", 1, 2) == ErrorCode.NONE
    await cluster.agree("it is everywhere", lambda metadata: len(leaders(metadata, "led")) == 1, "led")
    (leader,) = leaders(await cluster[1].metadata("led"), "led")
    frozen = cluster[leader]
    others = [node for node in cluster.nodes.values() if node is not frozen]
    # When the broker wakes up, this request is the first thing it reads, before any cluster change.
    wire = await Wire.connect(frozen.port)
    frozen.pause()
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    topic = ListOffsetsTopic(name="led", partitions=[partition])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
    wire.send(request, 6)

    async def taken_over() -> bool:
        return leaders(await others[0].metadata("led"), "led") not in ([leader], [-1], [])

    await eventually("another leads", taken_over)
    frozen.resume()
    frame = await wire.frame()
    answer = decode_response(ListOffsetsResponse, 6, frame)
    await wire.close()
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await cluster.live(3)


async def test_a_data_directory_of_another_cluster_is_refused(cluster: Brokers) -> None:
    await cluster.start(1)
    node = cluster[1]
    await node.stop()
    elsewhere = Node(f"{cluster.url}-other", 1, node.directory, cluster.settings)
    elsewhere.launch()
    assert await elsewhere.ended() == 1
    assert "there is no cluster at etcd://" in elsewhere.output.read_text()
