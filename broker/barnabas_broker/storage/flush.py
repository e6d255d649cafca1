"""When the records of one log are on the disk.

By default nothing waits for the disk: the page cache survives the process, and replication covers the machine. With
``flush.messages`` or ``flush.ms`` a thread calls fsync, one call at a time per log, and every append that arrives
during a call shares the next one. Two marks follow the log's end: :attr:`Flusher.synced`, which acknowledgements wait
for, and :attr:`Flusher.recovery_point`, up to which indexes, snapshots, file names and leader epochs are synced as
well.

Nothing is synced for a partition that never had a record: if a power failure takes its directory, the next start
creates it again. Its first record begins the sync of the directory and of ``partition.metadata``, so that records do
not outlive the id of the topic that they belong to.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from barnabas_broker.files import Files, put_file
from barnabas_broker.storage import names
from barnabas_broker.storage.checkpoints import format_epochs, format_partition_metadata
from barnabas_broker.storage.checksummed_file import with_copy
from barnabas_broker.storage.disk import Disk
from barnabas_broker.storage.epochs import LeaderEpochs
from barnabas_broker.storage.segments import Segments
from barnabas_broker.storage.settings import LogSettings
from barnabas_broker.storage.waiters import OffsetWaiters
from barnabas_protocol.errors import ErrorCode, KafkaError


class _Gate:
    """Keeps the flush thread out of a partition's directory before that directory is renamed."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.closed = False

    def close(self) -> None:
        """Wait until the thread has finished its current step; it begins no other."""
        self.closed = True
        with self.lock:
            pass


class SyncFailed(Exception):
    """Data that was written may not reach the disk, and a later fsync would not say so."""


class _Work(NamedTuple):
    """Work of the thread, in this order: files by path, files to replace, directories."""

    gate: _Gate
    files: Files
    paths: list[Path]
    replaced: list[tuple[Path, bytes]]
    directories: list[Path]

    def run(self) -> None:
        steps: list[Callable[[], None]] = [partial(self._sync, path) for path in self.paths]
        steps += [partial(put_file, self.files, path, content) for path, content in self.replaced]
        steps += [partial(self.files.sync_directory, path) for path in self.directories]
        for step in steps:
            with self.gate.lock:
                if self.gate.closed:
                    return
                step()

    def _sync(self, path: Path) -> None:
        try:
            handle = self.files.open(path)
        except FileNotFoundError:
            return  # retention has removed it meanwhile
        try:
            self.files.sync(handle)
        except OSError as error:
            raise SyncFailed(str(error)) from error
        finally:
            self.files.close(handle)


class Flusher:
    """Syncs the files of one log, and completes the futures that wait for that.

    The log calls it after each change; the flusher knows of the log only what it is called with.

    Args:
        disk: the log directory.
        path: the partition's directory.
        topic_id: 16 bytes; zeros if unknown.
        segments: the log's segments, which change as the log does.
        leader_epochs: the log's leader epochs.
        settings: the topic's settings; the log replaces them when the configuration changes.
        end_offset: the log end offset.
        recovery_point: the offset before which everything is known to be on the disk.

    Attributes:
        synced: everything before this offset is on the disk.
        recovery_point: everything before this offset is on the disk, with indexes, snapshots, names and epochs.
        unsynced_since: when the first record that is not synced was appended, in seconds on the disk's clock; None if
            all are synced.
    """

    def __init__(
        self,
        disk: Disk,
        path: Path,
        topic_id: bytes,
        segments: Segments,
        leader_epochs: LeaderEpochs,
        settings: LogSettings,
        end_offset: int,
        recovery_point: int,
    ) -> None:
        self.settings = settings
        self.recovery_point = recovery_point
        self.synced = recovery_point
        self.unsynced_since: float | None = None
        self._disk = disk
        self._path = path
        self._topic_id = topic_id
        self._segments = segments
        self._leader_epochs = leader_epochs
        self._end = end_offset
        self._unsynced_records = 0
        #: All offsets that acknowledgements wait for are before this one.
        self._wanted = recovery_point
        self._waiters: OffsetWaiters[None] = OffsetWaiters()
        self._running = False
        self._full_wanted = False
        #: Grows with each truncation: an fsync that began earlier says nothing about the log as it is now.
        self._generation = 0
        self._paths: dict[Path, None] = {}
        #: Those of them that the last flush was given.
        self._collected: dict[Path, None] = {}
        # What a killed process left may be in the page cache only, and so may the names of its segments.
        self._new_names = end_offset > recovery_point
        #: Whether the directory's own name and ``partition.metadata`` may not be on the disk yet.
        self._new_directory = recovery_point == 0
        self._gate = _Gate()

    # Called by the log after a change

    def identified(self, topic_id: bytes) -> None:
        """The partition has got a topic id: write its metadata, and sync them and the directory, beginning now."""
        self._topic_id = topic_id
        self._new_directory = self._new_names = True
        self._begin(full=True)

    def appended(self, end_offset: int, records: int) -> None:
        """`records` records were appended; the log ends at `end_offset`."""
        self._end = end_offset
        self._unsynced_records += records
        if self.unsynced_since is None:
            self.unsynced_since = self._disk.now()
        if self._unsynced_records >= self.settings.flush_messages:
            self._wanted = end_offset
            if not self._running:
                self._begin()
        elif self._new_directory and not self._running:
            self._begin_directory()

    def rolled(self) -> None:
        """A new segment was begun, or the log was cut: move the recovery point to the log's end."""
        self._new_names = True
        if self._running:
            self._full_wanted = True
        else:
            self._begin(full=True)

    def renamed(self) -> None:
        """Names in the partition's directory have changed; the next flush syncs them."""
        self._new_names = True

    def wrote(self, path: Path) -> None:
        """A file beside the segments was written; the next full flush syncs it."""
        self._paths[path] = None

    def truncated(self, end_offset: int) -> None:
        """The log was cut, or replaced by an empty one, and ends at `end_offset`."""
        self._end = end_offset
        self._generation += 1
        self.recovery_point = min(self.recovery_point, end_offset)
        self.synced = min(self.synced, end_offset)
        self._wanted = min(self._wanted, end_offset)
        self._waiters.fail_after(end_offset, ErrorCode.NOT_LEADER_OR_FOLLOWER, "The log has been truncated.")

    def abandoned(self) -> None:
        """The partition is deleted: write nothing under its name any more, a new partition may get it."""
        self.truncated(-1)
        self._gate.close()

    def closed(self) -> None:
        """The log is flushed and closed: a flush that began earlier begins no other."""
        self._gate.close()

    # Durability

    def durable(self, offset: int) -> "asyncio.Future[None] | None":
        """As :meth:`Log.durable`, but `offset` is the one after the last record to acknowledge."""
        if offset <= self.synced or offset > self._wanted:
            return None
        if self._disk.failure is not None:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._disk.failure))
            return failed
        future = self._waiters.wait(offset)
        if not self._running:
            self._begin()
        return future

    def tick(self) -> None:
        """Sync records that are older than ``flush.ms``, in the background."""
        since = self.unsynced_since
        if since is not None and (self._disk.now() - since) * 1000 >= self.settings.flush_ms and not self._running:
            self._wanted = self._end
            self._begin()

    def advance(self) -> None:
        """Move the recovery point to the log's end, in the background."""
        if (self.recovery_point < self._end or self._dirty()) and not self._running:
            self._begin(full=True)

    def flush_now(self) -> None:
        """Sync everything before this returns.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._disk.check()
        try:
            self.sync_all()()
        except (OSError, SyncFailed) as error:
            self._failed(error)
            raise self._disk.fail(f"fsync of {self._path.name}", error) from error
        self.all_synced()

    @property
    def settled(self) -> bool:
        """Whether everything that must not be lost is on the disk."""
        return self._unused or (self.recovery_point == self._end and not self._dirty() and not self._new_directory)

    def sync_all(self) -> Callable[[], None]:
        """A function that syncs everything, for any thread; :meth:`all_synced` is called when it has returned.

        Raises:
            OSError: the disk failed; so does the function.
        """
        return self._collect(full=True).run

    def all_synced(self) -> None:
        """Everything is synced."""
        self._synced(self._end, full=True)

    # Background work

    @property
    def _unused(self) -> bool:
        """Whether the partition never had a record: neither its directory nor its leader epochs need to be synced."""
        return self._new_directory and not self._end and not self._new_names

    def _dirty(self) -> bool:
        return self._new_names or bool(self._paths) or (self._leader_epochs.dirty and not self._unused)

    def _begin(self, full: bool = False) -> None:
        if self._disk.failure is not None:
            return
        if full:
            self._full_wanted = False
        target = self._end
        try:
            work = self._collect(full)
        except OSError as error:
            self._finished(error, target, self._generation, full)
            return
        self._run(work, target, full)

    def _begin_directory(self) -> None:
        """Sync the directory and ``partition.metadata``, but no records."""
        if self._disk.failure is None:
            replaced, directories = self._collect_names()
            self._run(_Work(self._gate, self._disk.files, [], replaced, directories), self.synced, full=False)

    def _run(self, work: _Work, target: int, full: bool) -> None:
        generation = self._generation
        self._running = True
        self._disk.background.run(work.run, lambda result: self._finished(result, target, generation, full))

    def _collect(self, full: bool) -> _Work:
        """The work that syncs the log as it is now."""
        files = self._disk.files
        paths = [segment.path(names.LOG) for segment in self._segments.since(self.synced) if segment.size]
        replaced: list[tuple[Path, bytes]] = []
        if full:
            # The segment that ends at the recovery point too: sealing it has added an entry to its time index.
            for segment in self._segments.since(self.recovery_point, closed_at=True):
                segment.save_indexes()
                paths += [segment.path(each) for each in (names.INDEX, names.TIME_INDEX, names.CHECKSUMS)]
                if segment.has_aborted:
                    paths.append(segment.path(names.TXN_INDEX))
            paths += self._paths
            self._collected, self._paths = self._paths, {}
            if self._leader_epochs.dirty:
                replaced += with_copy(self._path / names.EPOCH_CHECKPOINT, format_epochs(self._leader_epochs.entries()))
                self._leader_epochs.dirty = False
        of_directory, directories = self._collect_names(changed=bool(replaced))
        return _Work(self._gate, files, paths, replaced + of_directory, directories)

    def _collect_names(self, *, changed: bool = False) -> tuple[list[tuple[Path, bytes]], list[Path]]:
        """Files to replace and directories to sync, so that the names in the partition's directory and its own name are
        on the disk. `changed` says that other work changes some names in it."""
        replaced: list[tuple[Path, bytes]] = []
        directories: list[Path] = []
        if self._new_directory and any(self._topic_id):
            replaced.append((self._path / names.PARTITION_METADATA, format_partition_metadata(self._topic_id)))
        if self._new_names or self._new_directory or changed:
            directories.append(self._path)
        if self._new_directory:
            directories.append(self._path.parent)
        self._new_names = self._new_directory = False
        return replaced, directories

    def _finished(self, result: Exception | None, target: int, generation: int, full: bool) -> None:
        self._running = False
        if self._gate.closed:
            return
        if result is not None:
            self._disk.fail(f"fsync of {self._path.name}", result)
            self._failed(result)
            # Nothing of it counts: if the disk was only full, the next flush does all of it again.
            self._new_names = self._leader_epochs.dirty = True
            self._new_directory = self.recovery_point == 0
            self._paths |= self._collected
            self._full_wanted = False
            return
        if generation == self._generation:
            self._synced(target, full)
        if self._full_wanted:
            self._begin(full=True)
        elif self._wanted > self.synced:
            self._begin()

    def _synced(self, target: int, full: bool) -> None:
        self.synced = max(self.synced, target)
        if full and target > self.recovery_point:
            self.recovery_point = target
            self._disk.checkpoint_due = True
        if self.synced >= self._end:
            self.unsynced_since, self._unsynced_records = None, 0
        self._waiters.complete(self.synced, None)

    def _failed(self, error: Exception) -> None:
        self._waiters.fail_all(ErrorCode.KAFKA_STORAGE_ERROR, f"fsync of {self._path.name}: {error}")
