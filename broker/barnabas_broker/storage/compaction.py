"""Filters the records of a batch during compaction (Kafka's ``Cleaner``, ``MemoryRecords.filterTo``, KIP-534). Pure.

A record is kept if no later record has its key. A tombstone is kept for ``delete.retention.ms`` after the cleaner has
first seen it, so that slow consumers receive the deletion; that deadline, the delete horizon, replaces the base
timestamp of its batch. Offsets, sequence numbers and the batch's offset range never change.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from crc32c import crc32c

from barnabas_protocol.records import Record, decode_records
from barnabas_protocol.records.batches import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
)
from barnabas_protocol.records.compression import compress
from barnabas_protocol.wire import Buffer

#: The attribute bit of a batch whose base timestamp is the delete horizon.
DELETE_HORIZON: Final = 0x40
#: Keys of this length and longer are replaced by a hash of this length (Kafka: always an MD5).
_LONGEST_KEY: Final = 16
_UINT32: Final = struct.Struct(">I")


def fingerprint(key: bytes) -> bytes:
    """The form of a key in the map of the last offsets."""
    return key if len(key) < _LONGEST_KEY else blake2b(key, digest_size=_LONGEST_KEY).digest()


def is_opaque(header: BatchHeader) -> bool:
    """Whether compaction keeps a batch unchanged: a control batch, or part of a transaction."""
    return header.attributes & (CONTROL | TRANSACTIONAL) != 0


def collect(latest: dict[bytes, int], header: BatchHeader, batch: Buffer) -> None:
    """Add the last offset of each key in a batch to `latest`.

    Raises:
        DecodeError: its records are corrupt.
    """
    if is_opaque(header):
        return
    for record in decode_records(batch):
        if record.key is not None:
            latest[fingerprint(record.key)] = record.offset


def filter_batch(
    header: BatchHeader,
    batch: Buffer,
    latest: Mapping[bytes, int],
    *,
    now_ms: int,
    delete_retention_ms: int,
    keep_empty: Callable[[BatchHeader], bool],
) -> Buffer | None:
    """The batch with only the records to keep.

    Args:
        header: of the batch.
        batch: its bytes.
        latest: the last offset of each key in the dirty part of the log.
        now_ms: the time of day.
        delete_retention_ms: how long to keep a tombstone without a delete horizon from now on.
        keep_empty: whether to keep the batch even without records: it is a producer's last one.

    Returns:
        The same bytes, a new batch, or None if nothing is left.

    Raises:
        DecodeError: its records are corrupt.
    """
    if is_opaque(header):
        return batch
    if not header.count:
        return batch if keep_empty(header) else None
    horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
    records = decode_records(batch)
    kept: list[Record] = []
    tombstones = False
    for record in records:
        if record.key is None or latest.get(fingerprint(record.key), -1) > record.offset:
            continue
        if record.value is None:
            if horizon is not None and now_ms > horizon:
                continue
            tombstones = True
        kept.append(record)
    if not kept:
        return _build(header, [], header.base_timestamp, header.attributes) if keep_empty(header) else None
    attributes = header.attributes
    if tombstones and horizon is None:
        horizon, attributes = now_ms + delete_retention_ms, attributes | DELETE_HORIZON
    elif len(kept) == len(records):
        return batch
    return _build(header, kept, header.base_timestamp if horizon is None else horizon, attributes)


def _build(header: BatchHeader, records: Sequence[Record], base_timestamp: int, attributes: int) -> bytearray:
    """Build a batch with the offsets and the producer of `header`, and some of its records."""
    data = bytearray()
    for record in records:
        body = b"".join(
            (
                b"\0",
                _varint(record.timestamp - base_timestamp),
                _varint(record.offset - header.base_offset),
                _sized(record.key),
                _sized(record.value),
                _varint(len(record.headers)),
                *(part for name, value in record.headers for part in (_sized(name.encode()), _sized(value))),
            )
        )
        data += _varint(len(body))
        data += body
    codec = attributes & CODEC_MASK
    content = compress(codec, data) if codec and records else data
    if attributes & LOG_APPEND_TIME or not records:
        max_timestamp = header.max_timestamp
    else:
        max_timestamp = max(record.timestamp for record in records)
    out = bytearray(
        HEADER.pack(
            header.base_offset,
            HEADER_SIZE - LENGTH_END + len(content),
            header.leader_epoch,
            2,
            0,
            attributes,
            header.last_offset_delta,
            base_timestamp,
            max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            len(records),
        )
    )
    out += content
    _UINT32.pack_into(out, CRC_START - 4, crc32c(memoryview(out)[CRC_START:]))
    return out


def _varint(value: int) -> bytes:
    value = (value << 1 ^ value >> 63) & 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _sized(content: bytes | None) -> bytes:
    return b"\1" if content is None else _varint(len(content)) + content
