"""Programs as users write them: type checkers must accept them, and infer these types."""

import asyncio
import itertools
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, assert_type

from barnabas import (
    Admin,
    BatchMetadata,
    BatchReceipt,
    Consumer,
    ConsumerRecord,
    ConsumerSettings,
    Deserializer,
    Handler,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    ProducerSettings,
    Receipt,
    RecordMetadata,
    SerializationContext,
    Serializer,
    TopicPartition,
    sync,
)
from barnabas.errors import RecordTooLargeError
from barnabas.testing import Broker, Fault, Faults, SeenRequest


@dataclass
class Order:
    number: int


def order_of(data: bytes) -> Order:
    return Order(int(data))


def order_of_compacted(data: bytes) -> Order | None:
    """Of a topic with tombstones."""
    return Order(int(data))


async def order_asked_for(data: bytes) -> Order:
    return Order(int(data))


def order_in_context(data: bytes, ctx: SerializationContext) -> Order:
    return Order(int(data) if ctx.field == "value" else 0)


def bytes_of(order: Order) -> bytes:
    return b"%d" % order.number


async def bytes_by_default() -> None:
    consumer = Consumer("orders", group_id="g", session_timeout_ms=6_000)
    assert_type(consumer, Consumer[bytes, bytes | None])
    async with consumer as entered:
        assert_type(entered, Consumer[bytes, bytes | None])
        record = await consumer.getone()
        assert_type(record, ConsumerRecord[bytes, bytes | None])
        assert_type(record.key, bytes | None)
        assert_type(record.value, bytes | None)
        assert_type(record.offset, int)
        assert_type(record.headers, tuple[tuple[str, bytes | None], ...])


async def what_deserializers_return() -> None:
    orders = Consumer("orders", value_deserializer=order_of)
    assert_type(orders, Consumer[bytes, Order])
    assert_type((await orders.getone()).value, Order)
    assert_type((await orders.getone()).key, bytes | None)
    compacted = Consumer("orders", value_deserializer=order_of_compacted)
    assert_type(compacted, Consumer[bytes, Order | None])
    assert_type((await compacted.getone()).value, Order | None)
    assert_type(Consumer(key_deserializer=bytes.decode), Consumer[str, bytes | None])
    assert_type(Consumer(key_deserializer=bytes.decode, value_deserializer=order_of), Consumer[str, Order])
    assert_type(Consumer(value_deserializer=lambda data: data.decode()), Consumer[bytes, str])
    assert_type(Consumer(value_deserializer=json.loads), Consumer[bytes, Any])
    assert_type(Consumer(value_deserializer=order_asked_for), Consumer[bytes, Order])
    assert_type(Consumer(value_deserializer=order_in_context), Consumer[bytes, Order])


async def every_way_to_read(consumer: Consumer[str, Order]) -> None:
    async for record in consumer:
        assert_type(record, ConsumerRecord[str, Order])
        assert_type(record.value.number, int)
    assert_type(await anext(consumer), ConsumerRecord[str, Order])
    assert_type(await consumer.getmany(timeout_ms=10), dict[TopicPartition, list[ConsumerRecord[str, Order]]])
    assert_type(await consumer.poll(10), list[ConsumerRecord[str, Order]])
    assert_type(await consumer.committed_offsets(), dict[TopicPartition, OffsetAndMetadata | None])


async def handlers(consumer: Consumer[str, Order], producer: Producer[str, Order]) -> None:
    async def handle(record: ConsumerRecord[str, Order]) -> None:
        assert_type(record.value, Order)

    def blocking(record: ConsumerRecord[str, Order]) -> int:
        return record.value.number

    async def anything(record: ConsumerRecord[object, object]) -> None:
        print(record.value)

    named: Handler[str, Order] = handle
    await consumer.run(named, order="key")
    await consumer.run(anything)

    async def many(records: list[ConsumerRecord[str, Order]]) -> None:
        assert_type(records[0].value, Order)

    await consumer.run(many, batch_size=100, batch_timeout_ms=50)
    await consumer.run(blocking, executor=ThreadPoolExecutor())
    # Dead letters are written as they were consumed.
    await consumer.run(handle, dead_letter_topic="failed", producer=producer)


async def dead_letters_of_tombstones(
    consumer: Consumer[str, Order | None], reader: sync.Consumer[str, Order | None], writer: sync.Producer[str, Order]
) -> None:
    async def handle(record: ConsumerRecord[str, Order | None]) -> None:
        print(record.value)

    producer = Producer(key_serializer=str.encode, value_serializer=bytes_of)
    await consumer.run(handle, dead_letter_topic="failed", producer=producer)
    reader.run(handle, dead_letter_topic="failed", producer=writer)


async def dead_letters_in_bytes(consumer: Consumer) -> None:
    async def handle(record: ConsumerRecord) -> None:
        assert_type(record.value, bytes | None)

    await consumer.run(handle, dead_letter_topic="failed", producer=Producer())


async def producers() -> None:
    producer = Producer(acks="all", compression_type="zstd")
    await producer.send("orders", b"1", key=bytearray(b"2"))
    await producer.send("orders", memoryview(b"1"), headers=[("source", b"shop"), ("empty", None)])
    await producer.send("orders", None, key=b"a tombstone")
    orders = Producer(key_serializer=str.encode, value_serializer=bytes_of)
    assert_type(orders, Producer[str, Order])
    receipt = await orders.send("orders", Order(1), key="a")
    assert_type(receipt, Receipt)
    assert_type(orders.send_nowait("orders", Order(1), key="a"), Receipt)
    assert_type(await receipt, RecordMetadata)
    assert_type(await asyncio.gather(receipt, receipt), tuple[RecordMetadata, RecordMetadata])
    assert_type(await asyncio.wait_for(receipt, 1), RecordMetadata)
    many = await orders.send_many("orders", map(Order, range(9)), itertools.repeat("a"))
    assert_type(many, list[BatchReceipt])
    assert_type(await asyncio.gather(*many), list[BatchMetadata])
    assert_type([one.records for one in many], list[Sequence[int]])
    headers = itertools.repeat([("source", b"shop")])
    await producer.send_many("orders", [b"1", None], [None, b"k"], headers, itertools.count(7), partition=1)
    assert_type(await orders.send_and_wait("orders", value=Order(1)), RecordMetadata)
    await Producer(value_serializer=lambda value: json.dumps(value).encode()).send("orders", {"number": 1})
    async with Producer(value_serializer=bytes_of) as entered:
        await entered.send("orders", Order(1), key=b"a")


def as_arguments(
    read: Deserializer[Order], write: Serializer[Order]
) -> tuple[Consumer[bytes, Order], Producer[Any, Order]]:
    return Consumer(value_deserializer=read), Producer(value_serializer=write)


def variance(orders: Consumer[str, Order], anything: Producer[object, object]) -> None:
    """A consumer of orders is a consumer of objects; a producer of objects is a producer of orders."""
    objects: Consumer[object, object] = orders
    producer: Producer[str, Order] = anything
    print(objects, producer)


def settings_in_a_dictionary(shared: ConsumerSettings, ours: ProducerSettings) -> None:
    assert_type(Consumer("orders", **shared), Consumer[bytes, bytes | None])
    assert_type(Consumer("orders", value_deserializer=order_of, **shared), Consumer[bytes, Order])
    assert_type(Producer(value_serializer=bytes_of, **ours), Producer[bytes | bytearray | memoryview, Order])


class Orders(Consumer[bytes, Order]):
    def __init__(self) -> None:
        super().__init__("orders", value_deserializer=order_of)

    async def number(self) -> int:
        return (await self.getone()).value.number


class Lines(Consumer):
    async def line(self) -> bytes | None:
        return (await self.getone()).value


def unpacked(record: ConsumerRecord[str, Order]) -> None:
    topic, partition, offset, timestamp, kind, key, value, headers = record
    assert_type((topic, partition, offset, timestamp, kind), tuple[str, int, int, int, int])
    assert_type(key, str | None)
    assert_type(value, Order)
    assert_type(record.topic_partition, TopicPartition)
    print(headers)


async def admin() -> None:
    async with Admin() as client:
        try:
            await client.create_topics([NewTopic("orders", num_partitions=6)])
        except RecordTooLargeError:
            raise
        except KafkaError as error:
            assert_type(error.retriable, bool)


def without_await() -> None:
    with sync.Consumer("orders", group_id="g", value_deserializer=order_of) as consumer:
        assert_type(consumer, sync.Consumer[bytes, Order])
        for record in consumer:
            assert_type(record, ConsumerRecord[bytes, Order])
        assert_type(next(consumer), ConsumerRecord[bytes, Order])
        assert_type(consumer.getone(), ConsumerRecord[bytes, Order])
        assert_type(consumer.getmany(timeout_ms=10), dict[TopicPartition, list[ConsumerRecord[bytes, Order]]])
        assert_type(consumer.committed(TopicPartition("orders", 0)), int | None)
        consumer.commit({TopicPartition("orders", 0): 5})
        consumer.seek(TopicPartition("orders", 0), 5)
        consumer.run(lambda record: print(record.value), concurrency=4, dead_letter_topic="failed")
    with sync.Producer(key_serializer=str.encode, value_serializer=bytes_of) as producer:
        assert_type(producer, sync.Producer[str, Order])
        assert_type(producer.send_and_wait("orders", Order(1), key="a"), RecordMetadata)
        assert_type(producer.send("orders", Order(1), key="a"), sync.Receipt)
        assert_type(producer.send("orders", Order(1)).result(10), RecordMetadata)
        assert_type(producer.send_many("orders", map(Order, range(9))), list[sync.BatchReceipt])
        with producer.transaction():
            producer.flush()
    assert_type(sync.Consumer(), sync.Consumer[bytes, bytes | None])
    with sync.Admin(bootstrap_servers="localhost:9092") as client:
        assert_type(client.list_topics(), list[str])


def fixtures(kafka_broker: Broker, kafka_bootstrap_servers: str, kafka_faults: Faults) -> Iterator[Fault]:
    assert_type(Consumer("orders", bootstrap_servers=kafka_bootstrap_servers), Consumer[bytes, bytes | None])
    assert_type(kafka_broker.requests, list[SeenRequest])
    with kafka_faults.delay("Fetch", 0.5) as fault:
        yield fault
