"""A full disk, too few descriptors: writes are refused, nothing is lost, and the log works again without a restart."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage import TopicPartition, disk
from barnabas_broker.storage.log import Log
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.wire import Buffer
from tests.broker.storage.support import TOPIC_ID, TP, batch, maintain, open_directory, topic_config, values

MINUTE = 60_000


class SmallDisk(MemoryFiles):
    """A disk that may be full: of a write, what fits is written."""

    left: int | None = None

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        data = b"".join(buffers)
        if self.left is not None and position + len(data) > self.size(handle):
            if len(data) > self.left:
                super().write(handle, [data[: self.left]], position)
                self.left = 0
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.left -= len(data)
        super().write(handle, [data], position)


class FewDescriptors(MemoryFiles):
    """A process that may have few open files."""

    most = 1 << 30

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> int:
        if len(self._open) >= self.most:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().open(path, create=create, write=write)


def append(log: Log, value: bytes, now_ms: int = 0) -> None:
    log.append_as_leader(batch(value), leader_epoch=0, now_ms=now_ms)


def refused(log: Log, value: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        append(log, value)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("room", [0, 1, 70, 200])
@pytest.mark.parametrize("overrides", [{}, {"flush.messages": "1"}, {"segment.bytes": "200"}])
def test_a_full_disk_refuses_appends_until_there_is_space(room: int, overrides: dict[str, str]) -> None:
    files = SmallDisk()
    directory = open_directory(files)
    log = directory.create(TP, TOPIC_ID, topic_config(overrides), 0)
    append(log, b"before")
    files.left = room
    for _ in range(3):
        refused(log, bytes(1000) if not overrides.get("segment.bytes") else bytes(120))
        maintain(directory, MINUTE)
    assert [directory.failure, directory.shortage is None] == [None, False]
    assert values(log) == [b"before"]
    # What was left of the append must not be found behind what follows, whatever happens then.
    assert values(open_directory(files.kill()).logs[TP]) == [b"before"]
    files.left = None
    append(log, b"after")
    assert not directory.shortage
    maintain(directory, 10 * MINUTE)
    assert values(log) == [b"before", b"after"]
    assert values(open_directory(files.kill()).logs[TP]) == [b"before", b"after"]
    directory.close(10 * MINUTE)
    again = open_directory(files.kill())
    assert again.was_clean
    assert values(again.logs[TP]) == [b"before", b"after"]


def test_checkpoints_are_written_when_there_is_space_again() -> None:
    files = SmallDisk()
    directory = open_directory(files)
    log = directory.create(TP, TOPIC_ID, topic_config(), 0)
    for n in range(5):
        append(log, b"%d" % n)
    files.left = 0
    maintain(directory, MINUTE)
    assert [directory.failure, directory.shortage is None] == [None, False]
    files.left = None
    maintain(directory, 2 * MINUTE)
    maintain(directory, 2 * MINUTE + 1000)
    assert directory.shortage is None
    assert log.recovery_point == 5


@pytest.mark.parametrize("room", [0, 1, 30, 70, 200, 500, 900])
@pytest.mark.parametrize("overrides", [{}, {"segment.bytes": "200"}])
@pytest.mark.parametrize("at", [0, 3, 7])
def test_a_truncation_on_a_full_disk_is_done_when_there_is_space(room: int, overrides: dict[str, str], at: int) -> None:
    """The broker stays: before, each such truncation took the directory offline, and the broker out of the cluster."""
    files = SmallDisk()
    directory = open_directory(files)
    log = directory.create(TP, TOPIC_ID, topic_config(overrides), 0)
    written = [b"%d" % number * 30 for number in range(9)]
    for value in written:
        append(log, value)
    log.set_high_watermark(9)
    maintain(directory, MINUTE)
    files.left = room
    for _ in range(2):
        with suppress(KafkaError):
            log.truncate_to(at)
        assert directory.failure is None
        # What is left is a beginning of the log, here and after a kill.
        assert log.log_end_offset >= at
        assert values(log) == written[: log.log_end_offset]
        there = values(open_directory(files.kill()).logs[TP])
        assert there == written[: len(there)] and len(there) >= at
    files.left = None
    log.truncate_to(at)
    assert (values(log), log.log_end_offset) == (written[:at], at)
    append(log, b"after")
    maintain(directory, 10 * MINUTE)
    assert [directory.failure, directory.shortage] == [None, None]
    assert values(log) == values(open_directory(files.kill()).logs[TP]) == [*written[:at], b"after"]
    assert log.leader_epochs.entries() == [(0, 0)]


def test_a_failed_fsync_still_takes_the_directory_offline() -> None:
    """The page cache may have dropped the data, whatever the reason was."""
    files = MemoryFiles()
    directory = open_directory(files)
    log = directory.create(TP, TOPIC_ID, topic_config({"flush.messages": "1"}), 0)

    def fault(doing: str, path: Path) -> None:
        if doing == "sync":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files.fault = fault
    append(log, b"a")
    assert directory.failure is not None


def test_partitions_need_no_descriptor_each(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FewDescriptors()
    monkeypatch.setattr(disk, "most_descriptors", lambda: 80)  # a quarter is for active segments
    directory = open_directory(files)
    files.most = 40
    logs = [directory.create(TopicPartition("t", n), TOPIC_ID, topic_config(), 0) for n in range(300)]
    for turn in range(3):
        for log in logs:
            append(log, b"%d" % turn)
        maintain(directory, (turn + 1) * MINUTE)
    assert all(values(log) == [b"0", b"1", b"2"] for log in logs)
    assert directory.failure is directory.shortage is None
    directory.close(10 * MINUTE)
    again = open_directory(files.kill())
    assert again.was_clean
    assert all(values(log) == [b"0", b"1", b"2"] for log in again.logs.values())


def test_too_few_descriptors_refuse_and_pass() -> None:
    files = FewDescriptors()
    directory = open_directory(files)
    logs = [directory.create(TopicPartition("t", n), TOPIC_ID, topic_config(), 0) for n in range(10)]
    files.most = 0
    with pytest.raises(KafkaError) as caught:
        directory.create(TopicPartition("t", 10), TOPIC_ID, topic_config(), 0)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    maintain(directory, MINUTE)
    assert directory.failure is None
    files.most = 30
    for log in (*logs, directory.create(TopicPartition("t", 10), TOPIC_ID, topic_config(), 0)):
        append(log, b"a")
        assert values(log) == [b"a"]
    maintain(directory, 2 * MINUTE)
    assert directory.failure is directory.shortage is None
