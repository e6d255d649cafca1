"""Compaction: which records are kept, when it runs, and interruptions."""

import random
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.memory_files import Crash, MemoryFiles
from barnabas_broker.storage import Inline, Log, LogDirectory, TopicPartition, names
from barnabas_broker.storage.checkpoints import parse_compacted
from barnabas_broker.storage.cleaner import Throttle
from barnabas_broker.storage.inspect import check
from barnabas_broker.storage.slices import joined
from barnabas_protocol.records import iter_batches
from tests.broker.storage.support import (
    ROOT,
    TOPIC_ID,
    TP,
    batch,
    broker_config,
    clock,
    maintain,
    open_directory,
    read_records,
    topic_config,
)
from tests.broker.storage.test_flush import Queue
from tests.sampling import slow_except

SEED = random.SystemRandom().randrange(2**32)
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0"}
CONFIG = broker_config(log_index_interval_bytes="150")


def compacted(files: MemoryFiles, **overrides: str) -> tuple[LogDirectory, Log]:
    directory = open_directory(files, CONFIG)
    config = topic_config(COMPACT | {name.replace("_", "."): value for name, value in overrides.items()}, CONFIG)
    return directory, directory.create(TP, TOPIC_ID, config, 0)


def append(log: Log, *pairs: tuple[str, str | None], timestamp: int = 0, now_ms: int = 0) -> None:
    producer = (1, 0, log.log_end_offset)
    values = [None if value is None else value.encode() for _, value in pairs]
    log.append_as_leader(
        batch(*values, keys=[key.encode() for key, _ in pairs], timestamp=timestamp, producer=producer),
        leader_epoch=0,
        now_ms=now_ms,
    )
    log.set_high_watermark(log.log_end_offset)


def fill(log: Log, count: int, keys: int, rng: random.Random) -> None:
    for n in range(count):
        pairs: list[tuple[str, str | None]] = [
            (f"key {rng.randrange(keys)}", f"value {n}.{k}") for k in range(rng.randrange(1, 5))
        ]
        append(log, *pairs, timestamp=n)


def compact(directory: LogDirectory, now_ms: int = 10**6) -> bool:
    for log in directory.logs.values():
        log.flush()
    directory.checkpoint()
    return directory.compact(now_ms)


def state(log: Log) -> dict[bytes | None, bytes | None]:
    """The values of a consumer that has read everything."""
    return {record.key: record.value for record in read_records(log) if record.value is not None}


def everything(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_records(log)]


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "zstd", "snappy"])
def test_the_last_value_of_each_key_keeps_its_offset(codec: str) -> None:
    files = MemoryFiles()
    directory, log = compacted(files)
    for n in range(40):
        keys = [b"key %d" % ((n * 3 + k) % 17) for k in range(4)]
        log.append_as_leader(
            batch(*(b"%d" % (n * 4 + k) for k in range(4)), keys=keys, timestamp=n, compression=codec),
            leader_epoch=n // 10,
            now_ms=0,
        )
    log.set_high_watermark(log.log_end_offset)
    before, size = read_records(log), log.size
    active = log.segments.active.base_offset
    assert compact(directory)
    after = read_records(log)
    latest = {record.key: record.offset for record in before if record.offset < active}
    assert after == [r for r in before if r.offset >= active or latest[r.key] == r.offset]
    assert log.size < size / 2
    # Every offset can still be fetched: the next kept record is returned.
    for offset in range(log.log_end_offset):
        got = read_records(log, offset, 100)
        assert got[0].offset == min(record.offset for record in after if record.offset >= offset)
    assert check(ROOT, files=files).problems == []
    assert not directory.compact(10**6)
    again = open_directory(files.kill(), CONFIG).logs[TP]
    assert read_records(again) == after


def test_a_tombstone_is_kept_for_delete_retention_ms_after_the_first_cleaning() -> None:
    directory, log = compacted(MemoryFiles(), delete_retention_ms="1000", segment_bytes="200")
    append(log, ("a", "1"), ("b", "1"))
    append(log, ("a", None))
    for n in range(4):
        append(log, ("filler", f"{n}" * 100))
    assert compact(directory, 5000)
    assert (2, b"a", None) in everything(log)
    assert (0, b"a", b"1") not in everything(log)
    timestamps = {record.offset: record.timestamp for record in read_records(log)}
    assert timestamps[2] == 0  # though the batch now has the deadline in its head
    for now_ms, there in ((6000, True), (6001, False)):
        append(log, ("filler", "x" * 110))
        append(log, ("filler", "x" * 110))
        assert compact(directory, now_ms)
        assert ((2, b"a", None) in everything(log)) is there
    assert state(log)[b"b"] == b"1"


def test_the_last_batch_of_a_producer_is_kept_without_records() -> None:
    files = MemoryFiles()
    directory, log = compacted(files, segment_bytes="150")
    append(log, ("a", "1"))
    for n in range(4):
        log.append_as_leader(batch(b"%d" % n * 60, keys=[b"a"], producer=(2, 0, n)), leader_epoch=0, now_ms=0)
    log.set_high_watermark(log.log_end_offset)
    assert compact(directory)
    batches = [
        header
        for n in range(2)
        for header, _ in iter_batches(joined(log.read(n, 1000, log.log_end_offset, min_one=True)))
    ]
    assert (batches[0].base_offset, batches[0].count, batches[0].last_sequence) == (0, 0, 0)
    for name in files.names(ROOT / str(TP)):
        if name.endswith(names.SNAPSHOT):
            files.remove(ROOT / str(TP) / name)
    again = open_directory(files.kill(), CONFIG).logs[TP]
    assert {number: each.last_sequence for number, each in again.producers.states.items()} == {1: 0, 2: 3}


def test_what_is_not_cleanable_yet() -> None:
    rng = random.Random(1)
    directory, log = compacted(MemoryFiles())
    fill(log, 60, 10, rng)
    log.high_watermark = 30
    before = everything(log)
    assert compact(directory)
    assert [each for each in everything(log) if each[0] >= 30] == [each for each in before if each[0] >= 30]
    # Younger than min.compaction.lag.ms
    young, log = compacted(MemoryFiles(), min_compaction_lag_ms="1000")
    fill(log, 60, 10, rng)
    assert not compact(young, 900)
    assert compact(young, 5000)
    # Not dirty enough, until it is older than max.compaction.lag.ms
    clean, log = compacted(MemoryFiles(), min_cleanable_dirty_ratio="0.9", max_compaction_lag_ms="5000")
    fill(log, 60, 10, rng)
    assert compact(clean, 1)
    for n in range(12):
        append(log, (f"other {n}", "x" * 100), timestamp=100)
    assert not compact(clean, 5000)
    assert compact(clean, 5200)
    # Not compacted, or only the active segment
    other, log = compacted(MemoryFiles(), cleanup_policy="delete")
    fill(log, 60, 10, rng)
    assert not compact(other)
    small, log = compacted(MemoryFiles(), segment_bytes="100000")
    fill(log, 60, 10, rng)
    assert not compact(small)


def test_compact_and_delete() -> None:
    directory, log = compacted(MemoryFiles(), cleanup_policy="compact,delete", retention_ms="1000")
    fill(log, 60, 1000, random.Random(3))
    assert compact(directory)
    assert log.retain(10_000) > 0
    assert log.size == 0


def slow() -> tuple[MemoryFiles, Queue, LogDirectory, Log]:
    files, queue = MemoryFiles(), Queue()
    directory = LogDirectory.open(ROOT, CONFIG, node_id=1, now_ms=0, files=files, background=queue, now=clock)
    log = directory.create(TP, TOPIC_ID, topic_config(COMPACT, CONFIG), 0)
    fill(log, 60, 10, random.Random(2))
    log.flush()
    queue.close()
    directory.checkpoint()
    queue.close()
    return files, queue, directory, log


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize(
    "change",
    [
        lambda directory, log: log.truncate_fully_and_start_at(5000),
        lambda directory, log: log.truncate_to(20),
        lambda directory, log: directory.delete(TP),
    ],
)
def test_the_swap_is_dropped_when_the_log_changes_meanwhile(
    change: Callable[[LogDirectory, Log], None], steps: int
) -> None:
    files, queue, directory, log = slow()
    assert directory.compact(10**6)
    assert not directory.compact(10**6)  # one at a time
    for _ in range(steps):
        queue.step()
    change(directory, log)
    before = everything(log) if TP in directory.logs else []
    queue.close()
    assert directory.failure is None
    if TP in directory.logs:
        assert everything(log) == before
        assert not [n for n in files.names(log.path) if n.endswith((names.SWAP, names.CLEANED))]


def test_appends_and_reads_continue_during_compaction() -> None:
    _, queue, directory, log = slow()
    known = state(log)
    directory.compact(10**6)
    append(log, ("new", "1"))
    while queue.jobs:
        assert state(log) == known | {b"new": b"1"}
        queue.step()
    assert state(log) == known | {b"new": b"1"}


@pytest.mark.broad
@pytest.mark.parametrize("part", slow_except(range(4), 0))
def test_a_crash_at_any_step_of_compaction_loses_no_key(part: int) -> None:
    """In each part at every fourth step"""

    def compact_and_unlink(directory: LogDirectory) -> None:
        assert directory.compact(10**6)
        maintain(directory, 10**9)

    def prepared() -> tuple[MemoryFiles, LogDirectory, dict[bytes | None, bytes | None]]:
        files = MemoryFiles()
        directory, log = compacted(files)
        fill(log, 60, 10, random.Random(2))
        log.flush()
        directory.checkpoint()
        return files, directory, state(log)

    files, directory, _ = prepared()
    first = files.steps
    compact_and_unlink(directory)
    last = files.steps
    assert last - first > 20
    for step in range(first + 1 + part, last + 1, 4):
        files, directory, known = prepared()
        files.crash_at = step
        with pytest.raises(Crash):
            compact_and_unlink(directory)
        rng = random.Random(SEED + step)
        for after in (files.kill(), files.crash(rng, lose_all=True), files.crash(rng)):
            log = open_directory(after, CONFIG).logs[TP]
            assert state(log) == known, f"seed {SEED}, step {step}: {files.log[-1]}"
            offsets = [record.offset for record in read_records(log)]
            assert offsets == sorted(set(offsets))


def test_a_kill_soon_after_compaction_leaves_no_false_damage(log_lines: list[MutableMapping[str, Any]]) -> None:
    """Before the next checkpoint says what was compacted. The last batches of segments are gone, and no batch between
    others, so that the segments do not look compacted."""
    files = MemoryFiles()
    directory, log = compacted(files)
    for n in range(60):
        append(log, ("same" if n % 10 >= 5 else f"key {n}", f"value {n} {'x' * 40}"))
    known = state(log)
    assert compact(directory)
    assert log.size < 60 * 100
    offsets = [record.offset for record in read_records(log)]
    ends = [segment.base_offset - 1 for segment in log.segments.items[1:]]
    assert any(end not in offsets for end in ends), "the last record of a segment was removed"
    for after in (files.kill(), files.crash(random.Random(SEED))):
        again = open_directory(after, CONFIG).logs[TP]
        assert list(again.damage) == []
        assert state(again) == known
        assert check(directory.path, files=after).problems == []
    assert not any(line["event"] == "records are missing" for line in log_lines)


@pytest.mark.parametrize("content", [b"", b"x\n", b"-1\n", b"9" * 30, b"1" * 100_000, b"\xff"])
def test_a_damaged_note_of_compaction_is_ignored(content: bytes) -> None:
    assert parse_compacted(content) == 0


def test_a_corrupt_log_is_not_compacted() -> None:
    files, queue, directory, log = slow()
    handle = files.open(log.segments.items[1].path(names.LOG))
    files.write(handle, [b"\xff\xff"], 100)
    before = files.names(log.path)
    assert directory.compact(10**6)
    queue.close()
    assert directory.failure is None
    assert [name for name in before if name.endswith(names.LOG)] == [
        name for name in files.names(log.path) if name.endswith(names.LOG)
    ]


def test_the_throttle_limits_the_rate() -> None:
    now, waits = [0.0], []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    throttle = Throttle(1000.0, lambda: now[0], pause)
    for _ in range(10):
        throttle.spend(500)
    assert now[0] == pytest.approx(5.0)
    now[0] += 100
    throttle.spend(500)
    assert now[0] == pytest.approx(105.0)


def test_logs_are_cleaned_in_the_background_at_their_interval(tmp_path: Path) -> None:
    config = broker_config(log_cleaner_backoff_ms="1000", log_index_interval_bytes="150")
    clock.now = 0.0
    directory = LogDirectory.open(tmp_path, config, node_id=1, now_ms=0, background=Inline(), now=clock)
    logs = [directory.create(TopicPartition("t", n), TOPIC_ID, topic_config(COMPACT, config), 0) for n in range(2)]
    for log in logs:
        fill(log, 60, 10, random.Random(2))
        log.flush()
    directory.checkpoint()
    sizes = [log.size for log in logs]
    known = [state(log) for log in logs]
    maintain(directory, 999)
    assert [log.size for log in logs] == sizes
    maintain(directory, 1000)
    maintain(directory, 2000)
    assert all(log.size < size for log, size in zip(logs, sizes, strict=True))
    assert [state(log) for log in logs] == known
    directory.close(2000)
    assert check(tmp_path, records=True).problems == []


def test_markers_outlive_the_records_of_their_transactions() -> None:
    """As in Kafka: aborted records go first, their marker in the round after that gets a delete horizon, and goes when
    that has passed. A marker of a committed transaction stays as long as one of its batches does."""
    files = MemoryFiles()
    directory, log = compacted(files, delete_retention_ms="1000")

    def write(producer_id: int, key: str, *, commit: bool) -> None:
        producers = log.producers
        records = batch(b"v", keys=[key.encode()], producer=(producer_id, 0, 0), transactional=True)
        verification = producers.verify(producer_id, 0, 0, 0, "x", bumps_epoch=False)
        log.append_as_leader(records, leader_epoch=0, now_ms=0, verification=verification)
        log.append_marker(
            producer_id, 0, commit=commit, coordinator_epoch=0, transaction_version=1, leader_epoch=0, now_ms=0
        )
        log.set_high_watermark(log.log_end_offset)

    def left() -> list[tuple[int, bool, int]]:
        """First offset, whether it is a marker, and number of records of each batch of transactions."""
        found = []
        for segment in log.segments:
            parts = log.read(segment.base_offset, 1 << 20, log.log_end_offset, min_one=True) if segment.size else []
            for header, _ in iter_batches(joined(parts)):
                if header.is_transactional:
                    found.append((header.base_offset, header.is_control, header.count))
        return found

    write(1, "aborted", commit=False)
    write(2, "committed", commit=True)
    log.producers.expire(10**9, 1)  # otherwise the last batch of each producer would stay
    for now_ms, expected in (
        (10, [(1, True, 1), (2, False, 1), (3, True, 1)]),
        (20, [(1, True, 1), (2, False, 1), (3, True, 1)]),
        (500, [(1, True, 1), (2, False, 1), (3, True, 1)]),
        (5000, [(2, False, 1), (3, True, 1)]),
    ):
        append(log, (f"other {now_ms}", "v"))
        log.roll(now_ms)
        assert compact(directory, now_ms)
        assert left() == expected
    assert [each for segment in log.segments for each in segment.transactions.entries()] == []
    directory.close(0)
