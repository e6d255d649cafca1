"""Records in columns: many records become the bytes of a batch with a few calls for all of them, not for each.

A record is a sequence of small fields around its key and value. For each field there is a column: one constant for all
records, or a list. ``zip`` puts the columns side by side and ``bytes.join`` writes them, so no bytecode runs for each
record. Lengths are looked up in tables with the few different ones that occur. The result equals, byte for byte, what
:meth:`~barnabas_protocol.records.builder.BatchBuilder.append` writes.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, repeat
from operator import add, itemgetter
from typing import Final, TypeVar, cast

from barnabas_protocol.records.fields import SMALL, VARINTS, Headers, encode_headers, long_varint, varint
from barnabas_protocol.wire import Buffer

T = TypeVar("T")

#: The longest varint of a timestamp's difference, in bytes.
_LONGEST: Final = 10
#: The first numbers whose varint is one byte longer than that of the number before.
_STEPS: Final = tuple(1 << bits for bits in (6, 13, 20, 27))
_NO_HEADERS: Final = b"\x00"
_NULL: Final = varint(-1)


class RecordColumns:
    """Records in columns.

    Args:
        values: of the records; None is null.
        keys: as many; None if all keys are null.
        headers: as many; None if no record has any.
        timestamps: in milliseconds since 1970: as many, or one for all records.

    Attributes:
        ends: where each record ends if only its key, value and headers are counted, in bytes; the first item is 0.
        largest: the size of the largest record, counted in the same way.
    """

    __slots__ = ("_headers", "_keys", "_sizes", "_timestamps", "_values", "ends", "largest")

    def __init__(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers | None] | None,
        timestamps: int | Sequence[int],
    ) -> None:
        self._values = _Texts.of(values)
        self._keys = None if keys is None else _Texts.of(keys)
        self._headers: Sequence[bytes] | None = None if headers is None else _encoded(headers)
        self._timestamps = timestamps
        self._measure()

    def __len__(self) -> int:
        return len(self.ends) - 1

    def pick(self, places: Sequence[int]) -> "RecordColumns":
        """Return the records at these places, in their order."""
        picked = RecordColumns.__new__(RecordColumns)
        picked._values = self._values.pick(places)
        picked._keys = None if self._keys is None else self._keys.pick(places)
        picked._headers = None if self._headers is None else _pick(self._headers, places)
        picked._timestamps = self._timestamps if isinstance(self._timestamps, int) else _pick(self._timestamps, places)
        picked._measure()
        return picked

    def _measure(self) -> None:
        """Compute the size of each record's key, value and headers, with their lengths: a number if all are equal."""
        values, keys, headers = self._values, self._keys, self._headers
        count = len(values.data)
        sizes: int | Iterable[int] = values.sizes()
        for more in (len(_NULL) if keys is None else keys.sizes(), 1 if headers is None else list(map(len, headers))):
            if isinstance(sizes, int):
                sizes = sizes + more if isinstance(more, int) else map(sizes.__add__, more)
            else:
                sizes = map(more.__add__, sizes) if isinstance(more, int) else map(add, sizes, more)
        self._sizes: int | list[int]
        self.ends: Sequence[int]
        if isinstance(sizes, int):
            self._sizes = self.largest = sizes
            self.ends = range(0, sizes * (count + 1), sizes)
        else:
            self._sizes = list(sizes)
            self.largest = max(self._sizes, default=0)
            self.ends = list(accumulate(self._sizes, initial=0))

    def first_timestamp(self, at: int) -> int:
        """The timestamp of the record at `at`."""
        return self._timestamps if isinstance(self._timestamps, int) else self._timestamps[at]

    def latest_timestamp(self, begin: int, end: int) -> int:
        """The latest timestamp of the records from `begin` to `end`, exclusive."""
        return self._timestamps if isinstance(self._timestamps, int) else max(self._timestamps[begin:end])

    def fitting(self, begin: int, end: int, room: int, delta: int, base_timestamp: int) -> int:
        """The number of records from `begin` on, but before `end`, that surely fit into a batch.

        Args:
            begin: the first record.
            end: the record after the last one.
            room: the free bytes of the batch.
            delta: the offset delta of the first record.
            base_timestamp: of the batch.
        """
        one = self._timestamps
        stamp = len(varint(one - base_timestamp)) if isinstance(one, int) else _LONGEST
        each = 1 + stamp + len(varint(delta + end - begin))
        each += len(varint(self.largest + each))
        return self.within(begin, end, room, each)

    def within(self, begin: int, end: int, room: int, each: int) -> int:
        """The number of records from `begin` on, but before `end`, that have no more than `room` bytes together.

        Args:
            begin: the first record.
            end: the record after the last one.
            room: bytes.
            each: bytes to count for a record besides its key, value and headers.
        """
        ends, start = self.ends, self.ends[begin]
        return bisect_right(
            range(1, end - begin + 1), room, key=lambda count: ends[begin + count] - start + count * each
        )

    def size(self, begin: int, end: int, each: int) -> int:
        """The size of the records from `begin` to `end`, exclusive, in bytes; `each` is as in :meth:`within`."""
        return self.ends[end] - self.ends[begin] + (end - begin) * each

    def write(self, buffer: bytearray, begin: int, end: int, delta: int, base_timestamp: int) -> None:
        """Append the records from `begin` to `end`, exclusive, to the bytes of a batch.

        Args:
            buffer: the batch.
            begin: the first record.
            end: the record after the last one.
            delta: the offset delta of the first record.
            base_timestamp: of the batch.
        """
        while begin < end:
            # All records of one turn have offset deltas of the same length.
            last = min((begin + step - delta for step in _STEPS if step > delta), default=end)
            last = min(last, end)
            self._write(buffer, begin, last, delta, base_timestamp)
            delta += last - begin
            begin = last

    def _write(self, buffer: bytearray, begin: int, end: int, delta: int, base_timestamp: int) -> None:
        count = end - begin
        keys, values, headers = self._keys, self._values, self._headers
        # A record without headers ends with a constant, which is written in front of the next record's length.
        front = _NO_HEADERS if headers is None else b""
        fixed = 1 + len(varint(delta))  # attributes, offset delta
        stamps: list[bytes] | None = None
        since = b""
        if isinstance(self._timestamps, int):
            since = varint(self._timestamps - base_timestamp)
            fixed += len(since)
        else:
            stamps = [varint(one - base_timestamp) for one in self._timestamps[begin:end]]
        columns: list[Iterable[Buffer]] = []
        if isinstance(self._sizes, int) and stamps is None:
            columns.append(repeat(b"%b%b\x00%b" % (front, varint(fixed + self._sizes), since), count))
        else:
            sizes: Iterable[int]
            sizes = repeat(self._sizes, count) if isinstance(self._sizes, int) else self._sizes[begin:end]
            if stamps is not None:
                sizes = map(add, sizes, map(len, stamps))
            known = list(map(fixed.__add__, sizes))
            heads = {size: b"%b%b\x00%b" % (front, varint(size), since) for size in set(known)}
            columns.append(map(heads.__getitem__, known))
        if stamps is not None:
            columns.append(stamps)
        columns.append(
            VARINTS[delta : delta + count] if delta < SMALL else map(long_varint, range(delta, delta + count))
        )
        if keys is not None:
            columns += keys.columns(begin, end, b"")
        columns += values.columns(begin, end, _NULL if keys is None else b"")
        if headers is not None:
            columns.append(headers[begin:end])
        written = b"".join(chain.from_iterable(zip(*columns, strict=False)))
        if front:
            with memoryview(written) as view:
                buffer += view[len(front) :]
            buffer += front
        else:
            buffer += written


class _Texts:
    """A column of keys or of values: their bytes and lengths, -1 for null; and what comes before each length."""

    __slots__ = ("data", "lengths", "same")

    def __init__(self, data: Sequence[Buffer], lengths: list[int]) -> None:
        self.data = data
        self.lengths = lengths
        self.same = len(set(lengths)) == 1

    @staticmethod
    def of(items: Sequence[Buffer | None]) -> "_Texts":
        """Create the column of keys or values."""
        whole = cast(Sequence[Buffer], items)
        try:
            return _Texts(whole, list(map(len, whole)))
        except TypeError:  # null has no length
            lengths = [-1 if item is None else len(item) for item in items]
            return _Texts([b"" if item is None else item for item in items], lengths)

    def pick(self, places: Sequence[int]) -> "_Texts":
        return _Texts(_pick(self.data, places), list(_pick(self.lengths, places)))

    def sizes(self) -> int | list[int]:
        """The size of each item with its length; a number if all are equal."""
        if self.same:
            return _size(self.lengths[0])
        table = {length: _size(length) for length in set(self.lengths)}
        return list(map(table.__getitem__, self.lengths))

    def columns(self, begin: int, end: int, front: bytes) -> list[Iterable[Buffer]]:
        """The columns of a batch: the lengths, after `front`, and the items."""
        data = self.data if end - begin == len(self.data) else self.data[begin:end]
        if self.same:
            return [repeat(front + varint(self.lengths[0]), end - begin), data]
        lengths = self.lengths[begin:end]
        table = {length: front + varint(length) for length in set(lengths)}
        return [map(table.__getitem__, lengths), data]


def _size(length: int) -> int:
    return 1 if length < 0 else len(varint(length)) + length


def _pick(items: Sequence[T], places: Sequence[int]) -> Sequence[T]:
    return itemgetter(*places)(items) if len(places) > 1 else [items[place] for place in places]


def _encoded(headers: Sequence[Headers | None]) -> list[bytes]:
    """Encode the headers of each record; those that are the same object as the one before only once."""
    out: list[bytes] = []
    before: Headers | None = None
    encoded = _NO_HEADERS
    for one in headers:
        if one is not before:
            encoded = encode_headers(one) if one else _NO_HEADERS
            before = one
        out.append(encoded)
    return out
