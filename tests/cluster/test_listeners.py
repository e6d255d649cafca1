"""Brokers that use a separate listener for replication."""

import socket
from collections.abc import Iterator

import pytest

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.metadata import MetadataResponse
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records.builder import build_batch
from tests.cluster.harness import Brokers, create, leaders
from tests.wire import Wire

pytestmark = pytest.mark.cluster


@pytest.fixture
def dead_ports() -> Iterator[list[int]]:
    """Two ports on which every connection is refused."""
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        yield [each.getsockname()[1] for each in (one, two)]


async def test_brokers_replicate_over_the_inter_broker_listener(cluster: Brokers, dead_ports: list[int]) -> None:
    for node_id, dead in enumerate(dead_ports, 1):
        cluster.add(
            node_id,
            "listeners=PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{dead}",
            "inter.broker.listener.name=INTERNAL",
            "min.insync.replicas=2",
        ).launch()
    for node in cluster.running:
        await node.serving()
    await cluster.live(2)
    metadata = await cluster[1].metadata()
    assert {b.node_id: b.port for b in metadata.brokers} == dict(enumerate(dead_ports, 1))
    assert await create(cluster[1], "followed", 2, 2) == ErrorCode.NONE

    def both_lead(metadata: MetadataResponse) -> bool:
        return sorted(leaders(metadata, "followed")) == [1, 2]

    await cluster.agree("each leads one partition", both_lead, "followed")
    # acks=all is answered only after the other broker has fetched the batch.
    batch = build_batch([(None, b"value", (), 0)])
    for index, leader in enumerate(leaders(await cluster[1].metadata("followed"), "followed")):
        data = TopicProduceData(name="followed", partition_data=[PartitionProduceData(index=index, records=batch)])
        async with await Wire.connect(cluster[leader].port) as wire:
            answer = await wire.ask(ProduceRequest(acks=-1, timeout_ms=15_000, topic_data=[data]), 7, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    metadata = await cluster[2].metadata("followed")
    assert [sorted(p.isr_nodes) for p in metadata.topics[0].partitions] == [[1, 2], [1, 2]]
