"""The log directory: its owner, its partitions, its checkpoints."""

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from barnabas_broker.files import read_all, replace_file
from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage import Inline, LogDirectory, LogDirectoryError, TopicPartition, names
from barnabas_broker.storage.checkpoints import (
    BadCheckpoint,
    format_clean_shutdown,
    parse_clean_shutdown,
    parse_offsets,
)
from barnabas_broker.storage.disk import Threads
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records.builder import build_batch
from barnabas_protocol.uuids import read_uuid_text
from tests.broker.storage.support import (
    ROOT,
    TOPIC_ID,
    TP,
    batch,
    broker_config,
    clock,
    maintain,
    open_directory,
    topic_config,
    values,
)


def open_real(path: Path, node_id: int = 1) -> LogDirectory:
    return LogDirectory.open(path, broker_config(), node_id=node_id, now_ms=0, background=Inline())


def refusal(path: Path, node_id: int = 1) -> str:
    with pytest.raises(LogDirectoryError) as caught:
        open_real(path, node_id)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_new_directory_gets_a_cluster_id_and_keeps_it(tmp_path: Path) -> None:
    first = open_real(tmp_path / "a" / "b")
    first.close(0)
    second = open_real(tmp_path / "a" / "b")
    assert len(first.cluster_id) == 22
    assert second.cluster_id == first.cluster_id
    assert second.was_clean
    assert not (tmp_path / "a" / "b" / names.CLEAN_SHUTDOWN).exists()
    second.close(0)
    other = open_real(tmp_path / "c")
    assert other.cluster_id != first.cluster_id
    other.close(0)


def test_a_directory_has_an_id_of_its_own(tmp_path: Path) -> None:
    first = open_real(tmp_path / "a")
    first.close(0)
    again = open_real(tmp_path / "a")
    again.close(0)
    other = open_real(tmp_path / "b")
    other.close(0)
    assert len(read_uuid_text(first.directory_id)) == 16
    assert again.directory_id == first.directory_id
    assert other.directory_id != first.directory_id


def test_a_directory_of_an_earlier_version_gets_an_id(tmp_path: Path) -> None:
    meta = tmp_path / names.META_PROPERTIES
    meta.write_text("#\ncluster.id=abc\nnode.id=1\nversion=1\n")
    first = open_real(tmp_path)
    first.close(0)
    again = open_real(tmp_path)
    again.close(0)
    assert (first.cluster_id, first.directory_id) == ("abc", again.directory_id)
    meta.write_text("#\ncluster.id=abc\ndirectory.id=x\nnode.id=1\nversion=1\n")
    assert "invalid directory.id" in refusal(tmp_path)


def test_a_directory_with_a_damaged_identity_is_rejected(tmp_path: Path) -> None:
    first = open_real(tmp_path)
    first.close(0)
    meta = tmp_path / names.META_PROPERTIES
    content = meta.read_text()
    meta.write_text(content.replace("directory.id=", "dirfctory.id="))
    assert "is damaged: wrong checksum" in refusal(tmp_path)
    meta.write_text(content)
    again = open_real(tmp_path)
    again.close(0)
    assert again.directory_id == first.directory_id


def test_a_directory_in_use_is_rejected(tmp_path: Path) -> None:
    first = open_real(tmp_path)
    assert "used by another broker" in refusal(tmp_path)
    first.close(0)
    open_real(tmp_path).close(0)


def test_a_directory_of_another_node_is_rejected(tmp_path: Path) -> None:
    open_real(tmp_path, 1).close(0)
    assert "belongs to node 1, this is node 2" in refusal(tmp_path, 2)
    open_real(tmp_path, 1).close(0)  # and the refused one has released it


def test_files_of_another_program_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    assert "holiday.jpg" in refusal(tmp_path)
    assert not (tmp_path / names.META_PROPERTIES).exists()
    used = tmp_path / "used"
    open_real(used).close(0)
    (used / "photos").mkdir()
    assert "photos is not a partition" in refusal(used)
    (used / "photos").rmdir()
    (used / "lost+found").mkdir()
    (used / "notes.txt").write_text("plain files are left alone, as Kafka does")
    open_real(used).close(0)


def test_a_path_that_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert "cannot be used as log directory" in refusal(tmp_path / "file")
    assert "cannot be used as log directory" in refusal(tmp_path / "file" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_is_not_writable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "not writable" in refusal(tmp_path)
    assert "not writable" in refusal(tmp_path / "below")


def test_invalid_topic_names_never_become_paths() -> None:
    directory = open_directory(MemoryFiles())
    for topic in ("..", "a/b", "../../etc", "", "x" * 250):
        with pytest.raises(KafkaError) as caught:
            directory.create(TopicPartition(topic, 0), TOPIC_ID, topic_config(), 0)
        assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_partitions_are_loaded_with_their_topic_id() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    for n in range(3):
        log = directory.create(TP._replace(partition=n), TOPIC_ID, topic_config(), 0)
        log.append_as_leader(batch(b"%d" % n), leader_epoch=0, now_ms=0)
        log.set_high_watermark(1)
    assert directory.create(TP, TOPIC_ID, topic_config({"retention.ms": "5"}), 0) is directory.logs[TP]
    assert directory.logs[TP].settings.retention_ms == 5
    directory.close(0)
    again = open_directory(files)
    assert {where: (values(log), log.topic_id, log.high_watermark) for where, log in again.logs.items()} == {
        TP._replace(partition=n): ([b"%d" % n], TOPIC_ID, 1) for n in range(3)
    }


def test_a_deleted_partition_is_renamed_at_once_and_removed_later() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    log = directory.create(TP, TOPIC_ID, topic_config({"file.delete.delay.ms": "1000"}), 0)
    log.append_as_leader(batch(b"old"), leader_epoch=0, now_ms=0)
    log.set_high_watermark(1)
    log.delete_records(1)
    log.flush()
    directory.checkpoint()
    clock.now = 0.05
    directory.delete(TP)
    directory.delete(TP)
    deleted = [name for name in files.names(ROOT) if names.is_deleted_directory(name)]
    assert len(deleted) == 1
    assert TP not in directory.logs
    # A new partition of the same name begins at 0, whatever the checkpoints contain.
    new = directory.create(TP, bytes(16), topic_config(), 60)
    new.append_as_leader(batch(b"new"), leader_epoch=0, now_ms=60)
    maintain(directory, 1049)
    assert deleted[0] in files.names(ROOT)
    again = open_directory(files.kill(), now_ms=70)
    assert values(again.logs[TP]) == [b"new"]
    clock.now = 1.05
    maintain(directory, 1050)
    assert deleted[0] not in files.names(ROOT)


def test_a_deleted_topic_does_not_reappear_after_a_crash() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    directory.create(TP, TOPIC_ID, topic_config(), 0).append_as_leader(batch(b"old"), leader_epoch=0, now_ms=0)
    again = open_directory(files.kill())
    recreated = again.create(TP, bytes(range(1, 17)), topic_config(), 0)
    assert recreated.log_end_offset == 0


def test_deleted_directories_are_removed_at_the_next_start() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    directory.create(TP, TOPIC_ID, topic_config(), 0)
    directory.delete(TP)
    files = files.kill()
    maintain(open_directory(files), 0)
    assert not [name for name in files.names(ROOT) if names.is_deleted_directory(name)]


def test_deleted_directories_are_removed_at_the_start_of_a_full_disk() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    for partition in (TP, TP._replace(partition=1)):
        directory.create(partition, TOPIC_ID, topic_config(), 0)
    directory.delete(TP)
    files = files.kill()

    def full(operation: str, path: Path) -> None:
        if operation == "write":
            raise OSError(errno.ENOSPC, "No space left on device")

    files.fault = full
    opened = open_directory(files)
    assert list(opened.logs) == [TP._replace(partition=1)]
    assert not [name for name in files.names(ROOT) if names.is_deleted_directory(name)]


def test_only_what_has_changed_is_synced_at_the_end() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    for number in range(2):
        log = directory.create(TP._replace(partition=number), TOPIC_ID, topic_config(), 0)
        log.append_as_leader(batch(b"first"), leader_epoch=0, now_ms=0)
    directory.close(0)
    again = open_directory(files)
    again.logs[TP].append_as_leader(batch(b"second"), leader_epoch=0, now_ms=0)
    touched: set[Path] = set()
    files.fault = lambda operation, path: touched.add(path)
    again.close(0)
    assert {path.parent for path in touched if ROOT in path.parents and path.parent != ROOT} == {ROOT / str(TP)}
    files.fault = None
    last = open_directory(files)
    assert last.was_clean
    assert values(last.logs[TP]) == [b"first", b"second"]
    assert values(last.logs[TP._replace(partition=1)]) == [b"first"]


def test_threads_sync_at_the_same_time_and_report_the_first_failure() -> None:
    both = threading.Barrier(2)
    ended: list[str] = []

    def fail() -> None:
        both.wait(60)
        raise OSError("it fails")

    def succeed() -> None:
        both.wait(60)
        ended.append("other")

    threads = Threads()
    with pytest.raises(OSError, match="it fails"):
        threads.run_all([fail, succeed])
    assert ended == ["other"]
    threads.close()


async def test_work_that_comes_after_the_close_is_left_to_the_next_start() -> None:
    threads = Threads()
    done: list[object] = []
    threads.run(lambda: 1, done.append)
    threads.close()
    threads.run(lambda: 2, done.append)
    await asyncio.sleep(0)
    assert done == [1]


def test_checkpoints_are_written_at_their_interval_and_after_a_roll() -> None:
    files = MemoryFiles()
    config = broker_config(log_flush_offset_checkpoint_interval_ms="1000")
    directory = open_directory(files, config)
    log = directory.create(TP, TOPIC_ID, topic_config({"segment.bytes": "200"}), 0)

    def points() -> dict[TopicPartition, int]:
        return parse_offsets(read_all(files, ROOT / names.RECOVERY_POINTS).decode())

    log.append_as_leader(batch(b"x"), leader_epoch=0, now_ms=0)
    log.set_high_watermark(1)
    maintain(directory, 999)
    assert not files.exists(ROOT / names.RECOVERY_POINTS)
    maintain(directory, 1000)
    assert points() == {TP: 1}
    assert parse_offsets(read_all(files, ROOT / names.HIGH_WATERMARKS).decode()) == {TP: 1}
    log.append_as_leader(batch(b"x" * 100), leader_epoch=0, now_ms=0)
    maintain(directory, 1001)
    assert points() == {TP: 1}
    log.append_as_leader(batch(b"x" * 100), leader_epoch=0, now_ms=0)  # rolls
    maintain(directory, 1002)
    assert points() == {TP: 2}


def test_corrupt_checkpoints_only_cost_a_scan() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    log = directory.create(TP, TOPIC_ID, topic_config(), 0)
    log.append_as_leader(batch(b"x"), leader_epoch=0, now_ms=0)
    directory.close(0)
    for name in (names.RECOVERY_POINTS, names.LOG_STARTS, names.HIGH_WATERMARKS, f"{TP}/{names.EPOCH_CHECKPOINT}"):
        replace_file(files, ROOT / name, b"\0garbage")
    replace_file(files, ROOT / str(TP) / names.PARTITION_METADATA, b"")
    files.remove(ROOT / names.CLEAN_SHUTDOWN)
    again = open_directory(files).logs[TP]
    assert (values(again), again.leader_epochs.entries(), again.topic_id) == ([b"x"], [(0, 0)], bytes(16))


def test_retention_runs_at_its_interval() -> None:
    files = MemoryFiles()
    directory = open_directory(files, broker_config(log_retention_check_interval_ms="1000"))
    log = directory.create(TP, TOPIC_ID, topic_config({"retention.ms": "10", "file.delete.delay.ms": "100"}), 0)
    log.append_as_leader(batch(b"x", timestamp=1), leader_epoch=0, now_ms=1)
    log.set_high_watermark(1)
    maintain(directory, 999)
    assert log.log_start_offset == 0
    maintain(directory, 1000)
    assert log.log_start_offset == 1
    assert any(name.endswith(names.DELETED) for name in files.names(ROOT / str(TP)))
    maintain(directory, 1100)
    assert not any(name.endswith(names.DELETED) for name in files.names(ROOT / str(TP)))


def test_nothing_stops_when_the_time_of_day_is_set_back() -> None:
    """Only the ages of records are compared with the time of day."""
    files = MemoryFiles()
    day = 86_400_000
    config = broker_config(log_retention_check_interval_ms="1000", log_flush_offset_checkpoint_interval_ms="1000")
    directory = open_directory(files, config, now_ms=2 * day)
    overrides = {"retention.bytes": "0", "flush.ms": "1000", "file.delete.delay.ms": "5000", "segment.ms": "60000"}
    log = directory.create(TP, TOPIC_ID, topic_config(overrides), 2 * day)
    started = clock.now

    def later(seconds: float) -> None:
        """So many seconds after the beginning; the time of day was set back by a day meanwhile."""
        clock.now = started + seconds
        directory.maintain(day + int(seconds * 1000))

    log.append_as_leader(batch(b"x", timestamp=-1), leader_epoch=0, now_ms=2 * day)
    later(1)
    assert log.recovery_point == 1  # flush.ms, and the checkpoint
    assert parse_offsets(read_all(files, ROOT / names.RECOVERY_POINTS).decode()) == {TP: 1}
    # The segment has been begun "tomorrow": its age counts from now on.
    for seconds in range(2, 64):
        later(seconds)
    assert log.segments.active.base_offset == 1
    log.set_high_watermark(1)
    later(64)
    assert log.log_start_offset == 1  # retention.bytes
    assert any(name.endswith(names.DELETED) for name in files.names(ROOT / str(TP)))
    directory.delete(TP)
    later(70)
    assert not [name for name in files.names(ROOT) if names.is_deleted_directory(name)]


def test_a_partition_whose_topic_id_was_lost_gets_it_again(tmp_path: Path) -> None:
    directory = open_real(tmp_path)
    directory.create(TP, TOPIC_ID, topic_config(), 0)
    directory.close(0)
    metadata = tmp_path / names.partition_directory(TP) / names.PARTITION_METADATA
    stored = metadata.read_bytes()
    metadata.unlink()
    again = open_real(tmp_path)
    assert again.create(TP, TOPIC_ID, topic_config(), 0).topic_id == TOPIC_ID
    again.close(0)
    assert metadata.read_bytes() == stored


def test_the_producer_ids_in_the_logs_are_known(tmp_path: Path) -> None:
    directory = open_real(tmp_path)
    assert list(directory.producer_ids) == []
    log = directory.create(TP, TOPIC_ID, topic_config(), 0)
    written = build_batch([(None, b"value", (), 0)], producer_id=41, producer_epoch=0, base_sequence=0)
    log.append_as_leader(written, leader_epoch=0, now_ms=0)
    assert list(directory.producer_ids) == [41]
    directory.close(0)


def test_the_marker_of_a_clean_shutdown_has_the_broker_epochs_since_which_nothing_was_lost() -> None:
    files = MemoryFiles()
    first = open_directory(files)
    assert first.intact == (-1, -1)
    first.intact = (3, 9)
    first.close(0)
    second = open_directory(files)
    assert second.intact == (3, 9)
    # It has the marker only while it is closed.
    assert open_directory(files.kill()).intact == (-1, -1)


@pytest.mark.parametrize(
    "marker", [b"", b"{}", b'{"version":0,"brokerEpoch":5}', b'{"firstBrokerEpoch":"1","brokerEpoch":5}']
)
def test_a_marker_without_broker_epochs_says_nothing_of_them(marker: bytes) -> None:
    assert parse_clean_shutdown(marker) == ((-1, -1), False)


def test_a_marker_of_an_earlier_version_has_no_checksum() -> None:
    assert parse_clean_shutdown(b'{"version":0,"brokerEpoch":9,"firstBrokerEpoch":3}') == ((3, 9), False)


@pytest.mark.parametrize("marker", [b"\xff", b"[]", b"5", b"{", b"\0" * 40])
def test_something_else_is_no_marker(marker: bytes) -> None:
    with pytest.raises(BadCheckpoint):
        parse_clean_shutdown(marker)


def test_a_flipped_bit_in_a_marker_changes_no_broker_epoch() -> None:
    """Otherwise a replica that has lost records might lead."""
    marker = format_clean_shutdown((3, 19))
    for bit in range(len(marker) * 8):
        flipped = bytearray(marker)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert parse_clean_shutdown(bytes(flipped)).intact in ((3, 19), (-1, -1))
        except BadCheckpoint:
            pass


def test_a_damaged_marker_costs_a_scan() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    log = directory.create(TP, TOPIC_ID, topic_config(), 0)
    log.append_as_leader(batch(b"x"), leader_epoch=0, now_ms=0)
    directory.intact = (3, 9)
    directory.close(0)
    replace_file(files, ROOT / names.CLEAN_SHUTDOWN, b"\0" * 60)
    again = open_directory(files)
    assert (again.was_clean, again.intact, values(again.logs[TP])) == (False, (-1, -1), [b"x"])
    assert not files.exists(ROOT / names.CLEAN_SHUTDOWN)
