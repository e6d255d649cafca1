"""The log directory: its owner, its partitions, and their maintenance (Kafka's ``LogManager``)."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from barnabas_broker.config import TOPIC_KEYS, Config, TopicConfig, parse_properties
from barnabas_broker.config.keys import (
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_ENABLE,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_RETENTION_CHECK_INTERVAL_MS,
)
from barnabas_broker.logs import logger
from barnabas_broker.storage import names
from barnabas_broker.storage.checkpoints import (
    BadCheckpoint,
    format_meta_properties,
    format_offsets,
    new_cluster_id,
    parse_offsets,
    parse_partition_metadata,
)
from barnabas_broker.storage.cleaner import Cleaner, Throttle
from barnabas_broker.storage.disk import Background, Disk, Threads
from barnabas_broker.storage.files import Files, RealFiles, read_all, replace_file
from barnabas_broker.storage.log import Log
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.storage.recovery import Checkpointed, Recovery
from barnabas_broker.storage.settings import LogSettings
from barnabas_protocol.errors import ErrorCode, KafkaError

log = logger("storage")

#: Names that may exist in a new log directory.
_HARMLESS: Final = {names.LOCK, "lost+found", ".DS_Store"}
_NO_TOPIC_ID: Final = bytes(16)
#: Milliseconds between checks for expired producers (``producer.id.expiration.check.interval.ms``).
_EXPIRATION_CHECK_MS: Final = 600_000


class LogDirectoryError(Exception):
    """The directory cannot be used; the text is one line that says why."""


class LogDirectory:
    """The logs of a broker; see :meth:`open`.

    Attributes:
        path: of the directory.
        cluster_id: the cluster that the data belongs to.
        logs: the log of every partition.
        was_clean: whether the last shutdown was clean.
    """

    def __init__(
        self,
        path: Path,
        config: Config,
        disk: Disk,
        lock: int,
        cluster_id: str,
        now_ms: int,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.path = path
        self.cluster_id = cluster_id
        self.logs: dict[TopicPartition, Log] = {}
        self.was_clean = False
        self._config = config
        self._disk = disk
        self._lock = lock
        self._random_bytes = random_bytes
        self._retained_ms = now_ms
        self._checkpointed_ms = now_ms
        self._expired_ms = now_ms
        self._checkpointing = False
        self._checkpoint_lock = threading.Lock()
        self._checkpoint_number = self._checkpoint_written = 0
        #: Deleted partitions that the checkpoints on the disk still name.
        self._stale: set[TopicPartition] = set()
        #: The recovery points in the checkpoint on the disk.
        self._trusted: dict[TopicPartition, int] = {}
        self._cleaner = Cleaner(disk, lambda: Throttle(config[LOG_CLEANER_IO_MAX_BYTES_PER_SECOND]))
        self._cleaned_ms = now_ms
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
    ) -> "LogDirectory":
        """Lock a directory, create it if necessary, and recover its logs.

        Args:
            path: of the directory.
            config: of the broker.
            node_id: of the broker.
            now_ms: the time of day.
            files: the file system; by default the real one.
            background: runs work that waits for the disk; by default threads.
            random_bytes: for a new cluster id and the names of deleted directories.
            cluster_id: of the broker's cluster; None for the directory's, or a new one.

        Raises:
            LogDirectoryError: it is locked or not writable, or belongs to another program or node.
        """
        files = files or RealFiles()
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
            cluster_id = _identify(files, path, node_id, cluster_id, random_bytes)
            disk = Disk(path, files, background or Threads())
            directory = cls(path, config, disk, lock, cluster_id, now_ms, random_bytes)
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

    def _recover(self, now_ms: int) -> None:
        files, path = self._disk.files, self.path
        marker = path / names.CLEAN_SHUTDOWN
        self.was_clean = files.exists(marker)
        points = self._read_offsets(names.RECOVERY_POINTS)
        starts = self._read_offsets(names.LOG_STARTS)
        self._trusted = dict(points)
        self._cleaner.offsets = self._read_offsets(names.CLEANER_OFFSETS)
        watermarks = self._read_offsets(names.HIGH_WATERMARKS)
        config = TopicConfig(self._config, {}, TOPIC_KEYS)
        settings = LogSettings.of(config)
        for name in files.names(path):
            where = path / name
            if not files.is_directory(where) or name in _HARMLESS:
                continue
            if names.is_deleted_directory(name):
                if name.endswith("-delete"):
                    self._disk.discard([where], now_ms)
                continue
            partition = names.parse_partition_directory(name)
            if partition is None:
                raise LogDirectoryError(f"{where} is not a partition: the log directory has files of another program")
            if partition.topic == names.METADATA_TOPIC:
                continue
            known = Checkpointed(
                points.get(partition, 0), starts.get(partition, 0), watermarks.get(partition, 0), self.was_clean
            )
            recovered = Recovery(files, where, settings, known, now_ms).load()
            self.logs[partition] = Log(self._disk, where, partition, self._topic_id(where), config, recovered)
        self._stale = {*points, *starts} - self.logs.keys()
        if self.was_clean:
            # From now on the shutdown counts as unclean, until close().
            files.remove(marker)
            files.sync_directory(path)
        log.info("log directory opened", directory=str(path), partitions=len(self.logs), clean=self.was_clean)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        try:
            return parse_offsets(read_all(self._disk.files, self.path / name).decode(errors="replace"))
        except FileNotFoundError:
            return {}
        except BadCheckpoint as error:
            log.warning("checkpoint is corrupt", file=str(self.path / name), reason=str(error))
            return {}

    def _topic_id(self, path: Path) -> bytes:
        try:
            return parse_partition_metadata(
                read_all(self._disk.files, path / names.PARTITION_METADATA).decode(errors="replace")
            )
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
            if topic_id in (existing.topic_id, _NO_TOPIC_ID) or existing.topic_id == _NO_TOPIC_ID:
                existing.configure(config)
                return existing
            # The topic was deleted, but a crash came before its directory was renamed.
            log.warning("deleting the log of a deleted topic", partition=str(topic_partition))
            self.delete(topic_partition, now_ms)
        self._disk.check()
        try:
            path = self.path / names.partition_directory(topic_partition)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
        files = self._disk.files
        try:
            if topic_partition in self._stale:
                self._checkpoint_now()
            new = not files.exists(path)
            files.make_directory(path)
            recovery = Recovery(files, path, LogSettings.of(config), Checkpointed(), now_ms)
            recovered = recovery.empty(0) if new else recovery.load()
        except OSError as error:
            raise self._disk.fail(f"creation of {topic_partition}", error) from error
        created = Log(self._disk, path, topic_partition, topic_id, config, recovered)
        created.flusher.created()
        self.logs[topic_partition] = created
        return created

    def delete(self, topic_partition: TopicPartition, now_ms: int | None = None) -> None:
        """Delete a partition: rename its directory now, remove its files later.

        Args:
            topic_partition: the partition; an unknown one is ignored.
            now_ms: the time of day; without it the next :meth:`maintain` removes the files.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        deleted = self.logs.pop(topic_partition, None)
        if deleted is None:
            return
        deleted.abandon()
        self._cleaner.offsets.pop(topic_partition, None)
        self._stale.add(topic_partition)
        target = self.path / names.deleted_directory(topic_partition, self._random_bytes(16).hex())
        try:
            self._disk.files.rename(deleted.path, target)
        except OSError as error:
            raise self._disk.fail(f"deletion of {topic_partition}", error) from error
        self._disk.background.run(lambda: self._disk.files.sync_directory(self.path), self._renamed)
        due = 0 if now_ms is None else now_ms + deleted.settings.file_delete_delay_ms
        self._disk.discard([target], due)

    def _renamed(self, result: Exception | None) -> None:
        if result is not None:
            self._disk.fail("deletion", result)

    def maintain(self, now_ms: int) -> None:
        """Run what is due: flushes, retention, compaction, expiration of producers, checkpoints. Called by a timer.

        It does not wait for the disk: long work runs in the background.
        """
        if self._disk.failure is None:
            for each in self.logs.values():
                each.flusher.tick(now_ms)
            if now_ms - self._retained_ms >= self._config[LOG_RETENTION_CHECK_INTERVAL_MS]:
                self._retained_ms = now_ms
                self.retain(now_ms)
            if self._config[LOG_CLEANER_ENABLE] and now_ms - self._cleaned_ms >= self._config[LOG_CLEANER_BACKOFF_MS]:
                self._cleaned_ms = now_ms
                self.compact(now_ms)
            if now_ms - self._expired_ms >= _EXPIRATION_CHECK_MS:
                self._expired_ms = now_ms
                for each in self.logs.values():
                    each.producers.expire(now_ms, each.settings.producer_expiration_ms)
            if now_ms - self._checkpointed_ms >= self._config[LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS]:
                self._checkpointed_ms = now_ms
                for each in self.logs.values():
                    each.flusher.advance()
                self.checkpoint()
            elif self._disk.checkpoint_due:
                self.checkpoint()
        self._disk.empty_trash(now_ms)

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
            else:
                self._stale -= stale

        self._disk.background.run(write, written)

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
        points = {where: each.recovery_point for where, each in self.logs.items()}
        contents = self._checkpoints(points)
        files, path = self._disk.files, self.path

        def write() -> None:
            with self._checkpoint_lock:
                if number > self._checkpoint_written:
                    for name, content in contents:
                        replace_file(files, path / name, content)
                    self._checkpoint_written = number
                    self._trusted = points

        return write

    def _checkpoints(self, points: dict[TopicPartition, int]) -> list[tuple[str, bytes]]:
        logs = self.logs
        return [
            (names.RECOVERY_POINTS, format_offsets(points)),
            (
                names.LOG_STARTS,
                # As in Kafka: only if it differs from the first segment's base offset.
                format_offsets(
                    {
                        tp: each.log_start_offset
                        for tp, each in logs.items()
                        if each.log_start_offset > each.segments.first_offset
                    }
                ),
            ),
            (names.HIGH_WATERMARKS, format_offsets({tp: each.high_watermark for tp, each in logs.items()})),
            (
                names.CLEANER_OFFSETS,
                format_offsets({tp: offset for tp, offset in self._cleaner.offsets.items() if tp in logs}),
            ),
        ]

    def close(self, now_ms: int) -> None:
        """Flush all logs, write the checkpoints and the marker of a clean shutdown, unlock. It waits for the disk."""
        self._disk.background.close()
        files = self._disk.files
        try:
            for each in self.logs.values():
                each.close()
            if self._disk.failure is None:
                self._checkpoint_now()
                replace_file(files, self.path / names.CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
        except KafkaError:
            pass  # the disk has failed: without the marker the next start recovers
        except OSError as error:
            self._disk.fail("close", error)
        finally:
            files.close(self._lock)


def _identify(
    files: Files, path: Path, node_id: int, cluster_id: str | None, random_bytes: Callable[[int], bytes]
) -> str:
    """The cluster id in ``meta.properties``, which is written if it does not exist.

    Raises:
        LogDirectoryError: the directory belongs to another program, node or cluster.
        OSError: the disk failed.
    """
    meta = path / names.META_PROPERTIES
    if files.exists(meta):
        properties = parse_properties(read_all(files, meta).decode(errors="replace"))
        node = properties.get("node.id", properties.get("broker.id", str(node_id)))
        if node != str(node_id):
            raise LogDirectoryError(f"{path} belongs to node {node}, this is node {node_id}")
        if "cluster.id" not in properties:
            raise LogDirectoryError(f"{meta} has no cluster.id")
        if cluster_id not in (None, properties["cluster.id"]):
            raise LogDirectoryError(f"{path} belongs to cluster {properties['cluster.id']}, this is {cluster_id}")
        return properties["cluster.id"]
    for name in files.names(path):
        if name not in _HARMLESS and not name.startswith(names.META_PROPERTIES):
            raise LogDirectoryError(f"{path} has files of another program, such as {name}: give an empty directory")
    cluster_id = cluster_id or new_cluster_id(random_bytes(16))
    replace_file(files, meta, format_meta_properties(cluster_id, node_id))
    return cluster_id


def _reason(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "it is not writable"
    return error.strerror or str(error)
