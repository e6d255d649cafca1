"""One partition's log: append, read, look-ups, truncation, retention."""

import pytest

from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage import Log
from barnabas_broker.storage.slices import joined
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records import iter_batches
from tests.broker.storage.support import (
    TOPIC_ID,
    TP,
    at_once,
    batch,
    new_log,
    open_directory,
    read_records,
    topic_config,
    values,
)


def filled(batches: int = 60, *, files: MemoryFiles | None = None, **overrides: str) -> Log:
    """Batches of 1 to 4 records, `value n` at offset n and timestamp 10 n, over several segments."""
    given = {"segment.bytes": "1500", "index.interval.bytes": "200"}
    given |= {name.replace("_", "."): value for name, value in overrides.items()}
    log = new_log(files, given)
    for n in range(batches):
        first, count = log.log_end_offset, n % 4 + 1
        log.append_as_leader(
            batch(*(b"value %d" % (first + k) for k in range(count)), timestamp=first * 10, step=10),
            leader_epoch=n // 20,
            now_ms=first * 10,
        )
        log.set_high_watermark(log.log_end_offset)
    return log


def code_of(log: Log, offset: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        log.read(offset, 1000, log.log_end_offset, min_one=True)
    return caught.value.code


def test_offsets_are_consecutive() -> None:
    log = new_log()
    assert log.append_as_leader(batch(b"a", b"b"), leader_epoch=3, now_ms=0)[:2] == (0, 1)
    info = log.append_as_leader(batch(b"c"), leader_epoch=3, now_ms=0)
    assert (info.first_offset, info.last_offset, info.log_append_time, info.duplicate) == (2, 2, -1, False)
    assert [(r.offset, r.value) for r in read_records(log)] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    (header, _), _ = iter_batches(joined(log.read(0, 1000, 3, min_one=True)))
    assert header.leader_epoch == 3


@pytest.mark.parametrize("max_bytes", [1, 100, 150, 333, 1000, 10**9])
def test_a_consumer_gets_everything_once_and_in_order_at_any_size(max_bytes: int) -> None:
    log = filled()
    assert len(log.segments) > 3
    assert [r.offset for r in read_records(log, max_bytes=max_bytes)] == list(range(log.log_end_offset))
    for start in range(0, log.log_end_offset, 7):
        assert values(log, start, max_bytes)[0] == b"value %d" % start


def test_reads_end_at_max_bytes_unless_the_first_batch_is_larger() -> None:
    log = filled()
    for offset in range(log.log_end_offset):
        for max_bytes in (0, 70, 90, 200, 500):
            size = sum(map(len, log.read(offset, max_bytes, log.log_end_offset, min_one=False)))
            assert size <= max_bytes
            forced = joined(log.read(offset, max_bytes, log.log_end_offset, min_one=True))
            batches = list(iter_batches(forced))
            assert len(forced) <= max_bytes or len(batches) == 1
            assert batches[0][0].base_offset <= offset <= batches[0][0].last_offset


def test_nothing_is_read_past_the_high_watermark() -> None:
    log = filled()
    ends = [header.next_offset for n in range(log.log_end_offset) for header, _ in iter_batches(
        joined(log.read(n, 1, log.log_end_offset, min_one=True)))]  # fmt: skip
    for up_to in sorted(set(ends)):
        got = read_records(log, 0, 300, up_to)
        assert [record.offset for record in got] == list(range(up_to))
    assert log.read(10, 1000, 10, min_one=True) == []
    assert log.read(log.log_end_offset, 1000, log.log_end_offset, min_one=True) == []


def test_offsets_out_of_range() -> None:
    log = filled()
    assert code_of(log, log.log_end_offset + 1) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(log, -1) == ErrorCode.OFFSET_OUT_OF_RANGE
    log.delete_records(50)
    assert code_of(log, 49) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values(log)[0] == b"value 50"


def test_a_rejected_batch_changes_nothing() -> None:
    files = MemoryFiles()
    log = new_log(files)
    log.append_as_leader(batch(b"a", producer=(1, 0, 0)), leader_epoch=0, now_ms=0)
    before = files.steps
    broken = batch(b"b", producer=(1, 0, 1))
    broken[-1] ^= 1
    for refused in (broken, batch(b"b", producer=(1, 0, 9)), batch(b"a") + batch(b"b")):
        with pytest.raises(KafkaError):
            log.append_as_leader(refused, leader_epoch=7, now_ms=0)
    assert (log.log_end_offset, files.steps, log.leader_epochs.latest) == (1, before, 0)


def test_a_duplicate_is_answered_with_its_first_offsets() -> None:
    log = new_log()
    for n in range(5):
        log.append_as_leader(batch(b"x", b"y", producer=(9, 0, n * 2)), leader_epoch=0, now_ms=0)
    info = log.append_as_leader(batch(b"x", b"y", producer=(9, 0, 2)), leader_epoch=0, now_ms=0)
    assert (info.first_offset, info.last_offset, info.duplicate) == (2, 3, True)
    assert log.log_end_offset == 10


@pytest.mark.parametrize("segment_bytes", ["1000000", "200"])
@pytest.mark.parametrize("how", ["clean stop", "kill", "truncation"])
def test_duplicates_are_found_when_the_producers_are_loaded_again(how: str, segment_bytes: str) -> None:
    """A snapshot has the last batch of each producer only, and a client has up to five under way when brokers stop."""
    files, settings = MemoryFiles(), topic_config({"segment.bytes": segment_bytes})
    directory = open_directory(files)
    log = directory.create(TP, TOPIC_ID, settings, 0)
    for n in range(8):
        for producer in (7, 9):
            log.append_as_leader(batch(b"x", b"y", producer=(producer, 3, n * 2)), leader_epoch=0, now_ms=0)
    if how == "truncation":
        log.append_as_leader(batch(b"not replicated", producer=(9, 3, 16)), leader_epoch=0, now_ms=0)
        log.truncate_to(32)
    else:
        directory.close(0)
        if how == "kill":
            # The snapshot is that of the clean stop before.
            open_directory(files).create(TP, TOPIC_ID, settings, 0)
            files = files.kill()
        log = open_directory(files).create(TP, TOPIC_ID, settings, 0)
    for n in range(3, 8):
        for at, producer in enumerate((7, 9)):
            again = batch(b"x", b"y", producer=(producer, 3, n * 2))
            info = log.append_as_leader(again, leader_epoch=0, now_ms=0)
            assert (info.duplicate, info.first_offset) == (True, n * 4 + at * 2)
    assert log.log_end_offset == 32
    log.append_as_leader(batch(b"x", producer=(9, 3, 16)), leader_epoch=0, now_ms=0)


def test_log_append_time() -> None:
    log = new_log(None, {"message.timestamp.type": "LogAppendTime"})
    info = log.append_as_leader(batch(b"a", b"b", timestamp=5), leader_epoch=0, now_ms=777)
    assert info.log_append_time == 777
    assert {record.timestamp for record in read_records(log)} == {777}
    assert at_once(log.max_timestamp()) == (777, 0, 0)


def test_a_segment_is_rolled_by_size_by_time_and_when_its_index_is_full() -> None:
    assert max(segment.size for segment in filled().segments) <= 1500
    by_time = new_log(None, {"segment.ms": "1000"})
    for timestamp in (5000, 5900, 6000, 6001, 7001, 7002):
        by_time.append_as_leader(batch(b"x", timestamp=timestamp), leader_epoch=0, now_ms=timestamp)
    assert [segment.base_offset for segment in by_time.segments] == [0, 3, 5]
    by_index = filled(segment_bytes="1000000", segment_index_bytes="60")
    assert max(segment.index.count for segment in by_index.segments) <= 7
    assert values(by_index) == values(filled())


def test_a_batch_larger_than_a_segment_is_rejected() -> None:
    log = new_log(None, {"segment.bytes": "200"})
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(bytes(200)), leader_epoch=0, now_ms=0)
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_the_first_record_at_or_after_a_timestamp() -> None:
    log = filled()
    for timestamp in range(log.log_end_offset * 10 - 9):
        assert at_once(log.offset_for_timestamp(timestamp)) == (
            (found := (timestamp + 9) // 10) * 10, found, log.leader_epochs.epoch_for(found)
        )  # fmt: skip
    assert at_once(log.offset_for_timestamp(log.log_end_offset * 10)) is None
    assert at_once(log.max_timestamp()) == ((log.log_end_offset - 1) * 10, log.log_end_offset - 1, 2)
    log.delete_records(50)
    assert at_once(log.offset_for_timestamp(0)) == (500, 50, log.leader_epochs.epoch_for(50))
    assert at_once(new_log().max_timestamp()) is None


def test_timestamps_out_of_order() -> None:
    log = new_log(None, {"segment.bytes": "2000", "index.interval.bytes": "100"})
    times = [(n * 7919) % 1000 for n in range(200)]
    for timestamp in times:
        log.append_as_leader(batch(b"x", timestamp=timestamp), leader_epoch=0, now_ms=0)
    for asked in range(0, 1001, 13):
        expected = next(((t, n, 0) for n, t in enumerate(times) if t >= asked), None)
        assert at_once(log.offset_for_timestamp(asked)) == expected
    assert at_once(log.max_timestamp()) == (max(times), times.index(max(times)), 0)


def test_truncation_removes_records_epochs_and_sequences() -> None:
    files = MemoryFiles()
    log = open_directory(files).create(TP, TOPIC_ID, topic_config({"segment.bytes": "1500"}), 0)
    for n in range(60):
        log.append_as_leader(batch(b"value %d" % n, producer=(1, 0, n)), leader_epoch=n // 20, now_ms=0)
    log.set_high_watermark(60)
    for end in (59, 41, 40, 39, 5):
        log.truncate_to(end)
        assert (log.log_end_offset, log.high_watermark) == (end, end)
        assert values(log) == [b"value %d" % n for n in range(end)]
        assert log.leader_epochs.latest == (end - 1) // 20
        assert log.producers.states[1].last_sequence == end - 1
    log.append_as_leader(batch(b"other", producer=(1, 0, 5)), leader_epoch=9, now_ms=0)
    assert values(log)[-2:] == [b"value 4", b"other"]
    log.truncate_to(100)
    assert log.log_end_offset == 6
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset, log.producers.states) == (1000, 1000, {})
    log.append_as_leader(batch(b"far"), leader_epoch=9, now_ms=0)
    assert values(log) == [b"far"]


def test_a_follower_has_the_same_bytes_as_its_leader() -> None:
    leader, follower = filled(), new_log(None, {"segment.bytes": "1500"})
    while follower.log_end_offset < leader.log_end_offset:
        data = joined(leader.read(follower.log_end_offset, 700, leader.log_end_offset, min_one=True))
        follower.append_as_follower(data + data[:30])
    assert read_records(follower) == read_records(leader)
    assert follower.leader_epochs.entries() == leader.leader_epochs.entries()
    with pytest.raises(KafkaError):
        follower.append_as_follower(joined(leader.read(0, 700, 100, min_one=True)))


def test_epoch_end_offsets() -> None:
    log = filled()
    starts = dict(log.leader_epochs.entries())
    assert log.epoch_end_offset(0) == (0, starts[1])
    assert log.epoch_end_offset(2) == (2, log.log_end_offset)
    assert log.epoch_end_offset(3) == (-1, -1)


def test_retention_by_size_leaves_at_least_that_much() -> None:
    log = filled(retention_bytes="4000")
    segments = list(log.segments)
    removed = log.retain(0)
    assert removed > 0
    assert log.size >= 4000 > log.size - segments[removed].size
    assert log.log_start_offset == log.segments.first_offset == segments[removed].base_offset
    assert values(log)[0] == b"value %d" % log.log_start_offset


def test_retention_by_time_removes_the_active_segment_and_offsets_continue() -> None:
    log = filled(retention_ms="1000")
    end = log.log_end_offset
    newest = [segment.max_timestamp for segment in log.segments]
    assert log.retain(newest[1] + 1001) == 2
    assert log.log_start_offset == log.segments.first_offset
    assert log.retain(newest[-1] + 1001) == len(newest) - 2
    assert (log.log_start_offset, log.log_end_offset, log.size) == (end, end, 0)
    assert log.removal == (end, "retention.ms", newest[-1], 1000)
    assert log.retain(newest[-1] + 10**9) == 0
    assert log.append_as_leader(batch(b"x"), leader_epoch=2, now_ms=0).first_offset == end


def test_retention_keeps_unreplicated_records_and_compacted_logs() -> None:
    log = filled(retention_ms="1")
    log.high_watermark = 90
    log.retain(10**9)
    assert 0 < log.log_start_offset <= 90
    compacted = new_log(None, {"cleanup.policy": "compact", "retention.ms": "1", "segment.bytes": "200"})
    for n in range(5):
        compacted.append_as_leader(batch(b"x" * 60, keys=[b"k%d" % n]), leader_epoch=0, now_ms=0)
    compacted.set_high_watermark(5)
    assert compacted.retain(10**9) == 0
    compacted.delete_records(3)
    assert compacted.retain(10**9) > 0


def test_deleted_records() -> None:
    log = filled()
    log.high_watermark = 90
    for beyond in (91, -2):
        with pytest.raises(KafkaError) as caught:
            log.delete_records(beyond)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(40) == 40
    assert log.delete_records(30) == 40  # it never goes back
    assert log.retain(0) > 0
    assert log.segments.first_offset <= 40
    assert log.leader_epochs.entries()[0][1] == 40
    assert log.delete_records(-1) == 90
    assert values(log)[0] == b"value 90"


def test_an_idle_segment_is_rolled_by_the_clock() -> None:
    log = new_log(None, {"segment.ms": "1000"})
    log.roll_if_old(5000)
    assert len(log.segments) == 1  # empty
    log.append_as_leader(batch(b"x", timestamp=1), leader_epoch=0, now_ms=10)
    log.roll_if_old(1000)
    assert len(log.segments) == 1
    log.roll_if_old(1001)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_many_segments_are_read_with_few_open_files() -> None:
    log = filled(400, segment_bytes="200")
    assert len(log.segments) > 150
    assert len(values(log)) == log.log_end_offset
    assert sum(segment._file is not None for segment in log.segments) <= 130
