"""The records that wait to be sent: batches by partition, in order, with the state of idempotence. Pure.

Records are added to the last batch of their partition's :class:`PartitionQueue` until it is full. A batch is **due**
when it is full, when `linger_ms` has passed, or during a flush. :meth:`PartitionQueue.take` closes it and gives it its
sequence number; it is in flight until :meth:`PartitionQueue.succeeded`, :meth:`PartitionQueue.again` or
:meth:`PartitionQueue.failed`. A batch that must be sent again returns to the head of its queue, in its old order, and
is then the only one of its partition in flight until it is resolved. So the order of the log is the order of the calls
of `send`, even after failures. Without idempotence only one batch of a partition is ever in flight, for the same
reason.

**Idempotence** (KIP-98). The broker accepts the batches of a partition only in sequence, remembers the last five, and
acknowledges repeated ones without writing them again. But it accepts any first sequence number of a producer id that it
does not know. So the first batch of a producer id is sent alone until it is acknowledged: a second one could be written
although the first was refused, for example for lack of a leader. A batch that failed, or that expired and may have been
written, leaves a gap in the sequence, which makes the broker refuse all later ones. Then
:attr:`Accumulator.must_reset` requests a new producer id (KIP-360). Before that, batches that may have been written are
sent again with the old one; after that, all other batches get new sequence numbers. A transactional producer does not
do that by itself: the transaction fails, and its end brings a new epoch. Sources:
``RecordAccumulator.java``, ``TransactionManager.java``, ``Sender.java``.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from barnabas_client.producer.config import ProducerConfig
from barnabas_client.producer.delivery import Delivery
from barnabas_client.producer.measure import OVERHEAD, Headers
from barnabas_client.structs import TopicPartition
from barnabas_protocol.records import BatchBuilder, RecordColumns, build_batch, decode_records
from barnabas_protocol.wire import Buffer

#: The number of batches of a producer that a broker remembers: the limit of requests in flight on a connection.
MAX_IN_FLIGHT: Final = 5
_SEQUENCES: Final = 1 << 31

#: A record in a batch: key, value, headers, timestamp.
Content = tuple[Buffer | None, Buffer | None, Headers, int]


class ProducerBatch:
    """A batch of records, until it is acknowledged or has failed.

    Attributes:
        queue: of its partition.
        order: its place in the queue; unlike `sequence` it never starts over.
        span: the part of the queue's order that is its own, 1 unless it is a part of another batch.
        parts: the batches that it was split into.
        builder: collects records; None once the batch is taken.
        created: when, in seconds of the caller's clock.
        closed: whether it takes no more records.
        count: the number of records.
        timestamp: of the last record that was added by itself, in milliseconds since 1970.
        memory: the size of the records in bytes, before compression.
        delivery: the outcome, for the receipts of its records.
        data: the encoded batch, from :meth:`PartitionQueue.take` on.
        sequence: the sequence number of its first record, -1 without idempotence.
        epoch: the accumulator's epoch in which `sequence` was assigned.
        attempts: how often it was sent.
        in_flight: whether a request with it has no response yet.
        maybe_written: whether the broker may have written it, although no response said so.
    """

    __slots__ = (
        "attempts",
        "builder",
        "closed",
        "count",
        "created",
        "data",
        "delivery",
        "epoch",
        "in_flight",
        "maybe_written",
        "memory",
        "order",
        "parts",
        "queue",
        "sequence",
        "span",
        "timestamp",
    )

    def __init__(
        self, queue: "PartitionQueue", order: float, builder: BatchBuilder | None, created: float, span: float = 1.0
    ) -> None:
        self.queue = queue
        self.order = order
        self.span = span
        self.parts: tuple[ProducerBatch, ...] = ()
        self.builder: BatchBuilder | None = builder
        self.created = created
        self.closed = False
        self.count = self.timestamp = 0
        self.memory = 0
        self.delivery = Delivery(queue.tp, queue.accumulator.loop)
        self.data: bytearray | None = None
        self.sequence = -1
        self.epoch = -1
        self.attempts = 0
        self.in_flight = False
        self.maybe_written = False

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return self.queue.tp


class PartitionQueue:
    """The batches of one partition.

    Attributes:
        tp: the partition.
        accumulator: of all queues.
        batches: those that are not in flight, in order.
        in_flight: those that are in flight, in the order in which they were taken.
        begun: the number of batches so far.
        next_sequence: the sequence number of the next batch.
        known_in: the accumulator's epoch in which the broker has acknowledged a batch, -1 before.
        retry_at: no batch is sent before this time.
        leader: the node id of the last known leader.
        moved: whether the leader has changed since a batch was last acknowledged.
        limit: the size of records in bytes that the broker may accept in one batch.
        unreachable: how often in succession its leader was not known, or could not be reached.
    """

    __slots__ = (
        "accumulator",
        "batches",
        "begun",
        "in_flight",
        "known_in",
        "leader",
        "limit",
        "moved",
        "next_sequence",
        "retry_at",
        "tp",
        "unreachable",
    )

    def __init__(self, tp: TopicPartition, accumulator: "Accumulator") -> None:
        self.tp = tp
        self.accumulator = accumulator
        self.batches: deque[ProducerBatch] = deque()
        self.begun = 0
        self.in_flight: list[ProducerBatch] = []
        self.next_sequence = 0
        self.known_in = -1
        self.retry_at = 0.0
        self.leader: int | None = None
        self.moved = False
        self.limit = min(accumulator.config.batch_size, accumulator.config.max_request_size)
        self.unreachable = 0

    def led_by(self, node: int) -> None:
        """Note the partition's leader. A new leader may be sent to at once, but not if the leader keeps changing while
        nothing is acknowledged: two brokers may name each other."""
        if self.leader == node:
            return
        if not self.moved:
            self.retry_at = 0.0
        self.moved = self.leader is not None
        self.leader = node

    def append(self, content: Content, size: int) -> ProducerBatch:
        """Add a record; returns its batch, of which it is the last one. If it is the first one, a batch may be due.

        Args:
            content: of the record.
            size: of the record in bytes, at its longest.
        """
        key, value, headers, timestamp = content
        batch = self.batches[-1] if self.batches else None
        if (
            batch is None
            or (builder := batch.builder) is None
            or builder.append(key, value, headers, timestamp, builder.batch_size) < 0
        ):
            batch, builder = self._begin()
            builder.append(key, value, headers, timestamp)
        batch.count += 1
        batch.timestamp = timestamp
        batch.memory += size
        self.accumulator.memory += size
        return batch

    def extend(self, columns: RecordColumns, begin: int, end: int) -> list[tuple[ProducerBatch, int, int]]:
        """Add records; returns their batches, each with the place of the first of them in it, and how many there are.

        Args:
            columns: the records.
            begin: the first one to add.
            end: the one after the last one to add.
        """
        added: list[tuple[ProducerBatch, int, int]] = []
        batch = self.batches[-1] if self.batches else None
        while begin < end:
            if batch is None or (builder := batch.builder) is None:
                batch, builder = self._begin()
            count = builder.extend(columns, begin, end)
            if count == 0:
                batch = None
                continue
            size = columns.size(begin, begin + count, OVERHEAD)
            added.append((batch, batch.count, count))
            batch.count += count
            batch.memory += size
            self.accumulator.memory += size
            begin += count
        return added

    def _begin(self) -> tuple[ProducerBatch, BatchBuilder]:
        config = self.accumulator.config
        if self.batches:
            self.batches[-1].closed = True
        self.begun += 1
        builder = BatchBuilder(
            self.limit, compression=config.compression_type or "none", transactional=config.transactional_id is not None
        )
        batch = ProducerBatch(self, self.begun, builder, self.accumulator.clock())
        self.batches.append(batch)
        self.accumulator.unresolved[batch] = None
        self.accumulator.waiting[self.tp] = self
        return batch, builder

    def due_at(self) -> float | None:
        """When the first batch may be sent; None while none may be sent."""
        if not self.batches:
            return None
        head, accumulator = self.batches[0], self.accumulator
        if accumulator.config.idempotent:
            if accumulator.producer_id < 0:
                return None
            if self.in_flight and (
                head.attempts
                or self.known_in != accumulator.epoch
                or any(batch.attempts > 1 for batch in self.in_flight)
            ):
                return None
        elif self.in_flight:
            return None
        if accumulator.must_reset and not head.maybe_written:
            return None
        ready = head.created if head.closed or accumulator.hurried else head.created + accumulator.linger
        return max(ready, self.retry_at)

    def take(self) -> ProducerBatch:
        """Close the first batch, assign its sequence number, and put it in flight."""
        batch = self.batches[0]
        accumulator = self.accumulator
        if accumulator.config.idempotent and batch.epoch != accumulator.epoch:
            batch.sequence, batch.epoch, batch.maybe_written = self.next_sequence, accumulator.epoch, False
            self.next_sequence = (self.next_sequence + batch.count) % _SEQUENCES
            if batch.data is not None:
                batch.data = _renumbered(batch.data, batch.sequence, accumulator)
        if batch.builder is not None:
            batch.data = batch.builder.close(accumulator.producer_id, accumulator.producer_epoch, batch.sequence)
            batch.builder = None
        batch.closed = batch.in_flight = True
        batch.attempts += 1
        self.in_flight.append(self.batches.popleft())
        if not self.batches:
            self.accumulator.waiting.pop(self.tp, None)
        return batch

    # The outcome of a batch that was in flight. Ignored for a batch that is resolved already.

    def succeeded(self, batch: ProducerBatch) -> bool:
        """Resolve a batch that is written; returns whether it was unresolved."""
        self.known_in = max(self.known_in, batch.epoch)
        self.moved = False
        return self._resolve(batch)

    def failed(self, batch: ProducerBatch) -> bool:
        """Resolve a batch that failed, which leaves a gap in the sequence; returns whether it was unresolved."""
        known = self._resolve(batch)
        if known and batch.sequence >= 0 and batch.epoch == self.accumulator.epoch:
            self.accumulator.must_reset = True
        return known

    def again(self, batch: ProducerBatch, retry_at: float, *, maybe_written: bool) -> None:
        """Put a batch back to send it again, not before `retry_at`."""
        self._land(batch)
        if batch not in self.accumulator.unresolved:
            return
        batch.maybe_written = maybe_written
        self.retry_at = max(self.retry_at, retry_at)
        self._queue(batch)

    def split(self, batch: ProducerBatch) -> None:
        """Replace a batch of several records that the broker refused as too large by its two halves (KIP-126).

        They take over its sequence numbers, so batches behind it are still in sequence. Later batches are made smaller.
        """
        self._land(batch)
        if batch not in self.accumulator.unresolved or batch.data is None:
            return
        records: list[Content] = [
            (record.key, record.value, record.headers, record.timestamp) for record in decode_records(batch.data)
        ]
        self.limit = max(1, min(self.limit, batch.memory // 2))
        half = batch.count // 2
        first, second = (self._part(batch, records, *where) for where in ((0, half), (half, batch.count)))
        batch.parts = (first, second)
        batch.data = None
        batch.delivery.split(half, first.delivery, second.delivery)
        old, self.accumulator.unresolved = self.accumulator.unresolved, {}
        for one in old:  # the oldest stay first
            self.accumulator.unresolved.update(dict.fromkeys(one.parts or (one,)))
        for part in batch.parts:
            self._queue(part)

    def _part(self, batch: ProducerBatch, records: list[Content], begin: int, end: int) -> ProducerBatch:
        second = begin > 0
        span = batch.span / 2
        part = ProducerBatch(self, batch.order + span if second else batch.order, None, batch.created, span)
        part.closed, part.attempts, part.epoch, part.count = True, batch.attempts, batch.epoch, end - begin
        share = batch.memory * part.count // batch.count
        part.memory = batch.memory - batch.memory * begin // batch.count if second else share
        part.sequence = (batch.sequence + begin) % _SEQUENCES if batch.sequence >= 0 else -1
        part.data = self.accumulator.encode(records[begin:end], part.sequence)
        return part

    def _queue(self, batch: ProducerBatch) -> None:
        at = 0
        while at < len(self.batches) and self.batches[at].order < batch.order:
            at += 1
        self.batches.insert(at, batch)
        self.accumulator.waiting[self.tp] = self

    def is_first_unresolved(self, batch: ProducerBatch) -> bool:
        """Whether no earlier batch of the partition is unresolved; then the broker has lost acknowledged ones."""
        return not any(other.order < batch.order for other in (*self.batches, *self.in_flight))

    def _resolve(self, batch: ProducerBatch) -> bool:
        self._land(batch)
        if batch not in self.accumulator.unresolved:
            return False
        del self.accumulator.unresolved[batch]
        self.accumulator.memory -= batch.memory
        batch.data = batch.builder = None
        return True

    def _land(self, batch: ProducerBatch) -> None:
        if batch.in_flight:
            batch.in_flight = False
            self.in_flight.remove(batch)


class Accumulator:
    """The queues of all partitions, and the producer id.

    Attributes:
        config: the producer's settings.
        linger: `linger_ms` in seconds.
        queues: by partition.
        waiting: the queues with batches that are not in flight.
        unresolved: the batches that are neither acknowledged nor failed, oldest first.
        memory: the size of the records in them, in bytes.
        flushing: the number of callers that wait until all batches are sent; no batch lingers while there are any.
        producer_id: -1 before it is assigned.
        producer_epoch: of the producer id.
        epoch: grows with each producer id or producer epoch.
        must_reset: a sequence has a gap, so that a new producer id is needed.
        may_send: whether the batches of a partition may be sent; None for a producer without transactions.
        loop: the event loop in which receipts are awaited.
        clock: tells the time in seconds.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.config = config
        self.linger = config.linger_ms / 1000
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.waiting: dict[TopicPartition, PartitionQueue] = {}
        self.unresolved: dict[ProducerBatch, None] = {}
        self.memory = 0
        self.flushing = 0
        self.producer_id = -1
        self.producer_epoch = -1
        self.epoch = 0
        self.must_reset = False
        self.may_send: Callable[[TopicPartition], bool] | None = None
        self.loop: Any = None
        self.clock: Callable[[], float] = lambda: 0.0

    @property
    def hurried(self) -> bool:
        """Whether batches that are not full are sent without lingering."""
        return self.flushing > 0 or self.memory >= self.config.buffer_memory

    def queue(self, tp: TopicPartition) -> PartitionQueue:
        """The queue of a partition; creates it if necessary."""
        found = self.queues.get(tp)
        if found is None:
            found = self.queues[tp] = PartitionQueue(tp, self)
        return found

    def needs_producer_id(self) -> bool:
        """Whether to request a producer id: there is none, or it must change and no batch may have been written."""
        if not self.config.idempotent or self.may_send is not None:
            return False
        if self.producer_id < 0:
            return True
        # If the first batch of a queue is not written, none behind it is: only first batches may have been written.
        return self.must_reset and not any(
            queue.in_flight or (queue.batches and queue.batches[0].maybe_written) for queue in self.queues.values()
        )

    def is_idle(self) -> bool:
        """Whether no batch waits, and none is in flight, not even one that has failed for the program."""
        return not self.unresolved and not any(queue.in_flight for queue in self.queues.values())

    def pending(self, batch: ProducerBatch) -> bool:
        """Whether a batch, or a part that it was split into, is neither acknowledged nor failed."""
        return batch in self.unresolved or any(map(self.pending, batch.parts))

    def encode(self, records: Iterable[Content], sequence: int) -> bytearray:
        """Encode records again, with the current producer id. Rare, so it may be slow."""
        return build_batch(
            records,
            compression=self.config.compression_type or "none",
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=self.config.transactional_id is not None,
        )

    def begin_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Use a new producer id or epoch: unresolved batches get new sequence numbers, from 0."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.epoch += 1
        self.must_reset = False
        for queue in self.queues.values():
            queue.next_sequence = 0

    def due(self, now: float) -> tuple[list[PartitionQueue], float | None]:
        """The queues whose first batch may be sent now, and the time at which the next one may be sent."""
        due: list[PartitionQueue] = []
        later: float | None = None
        may_send = self.may_send
        for queue in self.waiting.values():
            at = queue.due_at()
            if at is None or (may_send is not None and not may_send(queue.tp)):
                continue
            if at <= now:
                due.append(queue)
            elif later is None or at < later:
                later = at
        return due, later

    def expire(self, now: float) -> tuple[list[ProducerBatch], float | None]:
        """Drop the batches whose `delivery_timeout_ms` is over; returns them, and when the next batch expires."""
        timeout = self.config.delivery_timeout_ms / 1000
        expired: list[ProducerBatch] = []
        following: float | None = None
        for batch in self.unresolved:
            if batch.created + timeout > now:
                following = batch.created + timeout
                break
            expired.append(batch)
        for batch in expired:
            self._drop(batch)
        return expired, following

    def abandon(self) -> list[ProducerBatch]:
        """Drop all unresolved batches and return them."""
        batches = list(self.unresolved)
        for batch in batches:
            self._drop(batch)
        return batches

    def drop_waiting(self, *, maybe_written: bool) -> list[ProducerBatch]:
        """Drop the batches that are not in flight, and return them.

        Args:
            maybe_written: also those that a broker may have written.
        """
        batches = [one for one in self.unresolved if not one.in_flight and (maybe_written or not one.maybe_written)]
        for batch in batches:
            self._drop(batch)
        return batches

    def _drop(self, batch: ProducerBatch) -> None:
        queue = batch.queue
        if not batch.in_flight:
            queue.batches.remove(batch)
            if not queue.batches:
                self.waiting.pop(queue.tp, None)
        queue.failed(batch)


def _renumbered(data: bytearray, sequence: int, accumulator: Accumulator) -> bytearray:
    """Encode a batch again, with the current producer id and another sequence number."""
    return accumulator.encode(
        ((record.key, record.value, record.headers, record.timestamp) for record in decode_records(data)), sequence
    )
