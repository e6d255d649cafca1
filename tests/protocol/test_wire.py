"""Kafka's primitives, byte by byte, interpreted and compiled."""

from io import BytesIO
from typing import Any

import pytest
from construct import Construct
from hypothesis import given
from hypothesis import strategies as st

from barnabas_protocol import wire
from barnabas_protocol.codegen import compile_builder, compile_parser
from barnabas_protocol.wire import Array, Reader, WireError
from tests.lots import in_lots
from tests.protocol.support import BROKEN


def reader(data: bytes) -> Reader:
    made = Reader(data)
    made.size = len(data)
    return made


def both(con: Construct) -> list[Any]:
    """Functions that parse and build: of the interpreted form and of the compiled one."""
    parse, build = compile_parser(con, "test"), compile_builder(con, "test")
    return [
        (lambda data: con._parse(data, None, ""), lambda value, out: con._build(value, out, None, "")),
        (lambda data: parse(data, None), lambda value, out: build(value, out, None)),
    ]


CASES: list[tuple[Construct, object, bytes]] = [
    (wire.BOOLEAN, True, b"\1"),
    (wire.BOOLEAN, False, b"\0"),
    (wire.UVARINT, 300, b"\xac\x02"),
    (wire.UUID, bytes(range(16)), bytes(range(16))),
    (wire.STRING, "né", b"\0\3n\xc3\xa9"),
    (wire.NULLABLE_STRING, None, b"\xff\xff"),
    (wire.NULLABLE_STRING, "", b"\0\0"),
    (wire.COMPACT_STRING, "", b"\1"),
    (wire.COMPACT_STRING, "x" * 127, b"\x80\1" + b"x" * 127),
    (wire.COMPACT_NULLABLE_STRING, None, b"\0"),
    (wire.COMPACT_NULLABLE_STRING, "a", b"\2a"),
    (wire.BYTES, b"ab", b"\0\0\0\2ab"),
    (wire.NULLABLE_BYTES, None, b"\xff\xff\xff\xff"),
    (wire.NULLABLE_BYTES, b"", b"\0\0\0\0"),
    (wire.COMPACT_BYTES, b"ab", b"\3ab"),
    (wire.COMPACT_NULLABLE_BYTES, None, b"\0"),
    (wire.COMPACT_NULLABLE_BYTES, b"ab", b"\3ab"),
    (Array(wire.INT16, compact=False, nullable=False), [1, -1], b"\0\0\0\2\0\1\xff\xff"),
    (Array(wire.INT16, compact=False, nullable=True), None, b"\xff\xff\xff\xff"),
    (Array(wire.STRING, compact=True, nullable=False), [], b"\1"),
    (Array(wire.COMPACT_STRING, compact=True, nullable=True), ["a"], b"\2\2a"),
    (Array(wire.COMPACT_STRING, compact=True, nullable=True), None, b"\0"),
    (wire.INT8, -1, b"\xff"),
    (wire.UINT16, 65535, b"\xff\xff"),
    (wire.UINT32, 2**32 - 1, b"\xff\xff\xff\xff"),
    (wire.INT64, -2, b"\xff" * 7 + b"\xfe"),
    (wire.FLOAT64, 1.5, b"\x3f\xf8" + bytes(6)),
]


@in_lots(("con", "value", "data"), CASES)
def test_values_and_bytes(con: Construct, value: object, data: bytes) -> None:
    for parse, build in both(con):
        assert parse(reader(data)) == value
        out = BytesIO()
        build(value, out)
        assert out.getvalue() == data
        for size in range(len(data)):
            with pytest.raises(BROKEN):
                parse(reader(data[:size]))


@in_lots(
    ("con", "data"),
    [
        (wire.STRING, b"\xff\xff"),
        (wire.STRING, b"\0\1\xff"),
        (wire.NULLABLE_STRING, b"\xff\xfe"),
        (wire.NULLABLE_STRING, b"\x80\0"),
        (wire.COMPACT_STRING, b"\0"),
        (wire.COMPACT_NULLABLE_STRING, b"\2\xff"),
        (wire.BYTES, b"\xff\xff\xff\xff"),
        (wire.NULLABLE_BYTES, b"\xff\xff\xff\xfe"),
        (wire.COMPACT_STRING, wire.uvarint(32769) + b"x" * 32768),
        (wire.COMPACT_NULLABLE_STRING, wire.uvarint(32769) + b"x" * 32768),
        (wire.COMPACT_BYTES, b"\0"),
        (wire.COMPACT_NULLABLE_BYTES, b"\xff\xff\xff\xff\x0f"),
        (Array(wire.INT8, compact=False, nullable=False), b"\xff\xff\xff\xff"),
        (Array(wire.INT8, compact=False, nullable=True), b"\xff\xff\xff\xfe"),
        (Array(wire.INT8, compact=True, nullable=False), b"\0"),
        (Array(wire.INT64, compact=False, nullable=True), b"\0\0\0\2" + bytes(15)),
        (Array(wire.INT64, compact=True, nullable=True), b"\xff\xff\xff\xff\x0f" + bytes(100)),
    ],
)
def test_bytes_that_are_refused(con: Construct, data: bytes) -> None:
    for parse, _ in both(con):
        with pytest.raises(BROKEN):
            parse(reader(data))


@pytest.mark.parametrize(
    ("con", "value"),
    [
        (wire.STRING, None),
        (wire.STRING, "x" * 32768),
        (wire.COMPACT_STRING, None),
        (wire.BYTES, None),
        (wire.COMPACT_BYTES, None),
        (wire.UUID, b"short"),
        (wire.UUID, bytes(17)),
        (Array(wire.INT8, compact=False, nullable=False), None),
        (Array(wire.INT8, compact=True, nullable=False), None),
        (Array(wire.INT8, compact=True, nullable=False), [200]),
        (wire.INT8, 128),
    ],
)
def test_values_that_are_refused(con: Construct, value: object) -> None:
    for _, build in both(con):
        with pytest.raises((*BROKEN, AttributeError, TypeError)):
            build(value, BytesIO())


def test_every_byte_but_zero_is_true() -> None:
    assert [wire.read_boolean(reader(bytes([byte]))) for byte in (0, 1, 2, 255)] == [False, True, True, True]


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\1"), (16383, b"\xff\x7f"), (2**32 - 1, b"\xff\xff\xff\xff\x0f")],
)
def test_varints(value: int, data: bytes) -> None:
    assert wire.uvarint(value) == data
    assert wire.read_uvarint(reader(data)) == value


@given(st.integers(0, 2**32 - 1))
def test_varints_round_trip(value: int) -> None:
    data = wire.uvarint(value)
    assert wire.read_uvarint(reader(data + b"\xff")) == value
    assert len(data) == max(1, (value.bit_length() + 6) // 7)


def test_a_varint_may_be_longer_than_it_needs() -> None:
    assert wire.read_uvarint(reader(b"\x81\x80\x80\x80\0")) == 1


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\xff\xff\xff\xff\x10", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\0"]
)
def test_broken_varints(data: bytes) -> None:
    with pytest.raises(WireError):
        wire.read_uvarint(reader(data))


def test_elements_are_counted_over_the_whole_message() -> None:
    io = reader(bytes(wire.MAX_ELEMENTS + 10))
    assert wire.take_elements(io, wire.MAX_ELEMENTS, 1) == wire.MAX_ELEMENTS
    with pytest.raises(WireError, match="more array elements"):
        wire.take_elements(io, 1, 1)
    assert Reader(b"").budget == wire.MAX_ELEMENTS
