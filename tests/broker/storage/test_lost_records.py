"""What a log has lost is decided by what is on the disk, for each log, also after a clean stop."""

import pytest

from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage import Log, TopicPartition
from barnabas_broker.storage.checkpoints import (
    BadCheckpoint,
    format_lost_records,
    format_segments,
    parse_lost_records,
    parse_segments,
)
from barnabas_broker.storage.checksummed_file import copy_path
from barnabas_broker.storage.corruption import Damage
from barnabas_broker.storage.names import (
    CLEAN_SHUTDOWN,
    COPY,
    INDEXES,
    LOST_RECORDS,
    SEGMENTS,
    parse_offset_name,
)
from barnabas_protocol.records import build_batch
from tests.broker.storage.support import ROOT, TOPIC_ID, TP, broker_config, open_directory, topic_config

FOLDER = ROOT / "events-0"
CONFIG = broker_config(log_segment_bytes="300")
COMPACTED = {"cleanup.policy": "compact"}


def written(files: MemoryFiles, *, clean: bool = True, records: int = 20) -> MemoryFiles:
    """A disk with a log of some segments, after a clean stop or a kill."""
    directory = open_directory(files, CONFIG)
    log = directory.create(TP, TOPIC_ID, topic_config(config=CONFIG), 0)
    for _ in range(records):
        log.append_as_leader(build_batch([(b"key", b"value" * 10, (), 1000)]), leader_epoch=1, now_ms=0)
    log.set_high_watermark(records)
    directory.checkpoint()
    if not clean:
        return files.kill()
    directory.close(0)
    return files


def loaded(files: MemoryFiles) -> Log:
    return open_directory(files, CONFIG).logs[TP]


def bases(files: MemoryFiles) -> list[int]:
    parsed = (parse_offset_name(name) for name in files.names(FOLDER))
    return sorted(each[0] for each in parsed if each is not None and each[1] == ".log")


def lose(files: MemoryFiles, base: int, *, indexes: bool) -> None:
    for suffix in (".log", *(INDEXES if indexes else ())):
        files.lose(FOLDER / f"{base:020d}{suffix}")


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_with_all_of_its_files_has_lost_nothing(clean: bool) -> None:
    files = written(MemoryFiles(), clean=clean)
    log = loaded(files)
    assert (log.loss, log.log_end_offset) == (None, 20)
    assert not files.exists(FOLDER / LOST_RECORDS)


@pytest.mark.parametrize("indexes", [True, False])
@pytest.mark.parametrize("number", [0, 1, 3, -1])
def test_a_file_is_missing_after_a_clean_stop(number: int, indexes: bool) -> None:
    files = written(MemoryFiles())
    base = bases(files)[number]
    lose(files, base, indexes=indexes)
    loss = loaded(files).loss
    assert loss is not None and loss.offset == base
    assert loss.next_offset > base


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_file_is_shorter_after_a_clean_stop(number: int) -> None:
    files = written(MemoryFiles())
    base = bases(files)[number]
    path = FOLDER / f"{base:020d}.log"
    content = files.content(path)
    files.damage(path, content[: len(content) // 2])
    log = loaded(files)
    assert log.loss is not None
    assert base <= log.loss.offset < log.loss.next_offset <= 20
    assert log.unreadable is not None, "reads do not leave records out without an error"


def test_half_of_the_files_are_missing() -> None:
    files = written(MemoryFiles())
    known = bases(files)
    for base in known[: len(known) // 2]:
        lose(files, base, indexes=True)
    log = loaded(files)
    assert log.loss is not None and (log.loss.offset, log.log_end_offset) == (0, 20)


@pytest.mark.parametrize("clean", [True, False])
def test_all_files_are_missing(clean: bool) -> None:
    files = written(MemoryFiles(), clean=clean)
    for base in bases(files):
        lose(files, base, indexes=True)
    log = loaded(files)
    assert log.loss is not None and (log.loss.offset, log.loss.next_offset) == (0, 20)


def test_the_directory_is_missing() -> None:
    files = written(MemoryFiles())
    files.lose(FOLDER)
    directory = open_directory(files, CONFIG)
    assert directory.missing(TP) == Damage(0, 0, 0, 20, FOLDER, "the directory of the partition is missing")


@pytest.mark.parametrize("number", [0, 1])
def test_a_file_without_its_index_is_missing_after_a_kill(number: int) -> None:
    files = written(MemoryFiles(), clean=False)
    base = bases(files)[number]
    lose(files, base, indexes=False)
    loss = loaded(files).loss
    assert loss is not None and loss.offset == base


def test_gaps_are_lost_records_unless_compaction_may_have_left_them() -> None:
    files = written(MemoryFiles(), clean=False)
    base = bases(files)[1]
    lose(files, base, indexes=True)
    directory = open_directory(files.kill(), CONFIG)
    assert directory.create(TP, TOPIC_ID, topic_config(COMPACTED, CONFIG), 0).loss is None
    log = open_directory(files, CONFIG).create(TP, TOPIC_ID, topic_config(config=CONFIG), 0)
    assert log.loss is not None and log.loss.offset == base


def test_a_log_that_ends_before_its_high_watermark() -> None:
    files = written(MemoryFiles(), clean=False)
    for name in ("recovery-point-offset-checkpoint", "recovery-point-offset-checkpoint" + COPY):
        files.lose(ROOT / name)
    path = FOLDER / f"{bases(files)[-1]:020d}.log"
    content = files.content(path)
    files.damage(path, content[: len(content) // 2])
    loss = loaded(files).loss
    assert loss is not None and loss.next_offset == 20


def test_deleted_records_are_not_lost() -> None:
    files = MemoryFiles()
    written(files)
    directory = open_directory(files, CONFIG)
    log = directory.create(TP, TOPIC_ID, topic_config(config=CONFIG), 0)
    log.delete_records(11)
    assert log.retain(0) > 0
    directory.close(0)
    again = loaded(files)
    assert (again.loss, again.log_start_offset) == (None, 11)


def test_an_interrupted_compaction_is_no_loss() -> None:
    files = written(MemoryFiles())
    base = bases(files)[1]
    content = files.content(FOLDER / f"{base:020d}.log")
    handle = files.open(FOLDER / f"{base:020d}.log.swap", create=True)
    files.write(handle, [content[: len(content) // 2]], 0)
    files.close(handle)
    assert loaded(files).loss is None


@pytest.mark.parametrize("kept", [True, False])
def test_the_list_of_segments_has_a_copy_and_without_it_only_gaps_are_found(kept: bool) -> None:
    files = written(MemoryFiles())
    files.damage(ROOT / SEGMENTS, b"nothing")
    if not kept:
        files.damage(copy_path(ROOT / SEGMENTS), b"nothing")
    lose(files, 0, indexes=True)
    assert (loaded(files).loss is not None) is kept


def test_a_marker_of_another_version_says_nothing_about_segments() -> None:
    files = written(MemoryFiles())
    files.damage(ROOT / CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":1}')
    files.damage(ROOT / SEGMENTS, format_segments([(TP, 0, 10**6)]))
    assert loaded(files).loss is None


def test_the_mark_stays_until_the_log_is_whole() -> None:
    files = written(MemoryFiles())
    directory = open_directory(files, CONFIG)
    damage = Damage(7, 9, 4, 6, FOLDER / "x.log", "wrong CRC")
    log = directory.logs[TP]
    log.mark_lost(damage)
    log.mark_lost(damage._replace(offset=5))
    assert log.loss == damage
    directory.close(0)
    directory = open_directory(files, CONFIG)
    log = directory.logs[TP]
    assert log.loss == damage._replace(position=0, size=0)
    log.mark_lost()
    log.drop_lost()
    assert (log.log_end_offset, log.high_watermark, log.dropped) == (4, 4, True)
    directory.close(0)
    directory = open_directory(files, CONFIG)
    assert (directory.logs[TP].loss is not None, directory.logs[TP].dropped) == (True, True)
    assert not loaded(files.kill()).dropped, "a crash may have brought back what was removed"
    directory.logs[TP].made_whole()
    directory.close(0)
    assert loaded(files).loss is None


def test_everything_is_removed_when_the_first_record_is_lost() -> None:
    files = written(MemoryFiles())
    lose(files, 0, indexes=True)
    log = loaded(files)
    log.mark_lost()
    log.drop_lost()
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)


def test_a_damaged_mark_counts_from_the_first_offset_on() -> None:
    damage = Damage(0, 0, 7, 9, FOLDER / "x.log", "why")
    for dropped in (True, False):
        data = format_lost_records(damage, dropped=dropped)
        assert parse_lost_records(data, FOLDER) == (damage, dropped)
    for bad in (b"", data[:-1], bytes([data[0] ^ 1, *data[1:]]), data[:20] + bytes([data[20] ^ 4]) + data[21:]):
        found = parse_lost_records(bad, FOLDER)
        assert (found.damage.offset, found.dropped) == (0, False)


def test_the_list_of_segments() -> None:
    other = TopicPartition("other", 1)
    listed = [(TP, 0, 100), (TP, 7, 3), (other, 5, 0)]
    assert parse_segments(format_segments(listed).decode()) == {TP: {0: 100, 7: 3}, other: {5: 0}}
    with pytest.raises(BadCheckpoint):
        parse_segments("0\n1\nevents 0 1\n")
