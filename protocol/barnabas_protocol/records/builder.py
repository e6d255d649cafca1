"""Records into a batch (magic 2): all at once, or one by one as a producer collects them.

Source: Kafka's ``DefaultRecord`` and ``MemoryRecordsBuilder``, KIP-98, KIP-82 (headers).
"""

import struct
from collections.abc import Iterable
from typing import Final

from barnabas_protocol.records.batches import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
)
from barnabas_protocol.records.checksums import crc32c
from barnabas_protocol.records.columns import RecordColumns
from barnabas_protocol.records.compression import Codec, compress
from barnabas_protocol.records.fields import SMALL, VARINTS, Headers, encode_headers, long_varint
from barnabas_protocol.wire import Buffer

_UINT32: Final = struct.Struct(">I")

_UNLIMITED: Final = 1 << 62
#: Record length, attributes, timestamp delta, offset delta, key length, value length, header count, at their longest.
_MOST_OVERHEAD: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5


class BatchBuilder:
    """A batch that grows record by record.

    Args:
        batch_size: the largest size in bytes before compression. Only :meth:`has_room` checks it.
        compression: a codec by Kafka's name.
        compression_level: a level of the codec; its default if None.
        timestamp_type: 0 for the times of the records, 1 for log append time: the latest of them for all.
        control: whether the records are markers.
        transactional: whether the batch is part of a transaction.

    Raises:
        ValueError: the codec does not exist.
    """

    __slots__ = (
        "_base_timestamp",
        "_buffer",
        "_codec",
        "_flags",
        "_level",
        "_max_timestamp",
        "batch_size",
        "count",
    )

    def __init__(
        self,
        batch_size: int = 16384,
        *,
        compression: str = "none",
        compression_level: int | None = None,
        timestamp_type: int = 0,
        control: bool = False,
        transactional: bool = False,
    ) -> None:
        self.batch_size = batch_size
        self.count = 0
        self._codec = Codec.of(compression)
        self._level = compression_level
        self._flags = LOG_APPEND_TIME * (timestamp_type == 1) | CONTROL * control | TRANSACTIONAL * transactional
        self._buffer = bytearray(HEADER_SIZE)
        self._base_timestamp = self._max_timestamp = -1

    @property
    def size(self) -> int:
        """Bytes so far, header included, before compression."""
        return len(self._buffer)

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
        timestamp_ms: int,
        limit: int = _UNLIMITED,
    ) -> int:
        """Add a record, and return its offset delta; or return -1, without adding it, if the batch would be larger than
        `limit`. The first record always fits: one larger than a batch has a batch of its own.

        Args:
            key: None for null.
            value: None for null, which deletes the key in a compacted topic.
            headers: names and values; a name may occur more than once.
            timestamp_ms: milliseconds since 1970.
            limit: bytes before compression.
        """
        delta = self.count
        if delta == 0:
            self._base_timestamp = self._max_timestamp = timestamp_ms
        since = timestamp_ms - self._base_timestamp
        varints = VARINTS
        key_head = value_head = b"\x01"
        if key is None:
            key = b""
        else:
            size = len(key)
            key_head = varints[size] if size < SMALL else long_varint(size)
        if value is None:
            value = b""
        else:
            size = len(value)
            value_head = varints[size] if size < SMALL else long_varint(size)
        body = b"".join(
            (
                b"\x00",
                varints[since] if 0 <= since < SMALL else long_varint(since),
                varints[delta] if delta < SMALL else long_varint(delta),
                key_head,
                key,
                value_head,
                value,
                encode_headers(headers) if headers else b"\x00",
            )
        )
        size = len(body)
        length = varints[size] if size < SMALL else long_varint(size)
        buffer = self._buffer
        if delta and len(buffer) + len(length) + size > limit:
            return -1
        buffer += length
        buffer += body
        if timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        self.count = delta + 1
        return delta

    def has_room(self, key: Buffer | None, value: Buffer | None, headers: Headers) -> bool:
        """Whether a record fits. The first one always does: a record larger than a batch has a batch of its own."""
        if self.count == 0:
            return True
        size = len(self._buffer) + _MOST_OVERHEAD
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        for name, content in headers:
            size += 10 + 4 * len(name) + (0 if content is None else len(content))
        return size <= self.batch_size

    def extend(self, columns: RecordColumns, begin: int, end: int) -> int:
        """Add as many records as there is room for; return their number. The first record of a batch always fits.

        Args:
            columns: the records.
            begin: the first one to add.
            end: the one after the last one to add, more than `begin`.
        """
        delta = self.count
        first = columns.first_timestamp(begin)
        base = self._base_timestamp if delta else first
        count = columns.fitting(begin, end, self.batch_size - len(self._buffer), delta, base)
        if count == 0:
            if delta:
                return 0
            count = 1
        self._base_timestamp = base
        self._max_timestamp = max(
            self._max_timestamp if delta else first, columns.latest_timestamp(begin, begin + count)
        )
        columns.write(self._buffer, begin, begin + count, delta, base)
        self.count = delta + count
        return count

    def close(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
    ) -> bytearray:
        """Finish the batch: compress it, and write its header and CRC. It cannot be changed afterwards.

        Raises:
            ValueError: there are no records, the codec does not have that level, or the batch is closed.
        """
        if self.count == 0:
            raise ValueError("a batch without records")
        out = self._buffer
        if not out:
            raise ValueError("the batch is closed")
        self._buffer = bytearray()
        if self._codec:
            with memoryview(out)[HEADER_SIZE:] as records:
                compressed = compress(self._codec, records, self._level)
            del out[HEADER_SIZE:]
            out += compressed
        HEADER.pack_into(
            out,
            0,
            base_offset,
            len(out) - LENGTH_END,
            leader_epoch,
            2,
            0,
            self._codec | self._flags,
            self.count - 1,
            self._base_timestamp,
            self._max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        with memoryview(out)[CRC_START:] as covered:
            _UINT32.pack_into(out, CRC_START - 4, crc32c(covered))
        return out


def build_batch(
    records: Iterable[tuple[Buffer | None, Buffer | None, Headers, int]],
    *,
    base_offset: int = 0,
    compression: str = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    timestamp_type: int = 0,
    control: bool = False,
    transactional: bool = False,
    compression_level: int | None = None,
) -> bytearray:
    """Build a batch from (key, value, headers, timestamp in milliseconds).

    Raises:
        ValueError: there are no records, or the codec or its level does not exist.
    """
    builder = BatchBuilder(
        compression=compression,
        compression_level=compression_level,
        timestamp_type=timestamp_type,
        control=control,
        transactional=transactional,
    )
    append = builder.append
    for key, value, headers, timestamp in records:
        append(key, value, headers, timestamp)
    return builder.close(producer_id, producer_epoch, base_sequence, base_offset=base_offset, leader_epoch=leader_epoch)
