"""Helpers of the pipeline's tests: produce, consume, admin and options."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from barnabas_broker.testing import Broker
from barnabas_client import Admin, Consumer, Producer, TopicPartition
from barnabas_client.structs import ConsumerRecord

T = TypeVar("T")

#: Quick to start: the interpreter and the simple compiler do for a few records, and one thread for the garbage.
JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: The error of a query whose Python process has not started within Spark's fixed 10 s. It may be started again.
SLOW_WORKER: Final = "Python worker failed to connect back"
#: Flags of `barnabas-pipeline` for a Spark of one core that starts quickly.
SMALL_SPARK: Final = (
    *("--conf", "spark.master=local[1]"),
    *("--conf", "spark.driver.memory=512m"),
    *("--conf", f"spark.driver.extraJavaOptions={JVM_OPTIONS}"),
)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine with a timeout of a minute."""
    return asyncio.run(asyncio.wait_for(work, 60))


def produce(servers: str, topic: str, values: Iterable[bytes | None], partition: int | None = None) -> None:
    """Send values; without `partition` each value is its own key."""

    async def work() -> None:
        async with Producer(bootstrap_servers=servers) as producer:
            sent = [
                await producer.send(topic, value, key=value if partition is None else None, partition=partition)
                for value in values
            ]
            await asyncio.gather(*sent)

    run(work())


def numbered(first: int, count: int) -> list[bytes]:
    """Values with consecutive numbers."""
    return [b"value-%d" % number for number in range(first, first + count)]


def written_values(servers: str, topic: str) -> list[bytes]:
    """The values of all records of a topic, sorted."""
    return sorted(record.value for record in consume(servers, topic) if record.value is not None)


def consume(servers: str, topic: str, partitions: int = 3) -> list[ConsumerRecord]:
    """All records of a topic, sorted by partition and offset."""

    async def work() -> list[ConsumerRecord]:
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign(tps)
            ends = await consumer.end_offsets(tps)
            found: list[ConsumerRecord] = []
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    found.extend(records)
            return sorted(found, key=lambda record: (record.partition, record.offset))

    return run(work())


def admin(servers: str, work: Any) -> Any:
    """Run `work` with an admin client."""

    async def connected() -> Any:
        async with Admin(bootstrap_servers=servers) as connected:
            return await work(connected)

    return run(connected())


def committed(servers: str, group: str) -> dict[TopicPartition, int]:
    """The committed offsets of a group."""
    offsets = admin(servers, lambda one: one.list_consumer_group_offsets(group))
    return {tp: one.offset for tp, one in offsets.items()}


def options(broker: Broker, more: Mapping[str, str] | None = None, **rest: str) -> dict[str, str]:
    """Options to connect to a broker, with a short timeout."""
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.default.api.timeout.ms": "20000",
        **(more or {}),
        **rest,
    }
