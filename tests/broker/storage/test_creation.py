"""What a new partition costs, and that a power failure at any step of its creation loses nothing."""

import random

import pytest

from barnabas_broker.memory_files import Crash, MemoryFiles
from barnabas_broker.storage import Log, LogDirectory, TopicPartition, names
from barnabas_broker.storage.inspect import check
from tests.broker.storage.support import (
    ROOT,
    TOPIC_ID,
    TP,
    batch,
    maintain,
    open_directory,
    topic_config,
    values,
)

PARTITION = ROOT / names.partition_directory(TP)
OTHER_ID = bytes(range(1, 17))


def created(files: MemoryFiles, count: int = 1) -> tuple[LogDirectory, list[Log]]:
    directory = open_directory(files)
    config = topic_config()
    return directory, [directory.create(TopicPartition("t", number), TOPIC_ID, config, 0) for number in range(count)]


def steps(files: MemoryFiles, since: int) -> list[str]:
    return [line.split(" ", 1)[1] for line in files.log[since:]]


def append(log: Log, value: bytes = b"x") -> int:
    return log.append_as_leader(batch(value), leader_epoch=0, now_ms=0).last_offset


def test_a_new_partition_costs_a_directory_and_two_files_and_no_sync() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    before = len(files.log)
    directory.create(TP, TOPIC_ID, topic_config(), 0)
    segment = names.offset_name(0, names.LOG)
    assert steps(files, before) == [
        "mkdir events-0",
        f"create {segment}",
        f"create {names.PARTITION_METADATA}",
        f"write {files.size(files.open(PARTITION / names.PARTITION_METADATA))} at 0 {names.PARTITION_METADATA}",
    ]


def test_partitions_without_records_cost_nothing_in_maintenance_and_at_the_end() -> None:
    files = MemoryFiles()
    directory, logs = created(files, 100)
    for log in logs:
        log.leader_epochs.assign(0, 0)
    maintain(directory, 10**9)  # everything is due
    before = len(files.log)
    directory.close(10**9)
    assert not [line for line in files.log if "/t-" in line or "leader-epoch" in line]
    assert len(files.log) - before < 50
    again = open_directory(files.kill())
    assert again.was_clean
    assert {log.topic_id for log in again.logs.values()} == {TOPIC_ID}
    assert [log.log_end_offset for log in again.logs.values()] == [0] * 100


def test_partitions_are_loaded_again_without_a_warning(log_lines: list[dict[str, object]]) -> None:
    files = MemoryFiles()
    created(files, 3)
    again = open_directory(files.kill())
    assert [line["event"] for line in log_lines if line["log_level"] != "info"] == []
    for log in again.logs.values():
        append(log)
        assert values(log) == [b"x"]
    assert check(ROOT, files=files).problems == []


def test_the_first_record_syncs_the_directory_and_the_topic_id_but_no_records() -> None:
    files = MemoryFiles()
    _, (log,) = created(files)
    append(log)
    after = files.crash(random.Random(1), lose_all=True)
    path = ROOT / "t-0"
    assert after.exists(path / names.offset_name(0, names.LOG))
    assert after.size(after.open(path / names.offset_name(0, names.LOG))) == 0
    again = open_directory(after)
    assert (again.logs[TopicPartition("t", 0)].topic_id, log.flusher.synced) == (TOPIC_ID, 0)


def test_a_power_failure_at_any_step_leaves_a_partition_that_works() -> None:
    """Creation, first record, flush: a crash at each of their steps, and the next start has a whole partition."""
    total = None
    at = 1
    while total is None or at <= total:
        rng = random.Random(at)
        files = MemoryFiles()
        directory = open_directory(files)
        begun = files.steps
        files.crash_at = None if total is None else begun + at
        acknowledged = -1
        try:
            log = directory.create(TP, TOPIC_ID, topic_config({"flush.messages": "2"}), 0)
            append(log, b"first")
            offset = append(log, b"second")
            assert log.durable(offset) is None  # background work is done at once here
            acknowledged = offset
            log.flush()
        except Crash:
            pass
        else:
            assert total is None
            total = files.steps - begun
            continue
        after = files.crash(rng, lose_all=at % 2 == 0)
        again = open_directory(after)
        log = again.create(TP, TOPIC_ID, topic_config(), 0)
        assert log.log_end_offset > acknowledged
        assert values(log) == [b"first", b"second"][: log.log_end_offset]
        assert log.topic_id == TOPIC_ID and log.damage == []
        append(log, b"later")
        again.close(0)
        # What recovery has cut off stays beside the log.
        assert [each for each in check(ROOT, files=after).problems if not each.file.name.endswith(names.DAMAGED)] == []
        at += 1
    assert at > 15


def test_records_do_not_outlive_the_id_of_their_topic() -> None:
    """After a power failure the records of a deleted topic never are in a new topic of that name."""
    for seed in range(300):
        rng = random.Random(seed)
        files = MemoryFiles()
        directory = open_directory(files)
        log = directory.create(TP, TOPIC_ID, topic_config(), 0)
        append(log, b"of the deleted topic")
        files.crash_at = files.steps + 1  # at the rename of its directory
        with pytest.raises(Crash):
            directory.delete(TP)
        after = files.crash(rng)
        again = open_directory(after).create(TP, OTHER_ID, topic_config(), 0)
        assert values(again) == []


def test_an_empty_file_that_a_power_failure_left_is_no_damage(log_lines: list[dict[str, object]]) -> None:
    files = MemoryFiles()
    created(files)
    files.truncate(files.open(ROOT / "t-0" / names.PARTITION_METADATA), 0)
    after = files.kill()
    again = open_directory(after)
    again.create(TopicPartition("t", 0), TOPIC_ID, topic_config(), 0)
    again.close(0)
    assert open_directory(after).logs[TopicPartition("t", 0)].topic_id == TOPIC_ID
    assert [line["event"] for line in log_lines if line["log_level"] != "info"] == []
