"""When an append may be acknowledged, and failures of the disk."""

import asyncio
import errno
import random
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from barnabas_broker.files import RealFiles
from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage import Inline, Log, LogDirectory
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.support import (
    ROOT,
    TOPIC_ID,
    TP,
    batch,
    broker_config,
    clock,
    maintain,
    open_directory,
    topic_config,
    values,
)

T = TypeVar("T")
Lines = list[MutableMapping[str, Any]]


class Queue:
    """Background work that runs when the test calls :meth:`step`."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        self.jobs.append(lambda: Inline().run(work, done))

    def step(self) -> None:
        """Run the present jobs, not those that they start."""
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()

    def run_all(self, work: Iterable[Callable[[], object]]) -> None:
        Inline().run_all(work)

    def close(self) -> None:
        while self.jobs:
            self.step()


def queued(overrides: dict[str, str]) -> tuple[MemoryFiles, Queue, LogDirectory, Log]:
    """An empty log whose directory is on the disk, so that only records are left to be synced."""
    files, queue = MemoryFiles(), Queue()
    clock.now = 0.0
    directory = LogDirectory.open(ROOT, broker_config(), node_id=1, now_ms=0, files=files, background=queue, now=clock)
    log = directory.create(TP, TOPIC_ID, topic_config(overrides), 0)
    log.flush()
    return files, queue, directory, log


def append(log: Log, value: bytes = b"x", now_ms: int = 0) -> int:
    return log.append_as_leader(batch(value), leader_epoch=0, now_ms=now_ms).last_offset


def syncs(files: MemoryFiles) -> int:
    return sum(".log" in line and " sync " in line for line in files.log)


def fail(what: str, number: int = errno.EIO) -> Callable[[str, Path], None]:
    def fault(doing: str, path: Path) -> None:
        if doing.startswith(what):
            raise OSError(number, "no luck")

    return fault


def test_by_default_an_append_is_acknowledged_at_once() -> None:
    files, queue, _, log = queued({})
    before = syncs(files)
    assert log.durable(append(log)) is None
    assert (queue.jobs, syncs(files)) == ([], before)


async def test_with_flush_messages_1_many_appends_share_one_fsync() -> None:
    files, queue, _, log = queued({"flush.messages": "1"})
    before = syncs(files)
    futures = [log.durable(append(log)) for _ in range(10)]
    assert all(future is not None and not future.done() for future in futures)
    queue.step()  # this one had begun with the first append
    assert syncs(files) == before + 1
    queue.step()
    assert syncs(files) == before + 2
    assert all(future is not None and future.done() for future in futures)
    assert log.durable(9) is None


async def test_with_flush_messages_n_only_every_nth_waits() -> None:
    _, queue, _, log = queued({"flush.messages": "3"})
    assert [log.durable(append(log)) for _ in range(2)] == [None, None]
    third = log.durable(append(log))
    assert third is not None
    queue.step()
    assert third.done()
    assert log.durable(append(log)) is None


def test_flush_ms() -> None:
    files, queue, directory, log = queued({"flush.ms": "1000"})
    before = syncs(files)
    clock.now = 0.05
    append(log, now_ms=50)
    maintain(directory, 1049)
    assert queue.jobs == []
    maintain(directory, 1050)
    queue.close()
    assert syncs(files) == before + 1
    maintain(directory, 5000)
    assert queue.jobs == []


async def test_a_failed_fsync_takes_the_directory_offline_and_is_never_tried_again(log_lines: Lines) -> None:
    files, queue, directory, log = queued({"flush.messages": "1"})
    waiting = log.durable(append(log, b"kept"))
    files.fault = fail("sync")
    queue.step()
    assert waiting is not None
    with pytest.raises(KafkaError) as caught:
        await waiting
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert directory.failure is not None and "no luck" in directory.failure
    files.fault = None
    with pytest.raises(KafkaError) as refused:
        append(log)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    late = log.durable(0)
    assert late is not None and isinstance(late.exception(), KafkaError)
    steps = files.steps
    for now in (10**6, 10**7):
        maintain(directory, now)
        queue.close()
    assert files.steps == steps
    assert values(log) == [b"kept"]
    directory.close(10**7)
    assert [line["event"] for line in log_lines if line["log_level"] == "error"] == [
        "log directory is offline, reads continue"
    ]
    assert not open_directory(files.kill()).was_clean


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_an_append_that_cannot_be_written(number: int) -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    log = directory.create(TP, TOPIC_ID, topic_config(), 0)
    append(log, b"first")
    files.fault = fail("write", number)
    with pytest.raises(KafkaError) as caught:
        append(log, b"second")
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert directory.failure is not None
    assert (log.log_end_offset, values(log)) == (1, [b"first"])
    with pytest.raises(KafkaError):
        directory.create(TP._replace(partition=1), TOPIC_ID, topic_config(), 0)
    files.fault = None
    directory.close(0)
    assert values(open_directory(files.kill()).logs[TP]) == [b"first"]


def test_a_failed_read_does_not_take_the_directory_offline() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    log = directory.create(TP, TOPIC_ID, topic_config(), 0)
    append(log)
    files.fault = fail("read")
    with pytest.raises(KafkaError) as caught:
        log.read(0, 1000, 1, min_one=True)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.fault = None
    append(log)
    assert directory.failure is None


async def test_a_truncation_fails_the_acknowledgements_beyond_it() -> None:
    _, queue, _, log = queued({"flush.messages": "1"})
    append(log)
    waiting = log.durable(append(log))
    log.truncate_to(1)
    assert waiting is not None
    with pytest.raises(KafkaError):
        await waiting
    queue.close()
    assert log.recovery_point <= 1


async def test_threads_call_back_on_the_event_loop(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path / "log", broker_config(), node_id=1, now_ms=0)
    log = directory.create(TP, TOPIC_ID, topic_config({"flush.messages": "1"}), 0)
    waiting = [log.durable(append(log)) for _ in range(100)]
    await asyncio.gather(*(future for future in waiting if future is not None))
    assert log.durable(99) is None
    directory.close(0)
    again = LogDirectory.open(tmp_path / "log", broker_config(), node_id=1, now_ms=0)
    assert again.was_clean and again.logs[TP].log_end_offset == 100
    again.close(0)


async def test_a_thread_loads_what_is_not_in_the_page_cache() -> None:
    files, queue, _, log = queued({"segment.bytes": "200"})
    for _ in range(9):
        append(log, b"x" * 40)
    assert log.warm(0, 1000) is None
    files.cached = False
    cold = log.warm(0, 1000)
    assert cold is not None
    assert not cold.done()
    queue.close()
    assert cold.done()
    assert log.warm(9, 1000) is None  # at the end there is nothing to wait for
    log.read(8, 1000, 9, min_one=True)
    files.fault = fail("read")
    failed = log.warm(0, 1000)
    queue.close()
    assert failed is not None and failed.done()


def test_a_file_that_was_just_written_is_in_the_page_cache(tmp_path: Path) -> None:
    files = RealFiles()
    handle = files.open(tmp_path / "file", create=True)
    files.write(handle, [bytes(100_000)], 0)
    assert files.is_cached(handle, 100_000, 0)
    files.close(handle)


def test_segments_of_a_killed_process_are_synced_with_their_names() -> None:
    files = MemoryFiles()
    overrides = {"segment.bytes": "200", "flush.messages": "1000"}
    directory = LogDirectory.open(ROOT, broker_config(), node_id=1, now_ms=0, files=files, background=Queue())
    log = directory.create(TP, TOPIC_ID, topic_config(overrides), 0)
    for _ in range(6):  # several segments, none of which the queue gets to sync
        append(log, b"v" * 80)
    files = files.kill()
    log = open_directory(files).logs[TP]
    log.configure(topic_config({"segment.bytes": "200", "flush.messages": "1"}))
    append(log, b"acknowledged")
    assert log.durable(log.log_end_offset - 1) is None
    files = files.crash(random.Random(1), lose_all=True)
    assert values(open_directory(files).logs[TP])[-1] == b"acknowledged"
