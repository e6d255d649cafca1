"""Which segments have lived long enough (``UnifiedLog.deleteOldSegments``). The decision is pure."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas_broker.logs import logger
from barnabas_broker.storage import names
from barnabas_broker.storage.files import Files
from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.settings import LogSettings

if TYPE_CHECKING:
    from barnabas_broker.storage.log import Log

log = logger("storage")


class Expired(NamedTuple):
    """How many of the first segments are to go, and why. False if none."""

    number: int
    reason: str

    def __bool__(self) -> bool:
        return self.number > 0


def expired(
    segments: Sequence[Segment],
    settings: LogSettings,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> Expired:
    """What is to be removed: always from the start, never what is not replicated yet, never an empty last segment.

    Args:
        segments: of the log, in order.
        settings: of its topic.
        log_start_offset: of the log: segments before it hold nothing that can be read.
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
        elif 0 <= settings.retention_ms < now_ms - newest(segment):
            why = "retention.ms"
        else:
            break
        size -= segment.size
        count, reason = n + 1, why
    return Expired(count, reason)


def roll_if_old(owner: "Log", now_ms: int) -> None:
    """See :meth:`Log.roll_if_old`."""
    segment, settings = owner.segments.active, owner.settings
    if segment.size and (
        now_ms - segment.created_ms > settings.segment_ms
        or (settings.compact and 0 <= segment.first_timestamp < now_ms - settings.max_compaction_lag_ms)
    ):
        owner.roll(now_ms)


def retain(owner: "Log", now_ms: int) -> int:
    """See :meth:`Log.retain`."""
    found = expired(
        owner.segments.items, owner.settings, owner.log_start_offset, owner.log_end_offset, owner.high_watermark, now_ms
    )
    if not found or owner.swapping:
        return 0
    owner.disk.check()
    old = owner.segments.items[: found.number]
    try:
        if found.number == len(owner.segments):
            # The active one too: the log goes on in an empty segment, so that offsets do not start again.
            owner.roll(now_ms)
        owner.remove_segments(old, [], now_ms)
        owner.start_at(owner.segments.first_offset)
        remove_snapshots(owner.disk.files, owner.path, owner.segments.first_offset)
    except OSError as error:
        raise owner.disk.fail(f"retention of {owner.topic_partition}", error) from error
    log.info(
        "segments removed",
        partition=str(owner.topic_partition),
        segments=len(old),
        reason=found.reason,
        log_start_offset=owner.log_start_offset,
    )
    return len(old)


def newest(segment: Segment) -> int:
    """What a segment's age counts from, in ms: its largest timestamp; without one, when it was opened or made."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms


def remove_snapshots(files: Files, path: Path, before: int, keep: int = 0) -> None:
    """Remove the producer snapshots of a partition that were taken before an offset, but the last `keep` of those."""
    old = [
        name
        for name in files.names(path)
        if (parsed := names.parse_offset_name(name)) is not None and parsed[1] == names.SNAPSHOT and parsed[0] < before
    ]
    for name in old[: len(old) - keep] if keep else old:
        files.remove(path / name)
