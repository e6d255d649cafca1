"""When what a log has appended is on the disk for sure.

By default nobody asks: the page cache survives the process, and replication or the operating system do the rest. With
``flush.messages`` or ``flush.ms`` fsync runs on a thread, one at a time for a log, and every append that came while
one was running shares the next. Two marks move along behind the log's end: what has been synced
(:attr:`Flusher.synced`, which acknowledgements wait for), and the recovery point, up to where indexes, snapshots,
names and epochs are synced as well.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from barnabas_broker.storage import names
from barnabas_broker.storage.checkpoints import format_epochs, format_partition_metadata
from barnabas_broker.storage.files import Files, put_file
from barnabas_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas_broker.storage.log import Log


class _Gate:
    """Keeps a thread out of a partition's directory once that is about to get another name."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.closed = False

    def close(self) -> None:
        """Let the thread finish the step it is at, and begin no other."""
        self.closed = True
        with self.lock:
            pass


class _Work(NamedTuple):
    """What a thread is to sync: open files, files to be opened, files to be replaced, directories, in this order."""

    gate: _Gate
    files: Files
    handles: list[int]
    paths: list[Path]
    replaced: list[tuple[Path, bytes]]
    directories: list[Path]

    def run(self) -> None:
        try:
            for handle in self.handles:
                self.files.sync(handle)
        finally:
            for handle in self.handles:
                self.files.close(handle)
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
            return  # retention has been faster
        try:
            self.files.sync(handle)
        finally:
            self.files.close(handle)


class Flusher:
    """Syncs one log.

    Args:
        owner: the log.
        recovery_point: up to where it is known to be on the disk.
    """

    def __init__(self, owner: "Log", recovery_point: int) -> None:
        self._log = owner
        self.recovery_point = recovery_point
        #: Everything before this offset is on the disk.
        self.synced = recovery_point
        #: When the first record that is not synced was appended, in ms; None if there is none.
        self.unsynced_since: int | None = None
        self._unsynced_records = 0
        #: What acknowledgements wait for is before this offset.
        self._wanted = recovery_point
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._running = False
        self._full_wanted = False
        #: Bumped by truncation: what an fsync that began before it has synced says nothing about the log any more.
        self._generation = 0
        self._paths: set[Path] = set()
        # What a killed process left behind may be in the page cache only, the names of its segments among it.
        self._new_names = owner.log_end_offset > recovery_point
        #: The partition's directory is new and its metadata not written yet, or nobody knows whether they are synced.
        self._new_directory = recovery_point == 0
        self._gate = _Gate()

    # What the log tells

    def created(self) -> None:
        """The partition has been made: its directory and its metadata must be synced, which begins at once."""
        self._new_directory = self._new_names = True
        self._begin(full=True)

    def appended(self, records: int, now_ms: int) -> None:
        """Records have been appended."""
        self._unsynced_records += records
        if self.unsynced_since is None:
            self.unsynced_since = now_ms
        if self._unsynced_records >= self._log.settings.flush_messages:
            self._wanted = self._log.log_end_offset
            if not self._running:
                self._begin()

    def rolled(self) -> None:
        """A segment has been closed and another one begun: the recovery point follows."""
        self._new_names = True
        if self._running:
            self._full_wanted = True
        else:
            self._begin(full=True)

    def renamed(self) -> None:
        """Names in the partition's directory have changed; they are synced with the next flush."""
        self._new_names = True

    def wrote(self, path: Path) -> None:
        """A file beside the log has been written."""
        self._paths.add(path)

    def truncated(self, offset: int) -> None:
        """The log ends at `offset` now."""
        self._generation += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.synced = min(self.synced, offset)
        self._wanted = min(self._wanted, offset)
        lost = [future for target, future in self._waiting if target > offset]
        self._waiting = [(target, future) for target, future in self._waiting if target <= offset]
        for future in lost:
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The log has been truncated."))

    def abandoned(self) -> None:
        """The partition is deleted: from now on nothing is written under its name, which another may get."""
        self.truncated(-1)
        self._gate.close()

    # What others ask

    def durable(self, offset: int) -> "asyncio.Future[None] | None":
        """As :meth:`Log.durable`, but `offset` is the one after the last that is to be acknowledged."""
        if offset <= self.synced or offset > self._wanted:
            return None
        future = asyncio.get_running_loop().create_future()
        if self._log.disk.failure is not None:
            future.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._log.disk.failure))
            return future
        self._waiting.append((offset, future))
        if not self._running:
            self._begin()
        return future

    def tick(self, now_ms: int) -> None:
        """Begin to sync what has waited for ``flush.ms``."""
        since = self.unsynced_since
        if since is not None and now_ms - since >= self._log.settings.flush_ms and not self._running:
            self._wanted = self._log.log_end_offset
            self._begin()

    def advance(self) -> None:
        """Move the recovery point to the log's end, in the background."""
        if (self.recovery_point < self._log.log_end_offset or self._dirty()) and not self._running:
            self._begin(full=True)

    def flush_now(self) -> None:
        """See :meth:`Log.flush`."""
        log = self._log
        log.disk.check()
        try:
            work = self._collect(full=True)
            work.run()
        except OSError as error:
            self._failed(error)
            raise log.disk.fail(f"fsync of {log.topic_partition}", error) from error
        self._synced(log.log_end_offset, full=True)

    # How it is done

    def _dirty(self) -> bool:
        return self._new_names or bool(self._paths) or self._log.leader_epochs.dirty

    def _begin(self, full: bool = False) -> None:
        log = self._log
        if log.disk.failure is not None:
            return
        if full:
            self._full_wanted = False
        target, generation = log.log_end_offset, self._generation
        try:
            work = self._collect(full)
        except OSError as error:
            self._finished(error, target, generation, full)
            return
        self._running = True
        log.disk.background.run(work.run, lambda result: self._finished(result, target, generation, full))

    def _collect(self, full: bool) -> _Work:
        """What has to be synced for the log as it is now."""
        log, files = self._log, self._log.disk.files
        dirty = [segment for segment in log.segments.since(self.synced) if segment.size]
        handles = [files.duplicate(segment.handle) for segment in dirty]
        replaced: list[tuple[Path, bytes]] = []
        paths: list[Path] = []
        directories: list[Path] = []
        if full:
            # The segment that ends at the recovery point too: closing it has added to its time index.
            for segment in log.segments.since(self.recovery_point, closed_at=True):
                segment.save_indexes()
                paths += segment.path(names.INDEX), segment.path(names.TIME_INDEX)
            paths += self._paths
            self._paths = set()
            if log.leader_epochs.dirty:
                replaced.append((log.path / names.EPOCH_CHECKPOINT, format_epochs(log.leader_epochs.entries())))
                log.leader_epochs.dirty = False
        if self._new_directory and any(log.topic_id):
            replaced.append((log.path / names.PARTITION_METADATA, format_partition_metadata(log.topic_id)))
        if self._new_names or replaced:
            directories.append(log.path)
        if self._new_directory:
            directories.append(log.path.parent)
        self._new_names = self._new_directory = False
        return _Work(self._gate, files, handles, paths, replaced, directories)

    def _finished(self, result: Exception | None, target: int, generation: int, full: bool) -> None:
        self._running = False
        log = self._log
        if self._gate.closed:
            return
        if result is not None:
            log.disk.fail(f"fsync of {log.topic_partition}", result)
            self._failed(result)
            return
        if generation == self._generation:
            self._synced(target, full)
        if self._full_wanted:
            self._begin(full=True)
        elif self._wanted > self.synced:
            self._begin()

    def _synced(self, target: int, full: bool) -> None:
        log = self._log
        self.synced = max(self.synced, target)
        if full and target > self.recovery_point:
            self.recovery_point = target
            log.disk.checkpoint_due = True
        if self.synced >= log.log_end_offset:
            self.unsynced_since, self._unsynced_records = None, 0
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            if entry[0] > self.synced:
                self._waiting.append(entry)
            elif not entry[1].done():
                entry[1].set_result(None)

    def _failed(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(
                    KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"fsync of {self._log.topic_partition}: {error}")
                )
