"""Validates batches before an append (``LogValidator``, ``UnifiedLog.analyzeAndValidateRecords``). Pure.

A batch stays opaque: only its header and its CRC are checked, and its keys if the topic is compacted. So timestamp
bounds apply to the first and the largest timestamp in the batch header, not to each record as in Kafka.
"""

import struct
from typing import Final

from crc32c import crc32c

from barnabas_broker.storage.settings import LogSettings
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.records import decode_records
from barnabas_protocol.records.batches import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LEAST_RECORD,
    LENGTH_END,
    LOG_APPEND_TIME,
    BatchHeader,
    check_batch,
    iter_batches,
    restamp,
)

_NO_TIMESTAMP: Final = -1
_ZSTD: Final = 4
_CRC_AT: Final = 17
_MAX_TIMESTAMP_AT: Final = 35
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")
_LEAST_LENGTH: Final = 14 - LENGTH_END  # Kafka: the minimum overhead of a record in any format


def check_produced(records: memoryview, settings: LogSettings, now_ms: int) -> BatchHeader:
    """Check a batch of a client: exactly one, complete and valid.

    Args:
        records: the batch.
        settings: of its topic.
        now_ms: the time of day.

    Raises:
        KafkaError: INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP.
    """
    size = len(records)
    if size < HEADER_SIZE:
        raise _malformed(records)
    fields = HEADER.unpack_from(records)
    header = BatchHeader(fields[0], fields[1] + LENGTH_END, *fields[2:])
    if header.size != size or header.magic != 2:
        raise _malformed(records)
    if size > settings.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size is {size} bytes which exceeds the maximum configured value of "
            f"{settings.max_message_bytes}.",
        )
    if crc32c(records[CRC_START:]) != header.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc})")
    count, attributes = header.count, header.attributes
    if header.base_offset != 0:
        raise _invalid(f"The baseOffset of the record batch should be 0, but it is {header.base_offset}")
    if count <= 0 or header.last_offset_delta != count - 1:
        raise _invalid(f"Batch of {count} records with last offset delta {header.last_offset_delta}")
    if attributes & CONTROL:
        raise _invalid("Clients are not allowed to write control records")
    codec = attributes & CODEC_MASK
    if codec > _ZSTD:
        raise _invalid(f"Unknown compression type id: {codec}")
    if not codec and count * LEAST_RECORD > size - HEADER_SIZE:
        raise _invalid(f"{count} records in {size - HEADER_SIZE} bytes")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise _invalid(f"Invalid sequence number {header.base_sequence} with producerId {header.producer_id}")
    if attributes & LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "Producer should not set timestamp type to LogAppendTime.")
    if not settings.log_append_time:
        _check_timestamps(header, settings, now_ms)
    if settings.compact:
        _check_keys(records)
    return header


def check_internal(records: memoryview) -> list[BatchHeader]:
    """Check batches that the broker itself has built.

    Raises:
        KafkaError: CORRUPT_MESSAGE, INVALID_RECORD.
    """
    headers = []
    try:
        for header, batch in iter_batches(records):
            check_batch(header, batch)
            headers.append(header)
    except DecodeError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if not headers:
        raise _invalid("Record batch has no batches at all")
    return headers


def check_replicated(records: memoryview, log_end_offset: int) -> list[BatchHeader]:
    """Check batches from a leader, which must continue the log. An incomplete batch at the end is skipped.

    Raises:
        KafkaError: CORRUPT_MESSAGE; OFFSET_OUT_OF_RANGE if the offsets do not continue the log.
    """
    headers = []
    expected = log_end_offset
    try:
        for header, batch in iter_batches(records, partial_ok=True):
            check_batch(header, batch, allow_empty=True, allow_gaps=True)
            if header.base_offset < expected:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Unexpected offset in append: {header.base_offset} is less than the next offset {expected}",
                )
            expected = header.next_offset
            headers.append(header)
    except DecodeError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return headers


def _check_timestamps(header: BatchHeader, settings: LogSettings, now_ms: int) -> None:
    latest, first = header.max_timestamp, header.base_timestamp
    if (latest != _NO_TIMESTAMP and latest - now_ms > settings.timestamp_after_max_ms) or (
        first != _NO_TIMESTAMP and now_ms - first > settings.timestamp_before_max_ms
    ):
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamps from {first} to {latest} are out of range. They should be within "
            f"[{now_ms - settings.timestamp_before_max_ms}, {now_ms + settings.timestamp_after_max_ms}]",
        )


def _check_keys(batch: memoryview) -> None:
    try:
        records = decode_records(batch)
    except DecodeError as error:
        raise _invalid(str(error)) from error
    for n, record in enumerate(records):
        if record.key is None:
            raise _invalid(f"Compacted topic cannot accept message without key: record {n} of the batch")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _malformed(records: memoryview) -> KafkaError:
    """Why `records` are not exactly one batch of magic 2; checked in Kafka's order."""
    size = len(records)
    if size < LENGTH_END + 5:
        return _invalid(f"Record batch has no batches at all: {size} bytes")
    length = int.from_bytes(records[8:12], "big", signed=True)
    magic = records[16]
    if length < _LEAST_LENGTH or (magic == 2 and length < HEADER_SIZE - LENGTH_END):
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Found record size {length} smaller than minimum record overhead")
    if magic > 2:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    if magic < 2:
        return _invalid(f"Only record batches with magic version 2 are accepted, this is {magic}")
    if length + LENGTH_END > size:
        return _invalid(f"Record batch of {length + LENGTH_END} bytes in {size}")
    return _invalid("Exactly one record batch per partition is accepted")


def stamp(batch: memoryview, base_offset: int, leader_epoch: int, append_time: int) -> tuple[bytearray, memoryview]:
    """Write the offset, the leader epoch and, with LogAppendTime, the time into a copy of a batch's header.

    Args:
        batch: validated; its bytes are not changed.
        base_offset: its first offset.
        leader_epoch: of the leader that appends it.
        append_time: in ms; -1 to keep its timestamps.

    Returns:
        The new header, and the unchanged records.
    """
    header, records = bytearray(batch[:HEADER_SIZE]), batch[HEADER_SIZE:]
    restamp(header, 0, base_offset, leader_epoch)
    if append_time >= 0:
        header[CRC_START + 1] |= LOG_APPEND_TIME
        _INT64.pack_into(header, _MAX_TIMESTAMP_AT, append_time)
        _UINT32.pack_into(header, _CRC_AT, crc32c(records, crc32c(memoryview(header)[CRC_START:])))
    return header, records
