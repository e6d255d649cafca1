"""Compacts the logs of topics with ``cleanup.policy=compact`` (Kafka's ``LogCleaner``, ``LogCleanerManager``).

One log at a time: the event loop chooses the segments; a thread reads them and writes cleaned ones beside them, at no
more than ``log.cleaner.io.max.bytes.per.second``; the event loop swaps these in, unless the old ones have changed
meanwhile. After a crash :mod:`.recovery` undoes or completes the swap.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_broker.files import Files, put_file, read_all, write_file
from barnabas_broker.logs import logger
from barnabas_broker.steps import finish
from barnabas_broker.storage import names
from barnabas_broker.storage.checkpoints import format_compacted
from barnabas_broker.storage.compaction import MOST_KEYS, CleanedTransactions, collect, filter_batch
from barnabas_broker.storage.disk import Disk
from barnabas_broker.storage.index import MOST_RELATIVE, OffsetIndex, TimeIndex, TimestampOffset, format_checksums
from barnabas_broker.storage.log import Log
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.storage.scan import scan
from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.settings import LogSettings
from barnabas_broker.storage.transaction_index import AbortedTransaction, TransactionIndex
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records.batches import CONTROL, BatchHeader, read_header

log = logger("storage")

_WRITE: Final = 1024 * 1024


class Throttle:
    """Limits the bytes per second of a thread.

    Args:
        bytes_per_second: the limit.
        clock: a monotonic clock, in seconds.
        pause: sleeps for some seconds.
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
        """Count `size` bytes that were read or written; sleep if that was too fast."""
        self._done += size
        early = self._done / self._rate - (self._clock() - self._since)
        if early > 0.01:
            self._pause(early)


class Source(NamedTuple):
    """A closed segment to clean."""

    base_offset: int
    path: Path
    size: int
    end_offset: int


class Plan(NamedTuple):
    """The work of one round.

    Attributes:
        directory: of the partition.
        sources: the segments, from the first of the log on.
        first_dirty: everything before this offset was cleaned in earlier rounds.
        now_ms: the time of day.
        settings: of the topic.
        last_batches: by producer id, the offset of its last record, whose batch must be kept; of a producer that has
            written none since its last marker, -1 and the epoch of that, which must be kept.
        later_aborted: aborted transactions that begin before the segments end, and whose markers are after that.
    """

    directory: Path
    sources: Sequence[Source]
    first_dirty: int
    now_ms: int
    settings: LogSettings
    last_batches: dict[int, tuple[int, int]]
    later_aborted: Sequence[AbortedTransaction]


class Cleaned(NamedTuple):
    """The result of a round: groups of old segments, each with the base offset of the segment that replaces it."""

    groups: Sequence[tuple[Sequence[Source], int]]
    end_offset: int
    bytes_before: int
    bytes_after: int


def dirtiness(target: Log, first_dirty: int, now_ms: int, trusted: int) -> tuple[float, int]:
    """The dirty ratio of a log, and the offset up to which it can be cleaned.

    Args:
        target: the log.
        first_dirty: everything before this offset was cleaned in earlier rounds.
        now_ms: the time of day.
        trusted: the recovery point on the disk. Beyond it recovery would take the gaps of compaction for lost records.

    Returns:
        The ratio, 0 if there is nothing to do, 1 if ``max.compaction.lag.ms`` is exceeded; and the offset, exclusive.
    """
    settings = target.settings
    end = first_dirty = max(first_dirty, target.log_start_offset)
    limit = min(target.last_stable_offset, trusted)
    clean = dirty = 0
    overdue = False
    for segment, following in pairwise(target.segments):
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


def plan(target: Log, first_dirty: int, end: int, now_ms: int) -> Plan:
    """Plan a round that cleans a log up to `end`."""
    # The active segment is none of them, even if it is empty.
    sources = [
        Source(segment.base_offset, segment.path(names.LOG), segment.size, following.base_offset)
        for segment, following in pairwise(target.segments)
        if following.base_offset <= end
    ]
    last = {
        producer_id: (state.batches[-1].last_offset if state.batches else -1, state.epoch)
        for producer_id, state in target.producers.states.items()
    }
    later: list[AbortedTransaction] = []
    for segment in target.segments.items[len(sources) :]:
        if segment.has_aborted and finish(segment.transactions.overlapping(end, end, later)):
            break
    return Plan(target.path, sources, max(first_dirty, target.log_start_offset), now_ms, target.settings, last, later)


def clean(files: Files, work: Plan, throttle: Throttle) -> Cleaned:
    """Read segments and write cleaned ones beside them, with the suffix ``.cleaned``. Runs on a thread.

    Raises:
        OSError: the disk failed.
        BadBatch: a segment is corrupt; nothing is replaced.
    """
    aborted = [*work.later_aborted, *(each for source in work.sources for each in _aborted(files, work, source))]
    latest, end = _last_offsets(files, work, aborted, throttle)
    transactions = CleanedTransactions(aborted)
    groups: list[tuple[Sequence[Source], int]] = []
    after = 0
    for group in _groups([source for source in work.sources if source.base_offset < end], work.settings):
        base = group[0].base_offset
        after += _write_group(files, work, group, latest, transactions, throttle)
        groups.append((group, base))
    before = sum(source.size for group, _ in groups for source in group)
    return Cleaned(groups, end, before, after)


def _aborted(files: Files, work: Plan, source: Source) -> list[AbortedTransaction]:
    """The aborted transactions whose markers are in a segment."""
    path = names.offset_path(work.directory, source.base_offset, names.TXN_INDEX)
    try:
        return TransactionIndex(source.base_offset, read_all(files, path)).entries()
    except FileNotFoundError:
        return []


def _last_offsets(
    files: Files, work: Plan, aborted: Sequence[AbortedTransaction], throttle: Throttle
) -> tuple[dict[bytes, int], int]:
    """The last offset of each key in the dirty part, and where it ends if there are more keys than fit in memory."""
    latest: dict[bytes, int] = {}
    transactions = CleanedTransactions(each for each in aborted if each.last_offset >= work.first_dirty)
    for source in work.sources:
        if source.end_offset <= work.first_dirty:
            continue
        for header, batch in _batches(files, source, throttle):
            if header.last_offset < work.first_dirty:
                continue
            if transactions.may_discard(header, batch) or header.attributes & CONTROL:
                continue
            if len(latest) >= MOST_KEYS:
                return latest, header.base_offset
            try:
                collect(latest, header, batch, work.settings.max_decompressed_bytes)
            except DecodeError as error:
                log.warning(
                    "records cannot be decoded, compaction keeps their batch",
                    file=str(source.path),
                    offset=header.base_offset,
                    reason=str(error),
                )
    return latest, work.sources[-1].end_offset


def _batches(files: Files, source: Source, throttle: Throttle) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a segment, read through a separate handle."""
    handle = files.open(source.path)
    try:
        for _, header, batch in scan(
            files,
            handle,
            start=0,
            end=source.size,
            offset=source.base_offset,
            verify=True,
            limit=source.end_offset,
            exact=True,
        ):
            throttle.spend(header.size)
            yield header, batch
    finally:
        files.close(handle)


def _groups(sources: Sequence[Source], settings: LogSettings) -> Iterator[Sequence[Source]]:
    """Group neighbours that fit into one segment."""
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
    files: Files,
    work: Plan,
    group: Sequence[Source],
    latest: Mapping[bytes, int],
    transactions: CleanedTransactions,
    throttle: Throttle,
) -> int:
    """Write the kept records of some segments into one; its size."""
    base, interval = group[0].base_offset, work.settings.index_interval_bytes
    index, time_index = OffsetIndex(base), TimeIndex(base)
    newest = TimestampOffset(-1, base)
    position = written = indexed_at = 0
    pending = bytearray()

    def is_last(header: BatchHeader) -> bool:
        known = work.last_batches.get(header.producer_id)
        if known is None:
            return False
        last_offset, epoch = known
        if last_offset < 0:
            return header.attributes & CONTROL != 0 and header.producer_epoch == epoch
        return header.last_offset == last_offset

    handle = files.open(names.offset_path(work.directory, base, names.LOG + names.CLEANED), create=True)
    try:
        files.truncate(handle, 0)
        for source in group:
            for header, batch in _batches(files, source, throttle):
                may_discard = transactions.may_discard(header, batch)
                try:
                    left = filter_batch(
                        header,
                        batch,
                        latest,
                        now_ms=work.now_ms,
                        delete_retention_ms=work.settings.delete_retention_ms,
                        max_bytes=work.settings.max_decompressed_bytes,
                        keep_empty=is_last,
                        may_discard=may_discard,
                    )
                except DecodeError:
                    left = batch
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
    contents = [(names.INDEX, index.content()), (names.TIME_INDEX, time_index.content())]
    kept = TransactionIndex(base)
    for transaction in transactions.kept:
        kept.append(transaction)
    transactions.kept = []
    if kept.count:
        contents.append((names.TXN_INDEX, kept.content()))
    contents.append(
        (
            names.CHECKSUMS,
            format_checksums(
                [
                    (index.count, index.content()),
                    (time_index.count, time_index.content()),
                    (kept.count, kept.content()),
                ]
            ),
        )
    )
    for suffix, content in contents:
        write_file(files, names.offset_path(work.directory, base, suffix + names.CLEANED), content)
    return position


class Cleaner:
    """Cleans the logs of a directory, one after another.

    Args:
        disk: of the directory.
        throttle: creates the throttle of a round.

    Attributes:
        offsets: the offset up to which each log is clean; stored in ``cleaner-offset-checkpoint``.
        running: a round is running.
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
            trusted: the recovery points on the disk.

        Returns:
            Whether a log needs cleaning.
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
        target = best[2]
        work = plan(target, self._first_dirty(target), best[1], now_ms)
        old = target.segments.items[: len(work.sources)]
        files, throttle = self._disk.files, self._throttle()
        self.running = True
        self._disk.background.run(
            lambda: clean(files, work, throttle), lambda result: self._cleaned(target, old, result)
        )
        return True

    def _first_dirty(self, target: Log) -> int:
        # A checkpoint beyond the active segment's base offset is from before a truncation.
        known = self.offsets.get(target.topic_partition, 0)
        return known if known <= target.segments.active.base_offset else 0

    def _cleaned(self, target: Log, old: Sequence[Segment], result: Cleaned | Exception) -> None:
        """The thread has finished or failed; this runs on the event loop."""
        if isinstance(result, FileNotFoundError):
            self.running = False  # retention or a deletion has removed the files
        elif isinstance(result, OSError):
            self.running = False
            self._disk.fail(f"compaction of {target.topic_partition}", result)
        elif isinstance(result, Exception):
            self.running = False
            log.error("log cannot be compacted", partition=str(target.topic_partition), reason=str(result))
            # Try again only when later segments are dirty.
            self.offsets[target.topic_partition] = old[-1].base_offset + 1
        elif not target.begin_swap(old):
            self._drop(target, result)
        else:
            files, done = self._disk.files, result
            self._disk.background.run(
                lambda: _mark_complete(files, target.path, done), lambda error: self._swap(target, old, done, error)
            )

    def _swap(self, target: Log, old: Sequence[Segment], done: Cleaned, error: Exception | None) -> None:
        self.running = False
        if isinstance(error, FileNotFoundError):
            return  # the partition was deleted
        if error is not None:
            self._disk.fail(f"compaction of {target.topic_partition}", error)
            return
        if target.end_swap(old, [([each.base_offset for each in group], base) for group, base in done.groups]):
            self.offsets[target.topic_partition] = done.end_offset
            log.info(
                "log compacted",
                partition=str(target.topic_partition),
                up_to=done.end_offset,
                bytes_before=done.bytes_before,
                bytes_after=done.bytes_after,
            )

    def _drop(self, target: Log, done: Cleaned) -> None:
        """Remove cleaned files: the log has changed meanwhile."""
        self.running = False
        for _, base in done.groups:
            for suffix in names.SEGMENT_FILES:
                self._disk.files.remove(names.offset_path(target.path, base, suffix + names.CLEANED))


def _mark_complete(files: Files, directory: Path, done: Cleaned) -> None:
    """Rename finished files to ``.swap``, the last first: recovery undoes the swap if ``.cleaned`` files are left.

    Before that, note up to where records may be missing: the checkpoint says so later, and a segment whose last batches
    were removed looks as if they were lost.
    """
    put_file(files, directory / names.COMPACTED, format_compacted(done.end_offset))
    files.sync_directory(directory)
    for _, base in reversed(done.groups):
        for suffix in names.SEGMENT_FILES:
            cleaned = names.offset_path(directory, base, suffix + names.CLEANED)
            # Only few segments have aborted transactions.
            if suffix != names.TXN_INDEX or files.exists(cleaned):
                files.rename(cleaned, names.offset_path(directory, base, suffix + names.SWAP))
    files.sync_directory(directory)
