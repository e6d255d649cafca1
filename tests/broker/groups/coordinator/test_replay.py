"""The replay of ``__consumer_offsets``: offsets, groups, tombstones, transactions, corruption; and loading."""

import asyncio
from typing import Any

import pytest

from barnabas_broker.groups.coordinator.replay import Replay
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.group_records import Committed, group_key, offset_key, offset_key_head, offset_value
from barnabas_protocol.records import build_batch, restamp
from tests.broker.groups.memory import MemoryLog, new_share_group
from tests.broker.groups.support import Service, assignment

Pairs = list[tuple[bytes, bytes | None]]
HEAD = offset_key_head("g", "t")


def batch(at: int, pairs: Pairs, **options: Any) -> bytes:
    data = build_batch([(key, value, (), 0) for key, value in pairs], **options)
    restamp(data, 0, at, 0)
    return bytes(data)


def offset(partition: int, value: int) -> tuple[bytes, bytes]:
    return offset_key(HEAD, partition), offset_value(Committed(value, -1, "", 0))


def replay(*batches: bytes, start: int = 0) -> tuple[Replay, list[tuple[int, str]]]:
    reports: list[tuple[int, str]] = []
    made = Replay(lambda at, why: reports.append((at, why)), start, new_share_group)
    for _ in made.feed(b"".join(batches)):
        pass
    return made, reports


def committed(made: Replay) -> dict[int, int]:
    return {p: found.offset for p, found in made.offsets["g"].topics.get("t", {}).items()}


def test_the_last_commit_is_effective_and_tombstones_remove_offsets() -> None:
    made, reports = replay(
        batch(0, [offset(0, 1), offset(1, 1), offset(0, 2)]), batch(3, [(offset(1, 0)[0], None), offset(2, 9)])
    )
    assert committed(made) == {0: 2, 2: 9}
    assert (made.next_offset, made.records, reports) == (5, 5, [])


def test_a_corrupt_record_is_reported_with_its_offset_and_skipped() -> None:
    key = offset(0, 0)[0]
    pairs: Pairs = [offset(0, 1), (key, b"\x00\x03rubbish"), (b"\x00\x01x", b"v"), (b"", b"v"), offset(1, 2)]
    made, reports = replay(batch(0, pairs), batch(5, [(group_key("h"), b"\x00\x03rubbish")]))
    assert committed(made) == {0: 1, 1: 2}, "earlier records stay in effect"
    assert [at for at, _ in reports] == [1, 2, 3, 5]
    assert made.groups == {}


def test_a_corrupt_value_creates_no_group() -> None:
    made, reports = replay(batch(0, [(offset(0, 0)[0], b"rubbish")]))
    assert (made.offsets, [at for at, _ in reports]) == ({}, [0])


def test_records_of_other_group_protocols_are_skipped() -> None:
    made, reports = replay(batch(0, [(b"\x00\x11anything", b"v"), (b"\x00\x16anything", None)]))
    assert (made.offsets, made.groups, reports) == ({}, {}, [])


def test_a_corrupt_batch_is_reported_and_skipped() -> None:
    broken = bytearray(batch(1, [offset(0, 2), offset(1, 2)]))
    broken[-3] ^= 0xFF
    made, reports = replay(batch(0, [offset(0, 1)]), bytes(broken), batch(3, [offset(2, 3)]))
    assert committed(made) == {0: 1, 2: 3}
    assert [at for at, _ in reports] == [1]
    assert made.next_offset == 4


def test_a_batch_with_a_corrupt_size_is_skipped() -> None:
    broken = bytearray(batch(1, [offset(0, 2)]))
    broken[8:12] = b"\x7f\x00\x00\x00"
    made, reports = replay(batch(0, [offset(0, 1)]), bytes(broken), batch(2, [offset(2, 3)]))
    assert committed(made) == {0: 1, 2: 3}
    assert len(reports) == 1


def test_a_corrupt_batch_at_the_end_of_the_data_is_skipped() -> None:
    broken = bytearray(batch(1, [offset(0, 2), offset(1, 2)]))
    broken[-3] ^= 0xFF
    made, reports = replay(batch(0, [offset(0, 1)]), bytes(broken))
    assert made.next_offset == 3
    assert len(reports) == 1


def test_transactional_commits_are_effective_when_the_transaction_is_committed() -> None:
    pairs: Pairs = [offset(0, 5)]
    open_batch = batch(0, pairs, transactional=True, producer_id=9, producer_epoch=0, base_sequence=0)
    made, _ = replay(open_batch)
    assert committed(made) == {}
    marker = [(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")]
    control = batch(1, list(marker), control=True, transactional=True, producer_id=9, producer_epoch=0)
    made, _ = replay(open_batch, control)
    assert committed(made) == {0: 5}
    aborted: Pairs = [(b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00")]
    made, _ = replay(open_batch, batch(1, aborted, control=True, transactional=True, producer_id=9, producer_epoch=0))
    assert committed(made) == {}


async def test_a_stable_group_survives_a_restart_without_a_rebalance() -> None:
    first = await Service().loaded()
    member_id = await first.member()
    committing = first.commit(42, member_id=member_id, generation=1)
    await first.ask(committing, 8)
    again = Service(first.log)
    again.time = 5.0
    await again.loaded()
    assert again.heartbeat(member_id, 1) == ErrorCode.NONE
    described = again.describe()
    assert (described.group_state, described.members[0].member_assignment) == ("Stable", assignment(t=[0]))
    assert again.committed() == 42
    committing = again.commit(43, member_id=member_id, generation=1)
    assert (await again.ask(committing, 8)).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert again.committed() == 43, "records appended after a replay are newer than all replayed records"
    await again.after(9)
    assert again.heartbeat(member_id, 1) == ErrorCode.NONE
    await again.after(10.5)
    assert again.describe().group_state == "Empty"


async def test_an_empty_group_has_been_empty_for_as_long_after_a_restart() -> None:
    first = await Service(offsets_retention_minutes="10").loaded()
    member_id = await first.member()
    await first.ask(first.commit(42, member_id=member_id, generation=1), 8)
    first.leave(member_id)
    await first.after(1)
    again = Service(first.log, offsets_retention_minutes="10", offsets_retention_check_interval_ms="1000")
    again.wall = first.wall + 590_000
    await again.loaded()
    assert again.describe().group_state == "Empty"
    await again.after(5)
    assert again.committed() == 42
    await again.after(10)
    assert again.committed() == -1


async def test_other_tasks_run_during_a_replay() -> None:
    log = MemoryLog()
    for at in range(0, 20_000, 1000):
        log.put(0, bytearray(batch(at, [offset(each, at + each) for each in range(1000)])))
    service = Service(log)
    loading = asyncio.ensure_future(service.groups.load(0, 1))
    turns = 0
    while not service.groups.loaded:
        error = service.fetch().groups[0].error_code
        assert error in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        await asyncio.sleep(0)
        turns += 1
    await loading
    assert turns > 10
    assert service.committed(partition=999) == 19_999


def of_many_groups() -> MemoryLog:
    """A log with an offset of each of 2,000 groups."""
    log = MemoryLog()
    value = offset(0, 7)[1]
    keys = [offset_key(offset_key_head(f"g{number}", "t"), 0) for number in range(2_000)]
    log.put(0, bytearray(batch(0, [(key, value) for key in keys])))
    return log


async def test_many_groups_are_restored_in_turns_and_found_when_all_are() -> None:
    service = Service(of_many_groups())
    loading = asyncio.ensure_future(service.groups.load(0, 1))
    turns = 0
    while not service.groups.loaded:
        assert service.commit(8, group="g0").topics[0].partitions[0].error_code in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        )
        assert not service.groups.groups
        await asyncio.sleep(0)
        turns += bool(service.groups._runtime.partitions and service.groups._runtime.partitions[0].hosted)
    await loading
    assert turns >= 5
    assert len(service.groups.groups) == 2_000


async def test_groups_that_are_unloaded_while_they_are_restored_are_not_found() -> None:
    service = Service(of_many_groups())
    first = asyncio.ensure_future(service.groups.load(0, 1))
    partitions = service.groups._runtime.partitions
    for _ in range(20):
        await asyncio.sleep(0)
        if partitions[0].hosted:
            break
    assert partitions[0].hosted and partitions[0].loading
    again = asyncio.ensure_future(service.groups.load(0, 2))
    await asyncio.sleep(0)
    assert not service.groups.groups and not service.groups.loaded
    await asyncio.gather(first, again)
    assert len(service.groups.groups) == 2_000
    assert {hosted.home.leader_epoch for hosted in service.groups.groups.values()} == {2}


async def test_a_load_ends_if_its_partition_is_unloaded_or_loaded_again() -> None:
    log = MemoryLog()
    log.put(0, bytearray(batch(0, [offset(0, 7)])))
    service = Service(log)
    first = asyncio.ensure_future(service.groups.load(0, 1))
    await asyncio.sleep(0)
    service.groups.unload(0)
    await first
    assert service.fetch().groups[0].error_code == ErrorCode.NOT_COORDINATOR
    await asyncio.gather(service.groups.load(0, 2), service.groups.load(0, 3), service.groups.load(0, 1))
    assert service.committed() == 7
    await service.groups.load(0, 3)
    assert service.committed() == 7


async def test_a_partition_whose_log_cannot_be_read_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    service.log.ends[0] = 5

    async def fail(partition: int, offset: int) -> bytes:
        raise OSError("disk")

    monkeypatch.setattr(service.log, "read", fail)
    await service.loaded()
    assert service.fetch().groups[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_a_loaded_group_over_its_maximum_size_rebalances() -> None:
    first = await Service().loaded()
    answers = [first.join() for _ in range(2)]
    joins = [first.join(answer.member_id) for answer in answers]
    await first.after(6.25)
    joined = [await first.ask(each, 9) for each in joins]
    await first.ask(first.sync(joined[0].leader, 1, {}), 5)
    again = await Service(first.log, group_max_size="1").loaded()
    assert again.describe().group_state == "PreparingRebalance"
