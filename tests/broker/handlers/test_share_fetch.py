"""ShareFetch and ShareAcknowledge over the wire, on a broker with its share coordinator."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.shares.records import ShareKey
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from barnabas_protocol.messages.share_fetch import (
    FetchAcknowledgementBatch,
    ShareFetchLeader,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
    SharePartitionData,
)
from barnabas_protocol.records import build_batch, decode_records, iter_batches
from tests.broker.conftest import StartBroker
from tests.wire import PATIENCE, Wire

E = ErrorCode
NOW = 1_700_000_000_000


class Member:
    """A member of the group "g" that fetches from partition 0 of "t"."""

    def __init__(self, wire: Wire, topic_id: bytes, name: str = "ann") -> None:
        self.wire = wire
        self.topic_id = topic_id
        self.name = name
        self.epoch = 0

    def request(
        self, *batches: tuple[int, int, list[int]], epoch: int | None = None, wait: int = 0, **fields: int
    ) -> ShareFetchRequest:
        said = [
            FetchAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in batches
        ]
        partition = ShareFetchPartition(partition_index=0, acknowledgement_batches=said)
        named = self.epoch == 0 or said or epoch is not None
        values: dict[str, Any] = {
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "max_records": 500,
            "batch_size": 500,
            **fields,
        }
        return ShareFetchRequest(
            group_id="g",
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait,
            topics=[ShareFetchTopic(topic_id=self.topic_id, partitions=[partition])] if named else [],
            forgotten_topics_data=[],
            **values,
        )

    async def ask(self, request: ShareFetchRequest) -> ShareFetchResponse:
        answer = await self.wire.ask(request, 2, ShareFetchResponse)
        if answer.error_code == E.NONE:
            self.epoch += 1
        return answer

    async def fetch(self, *batches: tuple[int, int, list[int]], wait: int = 0, **fields: int) -> SharePartitionData:
        answer = await self.ask(self.request(*batches, wait=wait, **fields))
        assert answer.error_code == E.NONE
        assert answer.acquisition_lock_timeout_ms == 30_000
        return answer.responses[0].partitions[0] if answer.responses else nothing()

    async def acknowledge(self, *batches: tuple[int, int, list[int]], epoch: int | None = None) -> int:
        said = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in batches
        ]
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=said)
        request = ShareAcknowledgeRequest(
            group_id="g",
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
        )
        answer = await self.wire.ask(request, 2, ShareAcknowledgeResponse)
        if answer.error_code != E.NONE:
            return answer.error_code
        self.epoch += 1
        return answer.responses[0].partitions[0].error_code


def nothing() -> SharePartitionData:
    """What a response without partitions says of one."""
    return SharePartitionData(
        partition_index=0,
        error_code=0,
        acknowledge_error_code=0,
        current_leader=ShareFetchLeader(leader_id=0, leader_epoch=0),
        records=b"",
        acquired_records=[],
    )


def acquired(data: SharePartitionData) -> list[tuple[int, int, int]]:
    """First offset, last offset and delivery count."""
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records]


def values(data: SharePartitionData) -> list[bytes | None]:
    """The values of all records."""
    return [record.value for header, batch in iter_batches(data.records) for record in decode_records(batch)]


async def produce(wire: Wire, *values: bytes) -> None:
    """Append one batch to "t"."""
    batch = build_batch([(None, value, (), NOW) for value in values])
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    answer = await wire.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == E.NONE


@pytest.fixture
async def topic_id(wire: Wire, broker: BrokerServer) -> bytes:
    """The id of "t", which the group "g" reads from its beginning."""
    asked = [MetadataRequestTopic(name="t", topic_id=bytes(16))]
    found = (await wire.ask(MetadataRequest(topics=asked), 12, MetadataResponse)).topics[0].topic_id
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await broker.services.persister.initialize(ShareKey("g", UUID(bytes=found), 0), 0, 0)
                return found
            except KafkaError:  # its coordinator is still loading
                await asyncio.sleep(0)


@pytest.fixture
async def members(broker: BrokerServer, topic_id: bytes) -> AsyncIterator[list[Member]]:
    """Three members with connections of their own."""
    wires = [await Wire.connect(broker.port) for _ in range(3)]
    yield [Member(wire, topic_id, name) for wire, name in zip(wires, ("ann", "bob", "cid"), strict=True)]
    for wire in wires:
        await wire.close()


async def test_records_are_acquired_acknowledged_and_not_delivered_again(wire: Wire, members: list[Member]) -> None:
    ann, bob, _ = members
    await produce(wire, b"a", b"b", b"c")
    got = await ann.fetch()
    assert (acquired(got), values(got)) == ([(0, 2, 1)], [b"a", b"b", b"c"])
    assert acquired(await bob.fetch()) == []
    got = await ann.fetch((0, 2, [1, 2, 1]))
    assert (got.acknowledge_error_code, acquired(got)) == (E.NONE, [(1, 1, 2)])
    assert await ann.acknowledge((1, 1, [1])) == E.NONE
    assert acquired(await bob.fetch()) == []


async def test_a_fetch_waits_for_records(wire: Wire, members: list[Member]) -> None:
    ann, bob, _ = members
    waiting = asyncio.create_task(ann.fetch(wait=60_000))
    other = asyncio.create_task(bob.fetch(wait=60_000))
    await produce(wire, b"a")
    done, _ = await asyncio.wait([waiting, other], return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    await produce(wire, b"b")
    both = [acquired(await each) for each in (waiting, other)]
    assert sorted(both) == [[(0, 0, 1)], [(1, 1, 1)]]


async def test_a_fetch_waits_no_longer_than_it_says(members: list[Member]) -> None:
    assert acquired(await members[0].fetch(wait=20)) == []


async def test_a_released_record_wakes_a_fetch(wire: Wire, members: list[Member]) -> None:
    ann, bob, _ = members
    await produce(wire, b"a")
    await ann.fetch()
    waiting = asyncio.create_task(bob.fetch(wait=60_000))
    await asyncio.sleep(0)
    assert await ann.acknowledge((0, 0, [2])) == E.NONE
    assert acquired(await waiting) == [(0, 0, 2)]


@pytest.mark.parametrize("by", ["final fetch", "final acknowledge", "connection"])
async def test_the_end_of_a_session_gives_records_back(wire: Wire, members: list[Member], by: str) -> None:
    ann, bob, _ = members
    await produce(wire, b"a", b"b")
    await ann.fetch()
    waiting = asyncio.create_task(bob.fetch(wait=60_000))
    match by:
        case "final fetch":
            answer = await ann.ask(ann.request((0, 0, [1]), epoch=-1))
            assert answer.error_code == E.NONE
        case "final acknowledge":
            assert await ann.acknowledge((0, 0, [1]), epoch=-1) == E.NONE
        case _:
            assert await ann.acknowledge((0, 0, [1])) == E.NONE
            await ann.wire.close()
    assert acquired(await waiting) == [(1, 1, 2)]


async def test_what_a_member_does_not_have(wire: Wire, members: list[Member]) -> None:
    ann, bob, _ = members
    await produce(wire, b"a", b"b")
    await ann.fetch()
    await bob.fetch()
    assert await bob.acknowledge((0, 0, [1])) == E.INVALID_RECORD_STATE
    assert await ann.acknowledge((0, 5, [1])) == E.INVALID_RECORD_STATE
    got = await bob.fetch((1, 1, [1]))
    assert got.acknowledge_error_code == E.INVALID_RECORD_STATE
    assert await ann.acknowledge((0, 1, [1])) == E.NONE


@pytest.mark.parametrize(
    "batches",
    [
        [(1, 0, [1])],
        [(0, 1, [])],
        [(0, 1, [1, 1, 1])],
        [(0, 0, [9])],
        [(0, 0, [4])],
        [(1, 1, [1]), (0, 0, [1])],
        [(0, 1, [1]), (1, 1, [1])],
    ],
)
async def test_acknowledgements_that_make_no_sense(
    wire: Wire, members: list[Member], batches: list[tuple[int, int, list[int]]]
) -> None:
    ann = members[0]
    await produce(wire, b"a", b"b")
    await ann.fetch()
    assert await ann.acknowledge(*batches) == E.INVALID_REQUEST
    assert await ann.acknowledge((0, 1, [1])) == E.NONE


async def test_session_errors(members: list[Member]) -> None:
    ann = members[0]
    assert (await ann.ask(ann.request(epoch=1))).error_code == E.SHARE_SESSION_NOT_FOUND
    assert (await ann.ask(ann.request((0, 0, [1]), epoch=0))).error_code == E.INVALID_REQUEST
    await ann.fetch()
    assert (await ann.ask(ann.request(epoch=7))).error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert await ann.acknowledge(epoch=7) == E.INVALID_SHARE_SESSION_EPOCH
    assert await ann.acknowledge(epoch=0) == E.INVALID_SHARE_SESSION_EPOCH
    assert (await ann.ask(ann.request(epoch=-1))).error_code == E.NONE
    assert await ann.acknowledge(epoch=-1) == E.SHARE_SESSION_NOT_FOUND


async def test_a_renewed_lock(wire: Wire, members: list[Member]) -> None:
    ann = members[0]
    await produce(wire, b"a")
    await ann.fetch()
    none: dict[str, int] = {"min_bytes": 0, "max_bytes": 0, "max_records": 0}
    refused = ann.request((0, 0, [4]))
    refused.is_renew_ack = True
    assert (await ann.ask(refused)).error_code == E.INVALID_REQUEST
    request = ann.request((0, 0, [4]), **none)
    request.is_renew_ack = True
    answer = await ann.ask(request)
    assert answer.responses[0].partitions[0].acknowledge_error_code == E.NONE


async def test_unknown_topics_and_partitions(members: list[Member]) -> None:
    ann = members[0]
    request = ann.request()
    request.topics[0].partitions[0].partition_index = 99
    request.topics.append(
        ShareFetchTopic(
            topic_id=bytes(15) + b"x",
            partitions=[ShareFetchPartition(partition_index=0, acknowledgement_batches=[])],
        )
    )
    answer = await ann.ask(request)
    codes = {topic.topic_id: topic.partitions[0].error_code for topic in answer.responses}
    assert codes == {
        ann.topic_id: E.UNKNOWN_TOPIC_OR_PARTITION,
        bytes(15) + b"x": E.UNKNOWN_TOPIC_ID,
    }


async def test_a_restart_keeps_what_is_acknowledged(
    wire: Wire, broker: BrokerServer, topic_id: bytes, start_broker: StartBroker
) -> None:
    ann = Member(wire, topic_id)
    await produce(wire, b"a", b"b", b"c")
    await ann.fetch()
    assert await ann.acknowledge((0, 0, [1]), (2, 2, [1])) == E.NONE
    await broker.stop()
    again = await start_broker()
    async with asyncio.timeout(PATIENCE), await Wire.connect(again.port) as other:
        while True:
            bob = Member(other, topic_id, "bob")
            got = await bob.fetch()
            if got.error_code == E.NONE:
                break
            await asyncio.sleep(0)  # its coordinator is still loading
    assert acquired(got) == [(1, 1, 1)]


async def test_a_failed_write_takes_the_acknowledgement_back(
    wire: Wire, broker: BrokerServer, members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = members[0]
    await produce(wire, b"a")
    await ann.fetch()

    async def write(*_: object, **__: object) -> None:
        raise KafkaError(E.NOT_COORDINATOR)

    monkeypatch.setattr(broker.services.persister, "write", write)
    assert await ann.acknowledge((0, 0, [1])) == E.COORDINATOR_NOT_AVAILABLE
    monkeypatch.undo()
    assert await ann.acknowledge((0, 0, [1])) == E.NONE
