"""The serializers of confluent-kafka, unchanged, with the registry."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

AVRO = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}]}
JSON = {"title": "Order", "type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
CONTEXT = SerializationContext("orders", MessageField.VALUE)


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


@pytest.fixture
def other(url: str) -> Iterator[Any]:
    """Another client, which has to ask for what the first one has registered."""
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def test_avro(client: Any, other: Any) -> None:
    data = AvroSerializer(client, json.dumps(AVRO))({"number": 7}, CONTEXT)
    assert AvroDeserializer(other)(data, CONTEXT) == {"number": 7}
    assert other.get_subjects() == ["orders-value"]
    later = {**AVRO, "fields": [*AVRO["fields"], {"name": "note", "type": "string"}]}
    with pytest.raises(SchemaRegistryError, match="note") as caught:
        AvroSerializer(client, json.dumps(later))({"number": 7, "note": ""}, CONTEXT)
    assert (caught.value.http_status_code, caught.value.error_code) == (409, 40901)


def test_avro_with_a_reference(client: Any, other: Any) -> None:
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}
    order = {"type": "record", "name": "Order", "fields": [{"name": "price", "type": "shop.Money"}]}
    client.register_schema("money", Schema(json.dumps(money), "AVRO"))
    schema = Schema(json.dumps(order), "AVRO", [SchemaReference("shop.Money", "money", 1)])
    data = AvroSerializer(client, schema)({"price": {"cents": 3}}, CONTEXT)
    assert AvroDeserializer(other)(data, CONTEXT) == {"price": {"cents": 3}}


def test_json_schema(client: Any, other: Any) -> None:
    # Takes seconds of processor time: it builds the grammar of each kind of URI.
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    data = JSONSerializer(json.dumps(JSON), client)({"number": 7}, CONTEXT)
    assert JSONDeserializer(None, schema_registry_client=other)(data, CONTEXT) == {"number": 7}


def test_protobuf_with_a_dependency(client: Any, other: Any) -> None:
    pool = descriptor_pool.Default()
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", package="shop", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    order = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order.dependency.append("money.proto")
    fields = order.message_type.add(name="Order").field
    fields.add(name="price", number=1, type=11, label=1, type_name=".shop.Money")
    for each in (money, order):
        pool.Add(each)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    given = kind(price={"cents": 3})
    data = ProtobufSerializer(kind, client, {"use.deprecated.format": False})(given, CONTEXT)
    assert ProtobufDeserializer(kind, {"use.deprecated.format": False}, other)(data, CONTEXT) == given
    assert other.get_subjects() == ["money.proto", "orders-value"]


def test_the_rest_of_the_client(client: Any, other: Any) -> None:
    schema = Schema(json.dumps(AVRO), "AVRO")
    id = client.register_schema("orders-value", schema)
    assert client.lookup_schema("orders-value", schema).version == 1
    assert client.get_latest_version("orders-value").schema_id == id
    assert client.get_version("orders-value", 1).schema_id == id
    assert client.get_versions("orders-value") == [1]
    assert client.test_compatibility("orders-value", schema)
    assert client.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]
    client.set_compatibility("orders-value", "FULL")
    assert client.get_compatibility("orders-value") == "FULL"
    assert client.delete_subject("orders-value") == [1]
    assert client.delete_subject("orders-value", permanent=True) == [1]
    with pytest.raises(SchemaRegistryError) as caught:
        other.get_latest_version("orders-value")
    assert (caught.value.http_status_code, caught.value.error_code) == (404, 40401)
