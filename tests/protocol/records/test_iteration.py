"""Records out of batches: compared with a model, and from broken bytes."""

import random
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import (
    HEADER_SIZE,
    BatchBuilder,
    Codec,
    ControlType,
    Headers,
    Record,
    build_batch,
    check_batch,
    control_record_type,
    decode_records,
    read_header,
)
from tests.protocol.support import damaged

CODECS = [codec.name.lower() for codec in Codec]
Given = tuple[bytes | None, bytes | None, Headers, int]

binary = st.binary(max_size=20) | st.sampled_from([63, 64, 65, 8191, 8192, 20_000]).map(bytes)
header_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
records = st.tuples(
    st.none() | binary,
    st.none() | binary,
    st.lists(st.tuples(header_names, st.none() | st.binary(max_size=8)), max_size=3),
    st.integers(0, 2**41) | st.sampled_from([-1, 0, 63, 64, 8191, 8192, 2**62]),
)


def expected(given: list[Given], base_offset: int) -> list[Record]:
    return [
        Record(base_offset + n, timestamp, key, value, tuple(headers))
        for n, (key, value, headers, timestamp) in enumerate(given)
    ]


@settings(max_examples=150)
@given(
    given=st.lists(records, min_size=1, max_size=12),
    compression=st.sampled_from(CODECS),
    base_offset=st.integers(0, 2**62),
)
def test_built_batches_are_read(given: list[Given], compression: str, base_offset: int) -> None:
    batch = build_batch(given, compression=compression, base_offset=base_offset, leader_epoch=3)
    header = read_header(batch)
    check_batch(header, batch)
    assert (header.codec, header.count, header.last_offset) == (
        Codec.of(compression),
        len(given),
        base_offset + len(given) - 1,
    )
    assert header.max_timestamp == max(timestamp for *_, timestamp in given)
    for view in (batch, bytes(batch), memoryview(batch)):
        assert decode_records(view) == expected(given, base_offset)


def test_more_records_than_small_varints_can_count() -> None:
    given: list[Given] = [(None, b"%d" % n, (), 1000 + n) for n in range(9000)]
    assert decode_records(build_batch(given)) == expected(given, 0)


def test_keys_and_values_are_bytes() -> None:
    (record,) = decode_records(build_batch([(bytearray(b"k"), memoryview(b"v"), [("h", b"x")], 5)]))
    assert record == Record(0, 5, b"k", b"v", (("h", b"x"),))
    assert type(record.key) is type(record.value) is bytes


def test_offsets_with_gaps() -> None:
    """Compaction keeps the deltas of the remaining records."""
    head = build_batch([(None, b"a", (), 5)])[:HEADER_SIZE]
    data = _record(offset=3, value=b"a") + _record(offset=70, value=b"b") + _record(offset=9000, value=b"c")
    batch = _batch(head, data, count=3, last=9001)
    assert [record.offset for record in decode_records(batch)] == [3, 70, 9000]


def _zigzag(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _bytes(value: bytes | None) -> bytes:
    return b"\x01" if value is None else _zigzag(len(value)) + value


def _record(
    offset: int = 0, value: bytes | None = b"v", key: bytes | None = None, time: int = 0, tail: bytes = b"\0"
) -> bytes:
    body = b"\0" + _zigzag(time) + _zigzag(offset) + _bytes(key) + _bytes(value) + tail
    return _zigzag(len(body)) + body


def _batch(head: bytes | bytearray, data: bytes, *, count: int = 1, last: int = 0) -> bytes:
    batch = bytearray(head[:HEADER_SIZE]) + data
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, last)
    struct.pack_into(">i", batch, 57, count)
    return bytes(batch)


HEAD = build_batch([(None, b"a", (), 5)])[:HEADER_SIZE]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(_record()[:-1], id="truncated"),
        pytest.param(_record() + b"\0", id="something follows"),
        pytest.param(b"\x13" + _record()[1:], id="negative length"),
        pytest.param(b"\x10" + _record()[1:], id="too short a length"),
        pytest.param(b"\x80\x02" + _record()[1:], id="too long a length"),
        pytest.param(b"\xff" * 10 + b"\x01" + bytes(20), id="varint without end"),
        pytest.param(b"\xfe\xff\xff\xff\xff\x01" + bytes(20), id="length over 31 bits"),
        pytest.param(_zigzag(9) + b"\0\0\0" + b"\x03" + b"\x02v\0\0\0", id="key of -2 bytes"),
        pytest.param(_zigzag(9) + b"\0\0\0" + b"\x01" + b"\x03v\0\0\0", id="value of -2 bytes"),
        pytest.param(_zigzag(9) + b"\0\0\0" + b"\x01" + b"\x7e" + b"vvv\0", id="value beyond the record"),
        pytest.param(_zigzag(7) + b"\0\0\x01" + b"\x01\x02v\0", id="negative offset delta"),
        pytest.param(_record(tail=_zigzag(-1)), id="headers of -1"),
        pytest.param(_record(tail=_zigzag(2**30)), id="a billion headers"),
        pytest.param(_record(tail=b"\x02" + b"\x01" + b"\x01"), id="null header name"),
        pytest.param(_record(tail=b"\x02" + b"\x02h" + b"\x03"), id="header value of -2 bytes"),
        pytest.param(_record(tail=b"\x02" + b"\x02h"), id="header cut off"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_broken_records(data: bytes) -> None:
    batch = _batch(HEAD, data + bytes(7))[: HEADER_SIZE + len(data)]
    batch = _batch(batch, data)
    with pytest.raises(DecodeError):
        decode_records(batch)


def test_the_valid_form_of_the_broken_records() -> None:
    assert decode_records(_batch(HEAD, _record(key=b"k", tail=b"\x02\x02h\x01"))) == [
        Record(0, 5, b"k", b"v", (("h", None),))
    ]


def test_a_header_name_that_is_not_utf_8_is_read_as_by_kafkas_client() -> None:
    (record,) = decode_records(_batch(HEAD, _record(tail=b"\x02" + b"\x04h\xff" + b"\x01")))
    assert record.headers == (("h\N{REPLACEMENT CHARACTER}", None),)


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1, -(2**31)])
def test_counts_that_do_not_fit(count: int) -> None:
    with pytest.raises(DecodeError):
        decode_records(_batch(HEAD, _record(), count=count))


def test_a_batch_without_records() -> None:
    assert decode_records(_batch(HEAD, b"", count=0)) == []


def test_bytes_after_a_batch() -> None:
    batch = build_batch([(None, b"a", (), 5)])
    for other in (batch + b"\0", batch[:-1], batch[:10]):
        with pytest.raises(DecodeError):
            decode_records(other)


def test_timestamps_before_the_first() -> None:
    given: list[Given] = [(None, b"a", (), time) for time in (10_000, 9_999, 9_000, 1, 20_000)]
    batch = build_batch(given)
    assert [record.timestamp for record in decode_records(batch)] == [10_000, 9_999, 9_000, 1, 20_000]
    assert read_header(batch).max_timestamp == 20_000


def test_log_append_time_is_the_same_for_all() -> None:
    batch = build_batch([(None, b"a", (), 7), (None, b"b", (), 9)], timestamp_type=1)
    assert read_header(batch).is_log_append_time
    assert [record.timestamp for record in decode_records(batch)] == [9, 9]


@pytest.mark.parametrize("compression", CODECS)
def test_records_over_the_limit(compression: str) -> None:
    batch = build_batch([(None, bytes(100_000), (), 5)], compression=compression)
    size = 100_000 + len(_record(value=None)) + 5
    assert len(decode_records(batch, max_bytes=size)) == 1
    if compression != "none":  # otherwise it is there already
        with pytest.raises(DecodeError, match="99000 bytes"):
            decode_records(batch, max_bytes=99_000)


@pytest.mark.parametrize("compression", CODECS)
def test_damaged_batches(compression: str) -> None:
    rng = random.Random(compression)
    given: list[Given] = [(b"key", b"value" * n, [("h", b"x")], 1000 + n) for n in range(20)]
    batch = bytes(build_batch(given, compression=compression))
    for _ in range(4000):
        head = HEADER_SIZE if rng.random() < 0.8 else 0
        broken = bytearray(batch[:head] + damaged(rng, batch[head:]))
        if len(broken) > 12:
            struct.pack_into(">i", broken, 8, len(broken) - 12)  # else hardly one would get further than that
        try:
            for record in decode_records(broken, max_bytes=1_000_000):
                assert record.key is None or type(record.key) is bytes
        except DecodeError:
            continue


@pytest.mark.parametrize("compression", CODECS)
def test_truncated_at_every_byte(compression: str) -> None:
    batch = build_batch([(b"key", b"value" * n, [("h", b"x")], 1000 + n) for n in range(20)], compression=compression)
    for size in range(len(batch)):
        cut = batch[:size]
        with pytest.raises(DecodeError):
            decode_records(cut)
        if size > HEADER_SIZE:
            struct.pack_into(">i", cut, 8, size - 12)
            with pytest.raises(DecodeError):
                decode_records(cut)


def test_a_count_does_not_reserve_memory() -> None:
    batch = _batch(HEAD, _record() + bytes(700_000), count=100_000, last=99_999)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode_records(batch)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(batch)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (b"\0\0\0\0", ControlType.ABORT),
        (b"\0\0\0\1", ControlType.COMMIT),
        (b"\0\1\0\2more", ControlType.LEADER_CHANGE),
        (b"\0\0\0\x63", ControlType.UNKNOWN),
        (b"\0\0\xff\xfe", ControlType.UNKNOWN),
    ],
)
def test_control_records(key: bytes, says: ControlType) -> None:
    batch = build_batch(
        [(key, b"\0\0\0\0\0\1", (), 5)], control=True, transactional=True, producer_id=4, producer_epoch=0
    )
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert control_record_type(decode_records(batch)[0]) is says


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_keys_that_are_not_of_control_records(key: bytes | None) -> None:
    with pytest.raises(DecodeError):
        control_record_type(Record(0, 0, key, None, ()))


def test_builder_and_build_batch_agree() -> None:
    given: list[Given] = [(b"k", None, [("a", None), ("a", b"b")], 5), (None, b"v", (), 6)]
    builder = BatchBuilder(compression="zstd", compression_level=1)
    assert [builder.append(*one) for one in given] == [0, 1]
    assert builder.close(7, 1, 30) == build_batch(
        given, compression="zstd", compression_level=1, producer_id=7, producer_epoch=1, base_sequence=30
    )
