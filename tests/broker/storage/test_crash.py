"""Crash at every write, truncation, sync and rename of a workload: exactly the acknowledged records survive."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from barnabas_broker.config import Config
from barnabas_broker.memory_files import Crash, MemoryFiles
from barnabas_broker.storage import Log
from tests.broker.storage.support import (
    TOPIC_ID,
    TP,
    at_once,
    batch,
    broker_config,
    maintain,
    open_directory,
    read_around_damage,
    read_records,
    topic_config,
)
from tests.sampling import slow_except

pytestmark = pytest.mark.broad

SEED = random.SystemRandom().randrange(2**32)
PRODUCER = 77


class Model:
    """The appended values by offset, and the acknowledged ones."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.durable = 0  # everything before it must survive the machine
        self.start = 0  # the log may begin at any offset up to this

    def append(self, log: Log, count: int, leader_epoch: int) -> None:
        first = len(self.values)
        new = [b"%06d" % (first + n) * (n % 5 + 20) for n in range(count)]
        self.values += new
        # An append in progress may or may not survive a crash; an acknowledged one must.
        log.append_as_leader(
            batch(*new, timestamp=first, producer=(PRODUCER, 0, first)), leader_epoch=leader_epoch, now_ms=first
        )
        log.set_high_watermark(log.log_end_offset)


def workload(files: MemoryFiles, config: Config, model: Model, *, each_is_durable: bool) -> None:
    rng = random.Random(5)
    now = 0
    for life in range(2):
        directory = open_directory(files, config, now_ms=now)
        log = directory.create(TP, TOPIC_ID, topic_config({"file.delete.delay.ms": "5"}, config), now)
        for step in range(12):
            now += 10
            model.append(log, rng.randrange(1, 6), leader_epoch=life)
            if each_is_durable:
                model.durable = len(model.values)
            if step % 5 == 3:
                log.flush()
                model.durable = len(model.values)
            if step % 6 == 4:
                model.start = max(model.start, log.high_watermark - 20)
                log.delete_records(model.start)
                log.retain(now)
            if step % 4 == 0:
                now += 60_000
            maintain(directory, now)
        directory.close(now)
        model.durable = len(model.values)


def check(files: MemoryFiles, config: Config, model: Model, durable: int) -> None:
    directory = open_directory(files, config, now_ms=10_000)
    log = directory.logs.get(TP)
    if log is None:
        assert durable == 0
        log = directory.create(TP, TOPIC_ID, topic_config(None, config), 10_000)
    records, lost = read_around_damage(log, 200)
    at = log.log_end_offset
    assert log.log_start_offset <= max(model.start, durable)
    # Nothing is lost in silence, and nothing that was acknowledged is lost at all.
    assert {record.offset for record in records} | lost == set(range(log.log_start_offset, at))
    assert all(record.value == model.values[record.offset] for record in records)
    assert min(lost, default=at) >= durable
    # The producer continues where the log ends: its batch is neither rejected nor a duplicate.
    state = log.producers.states.get(PRODUCER)
    if state is not None and at - 1 not in lost:
        assert state.last_sequence == at - 1
    sequence = state.last_sequence + 1 if state is not None else 0
    info = log.append_as_leader(
        batch(b"after", timestamp=at, producer=(PRODUCER, 0, sequence)), leader_epoch=9, now_ms=10_000
    )
    assert (info.first_offset, info.duplicate) == (at, False)
    for record in records[::7]:
        found = at_once(log.offset_for_timestamp(record.timestamp))
        assert found is not None and found[1] == record.offset
    directory.close(10_000)
    again = open_directory(files, config, now_ms=10_000).logs[TP]
    assert again.log_end_offset == at + 1
    assert read_records(again, at)[0].value == b"after"


@contextmanager
def explained(seed: int, step: int, files: MemoryFiles) -> Iterator[None]:
    try:
        yield
    except BaseException:
        print(f"seed {seed}, crash at step {step}: {files.log[-3:]}")
        raise


def steps_of(run: Callable[[MemoryFiles], None]) -> int:
    files = MemoryFiles()
    run(files)
    return files.steps


SETTINGS = {
    "page cache": ({"log_segment_bytes": "2500"}, False),
    "each append": ({"log_segment_bytes": "2500", "log_flush_interval_messages": "1"}, True),
    "small index interval": ({"log_segment_bytes": "4000", "log_index_interval_bytes": "100"}, False),
}


#: In each part, the crash comes at every fourth step.
PARTS = slow_except(range(4), 0)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", slow_except(SETTINGS, "page cache"))
def test_acknowledged_records_survive_a_crash_at_any_step(name: str, part: int) -> None:
    given, each = SETTINGS[name]
    config = broker_config(**given)
    total = steps_of(lambda files: workload(files, config, Model(), each_is_durable=each))
    assert total > 100
    for step in range(1 + part, total + 1, 4):
        files, model = MemoryFiles(), Model()
        files.crash_at = step
        with pytest.raises(Crash):
            workload(files, config, model, each_is_durable=each)
        for dealt in range(2):
            rng = random.Random(SEED + step * 10 + dealt)
            with explained(SEED, step, files):
                check(files.crash(rng, lose_all=dealt == 0), config, model, model.durable)


@pytest.mark.parametrize("part", PARTS)
def test_appended_records_survive_a_kill(part: int) -> None:
    config = broker_config(log_segment_bytes="2500")
    total = steps_of(lambda files: workload(files, config, Model(), each_is_durable=True))
    for step in range(1 + part, total + 1, 4):
        files, model = MemoryFiles(), Model()
        files.crash_at = step
        with pytest.raises(Crash):
            # The page cache survives the process, so each append survives.
            workload(files, config, model, each_is_durable=True)
        with explained(SEED, step, files):
            check(files.kill(), config, model, model.durable)
