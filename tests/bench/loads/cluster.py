"""Loads for a cluster; each prints its measurements.

python -m tests.bench.loads.cluster pace     ADDRESSES TOPIC RATE SECONDS
python -m tests.bench.loads.cluster failover ADDRESSES TOPIC ID=PID[,ID=PID...]
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import uvloop
from confluent_kafka import KafkaError, Message, Producer

from barnabas_client import Admin, Consumer
from barnabas_client import KafkaError as ClientError
from barnabas_client import Producer as BarnabasProducer
from barnabas_client.structs import RecordMetadata

SIZE: Final = 1000
#: Limit of one measurement in seconds.
LIMIT: Final = 90.0
GROUP: Final = "bench"
#: Time of an event that has not happened yet.
NEVER: Final = float("inf")
#: Records/s of the load during a kill.
RATE: Final = 500


def pace(addresses: str, topic: str, rate: int, seconds: int) -> dict[str, float]:
    """Produce records of 1 KB at a fixed rate into partitions in turn; measure from the scheduled time of each record
    to its acknowledgement."""
    times: list[float] = []
    errors: list[str] = []

    def acknowledged(due: float, error: KafkaError | None, _: Message) -> None:
        if error is None:
            times.append(time.perf_counter() - due)
        else:
            errors.append(error.str())

    producer = Producer({"bootstrap.servers": addresses, "acks": "all", "linger.ms": 0, "log_level": 2})
    partitions = len(producer.list_topics(topic, 30).topics[topic].partitions)
    for partition in range(partitions):
        producer.produce(topic, b"first", partition=partition)
    producer.flush(60)
    value, started, total = os.urandom(SIZE), time.perf_counter(), rate * seconds
    for number in range(total):
        due = started + number / rate
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        producer.produce(topic, value, partition=number % partitions, on_delivery=partial(acknowledged, due))
        producer.poll(0)
    if producer.flush(60) or errors:
        raise RuntimeError(f"{total - len(times)} of {total} records are not acknowledged; {errors[:3]}")
    times.sort()
    return {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "max": times[-1]}


class Failover:
    """Kills the group's coordinator, which also leads partitions.

    Measures the seconds from the kill until each of those partitions has acknowledged and returned a record that was
    sent after it, and until the group has committed the offset of such a record.
    """

    def __init__(self, addresses: str, topic: str) -> None:
        self._addresses = addresses
        self._topic = topic
        self._partitions = 0
        self._sent: list[float] = []
        self._killed = NEVER
        self.acknowledged: dict[int, float] = {}
        self.consumed: dict[int, float] = {}
        self.committed = NEVER

    async def run(self, processes: dict[int, int]) -> dict[str, float]:
        async with asyncio.timeout(LIMIT), Admin(bootstrap_servers=self._addresses) as admin:
            (topic,) = await admin.describe_topics([self._topic])
            self._partitions = len(topic.partitions)
            work = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]
            try:
                await self._until(work, lambda: len(self.consumed) == self._partitions and self.committed < NEVER)
                (group,) = await admin.describe_consumer_groups([GROUP])
                (topic,) = await admin.describe_topics([self._topic])
                assert group.coordinator is not None
                victim = group.coordinator.node_id
                led = {each.partition for each in topic.partitions.values() if each.leader == victim}
                if not led:
                    raise RuntimeError("the coordinator leads no partition of the topic")
                self.acknowledged.clear()
                self.consumed.clear()
                self.committed = NEVER
                self._killed = time.monotonic()
                os.kill(processes[victim], signal.SIGKILL)
                await self._until(
                    work,
                    lambda: led <= self.acknowledged.keys() & self.consumed.keys() and self.committed < NEVER,
                )
            finally:
                for task in work:
                    task.cancel()
                await asyncio.gather(*work, return_exceptions=True)
        return {
            "victim": victim,
            "acknowledged": max(self.acknowledged[one] for one in led),
            "consumed": max(self.consumed[one] for one in led),
            "committed": self.committed,
        }

    async def _until(self, work: list["asyncio.Task[None]"], reached: Callable[[], bool]) -> None:
        while not reached():
            for task in work:
                if task.done():
                    task.result()
            await asyncio.sleep(0.005)

    def _after(self, number: int) -> bool:
        """Return whether a record counts: before the kill, every record does."""
        return self._killed == NEVER or self._sent[number] > self._killed

    async def _write(self) -> None:
        def settled(number: int, future: "asyncio.Future[RecordMetadata]") -> None:
            if not future.cancelled() and future.exception() is None and self._after(number):
                self.acknowledged.setdefault(number % self._partitions, time.monotonic() - self._killed)

        began = time.monotonic()
        async with BarnabasProducer(bootstrap_servers=self._addresses, acks="all", linger_ms=0) as producer:
            while True:
                while len(self._sent) < int((time.monotonic() - began) * RATE):
                    number = len(self._sent)
                    self._sent.append(time.monotonic())
                    where = number % self._partitions
                    future = await producer.send(self._topic, b"%d" % number, partition=where)
                    future.add_done_callback(partial(settled, number))
                await asyncio.sleep(0.002)

    async def _read(self) -> None:
        async with Consumer(
            self._topic,
            bootstrap_servers=self._addresses,
            group_id=GROUP,
            auto_offset_reset="latest",
            enable_auto_commit=False,
        ) as consumer:
            while True:
                batches = await consumer.getmany(timeout_ms=100)
                numbers = [int(record.value or b"") for records in batches.values() for record in records]
                for number in filter(self._after, numbers):
                    self.consumed.setdefault(number % self._partitions, time.monotonic() - self._killed)
                if batches:
                    with contextlib.suppress(ClientError):
                        await consumer.commit({where: each[-1].offset + 1 for where, each in batches.items()})
                        if self.committed == NEVER and any(map(self._after, numbers)):
                            self.committed = time.monotonic() - self._killed


def main(what: str, addresses: str, topic: str, *rest: str) -> None:
    if what == "pace":
        print(json.dumps(pace(addresses, topic, int(rest[0]), int(rest[1]))))
        return
    processes = {int(node): int(pid) for node, _, pid in (each.partition("=") for each in rest[0].split(","))}
    work: Coroutine[Any, Any, dict[str, float]] = Failover(addresses, topic).run(processes)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(work)))


if __name__ == "__main__":
    main(*sys.argv[1:])
