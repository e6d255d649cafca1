"""The scheduler and the tracker: properties over random lives, and the cases that are easy to get wrong."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_client import ConsumerRecord, TopicPartition
from barnabas_client.consumer.parallel.work import Job, Order, Scheduler, Tracker, Verdict
from barnabas_protocol.backoff import Backoff

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def record(partition: TopicPartition, offset: int, key: Any = None, value: bytes = b"") -> ConsumerRecord:
    return ConsumerRecord(*partition, offset, 0, 0, key, value, ())


def scheduler(
    order: Order = Order.NONE,
    concurrency: int = 100,
    retries: int = 0,
    most: int = 1000,
    batch_size: int = 1,
    batch_timeout: float = 0.0,
) -> Scheduler:
    return Scheduler(order, concurrency, retries, lambda: Backoff(1.0, 4.0), most, 1000, batch_size, batch_timeout)


def offsets(jobs: Sequence[Job]) -> list[int]:
    return [job.record.offset for job in jobs]


class Lives(RuleBasedStateMachine):
    """A scheduler beside a model of what was polled, handled and committed.

    The model knows for each partition what a reader that crashed now would have to read again: everything polled since
    the partition came that is not finished.
    """

    @initialize(
        order=st.sampled_from(Order),
        concurrency=st.integers(1, 4),
        retries=st.integers(0, 2),
        most=st.integers(1, 12),
        batch_size=st.integers(1, 3),
        batch_timeout=st.sampled_from((0.0, 2.0)),
    )
    def begin(
        self, order: Order, concurrency: int, retries: int, most: int, batch_size: int, batch_timeout: float
    ) -> None:
        self.order, self.concurrency, self.retries, self.most = order, concurrency, retries, most
        self.batch_size, self.batch_timeout = batch_size, batch_timeout
        self.scheduler = scheduler(order, concurrency, retries, most, batch_size, batch_timeout)
        self.now = 0.0
        self.next = {A: 0, B: 0}
        self.unfinished: dict[TopicPartition, set[int]] = {A: set(), B: set()}
        self.running: list[Job] = []
        self.begun: dict[Any, int] = {}  # the last offset begun, by what must keep its order
        self.held: set[TopicPartition] = set()
        self.dying: set[Job] = set()
        self.stale: set[Job] = set()  # of partitions that have gone meanwhile

    def lane(self, job: Job) -> Any:
        if self.order is Order.PARTITION:
            return job.partition
        return (job.partition, job.record.key) if self.order is Order.KEY and job.record.key is not None else None

    @rule(partition=st.sampled_from((A, B)), steps=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2))))
    def poll(self, partition: TopicPartition, steps: list[tuple[int, int]]) -> None:
        room = self.scheduler.divide(2)
        if partition in self.held or self.scheduler.full(partition):
            return
        taken = []
        for gap, key in steps[:room]:
            offset = self.next[partition] + gap - 1  # compaction leaves gaps
            taken.append(record(partition, offset, bytes([key]) if key else None))
            self.next[partition] = offset + 1
            self.unfinished[partition].add(offset)
        self.scheduler.add(partition, taken, self.now)

    @rule(passed=st.floats(0, 3))
    def start(self, passed: float) -> None:
        self.now += passed
        for job in self.scheduler.start(self.now):
            lane = self.lane(job)
            assert 1 <= len(job.records) <= self.batch_size
            assert {one.topic_partition for one in job.records} == {job.partition}
            assert [one.offset for one in job.records] == sorted({one.offset for one in job.records})
            if self.order is Order.KEY:
                assert len({one.key for one in job.records}) == 1
            if len(job.records) < self.batch_size and self.batch_size > 1:
                assert self.now >= job.due
            if lane is not None:
                assert lane not in [self.lane(other) for other in self.running]
                if job.attempts == 1:
                    assert self.begun.get(lane, -1) < job.record.offset
                else:
                    assert self.begun[lane] == job.records[-1].offset
                self.begun[lane] = job.records[-1].offset
            assert job.partition not in self.held
            assert 1 <= job.attempts <= self.retries + 1
            self.running.append(job)
        assert len(self.running) <= self.concurrency

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running))
        self.running.remove(job)
        if job not in self.stale:
            self.unfinished[job.partition].difference_update(one.offset for one in job.records)
        self.scheduler.finished(job)

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.running))
        if job in self.dying:
            return
        verdict = self.scheduler.failed(job, self.now)
        if job in self.stale or job.partition in self.held:
            assert verdict is Verdict.DROPPED
            self.running.remove(job)
        elif job.attempts > self.retries:
            assert verdict is Verdict.GIVE_UP
            self.dying.add(job)  # its dead letter is being written
        else:
            assert verdict is Verdict.RETRY
            self.running.remove(job)

    @rule(partition=st.sampled_from((A, B)))
    def hold(self, partition: TopicPartition) -> None:
        still = self.scheduler.hold([partition])
        assert set(still) == {job for job in self.running if job.partition == partition}
        self.held.add(partition)

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data())
    def revoked_and_back(self, data: st.DataObject) -> None:
        """It is revoked, and assigned again at its committed offset."""
        partition = data.draw(st.sampled_from(sorted(self.held)))
        committed = self.scheduler.committable().get(partition)
        self.scheduler.forget([partition])
        self.held.discard(partition)
        self.stale |= {job for job in self.running if job.partition == partition}
        open_offsets = self.unfinished[partition]
        if committed is not None:
            assert not [one for one in open_offsets if one < committed]
            self.next[partition] = committed
        elif open_offsets:
            self.next[partition] = min(open_offsets)
        self.unfinished[partition] = set()
        self.begun = {lane: last for lane, last in self.begun.items() if partition not in (lane, lane[0])}

    @rule(partition=st.sampled_from((A, B)), back=st.integers(0, 5))
    def seek_back(self, partition: TopicPartition, back: int) -> None:
        to = max(0, self.next[partition] - 1 - back)
        if partition in self.held or not self.next[partition] or self.scheduler.full(partition):
            return
        if partition not in self.scheduler.partitions:
            return
        self.scheduler.add(partition, [record(partition, to)], self.now)
        self.stale |= {job for job in self.running if job.partition == partition}
        self.unfinished[partition] = {to}
        self.next[partition] = to + 1
        self.begun = {lane: last for lane, last in self.begun.items() if partition not in (lane, lane[0])}

    @invariant()
    def nothing_is_committed_past_an_unfinished_record(self) -> None:
        for partition, offset in self.scheduler.committable().items():
            assert offset <= min(self.unfinished[partition], default=self.next[partition])

    @invariant()
    def another_run_goes_on_at_the_first_unfinished_record(self) -> None:
        for partition, offset in self.scheduler.unfinished().items():
            assert offset == min(self.unfinished[partition])

    @invariant()
    def no_partition_takes_more_than_its_share(self) -> None:
        for tracker in self.scheduler._trackers.values():
            assert tracker.window <= max(1, self.most // 2)

    def teardown(self) -> None:
        """In the end all records are handled: none is left in a lane or waits for a retry."""
        if not hasattr(self, "running"):
            return
        for partition in list(self.held):
            self.scheduler.forget([partition])
            self.unfinished[partition] = set()
        for _ in range(10_000):
            for job in self.running:
                if job not in self.stale:
                    self.unfinished[job.partition].difference_update(one.offset for one in job.records)
                self.scheduler.finished(job)
            self.running = []
            self.now += 10
            self.start(0)
            if not self.running:
                break
        assert self.unfinished == {A: set(), B: set()}
        assert not self.scheduler._lanes
        assert not self.scheduler._filling
        assert all(not tracker.size for tracker in self.scheduler._trackers.values())


TestLives = pytest.mark.broad(Lives.TestCase)
TestLives.settings = settings(max_examples=150, stateful_step_count=40)


def test_a_tracker_refuses_smaller_offsets() -> None:
    tracker = Tracker()
    tracker.begin(5)
    with pytest.raises(ValueError, match="offset 5 after 5"):
        tracker.begin(5)


def test_only_contiguous_offsets_are_committable() -> None:
    tracker = Tracker()
    for offset in (3, 4, 8):
        tracker.begin(offset)
    assert (tracker.committable, tracker.position) == (None, 3)
    tracker.finish(4)
    assert (tracker.committable, tracker.position) == (None, 3)
    tracker.finish(3)
    assert (tracker.committable, tracker.position) == (5, 8)
    tracker.finish(8)
    assert (tracker.committable, tracker.position, tracker.window) == (9, 9, 0)


def test_a_retry_delays_only_its_own_key() -> None:
    s = scheduler(Order.KEY, concurrency=1, retries=1)
    s.add(A, [record(A, 0, b"x"), record(A, 1, b"x"), record(A, 2, b"y")])
    (job,) = s.start(0.0)
    assert s.failed(job, 0.0) is Verdict.RETRY
    assert s.next_deadline() == 1.0
    (other,) = s.start(0.0)
    assert other.record.offset == 2
    s.finished(other)
    assert s.start(0.5) == []
    (again,) = s.start(1.0)
    assert again is job and again.attempts == 2
    s.finished(again)
    assert offsets(s.start(1.0)) == [1]
    assert s.committable() == {A: 1}


def test_records_without_a_key_have_no_lane_and_unhashable_keys_have_one() -> None:
    s = scheduler(Order.KEY)
    s.add(A, [record(A, 0), record(A, 1), record(A, 2, ["no", "hash"]), record(A, 3, {"neither": 1})])
    assert offsets(s.start(0.0)) == [0, 1, 2]


def test_a_partition_that_is_assigned_again_waits_for_running_jobs() -> None:
    """A function in a thread cannot be stopped: nothing of its lane runs beside it."""
    s = scheduler(Order.PARTITION)
    s.add(A, [record(A, 0)])
    (late,) = s.start(0.0)
    s.hold([A])
    s.forget([A])
    s.add(A, [record(A, 0)])
    assert s.start(0.0) == []
    s.finished(late)
    assert s.committable() == {}
    assert offsets(s.start(0.0)) == [0]


def test_bytes_in_flight_are_limited() -> None:
    s = scheduler()
    s.divide(1)
    s.add(A, [record(A, 0, value=b"x" * 1000)])
    assert s.full(A) and not s.drained(A)
    assert not s.full(B) and s.drained(B)
    s.finished(s.start(0.0)[0])
    assert not s.full(A) and s.drained(A)


def batches(jobs: Sequence[Job]) -> list[list[int]]:
    return [[one.offset for one in job.records] for job in jobs]


def test_a_batch_has_what_was_polled_when_a_handler_is_free() -> None:
    s = scheduler(Order.PARTITION, concurrency=1, batch_size=3)
    s.add(A, [record(A, 0)])
    (first,) = s.start(0.0)
    s.add(A, [record(A, offset) for offset in range(1, 6)])
    assert s.start(0.0) == []
    s.finished(first)
    (second,) = s.start(0.0)
    s.finished(second)
    (third,) = s.start(0.0)
    assert batches([first, second, third]) == [[0], [1, 2, 3], [4, 5]]
    assert s.committable() == {A: 4}
    s.finished(third)
    assert s.committable() == {A: 6}


def test_an_incomplete_batch_waits_for_more() -> None:
    s = scheduler(Order.PARTITION, batch_size=2, batch_timeout=5.0)
    s.add(A, [record(A, 0)], 10.0)
    assert s.start(10.0) == []
    assert s.next_deadline() == 15.0
    s.add(A, [record(A, 1), record(A, 2)], 11.0)
    (full,) = s.start(11.0)
    s.finished(full)
    assert s.start(15.9) == []
    assert s.next_deadline() == 16.0
    assert batches([full, *s.start(16.0)]) == [[0, 1], [2]]


def test_a_batch_is_retried_as_a_whole() -> None:
    s = scheduler(Order.PARTITION, retries=1, batch_size=2)
    s.add(A, [record(A, 0), record(A, 1), record(A, 2)])
    (job,) = s.start(0.0)
    assert s.failed(job, 0.0) is Verdict.RETRY
    s.add(A, [record(A, 3)])
    assert batches(s.start(1.0)) == [[0, 1]]
