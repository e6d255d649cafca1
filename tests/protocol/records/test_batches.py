"""Batches as opaque bytes: headers, iteration, checks, restamping."""

import struct
from dataclasses import replace

import pytest

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import build_batch, decode_records
from barnabas_protocol.records.batches import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    UnsupportedMagic,
    check_batch,
    check_crc,
    iter_batches,
    read_header,
    restamp,
    restamp_log_append_time,
)

RECORDS = [(b"k", b"v", (), 1_700_000_000_000), (None, b"w" * 300, (), 1_700_000_000_007)]


def made(base_offset: int = 0) -> bytearray:
    return build_batch(RECORDS, base_offset=base_offset)


def resealed(batch: bytearray, at: int, data: bytes) -> bytearray:
    """`batch` with `data` at `at`, and a valid CRC."""
    changed = bytearray(batch)
    changed[at : at + len(data)] = data
    struct.pack_into(">I", changed, 17, castagnoli(changed[21:]))
    return changed


def castagnoli(data: bytes | bytearray) -> int:
    """CRC-32C, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_a_header() -> None:
    batch = build_batch(RECORDS, base_offset=100, leader_epoch=7, producer_id=9, producer_epoch=2, base_sequence=40)
    header = read_header(b"before" + batch, 6)
    assert header == BatchHeader(
        base_offset=100,
        size=len(batch),
        leader_epoch=7,
        magic=2,
        crc=header.crc,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_007,
        producer_id=9,
        producer_epoch=2,
        base_sequence=40,
        count=2,
    )
    assert (header.last_offset, header.next_offset, header.last_sequence) == (101, 102, 41)
    assert (header.codec, header.is_control, header.is_transactional, header.is_log_append_time) == (0,) + (False,) * 3
    assert read_header(batch[:HEADER_SIZE]).size == len(batch)  # the records need not be there


def test_attributes_of_a_header() -> None:
    header = read_header(made())
    assert replace(header, attributes=0x04).codec == 4
    assert replace(header, attributes=0x08).is_log_append_time
    assert replace(header, attributes=0x10).is_transactional
    assert replace(header, attributes=0x20).is_control


def test_sequences_wrap() -> None:
    header = replace(read_header(made()), last_offset_delta=5)
    assert replace(header, base_sequence=2**31 - 3).last_sequence == 2
    assert replace(header, base_sequence=2**31 - 6).last_sequence == 2**31 - 1
    assert replace(header, base_sequence=-1).last_sequence == -1


def test_broken_headers() -> None:
    batch = made()
    for size in range(HEADER_SIZE):
        with pytest.raises(DecodeError, match="batch header"):
            read_header(batch[:size])
    for length in (-(2**31), -1, 0, 48):
        broken = bytearray(batch)
        struct.pack_into(">i", broken, 8, length)
        with pytest.raises(DecodeError, match=f"batch length {length}"):
            read_header(broken)


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_formats(magic: int) -> None:
    batch = made()
    batch[16] = magic
    for given in (batch, batch[:30]):  # messages of the old formats may be shorter than our header
        with pytest.raises(UnsupportedMagic):
            read_header(given)
        with pytest.raises(UnsupportedMagic):
            list(iter_batches(given, partial_ok=True))


def test_iterating_over_batches() -> None:
    batches = [made(2 * n) for n in range(3)]
    found = list(iter_batches(b"".join(batches)))
    assert [header.base_offset for header, _ in found] == [0, 2, 4]
    assert [bytes(view) for _, view in found] == batches
    assert list(iter_batches(b"")) == []


def test_a_truncated_last_batch() -> None:
    batch = made()
    for size in range(1, len(batch)):
        data = bytes(batch) + bytes(batch[:size])
        assert len(list(iter_batches(data, partial_ok=True))) == 1
        with pytest.raises(DecodeError):
            list(iter_batches(data))


def test_garbage_after_a_batch() -> None:
    with pytest.raises(DecodeError, match="batch length"):
        list(iter_batches(bytes(made()) + bytes(16) + b"\2" + bytes(60), partial_ok=True))


def test_the_checksum_is_crc32c() -> None:
    assert castagnoli(b"123456789") == 0xE3069283
    batch = made()
    assert read_header(batch).crc == castagnoli(batch[21:])


def test_every_change_is_detected() -> None:
    batch = made()
    check_crc(batch)
    for at in range(17, len(batch)):
        broken = bytearray(batch)
        broken[at] ^= 0x10
        with pytest.raises(CorruptBatch):
            check_crc(broken)
    with pytest.raises(CorruptBatch):
        check_crc(batch[:60])


def test_a_valid_batch() -> None:
    batch = made()
    check_batch(read_header(batch), batch)
    check_batch(read_header(batch), memoryview(bytes(batch)))


def check(batch: bytearray) -> None:
    check_batch(read_header(batch), batch)


def test_bytes_before_or_after_the_batch() -> None:
    batch = made()
    header = read_header(batch)
    for given in (batch + b"\0", batch[:-1]):
        with pytest.raises(CorruptBatch, match="batch of"):
            check_batch(header, given)


@pytest.mark.parametrize(("attributes", "sound"), [(4, True), (5, False), (7, False), (0x78, True), (0x80, True)])
def test_attributes(attributes: int, sound: bool) -> None:
    batch = resealed(made(), 21, struct.pack(">h", attributes))
    if sound:
        check(batch)
    else:
        with pytest.raises(CorruptBatch, match="compression type"):
            check(batch)


def test_counts() -> None:
    for count in (-1, -(2**31), 3):
        with pytest.raises(CorruptBatch, match="last offset delta 1"):
            check(resealed(made(), 57, struct.pack(">i", count)))
    crowded = resealed(made(), 57, struct.pack(">i", 1000))
    with pytest.raises(CorruptBatch, match="1000 records in"):
        check(resealed(crowded, 23, struct.pack(">i", 999)))


def test_batches_after_compaction() -> None:
    check(resealed(made(), 23, struct.pack(">i", 9)))
    check(resealed(made(), 57, struct.pack(">i", 0)))
    for delta in (0, -1):
        with pytest.raises(CorruptBatch, match="last offset delta"):
            check(resealed(made(), 23, struct.pack(">i", delta)))


def test_restamping_keeps_the_crc() -> None:
    batch = made()
    buffer = bytearray(b"before") + batch
    restamp(buffer, 6, 12_345_678_901, 42)
    moved = buffer[6:]
    header = read_header(moved)
    assert (header.base_offset, header.leader_epoch) == (12_345_678_901, 42)
    check_batch(header, moved)
    assert moved[16:] == batch[16:]
    assert [record.offset for record in decode_records(moved)] == [12_345_678_901, 12_345_678_902]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_restamping_with_the_time_of_the_append(compression: str) -> None:
    batch = build_batch(RECORDS, compression=compression)
    buffer = b"before" + batch + b"after"
    view = memoryview(bytearray(buffer))
    restamp_log_append_time(view, 6, 1_800_000_000_000)
    stamped = view[6 : 6 + len(batch)]
    header = read_header(stamped)
    check_batch(header, stamped)
    assert header.is_log_append_time
    assert header.max_timestamp == 1_800_000_000_000
    assert {record.timestamp for record in decode_records(stamped)} == {1_800_000_000_000}
    assert (bytes(view[:6]), bytes(view[-5:])) == (b"before", b"after")
