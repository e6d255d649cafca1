"""Errors of Produce and Fetch that say that another broker leads name it (KIP-951)."""

from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.image import BrokerInfo
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records import build_batch
from tests.wire import Wire


class Moved:
    """A broker whose partitions of a topic another broker leads, as it has just heard."""

    def __init__(self, broker: BrokerServer, wire: Wire, topic_id: bytes) -> None:
        self._cluster, self._wire, self._topic_id = broker.services.cluster, wire, topic_id

    def to(self, node: int, endpoints: dict[str, tuple[str, int]]) -> None:
        image = self._cluster.image
        topic = image.topics["t"]
        led = [each._replace(leader=node, leader_epoch=7) for each in topic.partitions]
        brokers = {**image.brokers, 9: BrokerInfo(9, endpoints, rack="r9")}
        self._cluster.image = image._replace(
            topics={**image.topics, "t": topic._replace(partitions=tuple(led))}, brokers=brokers
        )

    async def produce(self, version: int, *partitions: int) -> ProduceResponse:
        data = [
            PartitionProduceData(index=each, records=build_batch([(None, b"v", (), 0)])) for each in partitions or (0,)
        ]
        named: dict[str, Any] = {"topic_id": self._topic_id} if version >= 13 else {"name": "t"}
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(**named, partition_data=data)])
        return await self._wire.ask(request, version, ProduceResponse)

    async def fetch(self, version: int) -> FetchResponse:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic_id=self._topic_id, partitions=[wanted])]
        )
        return await self._wire.ask(request, version, FetchResponse)


@pytest.fixture
async def moved(broker: BrokerServer, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Moved:
    asked = [MetadataRequestTopic(name="t", topic_id=bytes(16))]
    found = await wire.ask(MetadataRequest(topics=asked), 12, MetadataResponse)

    def find(self: ReplicaManager, topic: str, partition: int) -> None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    monkeypatch.setattr(ReplicaManager, "find", find)
    made = Moved(broker, wire, found.topics[0].topic_id)
    made.to(9, {wire_listener(broker): ("leader.example", 9099)})
    return made


def wire_listener(broker: BrokerServer) -> str:
    """The name of the listener that `wire` uses."""
    image = broker.services.cluster.image
    return next(iter(image.brokers[broker.services.node_id].endpoints))


@pytest.mark.parametrize("version", [10, 12, 13])
async def test_an_error_of_produce_names_the_leader(moved: Moved, version: int) -> None:
    response = await moved.produce(version, 0, 0)
    for answer in response.responses[0].partition_responses:
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader is not None
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (9, 7)
    (node,) = response.node_endpoints
    assert (node.node_id, node.host, node.port, node.rack) == (9, "leader.example", 9099, "r9")


async def test_versions_before_have_no_leader(moved: Moved) -> None:
    response = await moved.produce(9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert response.node_endpoints == []
    assert (await moved.fetch(15)).responses[0].partitions[0].current_leader is None


@pytest.mark.parametrize("version", [16, 17])
async def test_an_error_of_fetch_names_the_leader(moved: Moved, version: int) -> None:
    response = await moved.fetch(version)
    (answer,) = response.responses[0].partitions
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader is not None
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (9, 7)
    (node,) = response.node_endpoints
    assert (node.node_id, node.host, node.port, node.rack) == (9, "leader.example", 9099, "r9")


@pytest.mark.parametrize(
    ("node", "endpoints"),
    [(9, {"OTHER": ("leader.example", 9099)}), (1, {}), (-1, {}), (8, {})],
    ids=["a listener that the leader does not have", "the broker itself", "no leader", "one that is not registered"],
)
async def test_a_leader_that_the_client_cannot_reach_is_not_named(
    moved: Moved, node: int, endpoints: dict[str, tuple[str, int]]
) -> None:
    moved.to(node, endpoints)
    response = await moved.produce(12)
    assert response.responses[0].partition_responses[0].current_leader is None
    assert response.node_endpoints == []
    assert (await moved.fetch(17)).node_endpoints == []
