"""A member of a consumer group as a program that can have a disease.

    python -m tests.clinic.patient aiokafka '{"bootstrap": "127.0.0.1:9092", "group": "g", "topics": ["t"], ...}'

It polls, and prints the partitions that it owns, as a JSON line, whenever they change. Lines on its standard input make
it ill, between two polls:

- ``busy SECONDS``: processes for so long; the client's own threads or tasks go on where it has any
- ``block SECONDS``: the same, while nothing else of the process runs: the event loop is blocked, the interpreter
  lock held
- ``resubscribe``: unsubscribes and subscribes again
- ``subscribe TOPIC``: subscribes to another topic
- ``exit``: ends the process without closing the consumer

It closes the consumer and ends when its standard input ends.

With `poison`, a partition and an offset, it commits after each record by itself. It ends without closing the consumer
when it has got that record, and one of another partition.
"""

import asyncio
import ctypes
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

#: What standard input asks for; None when it has ended.
Orders = queue.SimpleQueue[str | None]


def listen() -> Orders:
    orders: Orders = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            orders.put(line.strip())
        orders.put(None)

    threading.Thread(target=read, daemon=True).start()
    return orders


class Owned:
    """Prints the partitions when they change."""

    def __init__(self) -> None:
        self._last: list[str] | None = None

    def show(self, partitions: list[str]) -> None:
        if sorted(partitions) != self._last:
            self._last = sorted(partitions)
            sys.stdout.write(json.dumps(self._last) + "\n")
            sys.stdout.flush()


class Poison:
    """Decides which records are handled, and ends the process because of one.

    Args:
        where: the partition and the offset of that one; None if there is none.
    """

    def __init__(self, where: list[int] | None) -> None:
        self._where = where
        self._met = self._others = False

    def handles(self, partition: int, offset: int) -> bool:
        """Whether the record is to be committed now."""
        if self._where is None:
            return False
        stuck, first = self._where
        if partition == stuck and offset >= first:
            self._met = True
            return False
        self._others = self._others or partition != stuck
        return True

    def end(self) -> None:
        """End the process if it is time."""
        if self._met and self._others:
            os._exit(3)


def block(seconds: float) -> None:
    """Sleep without giving up the interpreter lock, as an extension module that computes."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


def next_order(orders: Orders, subscribe: Callable[[list[str]], None], topics: list[str]) -> tuple[bool, float]:
    """Carry out what is asked for.

    Returns:
        Whether to go on, and the seconds to be busy for.
    """
    try:
        order = orders.get_nowait()
    except queue.Empty:
        return True, 0.0
    if order is None:
        return False, 0.0
    what, _, value = order.partition(" ")
    if what == "busy":
        return True, float(value)
    if what == "block":
        block(float(value))
    elif what == "exit":
        os._exit(3)
    elif what == "resubscribe":
        subscribe(topics)
    elif what == "subscribe":
        subscribe([value])
    return True, 0.0


def confluent_kafka(settings: dict[str, Any], orders: Orders) -> None:
    from confluent_kafka import Consumer

    config: dict[str, Any] = {
        "bootstrap.servers": settings["bootstrap"],
        "group.id": settings["group"],
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 1000,
        "max.poll.interval.ms": settings["poll_ms"],
        "group.protocol": settings["protocol"],
        "enable.auto.commit": settings["poison"] is None,
    }
    if settings["protocol"] == "classic":
        config |= {"session.timeout.ms": settings["session_ms"], "heartbeat.interval.ms": 500}
    for name, key in (("client_id", "client.id"), ("instance_id", "group.instance.id")):
        if settings[name]:
            config[key] = settings[name]
    consumer, owned = Consumer(config), Owned()
    poison = Poison(settings["poison"])

    def subscribe(topics: list[str]) -> None:
        consumer.unsubscribe()
        consumer.subscribe(topics)

    consumer.subscribe(settings["topics"])
    goes_on = True
    while goes_on:
        message = consumer.poll(0.1)
        error = None if message is None else message.error()
        if error is not None and error.fatal():
            raise RuntimeError(error.str())
        if message is not None and error is None and poison.handles(message.partition() or 0, message.offset() or 0):
            consumer.commit(message=message, asynchronous=False)
        poison.end()
        owned.show([f"{each.topic}-{each.partition}" for each in consumer.assignment()])
        goes_on, busy = next_order(orders, subscribe, settings["topics"])
        time.sleep(busy)
    consumer.close()


def kafka_python(settings: dict[str, Any], orders: Orders) -> None:
    from kafka import KafkaConsumer, OffsetAndMetadata

    config: dict[str, Any] = {
        "bootstrap_servers": settings["bootstrap"],
        "group_id": settings["group"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": settings["poison"] is None,
        "session_timeout_ms": settings["session_ms"],
        "heartbeat_interval_ms": 500,
        "max_poll_interval_ms": settings["poll_ms"],
        "metadata_max_age_ms": 1000,
        "request_timeout_ms": max(settings["session_ms"], settings["poll_ms"]) + 5000,
        "connections_max_idle_ms": max(settings["session_ms"], settings["poll_ms"]) + 60_000,
    }
    for name, key in (("client_id", "client_id"), ("instance_id", "group_instance_id")):
        if settings[name]:
            config[key] = settings[name]
    consumer, owned = KafkaConsumer(**config), Owned()
    poison = Poison(settings["poison"])

    def subscribe(topics: list[str]) -> None:
        consumer.unsubscribe()
        consumer.subscribe(topics)

    if pattern := matcher(settings["topics"]):
        consumer.subscribe(pattern=pattern)
    else:
        consumer.subscribe(settings["topics"])
    goes_on = True
    while goes_on:
        for where, records in consumer.poll(100).items():
            for record in records:
                if poison.handles(record.partition, record.offset):
                    consumer.commit({where: OffsetAndMetadata(record.offset + 1, "", -1)})
        poison.end()
        owned.show([f"{each.topic}-{each.partition}" for each in consumer.assignment()])
        goes_on, busy = next_order(orders, subscribe, settings["topics"])
        time.sleep(busy)
    consumer.close()


def matcher(topics: list[str]) -> str | None:
    """The expression that a member subscribes to; None if it subscribes to names."""
    return topics[0] if topics[0].startswith("^") else None


async def aiokafka(settings: dict[str, Any], orders: Orders) -> None:
    from aiokafka import AIOKafkaConsumer

    config: dict[str, Any] = {
        "bootstrap_servers": settings["bootstrap"],
        "group_id": settings["group"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": settings["poison"] is None,
        "session_timeout_ms": settings["session_ms"],
        "heartbeat_interval_ms": 500,
        "max_poll_interval_ms": settings["poll_ms"],
        "metadata_max_age_ms": 1000,
    }
    for name, key in (("client_id", "client_id"), ("instance_id", "group_instance_id")):
        if settings[name]:
            config[key] = settings[name]
    consumer, owned = AIOKafkaConsumer(**config), Owned()
    poison = Poison(settings["poison"])

    def subscribe(topics: list[str]) -> None:
        consumer.unsubscribe()
        consumer.subscribe(topics)

    if pattern := matcher(settings["topics"]):
        consumer.subscribe(pattern=pattern)
    else:
        consumer.subscribe(settings["topics"])
    await consumer.start()
    goes_on = True
    while goes_on:
        for where, records in (await consumer.getmany(timeout_ms=100)).items():
            for record in records:
                if poison.handles(record.partition, record.offset):
                    await consumer.commit({where: record.offset + 1})
        poison.end()
        owned.show([f"{each.topic}-{each.partition}" for each in consumer.assignment()])
        goes_on, busy = next_order(orders, subscribe, settings["topics"])
        await asyncio.sleep(busy)
    await consumer.stop()


async def barnabas(settings: dict[str, Any], orders: Orders) -> None:
    from barnabas import Consumer

    config: dict[str, Any] = {
        "bootstrap_servers": settings["bootstrap"],
        "group_id": settings["group"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": settings["poison"] is None,
        "max_poll_interval_ms": settings["poll_ms"],
        "metadata_max_age_ms": 1000,
        "group_protocol": settings["protocol"],
    }
    if settings["protocol"] == "classic":
        config |= {"session_timeout_ms": settings["session_ms"], "heartbeat_interval_ms": 500}
    for name, key in (("client_id", "client_id"), ("instance_id", "group_instance_id")):
        if settings[name]:
            config[key] = settings[name]
    consumer, owned = Consumer(**config), Owned()
    poison = Poison(settings["poison"])

    def subscribe(topics: list[str]) -> None:
        consumer.unsubscribe()
        consumer.subscribe(topics)

    if pattern := matcher(settings["topics"]):
        consumer.subscribe(pattern=pattern)
    else:
        consumer.subscribe(settings["topics"])
    await consumer.start()
    goes_on = True
    while goes_on:
        for where, records in (await consumer.getmany(timeout_ms=100)).items():
            for record in records:
                if poison.handles(record.partition, record.offset):
                    await consumer.commit({where: record.offset + 1})
        poison.end()
        owned.show([f"{each.topic}-{each.partition}" for each in consumer.assignment()])
        goes_on, busy = next_order(orders, subscribe, settings["topics"])
        await asyncio.sleep(busy)
    await consumer.stop()


LIBRARIES: Final[dict[str, Callable[[dict[str, Any], Orders], Any]]] = {
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
    "aiokafka": lambda settings, orders: asyncio.run(aiokafka(settings, orders)),
    "barnabas": lambda settings, orders: asyncio.run(barnabas(settings, orders)),
}


if __name__ == "__main__":
    LIBRARIES[sys.argv[1]](json.loads(sys.argv[2]), listen())
