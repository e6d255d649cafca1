"""Loads for the log's Python interface, in a new process and without a network; prints its measurements.

python -m tests.bench.loads.storage JOB FOLDER NUMBER ...

The jobs, each with its own folder: append SIZE MEGABYTES ROUNDS; durable PRODUCERS SECONDS; fill MEGABYTES; recover
FLUSH (1: flush and checkpoint afterwards); fetch READS; compact MEGABYTES; feed MEGABYTES ROUNDS. `fill` and `recover`
end like a crash: they close nothing. `drain PORT BYTES ROUNDS` is the receiver of `feed`.
"""

import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import quantiles
from typing import Final

import uvloop

from barnabas_broker.files import RealFiles
from barnabas_broker.storage import Background, Inline, Log, LogDirectory, Threads, TopicPartition
from barnabas_protocol.records.builder import build_batch
from tests.bench.loads.storage_feed import drain, feed
from tests.broker.storage.support import broker_config, topic_config

NOW: Final = 1_700_000_000_000
TP: Final = TopicPartition("bench", 0)
TOPIC_ID: Final = bytes(range(16))
MB: Final = 1_000_000
RECORD: Final = 1000
#: Batch size of the large partition: a consumer's fetch of 64 KB holds several batches.
FILL_BATCH: Final = 16_000
FETCH: Final = 65_536

Measured = Mapping[str, list[float]]


class Unsynced(RealFiles):
    """Files whose sync does nothing, as for a log that crashes before its first flush."""

    def sync(self, handle: int) -> None:
        pass


def batch_of(size: int) -> bytes:
    """Return a batch of about `size` bytes, with records of 1000 bytes; a smaller batch has a single record."""
    values = [os.urandom(min(RECORD, size - 80))] * max(size // (RECORD + 10), 1)
    return bytes(build_batch([(None, value, (), NOW) for value in values]))


def opened(folder: Path, background: Background, *, synced: bool = True) -> LogDirectory:
    files = RealFiles() if synced else Unsynced()
    return LogDirectory.open(folder, broker_config(), node_id=1, now_ms=NOW, files=files, background=background)


def new_log(directory: LogDirectory, overrides: Mapping[str, str]) -> Log:
    return directory.create(TP, TOPIC_ID, topic_config(overrides), NOW)


def append(folder: Path, size: int, megabytes: int, rounds: int) -> Measured:
    """Return bytes per second of the log and of plain writes in turn, both into the page cache."""
    batch = batch_of(size)
    count = megabytes * MB // len(batch)
    measured: dict[str, list[float]] = {"log": [], "raw": []}
    # Warm-up: the first run also pays for memory that the system has to allocate.
    _write(folder / "raw", batch, count)
    _append(folder / "log", batch, min(count, 1000))
    for _ in range(rounds):
        measured["log"].append(count * len(batch) / _append(folder / "log", batch, count))
        measured["raw"].append(count * len(batch) / _write(folder / "raw", batch, count))
    return measured


def _append(folder: Path, batch: bytes, count: int) -> float:
    directory = opened(folder, Inline())
    log = new_log(directory, {"segment.bytes": str(2**31 - 1)})
    started = time.perf_counter()
    for _ in range(count):
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    seconds = time.perf_counter() - started
    if log.size != count * len(batch):
        raise RuntimeError(f"{log.size} bytes instead of {count * len(batch)}")
    # Unlink before close: otherwise close would sync the whole file to the disk.
    shutil.rmtree(folder)
    log.abandon()
    return seconds


def _write(path: Path, batch: bytes, count: int) -> float:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    started = time.perf_counter()
    for _ in range(count):
        os.write(handle, batch)
    seconds = time.perf_counter() - started
    path.unlink()
    os.close(handle)
    return seconds


def durable(folder: Path, producers: int, seconds: float) -> Measured:
    """Return appends per second if each producer waits for the sync; and of one loop of plain write and sync."""
    batch = batch_of(RECORD)
    log_rate = uvloop.run(_durable(folder / "log", batch, producers, seconds))
    handle = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        os.write(handle, batch)
        os.fsync(handle)
        count += 1
    os.close(handle)
    return {"log": [log_rate], "raw": [count / elapsed]}


async def _durable(folder: Path, batch: bytes, producers: int, seconds: float) -> float:
    directory = opened(folder, Threads())
    log = new_log(directory, {"flush.messages": "1"})
    count, started = 0, time.perf_counter()

    async def produce() -> None:
        nonlocal count
        while time.perf_counter() - started < seconds:
            info = log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
            if (synced := log.durable(info.last_offset)) is not None:
                await synced
            count += 1

    await asyncio.gather(*(produce() for _ in range(producers)))
    elapsed = time.perf_counter() - started
    directory.close(NOW)
    return count / elapsed


def fill(folder: Path, megabytes: int) -> Measured:
    """Write a large partition without flushes, and end as in a crash."""
    batch = batch_of(FILL_BATCH)
    log = new_log(opened(folder, Inline(), synced=False), {})
    started = time.perf_counter()
    while log.size < megabytes * MB:
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    return {"seconds": [time.perf_counter() - started]}


def recover(folder: Path, flush: int) -> Measured:
    """Return the seconds that opening the log takes, without the flush."""
    started = time.perf_counter()
    directory = opened(folder, Inline())
    seconds = time.perf_counter() - started
    log = directory.logs[TP]
    if directory.was_clean or not log.size:
        raise RuntimeError(f"not what a crash has left: {log}, clean: {directory.was_clean}")
    measured = {"seconds": [seconds], "bytes": [float(log.size)]}
    if flush:
        started = time.perf_counter()
        log.flush()
        directory.checkpoint()
        measured["flush"] = [time.perf_counter() - started]
    return measured


def fetch(folder: Path, reads: int) -> Measured:
    """Return median and 99th percentile in seconds of cached reads of 64 KB, at three positions."""
    log = opened(folder, Inline()).logs[TP]
    end = log.log_end_offset
    reach = min(reads * FETCH // RECORD, end // 4)
    measured: dict[str, list[float]] = {}
    for place, first in (("head", 0), ("middle", (end - reach) // 2), ("tail", end - reach)):
        offsets = [random.randrange(first, first + reach - 2 * FETCH // RECORD) for _ in range(reads)]
        for timed in (False, True):
            took = []
            for offset in offsets:
                started = time.perf_counter()
                buffers = log.read(offset, FETCH, end, min_one=True)
                took.append(time.perf_counter() - started)
                # A read at the end of a segment returns less.
                if not buffers or not buffers[0]:
                    raise RuntimeError(f"nothing at {offset}")
            if timed:
                percentiles = quantiles(took, n=100)
                measured[place] = [percentiles[49], percentiles[98]]
    return measured


def compact(folder: Path, megabytes: int) -> Measured:
    """Return bytes per second of closed segments that one round of the cleaner reads, including its fsync."""
    directory = opened(folder, Inline())
    log = new_log(directory, {"cleanup.policy": "compact", "segment.bytes": str(min(64, megabytes // 4) * MB)})
    chance = random.Random(1)
    value = os.urandom(RECORD)
    # Every key occurs many times; most records that remain are in the last quarter.
    cycle = megabytes * MB // 4 // (16 * RECORD)
    batches = [
        bytes(build_batch([(b"%010d" % chance.randrange(16 * cycle), value, (), NOW) for _ in range(16)]))
        for _ in range(cycle)
    ]
    for n in range(4 * cycle):
        log.append_as_leader(batches[n % cycle], leader_epoch=0, now_ms=NOW)
    log.set_high_watermark(log.log_end_offset)
    log.flush()
    directory.checkpoint()
    before = log.size
    closed = before - log.segments.active.size
    started = time.perf_counter()
    if not directory.compact(NOW):
        raise RuntimeError("nothing to compact")
    seconds = time.perf_counter() - started
    if log.size >= before:
        raise RuntimeError("nothing was compacted")
    return {"log": [closed / seconds], "left": [(log.size - (before - closed)) / closed]}


def fed(folder: Path, megabytes: int, rounds: int) -> Measured:
    """Return bytes per second and processor seconds per GB, of both ways in turn."""
    path = folder / "fed"
    path.write_bytes(os.urandom(64 * 2**20))
    size = megabytes * 2**20
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        port = server.getsockname()[1]
        command = [sys.executable, "-m", "tests.bench.loads.storage", "drain", ".", str(port), str(size), str(rounds)]
        with subprocess.Popen(command) as drainer:
            try:
                return feed(server, path, size, rounds)
            finally:
                drainer.terminate()


def drained(_: Path, port: int, size: int, rounds: int) -> Measured:
    drain(port, size, rounds)
    return {}


JOBS: Final[Mapping[str, Callable[..., Measured]]] = {
    "append": append,
    "durable": durable,
    "fill": fill,
    "recover": recover,
    "fetch": fetch,
    "compact": compact,
    "feed": fed,
    "drain": drained,
}


def main(job: str, folder: str, *numbers: str) -> None:
    measured = JOBS[job](Path(folder), *map(int, numbers))
    if measured:
        print(json.dumps(measured), flush=True)
    # End like a crash: no destructor runs.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
