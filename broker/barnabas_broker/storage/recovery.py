"""Loads a log from the disk at start (``LogLoader``).

After a clean shutdown, and before the recovery point, files are trusted. Beyond it every batch is checked: its CRC, its
structure, its offsets. What is sound is kept, wherever the damage is. Damage that sound batches follow stays in its
file, and reads of it answer CORRUPT_MESSAGE. What follows the last sound batch of a segment is copied to a file
``*.damaged`` and cut off, so that appends can continue. Segments are never removed.
"""

import errno
from collections.abc import Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import NamedTuple

from barnabas_broker.files import Files, read_all
from barnabas_broker.logs import logger
from barnabas_broker.storage import names
from barnabas_broker.storage.checkpoints import BadCheckpoint, parse_compacted, parse_epochs, parse_lost_records
from barnabas_broker.storage.checksummed_file import read_if_any, read_with_copy
from barnabas_broker.storage.corruption import Damage
from barnabas_broker.storage.epochs import LeaderEpochs
from barnabas_broker.storage.index import CorruptIndex
from barnabas_broker.storage.producer_state import Producers
from barnabas_broker.storage.scan import CHUNK, LONG_MAX, BadBatch, scan
from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.settings import LogSettings
from barnabas_broker.storage.snapshots import (
    load_producers,
    load_snapshot,
    remove_snapshots_after,
    replay,
    replay_segments,
)
from barnabas_protocol.records.batches import BatchHeader
from barnabas_protocol.wire import Buffer

log = logger("storage")


class Recovered(NamedTuple):
    """A log as recovery found it; the last segment is the active one. Offsets, `loss`
    and `dropped` as in :class:`~.log.Log`."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    recovery_point: int
    leader_epochs: LeaderEpochs
    producers: Producers
    gaps: Sequence[Damage] = ()
    loss: Damage | None = None
    dropped: bool = False


class Checkpointed(NamedTuple):
    """A log's entries in the checkpoint files; 0 where there is none. It is compacted up to `cleaned`.

    Copies of its files count if `copied` is true (:mod:`.checksummed_file`). After a clean shutdown `segments` are the
    base offsets and the sizes of its segments at that time; None if that is not known.
    """

    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    cleaned: int = 0
    clean: bool = False
    copied: bool = True
    segments: Mapping[int, int] | None = None


class Recovery:
    """Loads one partition's directory.

    Args:
        files: the file system.
        path: of the partition.
        settings: of its topic, as far as known at this time.
        known: its entries in the checkpoint files.
        now_ms: the time of day.
    """

    def __init__(self, files: Files, path: Path, settings: LogSettings, known: Checkpointed, now_ms: int) -> None:
        self._files = files
        self._path = path
        self._settings = settings
        self._known = known
        self._now_ms = now_ms
        self._producers = Producers()
        self._epochs = LeaderEpochs()
        self._gaps: list[Damage] = []
        #: Before this offset compaction may have removed records.
        self._compacted = known.cleaned
        #: Segments that are missing or shorter than they were at the clean shutdown.
        self._short: list[Damage] = []
        #: Whether the log has the mark of lost records, and whether the start has ended a compaction.
        self._marked = self._swapped = False
        #: Whether what was lost was removed before the clean shutdown, and nothing else is.
        self._dropped = False

    def load(self) -> Recovered:
        """Read, check and repair.

        Raises:
            OSError: the disk failed.
        """
        files, path, known = self._files, self._path, self._known
        if (unused := self._unused()) is not None:
            return unused
        epochs = self._read_epochs()
        self._compacted = max(known.cleaned, parse_compacted(read_if_any(files, path / names.COMPACTED)))
        bases = self._tidy()
        if not bases:
            self._compare(())
            start = max(known.log_start_offset, known.recovery_point, *(gap.offset for gap in self._gaps))
            return self.empty(start)._replace(loss=self._loss((), start), dropped=self._dropped)
        segments = [Segment(files, path, base, self._now_ms) for base in bases]
        log_start = max(known.log_start_offset, bases[0])
        trusted = LONG_MAX if known.clean else known.recovery_point
        rebuilt = self._load_indexes(segments)
        self._compare(segments)
        for segment, following in pairwise(segments):
            segment.following = following.base_offset
        self._epochs = self._find_epochs(segments, trusted) if epochs is None else epochs
        self._check_transactions(segments, rebuilt, log_start, trusted)
        if not known.clean:
            # Beyond it the batches are scanned anyway, and the checkpoint may be older than a truncation.
            self._epochs.truncate_end(trusted)
            load_producers(files, path, segments, self._producers, log_start, trusted)
        else:
            # The scan must not replay anything: the snapshot of the shutdown is loaded once the end is known.
            self._producers.end_offset = LONG_MAX
        end = self._check(segments, rebuilt, trusted)
        # What was truncated may come back with a crash. Only up to the recovery point do snapshots and log agree.
        if remove_snapshots_after(files, path, min(end, trusted)):
            files.sync_directory(path)
        if known.clean:
            load_producers(files, path, segments, self._producers, log_start, end)
        self._producers.end_offset = end
        if log_start > end:
            log.error(
                "log ends before its start offset, its segments are set aside", path=str(path), start=log_start, end=end
            )
            for segment in segments:
                segment.close()
                segment.rename(names.DAMAGED)
            return self.empty(log_start)._replace(loss=self._loss(segments, end), dropped=self._dropped)
        self._epochs.truncate_end(end)
        self._epochs.truncate_start(log_start)
        for segment in segments[:-1]:
            segment.close()
        high_watermark = min(max(known.high_watermark, log_start), end)
        loss = self._loss(segments, end)
        point = min(trusted, end)
        return Recovered(
            segments,
            log_start,
            end,
            high_watermark,
            point,
            self._epochs,
            self._producers,
            self._gaps,
            loss,
            self._dropped,
        )

    def empty(self, start: int, *, new_directory: bool = False) -> Recovered:
        """Create an empty log that begins at an offset.

        Raises:
            OSError: the disk failed.
        """
        segment = Segment.create(self._files, self._path, start, self._now_ms, new_directory=new_directory)
        # The next start must not know producers that this one does not know.
        if not new_directory and remove_snapshots_after(self._files, self._path, -1):
            self._files.sync_directory(self._path)
        self._producers.clear(start)
        self._epochs.clear()
        return Recovered([segment], start, start, start, start, self._epochs, self._producers, self._gaps)

    def _unused(self) -> Recovered | None:
        """The log of a partition that never had a record, as far as checkpoints and files tell; None of another one.

        A broker may have thousands of them: this takes a fifth of the time.
        """
        known, log_name = self._known, names.offset_name(0, names.LOG)
        if known.recovery_point or known.log_start_offset or known.high_watermark or known.segments:
            return None
        if set(self._files.names(self._path)) - {names.PARTITION_METADATA} != {log_name}:
            return None
        segment = Segment(self._files, self._path, 0, self._now_ms)
        try:
            segment.load()
        except CorruptIndex:
            return None
        return Recovered([segment], 0, 0, 0, 0, self._epochs, self._producers) if not segment.size else None

    # Lost records

    def _compare(self, segments: Sequence[Segment]) -> None:
        """Compare the files of the segments with those of the clean shutdown."""
        known = self._known
        if known.segments is None or self._swapped:
            return
        present = {segment.base_offset: segment.size for segment in segments}
        bases = sorted(known.segments)
        for base, following in zip_longest(bases, bases[1:]):
            size = present.get(base, 0)
            if size < known.segments[base]:
                end = max(base + 1, known.recovery_point) if following is None else following
                file = names.offset_path(self._path, base, names.LOG)
                reason = "the file is shorter than at the clean stop" if base in present else "the file is missing"
                self._short.append(Damage(size, 0, base, end, file, reason))

    def _loss(self, segments: Sequence[Segment], end: int) -> Damage | None:
        """The first records that the log has lost: what is on the disk decides, not the marker of a clean shutdown.

        Args:
            segments: of the log.
            end: the log end offset.
        """
        known, path = self._known, self._path
        for short in self._short:
            # Compaction has not left these gaps.
            self._gaps = [
                gap._replace(certain=True) if short.offset <= gap.offset < short.next_offset else gap
                for gap in self._gaps
            ]
        found = [bad for segment in segments for bad in segment.bad]
        found += [gap for gap in self._gaps if gap.certain]
        found += [
            each for each in self._short if not any(each.offset <= gap.offset < each.next_offset for gap in found)
        ]
        if not segments:
            before = max(known.recovery_point, known.high_watermark)
            found = [Damage(0, 0, known.log_start_offset, before, path, "all log files are missing")]
        elif end < known.high_watermark:
            file = segments[-1].path(names.LOG)
            found.append(Damage(0, 0, end, known.high_watermark, file, "the log ends before its high watermark"))
        found = [each for each in found if each.next_offset > known.log_start_offset]
        if self._marked:
            mark = parse_lost_records(read_all(self._files, path / names.LOST_RECORDS), path)
            # A crash may have brought back what was removed.
            self._dropped = mark.dropped and known.clean and not found
            if self._dropped or not (mark.dropped and known.clean):
                found.append(mark.damage)
        first = min(found, key=lambda each: each.offset, default=None)
        if first is not None:
            log.error(
                "log has lost records",
                file=str(first.file),
                offset=first.offset,
                next_offset=first.next_offset,
                reason=first.reason,
            )
        return first

    # Files

    def _read_epochs(self) -> LeaderEpochs | None:
        """The leader epochs in their checkpoint; None if it is missing or damaged."""
        path = self._path / names.EPOCH_CHECKPOINT
        content = read_with_copy(self._files, path, copied=self._known.copied)
        if content is None:
            return None
        try:
            return LeaderEpochs(parse_epochs(content.decode(errors="replace")))
        except BadCheckpoint as error:
            log.warning("leader epoch checkpoint is corrupt", file=str(path), reason=str(error))
            return None

    def _find_epochs(self, segments: Sequence[Segment], trusted: int) -> LeaderEpochs:
        """The leader epochs in the headers of the batches up to `trusted`."""
        epochs = LeaderEpochs()
        for n, segment in enumerate(segments):
            if segment.base_offset >= trusted:
                break
            for _, header, _ in segment.walk(0, verify=False):
                epochs.assign(header.leader_epoch, header.base_offset)
            if n + 1 < len(segments):
                segment.close()
        return epochs

    def _tidy(self) -> list[int]:
        """Finish or undo an interrupted compaction or deletion; the base offsets of the segments."""
        files, path = self._files, self._path
        listed = files.names(path)
        self._marked = names.LOST_RECORDS in listed
        found = [(name, parsed) for name in listed if (parsed := names.parse_offset_name(name)) is not None]
        cleaned = [parsed[0] for _, parsed in found if parsed[1].endswith(names.CLEANED)]
        swapped = [parsed for _, parsed in found if parsed[1].endswith(names.SWAP)]
        # Indexes whose segment was being removed. They go first: an index without a log tells of a lost file.
        removed = {parsed[0] for _, parsed in found if parsed[1] == names.LOG + names.DELETED}
        logs = {parsed[0] for _, parsed in found if parsed[1] in (names.LOG, names.LOG + names.SWAP)}
        for name, (base, suffix) in found:
            if suffix in names.INDEXES and base in removed - logs:
                files.remove(path / name)
        for name, (_, suffix) in found:
            if suffix.endswith((names.DELETED, names.CLEANED, ".tmp")):
                files.remove(path / name)
        # A swap is undone if the cleaner had not finished all files, and completed otherwise (KAFKA-6264).
        if cleaned:
            for offset, suffix in swapped:
                if offset >= min(cleaned):
                    files.remove(names.offset_path(path, offset, suffix))
            swapped = [parsed for parsed in swapped if parsed[0] < min(cleaned)]
        if swapped:
            self._swapped = True
            self._finish_swap(swapped)
        bases = sorted(
            parsed[0]
            for parsed in map(names.parse_offset_name, files.names(path))
            if parsed is not None and parsed[1] == names.LOG
        )
        for name in files.names(path):
            parsed = names.parse_offset_name(name)
            if parsed and parsed[1] == names.INDEX and parsed[0] not in bases:
                self._miss(parsed[0], bases)
        return bases

    def _finish_swap(self, swapped: Sequence[tuple[int, str]]) -> None:
        """Complete a swap: the cleaned segments replace all segments in their range of offsets."""
        files, path = self._files, self._path
        logs = sorted(offset for offset, suffix in swapped if suffix == names.LOG + names.SWAP)
        if logs:
            last = names.offset_path(path, logs[-1], names.LOG + names.SWAP)
            end = logs[-1] + 1
            handle = files.open(last)
            try:
                for _, header, _ in scan(files, handle, start=0, end=files.size(handle), offset=0, verify=False):
                    end = header.next_offset
            except BadBatch as error:
                log.error("swap file is corrupt", file=str(last), reason=str(error))
            finally:
                files.close(handle)
            for name in files.names(path):
                parsed = names.parse_offset_name(name)
                if parsed and parsed[1] in names.SEGMENT_FILES and logs[0] <= parsed[0] < end:
                    files.remove(path / name)
        for offset, suffix in swapped:
            source = names.offset_path(path, offset, suffix)
            files.rename(source, names.offset_path(path, offset, suffix.removesuffix(names.SWAP)))
        files.sync_directory(path)

    def _miss(self, base: int, bases: Sequence[int]) -> None:
        """Note that a segment's ``.log`` file is missing. Its index stays, to tell of it at the next start."""
        file = names.offset_path(self._path, base, names.LOG)
        following = min((each for each in bases if each > base), default=max(base, self._known.recovery_point))
        self._gaps.append(Damage(0, 0, base, following, file, "the file is missing"))
        log.error("log file is missing", file=str(file), offset=base, next_offset=following)

    def _load_indexes(self, segments: Sequence[Segment]) -> set[Segment]:
        """Load the indexes; the segments whose indexes must be rebuilt."""
        rebuilt = set()
        for n, segment in enumerate(segments):
            try:
                segment.load()
            except CorruptIndex as error:
                log.warning("index is corrupt, rebuilding it", file=str(segment.path(names.INDEX)), reason=str(error))
                segment.reset_indexes()
                rebuilt.add(segment)
            if n + 1 < len(segments):
                segment.close()
        return rebuilt

    def _check_transactions(
        self, segments: Sequence[Segment], rebuilt: set[Segment], log_start: int, trusted: int
    ) -> None:
        """Check the indexes of aborted transactions, and build those again that are corrupt, up to `trusted`."""
        for n, segment in enumerate(segments):
            if segment in rebuilt or (segment.has_aborted and not self._has_valid_transactions(segment)):
                producers, base = Producers(), segment.base_offset
                load_snapshot(self._files, self._path, producers, log_start, base)
                replay_segments(segments[:n], producers, base)
                following = segments[n + 1].base_offset if n + 1 < len(segments) else LONG_MAX
                segment.replace_transactions(replay_segments([segment], producers, min(trusted, following)))
            if n + 1 < len(segments) and segment not in rebuilt:
                segment.close()

    def _has_valid_transactions(self, segment: Segment) -> bool:
        try:
            segment.transactions.check()
        except CorruptIndex as error:
            file = str(segment.path(names.TXN_INDEX))
            log.warning("transaction index is corrupt, rebuilding it", file=file, reason=str(error))
            return False
        return True

    # Batches

    def _check(self, segments: list[Segment], rebuilt: set[Segment], trusted: int) -> int:
        """Check the batches beyond the recovery point; the log end offset."""
        end = segments[0].base_offset
        for segment in segments:
            # Where the recovery point is the end of a closed segment, the entry that sealing added to its time index
            # may not have been synced.
            if segment.following is not None and segment.following < trusted and segment not in rebuilt:
                self._check_end(segment, segment.following)
            else:
                end = self._scan(segment, segment.resume(trusted))
            if segment.following is not None:
                segment.seal()
                end = segment.following
            elif segment in rebuilt:
                segment.save_indexes()
        last, synced = segments[-1], self._known.recovery_point
        if not last.size:
            # Compaction keeps the last record of a log: a gap that nothing follows is a loss.
            self._gaps = [
                gap._replace(certain=gap.certain or gap.next_offset == last.base_offset) for gap in self._gaps
            ]
        if end < synced:
            # Synced batches are gone: their offsets are not given to other records.
            if not any(gap.offset <= end < gap.next_offset for gap in self._gaps):
                self._gap(last, end, synced, "the log ends before its recovery point", certain=True)
            if last.size:
                last.seal()
            segments.append(Segment.create(self._files, self._path, synced, self._now_ms))
            return synced
        return end

    def _check_end(self, segment: Segment, following: int) -> None:
        """Check that a trusted segment ends where the next one begins, unless compaction has removed records."""
        if following <= self._compacted:
            return
        offset, compacted = segment.base_offset, False
        for start in (segment.position_before(LONG_MAX), 0):
            for at, header, _ in segment.walk(start, verify=False):
                compacted = compacted or (at > start and header.base_offset > offset) or header.is_sparse
                offset = header.next_offset
            # Only a segment that ends too early is read from its start, to find out whether it was compacted.
            if offset >= following or compacted:
                return
        self._gap(segment, offset, following, "the segment ends before the next one begins", certain=False)

    def _scan(self, segment: Segment, start: int) -> int:
        """Check and index the batches of a segment from a position on; the offset after the last one.

        Args:
            segment: indexed up to `start`.
            start: the position.
        """
        offset, compacted, sound = segment.base_offset, False, start
        #: The epoch before the last batch, and that batch's position, offset and epoch.
        earlier, last = -1, (start, offset, -1)
        interval = self._settings.index_interval_bytes
        for at, header, batch in segment.walk(start, verify=True):
            segment.note(at, header.last_offset, header.max_timestamp, interval)
            if header.leader_epoch < last[2]:
                # Epochs never fall within a log: one of the two is damaged, outside its CRC.
                position, base, epoch = last
                if header.leader_epoch >= earlier:
                    epoch = header.leader_epoch
                    self._epochs.truncate_end(base)
                else:
                    position, base, header.leader_epoch = at, header.base_offset, epoch
                segment.restore_epoch(position, base, epoch)
                self._epochs.assign(epoch, base)
            earlier, last = last[2], (at, header.base_offset, header.leader_epoch)
            self._take(segment, header, batch)
            if at != sound:
                start = at
            elif at != start and header.base_offset > offset:
                compacted = True
            compacted = compacted or header.is_sparse
            offset, sound = header.next_offset, at + header.size
        segment.trust(start, sound, offset)
        following = segment.following
        tail = next((bad for bad in segment.bad if bad.end == segment.size), None)
        if tail is not None:
            offset = max(tail.offset, segment.base_offset)
            self._cut(segment, tail)
        compacted = compacted or (following is not None and following <= self._compacted)
        if following is not None and offset < following and (tail is not None or not compacted):
            self._gap(
                segment,
                offset,
                following,
                "the segment ends before the next one begins" if tail is None else tail.reason,
                certain=tail is not None,
            )
        return offset

    def _gap(self, segment: Segment, offset: int, next_offset: int, reason: str, *, certain: bool) -> None:
        file = segment.path(names.LOG)
        self._gaps.append(Damage(segment.size, 0, offset, next_offset, file, reason, certain))
        log.error("records are missing", file=str(file), offset=offset, next_offset=next_offset, reason=reason)

    def _take(self, segment: Segment, header: BatchHeader, batch: Buffer) -> None:
        if header.leader_epoch > self._epochs.latest:
            self._epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0 and header.base_offset >= self._producers.end_offset:
            aborted = replay(self._producers, header, batch)
            if aborted is not None:
                segment.aborted(aborted)

    def _cut(self, segment: Segment, tail: Damage) -> None:
        """Copy what follows the last sound batch to a file of its own, and cut it off."""
        files = self._files
        aside = names.offset_path(self._path, segment.base_offset, f"{names.LOG}.{tail.position}{names.DAMAGED}")
        try:
            self._copy(segment, tail, aside)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # A broker whose disk is full must start, to remove old segments; no sound batch is among the bytes.
            files.remove(aside)
            log.error("damaged end of a log cannot be kept, the disk is full", file=str(aside), bytes=tail.size)
        files.sync_directory(self._path)
        log.warning(
            "damaged end of a log is set aside",
            file=str(aside),
            position=tail.position,
            offset=tail.offset,
            bytes=tail.size,
            reason=tail.reason,
        )
        segment.truncate(tail.position, tail.offset)

    def _copy(self, segment: Segment, tail: Damage, aside: Path) -> None:
        files = self._files
        copy = files.open(aside, create=True)
        try:
            # An earlier copy of the same place is kept.
            at = files.size(copy)
            for position in range(tail.position, segment.size, CHUNK):
                data = files.read(segment.handle, min(CHUNK, segment.size - position), position)
                files.write(copy, [data], at)
                at += len(data)
            files.sync(copy)
        finally:
            files.close(copy)
