"""Filters the records of a batch during compaction (Kafka's ``Cleaner``, ``CleanedTransactionMetadata``,
``MemoryRecords.filterTo``, KIP-534). Pure.

A record is kept if no later record has its key. A tombstone is kept for ``delete.retention.ms`` after the cleaner has
first seen it, so that slow consumers receive the deletion; that deadline, the delete horizon, replaces the base
timestamp of its batch. Offsets, sequence numbers and the batch's offset range never change.

Records of aborted transactions are removed. The marker of a transaction is kept while the log has a batch of it, and
then, as a tombstone, for ``delete.retention.ms``.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Final

from barnabas_broker.storage.transaction_index import AbortedTransaction
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import (
    ControlType,
    Record,
    RecordsTooLarge,
    control_record_type,
    decode_records,
    iter_records,
)
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
from barnabas_protocol.records.checksums import crc32c
from barnabas_protocol.records.compression import compress
from barnabas_protocol.wire import Buffer

#: The attribute bit of a batch whose base timestamp is the delete horizon.
DELETE_HORIZON: Final = 0x40
#: Keys of this length and longer are replaced by a hash of this length (Kafka: always an MD5).
_LONGEST_KEY: Final = 16
#: The most keys whose last offset is kept in memory; a log with more is cleaned in several rounds.
MOST_KEYS: Final = 1_000_000
#: Maximum bytes of the records of a control batch.
_MOST_CONTROL: Final = 64 * 1024
_UINT32: Final = struct.Struct(">I")


def fingerprint(key: bytes) -> bytes:
    """The form of a key in the map of the last offsets."""
    return key if len(key) < _LONGEST_KEY else blake2b(key, digest_size=_LONGEST_KEY).digest()


class CleanedTransactions:
    """The transactions of a log while its batches are read in order.

    Args:
        aborted: the aborted transactions that have an offset among them, markers included.

    Attributes:
        kept: the aborted transactions whose markers have been read, and of which there were batches: the index of the
            cleaned segment needs them.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self.kept: list[AbortedTransaction] = []
        self._later = deque(sorted(aborted, key=lambda each: each.first_offset))
        #: By producer id: the aborted transactions that have begun and not ended, and those of which there was a batch.
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        #: The producers whose transactions will be committed, and of which there was a batch.
        self._committed: set[int] = set()

    def may_discard(self, header: BatchHeader, batch: Buffer) -> bool:
        """Read the next batch.

        Returns:
            Whether its records are needed no more: it belongs to an aborted transaction, or it is the marker of a
            transaction without batches.
        """
        while self._later and self._later[0].first_offset <= header.last_offset:
            begun = self._later.popleft()
            self._aborted.setdefault(begun.producer_id, begun)
        producer_id = header.producer_id
        if header.attributes & CONTROL:
            return self._may_discard_marker(header, batch)
        if not header.attributes & TRANSACTIONAL:
            return False
        if producer_id in self._aborted:
            self._seen.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def _may_discard_marker(self, header: BatchHeader, batch: Buffer) -> bool:
        if not header.count:
            return True  # it was discarded before
        try:
            kind = control_record_type(decode_records(batch, max_bytes=_MOST_CONTROL)[0])
        except DecodeError:
            return False
        producer_id = header.producer_id
        if kind is ControlType.ABORT:
            aborted, seen = self._aborted.pop(producer_id, None), producer_id in self._seen
            self._seen.discard(producer_id)
            if aborted is None or not seen:
                return True
            self.kept.append(aborted)
            return False
        if kind is ControlType.COMMIT:
            if producer_id not in self._committed:
                return True
            self._committed.discard(producer_id)
        return False


def collect(latest: dict[bytes, int], header: BatchHeader, batch: Buffer, max_bytes: int) -> None:
    """Add the last offset of each key in a data batch to `latest`.

    Args:
        latest: the last offset of each key.
        header: of the batch.
        batch: its bytes.
        max_bytes: the largest size of its decompressed records.

    Raises:
        DecodeError: its records are corrupt, or too large to be compacted; nothing was added.
    """
    # Of a batch that turns out to be corrupt nothing counts: its records are no reason to remove others.
    found: dict[bytes, int] = {}
    for records in iter_records(batch, max_bytes=max_bytes):
        for record in records:
            if record.key is not None:
                found[fingerprint(record.key)] = record.offset
        if len(found) > MOST_KEYS:
            raise RecordsTooLarge(f"more than {MOST_KEYS} keys in one batch")
    latest.update(found)


def filter_batch(
    header: BatchHeader,
    batch: Buffer,
    latest: Mapping[bytes, int],
    *,
    now_ms: int,
    delete_retention_ms: int,
    max_bytes: int,
    keep_empty: Callable[[BatchHeader], bool],
    may_discard: bool = False,
) -> Buffer | None:
    """The batch with only the records to keep.

    Args:
        header: of the batch.
        batch: its bytes.
        latest: the last offset of each key in the dirty part of the log.
        now_ms: the time of day.
        delete_retention_ms: how long to keep a tombstone without a delete horizon from now on.
        max_bytes: the largest size of its decompressed records.
        keep_empty: whether to keep the batch even without records: it is a producer's last one.
        may_discard: what :meth:`CleanedTransactions.may_discard` returned.

    Returns:
        The same bytes, a new batch, or None if nothing is left.

    Raises:
        DecodeError: its records are corrupt.
    """
    if not header.count:
        return batch if keep_empty(header) else None
    horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
    is_marker = header.attributes & CONTROL != 0
    if may_discard and (not is_marker or (horizon is not None and horizon <= now_ms)):
        return _empty(header) if keep_empty(header) else None
    if is_marker and (not may_discard or horizon is not None):
        return batch
    # Twice, a few records at a time: what is built depends on whether there are tombstones.
    count, tombstones = 0, False

    def is_kept(record: Record) -> bool:
        if is_marker:
            return True
        if record.key is None or latest.get(fingerprint(record.key), -1) > record.offset:
            return False
        return record.value is not None or horizon is None or now_ms <= horizon

    for records in iter_records(batch, max_bytes=max_bytes):
        for record in records:
            if is_kept(record):
                count += 1
                tombstones = tombstones or record.value is None
    if not count:
        return _empty(header) if keep_empty(header) else None
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if (tombstones or is_marker) and horizon is None:
        base_timestamp, attributes = now_ms + delete_retention_ms, attributes | DELETE_HORIZON
    elif count == header.count:
        return batch
    data, max_timestamp = bytearray(), -1
    for records in iter_records(batch, max_bytes=max_bytes):
        for record in records:
            if is_kept(record):
                _write(data, record, header.base_offset, base_timestamp)
                max_timestamp = max(max_timestamp, record.timestamp)
    if attributes & LOG_APPEND_TIME:
        max_timestamp = header.max_timestamp
    return _build(header, data, count, max_timestamp, base_timestamp, attributes)


def _empty(header: BatchHeader) -> bytearray:
    """The batch without records."""
    return _build(header, bytearray(), 0, header.max_timestamp, header.base_timestamp, header.attributes)


def _write(data: bytearray, record: Record, base_offset: int, base_timestamp: int) -> None:
    """Write a record at the end of `data`."""
    body = b"".join(
        (
            b"\0",
            _varint(record.timestamp - base_timestamp),
            _varint(record.offset - base_offset),
            _sized(record.key),
            _sized(record.value),
            _varint(len(record.headers)),
            *(part for name, value in record.headers for part in (_sized(name.encode()), _sized(value))),
        )
    )
    data += _varint(len(body))
    data += body


def _build(
    header: BatchHeader, data: bytearray, count: int, max_timestamp: int, base_timestamp: int, attributes: int
) -> bytearray:
    """Build a batch with the offsets and the producer of `header`, and the `count` records in `data`."""
    codec = attributes & CODEC_MASK
    content = compress(codec, data) if codec and count else data
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
            count,
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
