"""Records that confluent-kafka writes while containers fail, and the acknowledgements that it got."""

import threading
import time
from array import array
from collections.abc import Callable
from typing import Final, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPIC: Final = "ledger"
PARTITIONS: Final = 6
REPLICAS: Final = 3
GROUP: Final = "readers"
#: Seconds.
PATIENCE: Final = 90.0
#: Records sent at a time, and seconds between two sendings: at most 10,000 a second, which leaves the brokers the
#: processor time to renew their leases on a small machine.
_AT_A_TIME: Final = 500
_BETWEEN: Final = 0.05
#: librdkafka logs each failed connection; here they are expected.
_ONLY_CRITICAL: Final = 2
#: Records without acknowledgement at most.
_OUTSTANDING: Final = 20_000


def create_topic(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topic = NewTopic(TOPIC, PARTITIONS, REPLICAS)
    admin.create_topics([topic], operation_timeout=PATIENCE)[TOPIC].result(PATIENCE)


class Load:
    """An idempotent producer with acks=all in its own thread. Record N has the value N.

    Attributes:
        sent: number of records handed to the producer.
        failures: errors of records that were not acknowledged.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": int(PATIENCE * 1000),
                # A paused broker keeps its connections: after this time librdkafka gives them up.
                "socket.timeout.ms": 10_000,
                "log_level": _ONLY_CRITICAL,
            }
        )
        self._news = threading.Condition()
        # Offsets and values of each partition, in the order of acknowledgement.
        self._acknowledged = [(array("q"), array("q")) for _ in range(PARTITIONS)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop sending, and wait for the acknowledgements."""
        self._stop.set()
        self._thread.join()

    @property
    def acknowledged(self) -> int:
        return sum(len(offsets) for offsets, _ in self._acknowledged)

    def lost(self, stored: list[dict[int, int]]) -> int:
        """Return the number of acknowledged records that are not stored at the acknowledged offset."""
        return sum(
            there.get(offset) != value
            for there, (offsets, values) in zip(stored, self._acknowledged, strict=True)
            for offset, value in zip(offsets, values, strict=True)
        )

    def wait_for_all_partitions(self, what: str) -> None:
        """Wait until each partition has acknowledged a record that is sent from now on."""
        mark, began = self.sent, time.monotonic()

        def done() -> bool:
            return all(values and values[-1] >= mark for _, values in self._acknowledged)

        with self._news:
            assert self._news.wait_for(done, PATIENCE), f"after {PATIENCE:.0f} s no acknowledgement {what}"
        print(f"{what}: {time.monotonic() - began:.1f} s until all partitions acknowledge")

    def wait_for_replicas(self, what: str) -> None:
        """Wait until all replicas of all partitions are in sync."""
        began = time.monotonic()
        deadline = began + PATIENCE
        while not self._in_sync():
            assert time.monotonic() < deadline, f"after {PATIENCE:.0f} s not all replicas are in sync {what}"
            self._stop.wait(_BETWEEN)
        print(f"{what}: {time.monotonic() - began:.1f} s until all replicas are in sync")

    def _in_sync(self) -> bool:
        partitions = self._producer.list_topics(TOPIC, PATIENCE).topics[TOPIC].partitions
        return len(partitions) == PARTITIONS and all(len(each.isrs) == REPLICAS for each in partitions.values())

    def _run(self) -> None:
        while not self._stop.wait(_BETWEEN):
            for _ in range(_AT_A_TIME if len(self._producer) < _OUTSTANDING else 0):
                self._producer.produce(
                    TOPIC, str(self.sent).encode(), partition=self.sent % PARTITIONS, on_delivery=self._settled
                )
                self.sent += 1
            self._producer.poll(0)
        self._producer.flush(PATIENCE)

    def _settled(self, error: KafkaError | None, message: Message) -> None:
        with self._news:
            if error is not None:
                self.failures.append(str(error))
            else:
                partition, offset, value = _facts(message)
                offsets, values = self._acknowledged[partition]
                offsets.append(offset)
                values.append(value)
            self._news.notify_all()


def _facts(message: Message) -> tuple[int, int, int]:
    """Return partition, offset and value."""
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None and offset is not None and value is not None
    return partition, offset, int(value)


def read_all(bootstrap_servers: str) -> list[dict[int, int]]:
    """Return for each partition the value at each offset; commit the positions for the group."""
    found: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]

    def read(consumer: Consumer) -> None:
        places = [TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
        ends = {place.partition: consumer.get_watermark_offsets(place, PATIENCE)[1] for place in places}
        consumer.assign(places)
        deadline = time.monotonic() + PATIENCE
        while any(len(found[partition]) < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, f"after {PATIENCE:.0f} s not all is read: {ends}"
            for message in consumer.consume(10_000, 1):
                assert message.error() is None, message.error()
                partition, offset, value = _facts(message)
                found[partition][offset] = value
        consumer.commit(
            offsets=[TopicPartition(TOPIC, partition, end) for partition, end in ends.items()], asynchronous=False
        )

    _with_consumer(bootstrap_servers, read)
    return found


def committed(bootstrap_servers: str) -> list[int]:
    """Return the committed offset of each partition."""
    offsets: list[int] = []

    def ask(consumer: Consumer) -> None:
        places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        offsets.extend(place.offset for place in consumer.committed(places, PATIENCE))

    _with_consumer(bootstrap_servers, ask)
    return offsets


def _with_consumer(bootstrap_servers: str, use: Callable[[Consumer], None]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "log_level": _ONLY_CRITICAL,
        }
    )
    try:
        use(consumer)
    finally:
        consumer.close()
