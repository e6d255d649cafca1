"""Fetches that are pipelined or not read: their responses stay within the budget, and all of them are answered."""

import asyncio
import tracemalloc

from barnabas_broker.broker import BrokerServer
from barnabas_protocol.codec import decode_response
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.conftest import StartBroker
from tests.broker.handlers.test_data import ZERO, batch, produce, topic_id
from tests.wire import Wire

__all__ = ["topic_id"]

BATCH = 200_000
PARTITIONS = 20
CONNECTIONS = 20
MEBIBYTE = 1 << 20


def fetching(partitions: int, wait: int = 0) -> FetchRequest:
    wanted = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=BATCH * 2) for n in range(partitions)]
    return FetchRequest(max_wait_ms=wait, min_bytes=1, topics=[FetchTopic(topic="t", topic_id=ZERO, partitions=wanted)])


async def test_fetches_behind_one_that_waits_are_read_one_after_another(wire: Wire, topic_id: bytes) -> None:
    many = 100
    async with asyncio.timeout(60):
        for _ in range(many):
            wire.send(fetching(1, wait=20_000), 12)
        async with await Wire.connect(wire.writer.get_extra_info("peername")[1]) as other:
            records = batch(bytes(BATCH))
            tracemalloc.start()
            try:
                await produce(other, records)
                sizes = [len(await wire.frame()) for _ in range(many)]
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
    assert min(sizes) > BATCH
    assert peak < 20 * BATCH  # all at once are a hundred


async def test_responses_that_are_not_read_stay_within_the_budget(start_broker: StartBroker) -> None:
    broker: BrokerServer = await start_broker(num_partitions=str(PARTITIONS), queued_max_response_bytes=str(MEBIBYTE))
    budget = broker.services.responses
    add, most = budget.add, 0

    def watch(size: int) -> None:
        nonlocal most
        add(size)
        most = max(most, budget.used)

    budget.add = watch  # type: ignore[method-assign]
    wires = [await Wire.connect(broker.port) for _ in range(CONNECTIONS)]
    asked = [MetadataRequestTopic(name="t", topic_id=ZERO)]
    await wires[0].ask(MetadataRequest(topics=asked), 12, MetadataResponse)
    for partition in range(PARTITIONS):
        await produce(wires[0], batch(bytes(BATCH)), partition=partition)
    for each in wires:
        for _ in range(3):
            each.send(fetching(PARTITIONS), 12)
    received = 0
    for each in wires:
        for _ in range(3):
            response = decode_response(FetchResponse, 12, await each.frame())
            records = sum(len(p.records or b"") for topic in response.responses for p in topic.partitions)
            assert records > BATCH
            received += records
        await each.close()
    assert most < MEBIBYTE + 2 * CONNECTIONS * (BATCH + 10_000)  # without a budget all of them at a time: 80 MB
    assert budget.used == 0
