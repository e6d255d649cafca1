"""Iterates over the batches of a log file, and finds the next sound one after damage.

A batch is sound if its CRC is right, its header has no flaw
(:func:`~barnabas_protocol.records.batches.flaw`, which Produce and replication use as well) and its base offset
fits its place in the file: the CRC does not cover the base offset.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final

from barnabas_broker.files import Files
from barnabas_protocol.records.batches import CRC_START, HEADER, HEADER_SIZE, LENGTH_END, BatchHeader, flaw
from barnabas_protocol.records.checksums import crc32c

#: Bytes of one read: enough for the full speed of a disk, and small enough for the processor's cache.
CHUNK: Final = 1024 * 1024
#: The largest offset.
LONG_MAX: Final = 2**63 - 1
#: Batches of this size and larger are skipped over when only headers are needed.
_WORTH_SKIPPING: Final = 65_536
_LENGTH: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class BadBatch(Exception):
    """Bytes in a log file are not a valid batch.

    Args:
        position: in the file, in bytes.
        offset: the first offset that may be affected.
        size: of the batch, if its length is plausible, so that a scan can continue after it; otherwise None.
        reason: why it is not valid.
        misplaced: only the base offset is wrong: from its neighbours, the batch must begin at `offset`.
    """

    def __init__(self, position: int, offset: int, size: int | None, reason: str, *, misplaced: bool = False) -> None:
        super().__init__(f"{reason} at position {position}, offset {offset}")
        self.position = position
        self.offset = offset
        self.size = size
        self.reason = reason
        self.misplaced = misplaced


def scan(
    files: Files,
    handle: int,
    *,
    start: int,
    end: int,
    offset: int,
    verify: bool,
    limit: int = LONG_MAX,
    following: int | None = None,
    exact: bool = False,
    file_end: int | None = None,
    chunk_size: int = CHUNK,
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield the batches of a file from `start` up to `end`, each with its position.

    Args:
        files: the file system.
        handle: of the file.
        start: the position of a batch.
        end: the position after the last batch.
        offset: the smallest valid base offset of the first batch.
        verify: whether to check CRC and structure. If not, the third value is only the batch's header.
        limit: all offsets are before this one.
        following: the offset after the last batch of the file, if it is known: the next segment's base offset.
        exact: `offset` is the base offset of the first batch, unless compaction has removed some records.
        file_end: the position after the last batch of the file, if it is not `end`.
        chunk_size: bytes of one read.

    Raises:
        BadBatch: at the first batch that is not valid, or not complete at `end`.
    """
    position, gaps = start, False
    file_end = end if file_end is None else file_end
    chunk, chunk_at, size = memoryview(b""), start, 0
    while position < end:
        at = position - chunk_at
        if len(chunk) - at < HEADER_SIZE:
            want = chunk_size if verify or size < _WORTH_SKIPPING else HEADER_SIZE
            chunk, chunk_at, at = memoryview(files.read(handle, min(want, end - position), position)), position, 0
            if len(chunk) < HEADER_SIZE:
                raise BadBatch(position, offset, None, f"{end - position} bytes are less than a batch header")
        fields = HEADER.unpack_from(chunk, at)
        size = fields[1] + LENGTH_END
        if fields[3] != 2 or size < HEADER_SIZE:
            raise BadBatch(position, offset, None, f"not a batch header (length {fields[1]}, magic {fields[3]})")
        if position + size > end:
            raise BadBatch(position, offset, None, f"batch of {size} bytes cut off after {end - position}")
        header = BatchHeader(fields[0], size, *fields[2:])
        next_offset = header.base_offset + header.last_offset_delta + 1
        if verify:
            if len(chunk) - at < size:
                want = min(max(chunk_size, size), end - position)
                chunk, chunk_at, at = memoryview(files.read(handle, want, position)), position, 0
                if len(chunk) < size:
                    raise BadBatch(position, offset, None, f"batch of {size} bytes, {len(chunk)} could be read")
            batch = chunk[at : at + size]
            if crc32c(batch[CRC_START:]) != header.crc:
                raise BadBatch(position, offset, size, "wrong CRC")
            reason = flaw(header)
            if reason is not None:
                raise BadBatch(position, offset, size, reason)
        else:
            batch = chunk[at : at + HEADER_SIZE]
            if header.last_offset_delta < 0:
                raise BadBatch(position, offset, size, f"last offset delta {header.last_offset_delta}")
        if header.base_offset != offset or next_offset > limit:
            is_last = position + size == file_end
            after = following if is_last else _base_offset(files, handle, position + size, file_end)
            place = offset + header.last_offset_delta + 1
            outside = header.base_offset < offset or next_offset > limit
            if outside or (exact and after is not None and place <= after < next_offset):
                # Without a neighbour the offset is certain only if no records are missing before it.
                proven = exact and (place == after or (outside and is_last and after is None and not gaps))
                # Behind the limit no base offset fits: a truncation that a crash has undone leaves such batches.
                proven = proven and place <= limit
                raise BadBatch(
                    position,
                    offset,
                    size,
                    f"offsets from {header.base_offset} to {header.last_offset} do not fit here",
                    misplaced=proven,
                )
            gaps = True
        yield position, header, batch
        gaps = gaps or header.is_sparse
        offset, exact = next_offset, True
        position += size


def _base_offset(files: Files, handle: int, position: int, end: int) -> int | None:
    """The base offset of the batch at `position`, or None if there is none."""
    data = files.read(handle, min(HEADER_SIZE, end - position), position)
    if len(data) < HEADER_SIZE:
        return None
    fields = HEADER.unpack(data)
    whole = HEADER_SIZE <= fields[1] + LENGTH_END <= end - position
    return int(fields[0]) if fields[3] == 2 and whole else None


def find_sound(
    files: Files, handle: int, bad: BadBatch, *, end: int, low: int, limit: int
) -> tuple[int, BatchHeader] | None:
    """The next sound batch after damage, with its position; None if there is none.

    First where the damaged batch ends according to its own length, then at every byte.

    Args:
        files: the file system.
        handle: of the file.
        bad: the damage.
        end: where to stop.
        low: its base offset is at least this.
        limit: all its offsets are before this one.
    """
    if bad.size is not None:
        if bad.position + bad.size >= end:
            return None
        header = _sound_at(files, handle, bad.position + bad.size, end, low, limit)
        if header is not None:
            return bad.position + bad.size, header
    # The high bytes that all base offsets between the bounds share make the search fast.
    first, last = _INT64.pack(low), _INT64.pack(min(limit, LONG_MAX))
    shared = next((n for n in range(8) if first[n] != last[n]), 8)
    pattern = re.compile(b"(?=" + re.escape(first[:shared]) + b".{%d}\x02)" % (16 - shared), re.DOTALL)
    at = bad.position + 1
    while at < end:
        chunk = files.read(handle, min(CHUNK, end - at), at)
        for found in pattern.finditer(chunk):
            header = _sound_at(files, handle, at + found.start(), end, low, limit)
            if header is not None:
                return at + found.start(), header
        at += max(len(chunk) - HEADER_SIZE, 1) if at + len(chunk) < end else len(chunk) or end
    return None


def _sound_at(files: Files, handle: int, position: int, end: int, low: int, limit: int) -> BatchHeader | None:
    try:
        for _, header, _ in scan(files, handle, start=position, end=end, offset=low, verify=True, limit=limit):
            return header
    except BadBatch:
        pass
    return None


def sizes(view: memoryview, at: int, limit: int) -> int:
    """The end of the last batch in `view`, from `at` on, that ends at or before `limit`."""
    unpack = _LENGTH.unpack_from
    while at + HEADER_SIZE <= limit:
        end = at + LENGTH_END + int(unpack(view, at + 8)[0])
        if end > limit or end <= at:
            break
        at = end
    return at
