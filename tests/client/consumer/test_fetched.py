"""From fetched bytes to records: cutting, hiding, decoding, and what goes wrong."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_client.consumer.fetched import Chunk, Unpacked, cut
from barnabas_client.consumer.fetched import unpack as unpack_parts
from barnabas_client.errors import CorruptRecordError, RecordDeserializationError, RecordTooLargeError
from barnabas_client.structs import ConsumerRecord, TopicPartition
from barnabas_protocol.messages.fetch import AbortedTransaction
from barnabas_protocol.records import build_batch

T0 = TopicPartition("t", 0)
TIME = 1_700_000_000_000


def batch(
    *values: bytes,
    at: int = 0,
    producer: int = -1,
    transactional: bool = False,
    compression: str = "none",
    kind: int = 0,
) -> bytearray:
    return build_batch(
        [(b"k", value, (("h", b"v"),), TIME) for value in values],
        base_offset=at,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=transactional,
        compression=compression,
        leader_epoch=3,
        timestamp_type=kind,
    )


def marker(at: int, producer: int, commit: bool) -> bytearray:
    """A control batch that ends a transaction."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    return build_batch(
        [(key, b"\x00" * 6, (), TIME)],
        base_offset=at,
        producer_id=producer,
        producer_epoch=0,
        control=True,
        transactional=True,
    )


def unpack(tp: TopicPartition, chunk: Chunk, position: int, **settings: Any) -> Unpacked:
    """All parts in one."""
    parts = list(unpack_parts(tp, chunk, position, **settings))
    assert all(part.error is None for part in parts[:-1])
    return Unpacked([record for part in parts for record in part.records], parts[-1].end, parts[-1].error)


def values(chunks: list[Chunk], position: int = 0) -> list[bytes | None]:
    found: list[bytes | None] = []
    for chunk in chunks:
        unpacked = unpack(T0, chunk, position)
        assert unpacked.error is None
        found += [record.value for record in unpacked.records]
        position = chunk.end
    return found


def test_batches_become_chunks() -> None:
    data = bytes(batch(b"a", b"b") + batch(b"c", at=2))
    chunks = cut(T0, data, 0)
    assert [chunk.end for chunk in chunks] == [2, 3]
    assert [chunk.leader_epoch for chunk in chunks] == [3, 3]
    assert sum(chunk.size for chunk in chunks) == len(data)
    assert unpack(T0, chunks[1], 2).records == [ConsumerRecord("t", 0, 2, TIME, 0, b"k", b"c", (("h", b"v"),))]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_all_compressions(compression: str) -> None:
    assert values(cut(T0, batch(b"a", b"b", compression=compression), 0)) == [b"a", b"b"]


def test_reading_starts_in_the_middle_of_a_batch() -> None:
    chunks = cut(T0, batch(b"a", b"b", b"c"), 1)
    assert values(chunks, 1) == [b"b", b"c"]


def test_batches_before_the_fetch_offset_are_left_out() -> None:
    chunks = cut(T0, bytes(batch(b"a", b"b") + batch(b"c", at=2)), 2)
    assert values(chunks, 2) == [b"c"]


def test_an_incomplete_last_batch_is_left_for_the_next_fetch() -> None:
    data = bytes(batch(b"a") + batch(b"b", at=1))
    for missing in range(1, len(batch(b"b"))):
        assert [chunk.end for chunk in cut(T0, data[:-missing], 0)] == [1]


def test_a_batch_that_does_not_fit_is_an_error() -> None:
    (chunk,) = cut(T0, bytes(batch(b"a" * 100))[:80], 0)
    error = unpack(T0, chunk, 0).error
    assert isinstance(error, RecordTooLargeError)
    assert "raise max_partition_fetch_bytes" in str(error)


def test_control_batches_move_the_position_without_records() -> None:
    chunks = cut(T0, bytes(batch(b"a", producer=1, transactional=True) + marker(1, 1, commit=True)), 0)
    assert [chunk.end for chunk in chunks] == [1, 2]
    assert values(chunks) == [b"a"]


def test_read_committed_leaves_out_aborted_transactions() -> None:
    data = bytes(
        batch(b"a1", at=0, producer=1, transactional=True)
        + batch(b"b1", at=1, producer=2, transactional=True)
        + batch(b"plain", at=2)
        + batch(b"a2", at=3, producer=1, transactional=True)
        + marker(4, 1, commit=False)
        + batch(b"a3", at=5, producer=1, transactional=True)
        + marker(6, 1, commit=True)
        + marker(7, 2, commit=True)
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    assert values(cut(T0, data, 0, aborted)) == [b"b1", b"plain", b"a3"]
    assert values(cut(T0, data, 0, [])) == [b"a1", b"b1", b"plain", b"a2", b"a3"]
    assert values(cut(T0, data, 0)) == [b"a1", b"b1", b"plain", b"a2", b"a3"]


def test_several_aborted_transactions_of_one_producer() -> None:
    data = bytes(
        batch(b"1", at=0, producer=1, transactional=True)
        + marker(1, 1, commit=False)
        + batch(b"2", at=2, producer=1, transactional=True)
        + marker(3, 1, commit=True)
        + batch(b"3", at=4, producer=1, transactional=True)
        + marker(5, 1, commit=False)
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=4), AbortedTransaction(producer_id=1, first_offset=0)]
    assert values(cut(T0, data, 0, aborted)) == [b"2"]


@pytest.mark.parametrize("offset", range(7))
def test_a_fetch_begins_anywhere_among_transactions(offset: int) -> None:
    batches = (
        batch(b"1", at=0, producer=1, transactional=True),
        marker(1, 1, commit=False),
        batch(b"2", at=2, producer=1, transactional=True),
        marker(3, 1, commit=True),
        batch(b"3", at=4, producer=1, transactional=True),
        marker(5, 1, commit=False),
        batch(b"4", at=6),
    )
    ended = [(0, 1), (4, 5)]
    aborted = [AbortedTransaction(producer_id=1, first_offset=first) for first, last in ended if last >= offset]
    read = [(2, b"2"), (6, b"4")]
    assert values(cut(T0, b"".join(map(bytes, batches[offset:])), offset, aborted)) == [
        value for at, value in read if at >= offset
    ]


def test_timestamps_of_the_broker_are_marked() -> None:
    (chunk,) = cut(T0, batch(b"a", kind=1), 0)
    assert unpack(T0, chunk, 0).records[0].timestamp_type == 1


def test_a_broken_checksum_is_an_error_unless_checks_are_off() -> None:
    data = batch(b"aaaa")
    data[-2] ^= 1
    (chunk,) = cut(T0, data, 0)
    error = unpack(T0, chunk, 0).error
    assert isinstance(error, CorruptRecordError)
    assert "t-0 at offset 0" in str(error)
    assert "seek() over it" in str(error)
    assert [record.value for record in unpack(T0, chunk, 0, check_crcs=False).records] != [b"aaaa"]


def test_invalid_bytes_after_good_batches_are_an_error() -> None:
    data = bytes(batch(b"a")) + b"\x00" * 8 + b"\x00\x00\x00\x01" + b"\x00" * 60
    good, bad = cut(T0, data, 0)
    assert values([good]) == [b"a"]
    assert isinstance(unpack(T0, bad, 1).error, CorruptRecordError)


def test_an_old_message_format_is_an_error() -> None:
    data = bytearray(batch(b"a"))
    data[16] = 1
    (chunk,) = cut(T0, data, 0)
    assert isinstance(unpack(T0, chunk, 0).error, CorruptRecordError)


def test_deserializers_see_bytes_and_never_null() -> None:
    data = build_batch([(None, b"1", (), 0), (b'"k"', None, (), 0), (b'"k"', b"[2]", (), 0)])
    (chunk,) = cut(T0, data, 0)
    records, _, error = unpack(T0, chunk, 0, key_deserializer=json.loads, value_deserializer=json.loads)
    assert error is None
    assert [(record.key, record.value) for record in records] == [(None, 1), ("k", None), ("k", [2])]


def test_the_error_of_a_deserializer_has_partition_and_offset() -> None:
    (chunk,) = cut(T0, batch(b"1", b"2", b"x", b"4", at=10), 10)
    records, _, error = unpack(T0, chunk, 10, value_deserializer=json.loads)
    assert [record.value for record in records] == [1, 2]
    assert isinstance(error, RecordDeserializationError)
    assert (error.topic_partition, error.offset) == (T0, 12)
    assert isinstance(error.__cause__, ValueError)
    assert "seek() to offset 13" in str(error)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    start=st.integers(0, 12),
    compression=st.sampled_from(["none", "lz4"]),
)
def test_from_any_offset_each_record_comes_once(sizes: list[int], start: int, compression: str) -> None:
    data, offset = bytearray(), 0
    for size in sizes:
        data += batch(*(str(offset + at).encode() for at in range(size)), at=offset, compression=compression)
        offset += size
    start = min(start, offset)
    assert values(cut(T0, data, start), start) == [str(at).encode() for at in range(start, offset)]


@given(
    st.lists(st.one_of(st.binary(max_size=3), st.sampled_from([b"same"])), min_size=1, max_size=60),
    st.integers(1, 20),
    st.integers(0, 60),
    st.sampled_from(["none", "gzip"]),
)
def test_a_batch_in_parts_is_the_same_batch(contents: list[bytes], most: int, position: int, compression: str) -> None:
    (chunk,) = cut(T0, batch(*contents, compression=compression), 0)
    parts = list(unpack_parts(T0, chunk, position, most=most))
    assert all(len(part.records) <= most for part in parts)
    assert [part.end for part in parts] == sorted({part.end for part in parts})
    assert parts[-1].end == len(contents)
    assert [record.value for part in parts for record in part.records] == contents[position:]


def test_a_batch_that_breaks_in_the_middle_yields_the_records_before() -> None:
    whole = batch(b"aaaa", b"bbbb", b"cccc", b"dddd")
    whole[-20] ^= 0xFF
    parts = list(unpack_parts(T0, Chunk(4, memoryview(whole)), 0, check_crcs=False, most=1))
    assert parts[0].records[0].value == b"aaaa"
    assert isinstance(parts[-1].error, CorruptRecordError)
