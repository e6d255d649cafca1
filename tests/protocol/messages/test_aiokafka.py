"""Our bytes and aiokafka's for the same content, for every message and version that both have."""

import random
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from aiokafka.protocol.api import RequestHeader_v1, RequestHeader_v2, ResponseHeader_v0, ResponseHeader_v1
from aiokafka.protocol.types import Array, Schema, TaggedFields

from barnabas_protocol import codec
from barnabas_protocol.apis import APIS
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Field, Message, Request, Response, Struct
from tests.lots import in_lots
from tests.protocol.support import some

MODULES: Final = [
    import_module(f"aiokafka.protocol.{name}")
    for name in ("admin", "commit", "coordination", "fetch", "group", "metadata", "offset", "produce", "transaction")
]

#: aiokafka declares a leader epoch as int64, and writes a flexible version as if it were not. It sends neither.
WRONG: Final = {"OffsetRequest_v4", "OffsetRequest_v5", "DescribeAclsRequest_v2", "DescribeAclsResponse_v2"}


def _common() -> list[Any]:
    found = {}
    for module in MODULES:
        for name, theirs in vars(module).items():
            key, version = getattr(theirs, "API_KEY", None), getattr(theirs, "API_VERSION", None)
            if not isinstance(theirs, type) or key is None or key not in APIS or version is None:
                continue
            ours = APIS[ApiKey(key)][0 if "Request" in name else 1]
            if version in ours.VERSIONS and name not in WRONG:
                found[name] = (ours, version, theirs)
    return list(found.values())


def _positional(message: Struct, version: int, schema: Any) -> list[Any]:
    """The values of the fields that the version has, in order, for aiokafka's schemas."""
    fields = iter(f for f in message.FIELDS if version in f.versions and version not in f.tagged)
    values = _in_order(message, fields, version, schema)
    assert next(fields, None) is None
    return values


def _in_order(message: Struct, fields: Iterator[Field], version: int, schema: Any) -> list[Any]:
    values: list[Any] = []
    for of in schema.fields:
        if of is TaggedFields:
            values.append({})
        elif isinstance(of, Schema):
            values.append(tuple(_in_order(message, fields, version, of)))  # some of the fields, grouped
        else:
            values.append(_value(getattr(message, next(fields).name), version, of))
    return values


def _value(value: Any, version: int, of: Any) -> Any:
    if isinstance(value, list):
        assert isinstance(of, Array)
        return [_value(each, version, of.array_of) for each in value]
    if isinstance(value, Struct):
        if isinstance(of, Schema):
            return tuple(_positional(value, version, of))
        (only,) = [f for f in value.FIELDS if version in f.versions]
        return _value(getattr(value, only.name), version, of)
    return value


def _untagged(message: Struct) -> Any:
    """Without its tagged fields, which aiokafka cannot write."""
    for f in message.FIELDS:
        value = getattr(message, f.name)
        if f.tag is not None:
            setattr(message, f.name, f.absent())
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    _untagged(each)
    return message


def test_many_messages_are_compared() -> None:
    assert len(_common()) > 150


@in_lots(("cls", "version", "theirs"), _common())
def test_same_bytes(cls: type[Message], version: int, theirs: Any) -> None:
    rng = random.Random(theirs.__name__)
    for _ in range(6):
        message = _untagged(some(rng, cls, version))
        values = _positional(message, version, theirs.SCHEMA)
        ours, bytes_of_theirs = codec.encode(message, version), theirs(*values).encode()
        assert ours == bytes_of_theirs, message
        read = theirs.decode(ours)
        assert [getattr(read, name) for name in theirs.SCHEMA.names] == values
        assert codec.decode(cls, version, bytes_of_theirs) == message


@in_lots(("cls", "version", "theirs"), _common())
def test_same_frames(cls: type[Message], version: int, theirs: Any) -> None:
    message = _untagged(some(random.Random(theirs.__name__), cls, version))
    bare = theirs(*_positional(message, version, theirs.SCHEMA))
    flexible = version in message.FLEXIBLE
    if isinstance(message, Request):
        header = (RequestHeader_v2 if flexible else RequestHeader_v1)(bare, correlation_id=77, client_id="Größe")
        frame = codec.encode_request(message, version, 77, "Größe")
    else:
        assert isinstance(message, Response)
        header = ResponseHeader_v1(77, {}) if flexible else ResponseHeader_v0(77)
        frame = codec.encode_response(message, version, 77)
    body = header.encode() + bare.encode()
    assert frame == len(body).to_bytes(4, "big") + body
