"""Reading records of one size in bulk gives what reading them one by one gives."""

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import HEADER_SIZE, Headers, Record, build_batch, decode_records, iteration

pytestmark = pytest.mark.broad

Given = tuple[bytes | None, bytes | None, Headers, int]

sizes = st.none() | st.sampled_from([0, 1, 10, 63, 64, 200])
#: Records that differ from the others: index and difference.
exceptions = st.dictionaries(st.integers(0, 150), st.sampled_from(["value", "key", "header", "later", "much later"]))


def made(count: int, key_size: int | None, value_size: int | None, exceptions: dict[int, str]) -> list[Given]:
    given: list[Given] = []
    time = 1_000
    for at in range(count):
        other = exceptions.get(at)
        time += {"later": 1, "much later": 70}.get(other or "", 0)
        key = None if key_size is None or other == "key" else bytes([at % 256]) * key_size
        value = None if value_size is None or other == "value" else bytes([at % 251]) * value_size
        given.append((key, value, [("h", b"x")] if other == "header" else [], time))
    return given


def read(batch: bytes | bytearray) -> list[Record] | str:
    try:
        return decode_records(batch)
    except DecodeError:
        return "refused"


def one_by_one(batch: bytes | bytearray) -> list[Record] | str:
    with patch.object(iteration, "_LEAST_RUN", 1 << 40):
        return read(batch)


@settings(max_examples=150)
@given(count=st.integers(1, 150), key_size=sizes, value_size=sizes, exceptions=exceptions)
def test_records_of_one_size(
    count: int, key_size: int | None, value_size: int | None, exceptions: dict[int, str]
) -> None:
    given = made(count, key_size, value_size, exceptions)
    batch = build_batch(given, base_offset=7)
    assert read(batch) == one_by_one(batch)
    assert read(batch) == [
        Record(7 + at, time, key, value, tuple(headers)) for at, (key, value, headers, time) in enumerate(given)
    ]


@settings(max_examples=150)
@given(
    count=st.integers(1, 90),
    value_size=sizes,
    damage=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 30),
)
def test_damaged_records(count: int, value_size: int | None, damage: list[tuple[int, int]], cut: int) -> None:
    batch = bytearray(build_batch(made(count, None, value_size, {})))
    for at, byte in damage:
        batch[HEADER_SIZE + at % (len(batch) - HEADER_SIZE)] = byte
    del batch[max(len(batch) - cut, HEADER_SIZE) :]
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    assert read(batch) == one_by_one(batch)


def test_thousands_of_records() -> None:
    """Offsets of one, two and three bytes."""
    given = made(9_000, None, 5, {8_500: "much later"})
    batch = build_batch(given)
    found = decode_records(batch)
    assert found == one_by_one(batch)
    assert [record.offset for record in found] == list(range(9_000))
