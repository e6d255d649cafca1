"""What waits to be sent: batches by partition, in order, with what idempotence needs. Pure: time is an argument.

Records gather in the last batch of their partition's :class:`Queue` until it is full. A batch is **due** when it is
full, has lingered, or someone flushes. :meth:`Queue.take` closes it and gives it its sequence number; it is then in
flight until :meth:`Queue.succeeded`, :meth:`Queue.again` or :meth:`Queue.failed`. A batch that must be sent again
goes back to the head of its queue, in its old order, and then goes alone: nothing of its partition is
sent beside it until it is done, so the order of the log is that of the calls of `send` whatever fails. Without
idempotence only one batch of a partition is ever in flight, for the same reason.

**Idempotence** (KIP-98). The broker accepts a partition's batches only in sequence, remembers the last five, and
answers repeated ones as if new. But of a producer that it does not know it accepts any number, so the first batch of a
producer id goes alone, too, until it is acknowledged: a second one could be written where the first was refused, for
want of a leader say. A batch that failed for good, or expired although it may have been written, leaves a
gap that all later ones would run into. Then :attr:`Accumulator.must_reset` asks for a new producer id (KIP-360);
before that, batches whose fate is not known are tried again under the old one, and afterwards everything that still
waits is numbered anew. Sources: ``RecordAccumulator.java``, ``TransactionManager.java``, ``Sender.java``.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from barnabas_client.config import ProducerConfig
from barnabas_client.structs import TopicPartition
from barnabas_protocol.records import BatchBuilder, build_batch, decode_records

Headers = Sequence[tuple[str, bytes | None]]

#: What a broker remembers of a producer, and so how many requests may be under way on a connection.
MAX_IN_FLIGHT: Final = 5
#: What one record costs beside its key, value and headers, at most.
OVERHEAD: Final = 40
_SEQUENCES: Final = 1 << 31


class Batch:
    """A batch, from its first record to its fate. `receipts` are whatever the caller keeps for each record."""

    __slots__ = (
        "attempts",
        "builder",
        "closed",
        "count",
        "created",
        "data",
        "epoch",
        "in_flight",
        "maybe_written",
        "memory",
        "order",
        "queue",
        "receipts",
        "sequence",
        "timestamps",
    )

    def __init__(self, queue: "Queue", order: int, builder: BatchBuilder, created: float) -> None:
        self.queue = queue
        self.order = order  # in its queue; sequence numbers start over, this does not
        self.builder: BatchBuilder | None = builder
        self.created = created
        self.closed = False
        self.count = 0
        self.memory = 0
        self.receipts: list[Any] = []
        self.timestamps: list[int] = []
        self.data: bytearray | None = None
        self.sequence = -1
        self.epoch = -1  # of the accumulator, in which `sequence` was given
        self.attempts = 0
        self.in_flight = False
        self.maybe_written = False

    @property
    def tp(self) -> TopicPartition:
        """Where it goes."""
        return self.queue.tp


class Queue:
    """The batches of one partition, in order; those in flight are in `flying`."""

    __slots__ = ("accumulator", "batches", "begun", "flying", "known_in", "leader", "next_sequence", "retry_at", "tp")

    def __init__(self, tp: TopicPartition, accumulator: "Accumulator") -> None:
        self.tp = tp
        self.accumulator = accumulator
        self.batches: deque[Batch] = deque()
        self.begun = 0
        self.flying: list[Batch] = []
        self.next_sequence = 0
        self.known_in = -1  # the accumulator's epoch in which the broker has acknowledged something
        self.retry_at = 0.0
        self.leader: int | None = None  # the node that was last known to lead

    def led_by(self, node: int) -> None:
        """This node leads the partition: what waits for another one, or for any, may be sent at once."""
        if self.leader != node:
            self.retry_at = 0.0
        self.leader = node

    def append(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int, receipt: Any, now: float
    ) -> bool:
        """Add a record; whether a batch became due by it: a new one began."""
        batches, size = self.batches, OVERHEAD
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            size += sum(len(name) * 4 + len(content or b"") + 10 for name, content in headers)
        fresh = False
        if batches and (builder := batches[-1].builder) is not None and builder.has_room(key, value, headers):
            batch = batches[-1]
        else:
            batch = self._begin(now)
            builder = batch.builder
            assert builder is not None
            fresh = True
        builder.append(key, value, headers, timestamp_ms)
        batch.count += 1
        batch.memory += size
        batch.receipts.append(receipt)
        batch.timestamps.append(timestamp_ms)
        self.accumulator.memory += size
        return fresh

    def _begin(self, now: float) -> Batch:
        config = self.accumulator.config
        if self.batches:
            self.batches[-1].closed = True
        size = min(config.batch_size, config.max_request_size)
        self.begun += 1
        batch = Batch(self, self.begun, BatchBuilder(size, compression=config.compression_type or "none"), now)
        self.batches.append(batch)
        self.accumulator.unresolved[batch] = None
        self.accumulator.waiting[self.tp] = self
        return batch

    def due_at(self) -> float | None:
        """When the first batch may be sent, None while nothing may."""
        if not self.batches:
            return None
        head, accumulator = self.batches[0], self.accumulator
        if accumulator.config.idempotent:
            if accumulator.producer_id < 0:
                return None
            if self.flying and (
                head.attempts or self.known_in != accumulator.epoch or any(batch.attempts > 1 for batch in self.flying)
            ):
                return None
        elif self.flying:
            return None
        if accumulator.must_reset and not head.maybe_written:
            return None
        ready = head.created if head.closed or accumulator.hurried else head.created + accumulator.linger
        return max(ready, self.retry_at)

    def take(self) -> Batch:
        """The first batch, closed and numbered, now in flight."""
        batch = self.batches[0]
        accumulator = self.accumulator
        if accumulator.config.idempotent and batch.epoch != accumulator.epoch:
            batch.sequence, batch.epoch, batch.maybe_written = self.next_sequence, accumulator.epoch, False
            self.next_sequence = (self.next_sequence + batch.count) % _SEQUENCES
            if batch.data is not None:
                batch.data = _renumbered(batch, accumulator)
        if batch.builder is not None:
            batch.data = batch.builder.close(accumulator.producer_id, accumulator.producer_epoch, batch.sequence)
            batch.builder = None
        batch.closed = batch.in_flight = True
        batch.attempts += 1
        self.flying.append(self.batches.popleft())
        if not self.batches:
            self.accumulator.waiting.pop(self.tp, None)
        return batch

    # The fate of a batch that was in flight. Each is ignored for a batch that is resolved already.

    def succeeded(self, batch: Batch) -> bool:
        """It is written; whether that is news."""
        self.known_in = max(self.known_in, batch.epoch)
        return self._resolve(batch)

    def failed(self, batch: Batch) -> bool:
        """It will never be written by another attempt; whether that is news. It leaves a gap in the sequence."""
        known = self._resolve(batch)
        if known and batch.sequence >= 0 and batch.epoch == self.accumulator.epoch:
            self.accumulator.must_reset = True
        return known

    def again(self, batch: Batch, retry_at: float, *, maybe_written: bool) -> None:
        """It must be sent again, not before `retry_at`."""
        self._land(batch)
        if batch not in self.accumulator.unresolved:
            return
        batch.maybe_written = maybe_written
        self.retry_at = max(self.retry_at, retry_at)
        at = 0
        while at < len(self.batches) and self.batches[at].order < batch.order:
            at += 1
        self.batches.insert(at, batch)
        self.accumulator.waiting[self.tp] = self

    def is_first_unresolved(self, batch: Batch) -> bool:
        """Whether no earlier batch of the partition is still to be written: then the broker misses acknowledged
        ones."""
        return not any(other.order < batch.order for other in (*self.batches, *self.flying))

    def _resolve(self, batch: Batch) -> bool:
        self._land(batch)
        if batch not in self.accumulator.unresolved:
            return False
        del self.accumulator.unresolved[batch]
        self.accumulator.memory -= batch.memory
        batch.data = batch.builder = None
        return True

    def _land(self, batch: Batch) -> None:
        if batch.in_flight:
            batch.in_flight = False
            self.flying.remove(batch)


class Accumulator:
    """All queues, and the producer id."""

    def __init__(self, config: ProducerConfig) -> None:
        self.config = config
        self.linger = config.linger_ms / 1000
        self.queues: dict[TopicPartition, Queue] = {}
        #: Those with batches that are not in flight.
        self.waiting: dict[TopicPartition, Queue] = {}
        #: Batches without a fate, oldest first.
        self.unresolved: dict[Batch, None] = {}
        #: Bytes of records without a fate.
        self.memory = 0
        #: How many wait for everything to be sent: nothing lingers.
        self.flushing = 0
        self.producer_id = -1
        self.producer_epoch = -1
        #: Grows with each producer id or epoch.
        self.epoch = 0
        #: A gap in some sequence: a new producer id is needed.
        self.must_reset = False

    @property
    def hurried(self) -> bool:
        """Whether batches that are not full go as well, at once."""
        return self.flushing > 0 or self.memory >= self.config.buffer_memory

    def queue(self, tp: TopicPartition) -> Queue:
        """The queue of a partition, made if there is none."""
        found = self.queues.get(tp)
        if found is None:
            found = self.queues[tp] = Queue(tp, self)
        return found

    def needs_producer_id(self) -> bool:
        """Whether it is time to ask for a producer id or epoch: there is none, or it must change and nothing is
        undecided."""
        if not self.config.idempotent:
            return False
        if self.producer_id < 0:
            return True
        # Behind a batch that is surely not written nothing can have been written: only heads are undecided.
        return self.must_reset and not any(
            queue.flying or (queue.batches and queue.batches[0].maybe_written) for queue in self.queues.values()
        )

    def begin_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Number everything that still waits anew, from 0, under these."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.epoch += 1
        self.must_reset = False
        for queue in self.queues.values():
            queue.next_sequence = 0

    def due(self, now: float) -> tuple[list[Queue], float | None]:
        """The queues whose first batch may be sent now, and when the next one may."""
        due: list[Queue] = []
        later: float | None = None
        for queue in self.waiting.values():
            at = queue.due_at()
            if at is None:
                continue
            if at <= now:
                due.append(queue)
            elif later is None or at < later:
                later = at
        return due, later

    def expire(self, now: float) -> tuple[list[Batch], float | None]:
        """Give up the batches whose delivery timeout is over; those, and when the next one's is."""
        timeout = self.config.delivery_timeout_ms / 1000
        expired: list[Batch] = []
        following: float | None = None
        for batch in self.unresolved:
            if batch.created + timeout > now:
                following = batch.created + timeout
                break
            expired.append(batch)
        for batch in expired:
            self._drop(batch)
        return expired, following

    def abandon(self) -> list[Batch]:
        """Give up everything."""
        batches = list(self.unresolved)
        for batch in batches:
            self._drop(batch)
        return batches

    def _drop(self, batch: Batch) -> None:
        queue = batch.queue
        if not batch.in_flight:
            queue.batches.remove(batch)
            if not queue.batches:
                self.waiting.pop(queue.tp, None)
        queue.failed(batch)


def _renumbered(batch: Batch, accumulator: Accumulator) -> bytearray:
    """A batch that was built for another producer epoch, built for this one. Rare, so it may cost something."""
    assert batch.data is not None
    records: Iterable[tuple[bytes | None, bytes | None, Headers, int]] = (
        (record.key, record.value, record.headers, record.timestamp) for record in decode_records(batch.data)
    )
    return build_batch(
        records,
        compression=accumulator.config.compression_type or "none",
        producer_id=accumulator.producer_id,
        producer_epoch=accumulator.producer_epoch,
        base_sequence=batch.sequence,
    )
