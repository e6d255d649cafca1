"""Produces or consumes with one Python client, as an application would; prints seconds and processor time.

python -m tests.bench.loads.clients CLIENT VERB ADDRESS TOPIC PARTITIONS COUNT LEAST MOST CODEC

VERB is produce, keyed, send_many, getmany, iterate or arrow. send_many hands over 10,000 values for a partition at a
time: Barnabas' `send_many`, confluent-kafka's `produce_batch`; keyed leaves the choice of the partition to the client.
Values have LEAST to MOST bytes, uniformly distributed. Producing is timed from the first record handed to the client to
the last acknowledgement; one record to another topic opens the connections before. Consuming is timed from the first
batch to the last record. Every consumed value is read, so that a client gains nothing from lazy decoding. Asynchronous
clients run on uvloop.
"""

import asyncio
import itertools
import json
import os
import random
import resource
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka
import uvloop
from pyarrow import compute

import barnabas_client

#: Limit of one run in seconds.
LIMIT: Final = 300.0
#: Settings of all producers, in bytes and milliseconds.
BATCH: Final = 131_072
LINGER: Final = 5
#: Topic of a producer's first record, which is not counted.
WARM: Final = "bench-warm"
#: Maximum number of records of one poll.
POLL: Final = 1_000
#: Values that are handed over at a time by the verb send_many.
CHUNK: Final = 10_000
#: What produces.
PRODUCING: Final = ("produce", "keyed", "send_many")


class Work:
    """The records to produce or consume, and the time taken."""

    def __init__(self, address: str, topic: str, *rest: str) -> None:
        self.address = address
        self.topic = topic
        partitions, self.count, least, most = map(int, rest[:4])
        self.partitions = range(partitions)
        self.codec = None if rest[4] == "none" else rest[4]
        self.seconds = self.cpu = 0.0
        # Producer and consumer generate the same values.
        chance = random.Random(least)
        self._sizes = [chance.randint(least, most) for _ in range(1_000)]
        self._started: tuple[float, float] | None = None
        self._taken = self._bytes = 0

    def _values(self) -> Iterator[bytes]:
        """Yield half-compressible values."""
        values = [os.urandom(size // 2).ljust(size, b"x") for size in self._sizes]
        return itertools.islice(itertools.cycle(values), self.count)

    def records(self, verb: str) -> Iterator[tuple[bytes, bytes | None, int | None]]:
        """Yield values; with a key of 36 bytes, or with partitions in turn."""
        keys: Iterable[bytes | None] = (None,)
        partitions: Iterable[int | None] = self.partitions
        if verb == "keyed":
            keys, partitions = [str(uuid.uuid4()).encode() for _ in range(CHUNK)], (None,)
        return zip(self._values(), itertools.cycle(keys), itertools.cycle(partitions), strict=False)

    def chunks(self) -> Iterator[tuple[list[bytes], int]]:
        """Yield lists of values, with partitions in turn."""
        values = self._values()
        for partition in itertools.cycle(self.partitions):
            chunk = list(itertools.islice(values, CHUNK))
            if not chunk:
                return
            yield chunk, partition

    def begin(self) -> None:
        self._started = (time.perf_counter(), _cpu())

    def end(self) -> None:
        assert self._started is not None
        self.seconds = time.perf_counter() - self._started[0]
        self.cpu = _cpu() - self._started[1]

    def take(self, values: Sequence[bytes]) -> bool:
        """Check consumed values; return whether all have arrived. Raises RuntimeError if they are wrong."""
        if self._started is None and values:
            self.begin()
        for value in values:
            self._taken += 1
            self._bytes += len(value)
        return self._is_all()

    def take_tables(self, table: Any) -> bool:
        """As :meth:`take`, of a table of records."""
        if self._started is None and table.num_rows:
            self.begin()
        self._taken += table.num_rows
        self._bytes += compute.sum(compute.binary_length(table.column("value"))).as_py() or 0
        return self._is_all()

    def _is_all(self) -> bool:
        if self._taken < self.count:
            return False
        self.end()
        wanted = sum(itertools.islice(itertools.cycle(self._sizes), self.count))
        if (self._taken, self._bytes) != (self.count, wanted):
            raise RuntimeError(f"{self._taken} records with {self._bytes} bytes instead of {self.count} with {wanted}")
        return True

    def take_all(self, polls: Iterable[Sequence[bytes]]) -> None:
        """Take polls until all values have arrived. Raises RuntimeError if they do not arrive."""
        if not any(map(self.take, polls)):
            raise RuntimeError(f"{self._taken} records instead of {self.count}")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _settings(work: Work) -> dict[str, Any]:
    """Return the settings of all producers but librdkafka, which has other names for them."""
    return {
        "bootstrap_servers": work.address,
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": LINGER,
        "compression_type": work.codec,
    }


# The two asynchronous clients have the same names and arguments.


async def _produce(producer: Any, work: Work, verb: str) -> None:
    await producer.start()
    await producer.send_and_wait(WARM, b"first")
    await producer.partitions_for(work.topic)
    work.begin()
    if verb == "send_many":
        for values, to in work.chunks():
            await producer.send_many(work.topic, values, partition=to)
    else:
        for value, key, partition in work.records(verb):
            await producer.send(work.topic, value, key, partition=partition)
    await producer.flush()
    work.end()
    await producer.stop()


async def _consume(consumer: Any, work: Work, partition: Callable[[str, int], Any], verb: str) -> None:
    await consumer.start()
    consumer.assign([partition(work.topic, number) for number in work.partitions])
    await consumer.seek_to_beginning()
    async with asyncio.timeout(LIMIT):
        if verb == "iterate":
            async for record in consumer:
                if work.take((record.value,)):
                    break
        elif verb == "arrow":
            while not work.take_tables(await consumer.getmany_arrow(timeout_ms=1_000)):
                pass
        else:
            while not work.take(_values(await consumer.getmany(timeout_ms=1_000, max_records=POLL))):
                pass
    await consumer.stop()


def _values(polled: Mapping[Any, Sequence[Any]]) -> list[bytes]:
    return [record.value for records in polled.values() for record in records]


async def _barnabas(work: Work, verb: str) -> None:
    if verb in PRODUCING:
        await _produce(barnabas_client.Producer(**_settings(work), batch_size=BATCH), work, verb)
    else:
        consumer = barnabas_client.Consumer(bootstrap_servers=work.address)
        await _consume(consumer, work, barnabas_client.TopicPartition, verb)


async def _aiokafka(work: Work, verb: str) -> None:
    if verb in PRODUCING:
        await _produce(aiokafka.AIOKafkaProducer(**_settings(work), max_batch_size=BATCH), work, verb)
    else:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=work.address)
        await _consume(consumer, work, aiokafka.TopicPartition, verb)


def _kafka_python(work: Work, verb: str) -> None:
    if verb in PRODUCING:
        producer = kafka.KafkaProducer(**_settings(work), batch_size=BATCH)
        producer.send(WARM, b"first").get(timeout=LIMIT)
        producer.partitions_for(work.topic)
        work.begin()
        for value, key, partition in work.records(verb):
            producer.send(work.topic, value, key, partition=partition)
        producer.flush()
        work.end()
        producer.close()
        return
    consumer = kafka.KafkaConsumer(bootstrap_servers=work.address, consumer_timeout_ms=60_000)
    consumer.assign([kafka.TopicPartition(work.topic, number) for number in work.partitions])
    consumer.seek_to_beginning()
    if verb == "iterate":
        work.take_all((record.value,) for record in consumer)
    else:
        work.take_all(_values(consumer.poll(timeout_ms=1_000, max_records=POLL)) for _ in _until_limit())
    consumer.close()


def _confluent(work: Work, verb: str) -> None:
    if verb in PRODUCING:
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
        if verb == "send_many":
            for values, to in work.chunks():
                messages = [{"value": value} for value in values]
                if producer.produce_batch(work.topic, messages, partition=to) != len(values):
                    raise RuntimeError("produce_batch took only some of the records")
        else:
            for value, key, partition in work.records(verb):
                producer.produce(work.topic, value, key, partition=-1 if partition is None else partition)
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
    work.take_all([_value(message) for message in messages] for messages in polls)
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


def main(client: str, verb: str, *rest: str) -> None:
    work = Work(*rest)
    CLIENTS[client](work, verb)
    if verb in PRODUCING:
        reader = confluent_kafka.Consumer({"bootstrap.servers": work.address, "group.id": "bench", "log_level": 2})
        asked = [confluent_kafka.TopicPartition(work.topic, number) for number in work.partitions]
        written = sum(reader.get_watermark_offsets(one, 30, cached=False)[1] for one in asked)
        reader.close()
        if written != work.count:
            raise RuntimeError(f"{written} records in the log instead of {work.count}")
    print(json.dumps({"seconds": work.seconds, "cpu": work.cpu, "count": work.count}))


if __name__ == "__main__":
    main(*sys.argv[1:])
