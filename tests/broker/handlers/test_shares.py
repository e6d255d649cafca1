"""The APIs of the share coordinator on a broker, and FindCoordinator for share partitions."""

from base64 import urlsafe_b64encode
from typing import Final

import pytest

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateData,
    DeleteStatePartitionData,
)
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateData,
    InitializeStatePartitionData,
)
from barnabas_protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateData,
    ReadStatePartitionData,
    ReadStatePartitionResult,
)
from barnabas_protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryData,
    ReadStateSummaryPartitionData,
)
from barnabas_protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateBatch,
    WriteStateData,
    WriteStatePartitionData,
)
from tests.wire import Wire

E: Final = ErrorCode


@pytest.fixture
async def topic_id(wire: Wire) -> bytes:
    """A topic with two partitions; the topic of share groups exists, too."""
    new = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
    answer = await wire.ask(CreateTopicsRequest(topics=[new], timeout_ms=1000), 7, CreateTopicsResponse)
    found = answer.topics[0].topic_id
    assert (await find(wire, key(found))) == (E.NONE, 1)
    return found


def key(topic_id: bytes, partition: int = 0) -> str:
    return f"g:{urlsafe_b64encode(topic_id).decode().rstrip('=')}:{partition}"


async def find(wire: Wire, name: str) -> tuple[int, int]:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[name])
    (found,) = (await wire.ask(request, 6, FindCoordinatorResponse)).coordinators
    return found.error_code, found.node_id


async def initialize(wire: Wire, topic_id: bytes, *partitions: int) -> list[int]:
    asked = [InitializeStatePartitionData(partition=each, state_epoch=0, start_offset=3) for each in partitions]
    request = InitializeShareGroupStateRequest(
        group_id="g", topics=[InitializeStateData(topic_id=topic_id, partitions=asked)]
    )
    (topic,) = (await wire.ask(request, 0, InitializeShareGroupStateResponse)).results
    assert [each.partition for each in topic.partitions] == list(partitions)
    return [each.error_code for each in topic.partitions]


async def read(wire: Wire, topic_id: bytes, leader_epoch: int = 0) -> ReadStatePartitionResult:
    asked = ReadStatePartitionData(partition=0, leader_epoch=leader_epoch)
    request = ReadShareGroupStateRequest(group_id="g", topics=[ReadStateData(topic_id=topic_id, partitions=[asked])])
    (topic,) = (await wire.ask(request, 0, ReadShareGroupStateResponse)).results
    (partition,) = topic.partitions
    return partition


async def write(wire: Wire, topic_id: bytes, version: int, leader_epoch: int = 0) -> int:
    batch = WriteStateBatch(first_offset=4, last_offset=5, delivery_state=2, delivery_count=1)
    asked = WriteStatePartitionData(
        partition=0, state_epoch=0, leader_epoch=leader_epoch, start_offset=3, state_batches=[batch]
    )
    if version:
        asked.delivery_complete_count = 2
    request = WriteShareGroupStateRequest(group_id="g", topics=[WriteStateData(topic_id=topic_id, partitions=[asked])])
    (topic,) = (await wire.ask(request, version, WriteShareGroupStateResponse)).results
    return topic.partitions[0].error_code


async def count(wire: Wire, topic_id: bytes, version: int) -> tuple[int, int, int]:
    asked = ReadStateSummaryPartitionData(partition=0, leader_epoch=-1)
    request = ReadShareGroupStateSummaryRequest(
        group_id="g", topics=[ReadStateSummaryData(topic_id=topic_id, partitions=[asked])]
    )
    (topic,) = (await wire.ask(request, version, ReadShareGroupStateSummaryResponse)).results
    (found,) = topic.partitions
    return found.error_code, found.start_offset, found.delivery_complete_count


async def test_a_state_from_its_beginning_to_its_end(wire: Wire, topic_id: bytes) -> None:
    assert (await read(wire, topic_id)).error_code == E.INVALID_REQUEST
    assert await count(wire, topic_id, 1) == (E.NONE, -1, -1)
    assert await initialize(wire, topic_id, 0, 1) == [E.NONE, E.NONE]
    assert await write(wire, topic_id, 0) == E.NONE
    assert await count(wire, topic_id, 1) == (E.NONE, 3, -1)
    assert await write(wire, topic_id, 1) == E.NONE
    assert await count(wire, topic_id, 1) == (E.NONE, 3, 2)
    assert await count(wire, topic_id, 0) == (E.NONE, 3, -1)
    found = await read(wire, topic_id, leader_epoch=1)
    assert (found.error_code, found.error_message, found.start_offset) == (E.NONE, None, 3)
    (batch,) = found.state_batches
    assert (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) == (4, 5, 2, 1)
    assert await write(wire, topic_id, 1) == E.FENCED_LEADER_EPOCH
    request = DeleteShareGroupStateRequest(
        group_id="g",
        topics=[DeleteStateData(topic_id=topic_id, partitions=[DeleteStatePartitionData(partition=0)])],
    )
    for _ in range(2):
        (topic,) = (await wire.ask(request, 0, DeleteShareGroupStateResponse)).results
        assert topic.partitions[0].error_code == E.NONE
    assert await count(wire, topic_id, 1) == (E.NONE, -1, -1)


async def test_bad_share_partitions_are_refused_one_by_one(wire: Wire, topic_id: bytes) -> None:
    codes = await initialize(wire, topic_id, 0, 0, -1, 2)
    assert codes == [E.NONE, E.INVALID_REQUEST, E.INVALID_REQUEST, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert await initialize(wire, bytes(16), 0) == [E.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("name", ["", "g", "g:1", "g:AAAAAAAAAAAAAAAAAAAAAA:-1", ":AAAAAAAAAAAAAAAAAAAAAA:0", "g:AA:0"])
async def test_what_names_no_share_partition(wire: Wire, name: str) -> None:
    assert await find(wire, name) == (E.INVALID_REQUEST, -1)


async def test_before_the_topic_exists(wire: Wire) -> None:
    assert await initialize(wire, bytes(15) + b"1", 0) == [E.UNKNOWN_TOPIC_OR_PARTITION]
