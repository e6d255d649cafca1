"""The two sparse indexes of a segment, in Kafka's on-disk formats (``OffsetIndex``, ``TimeIndex``).

The offset index holds ``(last offset of a batch - base offset, position of that batch)``, 4 bytes each; the time
index ``(largest timestamp so far, last offset of the batch that has it - base offset)``, 8 and 4 bytes. The files of a
closed segment are mapped and searched where they are. The indexes of the active one are in memory, the offset index as
arrays of numbers: most reads look there.

Kafka's formats have no checksums: a flipped bit would be a wrong timestamp, and remove a segment too early. A file of
our own has them for the indexes of a segment, each for the first entries of its file.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from barnabas_protocol.records.checksums import crc32c
from barnabas_protocol.wire import Buffer

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
#: The two numbers of an entry of the offset index, each without the other one.
_OFFSET: Final = struct.Struct(">i4x")
_POSITION: Final = struct.Struct(">4xi")

#: How many entries further a search first looks when the place that it guessed is not the right one.
_NEAR: Final = 8

#: The largest relative offset that an index can hold.
MOST_RELATIVE: Final = 2**31 - 1

#: The number of entries and their CRC-32C, for the offset index, the time index and the transaction index.
_CHECKSUMS: Final = struct.Struct(">iIiIiI")
_CRC: Final = struct.Struct(">I")
#: The size of the file of checksums.
CHECKSUMS_SIZE: Final = _CHECKSUMS.size + _CRC.size

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class CorruptIndex(Exception):
    """The index is missing or has impossible entries; it is rebuilt from the log."""


class Checksum(NamedTuple):
    """The CRC-32C of the first `entries` of an index."""

    entries: int
    crc: int


def format_checksums(contents: Sequence[tuple[int, Buffer]]) -> bytes:
    """Format the file of checksums.

    Args:
        contents: for each of the three indexes, the number of its entries and their bytes.
    """
    numbers = [number for count, content in contents for number in (count, crc32c(content))]
    data = _CHECKSUMS.pack(*numbers)
    return data + _CRC.pack(crc32c(data))


def parse_checksums(data: bytes) -> tuple[Checksum, Checksum, Checksum]:
    """Parse what :func:`format_checksums` has returned.

    Raises:
        CorruptIndex: the data is something else.
    """
    size = _CHECKSUMS.size
    if len(data) != CHECKSUMS_SIZE or _CRC.unpack_from(data, size)[0] != crc32c(data[:size]):
        raise CorruptIndex("the checksums are damaged")
    numbers = _CHECKSUMS.unpack_from(data)
    return Checksum(*numbers[:2]), Checksum(*numbers[2:4]), Checksum(*numbers[4:])


class TimestampOffset(NamedTuple):
    """The largest timestamp (ms) up to a position, and the last offset of its batch; (-1, base offset) if none."""

    timestamp: int
    offset: int


class _Column:
    """One of the two numbers of each entry of an offset index, in the bytes of its file.

    Args:
        content: of the file.
        form: of an entry, with this number only.
    """

    __slots__ = ("_content", "_count", "_form")

    def __init__(self, content: memoryview, form: struct.Struct) -> None:
        self._content = content
        self._form = form
        self._count = len(content) // form.size

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, n: int) -> int:
        return int(self._form.unpack_from(self._content, n * OFFSET_ENTRY.size)[0])

    def __iter__(self) -> Iterator[int]:
        return (number for (number,) in self._form.iter_unpack(self._content))

    def entries(self, start: int) -> bytes:
        """The bytes of the entries from number `start` on, both numbers of each."""
        return bytes(self._content[start * OFFSET_ENTRY.size :])

    def count_to(self, value: int) -> int:
        """How many are at most `value`."""
        content, unpack, low, high = self._content, self._form.unpack_from, 0, self._count
        if not high:
            return 0
        # Entries are spaced almost evenly: look around the place where the value would be, then between what is known.
        probe, step = min(value * high // max(self[high - 1], 1), high - 1), _NEAR
        while low <= probe < high:
            if unpack(content, probe * 8)[0] <= value:
                low = probe + 1
                probe += step
            else:
                high = probe
                probe -= step
            step *= 4
        return bisect_right(range(self._count), value, low, high, key=lambda n: unpack(content, n * 8)[0])


class OffsetIndex:
    """Maps offsets to positions.

    Args:
        base_offset: of the segment.
        content: of the file, if it exists. Zeros at its end, which Kafka preallocates, are not entries.

    Raises:
        CorruptIndex: the size is not a multiple of an entry's.

    Attributes:
        count: the number of entries.
    """

    __slots__ = ("_offsets", "_positions", "base_offset", "count")

    def __init__(self, base_offset: int, content: memoryview | None = None) -> None:
        self.base_offset = base_offset
        #: Offsets less the base offset, and positions: in the file's bytes, or in memory once an entry is added.
        self._offsets: _Column | array[int] = array("i")
        self._positions: _Column | array[int] = array("i")
        self.count = 0
        if content is None:
            return
        if len(content) % OFFSET_ENTRY.size:
            raise CorruptIndex(f"{len(content)} bytes are not a multiple of {OFFSET_ENTRY.size}")
        self._offsets, self._positions = _Column(content, _OFFSET), _Column(content, _POSITION)
        self.count = len(self._offsets)
        # A preallocated file that was not truncated: the entries end where the zeros begin.
        if self.count and self.entry(self.count - 1) == (base_offset, 0):
            self._cut(bisect_left(range(self.count), True, key=lambda n: self.entry(n) == (base_offset, 0)))

    def check(self) -> None:
        """Check all entries.

        Raises:
            CorruptIndex: offsets or positions that do not grow.
        """
        last_offset, last_position = -1, -1
        for offset, position in zip(self._offsets, self._positions, strict=True):
            if offset <= last_offset or position <= last_position:
                raise CorruptIndex(f"entry ({offset}, {position}) after ({last_offset}, {last_position})")
            last_offset, last_position = offset, position

    def content(self, start: int = 0) -> bytes:
        """The bytes of the entries from number `start` on."""
        offsets, positions = self._offsets, self._positions
        if isinstance(offsets, _Column):
            return offsets.entries(start)
        numbers = array("i", bytes((self.count - start) * OFFSET_ENTRY.size))
        numbers[::2], numbers[1::2] = offsets[start:], array("i", islice(positions, start, None))
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers.tobytes()

    def verify(self, checksum: Checksum) -> None:
        """Check the first entries, and remove those after them: they were written without a checksum.

        Raises:
            CorruptIndex: they are missing, or not as they were.
        """
        _verify(self.content(), OFFSET_ENTRY.size, checksum)
        if self.count != checksum.entries:
            self._cut(checksum.entries)

    def entry(self, n: int) -> tuple[int, int]:
        """Entry number `n`: offset and position."""
        return self.base_offset + self._offsets[n], self._positions[n]

    def last(self) -> tuple[int, int]:
        """The last entry; (base offset, 0) if the index is empty."""
        return self.entry(self.count - 1) if self.count else (self.base_offset, 0)

    def append(self, last_offset: int, position: int) -> None:
        """Add the batch at `position` with this last offset, which is larger than all before."""
        offsets, positions = self._offsets, self._positions
        if isinstance(offsets, _Column) or isinstance(positions, _Column):
            offsets, positions = self._offsets, self._positions = self._copied(0, self.count)
        offsets.append(last_offset - self.base_offset)
        positions.append(position)
        self.count += 1

    def position_before(self, offset: int) -> int:
        """A position from which to search for the batch that holds `offset`; never after it."""
        return self.before(offset)[1]

    def before(self, offset: int) -> tuple[int, int]:
        """The last entry up to `offset`; (base offset, 0) if there is none."""
        # An entry whose last offset is `offset` is the batch itself; the next entry may be after it.
        n = _count_to(self._offsets, offset - self.base_offset)
        return self.entry(n - 1) if n else (self.base_offset, 0)

    def tail(self, offset: int, count: int) -> int:
        """The position of the batch of the `count`-th last entry up to `offset`; 0 if there are fewer entries."""
        n = _count_to(self._offsets, offset - self.base_offset) - count
        return self.entry(n)[1] if n >= 0 else 0

    def before_position(self, position: int) -> tuple[int, int]:
        """The last entry up to a position; (base offset, 0) if there is none."""
        n = _count_to(self._positions, position)
        return self.entry(n - 1) if n else (self.base_offset, 0)

    def offset_from(self, position: int) -> int | None:
        """The last offset of the first batch with an entry at `position` or after; None if there is none."""
        n = _count_to(self._positions, position - 1)
        return self.entry(n)[0] if n < self.count else None

    def truncate(self, position: int) -> None:
        """Remove the entries at `position` and after. From now on the index does not need its file."""
        self._cut(_count_to(self._positions, position - 1))

    def _cut(self, count: int) -> None:
        self._offsets, self._positions = self._copied(0, count)
        self.count = count

    def _copied(self, start: int, end: int) -> tuple["array[int]", "array[int]"]:
        """The numbers of the entries from `start` to before `end`, in memory."""
        offsets, positions = islice(self._offsets, start, end), islice(self._positions, start, end)
        return array("i", offsets), array("i", positions)


def _count_to(column: "_Column | array[int]", value: int) -> int:
    """How many numbers of a column are at most `value`."""
    return column.count_to(value) if isinstance(column, _Column) else bisect_right(column, value)


def _verify(content: Buffer, entry_size: int, checksum: Checksum) -> None:
    size = checksum.entries * entry_size
    if len(content) < size or crc32c(content[:size]) != checksum.crc:
        raise CorruptIndex(f"wrong checksum of {checksum.entries} entries")


class TimeIndex:
    """Maps timestamps to offsets.

    Args:
        base_offset: of the segment.
        content: of the file, if it exists. Zeros at its end are not entries.

    Raises:
        CorruptIndex: the size is not a multiple of an entry's.

    Attributes:
        count: the number of entries.
    """

    __slots__ = ("_bytes", "base_offset", "count")

    def __init__(self, base_offset: int, content: memoryview | None = None) -> None:
        self.base_offset = base_offset
        self._bytes: bytearray | memoryview = bytearray() if content is None else content
        size = len(self._bytes)
        if size % TIME_ENTRY.size:
            raise CorruptIndex(f"{size} bytes are not a multiple of {TIME_ENTRY.size}")
        self.count = size // TIME_ENTRY.size
        if self.count > 1 and self.entry(self.count - 1) == (0, base_offset):
            self._cut(bisect_left(range(self.count), True, key=lambda n: self.entry(n) == (0, base_offset)))

    def check(self) -> None:
        """Check all entries.

        Raises:
            CorruptIndex: timestamps that do not grow, or offsets that go back.
        """
        last_timestamp, last_offset = -1, -1
        for timestamp, offset in TIME_ENTRY.iter_unpack(self._bytes):
            if timestamp <= last_timestamp or offset < last_offset:
                raise CorruptIndex(f"entry ({timestamp}, {offset}) after ({last_timestamp}, {last_offset})")
            last_timestamp, last_offset = timestamp, offset

    def content(self, start: int = 0) -> bytes:
        """The bytes of the entries from number `start` on."""
        return bytes(self._bytes[start * TIME_ENTRY.size : self.count * TIME_ENTRY.size])

    def verify(self, checksum: Checksum) -> None:
        """Check the first entries, as in :meth:`OffsetIndex.verify`.

        Raises:
            CorruptIndex: they are missing, or not as they were.
        """
        _verify(self._bytes, TIME_ENTRY.size, checksum)
        if self.count != checksum.entries:
            self._cut(checksum.entries)

    def entry(self, n: int) -> TimestampOffset:
        """Entry number `n`."""
        timestamp, relative = TIME_ENTRY.unpack_from(self._bytes, n * 12)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def last(self) -> TimestampOffset:
        """The last entry; (-1, base offset) if the index is empty."""
        return self.entry(self.count - 1) if self.count else TimestampOffset(-1, self.base_offset)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless its timestamp is not larger than all before."""
        if timestamp > self.last().timestamp:
            if not isinstance(self._bytes, bytearray):
                self._bytes = bytearray(self._bytes)
            self._bytes += TIME_ENTRY.pack(timestamp, offset - self.base_offset)
            self.count += 1

    def before(self, timestamp: int) -> TimestampOffset:
        """The last entry with a timestamp up to `timestamp`; (-1, base offset) if there is none.

        No batch up to the one of that entry has a larger timestamp.
        """
        data, unpack = self._bytes, _INT64.unpack_from
        n = bisect_right(range(self.count), timestamp, key=lambda n: unpack(data, n * 12)[0])
        return self.entry(n - 1) if n else TimestampOffset(-1, self.base_offset)

    def truncate(self, offset: int) -> None:
        """Remove the entries of `offset` and after."""
        data, unpack = self._bytes, _INT32.unpack_from
        relative = offset - self.base_offset
        self._cut(bisect_left(range(self.count), relative, key=lambda n: unpack(data, n * 12 + 8)[0]))

    def _cut(self, count: int) -> None:
        self._bytes = bytearray(self._bytes[: count * TIME_ENTRY.size])
        self.count = count
