"""Damage to the files of a log: all records whose bytes are whole can be read afterwards, at their offsets."""

import errno
import random
import struct
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.memory_files import Crash, MemoryFiles
from barnabas_broker.storage import Log, names
from barnabas_broker.storage.cleaner import Throttle, clean, plan
from barnabas_broker.storage.corruption import Damage, DamagedLog
from barnabas_broker.storage.inspect import check
from barnabas_broker.storage.settings import LogSettings
from barnabas_broker.storage.slices import joined
from barnabas_broker.storage.time_budget import Allowance
from barnabas_broker.storage.validate import check_produced
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records import decode_records, iter_batches
from tests.broker.storage.support import (
    ROOT,
    TOPIC_ID,
    TP,
    batch,
    broker_config,
    close,
    new_log,
    open_directory,
    topic_config,
)
from tests.broker.storage.test_recovery import PARTITION, cut, expected, filled, overwrite, reopened
from tests.lots import in_lots
from tests.sampling import slow_but_each

Lines = list[MutableMapping[str, Any]]
SEED = random.SystemRandom().randrange(2**32)


def read_past_damage(log: Log, max_bytes: int = 500) -> tuple[dict[int, bytes | None], set[int]]:
    """The values by offset, and the offsets that answer CORRUPT_MESSAGE."""
    found: dict[int, bytes | None] = {}
    lost: set[int] = set()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            parts = log.read(offset, max_bytes, log.log_end_offset, min_one=True)
        except DamagedLog as error:
            lost.update(range(offset, error.damage.next_offset))
            offset = error.damage.next_offset
            continue
        if not parts:
            break
        for header, data in iter_batches(joined(parts)):
            found.update((record.offset, record.value) for record in decode_records(data))
            offset = header.next_offset
    return found, lost


def position_of(log: Log, offset: int) -> tuple[Path, int, int]:
    """The file, position and size of the batch that holds an offset."""
    segment = log.segments.items[log.segments.floor(offset)]
    found = segment.locate(offset, segment.size)
    assert found is not None
    return segment.path(names.LOG), found[0], found[1].size


# One definition of a sound batch


@settings(max_examples=400)
@given(
    attributes=st.integers(-(2**15), 2**15 - 1),
    count=st.one_of(st.integers(-1, 4), st.integers(-(2**31), 2**31 - 1)),
    delta=st.one_of(st.integers(-1, 4), st.integers(-(2**31), 2**31 - 1)),
    flip=st.one_of(st.none(), st.integers(61, 75)),
    compression=st.sampled_from(["none", "lz4"]),
)
def test_what_produce_accepts_is_sound_everywhere(
    attributes: int, count: int, delta: int, flip: int | None, compression: str
) -> None:
    """Followers, recovery, the reader and the cleaner keep it."""
    mutated = batch(b"one", b"two", timestamp=1000, compression=compression, keys=[b"a", b"b"])
    struct.pack_into(">hi", mutated, 21, attributes, delta)
    struct.pack_into(">i", mutated, 57, count)
    if flip is not None:
        mutated[flip] ^= 0x55
    struct.pack_into(">I", mutated, 17, crc32c(memoryview(mutated)[21:]))
    try:
        check_produced(memoryview(mutated), LogSettings.of(topic_config()), 1000, Allowance(lambda: 0.0))
    except KafkaError:
        return
    files = MemoryFiles()
    log = new_log(files)
    for each in (batch(b"before", keys=[b"c"]), mutated, batch(b"after", keys=[b"c"])):
        log.append_as_leader(each, leader_epoch=0, now_ms=1000)
    size, end = log.size, log.log_end_offset
    stored = bytes(joined(log.read(0, 10_000, end, min_one=True)))
    assert len(stored) == size
    follower = new_log()
    follower.append_as_follower(stored, now_ms=1000)
    assert (follower.size, follower.log_end_offset) == (size, end)
    after = files.kill()
    assert not [problem for problem in check(ROOT, files=after).problems if problem.file.suffix == names.LOG]
    again = open_directory(after).logs[TP]
    assert (again.size, again.log_end_offset, again.damage) == (size, end, [])
    assert joined(again.read(0, 10_000, end, min_one=True)) == stored
    again.roll(1000)
    again.set_high_watermark(end)
    cleaned = clean(after, plan(again, 0, end, 1000), Throttle(1e12))
    assert cleaned.end_offset == end
    assert bytes(mutated)[61:] in bytes(read_file(after, PARTITION / names.offset_name(0, ".log.cleaned")))


def read_file(files: MemoryFiles, path: Path) -> bytes:
    handle = files.open(path)
    try:
        return files.read(handle, files.size(handle), 0)
    finally:
        files.close(handle)


def test_a_batch_with_unknown_attributes_survives_a_kill() -> None:
    files = MemoryFiles()
    log = new_log(files)
    for n in range(60):
        records = batch(b"%d" % n)
        if n == 10:
            struct.pack_into(">h", records, 21, 0x0080)
            struct.pack_into(">I", records, 17, crc32c(memoryview(records)[21:]))
        log.append_as_leader(records, leader_epoch=0, now_ms=0)
    assert read_past_damage(open_directory(files.kill()).logs[TP]) == ({n: b"%d" % n for n in range(60)}, set())


# Damage in one place


@pytest.mark.parametrize("synced", [False, True])
def test_an_overwrite_in_the_active_segment_costs_only_the_batches_that_it_hits(synced: bool) -> None:
    files = MemoryFiles()
    log = filled(files, 70, **{"segment.bytes": "100000"})
    if synced:
        log.flush()
        log.disk.checkpoint_now()
    path, position, size = position_of(log, 5)
    files = files.kill()
    overwrite(files, path, position + size - 8, b"\xff" * 25)  # the end of one batch and the header of the next
    again = reopened(files)
    assert again.log_end_offset == 70
    found, lost = read_past_damage(again)
    assert lost == {5, 6}
    assert found == {n: value for n, value in enumerate(expected(70)) if n not in lost}
    assert sum(bad.records for bad in again.damage) == 2
    assert again.append_as_leader(batch(b"next"), leader_epoch=9, now_ms=0).first_offset == 70


def test_two_bad_batches_in_a_closed_segment_do_not_drop_the_later_segments() -> None:
    files = MemoryFiles()
    log = filled(files, 60)
    hit = [log.segments.items[1].base_offset + n for n in (1, 4)]
    places = [position_of(log, offset) for offset in hit]
    files = files.kill()
    for path, position, _ in places:
        overwrite(files, path, position + 70, b"\xff\xff")
    again = reopened(files)
    assert read_past_damage(again) == (
        {n: value for n, value in enumerate(expected(60)) if n not in hit}, set(hit)
    )  # fmt: skip


def test_stray_bytes_behind_a_closed_segment_are_set_aside() -> None:
    for stray in (b"stray", bytes(300), bytes(batch(b"x", base_offset=3)), bytes(batch(b"x", base_offset=10**12))):
        files = MemoryFiles()
        log = filled(files, 60)
        closed = log.segments.items[1]
        files = files.kill()
        overwrite(files, closed.path(names.LOG), closed.size, stray)
        again = reopened(files)
        assert read_past_damage(again) == (dict(enumerate(expected(60))), set())
        aside = [name for name in files.names(PARTITION) if name.endswith(names.DAMAGED)]
        assert [read_file(files, PARTITION / name) for name in aside] == [stray]


def test_a_full_disk_does_not_prevent_a_start() -> None:
    files = MemoryFiles()
    log = filled(files, 10)
    size = log.size
    files = files.kill()
    overwrite(files, log.segments.active.path(names.LOG), size, b"torn")

    def full(what: str, path: Path) -> None:
        if path.name.endswith(names.DAMAGED) and what.startswith("write"):
            raise OSError(errno.ENOSPC, "No space left on device")

    files.fault = full
    assert read_past_damage(reopened(files)) == (dict(enumerate(expected(10))), set())
    assert not [name for name in files.names(PARTITION) if name.endswith(names.DAMAGED)]


@pytest.mark.parametrize("clean", [False, True])
def test_a_missing_log_file_is_reported(clean: bool, log_lines: Lines) -> None:
    for number in (0, 1, -1):
        files = MemoryFiles()
        log = filled(files, 60)
        log.flush()
        log.disk.checkpoint_now()
        if clean:
            close(log)
            files.open(ROOT / names.CLEAN_SHUTDOWN, create=True)
        lost = log.segments.items[number]
        following = log.segments.end_of(log.segments.items.index(lost), 60)
        files = files.kill()
        files.remove(lost.path(names.LOG))
        for _ in range(2):
            log_lines.clear()
            again = reopened(files)
            gone = set(range(lost.base_offset, following))
            kept = {n: value for n, value in enumerate(expected(60)) if n not in gone}
            assert again.log_end_offset == 60
            if number:
                assert read_past_damage(again) == (kept, gone)
            else:
                assert read_past_damage(again)[0] == kept
            assert [line["next_offset"] for line in log_lines if line["event"] == "log file is missing"] == [following]
            files = files.kill()


def test_a_gap_behind_a_trusted_segment_is_reported(log_lines: Lines) -> None:
    files = MemoryFiles()
    log = filled(files, 60)
    log.flush()
    log.disk.checkpoint_now()
    closed = log.segments.items[1]
    following = log.segments.items[2].base_offset
    _, position, _ = position_of(log, following - 2)
    files = files.kill()
    cut(files, closed.path(names.LOG), position)
    again = reopened(files)
    assert [(bad.offset, bad.next_offset) for bad in again.damage] == [(following - 2, following)]
    assert any(line["event"] == "records are missing" for line in log_lines)
    assert len(read_past_damage(again)[0]) == 58


def test_a_start_offset_beyond_the_end_removes_nothing() -> None:
    files = MemoryFiles()
    log = filled(files, 30)
    files = files.kill()
    overwrite(files, ROOT / names.RECOVERY_POINTS, 0, b"") if files.exists(ROOT / names.RECOVERY_POINTS) else None
    handle = files.open(ROOT / names.LOG_STARTS, create=True)
    files.write(handle, [b"0\n1\nevents 0 900000\n"], 0)
    before = {read_file(files, segment.path(names.LOG)) for segment in log.segments}
    again = reopened(files)
    assert (again.log_start_offset, again.log_end_offset) == (900000, 900000)
    aside = {name for name in files.names(PARTITION) if name.endswith(names.LOG + names.DAMAGED)}
    assert {read_file(files, PARTITION / name) for name in aside} == before


# Base offsets, which the CRC does not cover


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("bit", [*range(0, 63, 7), 62, 63])
def test_a_flipped_base_offset_is_restored(trusted: bool, bit: int) -> None:
    for offset in (0, 7, 24, 58):
        files = MemoryFiles()
        log = filled(files, 60)
        if trusted:
            log.flush()
            log.disk.checkpoint_now()
        path, position, _ = position_of(log, offset)
        files = files.kill()
        overwrite(files, path, position, struct.pack(">Q", offset ^ 1 << bit))
        again = reopened(files)
        assert read_past_damage(again, 100 + bit) == (dict(enumerate(expected(60))), set())


# Leader epochs, which the CRC does not cover


@in_lots("bit", range(32))
def test_a_flipped_leader_epoch_is_restored(bit: int) -> None:
    """Epochs never fall within a log. Otherwise the replica would seem to be newer than all others."""
    for offset in (0, 7, 30, 57)[bit == 31 :]:  # nothing shows the epoch of the first batch if it is negative
        files = MemoryFiles()
        log = filled(files, 60)
        path, position, _ = position_of(log, offset)
        before = {segment.base_offset: read_file(files, segment.path(names.LOG)) for segment in log.segments}
        files = files.kill()
        overwrite(files, path, position + 12, struct.pack(">I", offset // 25 ^ 1 << bit))
        damaged = files.kill()
        again = reopened(files)
        assert again.leader_epochs.entries() == [(0, 0), (1, 25), (2, 50)]
        assert {segment.base_offset: read_file(files, segment.path(names.LOG)) for segment in again.segments} == before
        (problem,) = [each for each in check(PARTITION, files=damaged).problems if "epoch" in each.reason]
        assert abs(problem.offset - offset) <= 1


@in_lots("bit", range(32))
@pytest.mark.parametrize("offset", [24, 25, 49, 50])
def test_a_flipped_leader_epoch_at_the_edge_of_one(offset: int, bit: int) -> None:
    """Its neighbours may leave two epochs open; either is one batch away from the right one."""
    files = MemoryFiles()
    path, position, _ = position_of(filled(files, 60), offset)
    files = files.kill()
    overwrite(files, path, position + 12, struct.pack(">I", offset // 25 ^ 1 << bit))
    entries = reopened(files).leader_epochs.entries()
    assert [epoch for epoch, _ in entries] == [0, 1, 2]
    assert all(abs(start - 25 * epoch) <= 1 for epoch, start in entries)


# Damage while the log is open


@in_lots("bit", range(64))
def test_a_damaged_index_entry_does_not_mislead_reads(bit: int) -> None:
    files = MemoryFiles()
    log = filled(files, 60)
    for segment in log.segments.items[:-1]:
        entries = segment.index.count
        assert entries
        for n in range(entries):
            path = segment.path(names.INDEX)
            before = read_file(files, path)
            damaged = int.from_bytes(before[n * 8 : n * 8 + 8]) ^ 1 << bit
            overwrite(files, path, n * 8, damaged.to_bytes(8))
            segment.release()  # its index is read again
            for offset in range(segment.base_offset, segment.next_offset):
                parts = log.read(offset, 250, log.log_end_offset, min_one=True)
                (header, data), *_ = iter_batches(joined(parts))
                assert header.base_offset <= offset < header.next_offset
                assert [each.value for each in decode_records(data)] == expected(60)[
                    header.base_offset : header.next_offset
                ]
            overwrite(files, path, n * 8, before[n * 8 : n * 8 + 8])
            segment.release()


@pytest.mark.parametrize("closed", [False, True])
def test_a_file_that_is_cut_under_the_broker_answers_corrupt_message(closed: bool) -> None:
    files = MemoryFiles()
    log = filled(files, 60)
    segment = log.segments.items[0 if closed else -1]
    ends = {offset: sum(position_of(log, offset)[1:]) for offset in range(segment.base_offset, segment.next_offset)}
    for size in range(segment.size, -1, -25):
        cut(files, segment.path(names.LOG), size)
        for offset, end in ends.items():
            if end <= size:
                assert decode_records(joined(log.read(offset, 1, 60, min_one=True)))[0].offset == offset
            else:
                with pytest.raises(KafkaError) as caught:
                    log.read(offset, 1, 60, min_one=True)
                assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


# Random damage


class Place(NamedTuple):
    """A batch in a file, and its values by offset."""

    file: str
    position: int
    size: int
    data: bytes
    values: dict[int, bytes]


def workload(files: MemoryFiles, rng: random.Random) -> list[Place]:
    """Append with an fsync each; roll, checkpoint and stop the broker now and then. Every record is acknowledged."""
    config = broker_config(log_flush_interval_messages="1", log_segment_bytes="1500", log_index_interval_bytes="300")
    places: list[Place] = []
    offset = 0
    for life in range(2):
        directory = open_directory(files, config)
        log = directory.create(TP, TOPIC_ID, topic_config(None, config), 0)
        for _ in range(rng.randrange(5, 30)):
            values = {offset + n: rng.randbytes(rng.randrange(1, 200)) for n in range(rng.randrange(1, 4))}
            before = log.segments.active
            compression = rng.choice(["none", "lz4"])
            log.append_as_leader(batch(*values.values(), compression=compression), leader_epoch=life, now_ms=0)
            segment = log.segments.active
            at = 0 if segment is not before else places[-1].position + places[-1].size if places else 0
            file = segment.path(names.LOG).name
            if not places or places[-1].file != file:
                at = 0
            data = files.read(segment.handle, segment.size - at, at)
            places.append(Place(file, at, len(data), data, values))
            offset += len(values)
            if rng.random() < 0.1:
                directory.checkpoint()
        log.set_high_watermark(offset)
        if life == 0 or rng.random() < 0.5:
            directory.close(0)
    return places


def hurt(files: MemoryFiles, rng: random.Random) -> str:
    """Damage a file of the partition; what was done."""
    name = rng.choice([each for each in files.names(PARTITION) if not each.endswith(names.DAMAGED)])
    path = PARTITION / name
    handle = files.open(path)
    size = files.size(handle)
    files.close(handle)
    kind = rng.randrange(5)
    if kind == 0 and not name.endswith(names.LOG):
        files.remove(path)
        return f"remove {name}"
    at = rng.randrange(size + 1)
    if kind == 1 and rng.random() < 0.3:
        cut(files, path, at)
        return f"cut {name} to {at}"
    if kind == 2:
        data = rng.choice([bytes(20), b"\xff" * 16, rng.randbytes(rng.randrange(1, 100))])
        overwrite(files, path, size, data)
        return f"{len(data)} bytes behind {name}"
    if not size:
        return "nothing"
    at = min(at, size - 1)
    data = read_file(files, path)
    if kind == 3:
        flipped = data[at] ^ 1 << rng.randrange(8)
        overwrite(files, path, at, bytes([flipped]))
        return f"flip in {name} at {at}"
    block = rng.randbytes(rng.randrange(1, 64))
    overwrite(files, path, at, block)
    return f"{len(block)} bytes over {name} at {at}"


def assert_sound_records_are_read(files: MemoryFiles, places: list[Place], log: Log) -> list[Damage]:
    found, _ = read_past_damage(log, 700)
    every = {offset: value for place in places for offset, value in place.values.items()}
    for offset, value in found.items():
        # The offsets of a damaged end are given to later records.
        assert value in (every.get(offset), b"next"), f"offset {offset}"
    for place in places:
        if not place.file:
            assert found.keys() >= place.values.keys()
        elif read_file(files, PARTITION / place.file)[place.position : place.position + place.size] == place.data:
            assert found.keys() >= place.values.keys(), f"{place.file} at {place.position}: {sorted(place.values)}"
    assert log.log_end_offset > max(found, default=-1)
    return log.damage


@pytest.mark.broad
@pytest.mark.parametrize("round_", slow_but_each(4, range(10)))
def test_whole_records_survive_random_damage_and_kills_during_recovery(round_: int) -> None:
    for case in range(12):
        seed = SEED + round_ * 1000 + case
        done: list[str] = []
        try:
            damage_and_recover(random.Random(seed), done)
        except BaseException:
            print(f"seed {seed}: {done}")
            raise


def damage_and_recover(rng: random.Random, done: list[str]) -> None:
    files = MemoryFiles()
    places = workload(files, rng)
    files = files.kill()
    done += [hurt(files, rng) for _ in range(rng.randrange(1, 4))]
    damaged = files.kill()
    for step in [*sorted(rng.sample(range(1, 40), 3)), None]:
        # Recovery itself is killed, and begins again.
        files.crash_at = step
        try:
            log = open_directory(files).logs[TP]
            assert_sound_records_are_read(damaged, places, log)
            end = log.log_end_offset
            info = log.append_as_leader(batch(b"next"), leader_epoch=9, now_ms=0)
            assert info.first_offset == end
            places = [*places, Place("", 0, 0, b"", {end: b"next"})]
        except Crash:
            pass
        files = files.kill()
