"""The log of one partition, whole (Kafka's ``UnifiedLog`` and ``LocalLog``): append, read, truncation, retention, the
swap that ends a compaction, and durability.

Appends and reads run on the event loop and go to the page cache; fsync runs on threads (:mod:`.flush`). Work is done
per batch, not per record, except where a timestamp is looked up or a compacted topic needs the keys.
"""

import asyncio
import errno
import struct
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_broker.config import TopicConfig
from barnabas_broker.files import replace_file
from barnabas_broker.logs import logger
from barnabas_broker.steps import Steps
from barnabas_broker.storage import names
from barnabas_broker.storage.checkpoints import format_lost_records
from barnabas_broker.storage.corruption import Damage, DamagedLog
from barnabas_broker.storage.disk import Disk
from barnabas_broker.storage.epochs import LeaderEpochs
from barnabas_broker.storage.flush import Flusher
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.storage.producer_state import ANY_PRODUCER_ID, Producers, Verification
from barnabas_broker.storage.recovery import Recovered
from barnabas_broker.storage.retention import Removal, expired, newest_timestamp
from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.segments import Segments, TimestampAt
from barnabas_broker.storage.settings import LogSettings
from barnabas_broker.storage.slices import Part
from barnabas_broker.storage.snapshots import (
    load_producers,
    remove_snapshots_after,
    remove_snapshots_before,
    replay,
    snapshot_offsets,
    write_snapshot,
)
from barnabas_broker.storage.transaction_index import InOffsetOrder
from barnabas_broker.storage.validate import check_internal, check_keys, check_produced, check_replicated, stamp
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records.batches import CONTROL, BatchHeader, read_header
from barnabas_protocol.records.builder import build_batch
from barnabas_protocol.records.iteration import ControlType
from barnabas_protocol.wire import Buffer

log = logger("storage")

#: Errors of a read that say that the bytes are gone.
_LOST: Final = (errno.ENOENT, errno.EIO)
_offset_of: Final = attrgetter("offset")
#: Key and value of a transaction marker: version and type; version and coordinator epoch (``EndTransactionMarker``).
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")
#: Bytes of the batch of a marker.
MARKER_SIZE: Final = 78
#: More bytes than any fetch waits for.
_ENOUGH: Final = 2**31
#: Positions where reads ended, kept so that the next read of a consumer at the log's end needs no look-up.
_CACHED_ENDS: Final = 128


class AppendInfo(NamedTuple):
    """The result of an append (Kafka's ``LogAppendInfo``).

    Attributes:
        first_offset: of the appended batches, or of the earlier batch that they duplicate.
        last_offset: likewise.
        log_append_time: in ms; -1 unless the topic uses LogAppendTime. Of a duplicate, its largest timestamp.
        log_start_offset: of the log.
        duplicate: the batch was in the log already and nothing was appended.
    """

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False


#: Whole batches of one segment, its number, and the position in its file up to which they were read.
_Read = tuple[list[Part], int, int]


class Log:
    """A partition's log; created by :class:`~barnabas_broker.storage.directory.LogDirectory`.

    Args:
        disk: the log directory that it is in.
        path: the partition's own directory.
        topic_partition: the partition.
        topic_id: 16 bytes; zeros if unknown.
        config: of the topic.
        settings: of the topic, as the log reads them.
        recovered: what recovery found on the disk.

    Attributes:
        log_start_offset: the first offset that can be read.
        log_end_offset: the offset that the next record gets.
        high_watermark: the offset up to which consumers may read, exclusive; set by replication.
        leader_epochs: the start offset of each leader epoch.
        producers: the state of idempotent producers.
        flusher: syncs the log.
        loss: the first records that the log is known to have lost, or cannot read; None if it is whole. A mark on the
            disk keeps that over a restart, see :meth:`mark_lost`.
        marked: the mark is on the disk.
        dropped: everything from there on was removed, to be fetched again.
        swapping: compaction is about to replace segments, so retention must not remove any.
        removal: the last segments that have expired; None if none has since the start of the broker.
    """

    def __init__(
        self,
        disk: Disk,
        path: Path,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        settings: LogSettings,
        recovered: Recovered,
    ) -> None:
        self.disk = disk
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.settings = settings
        self.segments = Segments(recovered.segments)
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = recovered.log_end_offset
        self.high_watermark = recovered.high_watermark
        self.leader_epochs: LeaderEpochs = recovered.leader_epochs
        #: Whether the recovery point was lowered for a truncation, and the disk was too full for the checkpoint.
        self._checkpoint_owed = False
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
        self.removal: Removal | None = None
        self.producers.replicated(self.high_watermark)
        #: Whether a segment may have aborted transactions.
        self._has_aborted = any(segment.has_aborted for segment in recovered.segments)
        self._gaps = list(recovered.gaps)
        self.loss: Damage | None = recovered.loss
        self.marked = self.dropped = recovered.dropped
        self._ends: dict[int, tuple[Segment, int]] = {}

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    def configure(self, config: TopicConfig, settings: LogSettings | None = None) -> None:
        """Apply a new configuration of the topic; `settings` are made of it if they are not given."""
        self.config = config
        self.settings = self.flusher.settings = settings or LogSettings.of(config)

    def identify(self, topic_id: bytes) -> None:
        """Set the topic id, because ``partition.metadata`` is missing or damaged; the file is written again."""
        self.topic_id = topic_id
        self.flusher.identified(topic_id)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    @property
    def damage(self) -> list[Damage]:
        """The records that are known to be damaged or missing, by offset."""
        start = self.log_start_offset
        known = [*self._gaps, *(bad for segment in self.segments.items for bad in segment.bad)]
        return sorted((bad for bad in known if bad.next_offset > start), key=_offset_of)

    @property
    def recovery_point(self) -> int:
        """Everything before this offset is on the disk, indexes included."""
        return self.flusher.recovery_point

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` consumers may read: the high watermark, or the start of the first
        transaction whose end is not replicated, or not known."""
        unstable, end = self.producers.first_unstable_offset(), self.high_watermark
        return end if unstable is None or unstable >= end else max(unstable, self.log_start_offset)

    @property
    def has_aborted(self) -> bool:
        """Whether a segment may have aborted transactions."""
        return self._has_aborted

    def set_high_watermark(self, offset: int) -> None:
        """Move the high watermark to `offset`, within the bounds of the log."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        if self.producers.unreplicated:
            self.producers.replicated(self.high_watermark)

    # Append

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        internal: bool = False,
        keys_checked: bool = False,
        verification: Verification | None = None,
        principal: Hashable = None,
        producer_id_limit: int = ANY_PRODUCER_ID,
    ) -> AppendInfo:
        """Append batches of a client or of a coordinator, and assign their offsets.

        Args:
            records: one batch of a client; one or more of a coordinator. The bytes are not changed.
            leader_epoch: written into each batch.
            now_ms: the time of day.
            internal: the batches are the broker's own: no sequence numbers, control batches allowed.
            keys_checked: :meth:`check_keys` has been called.
            verification: of the transaction that the batches begin, see :meth:`.Producers.verify`.
            principal: the client; None if it has not said who it is.
            producer_id_limit: a number above all producer ids that the cluster has allocated.

        Raises:
            KafkaError: nothing was appended. CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
                INVALID_TIMESTAMP, OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID, INVALID_PRODUCER_EPOCH,
                INVALID_TXN_STATE, KAFKA_STORAGE_ERROR.
        """
        if self.disk.failure is not None:
            self.disk.check()
        view, settings = memoryview(records), self.settings
        append_time = now_ms if settings.log_append_time else -1
        if internal:
            headers = check_internal(view)
        else:
            header = check_produced(view, settings, now_ms, self.disk.inspections, keys_checked=keys_checked)
            headers = [header]
            if header.producer_id >= 0:
                self.producers.check_owner(header, principal)
                if (known := self.producers.duplicate_of(header)) is not None:
                    start = self.log_start_offset
                    return AppendInfo(known.first_offset, known.last_offset, known.timestamp, start, True)
        for header in headers:
            if header.producer_id >= 0:
                self.producers.check(header, sequence=not internal, verification=verification, limit=producer_id_limit)
        buffers: list[Buffer] = []
        offset = first = self.log_end_offset
        at = 0
        for header in headers:
            if append_time >= 0:
                header.max_timestamp = append_time
            batch = view[at : at + header.size]
            buffers += stamp(batch, offset, leader_epoch, header.max_timestamp, append_time=append_time >= 0)
            header.base_offset, header.leader_epoch = offset, leader_epoch
            at += header.size
            offset += header.last_offset_delta + 1
        self._append(headers, buffers, at, now_ms)
        for header in headers:
            if header.producer_id >= 0:
                self.producers.own(header, verification, principal)
        return AppendInfo(first, offset - 1, append_time, self.log_start_offset)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        leader_epoch: int,
        now_ms: int,
        producer_id_limit: int = ANY_PRODUCER_ID,
    ) -> AppendInfo:
        """Append the marker that ends a producer's transaction; again, if it is repeated.

        Args:
            producer_id: of the producer.
            producer_epoch: from which on the producer may write again.
            commit: a COMMIT marker, not ABORT.
            coordinator_epoch: of the coordinator that ends it.
            transaction_version: of the transaction, which decides whether `producer_epoch` must be a larger one.
            leader_epoch: written into the batch.
            now_ms: the time of the marker.
            producer_id_limit: a number above all producer ids that the cluster has allocated.

        Raises:
            KafkaError: nothing was appended. INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED,
                UNKNOWN_PRODUCER_ID, KAFKA_STORAGE_ERROR.
        """
        self.disk.check()
        self.producers.check_marker(
            producer_id,
            producer_epoch,
            coordinator_epoch,
            transaction_version,
            producer_id_limit,
            commit=commit,
        )
        key = _MARKER_KEY.pack(0, ControlType.COMMIT if commit else ControlType.ABORT)
        batch = build_batch(
            [(key, _MARKER_VALUE.pack(0, coordinator_epoch), (), now_ms)],
            base_offset=self.log_end_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            leader_epoch=leader_epoch,
            timestamp_type=1 if self.settings.log_append_time else 0,
            control=True,
            transactional=True,
        )
        header = read_header(batch)
        self._append([header], [batch], header.size, now_ms)
        return AppendInfo(header.base_offset, header.base_offset, -1, self.log_start_offset)

    async def check_keys(self, records: Buffer) -> None:
        """Check in a thread that each record of a batch for a compacted topic has a key.

        Raises:
            KafkaError: INVALID_RECORD.
        """
        await self.disk.decode(partial(check_keys, records, self.settings))

    def append_as_follower(self, records: Buffer, *, now_ms: int = 0) -> AppendInfo:
        """Append batches fetched from the leader, byte for byte. An incomplete batch at the end is skipped.

        The start of an empty log may be inside the first batch: DeleteRecords moves the leader's start to any offset.

        Args:
            records: as fetched.
            now_ms: the time of day, for segments whose batches have no timestamps.

        Raises:
            KafkaError: nothing was appended. CORRUPT_MESSAGE; OFFSET_OUT_OF_RANGE if the offsets do not continue the
                log; KAFKA_STORAGE_ERROR.
        """
        self.disk.check()
        view = memoryview(records)
        start = self.log_end_offset
        headers = check_replicated(view, start, empty=start == self.log_start_offset)
        if not headers:
            return AppendInfo(-1, -1, -1, self.log_start_offset)
        size = sum(header.size for header in headers)
        first = headers[0].base_offset
        if first < start:
            self.truncate_fully_and_start_at(first)
        self._append(headers, [view[:size]], size, now_ms, view)
        if first < start:
            self.start_at(start)
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
        self.disk.opened(segment)
        try:
            if segment.is_full(size, last_offset, latest, now_ms, settings):
                segment = self.roll(now_ms, headers[0].base_offset)
            position = segment.append(buffers, size)
        except OSError as error:
            raise self.disk.fail(f"append to {self.topic_partition}", error) from error
        if self.disk.shortage is not None:
            self.disk.worked()
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
                    aborted = replay(self.producers, header, batch)
                    if aborted is not None:
                        segment.aborted(aborted)
                        self._has_aborted = True
                        self.flusher.renamed()  # the file may be new
                else:
                    self.producers.wrote(header, base_offset)
            position += header.size
            records += header.count
        self.log_end_offset = self.producers.end_offset = last_offset + 1
        self.flusher.appended(last_offset + 1, records)

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
        return self._read(offset, max_bytes, up_to, min_one)[0]

    def read_committed(self, offset: int, max_bytes: int, *, min_one: bool) -> Steps[tuple[list[Part], InOffsetOrder]]:
        """Read as :meth:`read`, up to the last stable offset.

        Returns:
            The batches, and the aborted transactions whose records a consumer must leave out, in order of their first
            offsets. As in Kafka some may begin after the last batch.

        Raises:
            KafkaError: as :meth:`read`.
        """
        found = InOffsetOrder()
        parts, n, position = self._read(offset, max_bytes, self.last_stable_offset, min_one)
        if not self._has_aborted or not parts:
            return parts, found
        segments = self.segments.items[n:]
        try:
            end = segments[0].index.offset_from(position)
            if end is None:
                end = self.segments.end_of(n, self.log_end_offset)
            for segment in segments:
                # The batches were read before the first step: the log may change from now on.
                if segment.has_aborted and (yield from segment.transactions.overlapping(offset, end, found)):
                    break
        except FileNotFoundError:
            return [], InOffsetOrder()  # the segment was removed meanwhile; the next fetch finds what has become of it
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} cannot be read: {error}"
            ) from error
        return parts, found

    def aborted_between(self, start: int, end: int) -> tuple[int, int]:
        """The number of transactions that were aborted by markers from `start` to before `end`, and the producer id of
        the last one; -1 if there is none.

        Raises:
            OSError: the index of a segment cannot be read.
        """
        number, producer_id = 0, -1
        for segment in self.segments.items[self.segments.floor(start) :] if self._has_aborted else ():
            if segment.base_offset >= end:
                break
            if segment.has_aborted:
                found, last = segment.transactions.ended(start, end)
                number, producer_id = number + found, last if found else producer_id
        return number, producer_id

    def size_between(self, start: int, end: int) -> int:
        """The bytes from the batch that holds `start` to the one that holds `end`, for fetches that wait for so many;
        more than any of them if they are not in one segment."""
        n = self.segments.floor(start)
        segment = self.segments.items[n]
        if end > self.segments.end_of(n, self.log_end_offset):
            return _ENOUGH
        try:
            first, last = segment.locate(start, segment.size), segment.locate(end, segment.size)
        except (OSError, KafkaError):
            return _ENOUGH  # the read itself reports the error
        return (segment.size if last is None else last[0]) - (segment.size if first is None else first[0])

    def _read(self, offset: int, max_bytes: int, up_to: int, min_one: bool) -> _Read:
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.topic_partition}, but we only have log "
                f"segments in the range {self.log_start_offset} to {end_offset}.",
            )
        if offset >= up_to or offset == end_offset:
            return [], 0, 0
        try:
            for gap in self._gaps:
                if gap.certain and gap.offset <= offset < gap.next_offset:
                    raise DamagedLog(gap)
            return self._read_segments(offset, max_bytes, min(up_to, end_offset), min_one)
        except DamagedLog as error:
            self.disk.damage_found(self.topic_partition, error.damage)
            raise
        except KafkaError as error:
            if error.code is ErrorCode.CORRUPT_MESSAGE:
                self.disk.damage_found(self.topic_partition, self._unreadable(offset, error))
            raise
        except OSError as error:
            if error.errno in _LOST:
                self.disk.damage_found(self.topic_partition, self._unreadable(offset, error))
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} cannot be read: {error}"
            ) from error

    def _unreadable(self, offset: int, error: Exception) -> Damage:
        """The damage that a failed read shows: how far it goes in the segment is not known."""
        n = self.segments.floor(offset)
        file = self.segments.items[n].path(names.LOG)
        return Damage(0, 0, offset, self.segments.end_of(n, self.log_end_offset), file, str(error))

    def _read_segments(self, offset: int, max_bytes: int, up_to: int, min_one: bool) -> _Read:
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
                return [part] if part else [], n, position + len(part)
            # Compaction has removed everything from `offset` to the end of this segment.
        return [], 0, 0

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
            file = segment.open()
        except OSError:
            return None  # the read itself reports the error
        future = asyncio.get_running_loop().create_future()

        def load() -> None:
            files.read(file.handle, size, position)

        def loaded(_: Exception | None) -> None:
            if not future.done():
                future.set_result(None)

        self.disk.background.run(load, loaded)
        return future

    async def offset_for_timestamp(self, timestamp: int) -> TimestampAt | None:
        """The first record whose timestamp is at least `timestamp` (ms), or None.

        A thread looks into batches, one at a time; cancelling ends it soon.

        Raises:
            KafkaError: CORRUPT_MESSAGE; KAFKA_STORAGE_ERROR.
        """
        start = self.log_start_offset
        most = self.settings.max_decompressed_bytes
        # Each batch is searched for anew: the log may have changed while the thread was at work.
        while (batch := self.segments.batch_for_timestamp(timestamp, start)) is not None:
            found = await self.disk.decode(partial(batch.find, timestamp, start, most))
            if found is not None:
                return found
            start = max(batch.header.next_offset, self.log_start_offset)
        return None

    async def max_timestamp(self) -> TimestampAt | None:
        """The first record with the largest timestamp, or None if no record has one.

        Raises:
            KafkaError: as :meth:`offset_for_timestamp`.
        """
        largest = self.segments.max_timestamp
        return None if largest < 0 else await self.offset_for_timestamp(largest)

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch up to `leader_epoch`, and the offset after its last record; (-1, -1) if unknown."""
        return self.leader_epochs.end_offset(leader_epoch, self.log_end_offset)

    # Truncation

    def truncate_to(self, offset: int) -> None:
        """Remove everything from `offset` on, with the whole batch that holds it.

        If no record is left, the log is empty and starts at `offset` or at the first offset of that batch. A flush
        begins: until it ends, a power cut may bring the removed records back, but none that follow a gap.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; on a full disk less was removed, or nothing, and it may be tried again.
                CORRUPT_MESSAGE, and nothing was removed.
        """
        if offset >= self.log_end_offset:
            return
        if offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self.disk.check()
        doing = f"truncation of {self.topic_partition}"
        try:
            segment, *later = self.segments.since(offset, closed_at=True)
            damage = segment.damage_at(offset)
            if damage is not None:
                position, offset = damage.position, damage.offset
            elif (found := segment.locate(offset, segment.size)) is not None:
                position, offset = found[0], min(offset, found[1].base_offset)
            else:
                position = segment.size
            if offset <= self.log_start_offset:
                self.truncate_fully_and_start_at(offset)
                return
            self._lower_recovery_point(offset)
        except OSError as error:
            raise self.disk.fail(doing, error) from error
        if later:
            try:
                # The last one first, and all before the cut: none may come back behind a segment that was cut.
                self._discard_files(reversed(later))
                self.segments.replace(later, [])
                self.disk.files.sync_directory(self.path)
            except OSError as error:
                raise self.disk.fail(doing, error, lasting=True) from error
            # On a full disk the cut may fail. Then the log ends here, until it is tried again.
            self._set_end(later[0].base_offset)
        try:
            if position < segment.size:
                segment.truncate(position, offset)
        except OSError as error:
            raise self.disk.fail(doing, error) from error
        try:
            self._set_end(offset)
            remove_snapshots_after(self.disk.files, self.path, offset)
            load_producers(
                self.disk.files, self.path, self.segments.items, self.producers, self.log_start_offset, offset
            )
            self.producers.replicated(self.high_watermark)
        except OSError as error:
            raise self.disk.fail(doing, error, lasting=True) from error
        self.flusher.rolled()
        if self.disk.shortage is not None:
            self.disk.worked()

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Remove everything, and continue at `offset`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; on a full disk nothing was removed, as a rule, and it may be tried again.
        """
        self.disk.check()
        doing, start = f"truncation of {self.topic_partition}", self.log_start_offset
        self.log_start_offset = min(start, offset)
        try:
            self._lower_recovery_point(offset, checkpoint=offset < start)
        except OSError as error:
            self.log_start_offset = start
            raise self.disk.fail(doing, error) from error
        try:
            old = list(self.segments)
            # Rename their files first: the new segment may have the base offset of one of them.
            self._discard_files(reversed(old))
            self.segments.replace(old, [Segment.create(self.disk.files, self.path, offset, now_ms)])
            remove_snapshots_after(self.disk.files, self.path, -1)
        except OSError as error:
            raise self.disk.fail(doing, error, lasting=True) from error
        self.log_start_offset = offset
        self.leader_epochs.clear()
        self.producers.clear(offset)
        self._set_end(offset)
        self.flusher.rolled()

    def _lower_recovery_point(self, end_offset: int, *, checkpoint: bool = False) -> None:
        """Report a truncation to the flusher; write a lower recovery point to the disk first, because records that are
        appended after the cut must not count as synced after a crash. With `checkpoint` the log start offset is lower,
        too: otherwise those records would be before it."""
        lower = end_offset < self.flusher.recovery_point or self._checkpoint_owed
        self.flusher.truncated(end_offset)
        if lower or checkpoint:
            self._checkpoint_owed = True
            self.disk.checkpoint_now()
            self._checkpoint_owed = False

    def _set_end(self, offset: int) -> None:
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.leader_epochs.truncate_end(offset)
        self._gaps = [gap for gap in self._gaps if gap.next_offset <= offset]
        self._ends.clear()

    # Lost records

    def mark_lost(self, damage: Damage | None = None) -> None:
        """Note that the log has lost records, on the disk as well: until :meth:`made_whole` no start of the broker
        takes it for whole.

        Args:
            damage: what it has lost; by default `loss`, which recovery has found.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; the loss is noted, and the mark is not on the disk.
        """
        loss = self.loss
        if damage is not None and (loss is None or self.dropped or damage.offset < loss.offset):
            self.loss, self.marked, self.dropped = damage, False, False
        if self.loss is None or self.marked:
            return
        try:
            replace_file(
                self.disk.files, self.path / names.LOST_RECORDS, format_lost_records(self.loss, dropped=self.dropped)
            )
        except OSError as error:
            raise self.disk.fail(f"mark of lost records of {self.topic_partition}", error) from error
        self.marked = True

    def drop_lost(self) -> None:
        """Remove everything from the first lost record on, to fetch it again from the leader. Only for a log that is
        marked, and that no broker takes for whole.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        loss = self.loss
        if loss is None or self.dropped:
            return
        end = self.log_end_offset
        if loss.offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(loss.offset)
        else:
            self.high_watermark = min(self.high_watermark, loss.offset)
            self.truncate_to(loss.offset)
        log.warning(
            "records were removed from the first lost one on, to fetch them again",
            partition=str(self.topic_partition),
            from_offset=loss.offset,
            log_end_offset=end,
        )
        self.dropped, self.marked = True, False
        self.mark_lost()

    def made_whole(self) -> None:
        """Remove the mark: the log has fetched again what it had lost, or no replica has more records.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.loss is None:
            return
        try:
            self.disk.files.remove(self.path / names.LOST_RECORDS)
        except OSError as error:
            raise self.disk.fail(f"mark of lost records of {self.topic_partition}", error) from error
        self.loss, self.marked, self.dropped = None, False, False

    @property
    def unreadable(self) -> Damage | None:
        """The first damage that reads run into; None if there is none."""
        return next((bad for bad in self.damage if bad.certain), None)

    def close_gaps(self) -> None:
        """Take gaps between segments for lost records, unless compaction may have left them."""
        if not self.settings.compact and self._gaps:
            first = min(self._gaps, key=_offset_of)
            if first.next_offset > self.log_start_offset and (self.loss is None or first.offset < self.loss.offset):
                self.loss, self.dropped = first, False

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

    def _discard_files(self, old: Iterable[Segment]) -> None:
        """Rename the files of segments; they are unlinked after ``file.delete.delay.ms``.

        Args:
            old: in this order, so that a crash leaves a log without a gap: the first one first from the log's start,
                the last one first from its end.
        """
        for segment in old:
            segment.close()
            self.disk.discard(segment.rename(names.DELETED), self.settings.file_delete_delay_ms)
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
        # When the time of day is set back, the segment is as old as if it had been begun at that moment.
        segment.created_ms = min(segment.created_ms, now_ms)
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
            self._discard_files(old)
            segments.replace(old, [])
            self.start_at(segments.first_offset)
            remove_snapshots_before(self.disk.files, self.path, segments.first_offset)
            newest_ms = max(map(newest_timestamp, old))
            self.removal = Removal(self.log_start_offset, found.reason, newest_ms, self.settings.retention_ms)
        except OSError as error:
            raise self.disk.fail(f"retention of {self.topic_partition}", error, lasting=True) from error
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
                    self._discard_files(replaced)
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
                    self._has_aborted = self._has_aborted or new.has_aborted
                    new.trust(0, new.size, None)
                    new.close()
                    self.segments.replace(replaced, [new])
        except OSError as error:
            self.disk.fail(f"compaction of {self.topic_partition}", error, lasting=True)
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

    def finish(self) -> Callable[[], None] | None:
        """Write indexes and producer state before :meth:`close`.

        Returns:
            A function that syncs everything, for any thread; it raises OSError. None if everything is on the disk since
            the last start.

        Raises:
            OSError: the disk failed.
        """
        end = self.log_end_offset
        saved = end == self.segments.first_offset or end in snapshot_offsets(self.disk.files, self.path)
        if self.flusher.settled and saved:
            return None
        self.segments.active.seal()
        self._write_snapshot()
        remove_snapshots_before(self.disk.files, self.path, end, keep=2)
        return self.flusher.sync_all()

    def close(self) -> None:
        """Close the files. Nothing is written."""
        self.flusher.closed()
        for segment in self.segments:
            segment.close()
