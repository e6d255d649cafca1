"""Quotas of three brokers: what one broker stores, all enforce, also after all of them were stopped."""

import asyncio
from typing import Final

import pytest

from barnabas_client import Admin, ClientQuotaAlteration
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records import build_batch
from tests.cluster.harness import Brokers, Node, create, eventually, leaders
from tests.wire import Wire

pytestmark = pytest.mark.cluster

TOPIC: Final = "measured"
LIMIT: Final = 120
ENTITY: Final = {"client-id": "greedy"}
KEY: Final = "producer_byte_rate"
#: More than a client with a quota of 1,000 bytes may send at once: that of ten seconds.
SIZE: Final = 12_000


async def throttled(node: Node, partition: int, client_id: str) -> bool:
    """Whether a broker makes a client wait that writes more than its quota to a partition that it leads."""
    records = build_batch([(None, bytes(SIZE), (), 1_700_000_000_000)])
    data = [PartitionProduceData(index=partition, records=records)]
    topics = [TopicProduceData(name=TOPIC, topic_id=bytes(16), partition_data=data)]
    async with await Wire.connect(node.port) as wire:
        request = ProduceRequest(acks=1, timeout_ms=5000, topic_data=topics)
        answer = await wire.ask(request, 9, ProduceResponse, client_id)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return answer.throttle_time_ms > 0


async def partitions_of(cluster: Brokers) -> dict[int, int]:
    """A partition that each broker leads."""
    await cluster.agree("each leads one", lambda metadata: sorted(leaders(metadata, TOPIC)) == [1, 2, 3], TOPIC)
    found = leaders(await cluster[1].metadata(TOPIC), TOPIC)
    return {node_id: partition for partition, node_id in enumerate(found)}


async def test_a_quota_counts_on_all_brokers_and_after_a_restart(cluster: Brokers) -> None:
    async with asyncio.timeout(LIMIT):
        await cluster.start(3)
        assert await create(cluster[1], TOPIC, 3, 1) == ErrorCode.NONE
        partitions = await partitions_of(cluster)
        async with Admin(bootstrap_servers=f"127.0.0.1:{cluster[1].port}") as admin:
            await admin.alter_client_quotas([ClientQuotaAlteration(ENTITY, {KEY: 1000.0})])
        for node in cluster.running:

            async def counts(node: Node = node) -> bool:
                return await throttled(node, partitions[node.node_id], "greedy")

            await eventually(f"broker {node.node_id} enforces the quota", counts)
            assert not await throttled(node, partitions[node.node_id], "another")

        for node in cluster.running:
            assert await node.stop() == 0
        for node in cluster.nodes.values():
            node.launch()
        for node in cluster.nodes.values():
            await node.serving()
        await cluster.live(3)
        partitions = await partitions_of(cluster)
        for node in cluster.running:
            # They know the quota before they serve.
            assert await throttled(node, partitions[node.node_id], "greedy")
        async with Admin(bootstrap_servers=f"127.0.0.1:{cluster[3].port}") as admin:
            (found,) = await admin.describe_client_quotas(ENTITY)
            assert found.values == {KEY: 1000.0}
            await admin.alter_client_quotas([ClientQuotaAlteration(ENTITY, {KEY: None})])
        for node in cluster.running:

            async def is_free(node: Node = node) -> bool:
                return not await throttled(node, partitions[node.node_id], "greedy")

            await eventually(f"broker {node.node_id} has no quota any more", is_free)
