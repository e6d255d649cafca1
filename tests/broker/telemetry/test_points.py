"""Pushes of metrics are read, and damaged or hostile ones refused within bounds."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.telemetry import MalformedMetrics, Point, points


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fixed(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 1) + content


def attribute(key: str, value: bytes) -> bytes:
    return field(1, key.encode()) + field(2, value)


def point(value: float | int, **labels: str) -> bytes:
    number = fixed(4, struct.pack("<d", value)) if isinstance(value, float) else fixed(6, struct.pack("<q", value))
    return b"".join(field(7, attribute(key, field(1, text.encode()))) for key, text in labels.items()) + number


def gauge(name: str, *each: bytes) -> bytes:
    return field(1, name.encode()) + field(5, b"".join(field(1, one) for one in each))


def total(name: str, temporality: int, *each: bytes) -> bytes:
    return field(1, name.encode()) + field(7, b"".join(field(1, one) for one in each) + field(2, temporality))


def message(*metrics: bytes, **resource: str) -> bytes:
    said = field(1, b"".join(field(1, attribute(key, field(1, text.encode()))) for key, text in resource.items()))
    return field(1, said + field(2, b"".join(field(2, one) for one in metrics)))


def read(data: bytes) -> list[Point]:
    return [one for one in points(data) if one is not None]


PUSH = message(
    gauge("a.b", point(1.5, topic="t"), point(-7)),
    total("c", 2, point(3)),
    total("d", 1, point(4, node_id="1")),
    group_id="g",
)


def test_gauges_and_sums_are_read() -> None:
    assert read(PUSH) == [
        Point("a.b", {"group_id": "g", "topic": "t"}, 1.5, False),
        Point("a.b", {"group_id": "g"}, -7, False),
        Point("c", {"group_id": "g"}, 3, False, total=True),
        Point("d", {"group_id": "g", "node_id": "1"}, 4, True, total=True),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (field(1, b"x"), "x"),
        (field(2, 1), "true"),
        (field(2, 0), "false"),
        (field(3, 7), "7"),
        (field(3, 2**64 - 7), "-7"),
        (fixed(4, struct.pack("<d", 0.5)), "0.5"),
        (field(5, b""), ""),
    ],
)
def test_labels_of_all_types(value: bytes, text: str) -> None:
    labelled = field(7, attribute("k", value)) + point(1)
    assert read(message(gauge("a", labelled))) == [Point("a", {"k": text}, 1, False)]


def test_other_fields_and_kinds_are_left_out() -> None:
    histogram = field(1, b"h") + field(9, b"\xff\xff")
    other = fixed(9, bytes(8)) + varint(10 << 3 | 5) + bytes(4) + field(11, 5)
    assert read(other + message(histogram, gauge("a", other + point(1)))) == [Point("a", {}, 1, False)]
    assert read(message(gauge("a", field(7, attribute("k", b""))))) == []  # no value


def test_labels_are_bounded() -> None:
    many = {f"k{number}": "v" for number in range(100)}
    (one,) = read(message(gauge("a", point(1, **many)), **{f"r{number}": "v" for number in range(100)}))
    assert len(one.labels) == 32


def test_a_message_that_is_cut_off_is_refused() -> None:
    assert read(b"") == []
    for end in range(1, len(PUSH)):
        with pytest.raises(MalformedMetrics):
            read(PUSH[:end])


@pytest.mark.parametrize(
    "data",
    [
        b"\x0b",  # a group
        b"\x0f",  # a wire type that does not exist
        b"\xff" * 11,  # a number without an end
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # longer than all memory
        b"\x08\x01",  # a number where a message is expected
        message(field(1, b"\xff") + field(5, b"")),  # not UTF-8
    ],
)
def test_damaged_messages(data: bytes) -> None:
    with pytest.raises(MalformedMetrics):
        read(data)


@given(st.binary(max_size=200), st.integers(0, len(PUSH)))
def test_any_bytes_are_read_or_refused(data: bytes, at: int) -> None:
    for each in (data, PUSH[:at] + data + PUSH[at:]):
        try:
            assert all(isinstance(one.value, int | float) for one in read(each))
        except MalformedMetrics:
            pass


MANY = field(15, 0) * 1000


@pytest.mark.parametrize(
    "data",
    [
        MANY,
        field(1, MANY),
        field(1, field(1, MANY)),
        field(1, field(1, field(1, MANY))),
        field(1, field(2, MANY)),
        message(MANY),
        message(field(5, MANY)),
        message(gauge("a", MANY)),
        message(gauge("a", field(7, MANY))),
        message(gauge("a", field(7, attribute("k", MANY)))),
    ],
)
def test_a_turn_of_the_loop_is_possible_after_each_field(data: bytes) -> None:
    assert len(list(points(data))) >= 1000


def test_names_and_labels_are_cut() -> None:
    (one,) = read(message(gauge("n" * 1000, point(1, **{"k" * 1000: "v" * 1000}))))
    assert one == Point("n" * 200, {"k" * 200: "v" * 200}, 1, False)
