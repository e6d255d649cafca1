"""Requests over the wire that prepare tests of the HTTP endpoint. Retriable errors are retried."""

import asyncio
import struct

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas_protocol.records import build_batch
from tests.wire import PATIENCE, Wire


async def make_topic(wire: Wire, name: str) -> None:
    """Create a topic by a Metadata request."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    assert (await wire.ask(request, 9, MetadataResponse)).topics[0].error_code == ErrorCode.NONE


async def produce(wire: Wire, topic: str, partition: int, count: int) -> int:
    """Produce `count` records; return the error code."""
    records = build_batch([(None, b"value", (), 1_700_000_000_000 + n) for n in range(count)])
    data = [PartitionProduceData(index=partition, records=records)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    return (await wire.ask(request, 9, ProduceResponse)).responses[0].partition_responses[0].error_code


async def coordinated(wire: Wire, group: str) -> None:
    """Wait until the group has a coordinator; the first request creates `__consumer_offsets`."""
    request = FindCoordinatorRequest(key=group)
    async with asyncio.timeout(PATIENCE):
        while (await wire.ask(request, 2, FindCoordinatorResponse)).error_code != ErrorCode.NONE:
            pass


async def commit(wire: Wire, group: str, topic: str, offsets: dict[int, int], member_id: str = "") -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="mark")
        for index, offset in offsets.items()
    ]
    await coordinated(wire, group)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    request = OffsetCommitRequest(group_id=group, member_id=member_id, topics=topics)
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await wire.ask(request, 7, OffsetCommitResponse)
            if {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.NONE}:
                return


async def join_alone(wire: Wire, group: str, topic: str, partition: int) -> str:
    """Become the only member of a group, with one partition; return the member id."""
    await coordinated(wire, group)
    name = struct.pack(">h", len(topic)) + topic.encode()
    subscription = struct.pack(">hi", 0, 1) + name + struct.pack(">i", -1)
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    async with asyncio.timeout(PATIENCE):
        while (joined := await wire.ask(join, 2, JoinGroupResponse)).error_code != ErrorCode.NONE:
            pass
    share = struct.pack(">hi", 0, 1) + name + struct.pack(">iii", 1, partition, -1)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=share)],
    )
    assert (await wire.ask(sync, 0, SyncGroupResponse)).error_code == ErrorCode.NONE
    return joined.member_id
