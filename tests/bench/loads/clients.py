"""Produces or consumes with one Python client, as an application would; prints seconds and processor time.

python -m tests.bench.loads.clients CLIENT produce  ADDRESS TOPIC PARTITIONS COUNT SIZE CODEC
python -m tests.bench.loads.clients CLIENT getmany  ADDRESS TOPIC PARTITIONS COUNT SIZE CODEC
python -m tests.bench.loads.clients CLIENT iterate  ADDRESS TOPIC PARTITIONS COUNT SIZE CODEC

Producing takes from the first record handed over to the last acknowledged, after one in another topic that has the
connections made; consuming from the first batch that comes to the last record. Every value that is consumed is looked
at, so that nobody gains by decoding later or never. Asynchronous clients run on uvloop.
"""

import itertools
import json
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka
import uvloop

import barnabas_client

#: Seconds that one run may take.
LIMIT: Final = 300.0
#: Settings of all producers: bytes and milliseconds.
BATCH: Final = 131_072
LINGER: Final = 5
#: Where a producer's first record goes, which is not counted.
WARM: Final = "bench-warm"
#: The most records of one poll.
POLL: Final = 1_000


class Work:
    """What is to be done, and how long it took."""

    def __init__(self, address: str, topic: str, partitions: int, count: int, size: int, codec: str) -> None:
        self.address = address
        self.topic = topic
        self.partitions = range(partitions)
        self.count = count
        self.size = size
        self.codec = None if codec == "none" else codec
        self.seconds = self.cpu = 0.0
        self._started: tuple[float, float] | None = None

    def records(self) -> Iterator[tuple[bytes, int]]:
        """Values, half of which can be compressed, and partitions in turn."""
        values = [os.urandom(self.size // 2).ljust(self.size, b"x") for _ in range(1_000)]
        return zip(
            itertools.islice(itertools.cycle(values), self.count), itertools.cycle(self.partitions), strict=False
        )

    def begin(self) -> None:
        self._started = (time.perf_counter(), _cpu())

    def end(self) -> None:
        assert self._started is not None
        self.seconds = time.perf_counter() - self._started[0]
        self.cpu = _cpu() - self._started[1]

    def take(self, batches: Iterable[Iterable[bytes]]) -> None:
        """Consume what comes until everything is there."""
        taken = size = 0
        for batch in batches:
            if self._started is None:
                self.begin()
            for value in batch:
                taken += 1
                size += len(value)
            if taken >= self.count:
                break
        self._finish(taken, size)

    async def take_many(self, batches: AsyncIterator[Iterable[bytes]]) -> None:
        """The same."""
        taken = size = 0
        async for batch in batches:
            if self._started is None:
                self.begin()
            for value in batch:
                taken += 1
                size += len(value)
            if taken >= self.count:
                break
        self._finish(taken, size)

    async def take_each(self, consumer: Any) -> None:
        """The same, from a consumer that is iterated."""
        taken = size = 0
        async for record in consumer:
            if self._started is None:
                self.begin()
            taken += 1
            size += len(record.value)
            if taken == self.count:
                break
        self._finish(taken, size)

    def _finish(self, taken: int, size: int) -> None:
        self.end()
        if (taken, size) != (self.count, self.count * self.size):
            raise RuntimeError(f"{taken} records with {size} bytes instead of {self.count}")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# The asynchronous two have the same names and arguments.


async def _produce(producer: Any, work: Work) -> None:
    await producer.start()
    await producer.send_and_wait(WARM, b"first")
    await producer.partitions_for(work.topic)
    work.begin()
    for value, partition in work.records():
        await producer.send(work.topic, value, partition=partition)
    await producer.flush()
    work.end()
    await producer.stop()


async def _consume(consumer: Any, work: Work, partition: Callable[[str, int], Any], verb: str) -> None:
    await consumer.start()
    consumer.assign([partition(work.topic, number) for number in work.partitions])
    await consumer.seek_to_beginning()
    if verb == "iterate":
        await work.take_each(consumer)
    else:
        await work.take_many(_polls(consumer))
    await consumer.stop()


async def _polls(consumer: Any) -> AsyncIterator[Iterable[bytes]]:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        for records in (await consumer.getmany(timeout_ms=1_000, max_records=POLL)).values():
            yield [record.value for record in records]


async def _barnabas(work: Work, verb: str) -> None:
    if verb == "produce":
        producer = barnabas_client.Producer(
            bootstrap_servers=work.address,
            acks="all",
            enable_idempotence=True,
            batch_size=BATCH,
            linger_ms=LINGER,
            compression_type=work.codec,
        )
        await _produce(producer, work)
    else:
        consumer = barnabas_client.Consumer(bootstrap_servers=work.address)
        await _consume(consumer, work, barnabas_client.TopicPartition, verb)


async def _aiokafka(work: Work, verb: str) -> None:
    if verb == "produce":
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=work.address,
            acks="all",
            enable_idempotence=True,
            max_batch_size=BATCH,
            linger_ms=LINGER,
            compression_type=work.codec,
        )
        await _produce(producer, work)
    else:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=work.address)
        await _consume(consumer, work, aiokafka.TopicPartition, verb)


def _kafka_python(work: Work, verb: str) -> None:
    if verb == "produce":
        producer = kafka.KafkaProducer(
            bootstrap_servers=work.address,
            acks="all",
            enable_idempotence=True,
            batch_size=BATCH,
            linger_ms=LINGER,
            compression_type=work.codec,
        )
        producer.send(WARM, b"first").get(timeout=LIMIT)
        producer.partitions_for(work.topic)
        work.begin()
        for value, partition in work.records():
            producer.send(work.topic, value, partition=partition)
        producer.flush()
        work.end()
        producer.close()
        return
    consumer = kafka.KafkaConsumer(bootstrap_servers=work.address, consumer_timeout_ms=60_000)
    consumer.assign([kafka.TopicPartition(work.topic, number) for number in work.partitions])
    consumer.seek_to_beginning()
    if verb == "iterate":
        work.take((record.value,) for record in consumer)
    else:
        work.take(
            [record.value for record in records]
            for _ in _until_limit()
            for records in consumer.poll(timeout_ms=1_000, max_records=POLL).values()
        )
    consumer.close()


def _confluent(work: Work, verb: str) -> None:
    if verb == "produce":
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": work.address,
                "acks": "all",
                "enable.idempotence": True,
                "batch.size": BATCH,
                "linger.ms": LINGER,
                "compression.type": work.codec or "none",
                "queue.buffering.max.messages": 10_000_000,
                "queue.buffering.max.kbytes": 2_000_000,
                "log_level": 2,
            }
        )
        producer.produce(WARM, b"first")
        producer.flush(LIMIT)
        producer.list_topics(work.topic, 30)
        work.begin()
        for value, partition in work.records():
            producer.produce(work.topic, value, partition=partition)
        if producer.flush(LIMIT):
            raise RuntimeError("records are not delivered")
        work.end()
        return
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": work.address, "group.id": "bench", "enable.auto.commit": False, "log_level": 2}
    )
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(work.topic, number, begin) for number in work.partitions])
    if verb == "iterate":
        polls = ([one] for _ in _until_limit() if (one := consumer.poll(1.0)) is not None)
    else:
        polls = (found for _ in _until_limit() if (found := consumer.consume(POLL, 1.0)))
    work.take([_value(message) for message in messages] for messages in polls)
    consumer.close()


def _value(message: Any) -> bytes:
    if message.error() is not None:
        raise RuntimeError(str(message.error()))
    value: bytes = message.value()
    return value


def _until_limit() -> Iterator[None]:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        yield


CLIENTS: Final[dict[str, Callable[[Work, str], None]]] = {
    "Barnabas": lambda work, verb: uvloop.run(_barnabas(work, verb)),
    "aiokafka": lambda work, verb: uvloop.run(_aiokafka(work, verb)),
    "kafka-python": _kafka_python,
    "confluent-kafka": _confluent,
}


def main(client: str, verb: str, address: str, topic: str, *rest: str) -> None:
    partitions, count, size = map(int, rest[:3])
    work = Work(address, topic, partitions, count, size, rest[3])
    CLIENTS[client](work, verb)
    if verb == "produce":
        reader = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "bench", "log_level": 2})
        asked = [confluent_kafka.TopicPartition(topic, number) for number in work.partitions]
        written = sum(reader.get_watermark_offsets(one, 30, cached=False)[1] for one in asked)
        reader.close()
        if written != count:
            raise RuntimeError(f"{written} records in the log instead of {count}")
    print(json.dumps({"seconds": work.seconds, "cpu": work.cpu, "count": count}))


if __name__ == "__main__":
    main(*sys.argv[1:])
