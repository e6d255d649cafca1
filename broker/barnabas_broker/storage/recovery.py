"""Loads a log from the disk at start (``LogLoader``).

After a clean shutdown, and before the recovery point, files are trusted. Beyond it every batch is checked: its CRC, its
structure, its offsets. A torn tail is truncated. A corrupt batch in a closed segment that is followed by valid batches
up to the segment's end is not a torn tail: it is logged and kept, and reads of it answer CORRUPT_MESSAGE.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_broker.logs import logger
from barnabas_broker.storage import names
from barnabas_broker.storage.checkpoints import BadCheckpoint, parse_epochs
from barnabas_broker.storage.epochs import LeaderEpochs
from barnabas_broker.storage.files import Files, read_all
from barnabas_broker.storage.index import CorruptIndex
from barnabas_broker.storage.producers import Producers
from barnabas_broker.storage.scan import BadBatch, scan
from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.settings import LogSettings
from barnabas_broker.storage.snapshots import load_snapshot, remove_snapshots_after, replay, replay_segments
from barnabas_protocol.records.batches import BatchHeader
from barnabas_protocol.wire import Buffer

#: The largest offset.
LONG_MAX: Final = 2**63 - 1

log = logger("storage")


class Recovered(NamedTuple):
    """A log as recovery found it; the last segment is the active one. Offsets as in :class:`~.log.Log`."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    recovery_point: int
    leader_epochs: LeaderEpochs
    producers: Producers


class Checkpointed(NamedTuple):
    """A log's entries in the checkpoint files; 0 where there is none."""

    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    clean: bool = False


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

    def load(self) -> Recovered:
        """Read, check and repair.

        Raises:
            OSError: the disk failed.
        """
        files, path, known = self._files, self._path, self._known
        self._epochs = self._read_epochs()
        bases = self._tidy()
        if not bases:
            return self.empty(known.log_start_offset)
        segments = [Segment(files, path, base, self._now_ms) for base in bases]
        log_start = max(known.log_start_offset, bases[0])
        trusted = LONG_MAX if known.clean else known.recovery_point
        rebuilt = self._load_indexes(segments)
        if not known.clean:
            # Beyond it the batches are scanned anyway, and the checkpoint may be older than a truncation.
            self._epochs.truncate_end(trusted)
            load_snapshot(files, path, self._producers, log_start, trusted)
            replay_segments(segments, self._producers, trusted)
        else:
            # The scan must not replay anything: the snapshot of the shutdown is loaded once the end is known.
            self._producers.end_offset = LONG_MAX
        end = self._check(segments, rebuilt, trusted)
        remove_snapshots_after(files, path, end)
        if known.clean:
            load_snapshot(files, path, self._producers, log_start, end)
            replay_segments(segments, self._producers, end)
        self._producers.end_offset = end
        if log_start > end:
            log.error(
                "log ends before its start offset, deleting its segments", path=str(path), start=log_start, end=end
            )
            self._drop(segments)
            return self.empty(log_start)
        self._epochs.truncate_end(end)
        self._epochs.truncate_start(log_start)
        for segment in segments[:-1]:
            segment.close()
        high_watermark = min(max(known.high_watermark, log_start), end)
        return Recovered(segments, log_start, end, high_watermark, min(trusted, end), self._epochs, self._producers)

    def empty(self, start: int) -> Recovered:
        """Create an empty log that begins at an offset.

        Raises:
            OSError: the disk failed.
        """
        segment = Segment.create(self._files, self._path, start, self._now_ms)
        self._producers.clear(start)
        self._epochs.clear()
        return Recovered([segment], start, start, start, start, self._epochs, self._producers)

    # Files

    def _read_epochs(self) -> LeaderEpochs:
        path = self._path / names.EPOCH_CHECKPOINT
        try:
            return LeaderEpochs(parse_epochs(read_all(self._files, path).decode(errors="replace")))
        except FileNotFoundError:
            return LeaderEpochs()
        except BadCheckpoint as error:
            log.warning("leader epoch checkpoint is corrupt", file=str(path), reason=str(error))
            return LeaderEpochs()

    def _tidy(self) -> list[int]:
        """Finish or undo an interrupted compaction or deletion; the base offsets of the segments."""
        files, path = self._files, self._path
        found = [(name, parsed) for name in files.names(path) if (parsed := names.parse_offset_name(name)) is not None]
        cleaned = [parsed[0] for _, parsed in found if parsed[1].endswith(names.CLEANED)]
        swapped = [parsed for _, parsed in found if parsed[1].endswith(names.SWAP)]
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
            self._finish_swap(swapped)
        bases = sorted(
            parsed[0]
            for parsed in map(names.parse_offset_name, files.names(path))
            if parsed is not None and parsed[1] == names.LOG
        )
        for name in files.names(path):
            parsed = names.parse_offset_name(name)
            if parsed and parsed[1] in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX) and parsed[0] not in bases:
                files.remove(path / name)
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

    def _drop(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            segment.close()
            for removed in segment.rename(names.DELETED):
                self._files.remove(removed)

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

    # Batches

    def _check(self, segments: list[Segment], rebuilt: set[Segment], trusted: int) -> int:
        """Check the batches beyond the recovery point; the log end offset. Segments after a torn tail are deleted."""
        end = segments[0].base_offset
        for n, segment in enumerate(segments):
            following = segments[n + 1].base_offset if n + 1 < len(segments) else None
            # Where the recovery point is the end of a closed segment, the entry that sealing added to its time index
            # may not have been synced.
            if following is not None and following < trusted and segment not in rebuilt:
                end = following
                continue
            start = segment.resume(trusted)
            end, whole = self._scan(segment, start, trusted, following)
            if not whole:
                removed = segments[n + 1 :]
                del segments[n + 1 :]
                if removed:
                    log.error(
                        "segments after a torn tail are deleted",
                        path=str(self._path),
                        segments=[d.base_offset for d in removed],
                    )
                    self._drop(removed)
                break
            if following is not None:
                segment.seal()
                end = following
            elif end < trusted < LONG_MAX and segment.bad:
                # Synced batches are corrupt up to the end of the file: keep them, and continue in a new segment.
                segments.append(Segment.create(self._files, self._path, trusted, self._now_ms))
                return trusted
        return end

    def _scan(self, segment: Segment, start: int, trusted: int, following: int | None) -> tuple[int, bool]:
        """Check and index the batches of a segment from a position on.

        Args:
            segment: indexed up to `start`.
            start: the position.
            trusted: batches before this offset have been synced, and are not truncated.
            following: the base offset of the next segment; None for the last segment.

        Returns:
            The offset after its last batch, and whether the segment is whole; if not, it has been truncated.
        """
        position, offset, compacted = start, segment.base_offset, False
        interval = self._settings.index_interval_bytes
        while True:
            try:
                for at, header, batch in segment.walk(position, verify=True, offset=offset):
                    if following is not None and header.last_offset >= following:
                        raise BadBatch(at, offset, None, f"offset {header.last_offset}, next segment {following}")
                    segment.note(at, header.last_offset, header.max_timestamp, interval)
                    self._take(header, batch)
                    gap = at != start and header.base_offset > offset
                    compacted = compacted or gap or header.count <= header.last_offset_delta
                    offset = header.next_offset
                segment.trust(start, segment.size)
                # Compaction leaves gaps. If the segment has none, a gap before the next segment is a lost tail.
                return offset, compacted or following is None or offset == following or following <= trusted
            except BadBatch as bad:
                if bad.offset < trusted:
                    offset = bad.offset
                    size = bad.size or segment.size - bad.position
                elif following is not None and self._is_valid_after(segment, bad, following):
                    size = bad.size or 0
                else:
                    self._cut(segment, bad)
                    return max(bad.offset, segment.base_offset), False
                segment.mark_bad(bad.position, size, bad.offset, bad.reason)
                position = bad.position + size
                if position >= segment.size:
                    return offset, True

    def _is_valid_after(self, segment: Segment, bad: BadBatch, following: int) -> bool:
        """Whether valid batches follow, so that one batch is corrupt and the tail is not torn."""
        if bad.size is None:
            return False
        offset = bad.offset
        try:
            for _, header, _ in segment.walk(bad.position + bad.size, verify=True, offset=bad.offset):
                offset = header.next_offset
        except BadBatch:
            return False
        return bad.offset < offset <= following

    def _take(self, header: BatchHeader, batch: Buffer) -> None:
        if header.leader_epoch > self._epochs.latest:
            self._epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0 and header.base_offset >= self._producers.end_offset:
            replay(self._producers, header, batch)

    def _cut(self, segment: Segment, bad: BadBatch) -> None:
        log.warning(
            "torn tail is truncated",
            file=str(segment.path(names.LOG)),
            position=bad.position,
            offset=bad.offset,
            bytes=segment.size - bad.position,
            reason=bad.reason,
        )
        segment.truncate(bad.position, bad.offset)
