"""The segments of one log, in order, with look-ups by offset and timestamp (Kafka's ``LogSegments``)."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from barnabas_broker.logs import logger
from barnabas_broker.storage import names
from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.slices import OpenFile
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.records import BatchHeader, RecordsTooLarge, iter_records

log = logger("storage")


class TimestampAt(NamedTuple):
    """The timestamp (ms) and offset of a record, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


class Segments:
    """At least one segment; the last one is active.

    Args:
        items: in order.

    Attributes:
        active: the last segment.
        items: all segments; read only.
    """

    __slots__ = ("_bases", "active", "items")

    def __init__(self, items: Sequence[Segment]) -> None:
        self.items = list(items)
        self._bases = [segment.base_offset for segment in items]
        self.active = self.items[-1]
        self._link()

    def _link(self) -> None:
        for segment, following in pairwise(self.items):
            segment.following = following.base_offset
        if self.items:
            self.active = self.items[-1]
            self.active.following = None

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def first_offset(self) -> int:
        """The base offset of the first segment."""
        return self._bases[0]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.items)

    def floor(self, offset: int) -> int:
        """The index of the segment that holds `offset`; 0 if it is before all."""
        return (bisect_right(self._bases, offset) or 1) - 1

    def since(self, offset: int, *, closed_at: bool = False) -> list[Segment]:
        """The segments with records at `offset` or later; with `closed_at` also the one that ends there."""
        find = bisect_left if closed_at else bisect_right
        return self.items[max(find(self._bases, offset) - 1, 0) :]

    def end_of(self, n: int, log_end_offset: int) -> int:
        """The offset after the last record of segment number `n`."""
        return self._bases[n + 1] if n + 1 < len(self._bases) else log_end_offset

    def append(self, segment: Segment) -> None:
        """Add a segment, which becomes the active one."""
        self.active.following = segment.base_offset
        self.items.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Replace `old`, which are neighbours, by `new`."""
        at = self.items.index(old[0])
        self.items[at : at + len(old)] = new
        self._bases[at : at + len(old)] = [segment.base_offset for segment in new]
        self._link()

    def starts_with(self, segments: Sequence[Segment]) -> bool:
        """Whether these are the first segments, and the active one is not among them."""
        return len(segments) < len(self.items) and all(a is b for a, b in zip(self.items, segments, strict=False))

    # Timestamps

    def batch_for_timestamp(self, timestamp: int, start: int) -> "FoundBatch | None":
        """The first batch that ends at `start` or later and says that it has a timestamp from `timestamp` (ms) on.

        Raises:
            KafkaError: CORRUPT_MESSAGE; KAFKA_STORAGE_ERROR.
        """
        for n in range(self.floor(start), len(self.items)):
            segment = self.items[n]
            if segment.max_timestamp < timestamp:
                continue
            try:
                before = max(segment.time_index.before(timestamp).offset, start)
                for at, header, _ in segment.walk(segment.position_before(before), verify=False):
                    if header.max_timestamp >= timestamp and header.next_offset > start and header.count:
                        return FoundBatch(segment.open(), segment.path(names.LOG), at, header)
            except DecodeError as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path(names.LOG)}: {error}") from error
            except OSError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{segment.path(names.LOG)}: {error}") from error
        return None

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of all segments, in ms; -1 if no batch has one."""
        return max(segment.max_timestamp for segment in self.items)


class FoundBatch(NamedTuple):
    """A batch that may hold the record that is looked for: the file, its path, the batch's position and header."""

    file: OpenFile
    path: Path
    position: int
    header: BatchHeader

    def find(self, timestamp: int, start: int, max_bytes: int, stopped: Callable[[], bool]) -> TimestampAt | None:
        """The first record from offset `start` on whose timestamp is at least `timestamp`; for a thread.

        Of a batch that is larger than `max_bytes` when decompressed, its first offset.

        Raises:
            KafkaError: CORRUPT_MESSAGE; KAFKA_STORAGE_ERROR.
        """
        header = self.header
        try:
            batch = self.file.files.read(self.file.handle, header.size, self.position)
            for records in iter_records(batch, max_bytes=max_bytes):
                for record in records:
                    if record.timestamp >= timestamp and record.offset >= start:
                        return TimestampAt(record.timestamp, record.offset, header.leader_epoch)
                if stopped():
                    return None
        except RecordsTooLarge as error:
            log.warning("batch is not looked into", file=str(self.path), offset=header.base_offset, reason=str(error))
            return TimestampAt(header.max_timestamp, max(header.base_offset, start), header.leader_epoch)
        except DecodeError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: {error}") from error
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {error}") from error
        return None
