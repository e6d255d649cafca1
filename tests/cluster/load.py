"""Producers and consumers during faults, and the acknowledgements that they received."""

import asyncio
import contextlib
from dataclasses import dataclass, field

from barnabas_client import Consumer, ConsumerRecord, KafkaError, Producer, RecordMetadata, TopicPartition

TOPIC = "ledger"
GROUP = "readers"
PARTITIONS = 6


@dataclass
class Promises:
    """The acknowledgements of the brokers.

    Attributes:
        written: per partition, offset and value of each record that was acknowledged, in the order of sending.
        lost_count: records with unknown result: neither acknowledged nor rejected in time.
        committed: per partition, the highest offset whose commit was acknowledged.
        went_back: committed offsets that were lower than an acknowledged one.
        slowest: longest time between two acknowledgements, in seconds.
    """

    written: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    lost_count: int = 0
    committed: dict[int, int] = field(default_factory=dict)
    went_back: list[str] = field(default_factory=list)
    slowest: float = 0.0
    rebalances: int = 0
    consumed: int = 0


class Writer:
    """Writes numbered values to all partitions, idempotent and with acks=all."""

    def __init__(self, bootstrap: str, promises: Promises, rate: float) -> None:
        self._bootstrap = bootstrap
        self._promises = promises
        self._pause = 1 / rate
        self._life = 0
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            self._life += 1
            try:
                async with Producer(
                    bootstrap_servers=self._bootstrap, acks="all", delivery_timeout_ms=60_000, linger_ms=5
                ) as producer:
                    await self._write(producer)
            except KafkaError:
                await asyncio.sleep(0.2)

    async def _write(self, producer: Producer) -> None:
        loop = asyncio.get_running_loop()
        number, last, failed = 0, loop.time(), False
        waiting: set[asyncio.Task[None]] = set()

        async def settle(partition: int, value: bytes, future: "asyncio.Future[RecordMetadata]") -> None:
            nonlocal last, failed
            try:
                stored = await future
            except KafkaError:
                self._promises.lost_count += 1
                failed = True
                return
            self._promises.slowest = max(self._promises.slowest, loop.time() - last)
            last = loop.time()
            self._promises.written.setdefault(partition, []).append((stored.offset, value))

        while not self.stopping and not failed:
            partition, value = number % PARTITIONS, b"%d-%d" % (self._life, number)
            number += 1
            future = await producer.send(TOPIC, value, partition=partition)
            task = loop.create_task(settle(partition, value, future))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            await asyncio.sleep(self._pause)
        await producer.flush()
        if waiting:
            await asyncio.wait(waiting)


class Reader:
    """A member of the group; commits the offsets that it has read."""

    def __init__(self, bootstrap: str, promises: Promises) -> None:
        self._bootstrap = bootstrap
        self._promises = promises
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            try:
                async with Consumer(
                    TOPIC,
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

    async def _read(self, consumer: Consumer) -> None:
        held: frozenset[TopicPartition] = frozenset()
        while not self.stopping:
            records = await consumer.getmany(timeout_ms=500, max_records=5000)
            if consumer.assignment() != held:
                held = consumer.assignment()
                self._promises.rebalances += 1
                await self._look_back(consumer, held)
            self._promises.consumed += sum(map(len, records.values()))
            if records:
                offsets = {where: batch[-1].offset + 1 for where, batch in records.items()}
                with contextlib.suppress(KafkaError):
                    await consumer.commit(offsets)
                    for where, offset in offsets.items():
                        known = self._promises.committed.get(where.partition, 0)
                        self._promises.committed[where.partition] = max(known, offset)

    async def _look_back(self, consumer: Consumer, held: frozenset[TopicPartition]) -> None:
        for where in held:
            promised = self._promises.committed.get(where.partition, 0)
            with contextlib.suppress(KafkaError):
                found = await consumer.committed(where)
                if (0 if found is None else found) < promised:
                    self._promises.went_back.append(f"{where}: {found} after {promised}")


async def read_all(bootstrap: str) -> dict[int, list[ConsumerRecord]]:
    """Return all records, per partition."""
    async with Consumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest") as consumer:
        places = [TopicPartition(TOPIC, n) for n in range(PARTITIONS)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        found: dict[int, list[ConsumerRecord]] = {n: [] for n in range(PARTITIONS)}
        while [where for where in places if await consumer.position(where) < ends[where]]:
            for where, batch in (await consumer.getmany(timeout_ms=1000)).items():
                found[where.partition] += batch
    return found


def broken(promises: Promises, found: dict[int, list[ConsumerRecord]]) -> list[str]:
    """Return the violations: acknowledged records or commits that are missing."""
    wrong = list(promises.went_back)
    for partition, written in promises.written.items():
        there = {record.offset: record.value for record in found[partition]}
        for offset, value in written:
            if there.get(offset) != value:
                wrong.append(
                    f"{TOPIC}-{partition}: {value!r} was acknowledged at {offset}, there is {there.get(offset)!r}"
                )
        values = [record.value for record in found[partition]]
        if len(values) != len(set(values)):
            wrong.append(f"{TOPIC}-{partition}: {len(values) - len(set(values))} records are there twice")
        order = [tuple(map(int, (value or b"").split(b"-"))) for value in values]
        if order != sorted(order):
            wrong.append(f"{TOPIC}-{partition}: records are not in the order of sending")
    return wrong
