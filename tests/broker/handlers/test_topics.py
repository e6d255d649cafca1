"""CreateTopics, Metadata, CreatePartitions and DeleteTopics, with Kafka's errors."""

from collections.abc import Sequence

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.image import Event
from barnabas_broker.cluster.local import LocalStore
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.conftest import StartBroker
from tests.wire import Wire

ZERO = bytes(16)


async def create(
    wire: Wire, *topics: CreatableTopic, version: int = 7, dry: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=dry)
    return (await wire.ask(request, version, CreateTopicsResponse)).topics


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    rows = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=rows)


async def metadata(wire: Wire, *names: str, version: int = 12, create: bool = False) -> MetadataResponse:
    asked = [MetadataRequestTopic(name=name, topic_id=ZERO) for name in names]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
    return await wire.ask(request, version, MetadataResponse)


async def test_a_created_topic_is_in_the_metadata(wire: Wire) -> None:
    (created,) = await create(wire, topic("orders", 3, retention_ms="1000"))
    assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 3, 1)
    rows = {row.name: row for row in created.configs or []}
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("1000", 1)
    (result,) = (await metadata(wire, "orders")).topics
    assert result.topic_id == created.topic_id != ZERO
    assert [(p.partition_index, p.leader_id, p.isr_nodes) for p in result.partitions] == [(n, 1, [1]) for n in range(3)]
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=created.topic_id)])
    assert (await wire.ask(by_id, 12, MetadataResponse)).topics[0].name == "orders"


async def test_all_topics_are_listed_when_none_is_named(wire: Wire) -> None:
    await create(wire, topic("a"), topic("b"))
    for version, request in ((0, MetadataRequest(topics=[])), (1, MetadataRequest(topics=None))):
        result = await wire.ask(request, version, MetadataResponse)
        assert sorted(t.name or "" for t in result.topics) == ["a", "b"]
    assert (await wire.ask(MetadataRequest(topics=[]), 1, MetadataResponse)).topics == []


async def test_topics_survive_a_restart(start_broker: StartBroker) -> None:
    broker = await start_broker()
    async with await Wire.connect(broker.port) as wire:
        (created,) = await create(wire, topic("orders", 3))
    await broker.stop()
    again = await start_broker()
    async with await Wire.connect(again.port) as wire:
        result = await metadata(wire, "orders")
    assert result.topics[0].topic_id == created.topic_id
    assert len(result.topics[0].partitions) == 3


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("../etc/passwd"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("t", no_such_key="1"), ErrorCode.INVALID_CONFIG),
    ],
)
async def test_invalid_topics_are_rejected(wire: Wire, asked: CreatableTopic, code: ErrorCode) -> None:
    (result,) = await create(wire, asked)
    assert result.error_code == code
    assert result.error_message
    assert (await wire.ask(MetadataRequest(topics=None), 12, MetadataResponse)).topics == []


async def test_an_error_of_one_topic_does_not_affect_the_others(wire: Wire) -> None:
    results = await create(wire, topic("good"), topic("bad/name"), topic("twice"), topic("twice"))
    assert {r.name: r.error_code for r in results} == {
        "good": ErrorCode.NONE,
        "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "twice": ErrorCode.INVALID_REQUEST,
    }


async def test_an_existing_topic_is_not_created_again(wire: Wire) -> None:
    await create(wire, topic("t"))
    (again,) = await create(wire, topic("t"))
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_validate_only_creates_nothing(wire: Wire) -> None:
    (result,) = await create(wire, topic("t"), dry=True)
    assert result.error_code == ErrorCode.NONE
    assert (await metadata(wire, "t")).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_defaults_are_the_brokers(start_broker: StartBroker) -> None:
    broker = await start_broker(num_partitions="5")
    async with await Wire.connect(broker.port) as wire:
        (result,) = await create(wire, topic("t", -1, -1))
        assert (result.num_partitions, result.replication_factor) == (5, 1)


async def test_a_manual_assignment_is_accepted(wire: Wire) -> None:
    asked = topic("t", -1, -1)
    asked.assignments = [CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in range(2)]
    assert (await create(wire, asked))[0].num_partitions == 2
    asked.assignments[0].broker_ids = [9]
    asked.name = "u"
    assert (await create(wire, asked))[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_metadata_creates_topics_if_client_and_broker_allow_it(start_broker: StartBroker) -> None:
    broker = await start_broker(num_partitions="2")
    async with await Wire.connect(broker.port) as wire:
        assert (await metadata(wire, "t")).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        result = (await metadata(wire, "t", create=True)).topics[0]
        assert (result.error_code, len(result.partitions)) == (ErrorCode.NONE, 2)
        bad = (await metadata(wire, "no/good", create=True)).topics[0]
        assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    await broker.stop()
    closed = await start_broker(auto_create_topics_enable="false")
    async with await Wire.connect(closed.port) as wire:
        result = (await metadata(wire, "u", create=True)).topics[0]
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_topics_are_deleted_by_name_and_by_id(wire: Wire) -> None:
    await create(wire, topic("a"))
    (b,) = await create(wire, topic("b"))
    old = await wire.ask(DeleteTopicsRequest(topic_names=["a", "none"], timeout_ms=0), 5, DeleteTopicsResponse)
    assert [r.error_code for r in old.responses] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    states = [DeleteTopicState(name=None, topic_id=b.topic_id), DeleteTopicState(name=None, topic_id=b"x" * 16)]
    new = await wire.ask(DeleteTopicsRequest(topics=states, timeout_ms=0), 6, DeleteTopicsResponse)
    assert [(r.name, r.error_code) for r in new.responses] == [("b", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert (await wire.ask(MetadataRequest(topics=None), 12, MetadataResponse)).topics == []


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The events of each write of the metadata, by their names."""
    written: list[list[str]] = []
    append = LocalStore.append

    async def noted(self: LocalStore, events: Sequence[Event], expected: int, *, as_controller: bool = False) -> bool:
        written.append([type(event).__name__ for event in events])
        return await append(self, events, expected, as_controller=as_controller)

    monkeypatch.setattr(LocalStore, "append", noted)
    return written


async def test_the_topics_of_a_request_are_created_and_deleted_by_one_write(
    wire: Wire, written: list[list[str]]
) -> None:
    """Each topic succeeds or fails on its own, and the metadata is synced once."""
    await create(wire, topic("there"))
    asked = ["a", "a.b", "a_b", "bad name", "there", "c", "twice", "twice"]
    results = await create(wire, *(topic(name, 0 if name == "c" else 2) for name in asked))
    assert [(result.name, result.error_code) for result in results] == [
        ("a", ErrorCode.NONE),
        ("a.b", ErrorCode.NONE),
        ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("there", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("c", ErrorCode.INVALID_PARTITIONS),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert [each.error_code for each in await create(wire, topic("a"), topic("bad name"))] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert [each.error_code for each in await create(wire, topic("d"), topic("a"), dry=True)] == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]
    named = [("a", ZERO), (None, results[0].topic_id), ("a.b", ZERO), ("none", ZERO), (None, b"x" * 16)]
    states = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in named]
    request = DeleteTopicsRequest(topics=states, timeout_ms=0)
    deleted = (await wire.ask(request, 6, DeleteTopicsResponse)).responses
    assert [(each.name, each.error_code) for each in deleted] == [
        ("a", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("a.b", ErrorCode.NONE),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert written == [["TopicCreated"], ["TopicCreated"] * 2, ["TopicDeleted"] * 2]


async def test_many_topics_are_created_and_deleted_by_few_writes(wire: Wire, written: list[list[str]]) -> None:
    names = [f"t{number}" for number in range(250)]
    assert {each.error_code for each in await create(wire, *map(topic, names))} == {ErrorCode.NONE}
    deleted = await wire.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=0), 5, DeleteTopicsResponse)
    assert {each.error_code for each in deleted.responses} == {ErrorCode.NONE}
    assert {each.error_code for each in await create(wire, topic("x", 600), topic("y", 600))} == {ErrorCode.NONE}
    assert [len(each) for each in written] == [100, 100, 50, 100, 100, 50, 1, 1]


async def test_a_recreated_topic_is_empty_and_has_a_new_id(wire: Wire) -> None:
    (first,) = await create(wire, topic("t"))
    await wire.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=0), 5, DeleteTopicsResponse)
    (second,) = await create(wire, topic("t"))
    assert second.error_code == ErrorCode.NONE
    assert second.topic_id != first.topic_id


async def test_partitions_are_added(wire: Wire) -> None:
    await create(wire, topic("t", 2))

    async def grow(name: str, count: int, dry: bool = False) -> int:
        asked = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[asked], timeout_ms=0, validate_only=dry)
        return (await wire.ask(request, 3, CreatePartitionsResponse)).results[0].error_code

    assert await grow("t", 4, dry=True) == ErrorCode.NONE
    assert len((await metadata(wire, "t")).topics[0].partitions) == 2
    assert await grow("t", 4) == ErrorCode.NONE
    assert len((await metadata(wire, "t")).topics[0].partitions) == 4
    assert await grow("t", 3) == ErrorCode.INVALID_PARTITIONS
    assert await grow("u", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_describe_cluster_names_the_broker(broker: BrokerServer, wire: Wire) -> None:
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    result = await wire.ask(asked, 1, DescribeClusterResponse)
    assert [(b.broker_id, b.host, b.port) for b in result.brokers] == [(1, "127.0.0.1", broker.port)]
    assert result.controller_id == 1
    assert len(result.cluster_id) == 22
    assert result.cluster_authorized_operations > 0
    asked.endpoint_type = 2
    assert (await wire.ask(asked, 1, DescribeClusterResponse)).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_is_found_in_every_version(broker: BrokerServer, wire: Wire, version: int) -> None:
    request = FindCoordinatorRequest(key="group", coordinator_keys=["group"])
    if version >= 4:
        request.key = ""
    else:
        request.coordinator_keys = []
    result = await wire.ask(request, version, FindCoordinatorResponse)
    if version >= 4:
        (one,) = result.coordinators
        assert (one.key, one.error_code, one.node_id, one.port) == ("group", 0, 1, broker.port)
    else:
        assert (result.error_code, result.node_id, result.port) == (0, 1, broker.port)
