"""Decides which records ``Consumer.run`` handles next, and which offsets it may commit. Pure.

Records that a poll returned become a :class:`Job`: each alone, or up to `batch_size` together. Jobs that must not
overtake each other form a **lane**: one lane for each partition, for each key of a partition, or none at all
(:class:`Order`). The first job of a lane runs, or waits for its retry; the others wait behind it. A :class:`Tracker`
for each partition knows which offsets are unfinished, so a committed offset never lies beyond one of them: after a
crash, everything unfinished is read again.

A partition is revoked in two steps. :meth:`Scheduler.hold` drops the jobs that have not started; running ones may
finish and still count. After :meth:`Scheduler.forget` they no longer count; a job that is still running then only
keeps its lane busy, so that no other job of the lane runs beside it if the partition comes back.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from barnabas_client.structs import AnyRecord, TopicPartition
from barnabas_protocol.backoff import Backoff


class Order(Enum):
    """Which records are handled one after the other, in the order of their offsets. The values are those of the setting
    `order`."""

    #: Records of the same partition.
    PARTITION = "partition"
    #: Records of the same partition with the same key. Records without a key are handled in any order.
    KEY = "key"
    #: None.
    NONE = "none"


class Verdict(Enum):
    """Outcome for a job that failed."""

    #: It is tried again after a back-off.
    RETRY = auto()
    #: It has no attempts left. It counts as running until the caller ends it.
    GIVE_UP = auto()
    #: Its partition is being revoked; the member that owns it next tries again.
    DROPPED = auto()


class Tracker:
    """The unfinished offsets of one partition."""

    __slots__ = ("_done", "_open", "committable", "last", "size")

    def __init__(self) -> None:
        #: The offset to commit: all records before it are finished. None at first.
        self.committable: int | None = None
        #: The offset of the last record added.
        self.last = -1
        #: Bytes of the records that wait or run.
        self.size = 0
        self._open: deque[int] = deque()  # offsets from the first unfinished one on
        self._done: set[int] = set()

    @property
    def window(self) -> int:
        """The number of records from the first unfinished one on."""
        return len(self._open)

    @property
    def position(self) -> int:
        """The first unfinished offset; the one after the last if all are finished."""
        return self._open[0] if self._open else self.last + 1

    def begin(self, offset: int) -> None:
        """Add a record.

        Raises:
            ValueError: its offset is not after that of the last one.
        """
        if offset <= self.last:
            raise ValueError(f"offset {offset} after {self.last}")
        self.last = offset
        self._open.append(offset)

    def finish(self, offset: int) -> None:
        """A record is finished."""
        self._done.add(offset)
        while self._open and self._open[0] in self._done:
            done = self._open.popleft()
            self._done.remove(done)
            self.committable = done + 1


@dataclass(slots=True, eq=False)
class Job:
    """Records to handle at once: one, or a batch.

    Attributes:
        records: in the order of their offsets.
        partition: of the records.
        lane: None if it waits for no other job.
        tracker: of the partition.
        size: bytes of the records.
        backoff: between attempts.
        due: when an incomplete batch is handled all the same.
        timed: whether it waits for a time: that of its retry, or `due`.
        attempts: how often it was started.
    """

    records: list[AnyRecord]
    partition: TopicPartition
    lane: Hashable
    tracker: Tracker
    size: int
    backoff: Backoff
    due: float
    timed: bool = False
    attempts: int = 0

    @property
    def record(self) -> AnyRecord:
        """The first record."""
        return self.records[0]

    @property
    def place(self) -> Hashable:
        """The place that all records of a batch share: the lane, or the partition."""
        return (self.partition, None) if self.lane is None else self.lane


class Scheduler:
    """All jobs of a run.

    Args:
        order: which records are handled in order.
        concurrency: how many jobs run at a time.
        retries: how often a failed job is tried again.
        backoff: makes the back-off of a job.
        max_in_flight: records from the first unfinished one on, divided equally among the partitions.
        max_in_flight_bytes: bytes of keys and values that wait or run, likewise.
        batch_size: how many records a job has at most.
        batch_timeout: seconds that a job with fewer waits for more.
    """

    def __init__(
        self,
        order: Order,
        concurrency: int,
        retries: int,
        backoff: Callable[[], Backoff],
        max_in_flight: int,
        max_in_flight_bytes: int,
        batch_size: int = 1,
        batch_timeout: float = 0.0,
    ) -> None:
        self.running: set[Job] = set()
        self._order = order
        self._concurrency = concurrency
        self._retries = retries
        self._backoff = backoff
        self._most = max_in_flight
        self._most_bytes = max_in_flight_bytes
        self._partition_records = max_in_flight
        self._partition_bytes = max_in_flight_bytes
        self._trackers: dict[TopicPartition, Tracker] = {}
        self._held: set[TopicPartition] = set()
        self._lanes: dict[Hashable, deque[Job]] = {}
        self._ready: deque[Job] = deque()
        self._timed: list[tuple[float, int, Job]] = []
        self._batch_size = batch_size
        self._batch_timeout = batch_timeout
        self._filling: dict[Hashable, Job] = {}  # the last job of each place, while it takes more records
        self._ticket = itertools.count()

    # Adding records.

    def add(self, partition: TopicPartition, records: Iterable[AnyRecord], now: float = 0.0) -> None:
        """Add records of a partition, in the order of their offsets, that were polled now.

        An offset that is not after the last one means that the program has sought back: earlier records no longer
        count.
        """
        tracker = self._trackers.get(partition)
        for record in records:
            if tracker is None or record.offset <= tracker.last:
                if tracker is not None:
                    self.hold([partition])
                    self.forget([partition])
                tracker = self._trackers[partition] = Tracker()
            tracker.begin(record.offset)
            size = _size(record)
            tracker.size += size
            due = now + self._batch_timeout
            job = Job([record], partition, self._lane(partition, record), tracker, size, self._backoff(), due)
            if self._batch_size > 1 and self._joined(job):
                continue
            if job.lane is None:
                self._enqueue(job)
            elif job.lane in self._lanes:
                self._lanes[job.lane].append(job)
            else:
                self._lanes[job.lane] = deque()
                self._enqueue(job)

    def _joined(self, job: Job) -> bool:
        """Put the record of a new job into the batch that waits for more, if there is one."""
        batch = self._filling.setdefault(job.place, job)
        if batch is job:
            return False
        batch.records += job.records
        batch.size += job.size
        if len(batch.records) == self._batch_size:
            del self._filling[job.place]
            if batch.timed:
                batch.timed = False
                self._ready.append(batch)
        return True

    def _enqueue(self, job: Job) -> None:
        """No other job comes before this one: start it soon, or, as an incomplete batch, when it is due."""
        if self._batch_timeout and self._filling.get(job.place) is job:
            self._wait(job, job.due)
        else:
            self._ready.append(job)

    def _wait(self, job: Job, until: float) -> None:
        job.timed = True
        heapq.heappush(self._timed, (until, next(self._ticket), job))

    def _next_timed(self) -> tuple[float, int, Job] | None:
        """The job that waits for the earliest time. Batches that became complete meanwhile no longer do."""
        while self._timed and not self._timed[0][2].timed:
            heapq.heappop(self._timed)
        return self._timed[0] if self._timed else None

    def _lane(self, partition: TopicPartition, record: AnyRecord) -> Hashable:
        if self._order is Order.PARTITION:
            return partition
        if self._order is Order.NONE or record.key is None:
            return None
        try:
            hash(record.key)
        except TypeError:
            return (partition, _UNHASHABLE)  # one lane for all of them keeps the order, but is slow
        return (partition, record.key)

    # Running jobs.

    def start(self, now: float) -> list[Job]:
        """The jobs to start now. Each ends with `finished`, `failed` or `abandoned`."""
        while (first := self._next_timed()) is not None and first[0] <= now:
            heapq.heappop(self._timed)
            first[2].timed = False
            self._ready.appendleft(first[2])
        started = []
        while self._ready and len(self.running) < self._concurrency:
            job = self._ready.popleft()
            job.attempts += 1
            if self._filling.get(job.place) is job:
                del self._filling[job.place]
            self.running.add(job)
            started.append(job)
        return started

    def next_deadline(self) -> float | None:
        """When to call `start` next if nothing else happens."""
        first = self._next_timed()
        return None if first is None else first[0]

    def finished(self, job: Job) -> None:
        """A job's records are finished."""
        for record in job.records:
            job.tracker.finish(record.offset)
        self._end(job)

    def failed(self, job: Job, now: float) -> Verdict:
        """A job's handler raised."""
        if self._trackers.get(job.partition) is not job.tracker or job.partition in self._held:
            self._end(job)
            return Verdict.DROPPED
        if job.attempts > self._retries:
            return Verdict.GIVE_UP
        self.running.remove(job)
        self._wait(job, now + job.backoff.failed())
        return Verdict.RETRY

    def abandoned(self, job: Job) -> None:
        """A job has ended, but its records are not finished."""
        self._end(job)

    def _end(self, job: Job) -> None:
        self.running.remove(job)
        job.tracker.size -= job.size
        if job.lane is not None:
            waiting = self._lanes[job.lane]
            if waiting:
                self._enqueue(waiting.popleft())
            else:
                del self._lanes[job.lane]

    # Revoking partitions.

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions that records were added of."""
        return self._trackers.keys()

    def hold(self, partitions: Collection[TopicPartition]) -> list[Job]:
        """Start no more jobs of these partitions; returns those that are still running."""
        going = set(partitions)
        self._held |= going
        running = [job for job in self.running if job.partition in going]
        busy = {job.lane for job in running if job.lane is not None}
        dropped = [job for job in self._ready if job.partition in going]
        dropped += [job for _, _, job in self._timed if job.timed and job.partition in going]
        for job in dropped:
            if job.lane is not None:
                for waiting in self._lanes.pop(job.lane):
                    waiting.tracker.size -= waiting.size
            job.tracker.size -= job.size
        for lane in busy:
            for waiting in self._lanes[lane]:
                waiting.tracker.size -= waiting.size
            self._lanes[lane].clear()
        self._ready = deque(job for job in self._ready if job.partition not in going)
        self._timed = [one for one in self._timed if one[2].timed and one[2].partition not in going]
        heapq.heapify(self._timed)
        self._filling = {place: job for place, job in self._filling.items() if job.partition not in going}
        return running

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget these partitions, after :meth:`hold`. If they come back, they start over."""
        for partition in partitions:
            self._held.discard(partition)
            self._trackers.pop(partition, None)

    # Progress.

    def committable(self) -> dict[TopicPartition, int]:
        """The offset to commit for each partition that has one."""
        return {tp: tracker.committable for tp, tracker in self._trackers.items() if tracker.committable is not None}

    def unfinished(self) -> dict[TopicPartition, int]:
        """The first unfinished offset of each partition that has one."""
        return {tp: tracker.position for tp, tracker in self._trackers.items() if tracker.window}

    # Back-pressure.

    def divide(self, partitions: int) -> int:
        """Divide the limits among so many partitions; returns how many records one poll may take, at least 1.

        A partition that is not :meth:`full` has room for as many, so its limit is never exceeded.
        """
        self._partition_records = max(1, self._most // max(1, partitions))
        self._partition_bytes = max(1, self._most_bytes // max(1, partitions))
        return self._partition_records - self._partition_records // 2

    def full(self, partition: TopicPartition) -> bool:
        """Whether no more records of this partition should be polled."""
        tracker = self._trackers.get(partition)
        return tracker is not None and (
            tracker.window > self._partition_records // 2 or tracker.size >= self._partition_bytes
        )

    def drained(self, partition: TopicPartition) -> bool:
        """Whether there is enough room again for records of this partition."""
        tracker = self._trackers.get(partition)
        return tracker is None or (
            tracker.window <= self._partition_records // 4 and tracker.size <= self._partition_bytes // 2
        )


_UNHASHABLE: Final = object()
_SIZED: Final = (bytes, bytearray, memoryview, str)


def _size(record: AnyRecord) -> int:
    return _length(record.key) + _length(record.value)


def _length(part: Any) -> int:
    """The size in bytes; 0 for an object that a deserializer made."""
    return len(part) if isinstance(part, _SIZED) else 0
