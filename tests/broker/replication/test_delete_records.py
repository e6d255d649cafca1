"""DeleteRecords over the wire: it waits for followers (KIP-107). Which fetches of followers count."""

import asyncio

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.image import (
    BrokerFenced,
    BrokerRegistered,
    Event,
    Image,
    PartitionChanged,
    PartitionInfo,
    TopicCreated,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records.builder import build_batch
from barnabas_protocol.uuids import uuid_text
from tests.cluster.harness import eventually
from tests.wire import Wire

TOPIC_ID = b"t" * 16
FOLLOWER = 2
EPOCH = 20
DIRECTORY = b"d" * 16


async def change(broker: BrokerServer, *events: Event) -> None:
    """Change the metadata of a broker's cluster."""

    def decide(image: Image) -> tuple[list[Event], None]:
        return list(events), None

    await broker.services.cluster.change(decide)


@pytest.fixture
async def led(broker: BrokerServer, wire: Wire) -> BrokerServer:
    """A broker that leads a partition with five records; its follower is registered and not in sync."""
    await change(
        broker,
        BrokerRegistered(FOLLOWER, {"PLAINTEXT": ("127.0.0.1", 1)}, None, EPOCH, uuid_text(DIRECTORY)),
        TopicCreated("t", TOPIC_ID, (PartitionInfo(1, 0, (1, FOLLOWER), (1,)),), {}),
    )
    batches = [PartitionProduceData(index=0, records=build_batch([(None, b"%d" % n, (), 0) for n in range(5)]))]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=batches)])
    answer = await wire.ask(request, 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return broker


async def follow(
    wire: Wire,
    log_start: int,
    *,
    node_id: int = FOLLOWER,
    epoch: int = EPOCH,
    offset: int = 5,
    directory: bytes = DIRECTORY,
) -> int:
    """Fetch as a follower does; the error code."""
    asked = FetchPartition(
        partition=0,
        current_leader_epoch=0,
        fetch_offset=offset,
        last_fetched_epoch=0,
        log_start_offset=log_start,
        partition_max_bytes=1000,
        replica_directory_id=directory,
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=node_id, replica_epoch=epoch),
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[asked])],
    )
    answer = await wire.ask(request, 17, FetchResponse)
    return answer.responses[0].partitions[0].error_code


async def delete(wire: Wire, offset: int, timeout_ms: int) -> DeleteRecordsPartitionResult:
    asked = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=asked)], timeout_ms=timeout_ms)
    return (await wire.ask(request, 2, DeleteRecordsResponse)).topics[0].partitions[0]


async def test_it_times_out(led: BrokerServer, wire: Wire) -> None:
    answer = await delete(wire, 3, 0)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    await follow(wire, 1)
    answer = await delete(wire, 3, 0)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 1)


async def test_it_is_answered_when_followers_have_deleted(led: BrokerServer, wire: Wire) -> None:
    deleting = asyncio.create_task(delete(wire, 3, 15_000))
    await eventually("it has begun", lambda: begun(led))
    async with await Wire.connect(led.port) as other:
        assert await follow(other, 2) == ErrorCode.NONE
        assert not deleting.done()
        assert await follow(other, 4) == ErrorCode.NONE
    answer = await deleting
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 3)


async def begun(broker: BrokerServer) -> bool:
    """Whether the leader has deleted the records."""
    return broker.services.replicas.find("t", 0).log.log_start_offset == 3


async def test_a_fenced_follower_does_not_count(led: BrokerServer, wire: Wire) -> None:
    deleting = asyncio.create_task(delete(wire, 3, 15_000))
    await eventually("it has begun", lambda: begun(led))
    assert not deleting.done()
    await change(led, BrokerFenced(FOLLOWER, EPOCH))
    answer = await deleting
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 3)


async def test_it_fails_when_leadership_is_lost(led: BrokerServer, wire: Wire) -> None:
    deleting = asyncio.create_task(delete(wire, 3, 15_000))
    await eventually("it has begun", lambda: begun(led))
    await change(led, PartitionChanged("t", 0, PartitionInfo(FOLLOWER, 1, (1, FOLLOWER), (1, FOLLOWER), 1)))
    answer = await deleting
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize(
    ("node_id", "epoch"),
    [(FOLLOWER, EPOCH - 1), (FOLLOWER, -1), (1, EPOCH), (7, EPOCH), (2**31 - 1, 2**63 - 1)],
    ids=["an earlier broker epoch", "not registered", "the leader itself", "not a replica", "unknown broker"],
)
async def test_fetches_that_do_not_count_as_a_followers(
    led: BrokerServer, wire: Wire, node_id: int, epoch: int
) -> None:
    assert await follow(wire, 3, node_id=node_id, epoch=epoch) == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_fetch_for_another_directory_does_not_count(led: BrokerServer, wire: Wire) -> None:
    assert await follow(wire, 3, directory=b"x" * 16) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await follow(wire, 3, directory=bytes(16)) == ErrorCode.NONE
    assert await follow(wire, 3) == ErrorCode.NONE


async def test_a_follower_that_registers_again_has_fetched_nothing(led: BrokerServer, wire: Wire) -> None:
    await follow(wire, 3)
    leading = led.services.replicas.find("t", 0).leading
    assert leading is not None
    assert leading.followers[FOLLOWER].log_end_offset == 5
    await change(led, BrokerRegistered(FOLLOWER, {"PLAINTEXT": ("127.0.0.1", 1)}, None, EPOCH + 1))
    assert leading.followers[FOLLOWER].log_end_offset == -1


@pytest.mark.parametrize("offset", [7, 2**63 - 1, -1, -(2**63)])
async def test_a_fetch_from_an_offset_outside_the_log_does_not_count(
    led: BrokerServer, wire: Wire, offset: int
) -> None:
    await change(led, PartitionChanged("t", 0, PartitionInfo(1, 0, (1, FOLLOWER), (1, FOLLOWER), 1)))
    replica = led.services.replicas.find("t", 0)
    before = replica.high_watermark
    batches = [PartitionProduceData(index=0, records=build_batch([(None, b"more", (), 0)]))]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=batches)])
    await wire.ask(request, 9, ProduceResponse)
    await follow(wire, 0, offset=offset)
    assert replica.high_watermark == before
    assert replica.leading is not None
    assert replica.leading.followers[FOLLOWER].log_end_offset == -1
