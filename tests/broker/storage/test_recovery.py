"""Recovery after an unclean shutdown: what is checked, truncated and logged."""

import random
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage import Log, names
from barnabas_broker.storage.slices import joined
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.support import (
    ROOT,
    TOPIC_ID,
    TP,
    at_once,
    batch,
    broker_config,
    close,
    open_directory,
    topic_config,
    values,
)

PARTITION = ROOT / str(TP)
Lines = list[MutableMapping[str, Any]]


def filled(files: MemoryFiles, count: int = 60, **overrides: str) -> Log:
    log = open_directory(files).create(
        TP, TOPIC_ID, topic_config({"segment.bytes": "2000", "index.interval.bytes": "200"} | overrides), 0
    )
    for n in range(count):
        log.append_as_leader(
            batch(b"value %d" % n * 5, timestamp=n, producer=(1, 0, n)), leader_epoch=n // 25, now_ms=n
        )
    log.set_high_watermark(count)
    return log


def expected(count: int) -> list[bytes]:
    return [b"value %d" % n * 5 for n in range(count)]


def reopened(files: MemoryFiles) -> Log:
    return open_directory(files, broker_config(log_index_interval_bytes="200")).logs[TP]


def overwrite(files: MemoryFiles, path: Path, position: int, data: bytes) -> None:
    handle = files.open(path)
    files.write(handle, [data], position)
    files.close(handle)


def cut(files: MemoryFiles, path: Path, size: int) -> None:
    handle = files.open(path)
    files.truncate(handle, size)
    files.close(handle)


def reads_of(files: MemoryFiles) -> dict[str, int]:
    """Count the reads of each file from now on."""
    counts: dict[str, int] = {}

    def count(what: str, path: Path) -> None:
        if what == "read":
            counts[path.name] = counts.get(path.name, 0) + 1

    files.fault = count
    return counts


def test_a_tail_torn_at_any_byte_is_truncated(log_lines: Lines) -> None:
    files = MemoryFiles()
    log = filled(files, 4)
    sizes = [log.segments.active.locate(n, log.size) for n in range(4)]
    starts = [found[0] for found in sizes if found] + [log.size]
    for size in range(log.size + 1):
        after = files.kill()
        cut(after, PARTITION / names.offset_name(0, names.LOG), size)
        log_lines.clear()
        again = reopened(after)
        whole = sum(start <= size for start in starts) - 1
        assert values(again) == expected(whole)
        assert again.log_end_offset == whole
        torn = [line for line in log_lines if line["event"] == "damaged end of a log is set aside"]
        assert [(line["position"], line["offset"]) for line in torn] == (
            [] if size in starts else [(starts[whole], whole)]
        )
        state = again.producers.states.get(1)
        assert (state.last_sequence if state else -1) == whole - 1


def test_garbage_after_the_end_is_truncated() -> None:
    for garbage in (bytes(5000), random.Random(1).randbytes(5000), b"\xff" * 61):
        files = MemoryFiles()
        log = filled(files, 4)
        overwrite(files, PARTITION / names.offset_name(0, names.LOG), log.size, garbage)
        assert values(reopened(files.kill())) == expected(4)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_truncation_that_a_crash_has_undone_is_done_again(rebuilt: bool, log_lines: Lines) -> None:
    """The next segment begins where the log was truncated, and the batches behind that place are there again.

    The first of them has the offset that is expected there: no other one can be restored.
    """
    files = MemoryFiles()
    log = filled(files)
    first, second = log.segments.items[:2]
    undone = [batch(b"truncated", b"truncated", base_offset=second.base_offset + n, leader_epoch=0) for n in (0, 2)]
    overwrite(files, first.path(names.LOG), first.size, b"".join(undone))
    after = files.kill()
    if rebuilt:
        after.remove(first.path(names.INDEX))
    again = reopened(after)
    assert values(again) == expected(60)
    assert again.damage == []
    aside = [
        (line["position"], line["offset"]) for line in log_lines if line["event"] == "damaged end of a log is set aside"
    ]
    assert aside == [(first.size, second.base_offset)]


def test_records_before_the_recovery_point_are_not_read() -> None:
    files = MemoryFiles()
    log = filled(files)
    log.flush()
    log.disk.checkpoint_now()
    log.append_as_leader(batch(b"value 60" * 5, timestamp=60, producer=(1, 0, 60)), leader_epoch=2, now_ms=0)
    after = files.kill()
    counts = reads_of(after)
    again = reopened(after)
    closed = [names.offset_name(s.base_offset, names.LOG) for s in again.segments.items[:-1]]
    assert len(closed) > 2
    # Only the header of the first batch, for the age of the segment, and the batches after the last index entry.
    assert max(counts[name] for name in closed[:-1]) <= 5
    assert values(again) == expected(61)
    assert again.producers.states[1].last_sequence == 60
    assert again.leader_epochs.entries() == [(0, 0), (1, 25), (2, 50)]


def test_missing_or_corrupt_indexes_are_rebuilt() -> None:
    for damage in ("remove", "cut", "zeros"):
        for clean in (True, False):
            files = MemoryFiles()
            log = filled(files)
            before = [(s.index.content(), s.time_index.content()) for s in log.segments]
            if clean:
                log.disk.checkpoint_now()
                close(log)
                files.open(ROOT / names.CLEAN_SHUTDOWN, create=True)
            files = files.kill()
            for segment in log.segments:
                for suffix in (names.INDEX, names.TIME_INDEX):
                    path = segment.path(suffix)
                    if damage == "remove":
                        files.remove(path)
                    elif damage == "cut":
                        cut(files, path, 5)
                    else:
                        overwrite(files, path, 0, b"\xff" * 40)
                        cut(files, path, 40)
            again = reopened(files)
            after = [(s.index.content(), s.time_index.content()) for s in again.segments]
            assert [index for index, _ in after] == [index for index, _ in before]
            assert values(again) == expected(60)
            found = at_once(again.offset_for_timestamp(33))
            assert found is not None and found[:2] == (33, 33)


def damaged_in_the_middle(files: MemoryFiles, log: Log, offset: int) -> tuple[Path, int]:
    segment = log.segments.items[log.segments.floor(offset)]
    found = segment.locate(offset, segment.size)
    assert found is not None
    overwrite(files, segment.path(names.LOG), found[0] + 80, b"\0\0")
    return segment.path(names.LOG), found[0]


@pytest.mark.parametrize("known_to_be_on_the_disk", [True, False])
def test_a_corrupt_batch_in_a_closed_segment_is_logged_and_kept(
    known_to_be_on_the_disk: bool, log_lines: Lines
) -> None:
    files = MemoryFiles()
    log = filled(files)
    if known_to_be_on_the_disk:
        log.flush()
        log.disk.checkpoint_now()
    else:
        files.remove(ROOT / names.RECOVERY_POINTS)
    files = files.kill()
    path, position = damaged_in_the_middle(files, log, 20)
    again = reopened(files)
    assert again.log_end_offset == 60
    got = joined(again.read(18, 10_000, 60, min_one=True))
    assert b"value 19" in got
    assert b"value 21" not in got
    with pytest.raises(KafkaError) as caught:
        again.read(20, 10_000, 60, min_one=True)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert str(path) in str(caught.value)
    assert values(again, 21) == expected(60)[21:]
    assert [
        (line["file"], line["position"], line["offset"]) for line in log_lines if line["event"] == "log is damaged"
    ] == [(str(path), position, 20)]
    assert again.producers.states[1].last_sequence == 59


def test_synced_batches_are_not_truncated() -> None:
    files = MemoryFiles()
    log = filled(files, 10)
    log.flush()
    log.disk.checkpoint_now()
    files = files.kill()
    _, position = damaged_in_the_middle(files, log, 9)
    overwrite(files, log.segments.active.path(names.LOG), position + 8, b"\xff\xff\xff\xff")
    again = reopened(files)
    assert (again.log_end_offset, len(again.segments)) == (10, 2)
    assert b"value 8" in joined(again.read(0, 10_000, 10, min_one=True))
    with pytest.raises(KafkaError):
        again.read(9, 10_000, 10, min_one=True)
    assert again.append_as_leader(batch(b"next"), leader_epoch=3, now_ms=0).first_offset == 10
    assert values(again, 10) == [b"next"]


def test_producers_are_restored_from_the_snapshot_and_later_batches() -> None:
    files = MemoryFiles()
    log = filled(files, 60)
    assert len(log.segments) > 2
    for name in files.names(PARTITION):
        if name.endswith(names.SNAPSHOT):
            overwrite(files, PARTITION / name, 3, b"\xff")
    again = reopened(files.kill())
    assert again.producers.states[1].last_sequence == 59
    info = again.append_as_leader(batch(b"value 59" * 5, timestamp=59, producer=(1, 0, 59)), leader_epoch=2, now_ms=0)
    assert (info.duplicate, info.first_offset) == (True, 59)


def test_an_interrupted_swap_is_completed_or_undone() -> None:
    files = MemoryFiles()
    log = filled(files)
    base = log.segments.items[1].base_offset
    for kind in (names.LOG, names.INDEX, names.TIME_INDEX):
        path = log.segments.items[1].path(kind)
        files.rename(path, path.with_name(path.name + names.SWAP))
    # The segments that it replaces still exist.
    handle = files.open(names.offset_path(PARTITION, base, names.LOG), create=True)
    files.write(handle, [b"old"], 0)
    for name in (names.offset_name(7, names.LOG + names.DELETED), names.offset_name(9, names.INDEX)):
        files.open(PARTITION / name, create=True)
    assert values(reopened(files.kill())) == expected(60)
    undone = files.kill()
    handle = undone.open(names.offset_path(PARTITION, base, names.LOG), create=True)
    undone.open(names.offset_path(PARTITION, base, names.LOG + names.CLEANED), create=True)
    assert reopened(undone).log_end_offset >= base
    assert not [name for name in undone.names(PARTITION) if name.endswith((names.SWAP, names.CLEANED, names.DELETED))]


def test_a_log_that_ends_before_its_start_offset_is_emptied(log_lines: Lines) -> None:
    files = MemoryFiles()
    log = filled(files, 30)
    log.delete_records(29)
    log.disk.checkpoint_now()
    files = files.kill()
    for segment in log.segments.items[1:]:
        files.remove(segment.path(names.LOG))
    files.remove(ROOT / names.RECOVERY_POINTS)
    again = reopened(files)
    assert (again.log_start_offset, again.log_end_offset) == (29, 29)
    assert any("log ends before its start offset" in line["event"] for line in log_lines)
