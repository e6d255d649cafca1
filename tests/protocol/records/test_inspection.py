"""What is inside a batch is checked without reading it: what passes can be read, and what clients write passes."""

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import (
    HEADER_SIZE,
    RecordsSummary,
    build_batch,
    decode_records,
    inspect_records,
    iteration,
)
from tests.lots import in_lots
from tests.protocol.records.raw import UNREADABLE, raw_batch, raw_record, varint

ANY_NUMBER = 1 << 40

sizes = st.none() | st.sampled_from([0, 1, 10, 63, 64, 200, 8192])
headers = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=2)
times = st.integers(0, 100) | st.sampled_from([0, 5, 63, 64, 8191, 8192, 2**40])
#: Runs of equal records: how many, the size of the key and of the value, the headers, and the time.
runs = st.lists(st.tuples(st.integers(1, 90), sizes, sizes, headers, times), min_size=1, max_size=4)


def inspect(batch: bytes | bytearray, count: int, most_single: int = ANY_NUMBER) -> RecordsSummary | None:
    return inspect_records(bytes(batch[HEADER_SIZE:]), count, most_single)


def made(given: list[tuple[int, int | None, int | None, list[tuple[str, bytes | None]], int]]) -> bytearray:
    return build_batch(
        [
            (None if key is None else bytes(key), None if value is None else bytes(value), tail, time)
            for count, key, value, tail, time in given
            for _ in range(count)
        ]
    )


@settings(max_examples=100, deadline=None)
@given(runs)
def test_what_clients_write_passes(
    given: list[tuple[int, int | None, int | None, list[tuple[str, bytes | None]], int]],
) -> None:
    batch = made(given)
    records = decode_records(batch)
    deltas = [record.timestamp - records[0].timestamp for record in records]
    seen = inspect(batch, len(records))
    assert seen is not None
    assert (seen.keyless, seen.latest) == (any(record.key is None for record in records), max(deltas))
    assert seen.earliest <= min(deltas)
    with patch.object(iteration, "_LEAST_RUN", ANY_NUMBER):
        slow = inspect(batch, len(records))
    assert slow == seen._replace(earliest=slow.earliest if slow is not None else 0)


@settings(max_examples=200, deadline=None)
@given(
    given=runs,
    damage=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=3),
    change=st.integers(-1, 1),
)
def test_what_passes_can_be_read(
    given: list[tuple[int, int | None, int | None, list[tuple[str, bytes | None]], int]],
    damage: list[tuple[int, int]],
    change: int,
) -> None:
    batch = made(given)
    count = max(sum(run[0] for run in given) + change, 1)
    for at, byte in damage:
        batch[HEADER_SIZE + at % (len(batch) - HEADER_SIZE)] = byte
    data = bytes(batch[HEADER_SIZE:])
    try:
        seen = inspect_records(data, count, ANY_NUMBER)
    except DecodeError:
        return
    records = decode_records(raw_batch(data, count))
    assert [record.offset for record in records] == list(range(count))
    assert seen is not None
    assert seen.latest == max(record.timestamp for record in records)
    assert seen.keyless == any(record.key is None for record in records)


@in_lots(("data", "count"), UNREADABLE.values())
def test_unreadable_records(data: bytes, count: int) -> None:
    with pytest.raises(DecodeError):
        inspect_records(data, count, ANY_NUMBER)


@pytest.mark.parametrize("count", [64, 65, 8192, 8193, 17_000])
def test_runs_of_any_number_of_records(count: int) -> None:
    data = b"".join(raw_record(n, time=n // 3) for n in range(count))
    # A size changes with the bytes of a number, so few records are not part of a run.
    assert inspect_records(data, count, 2048) == RecordsSummary(False, 0, (count - 1) // 3)


def test_only_so_many_records_are_checked_one_by_one() -> None:
    data = b"".join(raw_record(n, value=bytes(n % 7)) for n in range(1000))
    assert inspect_records(data, 1000, 1000) is not None
    assert inspect_records(data, 1000, 999) is None


def test_times_before_the_first_one() -> None:
    data = raw_record(0) + raw_record(1, time=-50) + raw_record(2, time=7)
    assert inspect_records(data, 3, 3) == RecordsSummary(False, -50, 7)


def test_a_header_name_need_not_be_utf8() -> None:
    data = raw_record(tail=varint(1) + varint(1) + b"\xff" + varint(-1))
    assert inspect_records(data, 1, 1) is not None
    (record,) = decode_records(raw_batch(data, 1))
    assert record.headers == (("\N{REPLACEMENT CHARACTER}", None),)
