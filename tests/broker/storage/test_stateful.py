"""Random operations on a log, compared with a model that is a list."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage import AppendInfo, Log, LogDirectory
from barnabas_broker.storage.inspect import check
from barnabas_broker.storage.names import DAMAGED
from barnabas_broker.storage.scan import LONG_MAX, BadBatch, find_sound
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.support import (
    ROOT,
    TOPIC_ID,
    TP,
    at_once,
    batch,
    broker_config,
    maintain,
    open_directory,
    read_around_damage,
    topic_config,
)

pytestmark = pytest.mark.broad

CONFIG = broker_config(log_index_interval_bytes="150")
PRODUCER = 8


class Batch(NamedTuple):
    """A batch of the model; without `values` it is a range of offsets that a crash has damaged."""

    first: int
    next: int
    values: Sequence[bytes] = ()
    timestamp: int = 0
    sequence: int = 0


class LogMachine(RuleBasedStateMachine):
    """The model: the batches in the files of the log, where the log starts, and what has to survive a crash."""

    directory: LogDirectory
    log: Log

    @initialize(segment_bytes=st.sampled_from([400, 1000, 100_000]), messages=st.sampled_from(["1", "1000000"]))
    def begin(self, segment_bytes: int, messages: str) -> None:
        self.files = MemoryFiles()
        self.overrides = {"segment.bytes": str(segment_bytes), "flush.messages": messages, "retention.bytes": "900"}
        self.batches: list[Batch] = []
        #: What retention has removed: a crash may bring it back.
        self.removed: list[Batch] = []
        self.start = 0
        #: A start after a crash is not before this one.
        self.kept_start = 0
        #: No record before this offset is lost in a crash.
        self.synced = 0
        self.aside: set[Path] = set()
        self.now = 0
        self.open()

    def open(self) -> None:
        self.directory = open_directory(self.files, CONFIG, now_ms=self.now)
        self.log = self.directory.create(TP, TOPIC_ID, topic_config(self.overrides, CONFIG), self.now)
        self.log.set_high_watermark(self.log.log_end_offset)

    @property
    def end(self) -> int:
        return self.batches[-1].next if self.batches else self.start

    @property
    def sequence(self) -> int:
        """The next sequence of the producer. The log must know it, unless no record of its last batch is left."""
        written = [each for each in self.removed + self.batches if each.values]
        state = self.log.producers.states.get(PRODUCER)
        if state is None:
            assert not written or written[-1].next <= self.start
            return 0
        known, last = state.batches[-1], written[-1]
        assert (known.first_offset, known.last_offset, known.first_sequence) == (
            last.first,
            last.next - 1,
            last.sequence,
        )
        return known.last_sequence + 1

    def append_batch(self, values: Sequence[bytes], timestamp: int, sequence: int) -> AppendInfo:
        records = batch(*values, timestamp=timestamp, producer=(PRODUCER, 0, sequence))
        return self.log.append_as_leader(records, leader_epoch=0, now_ms=self.now)

    @rule(values=st.lists(st.binary(max_size=120), min_size=1, max_size=4), timestamp=st.integers(0, 500))
    def append(self, values: list[bytes], timestamp: int) -> None:
        if sum(map(len, values)) > 250:
            values = values[:1]
        first, sequence = self.end, self.sequence
        info = self.append_batch(values, timestamp, sequence)
        assert (info.first_offset, info.last_offset, info.duplicate) == (first, first + len(values) - 1, False)
        self.batches.append(Batch(first, first + len(values), values, timestamp, sequence))
        self.log.set_high_watermark(self.log.log_end_offset)
        if self.overrides["flush.messages"] == "1":
            self.synced = self.end

    @precondition(lambda self: self.sequence)
    @rule()
    def append_again(self) -> None:
        last = next(each for each in reversed(self.removed + self.batches) if each.values)
        info = self.append_batch(last.values, last.timestamp, last.sequence)
        assert (info.first_offset, info.duplicate) == (last.first, True)

    @precondition(lambda self: self.sequence)
    @rule()
    def append_out_of_order(self) -> None:
        with pytest.raises(KafkaError) as caught:
            self.append_batch([b"x"], 0, self.sequence + 1)
        assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        """To any offset, also inside a batch, or before the start of the log."""
        offset = max(self.end - back, 0)
        self.log.truncate_to(offset)
        if offset < self.end:
            while offset > self.start and self.batches[-1].next > offset:
                offset = min(self.batches.pop().first, offset)
            if offset <= self.start:
                self.batches, self.removed, self.start = [], [], offset
        self.kept_start = min(self.kept_start, self.start)
        self.synced = min(self.synced, self.end)

    @rule(where=st.floats(0, 1))
    def delete_records(self, where: float) -> None:
        offset = self.start + int((self.end - self.start) * where)
        assert self.log.delete_records(offset) == offset
        self.start = self.kept_start = offset
        self.directory.checkpoint()

    @rule()
    def retain(self) -> None:
        self.log.retain(self.now)
        self.follow()

    def follow(self) -> None:
        """Retention may have moved the start of the log."""
        assert self.log.log_start_offset >= self.start
        self.start = self.log.log_start_offset
        kept = [each for each in self.batches if each.next > self.log.segments.first_offset]
        self.removed += self.batches[: len(self.batches) - len(kept)]
        self.batches = kept
        if not self.batches:
            self.start = self.log.log_end_offset

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.synced = self.end

    @rule(ms=st.sampled_from([10, 61_000, 400_000]))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        maintain(self.directory, self.now)
        self.follow()

    @rule()
    def close_and_open(self) -> None:
        self.directory.close(self.now)
        self.synced, self.kept_start = self.end, self.start
        self.open()
        assert self.directory.was_clean

    @rule()
    def kill_and_open(self) -> None:
        self.files = self.files.kill()
        self.open()
        # Damage at which a truncation has ended the log is set aside, and its offsets are given to new records.
        while self.batches and not self.batches[-1].values and self.batches[-1].next > self.log.log_end_offset:
            self.batches.pop()
            assert self.end >= self.synced
        self.check_aside()

    @rule(seed=st.integers(0, 2**32))
    def crash_and_open(self, seed: int) -> None:
        self.files = self.files.crash(random.Random(seed))
        self.open()
        log = self.log
        assert log.log_end_offset >= self.synced
        assert self.kept_start <= log.log_start_offset <= self.start
        # Segments that retention has removed may be there again; what was cut off may not.
        back = [each for each in self.removed if each.next > log.segments.first_offset]
        self.removed = self.removed[: len(self.removed) - len(back)]
        self.batches = back + self.batches
        self.start = log.log_start_offset
        # Pages reach the disk in any order: sound batches may follow what was lost, which is never synced data.
        lost = [(each.offset, each.next_offset) for each in log.damage]
        for first, following in lost:
            at = [n for n, each in enumerate(self.batches) if first < each.next and each.first < following]
            assert all(first <= self.batches[n].first and self.batches[n].next <= following for n in at)
            # An earlier crash may have taken some of them.
            assert all(max(self.batches[n].first, self.start) >= self.synced for n in at if self.batches[n].values)
            self.batches[at[0] : at[-1] + 1] = [Batch(first, following)]
        self.batches = [each for each in self.batches if each.next <= log.log_end_offset]
        if not self.batches or self.end < self.start:
            # All that is left is before the start: it was set aside.
            self.batches, self.start = [], log.log_end_offset
        self.check_aside()
        self.synced = min(self.synced, self.end)
        if self.overrides["flush.messages"] == "1":
            self.synced = self.end

    def check_aside(self) -> None:
        """What recovery has set aside after a crash is no sound batch of the log."""
        for name in self.files.names(self.log.path):
            path = self.log.path / name
            if name.endswith(DAMAGED) and path not in self.aside:
                self.aside.add(path)
                handle = self.files.open(path)
                everything = BadBatch(-1, 0, None, "")
                size = self.files.size(handle)
                found = find_sound(self.files, handle, everything, end=size, low=self.start, limit=LONG_MAX)
                assert found is None

    @invariant()
    def same(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert self.sequence >= 0
        expected = [
            (each.first + n, value, each.timestamp + n)
            for each in self.batches
            for n, value in enumerate(each.values)
            if each.first + n >= self.start
        ]
        for max_bytes in (1, 300, 10_000):
            got, lost = read_around_damage(log, max_bytes)
            assert [(r.offset, r.value, r.timestamp) for r in got] == expected
            assert {r.offset for r in got} | lost == set(range(self.start, self.end))
        for timestamp in (0, 250, 400):
            found = at_once(log.offset_for_timestamp(timestamp))
            first = next(((t, offset) for offset, _, t in expected if t >= timestamp), None)
            assert (None if found is None else found[:2]) == first

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.directory.close(self.now)
            for problem in check(ROOT, files=self.files).problems:
                if problem.file.name.endswith(DAMAGED):
                    assert problem.file in self.aside
                else:
                    # What is damaged is known, or no longer in the log.
                    lost = [each for each in self.batches if not each.values]
                    assert problem.offset < self.start or any(x.first <= problem.offset < x.next for x in lost)


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestLogMachine = LogMachine.TestCase
