"""Reading and checking log files without a broker."""

from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage import names
from barnabas_broker.storage.inspect import DumpedBatch, Problem, check, dump
from tests.broker.storage.support import ROOT, TP, close, open_directory
from tests.broker.storage.test_recovery import cut, filled, overwrite

PARTITION = ROOT / str(TP)


def test_a_valid_directory_has_no_problems() -> None:
    files = MemoryFiles()
    log = filled(files)
    close(log)
    report = check(ROOT, records=True, files=files)
    assert (report.problems, report.batches, report.size) == ([], 60, log.size)
    assert check(PARTITION, files=files).batches == 60


def test_a_dump_continues_after_a_corrupt_batch() -> None:
    files = MemoryFiles()
    log = filled(files, 8)
    path = log.segments.active.path(names.LOG)
    found = log.segments.active.locate(3, log.size)
    assert found is not None
    overwrite(files, path, found[0] + 70, b"\0\0\0")
    items = list(dump(path, files=files))
    assert [item.header.base_offset if isinstance(item, DumpedBatch) else item.position for item in items] == [
        0, 1, 2, found[0], 4, 5, 6, 7
    ]  # fmt: skip
    assert isinstance(items[0], DumpedBatch)
    assert [record.value for record in items[0].records()] == [b"value 0" * 5]
    problem = items[3]
    assert isinstance(problem, Problem)
    assert str(problem) == f"{path} at position {found[0]}, offset 3: wrong CRC"
    assert all(isinstance(item, DumpedBatch) for item in dump(path, verify=False, files=files))
    cut(files, path, log.size - 10)
    assert "cut off" in str(list(dump(path, files=files))[-1])


def test_every_kind_of_file_is_checked() -> None:
    files = MemoryFiles()
    log = filled(files)
    log.flush()
    log.disk.checkpoint_now()
    close(log)
    first, second = log.segments.items[:2]
    overwrite(files, first.path(names.INDEX), 3, b"\x01")
    overwrite(files, first.path(names.TIME_INDEX), 7, b"\x01")
    files.remove(second.path(names.INDEX))
    snapshot = next(name for name in files.names(PARTITION) if name.endswith(names.SNAPSHOT))
    broken = {PARTITION / snapshot, PARTITION / names.EPOCH_CHECKPOINT, PARTITION / names.PARTITION_METADATA,
              ROOT / names.RECOVERY_POINTS}  # fmt: skip
    for path in broken:
        overwrite(files, path, 0, b"\xff\xff\xff")
    report = check(ROOT, files=files)
    assert {problem.file for problem in report.problems} == broken | {
        first.path(names.INDEX), first.path(names.TIME_INDEX), first.path(names.CHECKSUMS), second.path(names.INDEX)
    }  # fmt: skip


def test_checksums_and_copies_are_checked() -> None:
    """Numbers that are possible, but are not those that were written."""
    files = MemoryFiles()
    log = filled(files)
    log.flush()
    log.disk.checkpoint_now()
    close(log)
    first = log.segments.items[0]
    assert not check(ROOT, files=files).problems
    cut(files, first.path(names.TIME_INDEX), 12)
    overwrite(files, ROOT / names.RECOVERY_POINTS, len(b"0\n1\nevents 0 "), b"1")
    report = check(ROOT, files=files)
    assert {problem.file for problem in report.problems} == {first.path(names.CHECKSUMS), ROOT / names.RECOVERY_POINTS}


def test_a_check_changes_nothing() -> None:
    files = MemoryFiles()
    filled(files)
    steps = files.steps
    check(ROOT, records=True, files=files)
    assert files.steps == steps
    open_directory(files.kill())
