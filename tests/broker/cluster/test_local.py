"""The journal: stored events are loaded, a torn last line is truncated, corruption is an error."""

import asyncio
import errno
import random
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from barnabas_broker.cluster.image import Event, PartitionInfo, ProducerIdsAllocated, TopicCreated, TopicDeleted
from barnabas_broker.cluster.local import COPY, NAME, LocalStore
from barnabas_broker.cluster.store import StoreError
from barnabas_broker.files import RealFiles
from barnabas_broker.memory_files import Crash, MemoryFiles

ROOT: Final = Path("/data")
JOURNAL: Final = ROOT / NAME
BOTH: Final = (JOURNAL, ROOT / COPY)
TOPIC = TopicCreated("topic", b"i" * 16, (PartitionInfo(1, 0, (1,), (1,)),), {"retention.ms": "5"})


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(ROOT)
    files.sync_directory(Path("/"))
    return files


def keep(files: MemoryFiles, *events: Event) -> None:
    async def run() -> None:
        store = LocalStore(ROOT, files)
        sequence = (await store.load()).sequence
        for number, event in enumerate(events):
            assert await store.append([event], sequence + number)
        await store.close()

    asyncio.run(run())


def kept(files: MemoryFiles) -> list[Event]:
    async def run() -> list[Event]:
        store = LocalStore(ROOT, files)
        try:
            return list((await store.load()).events)
        finally:
            await store.close()

    return asyncio.run(run())


def test_a_new_journal_is_empty(files: MemoryFiles) -> None:
    assert kept(files) == [ProducerIdsAllocated(0)]


def test_stored_events_are_loaded(files: MemoryFiles) -> None:
    keep(files, TOPIC, ProducerIdsAllocated(1000))
    assert kept(files) == [TOPIC, ProducerIdsAllocated(1000)]


def test_superseded_events_are_dropped_at_start(files: MemoryFiles) -> None:
    keep(files, TOPIC, TopicDeleted("topic"), ProducerIdsAllocated(1000), ProducerIdsAllocated(2000))
    assert kept(files) == [ProducerIdsAllocated(2000)]
    assert len(files.content(JOURNAL).splitlines()) == 1


def test_new_files_have_the_permissions_of_the_directory(tmp_path: Path) -> None:
    async def run() -> None:
        store = LocalStore(tmp_path, RealFiles(0o750))
        await store.load()
        await store.close()

    asyncio.run(run())
    assert {each.name: each.stat().st_mode & 0o137 for each in tmp_path.iterdir()} == {NAME: 0, COPY: 0}


def test_a_torn_line_loses_no_acknowledged_event(files: MemoryFiles) -> None:
    keep(files, TOPIC)
    whole = files.content(JOURNAL)
    keep(files, ProducerIdsAllocated(1000))
    more = files.content(JOURNAL)
    for end in range(len(whole), len(more)):
        files.damage(JOURNAL, more[:end])
        assert TOPIC in kept(files)
        keep(files, ProducerIdsAllocated(5000))
        assert kept(files)[-1] == ProducerIdsAllocated(5000)


def test_a_crash_at_any_step_loses_no_acknowledged_event() -> None:
    chance, crashed, step = random.Random(1), True, 0
    while crashed:
        crashed, step = False, step + 1
        files, stored = MemoryFiles(), 0
        files.crash_at = step
        try:
            files.make_directory(ROOT)
            files.sync_directory(Path("/"))
            for number in range(1, 5):
                keep(files, ProducerIdsAllocated(number))
                stored = number
        except Crash:
            crashed = True
        after = files.crash(chance)
        after.make_directory(ROOT)
        (found,) = kept(after)
        assert found in (ProducerIdsAllocated(stored), ProducerIdsAllocated(stored + 1)), step
    assert step > 50


def test_a_flip_in_the_journal_loses_nothing(files: MemoryFiles) -> None:
    keep(files, TOPIC, ProducerIdsAllocated(1000))
    kept(files)
    whole = files.content(JOURNAL)
    for path in BOTH:
        for at in range(0, len(whole), 7):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << at % 8
            files.damage(path, bytes(damaged))
            assert kept(files) == [TOPIC, ProducerIdsAllocated(1000)], f"{path} at {at}"
            assert [files.content(each) for each in BOTH] == [whole, whole]


def test_a_journal_that_was_cut_or_removed_is_restored_from_its_copy(files: MemoryFiles) -> None:
    keep(files, TOPIC, ProducerIdsAllocated(1000))
    kept(files)
    whole = files.content(JOURNAL)
    for size in range(len(whole)):
        files.damage(JOURNAL, whole[:size])
        assert kept(files) == [TOPIC, ProducerIdsAllocated(1000)], size
    files.lose(JOURNAL)
    assert kept(files) == [TOPIC, ProducerIdsAllocated(1000)]


def test_a_journal_and_a_copy_that_are_both_corrupt_are_an_error(files: MemoryFiles) -> None:
    keep(files, TOPIC, ProducerIdsAllocated(1000))
    damaged = bytearray(files.content(JOURNAL))
    damaged[20] ^= 1
    for path in BOTH:
        files.damage(path, bytes(damaged))
    with pytest.raises(StoreError, match="line 1: checksum"):
        kept(files)
    assert files.content(JOURNAL) == damaged


def full(what: str, path: Path) -> None:
    if what.startswith("write"):
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_nothing_is_stored_after_a_failed_sync(files: MemoryFiles) -> None:
    store = LocalStore(ROOT, files)
    await store.load()

    def fail(what: str, path: Path) -> None:
        if what == "sync":
            raise OSError(errno.EIO, "Input/output error")

    files.fault = fail
    with pytest.raises(StoreError, match="Input/output error"):
        await store.append([TOPIC], 0)
    files.fault = None
    with pytest.raises(StoreError, match="earlier failure"):
        await store.append([TOPIC], 0)
    await store.close()


def test_a_full_disk_keeps_the_journal_as_it_is(files: MemoryFiles) -> None:
    keep(files, TOPIC, TopicDeleted("topic"), ProducerIdsAllocated(1000), ProducerIdsAllocated(2000))
    whole = files.content(JOURNAL)
    files.damage(JOURNAL, whole + b"torn")
    files.fault = full
    assert kept(files) == [ProducerIdsAllocated(2000)]
    assert {name: files.content(ROOT / name) for name in files.names(ROOT)} == {NAME: whole, COPY: whole}
    files.fault = None
    keep(files, ProducerIdsAllocated(3000))
    assert kept(files) == [ProducerIdsAllocated(3000)]
    files.lose(ROOT / COPY)
    files.fault = full
    with pytest.raises(StoreError, match="No space left"):
        kept(files)


async def test_events_for_which_there_is_no_space_may_be_stored_later(files: MemoryFiles) -> None:
    """All of them in the journal, and half in the copy: nothing of them is left."""
    store = LocalStore(ROOT, files)
    await store.load()
    whole = [files.content(path) for path in BOTH]

    def half(torn: Path, what: str, path: Path) -> None:
        if what.startswith("write") and path == torn:
            files.fault = None
            handle = files.open(path)
            files.write(handle, [b"half"], files.size(handle))
            raise OSError(errno.ENOSPC, "No space left on device")

    for torn in BOTH:
        files.fault = partial(half, torn)
        with pytest.raises(StoreError, match="No space left"):
            await store.append([TOPIC], 0)
        assert [files.content(path) for path in BOTH] == whole
    assert await store.append([ProducerIdsAllocated(7)], 0)
    await store.close()
    assert await asyncio.to_thread(kept, files) == [ProducerIdsAllocated(7)]
