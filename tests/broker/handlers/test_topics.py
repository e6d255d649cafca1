"""Topics over the wire: writes of the metadata, restarts. The rest: `interop/behaviour`."""

from collections.abc import Sequence

import pytest

from barnabas_broker.cluster.image import Event
from barnabas_broker.cluster.local import LocalStore
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
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


async def test_defaults_are_the_brokers(start_broker: StartBroker) -> None:
    broker = await start_broker(num_partitions="5")
    async with await Wire.connect(broker.port) as wire:
        (result,) = await create(wire, topic("t", -1, -1))
        assert (result.num_partitions, result.replication_factor) == (5, 1)


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
