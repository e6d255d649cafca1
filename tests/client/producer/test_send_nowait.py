"""`send_nowait`: the records of `send`, from code that cannot wait."""

import asyncio
from typing import Any

import pytest

from barnabas_client.errors import (
    BufferExhaustedError,
    IllegalStateError,
    ProducerClosedError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from barnabas_client.structs import RecordMetadata
from tests.client.producers import T0, batches, numbered, producer
from tests.world.programs import Machine, simulated


@simulated
async def test_where_a_record_was_written(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker) as sender:
        await sender.partitions_for("t")
        receipt = sender.send_nowait("t", b"v", b"k", 0, 1234, [("h", b"1")])
        assert not receipt.done()
        assert await receipt == RecordMetadata("t", 0, T0, 0, 1234, 0, 0)
    (one,) = broker.records("t")
    assert (one.key, one.value, one.timestamp, one.headers) == (b"k", b"v", 1234, (("h", b"1"),))


@simulated
async def test_callbacks_of_the_event_loop(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker) as sender:
        await sender.partitions_for("t")
        for value in numbered(20):
            asyncio.get_running_loop().call_soon(sender.send_nowait, "t", value)
        await asyncio.sleep(0)
    assert broker.values("t") == numbered(20)


@simulated
async def test_it_shares_batches_and_order_with_send(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, linger_ms=60_000) as sender:
        await sender.send("t", b"0")
        sender.send_nowait("t", b"1")
        await sender.send_many("t", [b"2"])
        receipt = sender.send_nowait("t", b"3")
        await sender.flush()
        assert receipt.result().offset == 3
    assert batches(broker) == [(0, 4)]
    assert broker.values("t") == numbered(4)


@simulated
async def test_no_room(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, buffer_memory=500, linger_ms=60_000) as sender:
        await sender.partitions_for("t")
        sender.send_nowait("t", b"x" * 300)
        with pytest.raises(BufferExhaustedError, match=r"send_nowait to t: buffer_memory \(500 bytes\) is full"):
            sender.send_nowait("t", b"y" * 300)
        await sender.flush()
        sender.send_nowait("t", b"z" * 300)
    assert broker.values("t") == [b"x" * 300, b"z" * 300]


@simulated
async def test_what_is_refused(broker: Machine) -> None:
    await broker.create("t")
    sender = producer(broker, max_request_size=1_000)
    with pytest.raises(IllegalStateError, match=r"To do: start\(\) it first, or use it in a `with` block"):
        sender.send_nowait("t", b"v")
    async with sender:
        with pytest.raises(IllegalStateError, match=r"not known yet. To do: await partitions_for\('t'\)"):
            sender.send_nowait("t", b"v")
        wrong: Any = 7
        with pytest.raises(TypeError, match="7 is not a topic"):
            sender.send_nowait(wrong, b"v")
        await sender.partitions_for("t")
        with pytest.raises(TypeError, match="send_nowait to t: the value is int"):
            sender.send_nowait("t", wrong)
        with pytest.raises(UnknownTopicOrPartitionError, match="send_nowait to t: it has no partition 3"):
            sender.send_nowait("t", b"v", partition=3)
        with pytest.raises(RecordTooLargeError):
            sender.send_nowait("t", b"v" * 1_000)
    with pytest.raises(ProducerClosedError):
        sender.send_nowait("t", b"v")
    assert broker.values("t") == []


@simulated
async def test_a_transaction(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, transactional_id="x") as sender:
        await sender.partitions_for("t")
        with pytest.raises(IllegalStateError, match="begin"):
            sender.send_nowait("t", b"v")
        async with sender.transaction():
            receipt = sender.send_nowait("t", b"v")
        assert receipt.result().offset == 0
