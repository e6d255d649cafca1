"""End-to-end latency, and the time until a new group gets its first record, with one Python client; prints seconds.

python -m tests.bench.loads.live CLIENT latency ADDRESS TOPIC RATE SECONDS
python -m tests.bench.loads.live CLIENT first   ADDRESS TOPIC TIMES

Latency is measured from the scheduled time of a record to the call that returns it, in one process with a producer
(acks=all, no linger) and a consumer, at RATE records/s. It starts after a first record has arrived, and the first half
second is not counted. The first record is timed from the creation of the consumer, once as the first thing that the
process does, then TIMES more, each in a new group; the topic has one record. Asynchronous clients run on uvloop, others
consume on a thread.
"""

import asyncio
import json
import struct
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka
import uvloop

from barnabas_client import Consumer, Producer

#: Limit of one run in seconds, and the seconds at its start that are not counted.
LIMIT: Final = 120.0
WARM: Final = 0.5
PERCENTILES: Final = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
_TIME: Final = struct.Struct(">d")
#: The first value: when it arrives, producer and consumer are ready. It is not counted.
FIRST: Final = b"first"
#: A value of 100 bytes.
_REST: Final = b"x" * (100 - _TIME.size)

Async = Callable[[str, str | None, str], Any]


class Latencies:
    """Records the latency of each value until all have arrived."""

    def __init__(self, rate: int, seconds: float) -> None:
        self.rate = rate
        self.count = round(rate * (seconds + WARM))
        self.taken: list[float] = []

    def take(self, value: bytes) -> bool:
        """Record a value; return whether it was the last one."""
        self.taken.append(time.perf_counter() - _TIME.unpack_from(value)[0])
        return len(self.taken) >= self.count

    def dues(self) -> Iterator[float]:
        """Yield the scheduled time of each record."""
        begin = time.perf_counter()
        return (begin + number / self.rate for number in range(self.count))

    @staticmethod
    def value(due: float) -> bytes:
        return _TIME.pack(due) + _REST

    def found(self) -> dict[str, float]:
        counted = sorted(self.taken[round(self.rate * WARM) :])
        return {name: counted[int(len(counted) * share)] for name, share in PERCENTILES.items()}


def _barnabas(address: str, group: str | None, topic: str) -> Any:
    return Consumer(
        topic, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )


def _aiokafka(address: str, group: str | None, topic: str) -> Any:
    return aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )


def _kafka_python(address: str, group: str | None, topic: str) -> Any:
    return kafka.KafkaConsumer(
        topic, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )


def _confluent(address: str, group: str | None, topic: str) -> Any:
    config = {"bootstrap.servers": address, "group.id": group or "bench", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**config, "enable.auto.commit": False, "log_level": 2})
    consumer.subscribe([topic])
    return consumer


# The two asynchronous clients have the same names and arguments.


async def _latency_async(producer: Any, consumer: Any, topic: str, found: Latencies) -> None:
    await producer.start()
    await consumer.start()
    await producer.send_and_wait(topic, FIRST)
    await consumer.getone()

    async def consume() -> None:
        async for record in consumer:
            if found.take(record.value):
                return

    consuming = asyncio.create_task(consume())
    for due in found.dues():
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await producer.send(topic, found.value(due))
    await consuming
    await producer.stop()
    await consumer.stop()


async def _first_async(make: Async, address: str, topic: str) -> float:
    began = time.perf_counter()
    consumer = make(address, uuid.uuid4().hex, topic)
    await consumer.start()
    await consumer.getone()
    done = time.perf_counter() - began
    await consumer.stop()
    return done


# The synchronous clients.


def _latency_sync(send: Callable[[bytes], object], poll: Callable[[], list[bytes]], found: Latencies) -> None:
    def consume(last: Callable[[bytes], bool]) -> None:
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            if any(last(value) for value in poll()):
                return

    send(FIRST)
    consume(lambda value: value == FIRST)
    thread = threading.Thread(target=consume, args=(found.take,))
    thread.start()
    for due in found.dues():
        time.sleep(max(0.0, due - time.perf_counter()))
        send(found.value(due))
    thread.join()


def _polled_kafka_python(consumer: Any) -> list[bytes]:
    return [record.value for records in consumer.poll(timeout_ms=1_000).values() for record in records]


def _polled_confluent(consumer: Any) -> list[bytes]:
    message = consumer.poll(1.0)
    return [] if message is None or message.error() is not None else [message.value()]


def _first_sync(make: Async, poll: Callable[[Any], list[bytes]], address: str, topic: str) -> float:
    began = time.perf_counter()
    consumer = make(address, uuid.uuid4().hex, topic)
    while not poll(consumer):
        if time.perf_counter() - began > LIMIT:
            raise RuntimeError("no record came")
    done = time.perf_counter() - began
    consumer.close()
    return done


def latency(client: str, address: str, topic: str, rate: int, seconds: float) -> dict[str, float]:
    found, group = Latencies(rate, seconds), uuid.uuid4().hex
    if client in ("Barnabas", "aiokafka"):
        ours = client == "Barnabas"

        async def run() -> None:
            kind: Any = Producer if ours else aiokafka.AIOKafkaProducer
            producer = kind(bootstrap_servers=address, acks="all", linger_ms=0)
            consumer = (_barnabas if ours else _aiokafka)(address, group, topic)
            async with asyncio.timeout(LIMIT):
                await _latency_async(producer, consumer, topic, found)

        uvloop.run(run())
    elif client == "kafka-python":
        producer = kafka.KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=0)
        reader = _kafka_python(address, group, topic)
        _latency_sync(lambda value: producer.send(topic, value), lambda: _polled_kafka_python(reader), found)
        producer.close()
        reader.close()
    else:
        settings = {"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "log_level": 2}
        sender, reader = confluent_kafka.Producer(settings), _confluent(address, group, topic)
        _latency_sync(lambda value: sender.produce(topic, value), lambda: _polled_confluent(reader), found)
        sender.flush(LIMIT)
        reader.close()
    return found.found()


def first(client: str, address: str, topic: str, times: int) -> dict[str, float]:
    if client in ("Barnabas", "aiokafka"):
        make = _barnabas if client == "Barnabas" else _aiokafka

        async def run() -> list[float]:
            async with asyncio.timeout(LIMIT):
                return [await _first_async(make, address, topic) for _ in range(times + 1)]

        cold, *warm = uvloop.run(run())
    else:
        old = client == "kafka-python"
        poll = _polled_kafka_python if old else _polled_confluent
        make = _kafka_python if old else _confluent
        cold, *warm = [_first_sync(make, poll, address, topic) for _ in range(times + 1)]
    return {"cold": cold, "warm": sorted(warm)[len(warm) // 2]}


def main(client: str, what: str, address: str, topic: str, *rest: str) -> None:
    if what == "first":
        print(json.dumps(first(client, address, topic, int(rest[0]))))
    else:
        print(json.dumps(latency(client, address, topic, int(rest[0]), float(rest[1]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
