"""What compaction leaves of a batch (Kafka's ``Cleaner``, ``MemoryRecords.filterTo``, KIP-534). Pure.

A record stays if no later one has its key. A tombstone stays for ``delete.retention.ms`` after it was first seen by
the cleaner, so that readers who are slow still learn of the deletion: the batch then carries that deadline in the
place of its base timestamp. Offsets, sequences and the batch's range of offsets never change.
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

#: The batch's base timestamp is the time after which its tombstones may go.
DELETE_HORIZON: Final = 0x40
#: Keys are told apart by themselves up to this length, longer ones by a hash of it (Kafka: always an MD5).
_LONGEST_KEY: Final = 16
_UINT32: Final = struct.Struct(">I")


def fingerprint(key: bytes) -> bytes:
    """What stands for a key in the map of the last offsets."""
    return key if len(key) < _LONGEST_KEY else blake2b(key, digest_size=_LONGEST_KEY).digest()


def is_opaque(header: BatchHeader) -> bool:
    """Whether compaction leaves a batch as it is: a marker, or part of a transaction, whose end decides."""
    return header.attributes & (CONTROL | TRANSACTIONAL) != 0


def collect(latest: dict[bytes, int], header: BatchHeader, batch: Buffer) -> None:
    """Note the last offset of each key of a batch.

    Raises:
        DecodeError: its records cannot be read.
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
    """What is left of a batch.

    Args:
        header: of the batch.
        batch: its bytes.
        latest: the last offset of each key that is in the part of the log that is being cleaned.
        now_ms: the time of day.
        delete_retention_ms: how long a tombstone is kept from now on, if it has no deadline yet.
        keep_empty: whether the batch must stay even without a record: it is the last that a producer wrote.

    Returns:
        The same bytes, new ones, or None if nothing is left.

    Raises:
        DecodeError: its records cannot be read.
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
    """A batch with the identity of `header` and some of its records."""
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
