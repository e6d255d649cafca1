"""Schemas, and records of the topic, as they are read."""

import json
from typing import Any

import pytest

from barnabas_broker.schema_registry.errors import RegistryError
from barnabas_broker.schema_registry.records import CONFIG, SCHEMA, RegistryKey, SchemaChange, decode
from barnabas_broker.schema_registry.registry import Registry
from barnabas_broker.schema_registry.schemas import Schema

NESTED = "[" * 150 + "]" * 150


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"schema": ""},
        {"schema": 7},
        {"schema": "{"},
        {"schema": NESTED},
        {"schema": "[" * 100_000},
        {"schema": "1" * 5_000},
        {"schema": '"int"', "schemaType": "XML"},
        {"schema": '"int"', "schemaType": ["AVRO"]},
        {"schema": '"\\ud800"'},
        {"schema": "message \ud800", "schemaType": "PROTOBUF"},
        {"schema": '"int"', "references": {"a": 1}},
        {"schema": '"int"', "references": [7]},
        {"schema": '"int"', "references": [{"name": "a", "subject": "b", "version": True}]},
        {"schema": '"int"', "references": [{"name": "a", "subject": "b", "version": 2**31}]},
        {"schema": '"int"', "references": [{"name": "\udfff", "subject": "b", "version": 1}]},
        {"schema": '"int"', "references": [{"name": "a", "subject": "b", "version": 1}] * 201},
        {"schema": '"int"', "metadata": {"properties": {"a": "\ud800"}}},
    ],
)
def test_what_is_not_a_schema(fields: dict[str, Any]) -> None:
    with pytest.raises(RegistryError) as caught:
        Schema.of(fields)
    assert (caught.value.code, caught.value.status) == (42201, 422)


def test_the_bytes_of_confluents_records() -> None:
    """As Confluent's registry 7 has written them: a topic is compacted by the bytes of the keys."""
    schema = SchemaChange(RegistryKey(SCHEMA, "orders-value", 1), {"subject": "orders-value", "version": 1, "id": 1})
    assert schema.encode()[0] == b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}'
    assert SchemaChange(RegistryKey(CONFIG, None), None).encode() == (b'{"keytype":"CONFIG","magic":0}', None)
    assert RegistryKey("MODE", "a").encode() == b'{"keytype":"MODE","subject":"a","magic":0}'
    assert RegistryKey("DELETE_SUBJECT", "a").encode() == b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}'


def test_what_another_registry_has_written_is_read() -> None:
    registry = Registry()
    for key, value in [
        (b'{"keytype":"NOOP","magic":0}', None),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}'),
        (
            b'{"keytype":"SCHEMA","subject":"a","version":3,"magic":1}',
            b'{"subject":"a","version":3,"id":9,"md5":"x","schema":"\\"string\\"","deleted":false}',
        ),
        (b'{"keytype":"MODE","subject":"a","magic":0}', b'{"subject":"a","mode":"READONLY"}'),
    ]:
        change = decode(key, value)
        assert change is not None
        registry.apply(change)
    assert registry.level("a", or_default=True) == "FULL"
    assert registry.mode_of("a") == "READONLY"
    assert registry.version("a", None).fields | {"guid": ""} == {
        "subject": "a",
        "version": 3,
        "id": 9,
        "guid": "",
        "schema": '"string"',
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"\xff", b"{}"),
        (b"[]", b"{}"),
        (b"{}", b"{}"),
        (b'{"keytype":"SCHEMA"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":7}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":"1"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b"[]"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b"[" * 100_000),
    ],
)
def test_records_that_cannot_be_read_are_ignored(key: bytes | None, value: bytes) -> None:
    assert decode(key, value) is None


@pytest.mark.parametrize("value", [{}, {"id": 1}, {"id": "1", "schema": '"int"'}, {"id": 1, "schema": "{"}])
def test_records_without_a_schema_change_nothing(value: dict[str, object]) -> None:
    registry = Registry()
    change = decode(RegistryKey(SCHEMA, "a", 1).encode(), json.dumps(value).encode())
    if change is not None:
        registry.apply(change)
    assert registry.subjects() == []


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_the_text_of_a_schema_is_not_made_in_one_call_of_c(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # For a megabyte such a call takes 30 ms, in which no other thread runs.
    monkeypatch.setattr("json.encoder.c_make_encoder", None)
    text = '{"type":"object","properties":{"b":{"type":"integer","minimum":1.5},"a":{"const":null,"title":"\\u00e9"}}}'
    slow = Schema.of({"schema": text, "schemaType": kind})
    monkeypatch.setattr("json.encoder.c_make_encoder", lambda *arguments: pytest.fail("in one call"))
    assert Schema.of({"schema": text, "schemaType": kind}) == slow
