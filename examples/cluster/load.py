"""The load during the kills: a producer, consumers, what was acknowledged to them, and how long they had to wait."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from barnabas import Consumer, ConsumerRecord, KafkaError, Producer, RecordMetadata, TopicPartition

TOPIC: Final = "ledger"
GROUP: Final = "readers"
PARTITIONS: Final = 6
PLACES: Final = tuple(TopicPartition(TOPIC, number) for number in range(PARTITIONS))


@dataclass
class Outage:
    """A killed broker and the time until its partitions worked again.

    Attributes:
        broker: the id of the broker.
        at: the time of the kill.
        partitions: the partitions that it led.
        acknowledged: for each partition the seconds until a record sent after the kill was acknowledged.
        consumed: for each partition the seconds until such a record was consumed.
        committed: the seconds until the group committed such a record.
    """

    broker: int
    at: float
    partitions: frozenset[int]
    acknowledged: dict[int, float] = field(default_factory=dict)
    consumed: dict[int, float] = field(default_factory=dict)
    committed: float | None = None

    @property
    def over(self) -> bool:
        """Whether all its partitions and the group work again."""
        return len(self.acknowledged) == len(self.consumed) == len(self.partitions) and self.committed is not None


@dataclass
class Ledger:
    """The records sent, acknowledged and consumed. Records are numbered; their partition is number % PARTITIONS."""

    sent: list[float] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    consumed: set[int] = field(default_factory=set)
    again: int = 0
    refused: int = 0
    outages: list[Outage] = field(default_factory=list)

    def acknowledge(self, number: int, offset: int) -> None:
        """Note an acknowledged record."""
        self.offsets[number] = offset
        self._note(number, lambda outage: outage.acknowledged)

    def consume(self, number: int) -> None:
        """Note a consumed record."""
        self.again += number in self.consumed
        self.consumed.add(number)
        self._note(number, lambda outage: outage.consumed)

    def commit(self, numbers: Sequence[int]) -> None:
        """Note records whose offsets the group has committed."""
        now = time.monotonic()
        for outage in self.outages:
            if outage.committed is None and any(self.sent[number] > outage.at for number in numbers):
                outage.committed = now - outage.at

    def _note(self, number: int, which: Callable[[Outage], dict[int, float]]) -> None:
        where = number % PARTITIONS
        for outage in self.outages:
            if where in outage.partitions and self.sent[number] > outage.at:
                which(outage).setdefault(where, time.monotonic() - outage.at)

    @property
    def consumed_acknowledged(self) -> bool:
        """Whether the group has consumed all acknowledged records."""
        return self.offsets.keys() <= self.consumed


class Writer:
    """Sends numbered records at a rate, idempotent and with acks=all, until `stopping` is set."""

    def __init__(self, bootstrap_servers: str, ledger: Ledger, rate: float) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._ledger = ledger
        self._rate = rate
        self.stopping = False

    async def run(self) -> None:
        """Send records; each is acknowledged or refused when this returns."""
        ledger, began = self._ledger, time.monotonic()
        async with Producer(bootstrap_servers=self._bootstrap_servers, acks="all", linger_ms=5) as producer:
            while not self.stopping:
                due = int((time.monotonic() - began) * self._rate)
                while len(ledger.sent) < due:
                    number = len(ledger.sent)
                    ledger.sent.append(time.monotonic())
                    future = await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                    future.add_done_callback(partial(self._settled, number))
                await asyncio.sleep(0.01)
            await producer.flush()

    def _settled(self, number: int, future: "asyncio.Future[RecordMetadata]") -> None:
        if future.cancelled() or future.exception() is not None:
            self._ledger.refused += 1
        else:
            self._ledger.acknowledge(number, future.result().offset)


async def read(bootstrap_servers: str, name: str, ledger: Ledger) -> None:
    """Consume as a member of the group, and commit, until cancelled."""
    async with Consumer(
        TOPIC,
        bootstrap_servers=bootstrap_servers,
        group_id=GROUP,
        client_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
    ) as consumer:
        while True:
            batches = await consumer.getmany(timeout_ms=200, max_records=2000)
            numbers = [int(record.value or b"") for records in batches.values() for record in records]
            for number in numbers:
                ledger.consume(number)
            if numbers:
                # Uncommitted records are consumed again by the next owner of the partition.
                with contextlib.suppress(KafkaError):
                    await consumer.commit({where: records[-1].offset + 1 for where, records in batches.items()})
                    ledger.commit(numbers)


async def read_back(bootstrap_servers: str) -> dict[int, list[ConsumerRecord]]:
    """Read all records, by partition."""
    found: dict[int, list[ConsumerRecord]] = {where.partition: [] for where in PLACES}
    async with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(PLACES)
        ends = await consumer.end_offsets(PLACES)
        while [where for where in PLACES if await consumer.position(where) < ends[where]]:
            for where, records in (await consumer.getmany(timeout_ms=1000, max_records=5000)).items():
                found[where.partition] += records
    return found


@dataclass(frozen=True)
class Verdict:
    """The comparison of acknowledged records with those in the topic."""

    acknowledged: int
    found: int
    out_of_order: int
    twice: int
    not_consumed: int
    wrong_offset: int

    @property
    def kept(self) -> bool:
        """Whether no acknowledged record is missing, duplicated, misplaced or unconsumed."""
        wrong = (self.out_of_order, self.twice, self.not_consumed, self.wrong_offset)
        return self.acknowledged > 0 and self.found == self.acknowledged and not any(wrong)


def judge(ledger: Ledger, found: dict[int, list[ConsumerRecord]]) -> Verdict:
    """Compare the acknowledged records with those in the topic and those that the group consumed."""
    offsets: dict[int, int] = {}
    out_of_order = twice = 0
    for records in found.values():
        last = -1
        for record in records:
            number = int(record.value or b"")
            twice += number in offsets
            out_of_order += number < last
            offsets[number], last = record.offset, number
    return Verdict(
        acknowledged=len(ledger.offsets),
        found=len(ledger.offsets.keys() & offsets.keys()),
        out_of_order=out_of_order,
        twice=twice,
        not_consumed=len(ledger.offsets.keys() - ledger.consumed),
        wrong_offset=sum(offsets.get(number, offset) != offset for number, offset in ledger.offsets.items()),
    )
