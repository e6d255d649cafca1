"""Serializers and deserializers that get a context or are coroutine functions, against a broker in this process."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import (
    AsyncAvroDeserializer,
    AsyncAvroSerializer,
    AvroDeserializer,
    AvroSerializer,
)
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import barnabas.sync
from barnabas import Consumer, Producer, SerializationContext, TopicPartition
from barnabas.errors import IllegalStateError, RecordDeserializationError
from barnabas.testing import Broker
from barnabas_client.serialization import conversion_of, takes_context

READING = json.dumps({"type": "record", "name": "Reading", "fields": [{"name": "celsius", "type": "double"}]})
ORDER = json.dumps({"title": "Order", "type": "object", "properties": {"item": {"type": "string"}}})


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=False) as one:
        yield one


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex}"


def producer(broker: Broker, **settings: Any) -> "Producer[Any, Any]":
    return Producer(bootstrap_servers=broker.bootstrap_servers, **settings)


def consumer(broker: Broker, topic: str, **settings: Any) -> "Consumer[Any, Any]":
    return Consumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
        **settings,
    )


async def sent_and_read(broker: Broker, topic: str, value: object, serializer: object, deserializer: object) -> Any:
    async with producer(broker, value_serializer=serializer) as writer:
        await writer.send_and_wait(topic, value)
        for receipt in await writer.send_many(topic, [value, None]):
            await receipt
    async with consumer(broker, topic, value_deserializer=deserializer) as reader, asyncio.timeout(60):
        records = [await reader.getone() for _ in range(3)]
    assert records[2].value is None
    assert records[0].value == records[1].value
    return records[0].value


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (str.encode, False),
        (json.loads, False),
        (bytes.decode, False),
        (int, False),
        (Decimal, False),
        (lambda data: data, False),
        (partial(json.dumps, indent=1), False),
        (lambda data, ctx: data, True),
        (lambda data, ctx=None: data, True),
        (lambda data, place: data, True),
        (lambda data, place=1: data, False),
    ],
)
def test_a_context_is_for_functions_that_take_one(function: Any, wanted: bool) -> None:
    assert takes_context(function) is wanted
    assert (conversion_of(None, function) is not None) is wanted


async def test_both_halves_and_headers_are_said(broker: Broker, topic: str) -> None:
    said = []

    def serialize(value: str, ctx: SerializationContext) -> bytes:
        said.append((ctx.topic, ctx.field, list(ctx.headers)))
        ctx.headers.append((f"type-of-{ctx.field}", b"text"))
        return value.encode()

    async with producer(broker, key_serializer=serialize, value_serializer=serialize) as writer:
        await writer.send_and_wait(topic, "value", key="key", headers=[("own", b"1")])
    assert said == [(topic, "key", [("own", b"1")]), (topic, "value", [("own", b"1"), ("type-of-key", b"text")])]

    async def deserialize(data: bytes, ctx: SerializationContext) -> object:
        await asyncio.sleep(0)
        return data.decode(), ctx.topic, ctx.field, dict(ctx.headers)

    async with consumer(broker, topic, key_deserializer=deserialize, value_deserializer=deserialize) as reader:
        record = await reader.getone()
    headers = {"own": b"1", "type-of-key": b"text", "type-of-value": b"text"}
    assert record.key == ("key", topic, "key", headers)
    assert record.value == ("value", topic, "value", headers)


async def test_coroutine_functions_are_awaited(broker: Broker, topic: str) -> None:
    async def serialize(number: int) -> bytes:
        await asyncio.sleep(0)
        return b"%d" % number

    async def deserialize(data: bytes) -> int:
        await asyncio.sleep(0)
        return int(data)

    assert await sent_and_read(broker, topic, 7, serialize, deserialize) == 7


async def test_all_ways_to_read_deserialize_once(broker: Broker, topic: str) -> None:
    async def deserialize(data: bytes) -> str:
        return data.decode()

    async with producer(broker) as writer:
        await asyncio.gather(*await writer.send_many(topic, [b"%d" % number for number in range(9)]))
    async with consumer(broker, topic, value_deserializer=deserialize) as reader, asyncio.timeout(60):
        assert (await reader.getone()).value == "0"
        assert [one.value for one in await reader.poll(max_records=2)] == ["1", "2"]
        async for record in reader:
            assert record.value == "3"
            break
        (taken,) = (await reader.getmany(timeout_ms=1_000, max_records=2)).values()
        assert [one.value for one in taken] == ["4", "5"]
        assert (await reader.getmany_arrow(timeout_ms=10_000)).column("value").to_pylist() == [b"6", b"7", b"8"]


async def test_an_error_names_the_record_and_the_others_are_read(broker: Broker, topic: str) -> None:
    async def deserialize(data: bytes) -> int:
        return int(data)

    async with producer(broker) as writer:
        await asyncio.gather(*await writer.send_many(topic, [b"0", b"1", b"two", b"3"]))
    async with consumer(broker, topic, value_deserializer=deserialize) as reader, asyncio.timeout(60):
        assert [(await reader.getone()).value for _ in range(2)] == [0, 1]
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match="record at offset 2") as caught:
                await reader.getone()
            assert isinstance(caught.value.__cause__, ValueError)
        reader.seek(TopicPartition(topic, 0), 3)
        assert (await reader.getone()).value == 3


async def test_a_seek_while_a_deserializer_waits_wins(broker: Broker, topic: str) -> None:
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def deserialize(data: bytes) -> int:
        waits.set()
        await goes_on.wait()
        return int(data)

    async with producer(broker) as writer:
        await asyncio.gather(*await writer.send_many(topic, [b"%d" % number for number in range(5)]))
    async with consumer(broker, topic, value_deserializer=deserialize) as reader, asyncio.timeout(60):
        poll = asyncio.ensure_future(reader.getone())
        await waits.wait()
        reader.seek(TopicPartition(topic, 0), 3)
        goes_on.set()
        assert (await poll).value == 3


async def test_errors_of_serializers(broker: Broker, topic: str) -> None:
    async def serialize(number: int) -> bytes:
        await asyncio.sleep(0)
        return b"%d" % (1 // number)

    async with producer(broker, value_serializer=serialize) as writer:
        with pytest.raises(ZeroDivisionError):
            await writer.send(topic, 0)
        with pytest.raises(ZeroDivisionError) as caught:
            await writer.send_many(topic, [1, 1, 0, 1])
        assert f"send_many to {topic}: a serializer raised this for record 2" in caught.value.__notes__
        await writer.partitions_for(topic)
        with pytest.raises(IllegalStateError, match="a serializer has to be awaited"):
            writer.send_nowait(topic, 1)
        await writer.flush()
    async with consumer(broker, topic) as reader:
        end = await reader.end_offsets([TopicPartition(topic, 0)])
    assert end == {TopicPartition(topic, 0): 2}


async def test_send_nowait_with_a_context(broker: Broker, topic: str) -> None:
    async with producer(broker, value_serializer=lambda value, ctx: value.encode()) as writer:
        await writer.partitions_for(topic)
        assert (await writer.send_nowait(topic, "x")).offset == 0


def test_without_await(broker: Broker, topic: str) -> None:
    async def deserialize(data: bytes) -> str:
        return data.decode()

    with barnabas.sync.Producer(
        bootstrap_servers=broker.bootstrap_servers, value_serializer=lambda value, ctx: value.encode()
    ) as writer:
        writer.send_and_wait(topic, "x")
    with barnabas.sync.Consumer(
        topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", value_deserializer=deserialize
    ) as reader:
        assert next(iter(reader)).value == "x"


# The serializers of confluent_kafka.


@pytest.fixture(scope="module")
def url(broker: Broker) -> str:
    return broker.serve_schema_registry()


async def test_avro(broker: Broker, topic: str, url: str) -> None:
    with SchemaRegistryClient({"url": url}) as registry:
        value = {"celsius": 19.5}
        assert (
            await sent_and_read(broker, topic, value, AvroSerializer(registry, READING), AvroDeserializer(registry))
            == value
        )
        assert registry.get_latest_version(f"{topic}-value").schema.schema_str == READING.replace(" ", "")


async def test_avro_without_blocking_the_event_loop(broker: Broker, topic: str, url: str) -> None:
    async with AsyncSchemaRegistryClient({"url": url}) as registry:
        serializer, deserializer = await AsyncAvroSerializer(registry, READING), await AsyncAvroDeserializer(registry)
        assert await sent_and_read(broker, topic, {"celsius": 1.5}, serializer, deserializer) == {"celsius": 1.5}


async def test_json_schema(broker: Broker, topic: str, url: str) -> None:
    # Takes seconds of processor time: it builds the grammar of each kind of URI.
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    with SchemaRegistryClient({"url": url}) as registry:
        serializer, deserializer = (
            JSONSerializer(ORDER, registry),
            JSONDeserializer(ORDER, schema_registry_client=registry),
        )
        assert await sent_and_read(broker, topic, {"item": "tea"}, serializer, deserializer) == {"item": "tea"}


async def test_protobuf(broker: Broker, topic: str, url: str) -> None:
    with SchemaRegistryClient({"url": url}) as registry:
        order = _order_class()
        serializer = ProtobufSerializer(order, registry, {"use.deprecated.format": False})
        deserializer = ProtobufDeserializer(order, {"use.deprecated.format": False}, registry)
        assert await sent_and_read(broker, topic, order(item="tea"), serializer, deserializer) == order(item="tea")


def _order_class() -> Any:
    """What protoc makes of `message Order { string item = 1; }`."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    field = file.message_type.add(name="Order").field.add(name="item", number=1)
    field.type, field.label = field.TYPE_STRING, field.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


async def test_the_id_of_a_schema_in_a_header(broker: Broker, topic: str, url: str) -> None:
    with SchemaRegistryClient({"url": url}) as registry:
        serializer = AvroSerializer(registry, READING, conf={"schema.id.serializer": header_schema_id_serializer})
        async with producer(broker, value_serializer=serializer) as writer:
            await writer.send_and_wait(topic, {"celsius": 2.5})
        async with consumer(broker, topic, value_deserializer=AvroDeserializer(registry)) as reader:
            record = await reader.getone()
        assert record.value == {"celsius": 2.5}
        assert [name for name, _ in record.headers] == ["__value_schema_id"]
