"""One topic with many partitions is created and deleted in small steps: a small request does not hold others up."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.replication import manager
from barnabas_broker.storage import LogDirectory
from barnabas_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tests.wire import Wire

MANY = 300
ZERO = bytes(16)


class Turns:
    """Counts calls per turn of the event loop."""

    def __init__(self) -> None:
        self.calls = self.in_this_turn = self.most = 0

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any) -> Any:
            if not self.in_this_turn:
                asyncio.get_running_loop().call_soon(self._end)
            self.calls += 1
            self.in_this_turn += 1
            self.most = max(self.most, self.in_this_turn)
            return call(*arguments)

        return count

    def _end(self) -> None:
        self.in_this_turn = 0


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Creations and deletions of logs, while each is as long as a slice."""
    turns = Turns()
    monkeypatch.setattr(manager, "CHANGING_SECONDS", 0.0)
    for name in ("create", "delete"):
        monkeypatch.setattr(LogDirectory, name, turns.counted(getattr(LogDirectory, name)))
    return turns


async def create(wire: Wire) -> None:
    topic = CreatableTopic(name="many", num_partitions=MANY, replication_factor=1, assignments=[], configs=[])
    response = await wire.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert [each.error_code for each in response.topics] == [0]


async def delete(wire: Wire) -> None:
    topic = DeleteTopicState(name="many", topic_id=ZERO)
    response = await wire.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=1000), 6, DeleteTopicsResponse)
    assert [each.error_code for each in response.responses] == [0]


def partitions(broker: BrokerServer) -> int:
    return sum(where.topic == "many" for where in broker.directory.logs)


async def test_partitions_are_created_and_deleted_in_small_steps(
    broker: BrokerServer, wire: Wire, turns: Turns
) -> None:
    await create(wire)
    assert partitions(broker) == MANY
    more = CreatePartitionsTopic(name="many", count=2 * MANY, assignments=None)
    response = await wire.ask(
        CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=False), 3, CreatePartitionsResponse
    )
    assert [each.error_code for each in response.results] == [0]
    assert partitions(broker) == 2 * MANY
    await delete(wire)
    assert partitions(broker) == 0
    assert turns.calls == 4 * MANY
    assert turns.most == 1


@pytest.mark.slow
async def test_a_topic_that_is_created_again_while_it_is_deleted_has_all_partitions(
    broker: BrokerServer, wire: Wire, turns: Turns
) -> None:
    await create(wire)
    old = {where: log.topic_id for where, log in broker.directory.logs.items()}
    async with await Wire.connect(broker.port) as other:
        deleting = asyncio.ensure_future(delete(wire))
        # Requests of two connections have no order: the topic is created when the other request deletes it.
        for _ in range(100_000):
            if partitions(broker) < MANY:
                break
            await asyncio.sleep(0)
        await create(other)
        await deleting
    await broker.services.replicas.changed()
    assert partitions(broker) == MANY
    assert all(log.topic_id != old[where] for where, log in broker.directory.logs.items())
    assert not broker.directory.strays


@pytest.mark.slow
async def test_a_stop_deletes_what_is_to_be_deleted(broker: BrokerServer, wire: Wire, turns: Turns) -> None:
    await create(wire)
    deleting = asyncio.ensure_future(delete(wire))
    for _ in range(100_000):
        if turns.calls > MANY:
            break
        await asyncio.sleep(0)
    assert 0 < partitions(broker) < MANY
    await broker.stop()
    assert partitions(broker) == 0
    deleting.cancel()
