"""Iterates over the batches of a log file."""

import struct
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from barnabas_broker.storage.files import Files
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records.batches import CRC_START, HEADER, HEADER_SIZE, LENGTH_END, BatchHeader, check_batch

#: Bytes of one read: enough for the full speed of a disk, and small enough for the processor's cache.
CHUNK: Final = 1024 * 1024
#: A larger batch length is taken for corrupt, although ``message.max.bytes`` could be larger.
LARGEST_BATCH: Final = 1024 * 1024 * 1024
#: Batches of this size and larger are skipped over when only headers are needed.
_WORTH_SKIPPING: Final = 65_536
_LENGTH: Final = struct.Struct(">i")


class BadBatch(Exception):
    """Bytes in a log file are not a valid batch.

    Args:
        position: in the file, in bytes.
        offset: the first offset that may be affected.
        size: of the batch, if its length is plausible, so that a scan can continue after it; otherwise None.
        reason: why it is not valid.
    """

    def __init__(self, position: int, offset: int, size: int | None, reason: str) -> None:
        super().__init__(f"{reason} at position {position}, offset {offset}")
        self.position = position
        self.offset = offset
        self.size = size
        self.reason = reason


def scan(
    files: Files, handle: int, *, start: int, end: int, offset: int, verify: bool
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield the batches of a file from `start` up to `end`, each with its position.

    Args:
        files: the file system.
        handle: of the file.
        start: the position of a batch.
        end: the position after the last batch.
        offset: the smallest valid base offset of the first batch.
        verify: whether to check CRC and structure. If not, the third value is only the batch's header.

    Raises:
        BadBatch: at the first batch that is not valid, or not complete at `end`.
    """
    position = start
    chunk, chunk_at, size = memoryview(b""), start, 0
    while position < end:
        at = position - chunk_at
        if len(chunk) - at < HEADER_SIZE:
            want = CHUNK if verify or size < _WORTH_SKIPPING else HEADER_SIZE
            chunk, chunk_at, at = memoryview(files.read(handle, min(want, end - position), position)), position, 0
            if len(chunk) < HEADER_SIZE:
                raise BadBatch(position, offset, None, f"{end - position} bytes are less than a batch header")
        fields = HEADER.unpack_from(chunk, at)
        size = fields[1] + LENGTH_END
        if fields[3] != 2 or not HEADER_SIZE <= size <= LARGEST_BATCH:
            raise BadBatch(position, offset, None, f"not a batch header (length {fields[1]}, magic {fields[3]})")
        if position + size > end:
            raise BadBatch(position, offset, None, f"batch of {size} bytes cut off after {end - position}")
        header = BatchHeader(fields[0], size, *fields[2:])
        if header.base_offset < offset or header.last_offset_delta < 0:
            raise BadBatch(position, offset, size, f"offsets from {header.base_offset} to {header.last_offset}")
        if verify:
            if len(chunk) - at < size:
                want = min(max(CHUNK, size), end - position)
                chunk, chunk_at, at = memoryview(files.read(handle, want, position)), position, 0
                if len(chunk) < size:
                    raise BadBatch(position, offset, None, f"batch of {size} bytes, {len(chunk)} could be read")
            batch = chunk[at : at + size]
            if crc32c(batch[CRC_START:]) != header.crc:
                raise BadBatch(position, offset, size, "wrong CRC")
            if header.count != header.last_offset_delta + 1 or header.attributes & ~0x3F:
                try:
                    check_batch(header, batch, allow_empty=True, allow_gaps=True)
                except DecodeError as error:
                    raise BadBatch(position, offset, size, str(error)) from error
        else:
            batch = chunk[at : at + HEADER_SIZE]
        yield position, header, batch
        offset = header.base_offset + header.last_offset_delta + 1
        position += size


def sizes(view: memoryview, at: int, limit: int) -> int:
    """The end of the last batch in `view`, from `at` on, that ends at or before `limit`."""
    unpack = _LENGTH.unpack_from
    while at + HEADER_SIZE <= limit:
        end = at + LENGTH_END + int(unpack(view, at + 8)[0])
        if end > limit or end <= at:
            break
        at = end
    return at
