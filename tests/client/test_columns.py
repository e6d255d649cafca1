"""The Arrow columns of record batches, compared with the slow decoder."""

import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_client.columns import GROUP_BYTES, SCHEMA, Columns, iter_columns, table_of
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import HEADER_SIZE, build_batch, decode_records, read_header
from barnabas_protocol.wire import Buffer

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        HEADERS,
        st.integers(0, 2**45),
    ),
    min_size=1,
    max_size=20,
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def columns_of(batches: Iterable[Buffer], start: int, end: int, **given: Any) -> list[Columns]:
    """The parts; the tests damage batches and leave their CRC as it is."""
    return list(iter_columns(batches, start, end, check_crcs=False, **given))


def to_arrow(topic: str, partition: int, batches: Iterable[Buffer], start: int, end: int, **given: Any) -> pa.Table:
    parts = columns_of(batches, start, end, **given)
    return pa.Table.from_batches([table_of(topic, partition, part) for part in parts], SCHEMA)


def expected(batches: list[bytearray], start: int, end: int, kinds: list[int]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for batch, kind in zip(batches, kinds, strict=True):
        for record in decode_records(batch):
            if start <= record.offset < end:
                headers = [{"key": name, "value": value} for name, value in record.headers]
                rows.append(
                    {
                        "key": record.key,
                        "value": record.value,
                        "topic": "flights",
                        "partition": 4,
                        "offset": record.offset,
                        "timestamp": record.timestamp,
                        "timestamp_type": kind,
                        "headers": headers or None,
                    }
                )
    return rows


def rows_in(batch: pa.Table) -> list[dict[str, object]]:
    batch.validate(full=True)
    number = batch.schema.get_field_index("timestamp")
    rows: list[dict[str, object]] = batch.set_column(
        number, "timestamp", batch.column(number).cast(pa.int64())
    ).to_pylist()
    return rows


@given(
    st.lists(st.tuples(RECORDS, st.sampled_from(CODECS), st.integers(0, 1), st.integers(0, 5)), min_size=1, max_size=4),
    st.integers(0, 40),
    st.integers(0, 60),
)
def test_columns_match_the_slow_decoder(
    content: list[tuple[list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]], str, int, int]],
    start: int,
    end: int,
) -> None:
    batches: list[bytearray] = []
    offset = 0
    for records, codec, kind, gap in content:
        batches.append(build_batch(records, base_offset=offset + gap, compression=codec, timestamp_type=kind))
        offset = read_header(batches[-1]).next_offset
    kinds = [kind for _, _, kind, _ in content]
    found = to_arrow("flights", 4, batches, start, end)
    assert found.schema == SCHEMA
    assert rows_in(found) == expected(batches, start, end, kinds)


def test_lengths_of_several_bytes_are_read() -> None:
    sizes = [0, 63, 64, 8191, 8192, 1_048_576, 3]
    records = [(b"k" * size, b"v" * size, (), 1_700_000_000_000 + size) for size in sizes]
    batch = build_batch(records, base_offset=10)
    found = to_arrow("flights", 4, [batch], 0, 100)
    assert found.column("key").to_pylist() == [b"k" * size for size in sizes]
    assert found.column("value").to_pylist() == [b"v" * size for size in sizes]
    assert found.column("offset").to_pylist() == list(range(10, 17))


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 57, 58, 8180, 9000]), st.sampled_from([1, 31, 32, 65, 300])), max_size=5)
)
def test_records_of_equal_length_are_found_together(runs: list[tuple[int, int]]) -> None:
    sizes = [size for size, count in runs for _ in range(count)]
    batches: list[bytearray] = []
    # Equal lengths continue from one batch to the next.
    for part in (sizes[: len(sizes) // 3], sizes[len(sizes) // 3 :]):
        first = len(batches) and read_header(batches[-1]).next_offset
        if part:
            records = [(None, b"v" * size, (), 1_700_000_000_000) for size in part]
            batches.append(build_batch(records, base_offset=first))
    found = to_arrow("flights", 4, batches, 0, len(sizes))
    assert rows_in(found) == expected(batches, 0, len(sizes), [0] * len(batches))


@pytest.mark.parametrize("place", [0, 40, 99])
def test_one_wrong_length_is_an_error(place: int) -> None:
    batch = build_batch([(None, b"v" * 20, (), 5)] * 100)
    assert to_arrow("flights", 4, [batch], 0, 100).num_rows == 100
    at = HEADER_SIZE
    for _ in range(place):
        at += 1 + batch[at] // 2
    batch[at] += 2  # one byte too many
    with pytest.raises(DecodeError):
        to_arrow("flights", 4, [batch], 0, 100)


def test_no_records_give_no_rows() -> None:
    batch = build_batch([(None, b"x", (), 0)], base_offset=5)
    assert to_arrow("flights", 4, [batch], 6, 9).num_rows == 0


def test_pandas_is_not_imported() -> None:
    program = """
import sys
from barnabas_client.columns import iter_columns, table_of
from barnabas_protocol.records import build_batch
batch = build_batch([(b"key", None, (), 5), (None, b"value", (), 6)])
assert [table_of("flights", 4, part).num_rows for part in iter_columns([batch])] == [2]
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


def test_every_truncation_is_an_error() -> None:
    batch = bytes(build_batch([(b"key", b"value", (("h", b"x"),), 5), (None, None, (), 6)]))
    for size in range(61, len(batch)):
        cut = bytearray(batch[:size])
        cut[8:12] = (size - 12).to_bytes(4, "big")
        with pytest.raises(DecodeError):
            to_arrow("flights", 4, [cut], 0, 9)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_batches_raise_decode_errors_only(seed: int) -> None:
    rng = random.Random(seed)
    records = [(b"key" * rng.randrange(50), b"value" * rng.randrange(50), (), rng.randrange(2**40)) for _ in range(5)]
    batch = bytes(build_batch(records))
    refused = 0
    for _ in range(1500):
        damaged = bytearray(batch)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(57, len(batch))] = rng.randrange(256)
        try:
            to_arrow("flights", 4, [damaged], 0, 9).validate(full=True)
        except DecodeError:
            refused += 1
    assert refused > 50


def test_a_decompression_bomb_is_an_error() -> None:
    batch = build_batch([(None, bytes(5_000_000), (), 0)], compression="zstd")
    assert len(batch) < 10_000
    with pytest.raises(DecodeError, match="over 1000000 bytes"):
        to_arrow("flights", 4, [batch], 0, 1, max_bytes=1_000_000)


def test_parts_have_no_more_records_than_wanted_and_say_where_they_end() -> None:
    batches = [
        build_batch([(None, b"v" * (number % 7), (), 5) for number in range(count)], base_offset=base)
        for base, count in ((0, 10), (20, 100), (200, 1))
    ]
    parts = columns_of(batches, 5, 1000, most=40)
    assert [len(part.offsets) for part in parts] == [35, 40, 31]
    assert [part.end for part in parts] == [50, 90, 201]
    assert [int(offset) for part in parts for offset in part.offsets] == [*range(5, 10), *range(20, 120), 200]


def test_batches_are_decompressed_a_group_at_a_time() -> None:
    batch = build_batch([(None, bytes(GROUP_BYTES // 2), (), 0)], compression="zstd")
    read = []

    def batches() -> Iterator[Buffer]:
        for number in range(100):
            read.append(number)
            yield batch

    parts = iter_columns(batches(), check_crcs=False)
    assert len(next(parts).offsets) == 1
    assert len(read) <= 3


def test_records_before_a_broken_batch_come_first() -> None:
    fine = build_batch([(None, b"fine", (), 0)] * 3)
    for place in (11, HEADER_SIZE):  # the size of the batch, and the length of a record
        broken = build_batch([(None, b"broken", (), 0)] * 3, base_offset=3)
        broken[place] += 2
        parts = iter_columns([fine, broken, fine], check_crcs=False)
        assert next(parts).end == 3
        with pytest.raises(DecodeError):
            list(parts)


def test_a_wrong_checksum_is_an_error_unless_it_is_not_checked() -> None:
    batch = build_batch([(None, b"value", (), 0)])
    batch[-2] ^= 1
    with pytest.raises(DecodeError, match="CRC"):
        list(iter_columns([batch]))
    assert columns_of([batch], 0, 1)[0].values.to_pylist() == [b"valu" + bytes([batch[-2]])]


def test_headers_are_left_out_unless_wanted() -> None:
    (part,) = columns_of([build_batch([(None, b"x", (("h", b"1"),), 0)])], 0, 1, headers=False)
    assert part.headers is None
