"""The log says which client changed a topic, a broker or records; it says nothing about changes that were refused."""

import logging

import pytest

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.image import Event, Image
from barnabas_protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from barnabas_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas_protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.wire import Wire

TOPIC, BROKER = 2, 4


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "barnabas_broker")
    return caplog


@pytest.fixture
def by(wire: Wire) -> str:
    """How the client of `wire` stands in a line."""
    host, port = wire.writer.get_extra_info("sockname")
    return f"client_id=test peer={host}:{port}"


async def create(wire: Wire, name: str, dry: bool = False) -> None:
    configs = [CreatableTopicConfig(name="retention.ms", value="1000")]
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=configs)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=dry)
    await wire.ask(request, 7, CreateTopicsResponse)


async def test_a_topic_that_a_client_creates(wire: Wire, lines: pytest.LogCaptureFixture, by: str) -> None:
    lines.clear()
    await create(wire, "t", dry=True)
    await create(wire, "bad name")
    assert lines.messages == []
    await create(wire, "t")
    await create(wire, "t")  # it exists
    assert lines.messages == [
        "topic created topic=t partitions=2 replication_factor=1"
        f" configs={{'retention.ms': '1000'}} automatic=False {by}"
    ]


async def test_a_topic_that_is_created_on_first_use(wire: Wire, lines: pytest.LogCaptureFixture, by: str) -> None:
    lines.clear()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    for _ in range(2):
        await wire.ask(request, 9, MetadataResponse)
    assert lines.messages == [
        f"topic created topic=t partitions=1 replication_factor=1 configs={{}} automatic=True {by}"
    ]


async def test_a_topic_that_gets_partitions_and_is_deleted(
    wire: Wire, lines: pytest.LogCaptureFixture, by: str
) -> None:
    await create(wire, "t")
    lines.clear()
    for dry in (True, False):
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=4, assignments=None)], timeout_ms=1000, validate_only=dry
        )
        await wire.ask(more, 3, CreatePartitionsResponse)
    assert lines.messages == [f"partitions added topic=t partitions=4 {by}"]
    lines.clear()
    for _ in range(2):
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=bytes(16))], timeout_ms=1000)
        await wire.ask(delete, 6, DeleteTopicsResponse)
    assert lines.messages == [f"topic deleted topic=t {by}"]


async def test_a_changed_configuration(wire: Wire, lines: pytest.LogCaptureFixture, by: str) -> None:
    await create(wire, "t")
    lines.clear()

    async def alter(kind: int, name: str, key: str, value: str | None, dry: bool = False) -> None:
        config = IncrementalAlterableConfig(name=key, config_operation=0 if value else 1, value=value)
        resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)
        await wire.ask(request, 1, IncrementalAlterConfigsResponse)

    await alter(TOPIC, "t", "retention.ms", "5", dry=True)
    await alter(TOPIC, "t", "no.such.key", "5")
    await alter(TOPIC, "t", "segment.bytes", "1048576")
    await alter(TOPIC, "t", "retention.ms", None)
    await alter(BROKER, "", "log.retention.ms", "7000")
    replace = AlterConfigsResource(
        resource_type=TOPIC, resource_name="t", configs=[AlterableConfig(name="cleanup.policy", value="compact")]
    )
    await wire.ask(AlterConfigsRequest(resources=[replace], validate_only=False), 2, AlterConfigsResponse)
    assert lines.messages == [
        f"topic configured topic=t set={{'segment.bytes': '1048576'}} removed=[] {by}",
        f"topic configured topic=t set={{}} removed=['retention.ms'] {by}",
        f"broker configured node_id=all set={{'log.retention.ms': '7000'}} removed=[] {by}",
        f"topic configured topic=t set={{'cleanup.policy': 'compact'}} removed=['segment.bytes'] {by}",
    ]


async def test_deleted_records_and_moved_replicas(wire: Wire, lines: pytest.LogCaptureFixture, by: str) -> None:
    await create(wire, "t")
    lines.clear()
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in ((0, -1), (1, 99))]
    delete = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=1000)
    await wire.ask(delete, 2, DeleteRecordsResponse)
    moves = [ReassignablePartition(partition_index=index, replicas=[broker]) for index, broker in ((0, 1), (1, 99))]
    move = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=moves)], timeout_ms=1000)
    await wire.ask(move, 0, AlterPartitionReassignmentsResponse)
    assert lines.messages == [
        f"records deleted partition=t-0 before=0 {by}",
        f"replicas reassigned partition=t-0 replicas=[1] {by}",
    ]


async def test_a_reassignment_that_is_cancelled(
    wire: Wire, lines: pytest.LogCaptureFixture, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(wire, "t")
    lines.clear()
    cancel = [ReassignablePartition(partition_index=index, replicas=None) for index in (0, 1)]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=cancel)], timeout_ms=1000
    )
    await wire.ask(request, 0, AlterPartitionReassignmentsResponse)
    assert lines.messages == []  # No reassignment is in progress.
    right = controller.reassign

    def reassign(image: Image, topic: str, partition: int, replicas: None, *, allow_factor_change: bool) -> Event:
        """As if the first partition were being reassigned."""
        found = [1] if partition == 0 else replicas
        return right(image, topic, partition, found, allow_factor_change=allow_factor_change)

    monkeypatch.setattr(controller, "reassign", reassign)
    await wire.ask(request, 0, AlterPartitionReassignmentsResponse)
    assert lines.messages == [f"reassignment cancelled partition=t-0 {by}"]
