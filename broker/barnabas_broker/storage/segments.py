"""The segments of one log, in order, with look-ups by offset and timestamp (Kafka's ``LogSegments``)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas_broker.storage import names
from barnabas_broker.storage.scan import BadBatch
from barnabas_broker.storage.segment import Segment
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.records import decode_records


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
        return max(bisect_right(self._bases, offset) - 1, 0)

    def since(self, offset: int, *, closed_at: bool = False) -> list[Segment]:
        """The segments with records at `offset` or later; with `closed_at` also the one that ends there."""
        find = bisect_left if closed_at else bisect_right
        return self.items[max(find(self._bases, offset) - 1, 0) :]

    def end_of(self, n: int, log_end_offset: int) -> int:
        """The offset after the last record of segment number `n`."""
        return self._bases[n + 1] if n + 1 < len(self._bases) else log_end_offset

    def append(self, segment: Segment) -> None:
        """Add a segment, which becomes the active one."""
        self.items.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Replace `old`, which are neighbours, by `new`."""
        at = self.items.index(old[0])
        self.items[at : at + len(old)] = new
        self._bases[at : at + len(old)] = [segment.base_offset for segment in new]
        if self.items:
            self.active = self.items[-1]

    def starts_with(self, segments: Sequence[Segment]) -> bool:
        """Whether these are the first segments, and the active one is not among them."""
        return len(segments) < len(self.items) and all(a is b for a, b in zip(self.items, segments, strict=False))

    # Timestamps

    def find_timestamp(self, timestamp: int, log_start_offset: int) -> TimestampAt | None:
        """The first record from the log start offset on whose timestamp is at least `timestamp` (ms).

        Raises:
            KafkaError: CORRUPT_MESSAGE; KAFKA_STORAGE_ERROR.
        """
        for segment in self.items:
            if segment.max_timestamp >= timestamp:
                start = max(segment.time_index.before(timestamp).offset, log_start_offset)
                found = _search(segment, segment.index.position_before(start), timestamp, log_start_offset)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self, log_start_offset: int) -> TimestampAt | None:
        """The first record with the largest timestamp.

        Raises:
            KafkaError: CORRUPT_MESSAGE; KAFKA_STORAGE_ERROR.
        """
        segment = max(self.items, key=lambda segment: segment.max_timestamp)
        if segment.max_timestamp < 0:
            return None
        position = segment.index.position_before(segment.max_timestamp_offset)
        return _search(segment, position, segment.max_timestamp, log_start_offset)


def _search(segment: Segment, position: int, timestamp: int, log_start_offset: int) -> TimestampAt | None:
    try:
        for at, header, _ in segment.walk(position, verify=False):
            if header.max_timestamp < timestamp or header.next_offset <= log_start_offset or not header.count:
                continue
            for record in decode_records(segment.files.read(segment.handle, header.size, at)):
                if record.timestamp >= timestamp and record.offset >= log_start_offset:
                    return TimestampAt(record.timestamp, record.offset, header.leader_epoch)
    except (BadBatch, DecodeError) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path(names.LOG)}: {error}") from error
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{segment.path(names.LOG)}: {error}") from error
    return None
