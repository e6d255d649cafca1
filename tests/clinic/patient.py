"""A member of a consumer group as a program that can have a disease.

    python -m tests.clinic.patient aiokafka '{"bootstrap": "127.0.0.1:9092", "group": "g", "topics": ["t"], ...}'

It polls, and prints the partitions that it owns, as a JSON line, whenever they change. Lines on its standard input make
it ill, between two polls:

- ``busy SECONDS``: processes for so long; the client's own threads or tasks go on where it has any
- ``block SECONDS``: the same, while nothing else of the process runs: the event loop is blocked, the interpreter
  lock held
- ``starve SECONDS``: sends no heartbeats for so long, and fetches; aiokafka and kafka-python only
- ``slow_revoke SECONDS``: its rebalance listener takes so long to give up partitions, once
- ``resubscribe``: unsubscribes and subscribes again
- ``subscribe TOPIC``: subscribes to another topic
- ``commit PARTITION OFFSET``: commits that offset of the ward's topic
- ``pause PARTITION``: pauses that partition of the ward's topic
- ``fall_behind SECONDS PARTITION``: processes for so long, and goes on at the end of that partition of the ward's topic
- ``leak``: makes a new consumer, and neither closes nor polls the old one any more
- ``exit``: ends the process without closing the consumer

It closes the consumer and ends when its standard input ends.

With `assignor`, in the classic protocol, it has that assignor only. The one named `failing` fails always, and the
program then ends without closing the consumer; confluent-kafka and kafka-clients have no such assignor.

With `poison`, a partition and an offset, it commits after each record by itself. It ends without closing the consumer
when it has got that record, and one of another partition. With `retries`, a partition and an offset, it commits after
each record, too, and reads that record again and again, after `delay_ms`. With `commits` false it commits nothing. With
`assign`, partitions of the ward's topic, it reads these without being a member. With `rewinds` its rebalance listener
goes back to the beginning. With `last` it commits the offset of the last record of each poll in place of the next one.
With `untaken` its rebalance listener takes none of its partitions; confluent-kafka only. With `transactions`, a group,
it commits each poll in a transaction to that group; aiokafka and barnabas only.

`Patient.java` is the same program with the Java client.
"""

import asyncio
import ctypes
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Protocol

#: What standard input asks for; None when it has ended.
Orders = queue.SimpleQueue[str | None]
#: Topic, partition and offset of a record.
Place = tuple[str, int, int]


class Patient(Protocol):
    """A consumer of one of the libraries."""

    async def subscribe(self, topics: list[str]) -> None:
        """Subscribe to these topics, or to an expression that begins with ^; and start."""

    def unsubscribe(self) -> None: ...

    async def assign(self, topic: str, partitions: list[int]) -> None:
        """Read partitions without a subscription; and start."""

    async def poll(self) -> list[Place]:
        """Poll for 0.1 s."""

    async def commit(self, topic: str, partition: int, offset: int) -> None: ...

    def pause(self, topic: str, partition: int) -> None: ...

    async def seek(self, topic: str, partition: int, offset: int) -> None: ...

    async def seek_to_end(self, topic: str, partition: int) -> None: ...

    async def transact(self, offsets: dict[tuple[str, int], int], group: str) -> None:
        """Commit offsets to a group in a transaction."""

    def starve(self, seconds: float) -> None:
        """Send no heartbeats for so long."""

    def owned(self) -> Iterable[tuple[str, int]]: ...

    async def close(self) -> None: ...


def commits_by_itself(settings: dict[str, Any]) -> bool:
    """Whether the library commits: the program does so, or nothing does, otherwise."""
    by_program = (
        settings["last"]
        or settings["transactions"]
        or settings["poison"] is not None
        or settings["retries"] is not None
    )
    return not by_program and bool(settings["commits"])


class Revoking:
    """A rebalance listener that takes long, once, when `seconds` is set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def take(self) -> float:
        """The seconds to wait for now."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


def matcher(topics: list[str]) -> str | None:
    """The expression that a member subscribes to; None if it subscribes to names."""
    return topics[0] if topics[0].startswith("^") else None


def names(settings: dict[str, Any], client_id: str, instance_id: str) -> dict[str, Any]:
    """The names of a member, under the keys of its library; it has none where the settings have none."""
    named = {client_id: settings["client_id"], instance_id: settings["instance_id"]}
    return {key: value for key, value in named.items() if value}


def isolation(settings: dict[str, Any], key: str) -> dict[str, Any]:
    """The isolation level of a member, under the key of its library; that of its library unless the settings say so."""
    return {key: "read_committed"} if settings["committed"] else {}


class ConfluentKafka:
    def __init__(self, settings: dict[str, Any], revoking: Revoking) -> None:
        from confluent_kafka import Consumer

        config: dict[str, Any] = {
            "bootstrap.servers": settings["bootstrap"],
            "group.id": settings["group"],
            "auto.offset.reset": "error" if settings["reset"] == "none" else settings["reset"],
            "topic.metadata.refresh.interval.ms": settings["metadata_ms"],
            "auto.commit.interval.ms": settings["commit_ms"],
            "max.poll.interval.ms": settings["poll_ms"],
            "group.protocol": settings["protocol"],
            "enable.auto.commit": commits_by_itself(settings),
            **isolation(settings, "isolation.level"),
            **names(settings, "client.id", "group.instance.id"),
        }
        if settings["protocol"] == "classic":
            config |= {"session.timeout.ms": settings["session_ms"], "heartbeat.interval.ms": 500}
        if settings["assignor"]:
            config["partition.assignment.strategy"] = settings["assignor"]
        self._revoking = revoking
        self._rewinds = settings["rewinds"]
        self._untaken = settings["untaken"]
        self._modern = settings["protocol"] == "consumer"
        self._consumer = Consumer(config)

    async def subscribe(self, topics: list[str]) -> None:
        def assigned(_: object, partitions: list[Any]) -> None:
            for each in partitions:
                each.offset = OFFSET_BEGINNING
            taken = [] if self._untaken else partitions
            if self._modern:
                self._consumer.incremental_assign(taken)
            else:
                self._consumer.assign(taken)

        from confluent_kafka import OFFSET_BEGINNING

        listeners: dict[str, Any] = {"on_assign": assigned} if self._rewinds or self._untaken else {}
        self._consumer.subscribe(topics, on_revoke=lambda *_: time.sleep(self._revoking.take()), **listeners)

    async def assign(self, topic: str, partitions: list[int]) -> None:
        from confluent_kafka import TopicPartition

        self._consumer.assign([TopicPartition(topic, number) for number in partitions])

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    async def poll(self) -> list[Place]:
        message = self._consumer.poll(0.1)
        error = None if message is None else message.error()
        if error is not None and error.fatal():
            raise RuntimeError(error.str())
        if message is None or error is not None:
            return []
        return [(str(message.topic()), message.partition() or 0, message.offset() or 0)]

    async def commit(self, topic: str, partition: int, offset: int) -> None:
        from confluent_kafka import TopicPartition

        self._consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)

    def pause(self, topic: str, partition: int) -> None:
        from confluent_kafka import TopicPartition

        self._consumer.pause([TopicPartition(topic, partition)])

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        from confluent_kafka import TopicPartition

        self._consumer.seek(TopicPartition(topic, partition, offset))

    async def seek_to_end(self, topic: str, partition: int) -> None:
        from confluent_kafka import OFFSET_END

        await self.seek(topic, partition, OFFSET_END)

    async def transact(self, offsets: dict[tuple[str, int], int], group: str) -> None:
        raise NotImplementedError("the program with this client has no transactions")

    def starve(self, seconds: float) -> None:
        raise NotImplementedError("the heartbeats of librdkafka have a thread of their own")

    def owned(self) -> Iterable[tuple[str, int]]:
        return [(each.topic, each.partition) for each in self._consumer.assignment()]

    async def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, settings: dict[str, Any], revoking: Revoking) -> None:
        from tests.kafka_python import kafka

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: object) -> None:
                time.sleep(revoking.take())

            def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
                if settings["rewinds"] and assigned:
                    consumer.seek_to_beginning(*assigned)

        longest = max(settings["session_ms"], settings["poll_ms"])
        self._listener = Listener()
        self._consumer = consumer = kafka.KafkaConsumer(
            bootstrap_servers=settings["bootstrap"],
            group_id=settings["group"],
            auto_offset_reset=settings["reset"],
            auto_commit_interval_ms=settings["commit_ms"],
            enable_auto_commit=commits_by_itself(settings),
            session_timeout_ms=settings["session_ms"],
            heartbeat_interval_ms=500,
            max_poll_interval_ms=settings["poll_ms"],
            metadata_max_age_ms=settings["metadata_ms"],
            request_timeout_ms=longest + 5000,
            **isolation(settings, "isolation_level"),
            connections_max_idle_ms=longest + 60_000,
            **names(settings, "client_id", "group_instance_id"),
            **kafka_python_assignor(settings["assignor"]),
        )

    async def subscribe(self, topics: list[str]) -> None:
        if pattern := matcher(topics):
            self._consumer.subscribe(pattern=pattern, listener=self._listener)
        else:
            self._consumer.subscribe(topics, listener=self._listener)

    async def assign(self, topic: str, partitions: list[int]) -> None:
        from tests.kafka_python import kafka

        self._consumer.assign([kafka.TopicPartition(topic, number) for number in partitions])

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    async def poll(self) -> list[Place]:
        polled = self._consumer.poll(100)
        return [(each.topic, each.partition, each.offset) for records in polled.values() for each in records]

    async def commit(self, topic: str, partition: int, offset: int) -> None:
        from tests.kafka_python import kafka

        self._consumer.commit({kafka.TopicPartition(topic, partition): kafka.OffsetAndMetadata(offset, "", -1)})

    def pause(self, topic: str, partition: int) -> None:
        from tests.kafka_python import kafka

        self._consumer.pause(kafka.TopicPartition(topic, partition))

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        from tests.kafka_python import kafka

        self._consumer.seek(kafka.TopicPartition(topic, partition), offset)

    async def seek_to_end(self, topic: str, partition: int) -> None:
        from tests.kafka_python import kafka

        self._consumer.seek_to_end(kafka.TopicPartition(topic, partition))

    async def transact(self, offsets: dict[tuple[str, int], int], group: str) -> None:
        raise NotImplementedError("the program with this client has no transactions")

    def starve(self, seconds: float) -> None:
        coordinator = self._consumer._coordinator
        send, until = coordinator._do_heartbeat, time.monotonic() + seconds

        async def late() -> None:
            if time.monotonic() < until:
                coordinator.heartbeat.received_heartbeat()  # It does not notice that it is late.
                coordinator.heartbeat.sent_heartbeat()
            else:
                await send()

        coordinator._do_heartbeat = late

    def owned(self) -> Iterable[tuple[str, int]]:
        return [(each.topic, each.partition) for each in self._consumer.assignment()]

    async def close(self) -> None:
        self._consumer.close()


class _Async:
    """aiokafka, and barnabas, whose consumer has the same methods."""

    def __init__(self, consumer: Any, listener: Any, partition: Any, producer: Callable[[], Any]) -> None:
        self._consumer = consumer
        self._listener = listener
        self._partition = partition
        self._started = False
        self._new_producer = producer
        self._producer: Any = None

    async def subscribe(self, topics: list[str]) -> None:
        if pattern := matcher(topics):
            self._consumer.subscribe(pattern=pattern, listener=self._listener)
        else:
            self._consumer.subscribe(topics, listener=self._listener)
        if not self._started:
            self._started = True
            await self._consumer.start()

    async def assign(self, topic: str, partitions: list[int]) -> None:
        self._consumer.assign([self._partition(topic, number) for number in partitions])
        self._started = True
        await self._consumer.start()

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    async def poll(self) -> list[Place]:
        polled = await self._consumer.getmany(timeout_ms=100)
        return [(each.topic, each.partition, each.offset) for records in polled.values() for each in records]

    async def commit(self, topic: str, partition: int, offset: int) -> None:
        await self._consumer.commit({self._partition(topic, partition): offset})

    def pause(self, topic: str, partition: int) -> None:
        self._consumer.pause(self._partition(topic, partition))

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        sought = self._consumer.seek(self._partition(topic, partition), offset)
        if sought is not None:
            await sought

    async def seek_to_end(self, topic: str, partition: int) -> None:
        await self._consumer.seek_to_end(self._partition(topic, partition))

    async def transact(self, offsets: dict[tuple[str, int], int], group: str) -> None:
        if self._producer is None:
            self._producer = self._new_producer()
            await self._producer.start()
        await self._producer.begin_transaction()
        found = {self._partition(*place): offset for place, offset in offsets.items()}
        await self._producer.send_offsets_to_transaction(found, group)
        await self._producer.commit_transaction()

    def starve(self, seconds: float) -> None:
        coordinator = self._consumer._coordinator
        send, until = coordinator._do_heartbeat, time.monotonic() + seconds

        async def late() -> bool:
            return time.monotonic() < until or bool(await send())

        coordinator._do_heartbeat = late

    def owned(self) -> Iterable[tuple[str, int]]:
        return [(each.topic, each.partition) for each in self._consumer.assignment()]

    async def close(self) -> None:
        await self._consumer.stop()


def _asynchronous(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that aiokafka and barnabas share."""
    return {
        "bootstrap_servers": settings["bootstrap"],
        "group_id": settings["group"],
        "auto_offset_reset": settings["reset"],
        "auto_commit_interval_ms": settings["commit_ms"],
        "enable_auto_commit": commits_by_itself(settings),
        "max_poll_interval_ms": settings["poll_ms"],
        "metadata_max_age_ms": settings["metadata_ms"],
        **isolation(settings, "isolation_level"),
        **names(settings, "client_id", "group_instance_id"),
    }


def _transactional(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a producer with transactions that aiokafka and barnabas share."""
    return {
        "bootstrap_servers": settings["bootstrap"],
        "transactional_id": f"of-{settings['group']}",
    }


def kafka_python_assignor(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    class Failing(RangePartitionAssignor):  # type: ignore[misc]
        name = "failing"

        def assign(self, *_: object) -> Any:
            raise RuntimeError("no rack is known")

    found = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor, "failing": Failing}[name]
    return {"partition_assignment_strategy": [found]}


def aiokafka_assignor(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    class Failing(RangePartitionAssignor):  # type: ignore[misc]
        name = "failing"

        @classmethod
        def assign(cls, *_: object) -> Any:
            raise RuntimeError("no rack is known")

    found = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor, "failing": Failing}[name]
    return {"partition_assignment_strategy": [found]}


def barnabas_assignor(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    from barnabas_client.assignors import RangeAssignor, RoundRobinAssignor

    class Failing(RangeAssignor):
        name = "failing"

        def assign(self, *_: object) -> Any:
            raise RuntimeError("no rack is known")

    assignors: dict[str, type[RangeAssignor | RoundRobinAssignor]] = {"range": RangeAssignor, "failing": Failing}
    assignors["roundrobin"] = RoundRobinAssignor
    return {"partition_assignment_strategy": [assignors[name]()]}


def aiokafka(settings: dict[str, Any], revoking: Revoking) -> Patient:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: object) -> None:
            await asyncio.sleep(revoking.take())

        async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            if settings["rewinds"] and assigned:
                await consumer.seek_to_beginning(*assigned)

    config = _asynchronous(settings)
    config |= {"session_timeout_ms": settings["session_ms"], "heartbeat_interval_ms": 500}
    config |= aiokafka_assignor(settings["assignor"])
    consumer = AIOKafkaConsumer(**config)
    return _Async(consumer, Listener(), TopicPartition, lambda: AIOKafkaProducer(**_transactional(settings)))


def barnabas(settings: dict[str, Any], revoking: Revoking) -> Patient:
    from barnabas import Consumer, ConsumerRebalanceListener, Producer, TopicPartition

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: object) -> None:
            await asyncio.sleep(revoking.take())

        async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            if settings["rewinds"] and assigned:
                await consumer.seek_to_beginning(*assigned)

    config = _asynchronous(settings) | {"group_protocol": settings["protocol"]}
    if settings["protocol"] == "classic":
        config |= {"session_timeout_ms": settings["session_ms"], "heartbeat_interval_ms": 500}
        config |= barnabas_assignor(settings["assignor"])
    consumer: Consumer[Any, Any] = Consumer(**config)
    return _Async(consumer, Listener(), TopicPartition, lambda: Producer(**_transactional(settings)))


LIBRARIES: Final[dict[str, Callable[[dict[str, Any], Revoking], Patient]]] = {
    "confluent-kafka": ConfluentKafka,
    "kafka-python": KafkaPython,
    "aiokafka": aiokafka,
    "barnabas": barnabas,
}


def listen() -> Orders:
    orders: Orders = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            orders.put(line.strip())
        orders.put(None)

    threading.Thread(target=read, daemon=True).start()
    return orders


class Poison:
    """Decides which records are handled, and ends the process because of one, or has it read again.

    Args:
        where: the partition and the offset of that one; None if there is none.
        retries: whether it is read again.
        delay_ms: for how long it waits before that.
    """

    def __init__(self, where: Sequence[int] | None, retries: bool, delay_ms: int) -> None:
        self._where = where
        self._delay_ms = delay_ms
        self._retries = retries
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

    async def meet(self, patient: Patient, topic: str) -> None:
        """End the process if it is time, or have the record read again."""
        if self._met and self._retries and self._where is not None:
            self._met = False
            await asyncio.sleep(self._delay_ms / 1000)
            await patient.seek(topic, *self._where)
        elif self._met and self._others:
            os._exit(3)


def block(seconds: float) -> None:
    """Sleep without giving up the interpreter lock, as an extension module that computes."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


async def obey(order: str, patient: Patient, revoking: Revoking, topics: list[str]) -> None:
    """Do what is asked for."""
    what, *values = order.split()
    if what == "busy":
        await asyncio.sleep(float(values[0]))
    elif what == "block":
        block(float(values[0]))
    elif what == "starve":
        patient.starve(float(values[0]))
    elif what == "slow_revoke":
        revoking.seconds = float(values[0])
    elif what == "exit":
        os._exit(3)
    elif what == "commit":
        await patient.commit(topics[0], *map(int, values))
    elif what == "pause":
        patient.pause(topics[0], int(values[0]))
    elif what == "fall_behind":
        await asyncio.sleep(float(values[0]))
        await patient.seek_to_end(topics[0], int(values[1]))
    elif what in ("resubscribe", "subscribe"):
        patient.unsubscribe()
        await patient.subscribe(values or topics)


async def main(library: str, settings: dict[str, Any], orders: Orders) -> None:
    revoking = Revoking()
    patient = LIBRARIES[library](settings, revoking)
    old: list[Patient] = []
    delayed = {"retries": settings["retries"] is not None, "delay_ms": settings["delay_ms"]}
    poison = Poison(settings["retries"] or settings["poison"], **delayed)
    if settings["assign"]:
        await patient.assign(settings["topics"][0], settings["assign"])
    else:
        await patient.subscribe(settings["topics"])
    shown: list[str] | None = None
    while True:
        try:
            polled = await patient.poll()
        except Exception:
            if settings["reset"] != "none":
                raise
            polled = []  # It takes the error for one that passes.
            await asyncio.sleep(0.5)
        for topic, partition, offset in polled:
            if poison.handles(partition, offset):
                await patient.commit(topic, partition, offset + 1)
        if settings["transactions"] and polled:
            offsets = {place[:2]: place[2] + 1 for place in polled}
            await patient.transact(offsets, settings["transactions"])
        if settings["last"]:
            for (topic, partition), offset in {place[:2]: place[2] for place in polled}.items():
                await patient.commit(topic, partition, offset)
        await poison.meet(patient, settings["topics"][0])
        owned = sorted(f"{topic}-{partition}" for topic, partition in patient.owned())
        if owned != shown:
            shown = owned
            sys.stdout.write(json.dumps(owned) + "\n")
            sys.stdout.flush()
        try:
            order = orders.get_nowait()
        except queue.Empty:
            continue
        if order is None:
            break
        if order == "leak":
            old.append(patient)
            patient = LIBRARIES[library](settings, revoking)
            await patient.subscribe(settings["topics"])
            continue
        await obey(order, patient, revoking, settings["topics"])
    await patient.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), listen()))
