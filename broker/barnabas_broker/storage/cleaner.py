"""Compaction of logs whose ``cleanup.policy`` says so (Kafka's ``LogCleaner``, ``LogCleanerManager``).

One log at a time: the event loop decides what is to be cleaned, a thread reads closed segments and writes new ones
beside them, no faster than ``log.cleaner.io.max.bytes.per.second``, and the event loop swaps them in if nothing has
happened to the old ones meanwhile. What a crash interrupts is undone or finished by :mod:`.recovery`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_broker.logs import logger
from barnabas_broker.storage import names
from barnabas_broker.storage.compaction import collect, filter_batch
from barnabas_broker.storage.disk import Disk
from barnabas_broker.storage.files import Files, write_file
from barnabas_broker.storage.index import MOST_RELATIVE, OffsetIndex, TimeIndex, TimestampOffset
from barnabas_broker.storage.log import Log
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.storage.scan import scan
from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.settings import LogSettings
from barnabas_protocol.records.batches import BatchHeader, read_header

log = logger("storage")

#: Keys whose last offset is kept in memory at a time; a log with more is cleaned in several rounds.
MOST_KEYS: Final = 1_000_000
_WRITE: Final = 1024 * 1024


class Throttle:
    """Keeps a thread from doing more than so many bytes a second.

    Args:
        bytes_per_second: the most.
        clock: seconds.
        pause: waits so many seconds.
    """

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._pause = pause
        self._since = clock()
        self._done = 0

    def spend(self, size: int) -> None:
        """`size` bytes have been read or written; wait if that was too fast."""
        self._done += size
        early = self._done / self._rate - (self._clock() - self._since)
        if early > 0.01:
            self._pause(early)


class Source(NamedTuple):
    """A closed segment as the thread sees it."""

    base_offset: int
    path: Path
    size: int
    end_offset: int


class Plan(NamedTuple):
    """What is to be cleaned.

    Attributes:
        sources: the segments, from the first of the log.
        first_dirty: what is before this offset has been cleaned before.
        now_ms: the time of day.
        settings: of the topic.
        last_offsets: for each producer the offset of the last record it wrote, whose batch must stay.
    """

    directory: Path
    sources: Sequence[Source]
    first_dirty: int
    now_ms: int
    settings: LogSettings
    last_offsets: dict[int, int]


class Cleaned(NamedTuple):
    """What the thread has made: groups of old segments, each with the base offset of the one that replaces it."""

    groups: Sequence[tuple[Sequence[Source], int]]
    end_offset: int
    bytes_before: int
    bytes_after: int


def dirtiness(owner: Log, first_dirty: int, now_ms: int, trusted: int) -> tuple[float, int]:
    """How much of a log's cleanable part is dirty, and up to where it may be cleaned.

    Args:
        owner: the log.
        first_dirty: what is before this offset has been cleaned before.
        now_ms: the time of day.
        trusted: the recovery point that is written down: recovery must not take the gaps of compaction for lost data.

    Returns:
        A ratio, 0 if there is nothing to do, 1 if ``max.compaction.lag.ms`` demands it; and the offset, exclusive.
    """
    settings = owner.settings
    end = first_dirty = max(first_dirty, owner.log_start_offset)
    limit = min(owner.last_stable_offset, trusted)
    clean = dirty = 0
    overdue = False
    for segment, following in pairwise(owner.segments):
        if segment.bad or following.base_offset > limit:
            break
        if following.base_offset <= first_dirty:
            clean += segment.size
            continue
        if settings.min_compaction_lag_ms and segment.max_timestamp > now_ms - settings.min_compaction_lag_ms:
            break
        if 0 <= segment.first_timestamp < now_ms - settings.max_compaction_lag_ms:
            overdue = True
        dirty += segment.size
        end = following.base_offset
    if not dirty:
        return 0.0, end
    ratio = dirty / (clean + dirty)
    if overdue or ratio >= settings.min_cleanable_ratio:
        return (1.0 if overdue else ratio), end
    return 0.0, end


def plan(owner: Log, first_dirty: int, end: int, now_ms: int) -> Plan:
    """What cleaning `owner` up to `end` means."""
    bases = [segment.base_offset for segment in owner.segments] + [owner.log_end_offset]
    sources = [
        Source(segment.base_offset, segment.path(names.LOG), segment.size, bases[n + 1])
        for n, segment in enumerate(owner.segments)
        if bases[n + 1] <= end
    ]
    last = {
        producer_id: state.batches[-1].last_offset
        for producer_id, state in owner.producers.states.items()
        if state.batches
    }
    return Plan(owner.path, sources, max(first_dirty, owner.log_start_offset), now_ms, owner.settings, last)


def clean(files: Files, work: Plan, throttle: Throttle) -> Cleaned:
    """Read segments and write cleaned ones beside them, with the suffix ``.cleaned``. Runs on a thread.

    Raises:
        OSError: the disk does not do it.
        BadBatch, DecodeError: a segment is broken; it is left alone.
    """
    latest: dict[bytes, int] = {}
    end = work.sources[0].base_offset
    for source in work.sources:
        if source.end_offset > work.first_dirty and len(latest) >= MOST_KEYS:
            break
        end = source.end_offset
        if source.end_offset > work.first_dirty:
            for header, batch in _batches(files, source, throttle):
                if header.last_offset >= work.first_dirty:
                    collect(latest, header, batch)
    groups: list[tuple[Sequence[Source], int]] = []
    after = 0
    for group in _groups([source for source in work.sources if source.end_offset <= end], work.settings):
        base = group[0].base_offset
        after += _write_group(files, work, group, latest, throttle)
        groups.append((group, base))
    before = sum(source.size for group, _ in groups for source in group)
    return Cleaned(groups, end, before, after)


def _batches(files: Files, source: Source, throttle: Throttle) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a segment, read through a handle of its own."""
    handle = files.open(source.path)
    try:
        for _, header, batch in scan(files, handle, start=0, end=source.size, offset=source.base_offset, verify=True):
            throttle.spend(header.size)
            yield header, batch
    finally:
        files.close(handle)


def _groups(sources: Sequence[Source], settings: LogSettings) -> Iterator[Sequence[Source]]:
    """Neighbours that fit into one segment together."""
    group: list[Source] = []
    for source in sources:
        if group and (
            sum(each.size for each in group) + source.size > settings.segment_bytes
            or source.end_offset - group[0].base_offset > MOST_RELATIVE
        ):
            yield group
            group = []
        group.append(source)
    if group:
        yield group


def _write_group(
    files: Files, work: Plan, group: Sequence[Source], latest: Mapping[bytes, int], throttle: Throttle
) -> int:
    """Write what is left of some segments into one; its size."""
    base, interval = group[0].base_offset, work.settings.index_interval_bytes
    index, time_index = OffsetIndex(base), TimeIndex(base)
    newest = TimestampOffset(-1, base)
    position = written = indexed_at = 0
    pending = bytearray()

    def is_last(header: BatchHeader) -> bool:
        return header.producer_id >= 0 and work.last_offsets.get(header.producer_id) == header.last_offset

    handle = files.open(names.offset_path(work.directory, base, names.LOG + names.CLEANED), create=True)
    try:
        files.truncate(handle, 0)
        for source in group:
            for header, batch in _batches(files, source, throttle):
                left = filter_batch(
                    header,
                    batch,
                    latest,
                    now_ms=work.now_ms,
                    delete_retention_ms=work.settings.delete_retention_ms,
                    keep_empty=is_last,
                )
                if left is None:
                    continue
                max_timestamp = read_header(left).max_timestamp
                if max_timestamp > newest.timestamp:
                    newest = TimestampOffset(max_timestamp, header.last_offset)
                if position - indexed_at > interval:
                    index.append(header.last_offset, position)
                    time_index.maybe_append(*newest)
                    indexed_at = position
                pending += left
                position += len(left)
                if len(pending) >= _WRITE:
                    files.write(handle, [pending], written)
                    throttle.spend(len(pending))
                    written, pending = position, bytearray()
        if pending:
            files.write(handle, [pending], written)
        files.sync(handle)
    finally:
        files.close(handle)
    if newest.timestamp >= 0:
        time_index.maybe_append(*newest)
    for suffix, content in ((names.INDEX, index.content()), (names.TIME_INDEX, time_index.content())):
        write_file(files, names.offset_path(work.directory, base, suffix + names.CLEANED), content)
    return position


class Cleaner:
    """Cleans the logs of a directory, one after another.

    Args:
        disk: of the directory.
        throttle: makes one for each round.

    Attributes:
        offsets: up to where each log has been cleaned; kept in ``cleaner-offset-checkpoint``.
        running: a round is under way.
    """

    def __init__(self, disk: Disk, throttle: Callable[[], Throttle]) -> None:
        self._disk = disk
        self._throttle = throttle
        self.offsets: dict[TopicPartition, int] = {}
        self.running = False

    def begin(self, logs: Iterable[Log], now_ms: int, trusted: Mapping[TopicPartition, int]) -> bool:
        """Clean the dirtiest log, in the background.

        Args:
            logs: of the directory.
            now_ms: the time of day.
            trusted: the recovery points that are written down.

        Returns:
            Whether there was anything to clean.
        """
        if self.running or self._disk.failure is not None:
            return False
        best: tuple[float, int, Log] | None = None
        for each in logs:
            if each.settings.compact:
                where = each.topic_partition
                first = self._first_dirty(each)
                ratio, end = dirtiness(each, first, now_ms, trusted.get(where, 0))
                if ratio and (best is None or ratio > best[0]):
                    best = ratio, end, each
        if best is None:
            return False
        owner = best[2]
        work = plan(owner, self._first_dirty(owner), best[1], now_ms)
        old = owner.segments.items[: len(work.sources)]
        files, throttle = self._disk.files, self._throttle()
        self.running = True
        self._disk.background.run(
            lambda: clean(files, work, throttle), lambda result: self._cleaned(owner, old, result)
        )
        return True

    def _first_dirty(self, owner: Log) -> int:
        # Beyond the active segment's base the checkpoint is of a log that has been cut since.
        known = self.offsets.get(owner.topic_partition, 0)
        return known if known <= owner.segments.active.base_offset else 0

    def _cleaned(self, owner: Log, old: Sequence[Segment], result: Cleaned | Exception) -> None:
        """Back on the event loop: the thread has written everything, or has failed."""
        if isinstance(result, FileNotFoundError):
            self.running = False  # retention or a deletion was faster
        elif isinstance(result, OSError):
            self.running = False
            self._disk.fail(f"compaction of {owner.topic_partition}", result)
        elif isinstance(result, Exception):
            self.running = False
            log.error("log cannot be compacted", partition=str(owner.topic_partition), reason=str(result))
            # Not again before something else is dirty.
            self.offsets[owner.topic_partition] = old[-1].base_offset + 1
        elif not owner.begin_swap(old):
            self._drop(owner, result)
        else:
            files, done = self._disk.files, result
            self._disk.background.run(
                lambda: _mark_complete(files, owner.path, done), lambda error: self._swap(owner, old, done, error)
            )

    def _swap(self, owner: Log, old: Sequence[Segment], done: Cleaned, error: Exception | None) -> None:
        self.running = False
        if isinstance(error, FileNotFoundError):
            return  # the partition has been deleted
        if error is not None:
            self._disk.fail(f"compaction of {owner.topic_partition}", error)
            return
        if owner.end_swap(old, [([each.base_offset for each in group], base) for group, base in done.groups]):
            self.offsets[owner.topic_partition] = done.end_offset
            log.info(
                "log compacted",
                partition=str(owner.topic_partition),
                up_to=done.end_offset,
                bytes_before=done.bytes_before,
                bytes_after=done.bytes_after,
            )

    def _drop(self, owner: Log, done: Cleaned) -> None:
        """The log has changed meanwhile: what was made of it is of no use."""
        self.running = False
        for _, base in done.groups:
            for suffix in names.SEGMENT_FILES:
                self._disk.files.remove(names.offset_path(owner.path, base, suffix + names.CLEANED))


def _mark_complete(files: Files, directory: Path, done: Cleaned) -> None:
    """Rename what is finished to ``.swap``, the last one first: recovery undoes it if ``.cleaned`` ones are left."""
    for _, base in reversed(done.groups):
        for suffix in (names.LOG, names.INDEX, names.TIME_INDEX):
            files.rename(
                names.offset_path(directory, base, suffix + names.CLEANED),
                names.offset_path(directory, base, suffix + names.SWAP),
            )
    files.sync_directory(directory)
