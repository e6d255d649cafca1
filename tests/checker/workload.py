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
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.checker.groups import POLL, Group, Plan, close, offset_of, read_records, within
from tests.checker.history import History, Key, Kind, Outcome, Poll, Send, Step
from tests.wire import Wire

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

    One or more producers; a consumer that assigns itself changing partitions; members of groups, which commit what
    they have read; and, if asked for, processes that poll, send and commit offsets in transactions, a quarter of which
    they abort. Producers and members close their client from time to time, and continue with a new one.

    Args:
        bootstrap: addresses of brokers.
        topic: a topic of `partitions` partitions that nothing else uses.
        history: where the operations are recorded.
        seed: of all random choices.
        writers: number of producers.
        groups: what the groups are made of; by default one of the classic protocol, which has the topic's name.
        transactional: number of processes with transactions.
        rate: records per second of each producer.
        session_ms: session timeout of members of the classic protocol, in milliseconds.
        limit: seconds for requests that have no timeout of their own. A call of the library that does not return is
            abandoned after twice as long, with an unknown outcome.
        enter: called in the thread of each member of a group before it begins, with its number in the group.
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
        groups: Sequence[Plan] = (),
        transactional: int = 0,
        rate: float = 200.0,
        session_ms: int = 6000,
        limit: float = 10.0,
        enter: Callable[[int], None] = lambda member: None,
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
            # While no broker listens, librdkafka replaces its handles of all brokers, a thread each, after every such
            # pause: with 10 ms, twenty clients take so much of two cores that brokers come back late.
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5000,
        }
        self._member: dict[str, Any] = {
            **self._client,
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
        ]
        self._groups = [
            Group(plan, topic, self._partitions, history, self._member, seed=seed, limit=limit, enter=enter)
            for plan in groups or [Plan(topic)]
        ]
        self._writing = threading.Event()
        self._reading = threading.Event()
        self._writing.set()
        self._reading.set()
        self._progress = threading.Condition()
        self._acknowledged = Counter[Kind]()
        #: The offset of the last acknowledged send of each partition.
        self._last: dict[int, int] = {}
        self._threads = ThreadPoolExecutor(len(roles) + sum(group.plan.members for group in self._groups))
        self._writers = [self._threads.submit(role, name) for role, name in roles[: writers + transactional]]
        self._readers = [self._threads.submit(role, name) for role, name in roles[writers + transactional :]]
        for group in self._groups:
            group.start(self._threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._writing.clear()
        self._reading.clear()
        for group in self._groups:
            group.stop()
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
        for group in self._groups:
            group.raise_failure()

    def _count(self, kind: Kind) -> None:
        with self._progress:
            self._acknowledged[kind] += 1
            self._progress.notify_all()

    def settle(self, seconds: float) -> bool:
        """Let members keep their clients from now on, and wait until each partition has one member of every group.

        Returns:
            Whether all groups have come so far. If one has not, in so many seconds, the history shows an anomaly.
        """
        deadline = time.monotonic() + seconds
        for group in self._groups:
            group.begin_to_settle()
        settled = [group.settle(max(0.0, deadline - time.monotonic())) for group in self._groups]
        return all(settled)

    def finish(self, seconds: float) -> None:
        """Stop the producers, wait until the groups have committed all that was acknowledged, and read the whole topic.

        Args:
            seconds: the limit, once for each of these steps.

        Raises:
            TimeoutError: the producers, or a group, are not done in time.
        """
        self._writing.clear()
        if wait(self._writers, seconds).not_done:
            raise TimeoutError(f"the producers of {self._topic} have not ended in {seconds:.0f} s")
        self.settle(seconds)
        ends = self.ends()
        for group in self._groups:
            group.await_committed(ends, seconds)
            group.stop()
        self._reading.clear()
        for future in [*self._writers, *self._readers]:
            future.result(seconds)
        for group in self._groups:
            group.join(seconds)
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
                        producer.poll(POLL)
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
            offset = offset_of(message)
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
                        poll, moved = read_records(consumer, self._topic)
                        positions.update(moved)
                        self._history.complete(operation, Outcome.OK, [poll])
        finally:
            close(consumer, self._limit)

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
                for message in consumer.consume(5000, POLL):
                    partition, offset, value, error = (
                        message.partition(),
                        offset_of(message),
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
            close(consumer, self._limit)
        self._history.complete(operation, Outcome.OK, [Poll(found)])

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
                close(consumer, self._limit)
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
            poll, ahead = read_records(consumer, self._topic, 50)
            for at, (partition, send) in enumerate(zip(plan, sends, strict=True)):

                def delivered(error: KafkaError | None, message: Message, at: int = at) -> None:
                    offset = offset_of(message)
                    if error is None and offset is not None:
                        offsets[at] = offset

                producer.produce(self._topic, str(send.value), partition=partition, on_delivery=delivered)
            if ahead:
                asked = [TopicPartition(self._topic, partition, offset) for partition, offset in ahead.items()]
                group = consumer.consumer_group_metadata()
                within(2 * self._limit, partial(producer.send_offsets_to_transaction, asked, group, self._limit))
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
