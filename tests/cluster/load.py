"""Producers and consumers during faults: Barnabas's own client. Their operations are recorded for the checker."""

import asyncio
import itertools
from collections.abc import Collection

from barnabas_client import (
    Consumer,
    ConsumerRebalanceListener,
    KafkaError,
    Producer,
    Receipt,
    TopicPartition,
)
from tests.checker.history import History, Key, Kind, Operation, Outcome, Poll, Send, Value

TOPIC = "ledger"
GROUP = "readers"
PARTITIONS = 6


class Writer:
    """Writes numbered values to all partitions, idempotent and with acks=all. After an error it continues with a new
    producer."""

    def __init__(self, bootstrap: str, history: History, rate: float) -> None:
        self._bootstrap = bootstrap
        self._history = history
        self._pause = 1 / rate
        self._numbers = itertools.count()
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            try:
                async with Producer(
                    bootstrap_servers=self._bootstrap, acks="all", delivery_timeout_ms=60_000, linger_ms=5
                ) as producer:
                    await self._write(producer)
            except KafkaError:
                await asyncio.sleep(0.2)
            if not self.stopping:
                self._history.do("writer", Kind.CRASH)

    async def _write(self, producer: Producer) -> None:
        failed = False
        waiting: set[asyncio.Task[None]] = set()

        async def settle(operation: Operation, send: Send, future: Receipt) -> None:
            nonlocal failed
            try:
                stored = await future
            except KafkaError as error:
                self._history.complete(operation, Outcome.UNKNOWN, error=str(error))
                failed = True
            else:
                offset = stored.offset if stored.offset >= 0 else None
                self._history.complete(operation, Outcome.OK, [send._replace(offset=offset)])

        while not self.stopping and not failed:
            number = next(self._numbers)
            partition, value = number % PARTITIONS, str(number)
            send = Send((TOPIC, partition), value)
            operation = self._history.invoke("writer", Kind.SEND, [send])
            future = await producer.send(TOPIC, value.encode(), partition=partition)
            task = asyncio.create_task(settle(operation, send, future))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            await asyncio.sleep(self._pause)
        await producer.flush()
        if waiting:
            await asyncio.wait(waiting)


class _Moves(ConsumerRebalanceListener):
    """Notes the partitions that rebalances take or give, and looks up what the group has committed for the latter.

    Attributes:
        moved: keys of both.
        taken: keys that were revoked.
    """

    def __init__(self, name: str, consumer: Consumer, history: History) -> None:
        self._name = name
        self._consumer = consumer
        self._history = history
        self.moved: set[Key] = set()
        self.taken: set[Key] = set()

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.moved |= set(revoked)
        self.taken |= set(revoked)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.moved |= set(assigned)
        operation = self._history.invoke(self._name, Kind.COMMITTED, group=GROUP)
        try:
            offsets = {where: await self._consumer.committed(where) or 0 for where in assigned}
        except KafkaError as error:
            self._history.complete(operation, Outcome.UNKNOWN, error=str(error))
        else:
            self._history.complete(operation, Outcome.OK, offsets={tuple(each): at for each, at in offsets.items()})


class Reader:
    """A member of the group; commits the offsets that it has read."""

    def __init__(self, bootstrap: str, history: History, name: str) -> None:
        self._bootstrap = bootstrap
        self._history = history
        self._name = name
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            try:
                async with Consumer(
                    bootstrap_servers=self._bootstrap,
                    group_id=GROUP,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    session_timeout_ms=6000,
                    heartbeat_interval_ms=1000,
                ) as consumer:
                    await self._read(consumer)
            except (KafkaError, OSError):
                await asyncio.sleep(0.2)
            self._history.do(self._name, Kind.CRASH)

    async def _read(self, consumer: Consumer) -> None:
        moves = _Moves(self._name, consumer, self._history)
        self._history.do(self._name, Kind.SUBSCRIBE, keys=[(TOPIC, number) for number in range(PARTITIONS)])
        consumer.subscribe([TOPIC], listener=moves)
        while not self.stopping:
            polling = self._history.invoke(self._name, Kind.POLL, group=GROUP)
            batches = await consumer.getmany(timeout_ms=500, max_records=5000)
            moved, taken = moves.moved, moves.taken
            moves.moved, moves.taken = set(), set()
            records: dict[Key, list[tuple[int, Value]]] = {
                tuple(where): [(record.offset, (record.value or b"").decode()) for record in batch]
                for where, batch in batches.items()
            }
            self._history.complete(polling, Outcome.OK, [Poll(records)], rebalanced=moved)
            offsets = {where: batch[-1].offset + 1 for where, batch in batches.items() if where not in taken}
            if offsets:
                committing = self._history.invoke(self._name, Kind.COMMIT, group=GROUP)
                try:
                    await consumer.commit(offsets)
                except KafkaError as error:
                    self._history.complete(committing, Outcome.UNKNOWN, error=str(error))
                else:
                    done: dict[Key, int] = {tuple(where): offset for where, offset in offsets.items()}
                    self._history.complete(committing, Outcome.OK, offsets=done)
            if len(offsets) < len(batches):
                return  # records of a revoked partition, which another member may have read and committed by now


async def read_all(bootstrap: str, history: History) -> None:
    """Read all records of the topic."""
    async with Consumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest") as consumer:
        places = [TopicPartition(TOPIC, n) for n in range(PARTITIONS)]
        consumer.assign(places)
        found: dict[Key, list[tuple[int, Value]]] = {(TOPIC, n): [] for n in range(PARTITIONS)}
        operation = history.invoke("end", Kind.SCAN)
        ends = await consumer.end_offsets(places)
        while [where for where in places if await consumer.position(where) < ends[where]]:
            for where, batch in (await consumer.getmany(timeout_ms=1000)).items():
                found[tuple(where)] += [(record.offset, (record.value or b"").decode()) for record in batch]
        history.complete(operation, Outcome.OK, [Poll(found)])


def with_outcome(history: History, outcome: Outcome, kind: Kind = Kind.SEND) -> int:
    """Return how many operations of a kind ended so."""
    return sum(each.kind is kind and each.outcome is outcome for each in history.operations)
