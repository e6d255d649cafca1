"""The accumulator: batches, sequence numbers, retries in order, expiry, new producer ids."""

from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_client.config import Compression
from barnabas_client.producer.accumulator import MAX_IN_FLIGHT, Accumulator, PartitionQueue, ProducerBatch
from barnabas_client.producer.config import ProducerConfig
from barnabas_client.producer.measure import OVERHEAD
from barnabas_client.structs import TopicPartition
from barnabas_protocol.records import RecordColumns, check_crc, decode_records, read_header

T0 = TopicPartition("t", 0)


def made(
    *, batch_size: int = 1000, linger_ms: int = 0, idempotent: bool = True, compression: Compression | None = None
) -> tuple[Accumulator, PartitionQueue]:
    config = ProducerConfig(
        batch_size=batch_size,
        linger_ms=linger_ms,
        enable_idempotence=idempotent,
        compression_type=compression,
        delivery_timeout_ms=10_000,
        buffer_memory=100_000,
    )
    accumulator = Accumulator(config)
    if idempotent:
        accumulator.begin_epoch(7, 0)
    return accumulator, accumulator.queue(T0)


def add(queue: PartitionQueue, *values: bytes, now: float = 0.0) -> list[bool]:
    """Add records; returns for each whether it began a batch."""
    queue.accumulator.clock = lambda: now
    return [queue.append((None, value, (), 5), OVERHEAD + len(value)).count == 1 for value in values]


def full(queue: PartitionQueue, count: int) -> None:
    """Add records that fill a batch each."""
    for number in range(count):
        add(queue, b"%d" % number + b"x" * 2000)


def content(batch: ProducerBatch) -> list[bytes | None]:
    assert batch.data is not None
    check_crc(batch.data)
    return [record.value for record in decode_records(batch.data)]


def sequences(batches: Sequence[ProducerBatch]) -> list[int]:
    return [batch.sequence for batch in batches]


def test_records_share_a_batch_until_it_is_full() -> None:
    accumulator, queue = made(batch_size=230)
    assert add(queue, b"a" * 50, b"b" * 50, b"c" * 50) == [True, False, True]
    first, second = queue.take(), queue.take()
    assert content(first) == [b"a" * 50, b"b" * 50]
    assert content(second) == [b"c" * 50]
    assert first.data is not None
    assert [record.timestamp for record in decode_records(first.data)] == [5, 5]
    assert sequences([first, second]) == [0, 2]
    assert first.data is not None
    header = read_header(first.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 0)
    assert accumulator.waiting == {}


def test_a_record_larger_than_a_batch_has_its_own_batch() -> None:
    _, queue = made(batch_size=100)
    add(queue, b"a", b"b" * 500, b"c")
    assert [content(queue.take()) for _ in range(3)] == [[b"a"], [b"b" * 500], [b"c"]]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed(compression: Compression) -> None:
    _, queue = made(compression=compression)
    add(queue, b"a" * 400, b"b" * 400)
    batch = queue.take()
    assert content(batch) == [b"a" * 400, b"b" * 400]
    assert batch.data is not None
    assert len(batch.data) < 300


def test_without_linger_a_batch_is_due_at_once() -> None:
    accumulator, queue = made()
    assert accumulator.due(0) == ([], None)
    add(queue, b"a")
    assert accumulator.due(0) == ([queue], None)


def test_a_batch_lingers_until_it_is_full_or_flushed() -> None:
    accumulator, queue = made(linger_ms=100)
    add(queue, b"a")
    assert accumulator.due(0) == ([], 0.1)
    assert accumulator.due(0.1) == ([queue], None)
    accumulator.flushing = 1
    assert accumulator.due(0) == ([queue], None)
    accumulator.flushing = 0
    full(queue, 1)  # closes the first one
    assert accumulator.due(0) == ([queue], None)


def test_nothing_lingers_while_memory_is_full() -> None:
    accumulator, queue = made(linger_ms=100, batch_size=1_000_000)
    add(queue, b"a" * 100_000)
    assert accumulator.due(0) == ([queue], None)


def test_idempotent_batches_wait_for_a_producer_id() -> None:
    accumulator = Accumulator(ProducerConfig())
    queue = accumulator.queue(T0)
    assert accumulator.needs_producer_id()
    add(queue, b"a")
    assert accumulator.due(0) == ([], None)
    accumulator.begin_epoch(1, 0)
    assert not accumulator.needs_producer_id()
    assert accumulator.due(0) == ([queue], None)


def test_without_idempotence_one_batch_is_in_flight() -> None:
    accumulator, queue = made(idempotent=False)
    full(queue, 2)
    first = queue.take()
    assert first.sequence == -1
    assert queue.due_at() is None
    queue.succeeded(first)
    assert queue.due_at() == 0
    assert not accumulator.needs_producer_id()


def test_success_frees_memory_and_is_reported_once() -> None:
    accumulator, queue = made()
    add(queue, b"a" * 100)
    assert accumulator.memory > 100
    batch = queue.take()
    assert queue.succeeded(batch)
    assert not queue.succeeded(batch)
    assert accumulator.memory == 0
    assert not accumulator.unresolved


def test_the_first_batch_of_a_producer_id_is_sent_alone() -> None:
    accumulator, queue = made()
    full(queue, 3)
    first = queue.take()
    assert queue.due_at() is None
    queue.succeeded(first)
    queue.take()
    assert queue.due_at() == 0
    accumulator.begin_epoch(8, 0)
    assert queue.due_at() is None


def test_a_batch_that_is_sent_again_keeps_its_sequence_number_and_is_sent_alone() -> None:
    _, queue = made()
    full(queue, 4)
    one, two, three = queue.take(), queue.take(), queue.take()
    data = one.data
    # The broker refuses what follows a lost batch, and everything comes back in any order.
    queue.again(two, 1.0, maybe_written=False)
    queue.again(one, 2.0, maybe_written=True)
    assert queue.due_at() is None  # three is still under way
    queue.again(three, 0.5, maybe_written=False)
    assert queue.due_at() == 2.0
    again = queue.take()
    assert again is one
    assert (again.sequence, again.data, again.attempts) == (0, data, 2)
    assert queue.due_at() is None
    queue.succeeded(again)
    assert [queue.take() for _ in range(1)] == [two]
    queue.succeeded(two)
    assert queue.take() is three
    assert queue.due_at() is None  # nothing new goes beside a repeated one
    queue.succeeded(three)
    assert sequences([queue.take()]) == [3]


def test_the_first_unresolved_batch() -> None:
    _, queue = made()
    full(queue, 3)
    one, two = queue.take(), queue.take()
    assert queue.is_first_unresolved(one)
    assert not queue.is_first_unresolved(two)
    queue.again(one, 0.0, maybe_written=True)
    assert not queue.is_first_unresolved(two)
    queue.again(two, 0.0, maybe_written=False)
    queue.succeeded(queue.take())
    assert queue.is_first_unresolved(two)


def test_after_a_failed_batch_all_sequence_numbers_are_new() -> None:
    accumulator, queue = made()
    full(queue, 3)
    one, two = queue.take(), queue.take()
    assert queue.failed(one)
    assert accumulator.must_reset
    assert not accumulator.needs_producer_id()  # two is still under way
    assert queue.due_at() is None
    queue.again(two, 0.0, maybe_written=False)
    assert accumulator.needs_producer_id()
    accumulator.begin_epoch(8, 0)
    again = queue.take()
    assert again is two
    assert again.sequence == 0
    assert again.data is not None
    header = read_header(again.data)
    assert (header.producer_id, header.base_sequence) == (8, 0)
    assert content(again) == [b"1" + b"x" * 2000]
    queue.succeeded(again)
    assert sequences([queue.take()]) == [1]


def test_batches_that_may_have_been_written_are_sent_again_with_the_old_producer_id() -> None:
    accumulator, queue = made()
    other = accumulator.queue(TopicPartition("t", 1))
    full(queue, 1)
    full(other, 1)
    one, two = queue.take(), other.take()
    queue.failed(one)
    other.again(two, 0.0, maybe_written=True)
    assert not accumulator.needs_producer_id()
    assert other.take() is two
    assert two.sequence == 0
    other.succeeded(two)
    assert accumulator.needs_producer_id()


def test_a_batch_that_failed_without_a_sequence_number_leaves_no_gap() -> None:
    accumulator, queue = made()
    add(queue, b"a")
    expired, following = accumulator.expire(10.0)
    assert [batch.count for batch in expired] == [1]
    assert following is None
    assert not accumulator.must_reset
    assert (accumulator.memory, accumulator.waiting) == (0, {})


def test_the_time_of_the_next_expiry() -> None:
    accumulator, queue = made()
    add(queue, b"a", now=1)
    assert accumulator.expire(2) == ([], 11)


def test_a_batch_expires_while_it_is_in_flight() -> None:
    accumulator, queue = made()
    add(queue, b"a")
    batch = queue.take()
    expired, _ = accumulator.expire(10)
    assert expired == [batch]
    assert accumulator.must_reset
    assert not queue.succeeded(batch)  # the answer comes too late
    queue.again(batch, 0.0, maybe_written=True)
    assert accumulator.waiting == {}


def test_abandon_drops_every_batch() -> None:
    accumulator, queue = made()
    full(queue, 3)
    queue.take()
    assert len(accumulator.abandon()) == 3
    assert accumulator.memory == 0
    assert not accumulator.unresolved


def test_sequence_numbers_wrap() -> None:
    _, queue = made()
    queue.next_sequence = 2**31 - 1
    full(queue, 3)
    batches = [queue.take() for _ in range(3)]
    assert sequences(batches) == [2**31 - 1, 0, 1]
    for batch in reversed(batches):
        queue.again(batch, 0.0, maybe_written=False)
    assert list(queue.batches) == batches


class Broker(RuleBasedStateMachine):
    """A partition on a broker that checks sequence numbers; requests and answers get lost, records are refused.

    Whatever happens, the log holds what was acknowledged once and in the order of sending, and nothing that was refused
    by the producer as never sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.accumulator, self.queue = made(batch_size=150, linger_ms=50)
        self.accumulator.producer_id = -1
        self.now = 0.0
        self.accumulator.clock = lambda: self.now
        self.ids = 100
        self.sent: list[bytes] = []
        self.log: list[bytes] = []
        self.acknowledged: list[bytes] = []
        self.given_up: set[bytes] = set()
        self.content: defaultdict[ProducerBatch, list[bytes]] = defaultdict(list)
        self.in_flight: list[ProducerBatch] = []
        self.producers: dict[int, int] = {}
        self.recent: set[tuple[int, int]] = set()

    @rule(size=st.integers(1, 90))
    def send(self, size: int) -> None:
        value = b"%d." % len(self.sent) + b"x" * size
        self.sent.append(value)
        self.content[self.queue.append((None, value, (), 0), OVERHEAD + size)].append(value)

    @rule(sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6))
    def send_many(self, sizes: list[int]) -> None:
        values = [b"%d." % (len(self.sent) + at) + b"x" * size for at, size in enumerate(sizes)]
        self.sent += values
        for batch, place, count in self.queue.extend(RecordColumns(values, None, None, 0), 0, len(values)):
            assert place == len(self.content[batch])
            self.content[batch] += values[:count]
            del values[:count]
        assert not values

    @rule(seconds=st.floats(0, 0.2))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.accumulator.needs_producer_id())
    @rule()
    def initialize(self) -> None:
        self.ids += 1
        self.accumulator.begin_epoch(self.ids, 0)

    @precondition(lambda self: len(self.in_flight) < MAX_IN_FLIGHT)
    @rule()
    def take(self) -> None:
        due, later = self.accumulator.due(self.now)
        assert later is None or later > self.now
        if due:
            self.in_flight.append(self.queue.take())

    @precondition(lambda self: self.in_flight)
    @rule(lost=st.booleans())
    def arrive(self, lost: bool) -> None:
        """The oldest request reaches the broker; its answer reaches the producer, or not."""
        batch = self.in_flight.pop(0)
        verdict = self.append(batch)
        if lost:
            self.queue.again(batch, self.now, maybe_written=True)
        elif verdict == "written":
            if self.queue.succeeded(batch):
                self.acknowledged += self.content[batch]
        else:
            self.accumulator.must_reset |= self.queue.is_first_unresolved(batch)
            self.queue.again(batch, self.now, maybe_written=False)

    @precondition(lambda self: self.in_flight)
    @rule(refused=st.booleans())
    def vanish(self, refused: bool) -> None:
        """The connection breaks before anything arrives, or the broker refuses the oldest batch for good."""
        if refused:
            batch = self.in_flight.pop(0)
            if self.queue.failed(batch):
                self.given_up.update(self.content[batch])
        else:
            in_flight, self.in_flight = self.in_flight, []
            for batch in in_flight:
                self.queue.again(batch, self.now, maybe_written=True)

    def append(self, batch: ProducerBatch) -> str:
        if batch.data is None:
            return "written"  # dropped meanwhile; the response is ignored
        header = read_header(batch.data)
        if (header.producer_id, header.base_sequence) in self.recent:
            return "written"
        # Of a producer that it does not know Kafka takes any sequence number.
        if header.base_sequence != self.producers.get(header.producer_id, header.base_sequence):
            return "out of order"
        self.producers[header.producer_id] = header.base_sequence + header.count
        self.recent.add((header.producer_id, header.base_sequence))
        self.log += [record.value or b"" for record in decode_records(batch.data)]
        return "written"

    @invariant()
    def the_log_is_in_order_and_holds_nothing_twice(self) -> None:
        order = {value: at for at, value in enumerate(self.sent)}
        places = [order[value] for value in self.log]
        assert places == sorted(set(places))

    @invariant()
    def what_is_acknowledged_is_there(self) -> None:
        assert set(self.acknowledged) <= set(self.log)

    @invariant()
    def memory_is_counted(self) -> None:
        assert self.accumulator.memory == sum(batch.memory for batch in self.accumulator.unresolved)

    def teardown(self) -> None:
        """When the faults end, everything that was not given up arrives."""
        for _ in range(2 * len(self.sent) + 20):
            self.now += 1
            if self.accumulator.needs_producer_id():
                self.initialize()
            if len(self.in_flight) < MAX_IN_FLIGHT:
                self.take()
            if self.in_flight:
                self.arrive(lost=False)
        assert not self.accumulator.unresolved
        assert set(self.log) >= set(self.sent) - self.given_up
        self.the_log_is_in_order_and_holds_nothing_twice()


TestBroker = Broker.TestCase
TestBroker.settings = settings(max_examples=60, stateful_step_count=40)
