"""The journal: stored events are loaded, a torn last line is truncated, corruption is an error."""

import asyncio
from pathlib import Path

import pytest

from barnabas_broker.cluster.image import Event, PartitionInfo, ProducerIdsAllocated, TopicCreated, TopicDeleted
from barnabas_broker.cluster.local import NAME, LocalStore
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


def test_a_corrupt_line_before_the_end_is_an_error(tmp_path: Path) -> None:
    keep(tmp_path, TOPIC, ProducerIdsAllocated(1000))
    damaged = bytearray((tmp_path / NAME).read_bytes())
    damaged[20] ^= 1
    (tmp_path / NAME).write_bytes(damaged)
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
