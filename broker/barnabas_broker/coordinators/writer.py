"""Appends to a coordinator's topic: the records of one iteration of the loop go to a partition as one batch.

A shell: it keeps the order, calls back, and stops waiting after a timeout (``offsets.commit.timeout.ms`` for groups).
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple

from barnabas_broker.coordinators.ports import CoordinatorLog, Scheduler
from barnabas_broker.coordinators.timers import Timers
from barnabas_broker.log_throttle import Folded
from barnabas_broker.logs import logger
from barnabas_broker.steps import Steps, finish
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.records import BatchBuilder

log = logger("coordinator")

#: Bytes of records in a batch: a little less than Kafka's default of ``message.max.bytes``.
BATCH_BYTES: Final = 960 * 1024
#: Maximum number of records that are appended in one iteration of the loop, unless one call of :meth:`Writer.add`
#: brings more: encoding them takes up to 10 ms.
_BATCH_RECORDS: Final = 1_000
#: The level of zstd: megabytes take a few milliseconds.
_LEVEL: Final = 1
#: Bytes of a record beside its key and value, estimated.
_OVERHEAD: Final = 24


#: Is called with the result of an append: NONE when the records are durable, else why they are not. After
#: REQUEST_TIMED_OUT, which says that the log takes long, it is called a second time with what the log says.
Waiter = Callable[[ErrorCode], None]


class Producer(NamedTuple):
    """The producer of a transaction, and its epoch."""

    producer_id: int
    epoch: int


_NO_PRODUCER: Final = Producer(-1, -1)


class _Batch:
    """Records of one partition that are appended together, and their waiters."""

    __slots__ = (
        "answered",
        "appended_at",
        "data",
        "partition",
        "producer",
        "records",
        "size",
        "verification",
        "waiters",
    )

    def __init__(self, partition: int, producer: Producer | None = None, verification: Any = None) -> None:
        self.partition = partition
        self.producer = producer
        self.verification = verification
        self.records: list[tuple[bytes, bytes | None]] = []
        #: Its bytes, if they were made beforehand.
        self.data: bytearray | None = None
        self.waiters: list[Waiter] = []
        self.size = 0
        self.appended_at = 0.0
        self.answered = False


class Writer:
    """Collects records and appends them.

    Args:
        topic: the coordinator's topic, for the log.
        topic_log: its partitions that this broker leads.
        loop: flushes at the end of each iteration.
        timers: for the timeouts of appends.
        now: seconds on a monotonic clock.
        wall_ms: the time of day: the records of a batch have that of their append.
        timeout: seconds after which a waiter gets REQUEST_TIMED_OUT.
    """

    def __init__(
        self,
        topic: str,
        topic_log: CoordinatorLog,
        loop: Scheduler,
        timers: Timers,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        timeout: float,
    ) -> None:
        self.armed = inf
        self._topic = topic
        self._log = topic_log
        self._loop = loop
        self._timers = timers
        self._now = now
        self._wall_ms = wall_ms
        self._timeout = timeout
        self._open: dict[int, _Batch] = {}
        self._full: list[_Batch] = []
        self._scheduled = False
        event = f"append to {topic} timed out"
        self._timed_out = Folded(log.warning, event, event, now)
        #: The batches without a result, oldest first; those with one stay until they are the oldest.
        self._in_flight: deque[_Batch] = deque()
        #: Number of batches of each partition without a result, open ones included.
        self._unsettled: dict[int, int] = {}

    def add(self, partition: int, records: list[tuple[bytes, bytes | None]], waiter: Waiter) -> None:
        """Append `records` (key, value) with the next batch of `partition`.

        Records of one call stay in one batch: all of them are appended or none is.
        """
        size = _size(records)
        batch = self._open.get(partition)
        if batch is None or (
            batch.records and (batch.size + size > BATCH_BYTES or len(batch.records) + len(records) > _BATCH_RECORDS)
        ):
            if batch is not None:
                self._full.append(batch)
            batch = self._open[partition] = _Batch(partition)
            self._unsettled[partition] = self._unsettled.get(partition, 0) + 1
        batch.records += records
        batch.waiters.append(waiter)
        batch.size += size
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush_some)

    def add_transactional(
        self,
        partition: int,
        records: list[tuple[bytes, bytes | None]],
        producer: Producer,
        verification: Any,
        waiter: Waiter,
    ) -> None:
        """Append `records` (key, value) now, as a transactional batch of their own.

        They are not collected: what was checked before must still be true when they are appended.

        Args:
            partition: of the topic.
            records: what to append.
            producer: of the transaction.
            verification: of the transaction, for the log.
            waiter: gets the result.
        """
        batch = self._alone(_Batch(partition, producer, verification), waiter)
        batch.records += records
        self.flush()

    def add_batch(self, partition: int, data: bytearray, waiter: Waiter) -> None:
        """Append a batch that :func:`make_batch` has made, after everything that was added before.

        Args:
            partition: of the topic.
            data: the batch.
            waiter: gets the result.
        """
        self._alone(_Batch(partition), waiter).data = data
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush_some)

    def _alone(self, batch: _Batch, waiter: Waiter) -> _Batch:
        """Add a batch to which nothing else is added."""
        partition = batch.partition
        before = self._open.pop(partition, None)
        if before is not None:
            self._full.append(before)
        self._unsettled[partition] = self._unsettled.get(partition, 0) + 1
        batch.waiters.append(waiter)
        self._full.append(batch)
        return batch

    def when_settled(self, partitions: Iterable[int], callback: Callable[[], None]) -> None:
        """Call back, once, when every append so far of some partitions has a result: at once if all have one."""
        waiting = {partition for partition in partitions if self.unsettled(partition)}
        if not waiting:
            callback()
            return

        def settled(partition: int, _: ErrorCode) -> None:
            if partition in waiting:  # a waiter may get a second result
                waiting.remove(partition)
                if not waiting:
                    callback()

        for partition in tuple(waiting):
            self._last(partition).waiters.append(partial(settled, partition))

    def _last(self, partition: int) -> _Batch:
        """The newest batch of a partition without a result."""
        return self._open.get(partition) or next(
            each
            for each in reversed((*self._in_flight, *self._full))
            if each.partition == partition and not each.answered
        )

    def unsettled(self, partition: int) -> bool:
        """Whether appends of a partition have no result yet."""
        return partition in self._unsettled

    def flush(self) -> None:
        """Append the collected records."""
        self._scheduled = False
        batches = [*self._full, *self._open.values()]
        self._full.clear()
        self._open.clear()
        self._append(batches)

    def _flush_some(self) -> None:
        """Append the collected records; if they are many, some of them with the next iterations of the loop."""
        self._scheduled = False
        self._full += self._open.values()
        self._open.clear()
        count = records = 0
        for batch in self._full:
            records += len(batch.records)
            if count and records > _BATCH_RECORDS:
                break
            count += 1
        batches, self._full = self._full[:count], self._full[count:]
        if self._full:
            self._scheduled = True
            self._loop.call_soon(self._flush_some)
        self._append(batches)

    def _append(self, batches: list[_Batch]) -> None:
        for batch in batches:
            batch.appended_at = self._now()
            self._in_flight.append(batch)
            try:
                if batch.data is None:
                    data = finish(make_batch(batch.records, self._wall_ms(), batch.producer))
                else:
                    data = batch.data
                batch.records, batch.data = [], None
                self._log.append(batch.partition, data, partial(self._settle, batch), batch.verification)
            except Exception:
                # Clients must get a response, whatever the log's problem is.
                log.exception(f"append to {self._topic} failed", partition=batch.partition)
                self._settle(batch, ErrorCode.UNKNOWN_SERVER_ERROR)
        self._timers.arm(self)

    def next_deadline(self) -> float:
        """When the oldest append times out; inf if there is none."""
        return self._in_flight[0].appended_at + self._timeout if self._in_flight else inf

    def fire(self, now: float) -> None:
        """Time out appends that have taken too long."""
        while self._in_flight and now >= self._in_flight[0].appended_at + self._timeout:
            batch = self._in_flight.popleft()
            if not batch.answered:
                self._timed_out.add("", partition=batch.partition, waiters=len(batch.waiters))
                self._answer(batch, ErrorCode.REQUEST_TIMED_OUT)

    def drop(self, partition: int, error: ErrorCode) -> None:
        """End every append of a partition with `error` now; later results are ignored."""
        dropped = [each for each in self._full if each.partition == partition]
        self._full = [each for each in self._full if each.partition != partition]
        if partition in self._open:
            dropped.append(self._open.pop(partition))
        dropped.extend(each for each in self._in_flight if each.partition == partition)
        for batch in dropped:
            waiters, batch.waiters = batch.waiters, []
            if not batch.answered:
                batch.answered = True
                self._unsettled.pop(partition, None)
                for waiter in waiters:
                    waiter(error)

    def _settle(self, batch: _Batch, error: ErrorCode) -> None:
        """The log's result of an append."""
        if batch.answered:
            for waiter in batch.waiters:
                waiter(error)
            return
        self._answer(batch, error)
        in_flight = self._in_flight
        while in_flight and in_flight[0].answered:
            in_flight.popleft()

    def _answer(self, batch: _Batch, error: ErrorCode) -> None:
        batch.answered = True
        left = self._unsettled.get(batch.partition, 1) - 1
        if left:
            self._unsettled[batch.partition] = left
        else:
            self._unsettled.pop(batch.partition, None)
        for waiter in batch.waiters:
            waiter(error)


def _size(records: list[tuple[bytes, bytes | None]]) -> int:
    """The size of records (key, value) in a batch in bytes, estimated."""
    size = len(records) * _OVERHEAD
    for key, value in records:
        size += len(key) if value is None else len(key) + len(value)
    return size


def make_batch(
    records: list[tuple[bytes, bytes | None]], timestamp_ms: int, producer: Producer | None = None
) -> Steps[bytearray]:
    """Records (key, value) as one batch, some of them per step; compressed if they are larger than a batch may be.

    In a transaction it has producer id and epoch, without sequence number, as in Kafka.

    Args:
        records: which.
        timestamp_ms: their time, in ms since 1970.
        producer: of the transaction.
    """
    large = _size(records) > BATCH_BYTES
    builder = BatchBuilder(
        compression="zstd" if large else "none",
        compression_level=_LEVEL if large else None,
        transactional=producer is not None,
    )
    for number, (key, value) in enumerate(records, 1):
        builder.append(key, value, (), timestamp_ms)
        if number % _BATCH_RECORDS == 0:
            yield
    return builder.close(*(producer or _NO_PRODUCER))
