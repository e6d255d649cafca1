"""Producers, consumers and transactions of confluent-kafka that record their history.

history = History()
with Workload(broker.bootstrap_servers, "ledger", 6, history, seed=1) as workload:
    ...  # kill brokers
    workload.finish(60)
assert not check(history).lines()
"""

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Final, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.checker.history import History, Key, Kind, Outcome, Poll, Send, Step
from tests.wire import Wire

T = TypeVar("T")

#: Seconds that one poll waits.
_POLL: Final = 0.2
#: Milliseconds after which a producer gives up: its record has then an unknown outcome.
_DELIVERY_MS: Final = 60_000
#: Settings of plain producers. With several requests in flight, librdkafka takes a new epoch when the second one is
#: refused because the first one was, and sends again what is unacknowledged in other partitions, with new sequence
#: numbers: records are doubled that no broker can tell (https://github.com/confluentinc/librdkafka/issues/4953).
_WRITER: Final = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "message.timeout.ms": _DELIVERY_MS,
    "max.in.flight.requests.per.connection": 1,
}
#: Sends of one producer that may be under way.
_UNDER_WAY: Final = 1000
_ADD_PARTITIONS_TO_TXN: Final = 24


async def serves_transactions(bootstrap: str) -> bool:
    """Return whether the first of these brokers lists AddPartitionsToTxn among its APIs."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    async with await Wire.connect(int(port), host) as wire:
        answer = await wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    return any(each.api_key == _ADD_PARTITIONS_TO_TXN for each in answer.api_keys)


class Workload:
    """Threads that produce to a topic and consume it, until `finish`.

    One or more producers; a consumer that assigns itself changing partitions; members of a group, which commit what
    they have read; and, if asked for, processes that poll, send and commit offsets in transactions, a quarter of which
    they abort. Producers and members close their client from time to time, and continue with a new one.

    Args:
        bootstrap: addresses of brokers.
        topic: a topic of `partitions` partitions that nothing else uses. Its name is that of the group too.
        history: where the operations are recorded.
        seed: of all random choices.
        writers: number of producers.
        members: number of members of the group.
        transactional: number of processes with transactions.
        rate: records per second of each producer.
        session_ms: session timeout of the group's members, in milliseconds.
        limit: seconds for requests that have no timeout of their own. A call of the library that does not return is
            abandoned after twice as long, with an unknown outcome.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        history: History,
        *,
        seed: int,
        writers: int = 2,
        members: int = 2,
        transactional: int = 0,
        rate: float = 200.0,
        session_ms: int = 6000,
        limit: float = 10.0,
    ) -> None:
        self._topic = topic
        self._partitions = range(partitions)
        self._history = history
        self._seed = seed
        self._pause = 1 / rate
        self._limit = limit
        self._client = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5000,
        }
        self._member = {
            **self._client,
            "group.id": topic,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": session_ms,
            # A member that is left behind in a call that does not return loses its partitions soon.
            "max.poll.interval.ms": max(session_ms, int(3000 * limit)),
            "heartbeat.interval.ms": session_ms // 6,
            "fetch.wait.max.ms": 100,
        }
        roles = [
            *((self._write, f"writer {topic} {number}") for number in range(writers)),
            *((self._transact, f"transactions {topic} {number}") for number in range(transactional)),
            (self._assign, f"reader {topic}"),
            *((self._join, f"member {topic} {number}") for number in range(members)),
        ]
        self._writing = threading.Event()
        self._reading = threading.Event()
        self._writing.set()
        self._reading.set()
        self._progress = threading.Condition()
        self._acknowledged = Counter[Kind]()
        self._group: dict[int, int] = {}
        #: The offset of the last acknowledged send of each partition.
        self._last: dict[int, int] = {}
        self._threads = ThreadPoolExecutor(len(roles))
        self._writers = [self._threads.submit(role, name) for role, name in roles[: writers + transactional]]
        self._readers = [self._threads.submit(role, name) for role, name in roles[writers + transactional :]]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._writing.clear()
        self._reading.clear()
        self._threads.shutdown()

    def await_acknowledged(self, count: int, seconds: float, kind: Kind = Kind.SEND) -> None:
        """Wait until that many more sends, or transactions, are acknowledged.

        Raises:
            TimeoutError: they are not, in so many seconds.
        """
        with self._progress:
            goal = self._acknowledged[kind] + count
            if not self._progress.wait_for(lambda: self._acknowledged[kind] >= goal, seconds):
                self._raise_failure()
                found = self._acknowledged[kind]
                raise TimeoutError(f"after {seconds:.0f} s {found} of {goal} {kind.value}s are acknowledged")

    def await_offset(self, partition: int, offset: int, seconds: float) -> None:
        """Wait until the last send to a partition that is acknowledged has at least this offset.

        Raises:
            TimeoutError: it has not, in so many seconds.
        """
        with self._progress:
            if not self._progress.wait_for(lambda: self._last.get(partition, -1) >= offset, seconds):
                self._raise_failure()
                raise TimeoutError(f"after {seconds:.0f} s partition {partition} is at {self._last} of {offset}")

    def _raise_failure(self) -> None:
        """Raise the error of a thread that has ended with one."""
        for future in [*self._writers, *self._readers]:
            if future.done():
                future.result()

    def _count(self, kind: Kind) -> None:
        with self._progress:
            self._acknowledged[kind] += 1
            self._progress.notify_all()

    def finish(self, seconds: float) -> None:
        """Stop the producers, wait until the group has committed all that was acknowledged, and read the whole topic.

        Args:
            seconds: the limit, once for each of these steps.

        Raises:
            TimeoutError: the producers, or the group, are not done in time.
        """
        self._writing.clear()
        if wait(self._writers, seconds).not_done:
            raise TimeoutError(f"the producers of {self._topic} have not ended in {seconds:.0f} s")
        ends = self.ends()
        with self._progress:
            if not self._progress.wait_for(
                lambda: all(self._group.get(partition, 0) >= end for partition, end in ends.items()), seconds
            ):
                self._raise_failure()
                raise TimeoutError(f"the group {self._topic} has committed {self._group} of {ends}")
        self._reading.clear()
        for future in [*self._writers, *self._readers]:
            future.result(seconds)
        self._scan(ends, seconds)

    def ends(self) -> dict[int, int]:
        """Return for each partition the offset after the last acknowledged record."""
        numbers = {self._key(each): each for each in self._partitions}
        ends = dict.fromkeys(self._partitions, 0)
        for operation in self._history.operations:
            if operation.outcome is Outcome.OK:
                for send in operation.sends():
                    if send.key in numbers and send.offset is not None:
                        ends[numbers[send.key]] = max(ends[numbers[send.key]], send.offset + 1)
        return ends

    def _key(self, partition: int) -> Key:
        return self._topic, partition

    def _keys(self, partitions: Sequence[TopicPartition]) -> list[Key]:
        return [self._key(each.partition) for each in partitions]

    # Producers

    def _write(self, process: str) -> None:
        rng = random.Random(f"{self._seed} {process}")
        numbers = itertools.count()
        while self._writing.is_set():
            producer = Producer({**self._client, **_WRITER})
            try:
                for number in itertools.islice(numbers, rng.randrange(500, 5000)):
                    if not self._writing.is_set():
                        producer.flush(_DELIVERY_MS / 1000 + self._limit)
                        return
                    self._produce(producer, process, f"{process} {number}", rng.choice(self._partitions))
                    producer.poll(self._pause)
                    while len(producer) > _UNDER_WAY:
                        producer.poll(_POLL)
            except KafkaException:
                pass  # a fatal error; the records have no acknowledgement
            except SystemError as error:
                # The same: the library leaves it pending in a callback of ours, or loses it and returns NULL.
                lost = str(error).endswith("'cimpl.Producer' objects> returned NULL without setting an exception")
                if not (lost or isinstance(error.__cause__, KafkaException)):
                    raise
            producer.purge()
            self._history.do(process, Kind.CRASH)

    def _produce(self, producer: Producer, process: str, value: str, partition: int) -> None:
        key = self._key(partition)
        operation = self._history.invoke(process, Kind.SEND, [Send(key, value)])

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                # The library knows whether the record may be in the log, but does not tell it in Python.
                self._history.complete(operation, Outcome.UNKNOWN, error=error.str())
                return
            offset = _offset(message)
            self._history.complete(operation, Outcome.OK, [Send(key, value, offset)])
            if offset is not None:
                self._last[partition] = offset
            self._count(Kind.SEND)

        producer.produce(self._topic, value, partition=partition, on_delivery=delivered)

    # Consumers

    def _assign(self, process: str) -> None:
        rng = random.Random(f"{self._seed} {process}")
        positions: dict[int, int] = dict.fromkeys(self._partitions, 0)
        consumer = Consumer({**self._member, "group.id": f"{self._topic} without members"})
        try:
            while self._reading.is_set():
                partitions = rng.sample(self._partitions, rng.randint(1, len(self._partitions)))
                consumer.assign([TopicPartition(self._topic, each, positions[each]) for each in partitions])
                self._history.do(process, Kind.ASSIGN, keys=[self._key(each) for each in partitions])
                for _ in range(rng.randrange(10, 50)):
                    if self._reading.is_set():
                        operation = self._history.invoke(process, Kind.POLL)
                        poll, moved = self._poll(consumer)
                        positions.update(moved)
                        self._history.complete(operation, Outcome.OK, [poll])
        finally:
            self._close(consumer)

    def _join(self, process: str) -> None:
        rng = random.Random(f"{self._seed} {process}")
        while self._reading.is_set():
            self._be_member(process, rng.randrange(20, 200))
            self._history.do(process, Kind.CRASH)

    def _be_member(self, process: str, polls: int) -> None:
        """Join the group, poll and commit, and leave it."""
        consumer = Consumer(self._member)
        moved: set[Key] = set()
        taken: set[Key] = set()

        def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            moved.update(self._keys(partitions))
            operation = self._history.invoke(process, Kind.COMMITTED)
            try:
                found = consumer.committed(partitions, self._limit)
            except KafkaException as error:
                self._history.complete(operation, Outcome.UNKNOWN, error=str(error))
            else:
                offsets = {self._key(each.partition): max(each.offset, 0) for each in found if each.error is None}
                self._history.complete(operation, Outcome.OK, offsets=offsets)
                # Among them may be a commit whose answer was lost.
                self._reached({each.partition: each.offset for each in found if each.error is None})

        def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            moved.update(self._keys(partitions))
            taken.update(self._keys(partitions))

        try:
            self._history.do(process, Kind.SUBSCRIBE, keys=[self._key(each) for each in self._partitions])
            consumer.subscribe([self._topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
            for _ in range(polls):
                if not self._reading.is_set():
                    return
                operation = self._history.invoke(process, Kind.POLL)
                poll, ahead = self._poll(consumer)
                self._history.complete(operation, Outcome.OK, [poll], rebalanced=frozenset(moved))
                kept = {partition: offset for partition, offset in ahead.items() if self._key(partition) not in taken}
                if kept and not self._commit(process, consumer, kept):
                    return  # its next poll does not return either, and no other program can end it
                if len(kept) < len(ahead):
                    return  # records of a revoked partition, which another member may have read and committed by now
                moved.clear()
                taken.clear()
        finally:
            self._close(consumer)

    def _commit(self, process: str, consumer: Consumer, offsets: dict[int, int]) -> bool:
        """Commit; whether the call has returned."""
        operation = self._history.invoke(process, Kind.COMMIT)
        asked = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]

        def commit() -> list[TopicPartition]:
            return consumer.commit(offsets=asked, asynchronous=False) or []

        try:
            answers = _within(2 * self._limit, commit)
        except KafkaException as error:
            self._history.complete(operation, Outcome.UNKNOWN, error=str(error))
            return bool(error.args[0].code() != KafkaError._TIMED_OUT)
        done = {each.partition: each.offset for each in answers if each.error is None}
        self._history.complete(operation, Outcome.OK, offsets={self._key(each): done[each] for each in done})
        self._reached(done)
        return True

    def _reached(self, offsets: dict[int, int]) -> None:
        """The group has committed these offsets."""
        with self._progress:
            for partition, offset in offsets.items():
                self._group[partition] = max(self._group.get(partition, 0), offset)
            self._progress.notify_all()

    def _poll(self, consumer: Consumer, count: int = 500) -> tuple[Poll, dict[int, int]]:
        """Return the records of a poll, and the offset after the last one of each partition."""
        records: dict[Key, list[tuple[int, str]]] = {}
        positions: dict[int, int] = {}
        for message in consumer.consume(count, _POLL):
            partition, offset, value = message.partition(), _offset(message), message.value()
            if message.error() is None and partition is not None and offset is not None and value is not None:
                records.setdefault(self._key(partition), []).append((offset, value.decode()))
                positions[partition] = offset + 1
        return Poll(records), positions

    def _scan(self, ends: dict[int, int], seconds: float) -> None:
        """Read everything from the first offset: to the end, and at least what was acknowledged."""
        deadline = time.monotonic() + seconds
        found: dict[Key, list[tuple[int, str]]] = {self._key(each): [] for each in self._partitions}
        ended: set[int] = set()
        operation = self._history.invoke(f"end of {self._topic}", Kind.SCAN)
        consumer = Consumer({**self._member, "group.id": f"{self._topic} at the end", "enable.partition.eof": True})
        try:
            consumer.assign([TopicPartition(self._topic, each, 0) for each in self._partitions])
            while len(ended) < len(self._partitions) and time.monotonic() < deadline:
                for message in consumer.consume(5000, _POLL):
                    partition, offset, value, error = (
                        message.partition(),
                        _offset(message),
                        message.value(),
                        message.error(),
                    )
                    assert partition is not None
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        if offset is not None and offset >= ends[partition]:
                            ended.add(partition)
                    elif error is None and offset is not None and value is not None:
                        found[self._key(partition)].append((offset, value.decode()))
        finally:
            self._close(consumer)
        self._history.complete(operation, Outcome.OK, [Poll(found)])

    def _close(self, consumer: Consumer) -> None:
        with suppress(KafkaException):
            _within(2 * self._limit, consumer.close)

    # Transactions

    def _transact(self, process: str) -> None:
        rng = random.Random(f"{self._seed} {process}")
        positions: dict[int, int] = dict.fromkeys(self._partitions, 0)
        numbers = itertools.count()
        while self._writing.is_set():
            producer = Producer(
                {
                    **self._client,
                    "transactional.id": process,
                    "linger.ms": 5,
                    "transaction.timeout.ms": 10_000,
                    "message.timeout.ms": 10_000,
                }
            )
            consumer = Consumer({**self._member, "group.id": process})
            try:
                producer.init_transactions(self._limit)
                consumer.assign([TopicPartition(self._topic, each, at) for each, at in positions.items()])
                self._history.do(process, Kind.ASSIGN, keys=[self._key(each) for each in self._partitions])
                for _ in range(rng.randrange(50, 500)):
                    if self._writing.is_set():
                        self._transaction(producer, consumer, process, numbers, positions, rng)
            except KafkaException:
                pass  # the operation has recorded it
            finally:
                producer.purge()
                self._close(consumer)
                self._history.do(process, Kind.CRASH)

    def _transaction(
        self,
        producer: Producer,
        consumer: Consumer,
        process: str,
        numbers: Iterator[int],
        positions: dict[int, int],
        rng: random.Random,
    ) -> None:
        """Run a transaction. `positions` moves if it commits.

        Raises:
            KafkaException: its outcome is unknown; the clients cannot go on.
        """
        plan = [rng.choice(self._partitions) for _ in range(rng.randrange(1, 5))]
        sends = [Send(self._key(partition), f"{process} {next(numbers)}") for partition in plan]
        offsets: dict[int, int] = {}
        ahead: dict[int, int] = {}
        steps: list[Step] = list(sends)
        operation = self._history.invoke(process, Kind.TXN, steps)
        try:
            producer.begin_transaction()
            poll, ahead = self._poll(consumer, 50)
            for at, (partition, send) in enumerate(zip(plan, sends, strict=True)):

                def delivered(error: KafkaError | None, message: Message, at: int = at) -> None:
                    offset = _offset(message)
                    if error is None and offset is not None:
                        offsets[at] = offset

                producer.produce(self._topic, str(send.value), partition=partition, on_delivery=delivered)
            if ahead:
                asked = [TopicPartition(self._topic, partition, offset) for partition, offset in ahead.items()]
                group = consumer.consumer_group_metadata()
                _within(2 * self._limit, partial(producer.send_offsets_to_transaction, asked, group, self._limit))
            steps = [poll, *sends]
            outcome = self._end(producer, rng)
        except KafkaException as error:
            self._history.complete(operation, Outcome.UNKNOWN, steps, error=str(error))
            raise
        done = [send._replace(offset=offsets.get(at)) for at, send in enumerate(sends)]
        self._history.complete(operation, outcome, [poll, *done])
        if outcome is Outcome.OK:
            positions.update(ahead)
            self._count(Kind.TXN)
        else:
            for partition in ahead:
                consumer.seek(TopicPartition(self._topic, partition, positions[partition]))

    def _end(self, producer: Producer, rng: random.Random) -> Outcome:
        if rng.random() < 0.75:
            try:
                producer.commit_transaction(self._limit)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
            else:
                return Outcome.OK
        producer.abort_transaction(self._limit)
        return Outcome.FAIL


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Run a call that may wait for ever whatever its timeout, in a thread that is left behind if it does.

    ``send_offsets_to_transaction`` does when the group's coordinator goes: librdkafka's issues 5456 and 5511. So does a
    synchronous commit, which has no timeout, of a member that has lost its group meanwhile.

    Raises:
        KafkaException: of the call; also if it has not returned in so many seconds.
    """
    returned: Future[T] = Future()

    def run() -> None:
        try:
            returned.set_result(call())
        except BaseException as error:
            returned.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    if not wait([returned], seconds).done:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no return in {seconds:.0f} s"))
    return returned.result()


def _offset(message: Message) -> int | None:
    offset = message.offset()
    return None if offset is None or offset < 0 else offset
