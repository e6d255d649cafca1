"""Validates batches before an append (``LogValidator``, ``UnifiedLog.analyzeAndValidateRecords``). Pure.

The header and the CRC of every batch are checked. What is inside is checked in bulk where records have one size, and in
a share of the broker's time (:mod:`.time_budget`) where they have not, or are compressed: see docs/storage.md.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from barnabas_broker.storage.settings import LogSettings
from barnabas_broker.storage.time_budget import Allowance
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.records import (
    Record,
    RecordsSummary,
    RecordsTooLarge,
    decompress,
    inspect_records,
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
    BatchHeader,
    check_batch,
    flaw,
    iter_batches,
    read_header,
    restamp,
)
from barnabas_protocol.records.checksums import crc32c
from barnabas_protocol.wire import Buffer

_NO_TIMESTAMP: Final = -1
_CRC_AT: Final = 17
_MAX_TIMESTAMP_AT: Final = 35
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")
_INT64_END: Final = 1 << 63
#: Larger batches are not looked into: bytes after decompression, and records that are checked one by one. They keep an
#: inspection under a few milliseconds.
MOST_DECOMPRESSED: Final = 1024 * 1024
MOST_SINGLE: Final = 4096
#: Maximum bytes of records for a compacted topic that are checked on the event loop.
_LARGE: Final = 64 * 1024
#: Of a batch with more invalid records the response names only the first ones.
MOST_ERRORS: Final = 1000
_LEAST_LENGTH: Final = 14 - LENGTH_END  # Kafka: the minimum overhead of a record in any format


class RecordError(NamedTuple):
    """A record that the topic does not accept: its place in the batch, and why."""

    place: int
    reason: str


class InvalidRecords(KafkaError):
    """Some records of a batch are not accepted; a client may send the others again without them (KIP-467).

    Attributes:
        errors: the records that are not accepted.
    """

    def __init__(self, code: ErrorCode, errors: Sequence[RecordError]) -> None:
        if code == ErrorCode.INVALID_TIMESTAMP:
            message = "One or more records have been rejected due to invalid timestamp"
        else:
            shown = ", ".join(f"record {error.place}: {error.reason}" for error in errors[:3])
            message = (
                f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing "
                f"the first three errors at most: {shown}"
            )
        super().__init__(code, message)
        self.errors = errors


class MalformedBatch(KafkaError):
    """The bytes are not exactly one batch of magic 2 (INVALID_RECORD)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


def check_produced(
    records: memoryview, settings: LogSettings, now_ms: int, inspections: Allowance, *, keys_checked: bool = False
) -> BatchHeader:
    """Check a batch of a client: exactly one, complete and valid.

    Args:
        records: the batch.
        settings: of its topic.
        now_ms: the time of day.
        inspections: the time for looking inside batches. When it is used up, only the header is checked, except on
            compacted topics.
        keys_checked: :func:`check_keys` has been called, if the topic is compacted.

    Returns:
        Its header, with the largest timestamp of its records.

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
    attributes = header.attributes
    if header.base_offset != 0:
        raise _invalid(f"The baseOffset of the record batch should be 0, but it is {header.base_offset}")
    if header.count < 1 or header.last_offset_delta != header.count - 1:
        raise _sparse(header)
    if attributes & CONTROL:
        raise _invalid("Clients are not allowed to write control records")
    reason = flaw(header)
    if reason is not None:
        raise _invalid(f"Record batch has {reason}")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise _invalid(f"Invalid sequence number {header.base_sequence} with producerId {header.producer_id}")
    if attributes & LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "Producer should not set timestamp type to LogAppendTime.")
    must = settings.compact and not keys_checked
    began = inspections.begin()
    if must or inspections.left > 0:
        try:
            _check_records(header, records, settings, now_ms, must)
        finally:
            inspections.end(began)
    else:
        _check_times(header, settings, now_ms)
    return header


def takes_long(records: Buffer, settings: LogSettings) -> bool:
    """Whether a thread should call :func:`check_keys`: the topic is compacted, and the batch large or compressed."""
    return settings.compact and (
        len(records) > _LARGE or (len(records) >= HEADER_SIZE and records[CRC_START + 1] & CODEC_MASK != 0)
    )


def check_keys(records: Buffer, settings: LogSettings, stopped: Callable[[], bool]) -> None:
    """Check that each record of a batch for a compacted topic has a key; for a thread.

    Args:
        records: the batch. If it is not sound otherwise, nothing is checked: :func:`check_produced` refuses it.
        settings: of its topic.
        stopped: whether the result is no longer wanted.

    Raises:
        KafkaError: INVALID_RECORD.
    """
    if len(records) <= settings.max_message_bytes:
        try:
            header = read_header(records)
            check_batch(header, records)
        except DecodeError:
            return
        try:
            seen = _inspect(header, memoryview(records), settings.max_decompressed_bytes, header.count)
        except DecodeError as error:
            raise _invalid(f"Record batch cannot be read: {error}") from error
        if seen is not None and seen.keyless:
            _check_each(records, settings, -_INT64_END, _INT64_END, stopped)


def check_internal(records: memoryview) -> list[BatchHeader]:
    """Check batches that the broker itself has built.

    Raises:
        KafkaError: CORRUPT_MESSAGE, INVALID_RECORD.
    """
    headers = []
    try:
        for header, batch in iter_batches(records):
            check_batch(header, batch)
            if header.count < 1 or header.is_sparse:
                raise _sparse(header)
            headers.append(header)
    except DecodeError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if not headers:
        raise _invalid("Record batch has no batches at all")
    return headers


def check_replicated(records: memoryview, log_end_offset: int, *, empty: bool = False) -> list[BatchHeader]:
    """Check batches from a leader, which must continue the log. An incomplete batch at the end is skipped.

    Args:
        records: the batches.
        log_end_offset: of the log.
        empty: the log has no records, so `log_end_offset` may be inside the first batch.

    Raises:
        KafkaError: CORRUPT_MESSAGE; OFFSET_OUT_OF_RANGE if the offsets do not continue the log.
    """
    headers: list[BatchHeader] = []
    expected = log_end_offset
    try:
        for header, batch in iter_batches(records, partial_ok=True):
            check_batch(header, batch)
            holds_start = empty and not headers and 0 <= header.base_offset <= expected < header.next_offset
            if header.base_offset < expected and not holds_start:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Unexpected offset in append: {header.base_offset} is less than the next offset {expected}",
                )
            expected = header.next_offset
            headers.append(header)
    except DecodeError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return headers


def _sparse(header: BatchHeader) -> KafkaError:
    """Only compaction leaves batches with fewer records than offsets."""
    return _invalid(f"Batch of {header.count} records with last offset delta {header.last_offset_delta}")


def _check_records(
    header: BatchHeader,
    batch: memoryview,
    settings: LogSettings,
    now_ms: int,
    must: bool,
) -> None:
    """Check what is inside a batch, if it is not large or it `must` be known, and correct `max_timestamp` in its
    header, which a client may have wrong.

    Raises:
        KafkaError: INVALID_RECORD, INVALID_TIMESTAMP.
    """
    seen = None
    try:
        if must:
            seen = _inspect(header, batch, settings.max_decompressed_bytes, header.count)
        else:
            seen = _inspect(header, batch, MOST_DECOMPRESSED, MOST_SINGLE)
    except RecordsTooLarge as error:
        if must:
            raise _invalid(str(error)) from error
    except DecodeError as error:
        raise _invalid(f"Record batch cannot be read: {error}") from error
    if seen is None:
        _check_times(header, settings, now_ms)
        return
    earliest, latest = header.base_timestamp + seen.earliest, header.base_timestamp + seen.latest
    if earliest < -_INT64_END or latest >= _INT64_END:
        raise _invalid(f"Record batch has timestamps from {earliest} to {latest}, over 64 bits")
    early, late = now_ms - settings.timestamp_before_max_ms, now_ms + settings.timestamp_after_max_ms
    if (settings.compact and seen.keyless) or not (settings.log_append_time or early <= earliest <= latest <= late):
        _check_each(batch, settings, early, late)
    header.max_timestamp = latest


def _check_times(header: BatchHeader, settings: LogSettings, now_ms: int) -> None:
    """Check the times in the header of a batch that is not looked into.

    Raises:
        KafkaError: INVALID_TIMESTAMP.
    """
    early, late = now_ms - settings.timestamp_before_max_ms, now_ms + settings.timestamp_after_max_ms
    first, latest = header.base_timestamp, header.max_timestamp
    if not settings.log_append_time and (latest > late or _NO_TIMESTAMP != first < early):
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamps from {first} to {latest} are out of range. They should be within [{early}, {late}]",
        )


def _inspect(header: BatchHeader, batch: memoryview, max_bytes: int, most_single: int) -> RecordsSummary | None:
    """Content of a batch; None if more than `most_single` records would have to be checked one by one.

    Raises:
        RecordsTooLarge: it has over `max_bytes` when decompressed.
        DecodeError: consumers could not read the records.
    """
    inside = batch[HEADER_SIZE:]
    data = decompress(header.codec, inside, max_bytes) if header.codec else bytes(inside)
    return inspect_records(data, header.count, most_single)


def _check_each(
    batch: Buffer, settings: LogSettings, early: int, late: int, stopped: Callable[[], bool] = lambda: False
) -> None:
    """Find the records that the topic does not accept: without a key, or with a time before `early` or after `late`.

    Raises:
        InvalidRecords: there are any.
    """
    errors: list[RecordError] = []
    code = ErrorCode.NONE
    for n, record in enumerate(_each(batch, settings, stopped)):
        if settings.compact and record.key is None:
            error, why = ErrorCode.INVALID_RECORD, "Compacted topic cannot accept message without key"
        elif not (settings.log_append_time or record.timestamp == _NO_TIMESTAMP or early <= record.timestamp <= late):
            error = ErrorCode.INVALID_TIMESTAMP
            why = (
                f"Timestamp {record.timestamp} of message with offset {n} is out of range. The timestamp should be "
                f"within [{early}, {late}]"
            )
        else:
            continue
        code = code or error
        errors.append(RecordError(n, why))
        if len(errors) == MOST_ERRORS:
            break
    if errors:
        raise InvalidRecords(code, errors)


def _each(batch: Buffer, settings: LogSettings, stopped: Callable[[], bool]) -> Iterator[Record]:
    for records in iter_records(batch, max_bytes=settings.max_decompressed_bytes):
        yield from records
        if stopped():
            return


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _malformed(records: memoryview) -> KafkaError:
    """Why `records` are not exactly one batch of magic 2; checked in Kafka's order."""
    size = len(records)
    if size < LENGTH_END + 5:
        return MalformedBatch(f"Record batch has no batches at all: {size} bytes")
    length = int.from_bytes(records[8:12], "big", signed=True)
    magic = records[16]
    if length < _LEAST_LENGTH or (magic == 2 and length < HEADER_SIZE - LENGTH_END):
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Found record size {length} smaller than minimum record overhead")
    if magic > 2:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    if magic < 2:
        return MalformedBatch(f"Only record batches with magic version 2 are accepted, this is {magic}")
    if length + LENGTH_END > size:
        return MalformedBatch(f"Record batch of {length + LENGTH_END} bytes in {size}")
    return MalformedBatch("Exactly one record batch per partition is accepted")


def stamp(
    batch: memoryview, base_offset: int, leader_epoch: int, max_timestamp: int, *, append_time: bool
) -> tuple[bytearray, memoryview]:
    """Write offset, leader epoch and the largest timestamp into a copy of a batch's header.

    Args:
        batch: validated; its bytes are not changed.
        base_offset: its first offset.
        leader_epoch: of the leader that appends it.
        max_timestamp: the largest timestamp of its records, in ms.
        append_time: the records get `max_timestamp` as their time (LogAppendTime).

    Returns:
        The new header, and the unchanged records.
    """
    header, records = bytearray(batch[:HEADER_SIZE]), batch[HEADER_SIZE:]
    restamp(header, 0, base_offset, leader_epoch)
    if append_time or _INT64.unpack_from(header, _MAX_TIMESTAMP_AT)[0] != max_timestamp:
        if append_time:
            header[CRC_START + 1] |= LOG_APPEND_TIME
        _INT64.pack_into(header, _MAX_TIMESTAMP_AT, max_timestamp)
        _UINT32.pack_into(header, _CRC_AT, crc32c(records, crc32c(memoryview(header)[CRC_START:])))
    return header, records
