"""Records out of a batch (magic 2). Everything else about batches is handed out here as well: headers and checks from
:mod:`barnabas_protocol.batches`, building from :mod:`barnabas_protocol.builder`.

Source: Kafka's ``DefaultRecord``, KIP-98, KIP-82 (headers). Offsets in a batch are deltas to its base offset,
timestamps (milliseconds since 1970) to its base timestamp; all numbers are zigzag varints.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas_protocol.batches import (
    CODEC_MASK,
    HEADER_SIZE,
    LEAST_RECORD,
    LOG_APPEND_TIME,
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
from barnabas_protocol.builder import BatchBuilder, Headers, build_batch
from barnabas_protocol.compression import Codec, compress, decompress
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.wire import Buffer

__all__ = [
    "HEADER_SIZE",
    "MAX_DECOMPRESSED",
    "BatchBuilder",
    "BatchHeader",
    "Codec",
    "ControlType",
    "CorruptBatch",
    "Headers",
    "Record",
    "UnsupportedMagic",
    "build_batch",
    "check_batch",
    "check_crc",
    "compress",
    "control_record_type",
    "decode_records",
    "decompress",
    "iter_batches",
    "read_header",
    "restamp",
    "restamp_log_append_time",
]

#: What records may come to when they are decompressed, unless a caller says otherwise.
MAX_DECOMPRESSED: Final = 128 * 1024 * 1024

_INT16X2: Final = struct.Struct(">hh")


class ControlType(IntEnum):
    """What a control record says, as in its key."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class Record(NamedTuple):
    """One record: its offset, its timestamp in milliseconds since 1970, key and value (None is null), and headers."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def control_record_type(record: Record) -> ControlType:
    """What a record of a control batch says. Types newer than the table are UNKNOWN, to be skipped.

    Raises:
        DecodeError: the key is no control record's.
    """
    if record.key is None or len(record.key) < 4:
        raise DecodeError(f"control record with key {record.key!r}")
    version, kind = _INT16X2.unpack_from(record.key)
    if version < 0:
        raise DecodeError(f"control record version {version}")
    return ControlType(kind) if ControlType.ABORT <= kind <= ControlType.KRAFT_VOTERS else ControlType.UNKNOWN


def decode_records(batch: Buffer, *, max_bytes: int = MAX_DECOMPRESSED) -> list[Record]:
    """Read all records of a batch. The CRC is not looked at: see :func:`check_crc`.

    Args:
        batch: one whole batch.
        max_bytes: the most that its records may come to when decompressed.

    Raises:
        DecodeError: the batch is broken or larger than `max_bytes`.
    """
    header = read_header(batch)
    if header.size != len(batch):
        raise DecodeError(f"batch of {header.size} bytes in {len(batch)}")
    if header.attributes & CODEC_MASK:
        data = decompress(header.attributes & CODEC_MASK, memoryview(batch)[HEADER_SIZE:], max_bytes)
    else:
        data = bytes(memoryview(batch)[HEADER_SIZE:])
    if not 0 <= header.count * LEAST_RECORD <= len(data):
        raise DecodeError(f"{header.count} records in {len(data)} bytes")
    try:
        records = _parse(data, header.count, header.base_offset, header.base_timestamp)
    except (IndexError, UnicodeError) as error:
        raise DecodeError(f"records: {error}") from error
    if header.attributes & LOG_APPEND_TIME:
        time = header.max_timestamp
        return [Record(offset, time, key, value, headers) for offset, _, key, value, headers in records]
    return records


def _parse(data: bytes, count: int, base_offset: int, base_timestamp: int) -> list[Record]:
    """The records in `data`. One pass with everything inlined: this loop is what a consumer spends its time in.

    A single check per record bounds all of its parts: positions only grow, so if the last one is the record's end then
    none was beyond it. What points beyond `data` raises IndexError, or a slice comes out short and the ends differ.
    """
    records: list[Record] = []
    append, new, size, at = records.append, tuple.__new__, len(data), 0
    for _ in range(count):
        byte = data[at]  # length, then attributes (unused)
        if not byte & 0x81:
            at += 2
            end = at - 1 + (byte >> 1)
        elif not byte & 1 and data[at + 1] < 0x80:
            at += 3
            end = at - 65 + (byte >> 1) + (data[at - 2] << 6)
        else:
            length, at = _size(data, at)
            end = at + length
            at += 1
        byte = data[at]  # timestamp delta, of either sign
        if byte < 0x80:
            at += 1
            timestamp = base_timestamp + (byte >> 1 ^ -(byte & 1))
        else:
            timestamp, at = _signed(data, at)
            timestamp += base_timestamp
        byte = data[at]  # offset delta
        if not byte & 0x81:
            at += 1
            offset = base_offset + (byte >> 1)
        elif not byte & 1 and data[at + 1] < 0x80:
            at += 2
            offset = base_offset - 64 + (byte >> 1) + (data[at - 1] << 6)
        else:
            offset, at = _size(data, at)
            offset += base_offset
        byte = data[at]  # key, 1 stands for -1, which is null
        if byte == 1:
            at += 1
            key = None
        else:
            if not byte & 0x81:
                at += 1
                stop = at + (byte >> 1)
            else:
                length, at = _size(data, at)
                stop = at + length
            key = data[at:stop]
            at = stop
        byte = data[at]  # value, the same
        if byte == 1:
            at += 1
            value = None
        else:
            if not byte & 0x81:
                at += 1
                stop = at + (byte >> 1)
            elif not byte & 1 and data[at + 1] < 0x80:
                at += 2
                stop = at - 64 + (byte >> 1) + (data[at - 1] << 6)
            else:
                length, at = _size(data, at)
                stop = at + length
            value = data[at:stop]
            at = stop
        if data[at]:
            headers, at = _headers(data, at)
        else:
            at += 1
            headers = ()
        if at != end or end > size:
            raise DecodeError(f"record {offset} ends at {at} where it announced {end}, of {size}")
        append(new(Record, (offset, timestamp, key, value, headers)))
    if at != size:
        raise DecodeError(f"{size - at} bytes follow {count} records")
    return records


def _signed(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFFFFFFFFFF:
                raise DecodeError("varint over 64 bits")
            return value >> 1 ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise DecodeError("varint over 10 bytes")


def _size(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint that is no negative int32, and where it ends."""
    value, at = _signed(data, at)
    if not 0 <= value <= 0x7FFFFFFF:
        raise DecodeError(f"size {value} in a record")
    return value, at


def _headers(data: bytes, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """A record's headers, and where they end."""
    count, at = _size(data, at)
    if count * 2 > len(data) - at:
        raise DecodeError(f"{count} record headers in {len(data) - at} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = _size(data, at)
        stop = at + size
        name = data[at:stop].decode()
        if data[stop] == 1:
            at = stop + 1
            headers.append((name, None))
        else:
            size, at = _size(data, stop)
            stop = at + size
            headers.append((name, data[at:stop]))
            at = stop
    return tuple(headers), at
