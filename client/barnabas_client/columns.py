"""Record batches as Arrow columns: the fast twin of :func:`barnabas_protocol.records.decode_records`.

Only one step is done record by record: finding where each record starts, and that only where lengths differ. Batches
are concatenated, and the varints before keys and values are read for all records at once with numpy. Keys and values
are not copied one by one: their positions become the offsets of one Arrow array over the whole buffer, of which Arrow
takes every fourth element for the keys, and the elements two further for the values.

Memory and time are bounded: batches are decompressed until there are :data:`GROUP_BYTES` of records, and converted in
parts of up to :data:`MOST_RECORDS`. If a batch is broken, the parts before it come first, and then the error.

It needs the extra `arrow`: import it where a program asks for columns, and nowhere else. Sources: Kafka's
``DefaultRecord``; Arrow's columnar format (variable-size binary layout).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import (
    HEADER_SIZE,
    MAX_DECOMPRESSED,
    BatchHeader,
    check_crc,
    decompress,
    read_header,
    read_headers,
)
from barnabas_protocol.wire import Buffer

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Decompressed bytes of records that are converted together; a single batch may have more.
GROUP_BYTES: Final = 4 * 1024 * 1024
#: Records of a part.
MOST_RECORDS: Final = 65_536

#: Bytes after the records, so that a varint that runs past their end still terminates inside the buffer.
_PADDING: Final = bytes(16)

#: Numbers of records. Records are compared whether they have the same length: _LOOK at first, up to _MOST_LOOK at once.
#: At least _WORTH must be equal for this to be faster than reading one by one; otherwise _ALONE are read one by one
#: before the next comparison.
_LOOK: Final = 64
_MOST_LOOK: Final = 4096
_WORTH: Final = 32
_ALONE: Final = 512

HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)

#: The columns of a table of records: the fields of :class:`~barnabas_client.structs.ConsumerRecord`.
SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("timestamp_type", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    ]
)


class Columns(NamedTuple):
    """Records of a partition as columns.

    Attributes:
        end: the offset after them, and after records before the next one that were left out.
        offsets: their offsets.
        timestamps: milliseconds since 1970.
        timestamp_types: 0 if the producer set the timestamp, 1 if the broker did.
        keys: an Arrow array of bytes, null where a record has no key.
        values: an Arrow array of bytes, null where the value is null.
        headers: an Arrow array of :data:`HEADERS_TYPE`, null where a record has none; None if they were not wanted.
    """

    end: int
    offsets: Integers
    timestamps: Integers
    timestamp_types: NDArray[np.int32]
    keys: Any
    values: Any
    headers: Any


def table_of(topic: str, partition: int, columns: Columns) -> Any:
    """Make an Arrow record batch with the columns of :data:`SCHEMA`."""
    count = len(columns.offsets)
    arrays = [
        repeated(topic, count),
        numbers(np.full(count, partition, dtype=np.int32), pa.int32()),
        numbers(columns.offsets, pa.int64()),
        numbers(columns.timestamps, pa.timestamp("ms", tz="UTC")),
        numbers(columns.timestamp_types, pa.int32()),
        columns.keys,
        columns.values,
        columns.headers,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def iter_columns(
    batches: Iterable[Buffer],
    start: int = 0,
    end: int | None = None,
    *,
    headers: bool = True,
    check_crcs: bool = True,
    max_bytes: int = MAX_DECOMPRESSED,
    most: int = MOST_RECORDS,
) -> Iterator[Columns]:
    """Convert the records of `batches` from offset `start` up to `end`, exclusive, to columns.

    Args:
        batches: complete record batches of one partition (no control batches).
        start: records before this offset are left out.
        end: records from this offset on are left out; None for no end.
        headers: read the headers of records.
        check_crcs: verify the checksum of each batch.
        max_bytes: the maximum size of a decompressed batch.
        most: the maximum number of records of a part.

    Raises:
        DecodeError: a batch is corrupt. The records of those before it have been yielded.
    """
    group: list[tuple[BatchHeader, Buffer]] = []
    size = 0
    broken: DecodeError | None = None
    for batch in batches:
        try:
            if check_crcs:
                check_crc(batch)
            head = read_header(batch)
            records = _records(head, batch, max_bytes)
        except DecodeError as error:
            broken = error
            break
        if group and size + len(records) > GROUP_BYTES:
            yield from _convert(group, start, end, headers, most)
            group, size = [], 0
        group.append((head, records))
        size += len(records)
    if group:
        yield from _convert(group, start, end, headers, most)
    if broken is not None:
        raise broken


def _convert(
    group: Sequence[tuple[BatchHeader, Buffer]], start: int, end: int | None, headers: bool, most: int
) -> Iterator[Columns]:
    """Convert batches together; one by one if one of them is broken, so that those before it are converted."""
    try:
        for part in _parts(group, start, end, headers, most):
            start = max(start, part.end)
            yield part
    except DecodeError:
        if len(group) == 1:
            raise
        for one in group:
            yield from _parts([one], start, end, headers, most)


def _parts(
    group: Sequence[tuple[BatchHeader, Buffer]], start: int, end: int | None, headers: bool, most: int
) -> Iterator[Columns]:
    heads = [head for head, _ in group]
    if sum(len(records) for _, records in group) > 0x7FFFFFF0:
        raise DecodeError("over 2 GiB of records at once")
    data = b"".join((*(records for _, records in group), _PADDING))
    bytes_ = np.frombuffer(data, dtype=np.uint8)
    counts = np.cumsum(np.array([head.count for head in heads], dtype=np.int64))
    append_times = np.array([head.is_log_append_time for head in heads], dtype=np.int32)
    bases = np.array(
        [head.max_timestamp if head.is_log_append_time else head.base_timestamp for head in heads], dtype=np.int64
    )
    base_offsets = np.array([head.base_offset for head in heads], dtype=np.int64)
    done, total, stop = 0, int(counts[-1]), heads[-1].next_offset
    for begins in _portions(_beginnings(data, heads, [len(records) for _, records in group]), most):
        # The batch of each record.
        which = np.searchsorted(counts, np.arange(done, done + len(begins)), side="right")
        done += len(begins)
        size, starts = _varints(bytes_, begins, 5)
        if (size < 0).any():
            raise DecodeError("a record of a negative length")
        ends = starts + size
        at = starts + 1  # the attributes, unused
        delta, at = _varints(bytes_, at, 10)
        kinds = append_times[which]
        timestamps = bases[which] + np.where(kinds == 1, 0, delta)
        delta, at = _varints(bytes_, at, 5)
        offsets = base_offsets[which] + delta
        size, at = _varints(bytes_, at, 5)
        key_null, key_at, key_end = _extent(size, at, ends)
        size, at = _varints(bytes_, key_end, 5)
        value_null, value_at, value_end = _extent(size, at, ends)
        if ((value_end >= ends) | (delta < 0)).any():
            raise DecodeError("a record is shorter than its content")

        inside = offsets >= start
        if end is not None:
            inside &= offsets < end
        chosen = np.flatnonzero(inside)
        cuts = np.empty(4 * len(starts) + 1, dtype=np.int32)
        cuts[0:-1:4], cuts[1:-1:4], cuts[2:-1:4], cuts[3:-1:4] = key_at, key_end, value_at, value_end
        cuts[-1] = len(data) - len(_PADDING)
        pieces = pa.Array.from_buffers(
            pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), pa.py_buffer(data)], null_count=0
        )
        yield Columns(
            stop if done == total else int(offsets[-1]) + 1,
            offsets[chosen],
            timestamps[chosen],
            kinds[chosen],
            _pick(pieces, 4 * chosen, key_null[chosen]),
            _pick(pieces, 4 * chosen + 2, value_null[chosen]),
            _headers(data, bytes_, value_end[chosen], ends[chosen]) if headers else None,
        )


def _records(head: BatchHeader, batch: Buffer, max_bytes: int) -> Buffer:
    """Return the records of a batch, decompressed."""
    if head.size != len(batch):
        raise DecodeError(f"batch of {head.size} bytes in {len(batch)}")
    body = memoryview(batch)[HEADER_SIZE:]
    records = decompress(head.codec, body, max_bytes) if head.codec else body
    if not 0 <= head.count <= len(records):
        raise DecodeError(f"{head.count} records in {len(records)} bytes")
    return records


def _portions(pieces: Iterator[Integers], most: int) -> Iterator[Integers]:
    """Arrange numbers in arrays of `most`, and the rest."""
    kept: list[Integers] = []
    count = 0
    for piece in pieces:
        kept.append(piece)
        count += len(piece)
        if count >= most:
            whole = np.concatenate(kept)
            while count >= most:
                yield whole[:most]
                whole, count = whole[most:], count - most
            kept = [whole]
    if count:
        yield np.concatenate(kept)


def _beginnings(data: bytes, heads: Sequence[BatchHeader], sizes: Sequence[int]) -> Iterator[Integers]:
    """Return where each record begins, which is at its length.

    Sequences of records of the same length are found many at a time, others one by one.

    Args:
        data: the records of all batches.
        heads: of the batches.
        sizes: of the records of each batch.
    """
    places = np.frombuffer(data, dtype=np.uint8)
    at = stop = 0
    window = _LOOK
    for head, size_of_all in zip(heads, sizes, strict=True):
        stop += size_of_all
        left = head.count
        while left:
            wanted = min(left, window)
            try:
                count, size = _alike(data, places, at, stop, wanted) if wanted >= _WORTH else (0, 0)
                if count >= _WORTH:
                    window = min(2 * window, _MOST_LOOK) if count == wanted else _LOOK
                    begins = at + size * np.arange(count)
                    at += size * count
                else:
                    count, window = min(left, _ALONE), _LOOK
                    found, at = _one_by_one(data, at, count)
                    begins = np.array(found, dtype=np.int64)
            except IndexError as error:
                raise DecodeError("a record ends after its batch") from error
            if at > stop:
                raise DecodeError("a record ends after its batch")
            yield begins
            left -= count
        if at != stop:
            raise DecodeError(f"{head.count} records end at {at} of {stop} bytes")


def _alike(data: bytes, places: NDArray[np.uint8], at: int, stop: int, most: int) -> tuple[int, int]:
    """Count the records from `at` on, before `stop`, that are as long as the first one.

    This is exact: the same length is before each of them, and determines where the next one begins.

    Returns:
        The number of records, and the bytes of each including its length; (0, 0) for records over 8 KiB.
    """
    first, second = data[at], data[at + 1]
    if first < 0x80:
        size = 1 + (first >> 1)
    elif second < 0x80:
        size = (first >> 1) + (second << 6) - 62
    else:
        return 0, 0
    end = at + size * min(most, (stop - at) // size)
    same = places[at:end:size] == first
    if first >= 0x80:
        same &= places[at + 1 : end : size] == second
    return len(same) if same.all() else int(same.argmin()), size


def _one_by_one(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Return where `count` records begin, and where the last one ends.

    This is the only loop over records: it does no more than find the next one.
    """
    begins: list[int] = []
    append = begins.append
    for _ in range(count):
        append(at)
        byte = data[at]
        if byte < 0x80:
            at += 1 + (byte >> 1)
        else:
            after = data[at + 1]
            # A varint of two bytes: seven bits each, the lowest bit is the sign.
            at = at - 62 + (byte >> 1) + (after << 6) if after < 0x80 else _long(data, at)
    return begins, at


def _long(data: bytes, at: int) -> int:
    """Return where the record at `at` ends, if its length is a varint of three or more bytes."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at + (value >> 1)
        shift += 7
        if shift > 28:
            raise DecodeError("the length of a record is a varint over 5 bytes")


def _varints(data: NDArray[np.uint8], at: Integers, most: int) -> tuple[Integers, Integers]:
    """Read the zigzag varint at each of the places `at`; return the values and where each ends.

    Raises:
        DecodeError: one is longer than `most` bytes.
    """
    value = np.zeros(len(at), dtype=np.uint64)
    going: Integers | None = None  # the varints that have more bytes; None while all have
    for turn in range(most):
        places = at if going is None else at[going]
        read = data[np.minimum(places, len(data) - 1)]
        part = (read & 0x7F).astype(np.uint64) << np.uint64(7 * turn)
        if going is None:
            value, at = part, places + 1
            going = np.flatnonzero(read >= 0x80)
        else:
            value[going] |= part
            at[going] = places + 1
            going = going[read >= 0x80]
        if not len(going):
            signed = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
            return signed, at
    raise DecodeError(f"varint over {most} bytes")


def _extent(size: Integers, at: Integers, ends: Integers) -> tuple[Flags, Integers, Integers]:
    """Return which of the byte strings of these sizes are null, where each starts and where it ends."""
    stop = at + np.maximum(size, 0)
    if ((size < -1) | (stop > ends)).any():
        raise DecodeError("a key or value is longer than its record")
    return size < 0, at, stop


# `pyarrow.array` and `pyarrow.scalar` import pandas to check the type of their argument, which costs a third of a
# second and 40 MiB in each of Spark's workers.


def numbers(values: Integers | NDArray[np.int32], kind: Any) -> Any:
    """Return an Arrow array that shares the memory of a numpy array."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], null_count=0)


def repeated(text: str, count: int) -> Any:
    """Return an Arrow array that repeats one string."""
    data = text.encode()
    cuts = np.array([0, len(data)], dtype=np.int32)
    once = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(cuts), pa.py_buffer(data)], null_count=0)
    return once.take(numbers(np.zeros(count, dtype=np.int64), pa.int64()))


def _pick(pieces: Any, which: Integers, null: Flags) -> Any:
    """Return the pieces with these numbers, null where `null` is true."""
    picked = pieces.take(numbers(which, pa.int64()))
    if not null.any():
        return picked
    _, offsets, data = picked.buffers()
    valid = pa.py_buffer(np.packbits(~null, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.binary(), len(picked), [valid, offsets, data], offset=picked.offset)


def _headers(data: bytes, places: NDArray[np.uint8], at: Integers, ends: Integers) -> Any:
    """Return the column of headers, which begin at `at`. They are rare and small, so they are read one by one."""
    with_some = np.flatnonzero(places[at] != 0)
    if (ends[places[at] == 0] != at[places[at] == 0] + 1).any():
        raise DecodeError("a record is longer than its content")
    if not len(with_some):
        return pa.nulls(len(at), HEADERS_TYPE)
    rows: list[tuple[tuple[str, bytes | None], ...] | None] = [None] * len(at)
    try:
        for number in with_some.tolist():
            found, stop = read_headers(data, int(at[number]))
            if stop != ends[number]:
                raise DecodeError(f"record headers end at {stop}, but the record at {ends[number]}")
            rows[number] = found or None
    except IndexError as error:
        raise DecodeError("record headers are longer than their record") from error
    return pa.array(rows, type=HEADERS_TYPE)
