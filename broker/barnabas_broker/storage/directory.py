"""The log directory: its owner, its partitions, and their maintenance (Kafka's ``LogManager``)."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from barnabas_broker.conditions import Condition, ConditionName
from barnabas_broker.config import TOPIC_KEYS, Config, TopicConfig, parse_properties
from barnabas_broker.config.keys import (
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_ENABLE,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    LOG_DIR_MODE,
    LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_RETENTION_CHECK_INTERVAL_MS,
)
from barnabas_broker.files import Files, RealFiles, put_file, read_all, replace_file, write_file
from barnabas_broker.logs import logger
from barnabas_broker.storage import names
from barnabas_broker.storage.checkpoints import (
    BadCheckpoint,
    check_meta_properties,
    format_clean_shutdown,
    format_meta_properties,
    format_offsets,
    format_partition_metadata,
    format_segments,
    parse_clean_shutdown,
    parse_offsets,
    parse_partition_metadata,
    parse_segments,
)
from barnabas_broker.storage.checksummed_file import read_with_copy, with_copy
from barnabas_broker.storage.cleaner import Cleaner, Throttle
from barnabas_broker.storage.corruption import Damage
from barnabas_broker.storage.disk import Background, Disk, Threads
from barnabas_broker.storage.flush import SyncFailed
from barnabas_broker.storage.log import Log
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.storage.recovery import Checkpointed, Recovery
from barnabas_broker.storage.settings import LogSettings
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import METADATA_TOPIC
from barnabas_protocol.uuids import read_uuid_text, uuid_text

log = logger("storage")

#: Names that may exist in a new log directory.
_HARMLESS: Final = {names.LOCK, "lost+found", ".DS_Store"}
_NO_TOPIC_ID: Final = bytes(16)
#: Bytes of a trial write: more than a batch of most producers.
TRIAL_BYTES: Final = 1 << 20
#: Milliseconds between checks for expired producers (``producer.id.expiration.check.interval.ms``).
_EXPIRATION_CHECK_MS: Final = 600_000


class LogDirectoryError(Exception):
    """The directory cannot be used; the text is one line that says why."""


class ForeignDataError(LogDirectoryError):
    """The directory has the data of another node, cluster or program: the configuration has to change first."""


class _Interval:
    """Something that is due again and again."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = now()

    def over(self, ms: int) -> bool:
        """Whether `ms` have passed since this was last true, or since the beginning."""
        now = self._now()
        if (now - self._since) * 1000 < ms:
            return False
        self._since = now
        return True


class LogDirectory:
    """The logs of a broker; see :meth:`open`.

    Attributes:
        path: of the directory.
        cluster_id: the cluster that the data belongs to.
        directory_id: the id of this directory (KIP-858): an empty directory that takes its place has another one.
        logs: the log of every partition.
        strays: the directories of partitions that were set aside, by name: the bytes of their logs.
        was_clean: whether the last shutdown was clean.
        intact: the broker epochs since which nothing was lost, as the marker of the last clean shutdown has them;
            (-1, -1) without one. The broker sets them before it closes the directory.
    """

    def __init__(
        self,
        path: Path,
        config: Config,
        disk: Disk,
        lock: int,
        cluster_id: str,
        directory_id: str,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.path = path
        self.cluster_id = cluster_id
        self.directory_id = directory_id
        self.logs: dict[TopicPartition, Log] = {}
        self.strays: dict[str, int] = {}
        self.was_clean = False
        self.intact = (-1, -1)
        #: Whether this version wrote the checkpoints, with copies.
        self._copied = True
        self._config = config
        self._disk = disk
        self._lock = lock
        self._random_bytes = random_bytes
        self._retention_due = _Interval(disk.now)
        self._checkpointing_due = _Interval(disk.now)
        self._expiration_due = _Interval(disk.now)
        self._cleaning_due = _Interval(disk.now)
        #: The topic configuration that was used last, as the log reads it.
        self._settings: tuple[TopicConfig, LogSettings] | None = None
        self._syncing_names = self._names_changed = False
        self._checkpointing = False
        self._checkpoint_lock = threading.Lock()
        self._checkpoint_number = self._checkpoint_written = 0
        #: Deleted partitions that the checkpoints on the disk still name.
        self._stale: set[TopicPartition] = set()
        #: Partitions that the checkpoints name, without a directory: the offset up to which they had records.
        self._missing: dict[TopicPartition, int] = {}
        #: The recovery points in the checkpoint on the disk.
        self._trusted: dict[TopicPartition, int] = {}
        self._cleaner = Cleaner(disk, lambda: Throttle(config[LOG_CLEANER_IO_MAX_BYTES_PER_SECOND]))
        disk.checkpoint_now = self._checkpoint_now

    @classmethod
    def open(
        cls,
        path: Path,
        config: Config,
        *,
        node_id: int,
        now_ms: int,
        files: Files | None = None,
        background: Background | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        cluster_id: str | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> "LogDirectory":
        """Lock a directory, create it if necessary, and recover its logs.

        Args:
            path: of the directory.
            config: of the broker.
            node_id: of the broker.
            now_ms: the time of day.
            files: the file system; by default the real one.
            background: runs work that waits for the disk, or looks into batches; by default threads.
            random_bytes: for new ids and the names of deleted directories.
            cluster_id: of the broker's cluster; None for the directory's, or a new one.
            now: a monotonic clock, in seconds, for intervals.

        Raises:
            LogDirectoryError: it is locked or not writable.
            ForeignDataError: it belongs to another program, node or cluster.
        """
        files = files or RealFiles(int(config[LOG_DIR_MODE], 8))
        try:
            missing = [each for each in (path, *path.parents) if not files.exists(each)]
            files.make_directory(path)
            for made in missing:
                files.sync_directory(made.parent)
            lock = files.lock(path / names.LOCK)
        except OSError as error:
            raise LogDirectoryError(f"{path} cannot be used as log directory: {_reason(error)}") from error
        if lock is None:
            raise LogDirectoryError(f"{path} is used by another broker: it holds the lock on {path / names.LOCK}")
        try:
            cluster_id, directory_id = _identify(files, path, node_id, cluster_id, random_bytes)
            disk = Disk(path, files, background or Threads(), background or Threads(1, "records"), now)
            directory = cls(path, config, disk, lock, cluster_id, directory_id, random_bytes)
            directory._recover(now_ms)
        except OSError as error:
            files.close(lock)
            raise LogDirectoryError(f"{path} cannot be used as log directory: {_reason(error)}") from error
        except LogDirectoryError:
            files.close(lock)
            raise
        return directory

    @property
    def failure(self) -> str | None:
        """The error that has taken the directory offline: appends fail, reads continue. None while it is online."""
        return self._disk.failure

    @property
    def producer_ids(self) -> frozenset[int]:
        """The producer ids that the logs know."""
        return frozenset(each for kept in self.logs.values() for each in kept.producers.states)

    @property
    def leader_epochs(self) -> dict[tuple[bytes, int], int]:
        """The latest leader epoch in each log that has one, by topic id and partition."""
        return {
            (each.topic_id, where.partition): each.leader_epochs.latest
            for where, each in self.logs.items()
            if each.leader_epochs.latest >= 0
        }

    @property
    def shortage(self) -> str | None:
        """The write that failed for want of space or of descriptors; None if it is possible again."""
        return self._disk.shortage

    @property
    def shortages(self) -> int:
        """How many operations have failed for want of space or of descriptors."""
        return self._disk.shortages

    @property
    def on_trouble(self) -> Callable[[str], None]:
        """Called with the reason after each operation on the disk that has failed."""
        return self._disk.on_trouble

    @on_trouble.setter
    def on_trouble(self, call: Callable[[str], None]) -> None:
        self._disk.on_trouble = call

    async def can_write(self) -> bool:
        """Whether a file of :data:`TRIAL_BYTES` can be written and synced; False when the directory is offline."""
        if self.failure is not None:
            return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        files, path = self._disk.files, self.path / names.TRIAL

        def write() -> None:
            handle = files.open(path, create=True)
            try:
                files.write(handle, [bytes(TRIAL_BYTES)], 0)
                files.sync(handle)
            finally:
                files.close(handle)
                files.remove(path)

        def written(result: Exception | None) -> None:
            if not done.done():
                done.set_result(result is None)

        self._disk.background.run(write, written)
        return await done

    def conditions(self) -> Iterable[Condition]:
        """The conditions of this directory: what is not possible now."""
        if self.shortage is not None:
            yield Condition(
                ConditionName.DISK_FULL,
                f"log directory {self.path} cannot be written now: {self.shortage}. Records are refused, reads "
                "continue. To do: make room, or raise the limit of open files; it goes on without a restart",
            )
        if self.failure is not None:
            yield Condition(
                ConditionName.DISK_OFFLINE,
                f"log directory {self.path} is offline: {self.failure}. Nothing is written any more, reads continue. "
                "To do: repair or replace the disk, and restart the broker",
            )

    def _recover(self, now_ms: int) -> None:
        files, path = self._disk.files, self.path
        marker = path / names.CLEAN_SHUTDOWN
        self.was_clean = files.exists(marker)
        if self.was_clean:
            try:
                self.intact, self._copied = parse_clean_shutdown(read_all(files, marker))
            except BadCheckpoint as error:
                log.error("marker of a clean shutdown is damaged", file=str(marker), reason=str(error))
                self.was_clean = False
        points = self._read_offsets(names.RECOVERY_POINTS)
        starts = self._read_offsets(names.LOG_STARTS)
        self._trusted = dict(points)
        self._cleaner.offsets = self._read_offsets(names.CLEANER_OFFSETS)
        watermarks = self._read_offsets(names.HIGH_WATERMARKS)
        segments = self._read_segments()
        config = TopicConfig(self._config, {}, TOPIC_KEYS)
        settings = LogSettings.of(config)
        for name in files.names(path):
            where = path / name
            if not files.is_directory(where) or name in _HARMLESS:
                continue
            if names.is_deleted_directory(name):
                if name.endswith("-delete"):
                    self._disk.discard([where], 0)
                elif names.parse_stray_directory(name) is not None:
                    self.strays[name] = self._size_of_logs(where)
                continue
            partition = names.parse_partition_directory(name)
            if partition is None:
                raise ForeignDataError(f"{where} is not a partition: the log directory has files of another program")
            if partition.topic == METADATA_TOPIC:
                continue
            known = Checkpointed(
                points.get(partition, 0),
                starts.get(partition, 0),
                watermarks.get(partition, 0),
                self._cleaner.offsets.get(partition, 0),
                self.was_clean,
                self._copied,
                None if segments is None else segments.get(partition),
            )
            recovered = Recovery(files, where, settings, known, now_ms).load()
            self.logs[partition] = Log(self._disk, where, partition, self._topic_id(where), config, settings, recovered)
            self._disk.opened(self.logs[partition].segments.active)
        # At once: on a full disk this makes room.
        self._disk.empty_trash()
        if files.exists(path / names.TRIAL):
            files.remove(path / names.TRIAL)
        self._stale = {*points, *starts} - self.logs.keys()
        self._missing = {where: max(points.get(where, 0), watermarks.get(where, 0)) for where in self._stale}
        if files.exists(marker):
            # From now on the shutdown counts as unclean, until close().
            files.remove(marker)
            files.sync_directory(path)
        # Without logs there is nothing that an unclean shutdown could have harmed: a first start says nothing about it.
        shutdown = {"clean": self.was_clean} if self.logs else {}
        log.info("log directory opened", directory=str(path), partitions=len(self.logs), **shutdown)

    def _size_of_logs(self, path: Path) -> int:
        """The bytes of the segments in a directory."""
        files, size = self._disk.files, 0
        for name in files.names(path):
            if name.endswith(names.LOG):
                handle = files.open(path / name)
                size += files.size(handle)
                files.close(handle)
        return size

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        content = read_with_copy(self._disk.files, self.path / name, copied=self._copied)
        try:
            return parse_offsets((content or b"").decode(errors="replace"))
        except BadCheckpoint as error:
            log.warning("checkpoint is corrupt", file=str(self.path / name), reason=str(error))
            return {}

    def _read_segments(self) -> dict[TopicPartition, dict[int, int]] | None:
        """The segments of all logs at the last clean shutdown; None if they are not known."""
        if not self.was_clean or not self._copied:
            return None
        content = read_with_copy(self._disk.files, self.path / names.SEGMENTS, copied=True)
        if content is None:
            return None  # of an earlier version
        try:
            return parse_segments(content.decode(errors="replace"))
        except BadCheckpoint as error:
            log.warning("checkpoint is corrupt", file=str(self.path / names.SEGMENTS), reason=str(error))
            return None

    def _topic_id(self, path: Path) -> bytes:
        try:
            content = read_all(self._disk.files, path / names.PARTITION_METADATA)
            # A power failure may leave an empty file, of a partition that never had a record.
            return parse_partition_metadata(content.decode(errors="replace")) if content else _NO_TOPIC_ID
        except FileNotFoundError:
            return _NO_TOPIC_ID
        except BadCheckpoint as error:
            log.warning("topic id is unknown", path=str(path), reason=str(error))
            return _NO_TOPIC_ID

    def create(self, topic_partition: TopicPartition, topic_id: bytes, config: TopicConfig, now_ms: int) -> Log:
        """The log of a partition; it is created if it does not exist, and configured if it does.

        Args:
            topic_partition: the partition.
            topic_id: 16 bytes.
            config: of its topic.
            now_ms: the time of day.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION if the name is not valid in a path; KAFKA_STORAGE_ERROR.
        """
        existing = self.logs.get(topic_partition)
        if existing is not None:
            if existing.topic_id == _NO_TOPIC_ID:
                existing.identify(topic_id)
            if topic_id in (existing.topic_id, _NO_TOPIC_ID):
                existing.configure(config, self._settings_of(config))
                existing.close_gaps()
                return existing
            # Of a deleted topic of that name whose directory a crash left, or the metadata are damaged or older.
            self.set_stray(topic_partition)
        self._disk.check()
        try:
            path = self.path / names.partition_directory(topic_partition)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
        files = self._disk.files
        try:
            if topic_partition in self._stale:
                self._checkpoint_now()
            new = files.make_directory(path)
            recovery = Recovery(files, path, self._settings_of(config), Checkpointed(), now_ms)
            recovered = recovery.empty(0, new_directory=True) if new else recovery.load()
            # Not synced: see barnabas_broker.storage.flush.
            write_file(files, path / names.PARTITION_METADATA, format_partition_metadata(topic_id), sync=False)
        except OSError as error:
            raise self._disk.fail(f"creation of {topic_partition}", error) from error
        created = Log(self._disk, path, topic_partition, topic_id, config, self._settings_of(config), recovered)
        self._disk.opened(created.segments.active)
        self.logs[topic_partition] = created
        return created

    def _settings_of(self, config: TopicConfig) -> LogSettings:
        """The settings of a topic. Its partitions are created one after another, and share them."""
        if self._settings is None or self._settings[0] is not config:
            self._settings = config, LogSettings.of(config)
        return self._settings[1]

    def missing(self, topic_partition: TopicPartition) -> Damage | None:
        """The loss of a replica whose directory is missing: everything; None if it never had a record."""
        path = self.path / names.partition_directory(topic_partition)
        end = self._missing.get(topic_partition)
        if end == 0:
            return None
        end = end or 0
        return Damage(0, 0, 0, end, path, "the directory of the partition is missing")

    def on_damage(self, found: Callable[[TopicPartition, Damage], None]) -> None:
        """Call `found` when a read of a log runs into damage."""
        self._disk.damage_found = found

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete a partition: rename its directory now, remove its files later.

        Args:
            topic_partition: the partition; an unknown one is ignored.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        deleted = self.logs.get(topic_partition)
        if deleted is None:
            return
        target = names.deleted_directory(topic_partition, self._random_bytes(16).hex())
        self._put_away(deleted, target)
        self._disk.discard([self.path / target], deleted.settings.file_delete_delay_ms)

    def set_stray(self, topic_partition: TopicPartition) -> None:
        """Set a partition aside that the metadata do not know: rename its directory, and keep it.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        stray = self.logs[topic_partition]
        target = names.stray_directory(topic_partition, self._random_bytes(16).hex())
        log.error(
            "partition is not in the metadata and is set aside; see `barnabas log strays`",
            partition=str(topic_partition),
            directory=target,
            log_end_offset=stray.log_end_offset,
        )
        try:
            stray.close()
        finally:
            size = stray.size
            self._put_away(stray, target)
        self.strays[target] = size

    def _put_away(self, each: Log, target: str) -> None:
        """Close a log and rename its directory."""
        where = each.topic_partition
        del self.logs[where]
        each.abandon()
        self._cleaner.offsets.pop(where, None)
        self._stale.add(where)
        try:
            self._disk.files.rename(each.path, self.path / target)
        except OSError as error:
            raise self._disk.fail(f"renaming of {where}", error) from error
        self._sync_names()

    def _sync_names(self) -> None:
        """Sync the names in the directory, in the background. Those that change meanwhile share the next sync."""
        self._names_changed = True
        if not self._syncing_names:
            self._syncing_names, self._names_changed = True, False
            self._disk.background.run(lambda: self._disk.files.sync_directory(self.path), self._names_synced)

    def _names_synced(self, result: Exception | None) -> None:
        self._syncing_names = False
        if result is not None:
            self._disk.fail("deletion", result)
        elif self._names_changed:
            self._sync_names()

    def maintain(self, now_ms: int) -> None:
        """Run what is due: flushes, retention, compaction, expiration of producers, checkpoints. Called by a timer.

        It does not wait for the disk: long work runs in the background. Intervals are those of a monotonic clock, so
        that nothing stops when the time of day is set back.

        Args:
            now_ms: the time of day, which the ages of records are compared with.
        """
        if self._disk.failure is None:
            for each in self.logs.values():
                each.flusher.tick()
            if self._retention_due.over(self._config[LOG_RETENTION_CHECK_INTERVAL_MS]):
                self.retain(now_ms)
            if self._config[LOG_CLEANER_ENABLE] and self._cleaning_due.over(self._config[LOG_CLEANER_BACKOFF_MS]):
                self.compact(now_ms)
            if self._expiration_due.over(_EXPIRATION_CHECK_MS):
                for each in self.logs.values():
                    each.producers.expire(now_ms, each.settings.producer_expiration_ms)
            if self._checkpointing_due.over(self._config[LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS]):
                for each in self.logs.values():
                    each.flusher.advance()
                self.checkpoint()
            elif self._disk.checkpoint_due or self._disk.shortage is not None:
                self.checkpoint()
        self._disk.empty_trash()

    def retain(self, now_ms: int) -> int:
        """Roll old segments and remove expired ones; the number of removed segments."""
        removed = 0
        for each in list(self.logs.values()):
            try:
                each.roll_if_old(now_ms)
                removed += each.retain(now_ms)
            except KafkaError:
                break  # the disk has failed, which is logged already
        return removed

    def compact(self, now_ms: int) -> bool:
        """Compact the dirtiest log in the background; whether one is dirty enough."""
        return self._cleaner.begin(self.logs.values(), now_ms, self._trusted)

    def checkpoint(self) -> None:
        """Write the checkpoints in the background: recovery points, log start offsets, high watermarks."""
        if self._checkpointing or self._disk.failure is not None:
            return
        self._checkpointing, self._disk.checkpoint_due = True, False
        write, stale = self._checkpoint_writer(), set(self._stale)

        def written(result: Exception | None) -> None:
            self._checkpointing = False
            if result is not None:
                self._disk.fail("checkpoint", result)
                self._disk.checkpoint_due = True  # if the disk was only full, it is tried again
            else:
                self._disk.worked()
                self._stale -= stale

        self._disk.background.run(write, written)

    def save_log_starts(self) -> "asyncio.Future[None]":
        """Write the log start offsets as they are now, in the background.

        Returns:
            A future that is done when a restart of the broker keeps them; it fails with KAFKA_STORAGE_ERROR.
        """
        saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def written(result: Exception | None) -> None:
            error = None if result is None else self._disk.fail("checkpoint", result)
            if saved.done():
                return  # the request has timed out
            if error is None:
                saved.set_result(None)
            else:
                saved.set_exception(error)

        self._disk.background.run(self._checkpoint_writer(), written)
        return saved

    def _checkpoint_now(self) -> None:
        """Write the checkpoints before this returns.

        Raises:
            OSError: the disk failed.
        """
        self._checkpoint_writer()()
        self._stale.clear()

    def _checkpoint_writer(self) -> Callable[[], None]:
        """A function that writes the present checkpoints, unless newer ones were written meanwhile."""
        self._checkpoint_number += 1
        number = self._checkpoint_number
        logs = self.logs
        points = {where: each.recovery_point for where, each in logs.items()}
        offsets = {
            names.RECOVERY_POINTS: points,
            # Kafka leaves out those of which the first segment tells. But until its name is synced, a crash may bring
            # back the segments before that one.
            names.LOG_STARTS: {tp: each.log_start_offset for tp, each in logs.items() if each.log_start_offset},
            names.HIGH_WATERMARKS: {tp: each.high_watermark for tp, each in logs.items()},
            names.CLEANER_OFFSETS: {tp: offset for tp, offset in self._cleaner.offsets.items() if tp in logs},
        }
        files, path = self._disk.files, self.path

        def write() -> None:
            with self._checkpoint_lock:
                if number > self._checkpoint_written:
                    for name, each in offsets.items():
                        for target, data in with_copy(path / name, format_offsets(each)):
                            put_file(files, target, data)
                    files.sync_directory(path)
                    self._checkpoint_written = number
                    self._trusted = points

        return write

    def close(self, now_ms: int) -> None:
        """Flush all logs, write the checkpoints and the marker of a clean shutdown, unlock. It waits for the disk."""
        self._disk.background.close()
        self._disk.decoder.close()
        files = self._disk.files
        try:
            self._close_logs()
            if self._disk.failure is None:
                self._checkpoint_now()
                self._save_segments()
                replace_file(files, self.path / names.CLEAN_SHUTDOWN, format_clean_shutdown(self.intact))
        except (OSError, SyncFailed) as error:
            self._disk.fail("close", error)  # without the marker the next start recovers
        finally:
            files.close(self._lock)

    def _save_segments(self) -> None:
        """Write which segments each log has, so that the next start notices if some are missing or shorter.

        Raises:
            OSError: the disk failed.
        """
        found = (
            (where, segment.base_offset, segment.size)
            for where, each in sorted(self.logs.items())
            for segment in each.segments
            if segment.size
        )
        for target, data in with_copy(self.path / names.SEGMENTS, format_segments(found)):
            put_file(self._disk.files, target, data)
        self._disk.files.sync_directory(self.path)

    def _close_logs(self) -> None:
        """Sync and close all logs. After a failure of the disk, nothing is written.

        Raises:
            OSError: the disk failed.
        """
        logs = list(self.logs.values())
        changed: list[Log] = []

        def syncs() -> Iterator[Callable[[], None]]:
            for each in logs:
                sync = each.finish()
                if sync is not None:
                    changed.append(each)
                    yield sync

        try:
            if self._disk.failure is None:
                self._disk.background.run_all(syncs())
                for each in changed:
                    each.flusher.all_synced()
        finally:
            for each in logs:
                each.close()


def _identify(
    files: Files, path: Path, node_id: int, cluster_id: str | None, random_bytes: Callable[[int], bytes]
) -> tuple[str, str]:
    """The cluster id and the directory id in ``meta.properties``, which are written if they do not exist.

    Raises:
        ForeignDataError: the directory belongs to another program, node or cluster.
        OSError: the disk failed.
    """
    meta = path / names.META_PROPERTIES
    if files.exists(meta):
        properties = parse_properties(read_all(files, meta).decode(errors="replace"))
        try:
            check_meta_properties(properties)
        except BadCheckpoint as error:
            raise LogDirectoryError(
                f"{meta} is damaged: {error}. Restore it, or remove its line `checksum` if you have edited it"
            ) from error
        node = properties.get("node.id", properties.get("broker.id", str(node_id)))
        if node != str(node_id):
            raise ForeignDataError(f"{path} belongs to node {node}, this is node {node_id}")
        if "cluster.id" not in properties:
            raise ForeignDataError(f"{meta} has no cluster.id")
        if cluster_id not in (None, properties["cluster.id"]):
            raise ForeignDataError(f"{path} belongs to cluster {properties['cluster.id']}, this is {cluster_id}")
        cluster_id = properties["cluster.id"]
        if "directory.id" in properties:
            directory_id = properties["directory.id"]
            if not read_uuid_text(directory_id):
                raise LogDirectoryError(
                    f"{meta} has an invalid directory.id: {directory_id!r} is not an id of 16 bytes"
                )
            return cluster_id, directory_id
        # Earlier versions gave directories no id.
        directory_id = uuid_text(random_bytes(16))
        replace_file(files, meta, format_meta_properties(cluster_id, node_id, directory_id))
        return cluster_id, directory_id
    for name in files.names(path):
        if name not in _HARMLESS and not name.startswith(names.META_PROPERTIES):
            raise ForeignDataError(f"{path} has files of another program, such as {name}: give an empty directory")
    cluster_id, directory_id = cluster_id or uuid_text(random_bytes(16)), uuid_text(random_bytes(16))
    replace_file(files, meta, format_meta_properties(cluster_id, node_id, directory_id))
    return cluster_id, directory_id


def _reason(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "it is not writable"
    return error.strerror or str(error)
