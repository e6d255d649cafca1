"""Decides which segments have expired (``UnifiedLog.deleteOldSegments``). Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.settings import LogSettings


class Expired(NamedTuple):
    """How many of a log's first segments have expired, and why the last of them has. False if none has."""

    number: int
    reason: str

    def __bool__(self) -> bool:
        return self.number > 0


class Removal(NamedTuple):
    """The last removal of segments that have expired from a log.

    Attributes:
        log_start: the first offset of the log after it.
        reason: the setting because of which they expired.
        newest_ms: the largest timestamp of their records, or when they were created, in ms since 1970.
        retention_ms: ``retention.ms`` then.
    """

    log_start: int
    reason: str
    newest_ms: int
    retention_ms: int


def expired(
    segments: Sequence[Segment],
    settings: LogSettings,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> Expired:
    """Which segments to remove: only from the start, none beyond the high watermark, never an empty last one.

    Args:
        segments: of the log, in order.
        settings: of its topic.
        log_start_offset: of the log: a segment that ends before it holds nothing readable.
        log_end_offset: of the log.
        high_watermark: of the log.
        now_ms: the time of day.
    """
    count, reason = 0, "log start offset"
    size = sum(segment.size for segment in segments)
    for n, segment in enumerate(segments):
        is_last = n + 1 == len(segments)
        end = log_end_offset if is_last else segments[n + 1].base_offset
        if end > high_watermark or (is_last and not segment.size):
            break
        if end <= log_start_offset and not is_last:
            why = "log start offset"
        elif not settings.delete:
            break
        elif 0 <= settings.retention_bytes <= size - segment.size:
            why = "retention.bytes"
        elif 0 <= settings.retention_ms < now_ms - newest_timestamp(segment):
            why = "retention.ms"
        else:
            break
        size -= segment.size
        count, reason = n + 1, why
    return Expired(count, reason)


def newest_timestamp(segment: Segment) -> int:
    """The time that a segment's age counts from, in ms: its largest timestamp, or when it was created or opened."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
