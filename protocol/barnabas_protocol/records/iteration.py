"""Records out of a batch (magic 2).

Source: Kafka's ``DefaultRecord``, KIP-98, KIP-82 (headers). Offsets in a batch are deltas to its base offset,
timestamps (milliseconds since 1970) to its base timestamp; all numbers are zigzag varints.
"""

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeVar

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records.batches import (
    CODEC_MASK,
    HEADER_SIZE,
    LEAST_RECORD,
    LOG_APPEND_TIME,
    BatchHeader,
    read_header,
)
from barnabas_protocol.records.compression import decompress
from barnabas_protocol.wire import Buffer

#: The largest size of decompressed records, unless a caller gives another one.
MAX_DECOMPRESSED: Final = 128 * 1024 * 1024
#: Records that :func:`iter_records` reads at a time.
CHUNK: Final = 4096

_INT16X2: Final = struct.Struct(">hh")

R = TypeVar("R", bound=tuple[Any, ...])


class ControlType(IntEnum):
    """The type of a control record, from its key."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class Record(NamedTuple):
    """A record: offset, timestamp in milliseconds since 1970, key and value (None for null), and headers."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def control_record_type(record: Record) -> ControlType:
    """The type of a record of a control batch. Newer types are UNKNOWN: skip them.

    Raises:
        DecodeError: the key is not that of a control record.
    """
    if record.key is None or len(record.key) < 4:
        raise DecodeError(f"control record with key {record.key!r}")
    version, kind = _INT16X2.unpack_from(record.key)
    if version < 0:
        raise DecodeError(f"control record version {version}")
    return ControlType(kind) if ControlType.ABORT <= kind <= ControlType.KRAFT_VOTERS else ControlType.UNKNOWN


def decode_records(batch: Buffer, *, max_bytes: int = MAX_DECOMPRESSED) -> list[Record]:
    """Read all records of a batch. The CRC is not checked: see :func:`~barnabas_protocol.records.batches.check_crc`.

    Args:
        batch: exactly one batch.
        max_bytes: the largest size of its decompressed records.

    Raises:
        DecodeError: the batch is broken or larger than `max_bytes`.
    """
    new = tuple.__new__
    return [
        new(Record, (offset, timestamp, key, value, headers))
        for _, _, offset, timestamp, _, key, value, headers in decode_rows(batch, "", 0, tuple, max_bytes=max_bytes)
    ]


def decode_rows(
    batch: Buffer, topic: str, partition: int, kind: type[R], *, max_bytes: int = MAX_DECOMPRESSED
) -> list[R]:
    """As :func:`decode_records`, but the tuples of a consumer: topic, partition, offset, timestamp, timestamp type (0:
    the producer set it, 1: the broker did), key, value, headers.

    Args:
        batch: exactly one batch.
        topic: for the tuples.
        partition: for the tuples.
        kind: `tuple`, or a named tuple with these fields.
        max_bytes: the largest size of its decompressed records.

    Raises:
        DecodeError: the batch is broken or larger than `max_bytes`.
    """
    header = read_header(batch)
    data = _records(header, batch, max_bytes)
    return next(_chunks(header, data, header.count, topic, partition, kind), [])


def iter_rows(batch: Buffer, topic: str, partition: int, kind: type[R], *, chunk: int = CHUNK) -> Iterator[list[R]]:
    """As :func:`decode_rows`, but at most `chunk` records at a time; see :func:`iter_records`.

    Raises:
        DecodeError: the batch is broken or larger than :data:`MAX_DECOMPRESSED`. Records before the broken part were
            yielded.
    """
    header = read_header(batch)
    yield from _chunks(header, _records(header, batch, MAX_DECOMPRESSED), chunk, topic, partition, kind)


def iter_records(batch: Buffer, *, max_bytes: int, chunk: int = CHUNK) -> Iterator[list[Record]]:
    """As :func:`decode_records`, but a few records at a time: only the decompressed bytes are in memory as a whole.

    Args:
        batch: exactly one batch.
        max_bytes: the largest size of its decompressed records.
        chunk: the most records of a list.

    Raises:
        DecodeError: the batch is broken or larger than `max_bytes`. Records before the broken part were yielded.
    """
    header, new = read_header(batch), tuple.__new__
    for rows in _chunks(header, _records(header, batch, max_bytes), chunk, "", 0, tuple):
        yield [
            new(Record, (offset, timestamp, key, value, headers))
            for _, _, offset, timestamp, _, key, value, headers in rows
        ]


def _records(header: BatchHeader, batch: Buffer, max_bytes: int) -> bytes:
    """The decompressed records of a batch, as bytes."""
    if header.size != len(batch):
        raise DecodeError(f"batch of {header.size} bytes in {len(batch)}")
    if header.attributes & CODEC_MASK:
        data = decompress(header.attributes & CODEC_MASK, memoryview(batch)[HEADER_SIZE:], max_bytes)
    else:
        data = bytes(memoryview(batch)[HEADER_SIZE:])
    if not 0 <= header.count * LEAST_RECORD <= len(data):
        raise DecodeError(f"{header.count} records in {len(data)} bytes")
    return data


def _chunks(
    header: BatchHeader, data: bytes, chunk: int, topic: str, partition: int, kind: type[R]
) -> Iterator[list[R]]:
    """The records in `data`, at most `chunk` at a time: runs of records of one size in bulk, the others one by one."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    left, at = header.count, 0
    try:
        while left:
            most = min(left, chunk)
            rows: list[R] = []
            while len(rows) < most:
                run, at = _read_run(data, at, most - len(rows), base_offset, base_timestamp, topic, partition, kind)
                if not run:
                    break
                rows += run
            rest, at = _parse(data, at, most - len(rows), base_offset, base_timestamp, topic, partition, kind)
            rows += rest
            left -= most
            if not left and at != len(data):
                raise DecodeError(f"{len(data)} bytes hold {header.count} records of {at}")
            if header.attributes & LOG_APPEND_TIME:
                time, new = header.max_timestamp, tuple.__new__
                rows = [
                    new(kind, (topic, partition, offset, time, 1, key, value, headers))
                    for _, _, offset, _, _, key, value, headers in rows
                ]
            yield rows
    except IndexError as error:
        raise DecodeError(f"records: {error}") from error
    if not header.count and data:
        raise DecodeError(f"{len(data)} bytes hold no records")


def _parse(
    data: bytes, at: int, count: int, base_offset: int, base_timestamp: int, topic: str, partition: int, kind: type[R]
) -> tuple[list[R], int]:
    """`count` records in `data`, from `at` on, and the position after them: one pass with everything inlined, because a
    consumer of records of different sizes spends its time here.

    Numbers from 0 on of one and two bytes are read in place, all others by :func:`_signed` and :func:`_size`. In a
    zigzag varint the lowest bit is the sign, and the highest bit says that more bytes follow. A number of two bytes is
    the first one halved, less 64 (its highest bit, halved), plus the second one times 64. `at` moves past a field that
    nearly always has one byte before the field is read.

    Each record must end where its length says. Positions only grow: a position beyond `data` raises IndexError, or
    fails the caller's check of the end.
    """
    rows: list[R] = []
    append, new = rows.append, tuple.__new__
    for _ in range(count):
        byte = data[at]  # the length; behind it are the attributes (unused) and the timestamp delta
        if not byte & 0x81:
            end = at + 1 + (byte >> 1)
            at += 3
        elif not byte & 1 and (more := data[at + 1]) < 0x80:
            end = at - 62 + (byte >> 1) + (more << 6)
            at += 4
        else:
            length, at = _size(data, at)
            end = at + length
            at += 2
        byte = data[at - 1]  # the timestamp delta, of either sign
        if not byte & 0x81:
            timestamp = base_timestamp + (byte >> 1)
        elif not byte & 1 and (more := data[at]) < 0x80:
            timestamp = base_timestamp - 64 + (byte >> 1) + (more << 6)
            at += 1
        else:
            timestamp, at = _signed(data, at - 1)
            timestamp += base_timestamp
        byte = data[at]  # the offset delta; behind it is the key's size
        if not byte & 0x81:
            offset = base_offset + (byte >> 1)
            at += 2
        elif not byte & 1 and (more := data[at + 1]) < 0x80:
            offset = base_offset - 64 + (byte >> 1) + (more << 6)
            at += 3
        else:
            offset, at = _size(data, at)
            offset += base_offset
            at += 1
        byte = data[at - 1]  # the key's size; 1 stands for -1, which is null
        if byte == 1:
            key = None
        else:
            if not byte & 0x81:
                stop = at + (byte >> 1)
            else:
                length, at = _size(data, at - 1)
                stop = at + length
            key = data[at:stop]
            at = stop
        byte = data[at]  # the value's size, the same
        if byte == 1:
            value = None
            stop = at + 1
        else:
            if not byte & 0x81:
                at += 1
                stop = at + (byte >> 1)
            elif not byte & 1 and (more := data[at + 1]) < 0x80:
                at += 2
                stop = at - 64 + (byte >> 1) + (more << 6)
            else:
                length, at = _size(data, at)
                stop = at + length
            value = data[at:stop]
        if data[stop]:
            headers, at = read_headers(data, stop)
        else:
            headers = ()
            at = stop + 1
        if at != end:
            raise DecodeError(f"record {offset} ends at {at}, but its length says {end}")
        append(new(kind, (topic, partition, offset, timestamp, 0, key, value, headers)))
    return rows, at


#: The bytes of varints of one and of two bytes, for numbers from 0 on.
_ONLY: Final = bytes(range(0, 128, 2))
_FIRST: Final = bytes(range(128, 256, 2))
_SECOND: Final = bytes(range(128))
#: The first and the second bytes of all numbers of two, with room for those below 64; the second bytes of three.
_FIRSTS: Final = _FIRST * 128
_SECONDS: Final = b"".join(bytes((second,)) * 64 for second in range(128))
_MIDDLES: Final = b"".join(bytes((middle,)) * 64 for middle in range(128, 256))
_NULL: Final = -1
#: Fewer records than this are read one by one.
_LEAST_RUN: Final = 8


class _Run(NamedTuple):
    """Records of one size, one after another: the number of records, the bytes of each, the first offset delta, the
    columns of the timestamp deltas (the second one empty if they have one byte), and where the first key and the first
    value are, with their sizes, -1 for null.
    """

    number: int
    step: int
    delta: int
    firsts: bytes
    seconds: bytes
    key_from: int
    key_size: int
    value_from: int
    value_size: int


def _find_run(data: bytes, at: int, most: int) -> _Run | None:
    """The records from `at` on, up to `most`, with the sizes of the first, consecutive offsets and no headers. None if
    there are few of them, or the first one has another form.

    Records of one size are like rows of a table, so a slice with a step is a column: the columns of lengths and sizes
    must have one number each, the column of offsets ascending ones.
    """
    length, body = _short(data, at)
    if length < 0:
        return None
    stamp_at = body + 1  # behind the attributes
    stamp, delta_at = _short(data, stamp_at)
    delta, key_at = _short(data, delta_at)
    if delta < _NULL and not data[delta_at] & 1 and (high := data[delta_at + 2]) < 0x80:  # of three bytes
        delta = (data[delta_at] >> 1) - 64 + ((data[delta_at + 1] & 0x7F) << 6) + (high << 13)
        key_at = delta_at + 3
    key_size, key_from = _short(data, key_at)
    if stamp < 0 or delta < 0 or key_size < _NULL:
        return None
    value_at = key_from + max(key_size, 0)
    value_size, value_from = _short(data, value_at)
    last = value_from + max(value_size, 0)  # the number of headers
    if value_size < _NULL or last + 1 != body + length or data[last]:
        return None

    step = last + 1 - at
    # Beyond these offsets the varints have another size, or another third byte.
    width = key_at - delta_at
    begin = delta if width < 3 else delta % 8192
    count = min(most, (len(data) - at) // step, (64 if width == 1 else 8192) - begin)
    end = at + count * step
    for place in (*range(at, body), *range(key_at, key_from), *range(value_at, value_from), last):
        if (same := _same(data[place:end:step])) < count:
            count = same
            if count < _LEAST_RUN:
                return None
    firsts, seconds = data[stamp_at:end:step], b""
    if delta_at == stamp_at + 1:
        count = min(count, _beginning(firsts, _ONLY))
    else:
        seconds = data[stamp_at + 1 : end : step]
        count = min(count, _beginning(firsts, _FIRST), _beginning(seconds, _SECOND))
    if width == 1:
        follow = data[delta_at:end:step][:count] == _ONLY[begin : begin + count]
    elif width == 2:
        follow = (
            data[delta_at:end:step][:count] == _FIRSTS[begin : begin + count]
            and data[delta_at + 1 : end : step][:count] == _SECONDS[begin : begin + count]
        )
    else:
        count = min(count, _same(data[delta_at + 2 : end : step]))
        follow = (
            data[delta_at:end:step][:count] == _FIRSTS[begin : begin + count]
            and data[delta_at + 1 : end : step][:count] == _MIDDLES[begin : begin + count]
        )
    if count < _LEAST_RUN or not follow:
        return None
    return _Run(count, step, delta, firsts[:count], seconds[:count], key_from, key_size, value_from, value_size)


def _read_run(
    data: bytes, at: int, most: int, base_offset: int, base_timestamp: int, topic: str, partition: int, kind: type[R]
) -> tuple[list[R], int]:
    """The records of the run at `at`, if there is one, and the position after them. It takes a third of the time of one
    by one.
    """
    run = _find_run(data, at, most)
    if run is None:
        return [], at
    count, step, delta, firsts, seconds, key_from, key_size, value_from, value_size = run
    stamps: Iterable[int]
    if seconds:
        below = base_timestamp - 64
        stamps = [below + (first >> 1) + (second << 6) for first, second in zip(firsts, seconds, strict=True)]
    else:
        stamps = [base_timestamp + (first >> 1) for first in firsts]
    end, offset, new = at + count * step, base_offset + delta, tuple.__new__
    keys = repeat(None) if key_size < 0 else [data[i : i + key_size] for i in range(key_from, end, step)]
    values = repeat(None) if value_size < 0 else [data[i : i + value_size] for i in range(value_from, end, step)]
    rows = zip(range(offset, offset + count), stamps, keys, values, strict=False)
    return [new(kind, (topic, partition, at, stamp, 0, key, value, ())) for at, stamp, key, value in rows], end


def _short(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of one or two bytes, and the position after it; less than `_NULL` if it is longer."""
    byte = data[at]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at + 1
    more = data[at + 1]
    value = byte - 0x80 | more << 7
    return (value >> 1 ^ -(value & 1), at + 2) if more < 0x80 else (_NULL - 1, at)


def _beginning(column: bytes, allowed: bytes) -> int:
    """The number of bytes at the beginning of a column that are in `allowed`."""
    if not column.translate(None, allowed):
        return len(column)
    return len(column) - len(column.lstrip(allowed))


def _same(column: bytes) -> int:
    """The number of bytes at the beginning of a column that are equal."""
    first = column[:1]
    # A comparison in bulk takes a hundredth of the time of a loop that asks for each byte.
    if column == first * len(column):
        return len(column)
    return len(column) - len(column.lstrip(first))


def _signed(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and the position after it."""
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
    """A zigzag varint from 0 to 2^31 - 1, and the position after it."""
    value, at = _signed(data, at)
    if not 0 <= value <= 0x7FFFFFFF:
        raise DecodeError(f"size {value} in a record")
    return value, at


def read_headers(data: bytes, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """The headers of a record, and the position after them.

    Raises:
        DecodeError, IndexError: they are broken, or longer than `data`.
    """
    count, at = _size(data, at)
    if count * 2 > len(data) - at:
        raise DecodeError(f"{count} record headers in {len(data) - at} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        byte = data[at]
        if not byte & 0x81:
            at += 1
            stop = at + (byte >> 1)
        else:
            length, at = _size(data, at)
            stop = at + length
        # As Kafka's Java client: a name that is not UTF-8 must not make the other records of the batch unreadable.
        name = data[at:stop].decode(errors="replace")
        byte = data[stop]
        if byte == 1:
            at = stop + 1
            headers.append((name, None))
            continue
        if not byte & 0x81:
            at = stop + 1
            stop = at + (byte >> 1)
        else:
            length, at = _size(data, stop)
            stop = at + length
        headers.append((name, data[at:stop]))
        at = stop
    return tuple(headers), at


class RecordsSummary(NamedTuple):
    """Summary of records, as :func:`inspect_records` returns it.

    Attributes:
        keyless: whether any record has no key.
        earliest: a number that no timestamp delta is below, in ms.
        latest: the largest timestamp delta, in ms.
    """

    keyless: bool
    earliest: int
    latest: int


#: After this many records of different sizes, :func:`inspect_records` looks for a run again.
_BETWEEN_RUNS: Final = 256
_BYTES: Final = bytes(range(256))
_UP_TO: Final = tuple(_BYTES[: highest + 1] for highest in range(256))


def inspect_records(data: bytes, count: int, most_single: int) -> RecordsSummary | None:
    """Check that decompressed records can be read, without reading them: sizes, offset deltas from 0 on, timestamps,
    header names and values, and that exactly `count` records fill `data`.

    Records of one size are checked in bulk, a few nanoseconds each; records of different sizes one by one.

    Args:
        data: the records, decompressed.
        count: the number of records in the header of their batch.
        most_single: the most records to check one by one.

    Returns:
        What was seen; None if more than `most_single` records had to be checked one by one, and the rest was not.

    Raises:
        DecodeError: a consumer could not read them.
    """
    if not 0 <= count * LEAST_RECORD <= len(data):
        raise DecodeError(f"{count} records in {len(data)} bytes")
    keyless, earliest, latest = False, 0, -1 << 63
    n = at = 0
    try:
        while n < count:
            run = _find_run(data, at, count - n) if count - n >= _LEAST_RUN else None
            if run is not None and run.delta == n:
                at += run.number * run.step
                n += run.number
                keyless = keyless or run.key_size < 0
                latest = max(latest, _latest(run.firsts, run.seconds))
                continue
            stop = min(n + _BETWEEN_RUNS, count)
            most_single -= stop - n
            if most_single < 0:
                return None
            at, some_keyless, least, most = _inspect_each(data, at, n, stop)
            n = stop
            keyless, earliest, latest = keyless or some_keyless, min(earliest, least), max(latest, most)
    except IndexError:
        raise DecodeError(f"{count} records do not end in {len(data)} bytes") from None
    if at != len(data):
        raise DecodeError(f"{count} records end at {at} of {len(data)} bytes")
    return RecordsSummary(keyless, earliest, latest)


def _inspect_each(data: bytes, at: int, first: int, stop: int) -> tuple[int, bool, int, int]:
    """Check the records with offset deltas from `first` to before `stop`; the position after them, and what was seen,
    as in :class:`RecordsSummary`.

    As in :func:`_parse`, numbers of one and two bytes are read in place.
    """
    keyless, earliest, latest = False, 0, -1 << 63
    for n in range(first, stop):
        byte = data[at]  # the length; behind it are the attributes (unused) and the timestamp delta
        if not byte & 0x81:
            end = at + 1 + (byte >> 1)
            at += 2
        elif not byte & 1 and (more := data[at + 1]) < 0x80:
            end = at - 62 + (byte >> 1) + (more << 6)
            at += 3
        else:
            length, at = _size(data, at)
            end = at + length
            at += 1
        byte = data[at]
        if not byte & 0x81:
            stamp = byte >> 1
            at += 1
        elif not byte & 1 and (more := data[at + 1]) < 0x80:
            stamp = (byte >> 1) - 64 + (more << 6)
            at += 2
        else:
            stamp, at = _signed(data, at)
            if stamp < earliest:
                earliest = stamp
        if stamp > latest:
            latest = stamp
        byte = data[at]
        if not byte & 0x81:
            delta = byte >> 1
            at += 1
        elif not byte & 1 and (more := data[at + 1]) < 0x80:
            delta = (byte >> 1) - 64 + (more << 6)
            at += 2
        else:
            delta, at = _size(data, at)
        if delta != n:
            raise DecodeError(f"record {n} has offset delta {delta}")
        byte = data[at]  # the key's size; 1 stands for -1, which is null
        if byte == 1:
            keyless = True
            at += 1
        elif not byte & 0x81:
            at += 1 + (byte >> 1)
        else:
            length, at = _size(data, at)
            at += length
        byte = data[at]  # the value's size, the same
        if byte == 1:
            at += 1
        elif not byte & 0x81:
            at += 1 + (byte >> 1)
        elif not byte & 1 and (more := data[at + 1]) < 0x80:
            at += (byte >> 1) - 62 + (more << 6)
        else:
            length, at = _size(data, at)
            at += length
        if data[at]:
            _, at = read_headers(data, at)
        else:
            at += 1
        if at != end:
            raise DecodeError(f"record {n} ends at {at}, but its length says {end}")
    return at, keyless, earliest, latest


def _latest(firsts: bytes, seconds: bytes) -> int:
    """The largest number of the columns of a run."""
    if not seconds:
        return _largest(firsts) >> 1
    highest = _largest(seconds)
    begin, end = seconds.index(highest), seconds.rindex(highest) + 1
    if seconds.count(highest, begin, end) == end - begin:
        first = _largest(firsts[begin:end])
    else:
        first = max(first for first, second in zip(firsts, seconds, strict=True) if second == highest)
    return (first >> 1) - 64 + (highest << 6)


def _largest(column: bytes) -> int:
    """The largest byte: nearly always the last one, because time goes on."""
    last = column[-1]
    return max(column) if column.translate(None, _UP_TO[last]) else last
