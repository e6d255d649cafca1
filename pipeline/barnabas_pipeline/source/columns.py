"""Record batches as Arrow columns: the fast twin of :func:`barnabas_protocol.records.decode_records`.

Spark reads rows by the million, so only one step is done record by record: finding where each record starts, and that
only where lengths differ. All batches of a fetch are concatenated, and the varints before keys and values are read for
all records at once with numpy. Keys and values are not copied one by one: their positions become the offsets of one
Arrow array over the whole buffer, of which Arrow takes every fourth element for the keys, and the elements two further
for the values.

Source: Kafka's ``DefaultRecord``; Arrow's columnar format (variable-size binary layout).
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import (
    HEADER_SIZE,
    MAX_DECOMPRESSED,
    BatchHeader,
    decode_records,
    decompress,
    read_header,
)
from barnabas_protocol.wire import Buffer

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Bytes after the records, so that a varint that runs past their end still terminates inside the buffer.
_PADDING: Final = bytes(16)
#: The maximum of milliseconds that fit into 64 bits as microseconds.
_MOST_MILLISECONDS: Final = (2**63 - 1) // 1000

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


def arrow_schema(*, headers: bool) -> Any:
    """Return the columns of Spark's Kafka connector as Arrow's types.

    Args:
        headers: with the column `headers` (option ``includeHeaders``).
    """
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if headers:
        fields.append(pa.field("headers", HEADERS_TYPE))
    return pa.schema(fields)


def to_arrow(
    topic: str,
    partition: int,
    batches: Sequence[Buffer],
    start: int,
    end: int,
    *,
    headers: bool = False,
    max_bytes: int = MAX_DECOMPRESSED,
) -> Any:
    """Convert the records of `batches` from offset `start` up to `end`, exclusive, to one Arrow record batch.

    Args:
        topic: the topic of all batches.
        partition: the partition of all batches.
        batches: complete record batches (no control batches); the caller has checked their CRC.
        start: records before this offset are left out.
        end: records from this offset on are left out.
        headers: with a column of the record headers, null if a record has none.
        max_bytes: the maximum size of a decompressed batch.

    Raises:
        DecodeError: a batch is corrupt.
    """
    heads = [read_header(batch) for batch in batches]
    datas = [_records(head, batch, max_bytes) for head, batch in zip(heads, batches, strict=True)]
    data = b"".join((*datas, _PADDING))
    if len(data) > 0x7FFFFFFF:
        raise DecodeError(f"{len(data)} bytes of records at once")
    try:
        begins = _beginnings(data, heads, datas)
    except IndexError as error:
        raise DecodeError("a record ends after its batch") from error
    counts = np.array([head.count for head in heads], dtype=np.int64)

    def spread(values: Sequence[int]) -> Integers:
        return np.repeat(np.array(values, dtype=np.int64), counts)

    bytes_ = np.frombuffer(data, dtype=np.uint8)
    size, starts = _varints(bytes_, begins, 5)
    if (size < 0).any():
        raise DecodeError("a record of a negative length")
    ends = starts + size
    at = starts + 1  # the attributes, unused
    delta, at = _varints(bytes_, at, 10)
    append_time = [head.is_log_append_time for head in heads]
    base = [
        head.max_timestamp if fixed else head.base_timestamp for head, fixed in zip(heads, append_time, strict=True)
    ]
    kinds = spread(append_time)
    timestamps = spread(base) + np.where(kinds == 1, 0, delta)
    delta, at = _varints(bytes_, at, 5)
    offsets = spread([head.base_offset for head in heads]) + delta
    size, at = _varints(bytes_, at, 5)
    key_null, key_at, key_end = _extent(size, at, ends)
    size, at = _varints(bytes_, key_end, 5)
    value_null, value_at, value_end = _extent(size, at, ends)
    if ((value_end >= ends) | (delta < 0)).any():
        raise DecodeError("a record is shorter than its content")

    chosen = np.flatnonzero((offsets >= start) & (offsets < end))
    cuts = np.empty(4 * len(starts) + 1, dtype=np.int32)
    cuts[0:-1:4], cuts[1:-1:4], cuts[2:-1:4], cuts[3:-1:4] = key_at, key_end, value_at, value_end
    cuts[-1] = len(data) - len(_PADDING)
    pieces = pa.Array.from_buffers(
        pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), pa.py_buffer(data)], null_count=0
    )
    milliseconds = np.clip(timestamps[chosen], -_MOST_MILLISECONDS, _MOST_MILLISECONDS)
    columns = [
        _pick(pieces, 4 * chosen, key_null[chosen]),
        _pick(pieces, 4 * chosen + 2, value_null[chosen]),
        _repeated(topic, len(chosen)),
        _numbers(np.full(len(chosen), partition, dtype=np.int32), pa.int32()),
        _numbers(offsets[chosen], pa.int64()),
        _numbers(milliseconds * 1000, pa.timestamp("us", tz="UTC")),
        _numbers(kinds[chosen].astype(np.int32), pa.int32()),
    ]
    if headers:
        some = bool((bytes_[value_end] != 0).any())
        columns.append(_headers(batches, chosen, max_bytes) if some else pa.nulls(len(chosen), HEADERS_TYPE))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(headers=headers))


def _records(head: BatchHeader, batch: Buffer, max_bytes: int) -> Buffer:
    """Return the records of a batch, decompressed."""
    if head.size != len(batch):
        raise DecodeError(f"batch of {head.size} bytes in {len(batch)}")
    body = memoryview(batch)[HEADER_SIZE:]
    return decompress(head.codec, body, max_bytes) if head.codec else body


def _beginnings(data: bytes, heads: Sequence[BatchHeader], datas: Sequence[Buffer]) -> Integers:
    """Return where each record begins, which is at its length.

    Sequences of records of the same length are found many at a time, others one by one.
    """
    places = np.frombuffer(data, dtype=np.uint8)
    found = [np.empty(0, dtype=np.int64)]
    at = stop = 0
    window = _LOOK
    for head, records in zip(heads, datas, strict=True):
        stop += len(records)
        left = head.count
        if not 0 <= left <= len(records):
            raise DecodeError(f"{left} records in {len(records)} bytes")
        while left:
            wanted = min(left, window)
            count, size = _alike(data, places, at, stop, wanted) if wanted >= _WORTH else (0, 0)
            if count >= _WORTH:
                window = min(2 * window, _MOST_LOOK) if count == wanted else _LOOK
                found.append(at + size * np.arange(count))
                at += size * count
            else:
                count, window = min(left, _ALONE), _LOOK
                begins, at = _one_by_one(data, at, count)
                found.append(np.array(begins, dtype=np.int64))
            left -= count
        if at != stop:
            raise DecodeError(f"{head.count} records end at {at} of {stop} bytes")
    return np.concatenate(found)


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


def _numbers(values: Integers | NDArray[np.int32], kind: Any) -> Any:
    """Return an Arrow array that shares the memory of a numpy array."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], null_count=0)


def _repeated(text: str, count: int) -> Any:
    """Return an Arrow array that repeats one string."""
    data = text.encode()
    cuts = np.array([0, len(data)], dtype=np.int32)
    once = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(cuts), pa.py_buffer(data)], null_count=0)
    return once.take(_numbers(np.zeros(count, dtype=np.int64), pa.int64()))


def _pick(pieces: Any, which: Integers, null: Flags) -> Any:
    """Return the pieces with these numbers, null where `null` is true."""
    picked = pieces.take(_numbers(which, pa.int64()))
    if not null.any():
        return picked
    _, offsets, data = picked.buffers()
    valid = pa.py_buffer(np.packbits(~null, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.binary(), len(picked), [valid, offsets, data], offset=picked.offset)


def _headers(batches: Sequence[Buffer], chosen: Integers, max_bytes: int) -> Any:
    """Return the column of headers. They are rare and small, so they are read record by record."""
    rows: list[list[tuple[str, bytes | None]] | None] = []
    for batch in batches:
        rows.extend(list(record.headers) or None for record in decode_records(batch, max_bytes=max_bytes))
    return pa.array([rows[number] for number in chosen], type=HEADERS_TYPE)
