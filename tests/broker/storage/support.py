"""Helpers of the storage tests: configurations, batches, logs in memory."""

import random
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from barnabas_broker.config import BROKER_KEYS, TOPIC_KEYS, Config, TopicConfig
from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage import Inline, Log, LogDirectory, TopicPartition
from barnabas_broker.storage.corruption import DamagedLog
from barnabas_broker.storage.slices import joined
from barnabas_protocol.records import Record, build_batch, decode_records, iter_batches

T = TypeVar("T")

ROOT = Path("/data/log")
TP = TopicPartition("events", 0)
TOPIC_ID = bytes(range(16))


class Clock:
    """A monotonic clock of a test's own."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


#: The clock of the directories of :func:`open_directory`.
clock = Clock()


def maintain(directory: LogDirectory, now_ms: int) -> None:
    """Both clocks show `now_ms`: do what is due."""
    clock.now = now_ms / 1000
    directory.maintain(now_ms)


def broker_config(**given: str) -> Config:
    """A broker's configuration; `log_segment_bytes="100"` is ``log.segment.bytes``."""
    return Config(BROKER_KEYS, {name.replace("_", "."): value for name, value in given.items()})


def topic_config(overrides: Mapping[str, str] | None = None, config: Config | None = None) -> TopicConfig:
    return TopicConfig(config or broker_config(), overrides or {}, TOPIC_KEYS)


def open_directory(
    files: MemoryFiles, config: Config | None = None, *, now_ms: int = 0, node_id: int = 1
) -> LogDirectory:
    """A log directory in memory that runs background work at once, with the same ids in every run."""
    clock.now = now_ms / 1000
    return LogDirectory.open(
        ROOT,
        config or broker_config(),
        node_id=node_id,
        now_ms=now_ms,
        files=files,
        background=Inline(),
        random_bytes=random.Random(1).randbytes,
        now=clock,
    )


def new_log(files: MemoryFiles | None = None, overrides: Mapping[str, str] | None = None, now_ms: int = 0) -> Log:
    """An empty log in a directory of its own."""
    return open_directory(files or MemoryFiles()).create(TP, TOPIC_ID, topic_config(overrides), now_ms)


def close(log: Log) -> None:
    """Sync and close a log, as its directory does."""
    sync = log.finish()
    if sync is not None:
        sync()
        log.flusher.all_synced()
    log.close()


def batch(
    *values: bytes | None,
    timestamp: int = 1000,
    step: int = 1,
    producer: tuple[int, int, int] | None = None,
    compression: str = "none",
    keys: Iterable[bytes | None] | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A batch of values; `producer` is (id, epoch, first sequence)."""
    keys = [None] * len(values) if keys is None else list(keys)
    producer_id, producer_epoch, sequence = producer or (-1, -1, -1)
    return build_batch(
        [(key, value, (), timestamp + n * step) for n, (key, value) in enumerate(zip(keys, values, strict=True))],
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        transactional=transactional,
    )


def read_records(
    log: Log, start: int | None = None, max_bytes: int = 1 << 20, up_to: int | None = None
) -> list[Record]:
    """Everything that a consumer reads from `start` on."""
    offset = log.log_start_offset if start is None else start
    up_to = log.log_end_offset if up_to is None else up_to
    records: list[Record] = []
    while offset < up_to:
        buffers = log.read(offset, max_bytes, up_to, min_one=True)
        if not buffers:
            break
        for header, data in iter_batches(joined(buffers)):
            records += [record for record in decode_records(data) if record.offset >= offset]
            offset = header.next_offset
    return records


def read_around_damage(log: Log, max_bytes: int) -> tuple[list[Record], set[int]]:
    """What a consumer reads that goes on after damage, and the offsets that it cannot read."""
    offset, records = log.log_start_offset, []
    lost: set[int] = set()
    while offset < log.log_end_offset:
        try:
            buffers = log.read(offset, max_bytes, log.log_end_offset, min_one=True)
        except DamagedLog as error:
            lost.update(range(offset, error.damage.next_offset))
            offset = error.damage.next_offset
            continue
        for header, data in iter_batches(joined(buffers)):
            records += [record for record in decode_records(data) if record.offset >= offset]
            offset = header.next_offset
    return records, lost


def values(log: Log, start: int | None = None, max_bytes: int = 1 << 20) -> list[bytes | None]:
    return [record.value for record in read_records(log, start, max_bytes)]


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing, as all of a log's do with :class:`Inline`."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the coroutine waits")


def zip_bomb(size: int, *, key: bytes | None = b"k") -> bytes:
    """A sound batch of one record of `size` zeros, in a few kilobytes of zstd."""
    return bytes(build_batch([(key, bytes(size), (), 1000)], compression="zstd"))
