"""The Arrow columns of record batches, compared with the slow decoder."""

import random
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_pipeline.source.columns import arrow_schema, to_arrow
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import HEADER_SIZE, build_batch, decode_records, read_header

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
                        "timestamp": record.timestamp * 1000,
                        "timestampType": kind,
                        "headers": headers or None,
                    }
                )
    return rows


def rows_in(batch: pa.RecordBatch) -> list[dict[str, object]]:
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
    found = to_arrow("flights", 4, batches, start, end, headers=True)
    assert found.schema == arrow_schema(headers=True)
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
    found = to_arrow("flights", 4, batches, 0, len(sizes), headers=True)
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
    assert to_arrow("flights", 4, [batch], 6, 9, headers=True).num_rows == 0


def test_workers_do_not_import_pandas() -> None:
    program = """
import sys
from barnabas_pipeline.source.columns import to_arrow
from barnabas_protocol.records import build_batch
batch = build_batch([(b"key", None, (), 5), (None, b"value", (), 6)])
assert to_arrow("flights", 4, [batch], 0, 9, headers=True).num_rows == 2
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


def test_a_timestamp_out_of_range_is_clipped() -> None:
    batch = build_batch([(None, b"x", (), 2**62)])
    assert rows_in(to_arrow("flights", 4, [batch], 0, 1))[0]["timestamp"] == (2**63 - 1) // 1000 * 1000


def test_every_truncation_is_an_error() -> None:
    batch = bytes(build_batch([(b"key", b"value", (("h", b"x"),), 5), (None, None, (), 6)]))
    for size in range(61, len(batch)):
        cut = bytearray(batch[:size])
        cut[8:12] = (size - 12).to_bytes(4, "big")
        with pytest.raises(DecodeError):
            to_arrow("flights", 4, [cut], 0, 9, headers=True)


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
            to_arrow("flights", 4, [damaged], 0, 9, headers=True).validate(full=True)
        except DecodeError:
            refused += 1
    assert refused > 50


def test_a_decompression_bomb_is_an_error() -> None:
    batch = build_batch([(None, bytes(5_000_000), (), 0)], compression="zstd")
    assert len(batch) < 10_000
    with pytest.raises(DecodeError, match="over 1000000 bytes"):
        to_arrow("flights", 4, [batch], 0, 1, max_bytes=1_000_000)
