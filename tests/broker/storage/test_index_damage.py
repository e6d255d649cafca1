"""Damage to the files beside the logs: nothing is removed too early, and every look-up answers as before.

Indexes of times and of aborted transactions have a file with their checksums; a damaged one is built again.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas_broker.files import read_all, replace_file
from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.steps import finish
from barnabas_broker.storage import Log, names
from barnabas_broker.storage.checksummed_file import copy_path, with_copy
from barnabas_broker.storage.retention import expired
from tests.broker.storage.support import (
    ROOT,
    TOPIC_ID,
    TP,
    at_once,
    batch,
    broker_config,
    open_directory,
    topic_config,
)
from tests.broker.storage.test_recovery import PARTITION, Lines, cut, overwrite
from tests.sampling import slow, slow_except

pytestmark = pytest.mark.broad

OVERRIDES: Final = {"segment.bytes": "2000", "index.interval.bytes": "200", "retention.ms": "300"}
CONFIG: Final = broker_config(log_index_interval_bytes="200", log_segment_bytes="2000", log_retention_ms="300")
SEED: Final = random.SystemRandom().randrange(2**32)
BATCHES: Final = 90
#: The largest timestamps are near this one.
LATEST: Final = 1000


def written(*, clean: bool) -> MemoryFiles:
    """A log of some segments: times that go up and down, and transactions of which every other one is aborted."""
    chance, files = random.Random(7), MemoryFiles()
    directory = open_directory(files, CONFIG)
    log = directory.create(TP, TOPIC_ID, topic_config(OVERRIDES, CONFIG), 0)
    sequences = [0, 0, 0, 0]
    for n in range(BATCHES):
        producer = chance.randrange(4)
        if producer and sequences[producer] and chance.random() < 0.4:
            log.append_marker(
                producer,
                0,
                commit=chance.random() < 0.5,
                coordinator_epoch=0,
                transaction_version=0,
                leader_epoch=n // 20,
                now_ms=n * 10,
            )
        records = batch(
            b"value %d" % n * 6,
            timestamp=max(LATEST * n // BATCHES - chance.choice((0, 0, 1, 150)), 0),
            producer=(producer, 0, sequences[producer]),
            transactional=producer > 0,
            base_offset=log.log_end_offset,
            leader_epoch=n // 20,
        )
        sequences[producer] += 1
        log.append_as_follower(records, now_ms=n)
    log.set_high_watermark(log.log_end_offset)
    if clean:
        directory.close(0)
    else:
        log.flush()
        log.disk.checkpoint_now()
    return files.kill()


def opened(files: MemoryFiles) -> Log:
    log = open_directory(files, CONFIG).logs[TP]
    log.configure(topic_config(OVERRIDES, CONFIG))
    log.set_high_watermark(log.log_end_offset)
    return log


def facts(log: Log) -> dict[str, Any]:
    """What the indexes and the checkpoints decide."""
    aborted = []
    for start in range(0, log.log_end_offset, 7):
        try:
            aborted.append(list(finish(log.read_committed(start, 100_000, min_one=True))[1]))
        except StopIteration:
            aborted.append([])
    return {
        "times": [at_once(log.offset_for_timestamp(time)) for time in range(0, LATEST + 50, 3)],
        "latest": at_once(log.max_timestamp()),
        "aborted": aborted,
        "expired": [
            expired(
                log.segments.items, log.settings, log.log_start_offset, log.log_end_offset, log.high_watermark, now
            ).number
            for now in range(0, 2 * LATEST, 10)
        ],
        "offsets": (log.log_start_offset, log.log_end_offset),
        "epochs": log.leader_epochs.entries(),
        "producers": {number: state.last_sequence for number, state in log.producers.states.items()},
    }


def damages(data: bytes, entry: int, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """Each kind of damage to a file of entries of this size."""
    for at in range(len(data)):
        yield f"a bit flipped at {at}", data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    for size in range(0, len(data), entry):
        yield f"cut to {size}", data[:size]
        yield f"without the entry at {size}", data[:size] + data[size + entry :]
        yield f"zeros over the entry at {size}", data[:size] + bytes(entry) + data[size + entry :]
    yield "zeros behind it", data + bytes(2 * entry)
    yield "the last entry twice", data + data[-entry:]


@pytest.mark.parametrize(
    ("suffix", "entry", "clean"),
    [
        slow((names.TIME_INDEX, 12, True)),
        slow((names.TIME_INDEX, 12, False)),
        slow((names.TXN_INDEX, 34, True)),
        (names.TXN_INDEX, 34, False),
        (names.INDEX, 8, True),
        slow((names.INDEX, 8, False)),
    ],
)
def test_a_damaged_index_changes_no_answer(suffix: str, entry: int, clean: bool, log_lines: Lines) -> None:
    chance = random.Random(SEED)
    files = written(clean=clean)
    known = facts(opened(files.kill()))
    assert any(known["aborted"])
    assert len(set(known["expired"])) > 5
    paths = [PARTITION / name for name in files.names(PARTITION) if name.endswith(suffix)]
    assert len(paths) > 3
    for path in paths:
        data = read_all(files, path)
        for what, content in damages(data, entry, chance):
            if chance.random() < 0.93:
                continue  # each run tries others
            damaged = files.kill()
            cut(damaged, path, 0)
            overwrite(damaged, path, 0, content)
            log_lines.clear()
            assert facts(opened(damaged)) == known, f"seed {SEED}: {path.name}, {what}"
            # What was rebuilt is on the disk, and sound.
            log_lines.clear()
            assert facts(opened(damaged.kill())) == known, f"seed {SEED}: {path.name}, {what}"
        damaged = files.kill()
        damaged.remove(path)
        assert facts(opened(damaged)) == known, f"{path.name} removed"


# Checkpoints

CHECKPOINTS: Final = [
    *(ROOT / name for name in (names.RECOVERY_POINTS, names.LOG_STARTS, names.HIGH_WATERMARKS, names.CLEANER_OFFSETS)),
    PARTITION / names.EPOCH_CHECKPOINT,
]


def checkpointed(*, clean: bool) -> MemoryFiles:
    """As :func:`written`, with a log start offset inside a segment, and more records after the recovery point."""
    files = written(clean=True)
    directory = open_directory(files, CONFIG)
    log = directory.logs[TP]
    log.set_high_watermark(log.log_end_offset)
    log.delete_records(40)
    if clean:
        directory.close(0)
    else:
        directory.checkpoint()
        log.append_as_follower(batch(b"last", base_offset=log.log_end_offset, leader_epoch=9))
    return files.kill()


def state(files: MemoryFiles) -> tuple[Any, ...]:
    log = open_directory(files, CONFIG).logs[TP]
    return log.log_start_offset, log.log_end_offset, log.high_watermark, log.leader_epochs.entries(), log.damage


#: In each part, every seventh bit is flipped: of each byte another one.
PARTS: Final = slow_except(range(7), 0)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("clean", [True, slow(False)])
@pytest.mark.parametrize("path", CHECKPOINTS, ids=lambda path: path.name)
def test_a_damaged_checkpoint_changes_nothing(path: Path, clean: bool, part: int, log_lines: Lines) -> None:
    files = checkpointed(clean=clean)
    known = state(files.kill())
    assert known[0] == 40
    assert len(known[3]) > 2
    for target in (path, copy_path(path)):
        data = read_all(files, target)
        removed, cuts = len(data) * 8, range(len(data) * 8 + 1, len(data) * 9 + 1)
        for bit in (*range(part, removed, len(PARTS)), removed, *cuts[part :: len(PARTS)]):
            damaged = files.kill()
            if bit < len(data) * 8:
                flipped = data[bit // 8] ^ 1 << bit % 8
                overwrite(damaged, target, bit // 8, bytes([flipped]))
            elif bit > len(data) * 8:
                cut(damaged, target, bit - len(data) * 8 - 1)
            else:
                damaged.remove(target)
            log_lines.clear()
            assert state(damaged) == known, f"{target.name}, damage {bit}"
            removed_copy = target != path and bit == len(data) * 8
            assert removed_copy or any(line["log_level"] == "error" for line in log_lines)


def test_a_checkpoint_and_its_copy_are_damaged() -> None:
    """The epochs are those of the batches; the rest costs a scan."""
    files = checkpointed(clean=True)
    before = state(files.kill())
    for path in CHECKPOINTS:
        for target in (path, copy_path(path)):
            cut(files, target, 0)
            overwrite(files, target, 0, b"garbage")
    start, end, _, epochs, damage = state(files)
    assert (end, damage) == (before[1], [])
    assert [epoch for epoch in epochs if epoch[1] > 40] == [epoch for epoch in before[3] if epoch[1] > 40]
    assert start <= 40


def test_copies_do_not_count_after_apache_kafka() -> None:
    """Its marker of a clean shutdown has no checksum: its checkpoints are newer than the copies."""
    files = checkpointed(clean=True)
    for content in (b"", b'{"version":0,"brokerEpoch":5}'):
        replace_file(files, ROOT / names.CLEAN_SHUTDOWN, content)
        replace_file(files, ROOT / names.LOG_STARTS, b"0\n1\nevents 0 50\n")
        assert state(files.kill())[0] == 50


def test_a_kill_between_a_copy_and_its_file() -> None:
    files = checkpointed(clean=False)
    copy, target = with_copy(ROOT / names.LOG_STARTS, b"0\n1\nevents 0 50\n")
    replace_file(files, *copy)
    assert state(files)[0] == 50
    assert target[0] == ROOT / names.LOG_STARTS
