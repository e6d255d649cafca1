"""Random operations on a log, compared with a model that is a list."""

import random
from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_broker.storage import Log, LogDirectory
from barnabas_broker.storage.inspect import check
from barnabas_broker.storage.memory_files import MemoryFiles
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.support import (
    ROOT,
    TOPIC_ID,
    TP,
    batch,
    broker_config,
    open_directory,
    read_records,
    topic_config,
)

pytestmark = pytest.mark.broad

CONFIG = broker_config(log_index_interval_bytes="150")
PRODUCER = 8


class LogMachine(RuleBasedStateMachine):
    """The model: batches of values with their offsets and timestamps, where the log starts, what is synced."""

    directory: LogDirectory
    log: Log

    @initialize(segment_bytes=st.sampled_from([400, 1000, 100_000]), messages=st.sampled_from(["1", "1000000"]))
    def begin(self, segment_bytes: int, messages: str) -> None:
        self.files = MemoryFiles()
        self.overrides = {"segment.bytes": str(segment_bytes), "flush.messages": messages, "retention.bytes": "900"}
        self.batches: list[tuple[int, list[bytes], int, int]] = []
        self.start = 0
        self.synced = 0
        self.now = 0
        self.open()

    def open(self) -> None:
        self.directory = open_directory(self.files, CONFIG, now_ms=self.now)
        self.log = self.directory.create(TP, TOPIC_ID, topic_config(self.overrides, CONFIG), self.now)
        self.log.set_high_watermark(self.log.log_end_offset)

    @property
    def end(self) -> int:
        return self.batches[-1][0] + len(self.batches[-1][1]) if self.batches else self.start

    @property
    def sequence(self) -> int:
        """The next sequence of the producer."""
        if self.batches and self.knows_producer():
            return self.batches[-1][3] + len(self.batches[-1][1])
        return 0

    def knows_producer(self) -> bool:
        """Whether the log has the producer's last batch: not if it is before the log start offset."""
        state = self.log.producers.states.get(PRODUCER)
        if state is None or not state.batches:
            assert not self.batches or self.batches[-1][0] < self.start
            return False
        assert state.batches[-1].last_offset + 1 == self.end
        return True

    def records(self) -> Iterator[tuple[int, bytes, int]]:
        for first, values, timestamp, _ in self.batches:
            for n, value in enumerate(values):
                if first + n >= self.start:
                    yield first + n, value, timestamp + n

    @rule(values=st.lists(st.binary(max_size=120), min_size=1, max_size=4), timestamp=st.integers(0, 500))
    def append(self, values: list[bytes], timestamp: int) -> None:
        if sum(map(len, values)) > 250:
            values = values[:1]
        first, sequence = self.end, self.sequence
        info = self.log.append_as_leader(
            batch(*values, timestamp=timestamp, producer=(PRODUCER, 0, sequence)), leader_epoch=0, now_ms=self.now
        )
        assert (info.first_offset, info.last_offset, info.duplicate) == (first, first + len(values) - 1, False)
        self.batches.append((first, values, timestamp, sequence))
        self.log.set_high_watermark(self.log.log_end_offset)
        if self.overrides["flush.messages"] == "1":
            self.synced = self.end

    @precondition(lambda self: self.batches and self.knows_producer())
    @rule()
    def append_again(self) -> None:
        first, values, timestamp, sequence = self.batches[-1]
        info = self.log.append_as_leader(
            batch(*values, timestamp=timestamp, producer=(PRODUCER, 0, sequence)), leader_epoch=0, now_ms=self.now
        )
        assert (info.first_offset, info.duplicate) == (first, True)

    @precondition(lambda self: self.batches and self.knows_producer())
    @rule()
    def append_out_of_order(self) -> None:
        early = batch(b"x", producer=(PRODUCER, 0, self.sequence + 1))
        with pytest.raises(KafkaError) as caught:
            self.log.append_as_leader(early, leader_epoch=0, now_ms=self.now)
        assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(back=st.integers(0, 3))
    def truncate(self, back: int) -> None:
        for _ in range(min(back, len(self.batches))):
            if self.batches[-1][0] < self.start:
                break
            self.batches.pop()
        self.log.truncate_to(self.end)
        self.synced = min(self.synced, self.end)

    @rule(where=st.floats(0, 1))
    def delete_records(self, where: float) -> None:
        offset = self.start + int((self.end - self.start) * where)
        assert self.log.delete_records(offset) == offset
        self.start = offset
        self.directory.checkpoint()

    @rule()
    def retain(self) -> None:
        self.log.retain(self.now)
        self.follow()

    def follow(self) -> None:
        """Retention may have moved the start of the log."""
        assert self.log.log_start_offset >= self.start
        self.start = self.log.log_start_offset
        self.batches = [each for each in self.batches if each[0] + len(each[1]) > self.log.segments.first_offset]
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
        self.directory.maintain(self.now)
        self.follow()

    @rule()
    def close_and_open(self) -> None:
        self.directory.close(self.now)
        self.synced = self.end
        self.open()
        assert self.directory.was_clean

    @rule()
    def kill_and_open(self) -> None:
        self.files = self.files.kill()
        before = self.start
        self.open()
        # The log start offset is in a checkpoint, which may be older; never older than the first segment.
        self.start = self.log.log_start_offset
        assert self.start <= before

    @rule(seed=st.integers(0, 2**32))
    def crash_and_open(self, seed: int) -> None:
        self.files = self.files.crash(random.Random(seed))
        self.open()
        assert self.log.log_end_offset >= self.synced
        end = self.log.log_end_offset
        while self.batches and self.end > end:
            self.batches.pop()
        self.start = self.log.log_start_offset
        if not self.batches:
            self.start = end
        assert self.end == end
        self.synced = end if self.overrides["flush.messages"] == "1" else min(self.synced, end)

    @invariant()
    def same(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        expected = list(self.records())
        for max_bytes in (1, 300, 10_000):
            got = [(r.offset, r.value, r.timestamp) for r in read_records(log, None, max_bytes)]
            assert got == expected
        for timestamp in (0, 250, 400):
            found = log.offset_for_timestamp(timestamp)
            first = next(((t, offset) for offset, _, t in expected if t >= timestamp), None)
            assert (None if found is None else found[:2]) == first

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.directory.close(self.now)
            assert check(ROOT, files=self.files).problems == []


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestLogMachine = LogMachine.TestCase
