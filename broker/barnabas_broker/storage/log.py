"""The log of one partition, whole (Kafka's ``UnifiedLog`` and ``LocalLog``): append, read, truncation, retention, the
swap that ends a compaction, and durability.

Appends and reads run on the event loop and go to the page cache; fsync runs on threads (:mod:`.flush`). Work is done
per batch, not per record, except where a timestamp is looked up or a compacted topic needs the keys.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_broker.config import TopicConfig
from barnabas_broker.logs import logger
from barnabas_broker.storage import names
from barnabas_broker.storage.disk import Disk
from barnabas_broker.storage.epochs import LeaderEpochs
from barnabas_broker.storage.flush import Flusher
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.storage.producers import Producers
from barnabas_broker.storage.recovery import Recovered
from barnabas_broker.storage.retention import expired
from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.segments import Segments, TimestampAt
from barnabas_broker.storage.settings import LogSettings
from barnabas_broker.storage.slices import Part
from barnabas_broker.storage.snapshots import (
    load_snapshot,
    remove_snapshots_after,
    remove_snapshots_before,
    replay,
    replay_segments,
    write_snapshot,
)
from barnabas_broker.storage.validate import check_internal, check_produced, check_replicated, stamp
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records.batches import CONTROL, BatchHeader
from barnabas_protocol.wire import Buffer

log = logger("storage")

#: Positions where reads ended, kept so that the next read of a consumer at the log's end needs no look-up.
_CACHED_ENDS: Final = 128


class AppendInfo(NamedTuple):
    """The result of an append (Kafka's ``LogAppendInfo``).

    Attributes:
        first_offset: of the appended batches, or of the earlier batch that they duplicate.
        last_offset: likewise.
        log_append_time: in ms; -1 unless the topic uses LogAppendTime.
        log_start_offset: of the log.
        duplicate: the batch was in the log already and nothing was appended.
    """

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False


class Log:
    """A partition's log; created by :class:`~barnabas_broker.storage.directory.LogDirectory`.

    Args:
        disk: the log directory that it is in.
        path: the partition's own directory.
        topic_partition: the partition.
        topic_id: 16 bytes; zeros if unknown.
        config: of the topic.
        recovered: what recovery found on the disk.

    Attributes:
        log_start_offset: the first offset that can be read.
        log_end_offset: the offset that the next record gets.
        high_watermark: the offset up to which consumers may read, exclusive; set by replication.
        leader_epochs: the start offset of each leader epoch.
        producers: the state of idempotent producers.
        flusher: syncs the log.
        swapping: compaction is about to replace segments, so retention must not remove any.
    """

    def __init__(
        self,
        disk: Disk,
        path: Path,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        recovered: Recovered,
    ) -> None:
        self.disk = disk
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.settings = LogSettings.of(config)
        self.segments = Segments(recovered.segments)
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = recovered.log_end_offset
        self.high_watermark = recovered.high_watermark
        self.leader_epochs: LeaderEpochs = recovered.leader_epochs
        self.producers: Producers = recovered.producers
        self.flusher = Flusher(
            disk,
            path,
            topic_id,
            self.segments,
            self.leader_epochs,
            self.settings,
            self.log_end_offset,
            recovered.recovery_point,
        )
        self.swapping = False
        self._ends: dict[int, tuple[Segment, int]] = {}

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    def configure(self, config: TopicConfig) -> None:
        """Apply a new configuration of the topic."""
        self.config = config
        self.settings = self.flusher.settings = LogSettings.of(config)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    @property
    def recovery_point(self) -> int:
        """Everything before this offset is on the disk, indexes included."""
        return self.flusher.recovery_point

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` consumers may read: the high watermark, or the first open transaction."""
        unstable = self.producers.first_unstable_offset()
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def set_high_watermark(self, offset: int) -> None:
        """Move the high watermark to `offset`, within the bounds of the log."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)

    # Append

    def append_as_leader(
        self, records: Buffer, *, leader_epoch: int, now_ms: int, internal: bool = False
    ) -> AppendInfo:
        """Append batches of a client or of a coordinator, and assign their offsets.

        Args:
            records: one batch of a client; one or more of a coordinator. The bytes are not changed.
            leader_epoch: written into each batch.
            now_ms: the time of day.
            internal: the batches are the broker's own: no sequence numbers, control batches allowed.

        Raises:
            KafkaError: nothing was appended. CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
                INVALID_TIMESTAMP, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
                KAFKA_STORAGE_ERROR.
        """
        if self.disk.failure is not None:
            self.disk.check()
        view, settings = memoryview(records), self.settings
        append_time = now_ms if settings.log_append_time else -1
        if internal:
            headers = check_internal(view)
        else:
            header = check_produced(view, settings, now_ms)
            headers = [header]
            if header.producer_id >= 0 and (known := self.producers.duplicate_of(header)) is not None:
                timestamp = known.timestamp if settings.log_append_time else -1
                return AppendInfo(known.first_offset, known.last_offset, timestamp, self.log_start_offset, True)
        for header in headers:
            if header.producer_id >= 0:
                self.producers.check(header, sequence=not internal)
        buffers: list[Buffer] = []
        offset = first = self.log_end_offset
        at = 0
        for header in headers:
            if append_time >= 0:
                header.max_timestamp = append_time
            buffers += stamp(view[at : at + header.size], offset, leader_epoch, append_time)
            header.base_offset, header.leader_epoch = offset, leader_epoch
            at += header.size
            offset += header.last_offset_delta + 1
        self._append(headers, buffers, at, now_ms)
        return AppendInfo(first, offset - 1, append_time, self.log_start_offset)

    def append_as_follower(self, records: Buffer, *, now_ms: int = 0) -> AppendInfo:
        """Append batches fetched from the leader, byte for byte. An incomplete batch at the end is skipped.

        Args:
            records: as fetched.
            now_ms: the time of day, for segments whose batches have no timestamps.

        Raises:
            KafkaError: nothing was appended. CORRUPT_MESSAGE; OFFSET_OUT_OF_RANGE if the offsets do not continue the
                log; KAFKA_STORAGE_ERROR.
        """
        self.disk.check()
        view = memoryview(records)
        headers = check_replicated(view, self.log_end_offset)
        if not headers:
            return AppendInfo(-1, -1, -1, self.log_start_offset)
        size = sum(header.size for header in headers)
        first = headers[0].base_offset
        self._append(headers, [view[:size]], size, now_ms, view)
        return AppendInfo(first, self.log_end_offset - 1, -1, self.log_start_offset)

    def _append(
        self,
        headers: Sequence[BatchHeader],
        buffers: Sequence[Buffer],
        size: int,
        now_ms: int,
        replicated: memoryview | None = None,
    ) -> None:
        """Write validated batches, and update indexes, leader epochs, producer state and the flusher."""
        settings = self.settings
        if size > settings.segment_bytes and replicated is None:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes, which exceeds the maximum configured segment size of "
                f"{settings.segment_bytes}.",
            )
        last = headers[-1]
        last_offset = last.base_offset + last.last_offset_delta
        latest = last.max_timestamp if len(headers) == 1 else max(header.max_timestamp for header in headers)
        segment = self.segments.active
        try:
            if segment.is_full(size, last_offset, latest, now_ms, settings):
                segment = self.roll(now_ms, headers[0].base_offset)
            position = segment.append(buffers, size)
        except OSError as error:
            raise self.disk.fail(f"append to {self.topic_partition}", error) from error
        interval, records = settings.index_interval_bytes, 0
        for header in headers:
            base_offset = header.base_offset
            segment.note(position, base_offset + header.last_offset_delta, header.max_timestamp, interval)
            if header.leader_epoch != self.leader_epochs.latest:
                # An epoch that was to begin here has left no record. A follower may even be given an older epoch now.
                self.leader_epochs.truncate_end(base_offset)
                self.leader_epochs.assign(header.leader_epoch, base_offset)
            if header.producer_id >= 0:
                if header.attributes & CONTROL:
                    batch = segment.files.read(segment.handle, header.size, position)
                    replay(self.producers, header, batch)
                else:
                    self.producers.wrote(header, base_offset)
            position += header.size
            records += header.count
        self.log_end_offset = self.producers.end_offset = last_offset + 1
        self.flusher.appended(last_offset + 1, records, now_ms)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Begin a new segment, or keep the active one if it is empty and has the right base offset.

        Args:
            now_ms: the time of day.
            base_offset: of the first batch that goes into it; the log end offset if not given.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        base = self.log_end_offset if base_offset is None else base_offset
        old = self.segments.active
        if old.base_offset == base:
            return old
        try:
            old.seal()
            self._write_snapshot()
            new = Segment.create(self.disk.files, self.path, base, now_ms)
        except OSError as error:
            raise self.disk.fail(f"roll of {self.topic_partition}", error) from error
        self.segments.append(new)
        self._ends.clear()
        self.flusher.rolled()
        return new

    def _write_snapshot(self) -> None:
        """Save the producer state as of the log's end; the next full flush syncs it."""
        self.flusher.wrote(write_snapshot(self.disk.files, self.path, self.producers, self.log_end_offset))

    # Read

    def read(self, offset: int, max_bytes: int, up_to: int, *, min_one: bool) -> list[Part]:
        """Read whole batches of one segment, from the batch that holds `offset`.

        Args:
            offset: where to begin.
            max_bytes: the most to return.
            up_to: where to end, exclusive: the high watermark, or another limit of the reader.
            min_one: return the first batch even if it is larger than `max_bytes`.

        Returns:
            Parts that hold the batches one after another; empty at the end.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE; KAFKA_STORAGE_ERROR.
        """
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.topic_partition}, but we only have log "
                f"segments in the range {self.log_start_offset} to {end_offset}.",
            )
        if offset >= up_to or offset == end_offset:
            return []
        try:
            return self._read(offset, max_bytes, min(up_to, end_offset), min_one)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} cannot be read: {error}"
            ) from error

    def _read(self, offset: int, max_bytes: int, up_to: int, min_one: bool) -> list[Part]:
        segments, log_end = self.segments, self.log_end_offset
        for n in range(segments.floor(offset), len(segments)):
            segment = segments.items[n]
            if segment.base_offset >= up_to:
                break
            is_last = segment is segments.active
            end = segment.size
            to_end = up_to >= segments.end_of(n, log_end)
            if not to_end and (found := segment.locate(up_to, end)) is not None:
                end = found[0]
            if not is_last:
                self.disk.opened(segment)
            position, first_size = -1, 0
            if (known := self._ends.get(offset)) is not None and known[0] is segment:
                position = known[1]
            elif (found := segment.locate(offset, end)) is not None:
                position, first_size = found[0], found[1].size
            if 0 <= position < end:
                part = segment.read(position, first_size, end, max_bytes, min_one=min_one)
                if is_last and to_end and position + len(part) == end:
                    if len(self._ends) > _CACHED_ENDS:
                        self._ends.clear()
                    self._ends[up_to] = segment, end
                return [part] if part else []
            # Compaction has removed everything from `offset` to the end of this segment.
        return []

    def warm(self, offset: int, max_bytes: int) -> "asyncio.Future[None] | None":
        """Let a thread load the bytes of an upcoming read into the page cache, unless they are there.

        Args:
            offset: where the read will begin.
            max_bytes: the most that it will return.

        Returns:
            None if a read does not wait for the disk. Otherwise a future that is done when the bytes are loaded; it
            never fails.
        """
        if offset in self._ends or not self.log_start_offset <= offset < self.log_end_offset:
            return None
        segment = self.segments.items[self.segments.floor(offset)]
        files = segment.files
        try:
            position = segment.index.position_before(offset)
            size = min(max_bytes, segment.size - position)
            if size <= 0 or files.is_cached(segment.handle, size, position):
                return None
            handle = files.duplicate(segment.handle)
        except OSError:
            return None  # the read itself reports the error
        future = asyncio.get_running_loop().create_future()

        def load() -> None:
            try:
                files.read(handle, size, position)
            finally:
                files.close(handle)

        def loaded(_: Exception | None) -> None:
            if not future.done():
                future.set_result(None)

        self.disk.background.run(load, loaded)
        return future

    def offset_for_timestamp(self, timestamp: int) -> TimestampAt | None:
        """The first record whose timestamp is at least `timestamp` (ms), or None.

        Raises:
            KafkaError: CORRUPT_MESSAGE; KAFKA_STORAGE_ERROR.
        """
        return self.segments.find_timestamp(timestamp, self.log_start_offset)

    def max_timestamp(self) -> TimestampAt | None:
        """The first record with the largest timestamp, or None if no record has one."""
        return self.segments.find_max_timestamp(self.log_start_offset)

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch up to `leader_epoch`, and the offset after its last record; (-1, -1) if unknown."""
        return self.leader_epochs.end_offset(leader_epoch, self.log_end_offset)

    # Truncation

    def truncate_to(self, offset: int) -> None:
        """Remove everything from `offset` on, with the whole batch that holds it.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; CORRUPT_MESSAGE, and nothing was removed.
        """
        if offset >= self.log_end_offset:
            return
        if offset <= self.segments.first_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self.disk.check()
        try:
            segment, *later = self.segments.since(offset, closed_at=True)
            found = segment.locate(offset, segment.size)
            if found is not None:
                offset = min(offset, found[1].base_offset)
            self._lower_recovery_point(offset)
            self._remove_segments(later, 0)
            if found is not None:
                segment.truncate(found[0], offset)
            self._set_end(offset)
            remove_snapshots_after(self.disk.files, self.path, offset)
            load_snapshot(self.disk.files, self.path, self.producers, self.log_start_offset, offset)
            replay_segments(self.segments.items, self.producers, offset)
        except OSError as error:
            raise self.disk.fail(f"truncation of {self.topic_partition}", error) from error

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Remove everything, and continue at `offset`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.disk.check()
        try:
            self._lower_recovery_point(offset)
            old = list(self.segments)
            # Rename their files first: the new segment may have the base offset of one of them.
            self._discard_files(old, 0)
            self.segments.replace(old, [Segment.create(self.disk.files, self.path, offset, now_ms)])
        except OSError as error:
            raise self.disk.fail(f"truncation of {self.topic_partition}", error) from error
        self.log_start_offset = offset
        self.leader_epochs.clear()
        self.producers.clear(offset)
        self._set_end(offset)
        self.flusher.rolled()

    def _lower_recovery_point(self, end_offset: int) -> None:
        """Tell the flusher of a truncation; write a lower recovery point to the disk first, because records that are
        appended after the cut must not count as synced after a crash."""
        lower = end_offset < self.flusher.recovery_point
        self.flusher.truncated(end_offset)
        if lower:
            self.disk.checkpoint_now()

    def _set_end(self, offset: int) -> None:
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.leader_epochs.truncate_end(offset)
        self._ends.clear()

    def delete_records(self, before_offset: int) -> int:
        """Move the log start offset; the next retention check removes the segments before it.

        Args:
            before_offset: -1 for the high watermark.

        Returns:
            The new log start offset.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE if it is beyond the high watermark; KAFKA_STORAGE_ERROR.
        """
        self.disk.check()
        offset = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot delete records up to {offset}, the high watermark is {self.high_watermark}",
            )
        self.start_at(offset)
        return self.log_start_offset

    def start_at(self, offset: int) -> None:
        """Move the log start offset forward to `offset`; a smaller one changes nothing."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_start(offset)
            self._ends.clear()

    def _remove_segments(self, old: Sequence[Segment], now_ms: int) -> None:
        if old:
            self._discard_files(old, now_ms)
            self.segments.replace(old, [])

    def _discard_files(self, old: Sequence[Segment], now_ms: int) -> None:
        """Rename the files of segments; they are unlinked after ``file.delete.delay.ms``."""
        for segment in old:
            segment.close()
            self.disk.discard(segment.rename(names.DELETED), now_ms + self.settings.file_delete_delay_ms)
        self._ends.clear()
        self.flusher.renamed()

    # Retention

    def roll_if_old(self, now_ms: int) -> None:
        """Begin a new segment if the active one is older than ``segment.ms``, though nothing is appended.

        A compacted log also rolls when its first record is due for compaction (``max.compaction.lag.ms``).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        segment, settings = self.segments.active, self.settings
        if segment.size and (
            now_ms - segment.created_ms > settings.segment_ms
            or (settings.compact and 0 <= segment.first_timestamp < now_ms - settings.max_compaction_lag_ms)
        ):
            self.roll(now_ms)

    def retain(self, now_ms: int) -> int:
        """Remove the segments that have expired or lie before the log start offset; how many.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        segments = self.segments
        found = expired(
            segments.items, self.settings, self.log_start_offset, self.log_end_offset, self.high_watermark, now_ms
        )
        if not found or self.swapping:
            return 0
        self.disk.check()
        old = segments.items[: found.number]
        try:
            if found.number == len(segments):
                # The active segment has expired too: continue in an empty one, so that offsets do not start again.
                self.roll(now_ms)
            self._remove_segments(old, now_ms)
            self.start_at(segments.first_offset)
            remove_snapshots_before(self.disk.files, self.path, segments.first_offset)
        except OSError as error:
            raise self.disk.fail(f"retention of {self.topic_partition}", error) from error
        log.info(
            "segments removed",
            partition=str(self.topic_partition),
            segments=len(old),
            reason=found.reason,
            log_start_offset=self.log_start_offset,
        )
        return len(old)

    # Compaction

    def begin_swap(self, old: Sequence[Segment]) -> bool:
        """Prepare to replace the first segments by cleaned ones.

        Returns:
            Whether `old` still are the first segments. If so, only truncation changes them until :meth:`end_swap`.
        """
        self.swapping = self.segments.starts_with(old)
        return self.swapping

    def end_swap(self, old: Sequence[Segment], groups: Sequence[tuple[Sequence[int], int]]) -> bool:
        """Replace segments by cleaned ones, whose files have the suffix ``.swap``; readers see it as one step.

        Args:
            old: the segments to replace.
            groups: base offsets of neighbours in `old`, with the base offset of the segment that replaces them.

        Returns:
            False if the log has been truncated meanwhile; the cleaned files are removed then.
        """
        self.swapping = False
        files = self.disk.files
        try:
            fits = self.disk.failure is None and self.segments.starts_with(old)
            known = {segment.base_offset: segment for segment in old}
            for bases, base in groups:
                replaced = [known[each] for each in bases] if fits else []
                if replaced:
                    self._discard_files(replaced, replaced[0].created_ms)
                for suffix in names.SEGMENT_FILES:
                    path = names.offset_path(self.path, base, suffix)
                    swap = path.with_name(path.name + names.SWAP)
                    if fits and files.exists(swap):
                        files.rename(swap, path)
                    elif not fits:
                        files.remove(swap)
                if replaced:
                    new = Segment(files, self.path, base, replaced[0].created_ms)
                    new.load()
                    new.trust(0, new.size)
                    new.close()
                    self.segments.replace(replaced, [new])
        except OSError as error:
            self.disk.fail(f"compaction of {self.topic_partition}", error)
            return False
        return fits

    # Durability

    def durable(self, offset: int) -> "asyncio.Future[None] | None":
        """When the record at `offset` and all before it may be acknowledged (``flush.messages``).

        Args:
            offset: the last record to acknowledge.

        Returns:
            None if now. Otherwise a future, which fails with KafkaError KAFKA_STORAGE_ERROR if the fsync fails.
        """
        return self.flusher.durable(offset + 1)

    def flush(self) -> None:
        """Sync everything before this returns.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.flusher.flush_now()

    def abandon(self) -> None:
        """Close the files and write nothing more: the partition is deleted."""
        self.flusher.abandoned()
        for segment in self.segments:
            segment.close()

    def close(self) -> None:
        """Flush, save the producer state and close the files. After a disk failure nothing is written.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.disk.failure is None:
            try:
                self.segments.active.seal()
                self._write_snapshot()
                remove_snapshots_before(self.disk.files, self.path, self.log_end_offset, keep=2)
            except OSError as error:
                raise self.disk.fail(f"close of {self.topic_partition}", error) from error
            self.flusher.flush_now()
        for segment in self.segments:
            segment.close()
