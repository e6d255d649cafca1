"""Reads a push of metrics: OpenTelemetry's ``MetricsData`` in Protobuf. Pure.

Clients send gauges and sums: librdkafka, the Java clients and franz-go have no other kinds. Histograms and summaries
are left out. Any bytes may come: the reader does not recurse, copies nothing but names and labels, and yields after
each field, so that a long message does not hold the event loop.

Schema: https://github.com/open-telemetry/opentelemetry-proto, ``metrics.proto``.
"""

import struct
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = struct.Struct("<d")
#: Bytes of the longest varint.
_LONGEST_VARINT: Final = 10
#: ``AGGREGATION_TEMPORALITY_DELTA``
_DELTA: Final = 1
#: Labels that are kept of a client, and of a point; the others are left out.
_MOST_LABELS: Final = 16
#: Characters of a name or label that are kept.
_LONGEST: Final = 200
_GAUGE, _SUM = 5, 7

_Labels = dict[str, str]
_Read = Generator["Point | None", None, T]


class MalformedMetrics(ValueError):
    """The bytes are not a message of metrics."""


class Point(NamedTuple):
    """One value of a metric.

    Attributes:
        name: of the metric, as the client sends it.
        labels: its attributes, and those of the client.
        value: the value.
        delta: the value is to be added to the one before.
        total: it is a sum, which stays what it is until the client sends another value.
    """

    name: str
    labels: _Labels
    value: float
    delta: bool
    total: bool = False


def points(data: bytes) -> Iterator[Point | None]:
    """The values of a message, and None after each field that is not one.

    Raises:
        MalformedMetrics: it cannot be read.
    """
    for resource in _submessages(memoryview(data), 1):
        if resource is None:
            yield None
        else:
            yield from _resource(resource)


def _resource(data: memoryview) -> _Read[None]:
    """``ResourceMetrics``: what is said of the client, and its metrics by scope."""
    shared: _Labels = {}
    for described in _submessages(data, 1):
        if described is None:
            yield None
        else:
            yield from _attributes(described, 1, shared)
    for scope in _submessages(data, 2):
        if scope is None:
            yield None
            continue
        for metric in _submessages(scope, 2):
            if metric is None:
                yield None
            else:
                yield from _metric(metric, shared)


def _metric(data: memoryview, shared: _Labels) -> _Read[None]:
    name, values, delta, total = "", [], False, False
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number in (_GAUGE, _SUM):
            inside, total = _message(value), number == _SUM
            for field, content in _fields(inside):
                if field == 1:
                    values.append(_message(content))
                elif field == 2 and number == _SUM:
                    delta = content == _DELTA
                yield None
        yield None
    for each in values:
        yield from _point(each, name, shared, delta=delta, total=total)


def _point(data: memoryview, name: str, shared: _Labels, *, delta: bool, total: bool) -> _Read[None]:
    labels = dict(shared)
    value: float | None = None
    for number, content in _fields(data):
        if number in (4, 6) and isinstance(content, bytes):
            (value,) = _DOUBLE.unpack(content) if number == 4 else (int.from_bytes(content, "little", signed=True),)
        yield None
    yield from _attributes(data, 7, labels)
    if value is not None:
        yield Point(name, labels, value, delta, total)


def _attributes(data: memoryview, number: int, labels: _Labels) -> _Read[None]:
    """Add ``KeyValue`` messages to labels; values that are lists or objects become empty."""
    most = len(labels) + _MOST_LABELS
    for each in _submessages(data, number):
        if each is not None:
            key, said = "", ""
            for field, content in _fields(each):
                if field == 1:
                    key = _text(content)
                elif field == 2:
                    said = yield from _said(_message(content))
                yield None
            if len(labels) < most:
                labels[key] = said
        yield None


def _said(data: memoryview) -> _Read[str]:
    """``AnyValue``"""
    said = ""
    for number, content in _fields(data):
        if number == 1:
            said = _text(content)
        elif number == 2:
            said = "true" if content else "false"
        elif number == 3 and isinstance(content, int):
            said = str(content - 2**64 if content >= 2**63 else content)
        elif number == 4 and isinstance(content, bytes):
            said = str(_DOUBLE.unpack(content)[0])
        yield None
    return said


def _submessages(data: memoryview, wanted: int) -> Iterator[memoryview | None]:
    """The messages in the fields with one number; None for any other field."""
    for number, content in _fields(data):
        yield _message(content) if number == wanted else None


#: The content of a field: a varint, eight bytes, or a text or message. Four bytes are nowhere used.
_Content = int | bytes | memoryview


def _fields(data: memoryview) -> Iterator[tuple[int, _Content]]:
    at, end = 0, len(data)
    while at < end:
        head, at = _varint(data, at)
        number, wire = head >> 3, head & 7
        content: _Content
        if wire == _VARINT:
            content, at = _varint(data, at)
        elif wire == _BYTES:
            size, at = _varint(data, at)
            content, at = data[at : at + size], at + size
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
            content, at = (bytes(data[at : at + size]) if size == 8 else 0), at + size
        else:
            raise MalformedMetrics(f"wire type {wire}")
        if at > end:
            raise MalformedMetrics("it is cut off")
        yield number, content


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for end in range(at, min(at + _LONGEST_VARINT, len(data))):
        byte = data[end]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), end + 1
        shift += 7
    raise MalformedMetrics("a number without an end")


def _message(content: _Content) -> memoryview:
    if not isinstance(content, memoryview):
        raise MalformedMetrics("a number where a message is expected")
    return content


def _text(content: _Content) -> str:
    try:
        return bytes(_message(content)).decode()[:_LONGEST]
    except UnicodeDecodeError as error:
        raise MalformedMetrics("a text that is not UTF-8") from error
