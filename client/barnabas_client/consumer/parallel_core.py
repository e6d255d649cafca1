"""What may run next, and what may be committed: the decisions behind ``Consumer.run``. Pure.

A record that was polled becomes a :class:`Job`. Jobs that must not overtake each other share a **lane**: one lane for
each partition, for each key of a partition, or none at all (:class:`Order`). The first job of a lane runs, or rests
between two attempts; the others wait behind it. A :class:`Tracker` for each partition knows which offsets are
unfinished, so that what is committed never lies beyond one of them: after a crash everything unfinished is read again.

A partition is given up in two steps. :meth:`Scheduler.hold` drops what has not begun; what runs may finish and still
counts. After :meth:`Scheduler.forget` nothing of it counts any more; a job that runs on keeps only its lane busy, so
that nothing of that lane runs beside it should the partition come back.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from barnabas_client.network.backoff import Backoff
from barnabas_client.structs import ConsumerRecord, TopicPartition


class Order(Enum):
    """Which records are handled one after the other, in the order of their offsets."""

    PARTITION = "partition"  # those of a partition
    KEY = "key"  # those of a partition that have the same key; records without a key are free
    NONE = "none"  # none


class Verdict(Enum):
    """What becomes of a job that failed."""

    RETRY = "it rests and is tried again"
    GIVE_UP = "it had all its attempts; it counts as running until the caller ends it"
    DROPPED = "its partition is being given up, whoever reads that next tries again"


class Tracker:
    """The unfinished offsets of one partition."""

    __slots__ = ("_done", "_open", "committable", "last", "size")

    def __init__(self) -> None:
        #: What may be committed: the offset behind the last record before which all are finished; None at first.
        self.committable: int | None = None
        #: The last offset that began.
        self.last = -1
        #: Bytes of the records that are queued, resting or running.
        self.size = 0
        self._open: deque[int] = deque()  # from the first unfinished one on
        self._done: set[int] = set()

    @property
    def window(self) -> int:
        """How many records there are from the first unfinished one on."""
        return len(self._open)

    @property
    def position(self) -> int:
        """The first unfinished offset; the one behind the last if there is none."""
        return self._open[0] if self._open else self.last + 1

    def begin(self, offset: int) -> None:
        """A record was polled.

        Raises:
            ValueError: it does not lie behind those before it.
        """
        if offset <= self.last:
            raise ValueError(f"offset {offset} after {self.last}")
        self.last = offset
        self._open.append(offset)

    def finish(self, offset: int) -> None:
        """A record is done."""
        self._done.add(offset)
        while self._open and self._open[0] in self._done:
            done = self._open.popleft()
            self._done.remove(done)
            self.committable = done + 1


@dataclass(slots=True, eq=False)
class Job:
    """A record on its way through a handler. `lane` is None for a record that waits for no other."""

    record: ConsumerRecord
    partition: TopicPartition
    lane: Hashable
    tracker: Tracker
    size: int
    backoff: Backoff
    attempts: int = 0


class Scheduler:
    """All jobs.

    Args:
        order: what is kept in order.
        concurrency: how many jobs run at a time.
        retries: how often a failed job is tried again.
        backoff: makes the pauses between a job's attempts.
        max_in_flight: records from the first unfinished one on, over all partitions, each of which has an equal share.
        max_in_flight_bytes: bytes of keys and values that wait or run, likewise.
    """

    def __init__(
        self,
        order: Order,
        concurrency: int,
        retries: int,
        backoff: Callable[[], Backoff],
        max_in_flight: int,
        max_in_flight_bytes: int,
    ) -> None:
        self.running: set[Job] = set()
        self._order = order
        self._concurrency = concurrency
        self._retries = retries
        self._backoff = backoff
        self._most = max_in_flight
        self._most_bytes = max_in_flight_bytes
        self._share = max_in_flight
        self._share_bytes = max_in_flight_bytes
        self._trackers: dict[TopicPartition, Tracker] = {}
        self._held: set[TopicPartition] = set()
        self._lanes: dict[Hashable, deque[Job]] = {}
        self._ready: deque[Job] = deque()
        self._resting: list[tuple[float, int, Job]] = []
        self._ticket = itertools.count()

    # Records come.

    def add(self, partition: TopicPartition, records: Iterable[ConsumerRecord]) -> None:
        """Records of a partition were polled, in the order of their offsets.

        One that does not lie behind those before it says that the program has sought back: what came before does not
        count any more.
        """
        tracker = self._trackers.get(partition)
        for record in records:
            if tracker is None or record.offset <= tracker.last:
                if tracker is not None:
                    self.hold([partition])
                    self.forget([partition])
                tracker = self._trackers[partition] = Tracker()
            tracker.begin(record.offset)
            job = Job(record, partition, self._lane(partition, record), tracker, _size(record), self._backoff())
            tracker.size += job.size
            if job.lane is None:
                self._ready.append(job)
            elif job.lane in self._lanes:
                self._lanes[job.lane].append(job)
            else:
                self._lanes[job.lane] = deque()
                self._ready.append(job)

    def _lane(self, partition: TopicPartition, record: ConsumerRecord) -> Hashable:
        if self._order is Order.PARTITION:
            return partition
        if self._order is Order.NONE or record.key is None:
            return None
        try:
            hash(record.key)
        except TypeError:
            return (partition, _UNHASHABLE)  # one lane for all of them keeps the order, if only slowly
        return (partition, record.key)

    # Jobs run.

    def start(self, now: float) -> list[Job]:
        """The jobs that begin now; each must come back to `finished`, `failed` or `abandoned`."""
        while self._resting and self._resting[0][0] <= now:
            self._ready.appendleft(heapq.heappop(self._resting)[2])
        started = []
        while self._ready and len(self.running) < self._concurrency:
            job = self._ready.popleft()
            job.attempts += 1
            self.running.add(job)
            started.append(job)
        return started

    def next_deadline(self) -> float | None:
        """When to call `start` next although nothing else happened."""
        return self._resting[0][0] if self._resting else None

    def finished(self, job: Job) -> None:
        """A job's record is done."""
        job.tracker.finish(job.record.offset)
        self._end(job)

    def failed(self, job: Job, now: float) -> Verdict:
        """A job's handler raised."""
        if self._trackers.get(job.partition) is not job.tracker or job.partition in self._held:
            self._end(job)
            return Verdict.DROPPED
        if job.attempts > self._retries:
            return Verdict.GIVE_UP
        self.running.remove(job)
        heapq.heappush(self._resting, (now + job.backoff.failed(), next(self._ticket), job))
        return Verdict.RETRY

    def abandoned(self, job: Job) -> None:
        """A job has ended without its record being done."""
        self._end(job)

    def _end(self, job: Job) -> None:
        self.running.remove(job)
        job.tracker.size -= job.size
        if job.lane is not None:
            waiting = self._lanes[job.lane]
            if waiting:
                self._ready.append(waiting.popleft())
            else:
                del self._lanes[job.lane]

    # Partitions go.

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """Those that records came of."""
        return self._trackers.keys()

    def hold(self, partitions: Collection[TopicPartition]) -> list[Job]:
        """Begin nothing more of these partitions; what is still running of them."""
        going = set(partitions)
        self._held |= going
        running = [job for job in self.running if job.partition in going]
        busy = {job.lane for job in running if job.lane is not None}
        dropped = [job for job in self._ready if job.partition in going]
        dropped += [job for _, _, job in self._resting if job.partition in going]
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
        self._resting = [one for one in self._resting if one[2].partition not in going]
        heapq.heapify(self._resting)
        return running

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions are gone, after :meth:`hold`; should they come back, they begin anew."""
        for partition in partitions:
            self._held.discard(partition)
            self._trackers.pop(partition, None)

    # How far it is.

    def committable(self) -> dict[TopicPartition, int]:
        """The offset to commit for each partition that has one."""
        return {tp: tracker.committable for tp, tracker in self._trackers.items() if tracker.committable is not None}

    def unfinished(self) -> dict[TopicPartition, int]:
        """The first unfinished offset of each partition that has one."""
        return {tp: tracker.position for tp, tracker in self._trackers.items() if tracker.window}

    # Back-pressure.

    def divide(self, partitions: int) -> int:
        """So many partitions are read now; the most records to take in one poll, at least 1.

        A partition that is not :meth:`full` has room for as many: its share is never exceeded.
        """
        self._share = max(1, self._most // max(1, partitions))
        self._share_bytes = max(1, self._most_bytes // max(1, partitions))
        return self._share - self._share // 2

    def full(self, partition: TopicPartition) -> bool:
        """Whether no more of this partition should be polled."""
        tracker = self._trackers.get(partition)
        return tracker is not None and (tracker.window > self._share // 2 or tracker.size >= self._share_bytes)

    def drained(self, partition: TopicPartition) -> bool:
        """Whether there is room again, and enough of it."""
        tracker = self._trackers.get(partition)
        return tracker is None or (tracker.window <= self._share // 4 and tracker.size <= self._share_bytes // 2)


_UNHASHABLE: Final = object()
_SIZED: Final = (bytes, bytearray, memoryview, str)


def _size(record: ConsumerRecord) -> int:
    return _length(record.key) + _length(record.value)


def _length(part: Any) -> int:
    """Bytes; what a deserializer made of them has no size that could be known."""
    return len(part) if isinstance(part, _SIZED) else 0
