"""Truncation: what is left agrees with the state of producers, and what a crash leaves has no gap."""

import random

import pytest

from barnabas_broker.memory_files import Crash, MemoryFiles
from barnabas_broker.storage import Log
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.support import (
    TOPIC_ID,
    TP,
    batch,
    broker_config,
    new_log,
    open_directory,
    read_records,
    topic_config,
    values,
)

PRODUCER = 8
CONFIG = broker_config()


def append(log: Log, *records: bytes, sequence: int) -> None:
    log.append_as_leader(batch(*records, producer=(PRODUCER, 0, sequence)), leader_epoch=0, now_ms=0)
    log.set_high_watermark(log.log_end_offset)


def last_sequence(log: Log) -> int | None:
    state = log.producers.states.get(PRODUCER)
    return None if state is None else state.last_sequence


def opened(files: MemoryFiles, flush_messages: int = 1) -> Log:
    directory = open_directory(files, CONFIG)
    return directory.create(TP, TOPIC_ID, topic_config({"flush.messages": str(flush_messages)}, CONFIG), 0)


def test_a_producer_is_known_by_the_batch_that_holds_the_log_start_offset() -> None:
    log = new_log()
    append(log, b"a", b"b", b"c", b"d", sequence=0)
    append(log, b"e", sequence=4)
    log.delete_records(1)
    log.truncate_to(4)
    assert last_sequence(log) == 3


def test_a_snapshot_of_removed_records_is_not_used_after_a_crash() -> None:
    files = MemoryFiles()
    directory = open_directory(files, CONFIG)
    log = directory.create(TP, TOPIC_ID, topic_config({"flush.messages": "1"}, CONFIG), 0)
    append(log, b"a", sequence=0)
    directory.close(0)
    log = opened(files)
    log.truncate_to(0)
    append(log, b"b", b"c", sequence=0)
    log.flush()
    log.flusher.advance()
    log.disk.checkpoint_now()
    log = opened(files.crash(random.Random(0), lose_all=True))
    assert (values(log), last_sequence(log)) == ([b"b", b"c"], 1)


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_a_cut_at_or_before_the_log_start_offset_leaves_an_empty_log(offset: int) -> None:
    files = MemoryFiles()
    log = opened(files)
    append(log, b"a", b"b", b"c", b"d", sequence=0)
    log.delete_records(2)
    log.disk.checkpoint_now()
    log.truncate_to(offset)
    # Offset 3 is in the batch that holds the log start offset, which goes as a whole.
    at = offset if offset <= 2 else 0
    assert (log.log_start_offset, log.log_end_offset) == (at, at)
    # Acknowledged after the cut: they survive, though the log start offset was larger before.
    append(log, b"x", b"y", sequence=0)
    log = opened(files.crash(random.Random(0), lose_all=True))
    assert (log.log_start_offset, values(log)) == (at, [b"x", b"y"])


def test_a_crash_during_a_cut_leaves_no_gap() -> None:
    def run(files: MemoryFiles) -> None:
        log = opened(files, flush_messages=1_000_000)
        for n in range(6):
            append(log, b"%d" % (2 * n), b"%d" % (2 * n + 1), sequence=2 * n)
            if n % 2:
                log.roll(0)
        log.flush()
        before.append(files.steps)
        log.truncate_to(3)

    before: list[int] = []
    files = MemoryFiles()
    run(files)
    for step in range(before[0] + 1, files.steps + 1):
        for seed in range(8):
            files = MemoryFiles()
            files.crash_at = step
            with pytest.raises(Crash):
                run(files)
            log = opened(files.crash(random.Random(seed)))
            assert log.damage == []
            got = [(record.offset, record.value) for record in read_records(log)]
            assert got == [(n, b"%d" % n) for n in range(log.log_end_offset)]
            assert log.log_end_offset >= 2


def test_the_start_of_an_empty_replica_may_be_inside_a_batch_of_the_leader() -> None:
    leader, follower = new_log(), new_log()
    append(leader, b"a", b"b", b"c", b"d", sequence=0)
    leader.delete_records(2)
    follower.truncate_fully_and_start_at(2)
    (part,) = leader.read(2, 1000, 4, min_one=True)
    assert isinstance(part, memoryview)
    follower.append_as_follower(part)
    assert (follower.log_start_offset, follower.log_end_offset) == (2, 4)
    assert (values(follower), last_sequence(follower)) == ([b"c", b"d"], 3)
    # A log with records does not go back.
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(part)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_deleted_records_do_not_come_back_with_a_segment_that_retention_has_removed() -> None:
    files = MemoryFiles()
    directory = open_directory(files, CONFIG)
    log = directory.create(TP, TOPIC_ID, topic_config({"flush.messages": "1"}, CONFIG), 0)
    append(log, b"a", b"b", sequence=0)
    log.roll(0)
    append(log, b"c", sequence=2)
    log.delete_records(2)
    log.retain(0)
    assert log.segments.first_offset == 2
    directory.checkpoint()
    log = opened(files.crash(random.Random(0), lose_all=True))
    assert (log.log_start_offset, values(log)) == (2, [b"c"])
