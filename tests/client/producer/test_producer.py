"""The producer against a broker that checks sequence numbers: batches, partitions, acknowledgements, limits."""

import asyncio
import json
import os
import re
import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from barnabas_client import Producer
from barnabas_client.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    IllegalStateError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from barnabas_client.producer.partitioner import positive_hash
from barnabas_client.structs import RecordMetadata
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas_protocol.messages.metadata import MetadataRequest
from barnabas_protocol.messages.produce import (
    ProduceRequest,
)
from barnabas_protocol.registry import ApiKey
from tests.client.producers import T0, batches, numbered, producer
from tests.world.answers import refused, silence
from tests.world.broker import until
from tests.world.programs import Machine, Simulation, simulated

# Sending.


@simulated
async def test_where_a_record_was_written(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker) as sender:
        first = await sender.send_and_wait("t", b"v", key=b"k", timestamp_ms=1234, headers=[("h", b"1"), ("n", None)])
        second = await sender.send_and_wait("t", None)
    assert first == RecordMetadata("t", 0, T0, 0, 1234, 0, 0)
    assert second.offset == 1
    one, other = broker.records("t")
    assert (one.key, one.value, one.timestamp, one.headers) == (b"k", b"v", 1234, (("h", b"1"), ("n", None)))
    assert (other.key, other.value) == (None, None)
    assert other.timestamp > 1_700_000_000_000


@simulated
async def test_producers_of_a_process_can_be_told_apart(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker) as one, producer(broker) as other, producer(broker, client_id="mine") as named:
        for sender in (one, other, named):
            await sender.send_and_wait("t", b"v")
    first, second, third = (seen.client_id for seen in broker.seen.after(0) if seen.api == "Produce")
    assert re.fullmatch(rf"barnabas-producer-{os.getpid()}(-\d+)?", first)
    assert second.startswith(f"barnabas-producer-{os.getpid()}-")
    assert len({first, second}) == 2
    assert third == "mine"


@simulated
async def test_many_records_in_order_in_batches(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, batch_size=500) as sender:
        receipts = [await sender.send("t", value) for value in numbered(300)]
        await sender.flush()
        assert [receipt.result().offset for receipt in receipts] == list(range(300))
    assert broker.values("t") == numbered(300)
    sizes = [count for _, count in batches(broker)]
    assert max(sizes) > 5
    assert [sequence for sequence, _ in batches(broker)] == [sum(sizes[:at]) for at in range(len(sizes))]


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
@simulated
async def test_compression(broker: Machine, compression: str | None) -> None:
    await broker.create("t")
    async with producer(broker, compression_type=compression, linger_ms=5) as sender:
        for _ in range(20):
            await sender.send("t", b"x" * 100)
    assert broker.values("t") == [b"x" * 100] * 20
    assert len(broker.batches("t")) == 1


@simulated
async def test_lingering_fills_a_batch(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, linger_ms=20) as sender:
        for value in numbered(3):
            await sender.send("t", value)
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
    assert batches(broker) == [(0, 3)]


@simulated
async def test_flushing_does_not_linger(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, linger_ms=60_000) as sender:
        receipt = await sender.send("t", b"v")
        await sender.flush()
        assert receipt.done()


@simulated
async def test_stop_sends_pending_records(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, linger_ms=60_000) as sender:
        receipt = await sender.send("t", b"v")
    assert receipt.result().offset == 0


@pytest.mark.parametrize("acks", [0, 1])
@simulated
async def test_other_acks(broker: Machine, acks: int) -> None:
    await broker.create("t")
    async with producer(broker, acks=acks) as sender:
        written = [await sender.send_and_wait("t", value) for value in numbered(3)]
        await asyncio.sleep(0.1)
        assert broker.values("t") == numbered(3)
    assert [one.offset for one in written] == ([-1, -1, -1] if acks == 0 else [0, 1, 2])
    assert {request.acks for request in broker.script.asked(ProduceRequest)} == {acks}
    assert not broker.script.asked(InitProducerIdRequest)


@simulated
async def test_the_broker_sets_the_time(broker: Machine) -> None:
    await broker.create("t", message_timestamp_type="LogAppendTime")
    async with producer(broker) as sender:
        written = await sender.send_and_wait("t", b"v", timestamp_ms=5)
    assert written.timestamp_type == 1
    assert written.timestamp == broker.records("t")[0].timestamp > 1_700_000_000_000


@simulated
async def test_serializers(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, key_serializer=str.encode, value_serializer=lambda v: json.dumps(v).encode()) as sender:
        await sender.send_and_wait("t", {"a": 1}, key="k")
        await sender.send_and_wait("t", None, key=None)
    assert [(one.key, one.value) for one in broker.records("t")] == [(b"k", b'{"a": 1}'), (None, None)]


# Partitions.


@simulated
async def test_keys_choose_partitions_as_in_java(broker: Machine) -> None:
    await broker.create("t", 7)
    async with producer(broker) as sender:
        for value in numbered(20):
            written = await sender.send("t", value, key=value)
            assert (await written).partition == positive_hash(value) % 7


@simulated
async def test_records_without_a_key_are_spread_by_batches(broker: Machine) -> None:
    await broker.create("t", 3)
    async with producer(broker, batch_size=1_000) as sender:
        for _ in range(600):
            await sender.send("t", b"x" * 50)
    counts = [len(broker.values("t", number)) for number in range(3)]
    assert sum(counts) == 600
    assert min(counts) > 100


@simulated
async def test_a_given_partition(broker: Machine) -> None:
    await broker.create("t", 3)
    async with producer(broker) as sender:
        assert (await sender.send_and_wait("t", b"v", partition=2)).partition == 2
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 3, only 3"):
            await sender.send("t", b"v", partition=3)
        assert await sender.partitions_for("t") == frozenset({0, 1, 2})


@simulated
async def test_a_custom_partitioner(broker: Machine) -> None:
    await broker.create("t", 4)
    asked = []

    def mine(key: bytes | None, everything: Any, available: Any) -> int:
        asked.append((key, everything, available))
        return 3

    async with producer(broker, partitioner=mine) as sender:
        assert (await sender.send_and_wait("t", b"v", key=b"k")).partition == 3
    assert asked == [(b"k", (0, 1, 2, 3), (0, 1, 2, 3))]


@simulated
async def test_partitions_without_a_leader_are_left_out(simulation: Simulation) -> None:
    broker, other = await simulation.cluster(2)
    await broker.create("t", 2, [1], [0])
    other.kill()
    image = broker.broker.services.cluster
    await until(lambda: image.image.topics["t"].partitions[0].leader == -1)
    async with producer(broker) as sender:
        for _ in range(5):
            assert (await sender.send_and_wait("t", b"v")).partition == 1


@simulated
async def test_a_metadata_request_creates_the_topic(broker: Machine) -> None:
    async with producer(broker) as sender:
        assert (await sender.send_and_wait("new", b"v")).offset == 0
    assert any(request.allow_auto_topic_creation for request in broker.script.asked(MetadataRequest))


@simulated
async def test_a_topic_that_is_never_created(world: Simulation) -> None:
    broker = await world.machine(auto_create_topics_enable="false")
    async with producer(broker, max_block_ms=1000, retry_backoff_max_ms=500) as sender:
        with pytest.raises(KafkaTimeoutError, match=r"nowhere.*max_block_ms \(1000 ms\).*UNKNOWN_TOPIC_OR_PARTITION"):
            await sender.send("nowhere", b"v")


@simulated
async def test_a_topic_that_is_not_valid(broker: Machine) -> None:
    async with producer(broker) as sender:
        with pytest.raises(InvalidTopicError, match="a b: INVALID_TOPIC_EXCEPTION"):
            await sender.send("a b", b"v")


# Costs, counted, so that no test depends on speed.


@pytest.mark.parametrize("way", ["send", "send_nowait"])
async def test_a_record_takes_the_short_way(bootstrap_servers: str, way: str) -> None:
    called: Counter[str] = Counter()

    def count(frame: FrameType, event: str, what: Any) -> None:
        if event == "call" and "barnabas_" in frame.f_code.co_filename:
            called[frame.f_code.co_qualname] += 1
        elif event == "c_call" and what is asyncio.get_running_loop:
            called["a system call"] += 1

    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000) as sender:
        await sender.send("short-way", b"first", partition=0)
        sys.setprofile(count)
        try:
            for _ in range(100):
                made = getattr(sender, way)("short-way", b"v", partition=0)
                if way == "send":
                    await made
        finally:
            sys.setprofile(None)
    # The method, whether the producer runs (2), the topic, the size, the queue, the batch, the receipt.
    assert called.total() <= 8 * 100, called


# Bounds.


@simulated
async def test_records_that_are_not_acknowledged_in_time(broker: Machine) -> None:
    await broker.create("t")
    broker.script.always(ApiKey.PRODUCE, refused(ErrorCode.NOT_ENOUGH_REPLICAS))
    async with producer(broker, delivery_timeout_ms=60_000, retry_backoff_max_ms=5_000) as sender:
        with pytest.raises(DeliveryTimeoutError, match=r"send to t-0: .*delivery_timeout_ms \(60000 ms, records: 1,"):
            await sender.send_and_wait("t", b"v")
        broker.script.always(ApiKey.PRODUCE, None)
        assert (await sender.send_and_wait("t", b"w")).offset == 0
    assert broker.values("t") == [b"w"]


@simulated
async def test_a_broker_that_stops_answering(broker: Machine) -> None:
    await broker.create("t")
    broker.script.once(ApiKey.PRODUCE, silence)
    async with producer(broker, request_timeout_ms=500) as sender:
        assert (await sender.send_and_wait("t", b"v")).offset == 0


@simulated
async def test_send_waits_while_buffer_memory_is_full(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, buffer_memory=2_000, batch_size=500, linger_ms=60_000) as sender:
        for _ in range(100):
            await sender.send("t", b"x" * 100)
            assert sender._accumulator.memory <= 2_000
    assert len(broker.values("t")) == 100


@simulated
async def test_send_fails_if_buffer_memory_stays_full(broker: Machine) -> None:
    await broker.create("t")
    broker.script.always(ApiKey.PRODUCE, refused(ErrorCode.NOT_ENOUGH_REPLICAS))
    sender = producer(broker, buffer_memory=500, max_block_ms=20)
    await sender.start()
    await sender.send("t", b"x" * 300)
    with pytest.raises(BufferExhaustedError, match=r"buffer_memory \(500 bytes\) stayed full"):
        await sender.send("t", b"x" * 300)
    await sender.stop(timeout_ms=0)


@simulated
async def test_a_record_that_is_too_large(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, max_request_size=1_000) as sender:
        with pytest.raises(RecordTooLargeError, match="max_request_size 1000"):
            await sender.send("t", b"x" * 1_000)


@simulated
async def test_requests_are_not_larger_than_max_request_size(broker: Machine) -> None:
    await broker.create("t", 4)
    async with producer(broker, max_request_size=1_000, batch_size=400, linger_ms=5) as sender:
        for at in range(80):
            await sender.send("t", b"x" * 100, partition=at % 4)
    sizes = [
        sum(len(one.records or b"") for topic in request.topic_data for one in topic.partition_data)
        for request in broker.script.asked(ProduceRequest)
    ]
    assert max(sizes) <= 1_000
    assert sum(len(broker.values("t", number)) for number in range(4)) == 80


# The end, and what is refused.


@simulated
async def test_stop_has_a_timeout(broker: Machine) -> None:
    await broker.create("t")
    broker.script.always(ApiKey.PRODUCE, silence)
    sender = producer(broker)
    await sender.start()
    receipt = await sender.send("t", b"v")
    async with asyncio.timeout(60):
        await sender.stop(timeout_ms=20)
    with pytest.raises(ProducerClosedError, match="before this was acknowledged"):
        await receipt
    await sender.stop()


@simulated
async def test_calls_that_are_not_valid(broker: Machine) -> None:
    await broker.create("t")
    sender = producer(broker)
    for call in (sender.send("t", b"v"), sender.send_and_wait("t", b"v"), sender.flush(), sender.partitions_for("t")):
        with pytest.raises(IllegalStateError, match=r"To do: start\(\) it first, or use it in a `with` block"):
            await call
    async with sender:
        with pytest.raises(IllegalStateError, match="started already"):
            await sender.start()
        with pytest.raises(TypeError, match="the value is str: give bytes, or set value_serializer"):
            await sender.send("t", "v")
        with pytest.raises(TypeError, match="the key is int"):
            await sender.send("t", b"v", key=1)
        wrong: Any = None
        with pytest.raises(TypeError, match="None is not a topic: give its name"):
            await sender.send(wrong, b"v")
    for call in (sender.send("t", b"v"), sender.flush()):
        with pytest.raises(ProducerClosedError, match="make a new one"):
            await call


async def test_no_broker_listens() -> None:
    sender = Producer(bootstrap_servers="127.0.0.1:1", request_timeout_ms=1_000)
    with pytest.raises(KafkaConnectionError):
        await sender.start()


@simulated
async def test_a_producer_that_is_never_stopped_causes_a_warning(broker: Machine) -> None:
    sender = producer(broker)
    await sender.start()
    inside, network = sender._sender, sender._network
    with pytest.warns(ResourceWarning, match="never stopped"):
        del sender
    await inside.close()
    await network.close()


@simulated
async def test_cancelling_a_future_does_not_take_the_record_back(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, linger_ms=20) as sender:
        first, second = await sender.send("t", b"a"), await sender.send("t", b"b")
        first.cancel()
        assert (await second).offset == 1
    assert broker.values("t") == [b"a", b"b"]
