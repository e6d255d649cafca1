"""Record batches (magic 2) as opaque bytes: header, checksum, restamping.

A broker reads headers (:func:`read_header`, :func:`iter_batches`), checks batches (:func:`check_batch`) and writes
their offset and leader epoch in place (:func:`restamp`). It does not read records.

Source: Kafka's ``DefaultRecordBatch``, KIP-98.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records.checksums import crc32c
from barnabas_protocol.records.compression import Codec, most_decompressed
from barnabas_protocol.wire import Buffer

#: Bytes before the first record.
HEADER_SIZE: Final = 61
#: Bytes that the length of a batch does not count: base offset and the length itself.
LENGTH_END: Final = 12
#: The first byte that the CRC covers: from the attributes on.
CRC_START: Final = 21
#: The smallest record in bytes: length, attributes, two deltas, null key, null value, no headers.
LEAST_RECORD: Final = 7

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_MAX_TIMESTAMP_AT: Final = 35

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20


class UnsupportedMagic(DecodeError):
    """The messages have a format other than magic 2."""


class CorruptBatch(DecodeError):
    """The CRC or the header of a batch is wrong."""


@dataclass(slots=True, repr=False)
class BatchHeader:
    """The header of a batch. `size` is the whole batch in bytes, from the base offset to the last record."""

    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def last_offset(self) -> int:
        """The offset of the last record, or of the one that was last before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_sparse(self) -> bool:
        """Whether it has fewer records than offsets, which compaction leaves."""
        return self.count <= self.last_offset_delta

    @property
    def codec(self) -> int:
        """The compression codec, 0 to 4 in a batch that :func:`check_batch` accepts."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the time of every record is that of the append, `max_timestamp`."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are markers for clients, not data of applications."""
        return self.attributes & CONTROL != 0

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 without a producer id. Sequences wrap to 0 after 2^31 - 1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(view: Buffer, at: int = 0) -> BatchHeader:
    """Read the header of the batch at `at`. Its records may be missing.

    Raises:
        UnsupportedMagic: the batch is not of magic 2.
        DecodeError: there are fewer bytes than a header has, or the header announces fewer.
    """
    if len(view) - at < HEADER_SIZE:
        if len(view) - at >= 17 and view[at + 16] != 2:
            raise UnsupportedMagic(f"magic {view[at + 16]}")
        raise DecodeError(f"batch header of {HEADER_SIZE} bytes, {len(view) - at} left")
    offset, length, epoch, magic, *rest = HEADER.unpack_from(view, at)
    if magic != 2:
        raise UnsupportedMagic(f"magic {magic}")
    if length < HEADER_SIZE - LENGTH_END:
        raise DecodeError(f"batch length {length}")
    return BatchHeader(offset, length + LENGTH_END, epoch, magic, *rest)


def iter_batches(view: Buffer, *, partial_ok: bool = False) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Iterate over the batches in `view`, each with its header. Only their sizes are checked.

    Args:
        view: batches one after another.
        partial_ok: end at an incomplete batch, as the last one of a Fetch response may be, instead of raising.

    Raises:
        UnsupportedMagic: a batch of another format.
        DecodeError: an impossible size, or a truncated batch.
    """
    view = memoryview(view)
    at, end = 0, len(view)
    while at < end:
        if partial_ok and end - at < HEADER_SIZE and (end - at < 17 or view[at + 16] == 2):
            return
        header = read_header(view, at)
        if header.size > end - at:
            if partial_ok:
                return
            raise DecodeError(f"batch of {header.size} bytes, {end - at} left")
        yield header, view[at : at + header.size]
        at += header.size


def check_crc(batch: Buffer) -> None:
    """Check the CRC-32C of a batch.

    Raises:
        CorruptBatch: the CRC does not match the bytes.
    """
    batch = memoryview(batch)
    if len(batch) < HEADER_SIZE:
        raise CorruptBatch(f"batch of {len(batch)} bytes")
    (stored,) = _UINT32.unpack_from(batch, _CRC_AT)
    computed = crc32c(batch[CRC_START:])
    if computed != stored:
        raise CorruptBatch(f"CRC {computed:#010x}, but the header has {stored:#010x}")


def flaw(header: BatchHeader) -> str | None:
    """Check a header; return why a batch cannot have it, in a few words, or None if it is sound.

    With the CRC this decides whether bytes are a batch, for every part of the broker: what a producer may append,
    replicas, recovery and the cleaner accept as well. Attribute bits without a meaning are ignored, as Kafka does.
    Compaction leaves fewer records than offsets, and batches without records that keep a producer's last sequence.
    """
    attributes, count, delta = header.attributes, header.count, header.last_offset_delta
    if attributes & CODEC_MASK > Codec.ZSTD:
        return f"unknown compression type {attributes & CODEC_MASK}"
    if count < 0 or delta < 0 or delta < count - 1:
        return f"{count} records with last offset delta {delta}"
    size = header.size - HEADER_SIZE
    if count * LEAST_RECORD > size and count * LEAST_RECORD > most_decompressed(attributes & CODEC_MASK, size):
        return f"{count} records in {header.size - HEADER_SIZE} bytes"
    return None


def check_batch(header: BatchHeader, batch: Buffer) -> None:
    """Check a batch without reading its records.

    Args:
        header: the header of the batch.
        batch: exactly one batch.

    Raises:
        CorruptBatch: the CRC is wrong, or the header has a :func:`flaw`.
    """
    if len(batch) != header.size:
        raise CorruptBatch(f"batch of {header.size} bytes in {len(batch)}")
    check_crc(batch)
    reason = flaw(header)
    if reason is not None:
        raise CorruptBatch(reason)


def restamp(buffer: bytearray | memoryview, at: int, base_offset: int, leader_epoch: int) -> None:
    """Write the offset and the leader epoch of the batch at `at`. The CRC does not cover them."""
    _INT64.pack_into(buffer, at, base_offset)
    _INT32.pack_into(buffer, at + 12, leader_epoch)


def restamp_log_append_time(buffer: bytearray | memoryview, at: int, timestamp: int) -> None:
    """Set the time of all records of the batch at `at` to that of the append, and write a new CRC.

    Args:
        buffer: contains the whole batch.
        at: the position of the batch.
        timestamp: milliseconds since 1970.
    """
    size = LENGTH_END + int(_INT32.unpack_from(buffer, at + 8)[0])
    buffer[at + CRC_START + 1] |= LOG_APPEND_TIME
    _INT64.pack_into(buffer, at + _MAX_TIMESTAMP_AT, timestamp)
    _UINT32.pack_into(buffer, at + _CRC_AT, crc32c(memoryview(buffer)[at + CRC_START : at + size]))
