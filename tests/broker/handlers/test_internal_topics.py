"""Internal topics are protected: clients cannot take away what the broker keeps in them."""

import asyncio
from collections.abc import Sequence
from typing import Final

import pytest

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import (
    EVENTS_TOPIC,
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    SHARE_GROUPS_TOPIC,
    TRANSACTION_EVENTS_TOPIC,
    TRANSACTIONS_TOPIC,
)
from barnabas_protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from barnabas_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas_protocol.messages.create_topics import (
    CreatableTopic,
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
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.conftest import StartBroker
from tests.broker.handlers.test_data import batch
from tests.wire import Wire

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
TOPIC: Final = 2
ZERO: Final = bytes(16)
EXISTING: Final = (OFFSETS_TOPIC, EVENTS_TOPIC, TRANSACTIONS_TOPIC, TRANSACTION_EVENTS_TOPIC, SHARE_GROUPS_TOPIC)


@pytest.fixture
async def topics(wire: Wire) -> Sequence[str]:
    """The internal topics exist: the coordinators of a group, a transaction and a share partition were looked for."""
    for key_type, key in enumerate(("g", "g", "g:AAAAAAAAAAAAAAAAAAAAAA:0")):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        await wire.ask(request, 6, FindCoordinatorResponse)
    return EXISTING


async def partitions(wire: Wire, name: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=ZERO)], allow_auto_topic_creation=False)
    return len((await wire.ask(request, 12, MetadataResponse)).topics[0].partitions)


async def topic_id(wire: Wire, name: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=ZERO)], allow_auto_topic_creation=False)
    return (await wire.ask(request, 12, MetadataResponse)).topics[0].topic_id


async def test_a_coordinator_that_is_found_while_its_topic_is_created_can_be_used(start_broker: StartBroker) -> None:
    broker, exists = await start_broker(offsets_topic_num_partitions="100"), asyncio.Event()
    broker.services.cluster.feed(lambda image, events: exists.set() if OFFSETS_TOPIC in image.topics else None)
    find = FindCoordinatorRequest(coordinator_keys=["g"])
    async with await Wire.connect(broker.port) as first, await Wire.connect(broker.port) as second:
        first.send(find, 6)
        await asyncio.wait_for(exists.wait(), 60)
        found = await second.ask(find, 6, FindCoordinatorResponse)
        assert found.coordinators[0].error_code == ErrorCode.NONE
        assert not broker.services.replicas.creating(OFFSETS_TOPIC)
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        assert (await second.ask(request, 4, HeartbeatResponse)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("name", EXISTING)
async def test_they_cannot_be_deleted(wire: Wire, topics: Sequence[str], name: str) -> None:
    before = await partitions(wire, name)
    for state in (
        DeleteTopicState(name=name, topic_id=ZERO),
        DeleteTopicState(name=None, topic_id=await topic_id(wire, name)),
    ):
        answer = await wire.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6, DeleteTopicsResponse)
        (result,) = answer.responses
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (result.error_message or "").startswith(f"Topic {name} is internal and cannot be deleted: it holds ")
    assert await partitions(wire, name) == before > 0


async def test_the_topics_beside_them_are_deleted(wire: Wire, topics: Sequence[str]) -> None:
    new = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    await wire.ask(CreateTopicsRequest(topics=[new], timeout_ms=1000), 7, CreateTopicsResponse)
    states = [DeleteTopicState(name=name, topic_id=ZERO) for name in (OFFSETS_TOPIC, "t")]
    answer = await wire.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6, DeleteTopicsResponse)
    assert [(each.name, each.error_code) for each in answer.responses] == [(OFFSETS_TOPIC, 17), ("t", 0)]


@pytest.mark.parametrize("name", EXISTING)
@pytest.mark.parametrize("dry", [False, True])
async def test_they_cannot_grow(wire: Wire, topics: Sequence[str], name: str, dry: bool) -> None:
    before = await partitions(wire, name)
    wanted = CreatePartitionsTopic(name=name, count=before + 1, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=dry)
    (result,) = (await wire.ask(request, 3, CreatePartitionsResponse)).results
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await partitions(wire, name) == before


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS | {METADATA_TOPIC}))
async def test_clients_cannot_create_them(wire: Wire, name: str) -> None:
    new = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    answer = await wire.ask(CreateTopicsRequest(topics=[new], timeout_ms=1000), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.INVALID_REQUEST
    assert answer.topics[0].error_message == f"Creation of internal topic {name} is prohibited."


@pytest.mark.parametrize("name", EXISTING)
async def test_creating_one_again_is_what_it_is_for_other_topics(wire: Wire, topics: Sequence[str], name: str) -> None:
    new = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    answer = await wire.ask(CreateTopicsRequest(topics=[new], timeout_ms=1000), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS - {*EXISTING} | {METADATA_TOPIC}))
async def test_a_reserved_name_is_not_created_automatically(wire: Wire, name: str) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=ZERO)], allow_auto_topic_creation=True)
    (result,) = (await wire.ask(request, 12, MetadataResponse)).topics
    assert (result.error_code, result.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


@pytest.mark.parametrize("name", EXISTING)
async def test_their_records_cannot_be_deleted(wire: Wire, topics: Sequence[str], name: str) -> None:
    asked = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
    answer = await wire.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=1000), 2, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def end_offset(wire: Wire, name: str) -> int:
    asked = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = await wire.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7, ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset


def forging(name: str = "", by_id: bytes = ZERO, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=batch(b"forged"))]
    topics = [TopicProduceData(name=name, topic_id=by_id, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


# Apache Kafka lets a client write to them whose client id is __admin_client, which every client can take.
@pytest.mark.parametrize("client_id", ["test", "__admin_client", "broker-1-transactions"])
@pytest.mark.parametrize("name", EXISTING)
async def test_clients_cannot_write_to_them(wire: Wire, topics: Sequence[str], name: str, client_id: str) -> None:
    before = await end_offset(wire, name)
    by_name = await wire.ask(forging(name), 9, ProduceResponse, client_id)
    by_id = await wire.ask(forging(by_id=await topic_id(wire, name)), 13, ProduceResponse, client_id)
    for answer in (by_name, by_id):
        (result,) = answer.responses[0].partition_responses
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert result.error_message == f"Cannot append to internal topic {name}"
    assert await end_offset(wire, name) == before


@pytest.mark.parametrize("name", EXISTING)
async def test_writing_to_them_without_an_answer_ends_the_connection(
    wire: Wire, topics: Sequence[str], name: str
) -> None:
    wire.send(forging(name, acks=0), 9)
    assert await wire.closed()


async def alter(wire: Wire, name: str, *changes: tuple[str, int, str | None]) -> tuple[int, str]:
    configs = [IncrementalAlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = (await wire.ask(request, 1, IncrementalAlterConfigsResponse)).responses
    return answer.error_code, answer.error_message or ""


@pytest.mark.parametrize(
    "change",
    [
        ("cleanup.policy", SET, "delete"),
        ("cleanup.policy", SET, "compact,delete"),
        ("cleanup.policy", APPEND, "delete"),
        ("cleanup.policy", DELETE, None),
    ],
)
async def test_committed_offsets_stay_compacted(
    wire: Wire, topics: Sequence[str], change: tuple[str, int, str | None]
) -> None:
    code, message = await alter(wire, OFFSETS_TOPIC, change)
    assert code == ErrorCode.INVALID_CONFIG
    assert message.startswith("cleanup.policy of __consumer_offsets must stay compact")


@pytest.mark.parametrize(
    "change",
    [
        ("cleanup.policy", SET, "compact"),
        ("retention.ms", SET, "1000"),
        ("retention.ms", DELETE, None),
        ("retention.bytes", SET, "1000"),
    ],
)
async def test_the_state_of_share_groups_is_kept(
    wire: Wire, topics: Sequence[str], change: tuple[str, int, str | None]
) -> None:
    code, message = await alter(wire, SHARE_GROUPS_TOPIC, change)
    assert code == ErrorCode.INVALID_CONFIG
    assert message.startswith("cleanup.policy of __share_group_state must stay delete")
    assert await alter(wire, SHARE_GROUPS_TOPIC, ("segment.bytes", SET, "1000000")) == (0, "")


async def test_a_whole_configuration_that_leaves_the_policy_out_is_refused(wire: Wire, topics: Sequence[str]) -> None:
    configs = [AlterableConfig(name="segment.bytes", value="1000")]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=OFFSETS_TOPIC, configs=configs)
    request = AlterConfigsRequest(resources=[resource], validate_only=False)
    assert (await wire.ask(request, 2, AlterConfigsResponse)).responses[0].error_code == ErrorCode.INVALID_CONFIG
    configs.append(AlterableConfig(name="cleanup.policy", value="compact"))
    assert (await wire.ask(request, 2, AlterConfigsResponse)).responses[0].error_code == ErrorCode.NONE


async def test_other_keys_may_be_changed(wire: Wire, topics: Sequence[str]) -> None:
    assert await alter(wire, OFFSETS_TOPIC, ("segment.bytes", SET, "1000000")) == (0, "")
    for name in (EVENTS_TOPIC, TRANSACTION_EVENTS_TOPIC):
        changes = ("retention.ms", SET, "1000"), ("cleanup.policy", SET, "delete")
        assert await alter(wire, name, *changes) == (0, "")


async def test_a_mistyped_key_is_answered_with_the_one_that_was_meant(wire: Wire, topics: Sequence[str]) -> None:
    code, message = await alter(wire, EVENTS_TOPIC, ("retention.m", SET, "1000"))
    assert code == ErrorCode.INVALID_CONFIG
    assert message.endswith("did you mean retention.ms?")
