"""The aborted transactions whose markers are in a segment: its ``.txnindex`` file, in Kafka's format
(``TransactionIndex``, ``AbortedTxn``).

Entries have 34 bytes: version, producer id, first offset, last offset (the marker's), and the last stable offset after
the marker. They are in the order of their markers. The file exists only if there is an entry.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from heapq import merge
from itertools import starmap
from typing import Final, NamedTuple, Protocol

from barnabas_broker.steps import Steps
from barnabas_broker.storage.index import Checksum, CorruptIndex
from barnabas_protocol.records.checksums import crc32c

ENTRY: Final = struct.Struct(">hqqqq")
_LAST_OFFSET: Final = struct.Struct(">18xq")
_STABLE_OFFSET: Final = struct.Struct(">26xq")
_VERSION: Final = 0
#: Entries that a search looks at in one step, and of which it remembers the smallest first offset.
_BLOCK: Final = 256
#: Transactions that are put in order at a time, and what one of them takes: first offset, producer id, and the rest.
_SORTED: Final = 4_096
_PACKED: Final = struct.Struct(">qqqq")


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its first offset, the offset of its marker, and the last stable offset after that."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Found(Protocol):
    """Gets the transactions that a search finds: a list, or :class:`InOffsetOrder`."""

    def append(self, transaction: AbortedTransaction, /) -> None:
        """Add one."""


class InOffsetOrder:
    """Aborted transactions in the order of their first offsets, in 32 bytes each.

    A fetch may overlap hundreds of thousands. They come in the order of their markers, are sorted a few thousand at a
    time into runs, and the runs are merged while the caller takes them, so that no step is long.
    """

    __slots__ = ("_last", "_runs", "_unsorted")

    def __init__(self) -> None:
        self._unsorted: list[tuple[int, int, int, int]] = []
        self._runs: list[bytearray] = []
        #: The largest first offset of the last run.
        self._last = -1

    def __len__(self) -> int:
        return len(self._unsorted) + sum(map(len, self._runs)) // _PACKED.size

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction."""
        producer_id, first, last, stable = transaction
        self._unsorted.append((first, producer_id, last, stable))
        if len(self._unsorted) == _SORTED:
            self._sort()

    def __iter__(self) -> Iterator[AbortedTransaction]:
        self._sort()
        for first, producer_id, last, stable in merge(*map(_PACKED.iter_unpack, self._runs)):
            yield AbortedTransaction(producer_id, first, last, stable)

    def _sort(self) -> None:
        if not self._unsorted:
            return
        self._unsorted.sort()
        # Transactions that do not overlap each other make up one run.
        if not self._runs or self._unsorted[0][0] < self._last:
            self._runs.append(bytearray())
        self._runs[-1] += b"".join(starmap(_PACKED.pack, self._unsorted))
        self._last = self._unsorted[-1][0]
        self._unsorted.clear()


class TransactionIndex:
    """The entries of one segment, as the bytes of their file.

    Args:
        base_offset: of the segment.
        content: of the file, if it exists. An entry that is cut off at its end does not count.
    """

    __slots__ = ("_bytes", "_least", "base_offset", "count")

    def __init__(self, base_offset: int, content: bytes | bytearray | memoryview = b"") -> None:
        self.base_offset = base_offset
        self.count = len(content) // ENTRY.size
        self._bytes: bytes | bytearray | memoryview = content
        #: By block: the smallest first offset of its entries.
        self._least: dict[int, int] = {}

    def __len__(self) -> int:
        return self.count

    def entry(self, n: int) -> AbortedTransaction:
        """Entry number `n`."""
        return AbortedTransaction(*ENTRY.unpack_from(self._bytes, n * ENTRY.size)[1:])

    @property
    def last_offset(self) -> int:
        """The offset of the last marker; -1 if there is none."""
        return self.entry(self.count - 1).last_offset if self.count else -1

    def entries(self) -> list[AbortedTransaction]:
        """All entries."""
        return [self.entry(n) for n in range(self.count)]

    def content(self, start: int = 0) -> bytes:
        """The bytes of the entries from number `start` on."""
        return bytes(self._bytes[start * ENTRY.size : self.count * ENTRY.size])

    def check(self) -> None:
        """Check all entries.

        Raises:
            CorruptIndex: an entry is cut off, of an unknown version, or impossible.
        """
        if len(self._bytes) % ENTRY.size:
            raise CorruptIndex(f"{len(self._bytes)} bytes are not a multiple of {ENTRY.size}")
        before, stable = self.base_offset - 1, 0
        for version, _, first, last, last_stable in ENTRY.iter_unpack(self._bytes):
            if version != _VERSION or not 0 <= first < last or last <= before or not stable <= last_stable <= last + 1:
                raise CorruptIndex(f"entry ({version}, {first}, {last}, {last_stable}) after ({before}, {stable})")
            before, stable = last, last_stable

    def verify(self, checksum: Checksum) -> None:
        """As that of the other indexes.

        Raises:
            CorruptIndex: entries are missing, or not as they were.
        """
        size = checksum.entries * ENTRY.size
        if len(self._bytes) < size or crc32c(self._bytes[:size]) != checksum.crc:
            raise CorruptIndex(f"wrong checksum of {checksum.entries} aborted transactions")
        if self.count != checksum.entries:
            self.count = checksum.entries
            self._bytes = self.content()
            self._least.clear()

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction, whose marker is after those of all others."""
        if not isinstance(self._bytes, bytearray):
            self._bytes = bytearray(self.content())
        self._bytes += ENTRY.pack(_VERSION, *transaction)
        self.count += 1

    def truncate(self, offset: int) -> None:
        """Remove the transactions whose markers are at `offset` or later."""
        self.count = self._first_after(offset)
        self._bytes = bytearray(self.content())
        self._least.clear()

    def overlapping(self, start: int, end: int, found: Found) -> Steps[bool]:
        """Find the transactions with an offset from `start` to before `end`, some entries per step.

        Args:
            start: an offset.
            end: an offset.
            found: gets them.

        Returns:
            Whether no later segment has others, because everything before `end` was stable already.
        """
        size, content = ENTRY.size, self._bytes
        n, count = self._first_after(start), self.count
        while n < count:
            block = n // _BLOCK
            stop = (block + 1) * _BLOCK
            if stop <= count and self._smallest(block) >= end:
                if _STABLE_OFFSET.unpack_from(content, (stop - 1) * size)[0] >= end:
                    return True
            else:
                stop = min(stop, count)
                for _, producer_id, first, last, stable in ENTRY.iter_unpack(bytes(content[n * size : stop * size])):
                    if first < end:
                        found.append(AbortedTransaction(producer_id, first, last, stable))
                    if stable >= end:
                        return True
            n = stop
            yield
        return False

    def ended(self, start: int, end: int) -> tuple[int, int]:
        """The number of transactions whose markers are from `start` to before `end`, and the producer id of the last
        one; -1 if there is none."""
        first, after = self._first_after(start), self._first_after(end)
        return (after - first, self.entry(after - 1).producer_id) if first < after else (0, -1)

    def _first_after(self, offset: int) -> int:
        """The number of the first entry whose marker is at `offset` or later."""
        content, unpack, size = self._bytes, _LAST_OFFSET.unpack_from, ENTRY.size
        return bisect_left(range(self.count), offset, key=lambda n: unpack(content, n * size)[0])

    def _smallest(self, block: int) -> int:
        least = self._least.get(block)
        if least is None:
            at, size = block * _BLOCK * ENTRY.size, _BLOCK * ENTRY.size
            least = min(entry[2] for entry in ENTRY.iter_unpack(bytes(self._bytes[at : at + size])))
            self._least[block] = least
        return least
