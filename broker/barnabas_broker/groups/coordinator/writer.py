"""Appends to ``__consumer_offsets``: what comes in one turn of the loop goes to a partition as one batch.

A shell: it keeps the order, calls back, and gives up waiting after ``offsets.commit.timeout.ms``.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from barnabas_broker.groups.ports import OffsetsLog, Scheduler
from barnabas_broker.logs import logger
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.records import build_batch

log = logger("coordinator")

#: Bytes of records after which a batch is full: a little less than Kafka's default of ``message.max.bytes``.
_BATCH_BYTES: Final = 960 * 1024
#: Bytes that a record takes beside its key and value, about.
_OVERHEAD: Final = 24


class Waiter(Protocol):
    """Somebody whose record is on its way into the log."""

    def done(self, error: ErrorCode) -> None:
        """The record is durable (NONE), or it is not and nobody knows whether it ever will be."""

    def late(self) -> None:
        """After :meth:`done` was told REQUEST_TIMED_OUT, the record turned out to be durable."""


class _Batch:
    """Records of one partition that are written together, and who waits for them."""

    __slots__ = ("answered", "asked", "partition", "records", "size", "waiters")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.records: list[tuple[bytes, bytes | None, tuple[()], int]] = []
        self.waiters: list[Waiter] = []
        self.size = 0
        self.asked = 0.0
        self.answered = False


class Writer:
    """Gathers records and appends them.

    Args:
        port: the log.
        loop: gives the ends of turns.
        now: seconds on a clock that never goes back.
        wall_ms: the time of day, for the records' timestamps.
        timeout: seconds after which a waiter is told REQUEST_TIMED_OUT.
    """

    def __init__(
        self,
        port: OffsetsLog,
        loop: Callable[[], Scheduler],
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        timeout: float,
    ) -> None:
        self._port = port
        self._loop = loop
        self._now = now
        self._wall_ms = wall_ms
        self._timeout = timeout
        #: Called when :meth:`next_deadline` may have come nearer.
        self.flushed: Callable[[], None] = _nothing
        self._open: dict[int, _Batch] = {}
        self._full: list[_Batch] = []
        self._scheduled = False
        #: What the log has not reported on, oldest first; answered ones stay until they are the oldest.
        self._in_flight: deque[_Batch] = deque()
        #: How many batches of a partition are on their way, open ones included.
        self._unsettled: dict[int, int] = {}

    def add(self, partition: int, records: list[tuple[bytes, bytes | None]], waiter: Waiter) -> None:
        """Append `records` (key, value) with the next batch of `partition`, then tell `waiter`.

        Records of one call stay in one batch, so that all of them are durable or none is.
        """
        size = len(records) * _OVERHEAD
        for key, value in records:
            size += len(key) if value is None else len(key) + len(value)
        batch = self._open.get(partition)
        if batch is None or (batch.size + size > _BATCH_BYTES and batch.records):
            if batch is not None:
                self._full.append(batch)
            batch = self._open[partition] = _Batch(partition)
            self._unsettled[partition] = self._unsettled.get(partition, 0) + 1
        timestamp = self._wall_ms()
        batch.records += [(key, value, (), timestamp) for key, value in records]
        batch.waiters.append(waiter)
        batch.size += size
        if not self._scheduled:
            self._scheduled = True
            self._loop().call_soon(self.flush)

    def barrier(self, partition: int, waiter: Waiter) -> bool:
        """Tell `waiter` when everything before now is settled; False if it is already."""
        if not self._unsettled.get(partition):
            return False
        batch = self._open.get(partition)
        if batch is None:
            batch = next(
                each for each in reversed(self._in_flight) if each.partition == partition and not each.answered
            )
        batch.waiters.append(waiter)
        return True

    def flush(self) -> None:
        """Append what was gathered."""
        self._scheduled = False
        batches = [*self._full, *self._open.values()]
        self._full.clear()
        self._open.clear()
        for batch in batches:
            batch.asked = self._now()
            self._in_flight.append(batch)
            try:
                data = build_batch(batch.records)
                batch.records = []
                self._port.append(batch.partition, data, _Outcome(self, batch))
            except Exception:
                # Whatever the log's trouble is, those who wait get an answer.
                log.exception("append to __consumer_offsets failed", partition=batch.partition)
                self._settle(batch, ErrorCode.UNKNOWN_SERVER_ERROR)
        self.flushed()

    def next_deadline(self) -> float | None:
        """When :meth:`expire` has something to do at the earliest."""
        return self._in_flight[0].asked + self._timeout if self._in_flight else None

    def expire(self) -> None:
        """Give up waiting for what the log has not reported on in time."""
        now = self._now()
        while self._in_flight and now >= self._in_flight[0].asked + self._timeout:
            batch = self._in_flight.popleft()
            if not batch.answered:
                log.warning(
                    "append to __consumer_offsets timed out", partition=batch.partition, waiters=len(batch.waiters)
                )
                self._answer(batch, ErrorCode.REQUEST_TIMED_OUT)

    def drop(self, partition: int, error: ErrorCode) -> None:
        """Answer everything of a partition now; what the log says about it later is not heard."""
        gone = [each for each in self._full if each.partition == partition]
        self._full = [each for each in self._full if each.partition != partition]
        if partition in self._open:
            gone.append(self._open.pop(partition))
        gone.extend(each for each in self._in_flight if each.partition == partition)
        for batch in gone:
            waiters, batch.waiters = batch.waiters, []
            if not batch.answered:
                batch.answered = True
                self._unsettled.pop(partition, None)
                for waiter in waiters:
                    waiter.done(error)

    def unsettled(self, partition: int) -> bool:
        """Whether something of a partition is on its way."""
        return partition in self._unsettled

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._unsettled

    def _settle(self, batch: _Batch, error: ErrorCode) -> None:
        """Hear from the log."""
        if batch.answered:
            if error == ErrorCode.NONE:
                for waiter in batch.waiters:
                    waiter.late()
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
            waiter.done(error)


def _nothing() -> None:
    pass


class _Outcome:
    """What the log calls back."""

    __slots__ = ("_batch", "_writer")

    def __init__(self, writer: Writer, batch: _Batch) -> None:
        self._writer = writer
        self._batch = batch

    def __call__(self, error: ErrorCode) -> None:
        self._writer._settle(self._batch, error)
