"""Internal topics in a cluster with fewer brokers than their replication factor."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.cluster.harness import Etcd, eventually, new_prefix
from tests.wire import Wire

FACTOR = "offsets.topic.replication.factor"
StartMember = Callable[..., Awaitable[BrokerServer]]

pytestmark = pytest.mark.cluster


@pytest.fixture
async def start_member(etcd: Etcd, tmp_path: Path) -> AsyncIterator[StartMember]:
    """Start a broker of a cluster, with settings."""
    url, started = f"etcd://127.0.0.1:{etcd.port}/{new_prefix()}", []

    async def start(node_id: int, settings: dict[str, str]) -> BrokerServer:
        given = {
            "log.dir": str(tmp_path / f"data-{node_id}"),
            "node.id": str(node_id),
            "cluster.url": url,
            "broker.session.timeout.ms": "300000",
            "offsets.topic.num.partitions": "1",
            **settings,
        }
        broker = await BrokerServer.start(Config(BROKER_KEYS, given), port=0)
        started.append(broker)
        return broker

    yield start
    for broker in reversed(started):
        await broker.stop()


async def coordinator(broker: BrokerServer) -> int:
    """The error code of FindCoordinator."""
    async with await Wire.connect(broker.port) as wire:
        answer = await wire.ask(FindCoordinatorRequest(key="group", key_type=0), 3, FindCoordinatorResponse)
        return answer.error_code


async def replicas(broker: BrokerServer, name: str) -> tuple[int, list[int]]:
    """The error code of a topic in Metadata, and the number of replicas of each partition."""
    async with await Wire.connect(broker.port) as wire:
        answer = await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12, MetadataResponse)
        return answer.topics[0].error_code, [len(p.replica_nodes) for p in answer.topics[0].partitions]


async def test_groups_wait_for_the_configured_number_of_replicas(
    start_member: StartMember, caplog: pytest.LogCaptureFixture
) -> None:
    first = await start_member(1, {FACTOR: "2"})
    assert await coordinator(first) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await replicas(first, "__consumer_offsets") == (ErrorCode.INVALID_REPLICATION_FACTOR, [])
    assert caplog.text.count("groups wait for more brokers: start some, or set a lower") == 1
    await start_member(2, {FACTOR: "2"})

    async def found() -> bool:
        return await coordinator(first) == ErrorCode.NONE

    await eventually("there is a coordinator", found)
    assert await replicas(first, "__consumer_offsets") == (ErrorCode.NONE, [2])


async def test_a_cluster_that_stops_does_not_ask_for_more_brokers(
    start_member: StartMember, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = [await start_member(node_id, {FACTOR: "2"}) for node_id in (1, 2)]
    caplog.clear()
    await first.stop()

    async def alone() -> bool:
        return list(second.services.cluster.image.brokers) == [2]

    await eventually("the first broker is gone", alone)
    await second.stop()
    assert "groups wait for more brokers" not in caplog.text


async def test_without_a_configured_number_the_registered_brokers_are_used(
    start_member: StartMember, caplog: pytest.LogCaptureFixture
) -> None:
    alone = await start_member(1, {})

    async def found() -> bool:
        return await coordinator(alone) == ErrorCode.NONE

    await eventually("there is a coordinator", found)
    assert await replicas(alone, "__consumer_offsets") == (ErrorCode.NONE, [1])
    lines = [line for line in caplog.messages if "fewer replicas than it should" in line]
    assert len(lines) == 2, "one for each of the two topics"
    assert all("barnabas cluster reassign" in line for line in lines)


async def test_a_topic_of_a_client_needs_default_replication_factor_brokers(
    start_member: StartMember,
) -> None:
    alone = await start_member(1, {"default.replication.factor": "3"})
    assert await replicas(alone, "t") == (ErrorCode.INVALID_REPLICATION_FACTOR, [])
