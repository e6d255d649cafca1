"""Deleted records are gone from every replica when DeleteRecords says so."""

import pytest

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records.builder import build_batch
from tests.cluster.harness import Brokers, Node, create, leaders
from tests.wire import Wire

pytestmark = pytest.mark.cluster


async def delete(node: Node, offset: int, timeout_ms: int) -> DeleteRecordsPartitionResult:
    asked = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="cut", partitions=asked)], timeout_ms=timeout_ms)
    async with await Wire.connect(node.port) as wire:
        return (await wire.ask(request, 2, DeleteRecordsResponse)).topics[0].partitions[0]


async def test_it_waits_for_a_silent_follower(cluster: Brokers) -> None:
    await cluster.start(2)
    assert await create(cluster[1], "cut", 1, 2) == ErrorCode.NONE
    await cluster.agree("it is everywhere", lambda metadata: leaders(metadata, "cut") != [], "cut")
    (leader,) = leaders(await cluster[1].metadata("cut"), "cut")
    leading, follower = cluster[leader], cluster[3 - leader]
    batch = build_batch([(None, b"%d" % n, (), 0) for n in range(10)])
    data = TopicProduceData(name="cut", partition_data=[PartitionProduceData(index=0, records=batch)])
    async with await Wire.connect(leading.port) as wire:
        answer = await wire.ask(ProduceRequest(acks=-1, timeout_ms=15_000, topic_data=[data]), 7, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    deleted = await delete(leading, 4, 15_000)
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.NONE, 4)

    follower.pause()
    deleted = await delete(leading, 7, 500)
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 4)
    follower.resume()
    deleted = await delete(leading, 7, 15_000)
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.NONE, 7)
