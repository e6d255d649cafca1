"""The journal: stored events are loaded, a torn last line is truncated, corruption is an error."""

import asyncio
import errno
from pathlib import Path

import pytest

from barnabas_broker.cluster import image_file, local
from barnabas_broker.cluster.image import Event, PartitionInfo, ProducerIdsAllocated, TopicCreated, TopicDeleted
from barnabas_broker.cluster.local import COPY, NAME, LocalStore
from barnabas_broker.cluster.store import StoreError

TOPIC = TopicCreated("topic", b"i" * 16, (PartitionInfo(1, 0, (1,), (1,)),), {"retention.ms": "5"})


def keep(directory: Path, *events: Event) -> None:
    async def run() -> None:
        store = LocalStore(directory)
        sequence = (await store.load()).sequence
        for number, event in enumerate(events):
            assert await store.append([event], sequence + number)
        await store.close()

    asyncio.run(run())


def kept(directory: Path) -> list[Event]:
    async def run() -> list[Event]:
        store = LocalStore(directory)
        try:
            return list((await store.load()).events)
        finally:
            await store.close()

    return asyncio.run(run())


def test_a_new_journal_is_empty(tmp_path: Path) -> None:
    assert kept(tmp_path) == [ProducerIdsAllocated(0)]


def test_stored_events_are_loaded(tmp_path: Path) -> None:
    keep(tmp_path, TOPIC, ProducerIdsAllocated(1000))
    assert kept(tmp_path) == [TOPIC, ProducerIdsAllocated(1000)]


def test_superseded_events_are_dropped_at_start(tmp_path: Path) -> None:
    keep(tmp_path, TOPIC, TopicDeleted("topic"), ProducerIdsAllocated(1000), ProducerIdsAllocated(2000))
    assert kept(tmp_path) == [ProducerIdsAllocated(2000)]
    assert len((tmp_path / NAME).read_bytes().splitlines()) == 1


def test_a_torn_line_loses_no_acknowledged_event(tmp_path: Path) -> None:
    keep(tmp_path, TOPIC)
    whole = (tmp_path / NAME).read_bytes()
    keep(tmp_path, ProducerIdsAllocated(1000))
    more = (tmp_path / NAME).read_bytes()
    for end in range(len(whole), len(more)):
        (tmp_path / NAME).write_bytes(more[:end])
        assert TOPIC in kept(tmp_path)
        keep(tmp_path, ProducerIdsAllocated(5000))
        assert kept(tmp_path)[-1] == ProducerIdsAllocated(5000)


def test_a_flip_in_the_journal_loses_nothing(tmp_path: Path) -> None:
    keep(tmp_path, TOPIC, ProducerIdsAllocated(1000))
    kept(tmp_path)
    whole = (tmp_path / NAME).read_bytes()
    for name in (NAME, COPY):
        for at in range(0, len(whole), 7):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << at % 8
            (tmp_path / name).write_bytes(damaged)
            assert kept(tmp_path) == [TOPIC, ProducerIdsAllocated(1000)], f"{name} at {at}"
            assert (tmp_path / NAME).read_bytes() == (tmp_path / COPY).read_bytes() == whole


def test_a_journal_that_was_cut_or_removed_is_restored_from_its_copy(tmp_path: Path) -> None:
    keep(tmp_path, TOPIC, ProducerIdsAllocated(1000))
    kept(tmp_path)
    whole = (tmp_path / NAME).read_bytes()
    for size in range(len(whole)):
        (tmp_path / NAME).write_bytes(whole[:size])
        assert kept(tmp_path) == [TOPIC, ProducerIdsAllocated(1000)], size
    (tmp_path / NAME).unlink()
    assert kept(tmp_path) == [TOPIC, ProducerIdsAllocated(1000)]


def test_a_crash_between_the_journal_and_its_copy(tmp_path: Path) -> None:
    keep(tmp_path, TOPIC)
    old = (tmp_path / COPY).read_bytes()
    keep(tmp_path, ProducerIdsAllocated(1000))
    for size in (len(old), len(old) + 5):
        (tmp_path / COPY).write_bytes((tmp_path / NAME).read_bytes()[:size])
        assert kept(tmp_path) == [TOPIC, ProducerIdsAllocated(1000)]


def test_a_journal_and_a_copy_that_are_both_corrupt_are_an_error(tmp_path: Path) -> None:
    keep(tmp_path, TOPIC, ProducerIdsAllocated(1000))
    damaged = bytearray((tmp_path / NAME).read_bytes())
    damaged[20] ^= 1
    for name in (NAME, COPY):
        (tmp_path / name).write_bytes(damaged)
    with pytest.raises(StoreError, match="line 1: checksum"):
        kept(tmp_path)
    assert (tmp_path / NAME).read_bytes() == damaged


def test_nothing_is_stored_after_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        store = LocalStore(tmp_path)
        await store.load()

        def fail(file: int, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "_append", staticmethod(fail))
            with pytest.raises(StoreError, match="No space left"):
                await store.append([TOPIC], 0)
        with pytest.raises(StoreError, match="earlier failure"):
            await store.append([TOPIC], 0)
        await store.close()

    asyncio.run(run())
    assert kept(tmp_path) == [ProducerIdsAllocated(0)]


def test_a_full_disk_keeps_the_journal_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, TOPIC, TopicDeleted("topic"), ProducerIdsAllocated(1000), ProducerIdsAllocated(2000))
    files = (tmp_path / NAME, tmp_path / COPY)
    whole = files[0].read_bytes()
    files[0].write_bytes(whole + b"torn")

    def full(file: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("barnabas_broker.cluster.image_file.write_all", full)
        assert kept(tmp_path) == [ProducerIdsAllocated(2000)]
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {NAME: whole, COPY: whole}
    keep(tmp_path, ProducerIdsAllocated(3000))
    assert kept(tmp_path) == [ProducerIdsAllocated(3000)]
    files[1].unlink()
    with monkeypatch.context() as patch:
        patch.setattr("barnabas_broker.cluster.image_file.write_all", full)
        with pytest.raises(StoreError, match="No space left"):
            kept(tmp_path)


async def test_events_for_which_there_is_no_space_may_be_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them in the journal, or all of them there and half in the copy: nothing of them is left."""
    write, writes = image_file.write_all, 0

    def full(file: int, data: bytes) -> None:
        nonlocal writes
        writes += 1
        if writes in (1, 3):
            write(file, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, data)

    store = LocalStore(tmp_path)
    await store.load()
    monkeypatch.setattr(local, "write_all", full)
    sequence = await store.newest()
    for _ in range(2):
        with pytest.raises(StoreError, match="No space left"):
            await store.append([TOPIC], sequence)
    assert await store.append([ProducerIdsAllocated(7)], sequence)
    await store.close()
    assert await asyncio.to_thread(kept, tmp_path) == [ProducerIdsAllocated(7)]
