"""A broker that is killed with SIGKILL under load loses no acknowledged record and stores no record twice.

The producer is librdkafka's idempotent one: it retries what was not acknowledged, and the broker must restore its
producer state after each kill. The times of the kills are counted in acknowledgements, not in seconds; they come from a
seed that is printed.
"""

import os
import random
import time

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.barnabas_server import BarnabasBroker

PARTITIONS = 3
TOPIC = "survivors"
#: Limit of the test in seconds.
PATIENCE = 300.0

pytestmark = [pytest.mark.interop, pytest.mark.timeout(PATIENCE + 30)]


class Load:
    """A producer of numbered records, which notes the partition and offset of each acknowledged one."""

    def __init__(self, bootstrap_servers: str, rng: random.Random) -> None:
        self.rng = rng
        self.sent = 0
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failed: list[str] = []
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": int(PATIENCE * 1000),
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "log_level": 0,
            }
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value, partition, offset = message.value(), message.partition(), message.offset()
        if error is not None:
            self.failed.append(error.str())
        elif value is not None and partition is not None and offset is not None:
            number = int(value[:12])
            assert number not in self.acknowledged
            self.acknowledged[number] = (partition, offset)

    def run_until(self, acknowledged: int, deadline: float) -> None:
        """Produce until `acknowledged` records are acknowledged, with up to 2,000 in flight."""
        while len(self.acknowledged) < acknowledged:
            assert not self.failed, self.failed[0]
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {acknowledged} acknowledged in time"
            if self.sent - len(self.acknowledged) < 2000:
                self.send(self.rng.randrange(1, 50))
            self.producer.poll(0.01)

    def send(self, count: int) -> None:
        for _ in range(count):
            value = b"%012d" % self.sent + b"x" * self.rng.randrange(200)
            self.producer.produce(TOPIC, value, partition=self.sent % PARTITIONS, on_delivery=self._delivered)
            self.sent += 1

    def finish(self, deadline: float) -> None:
        while self.producer.flush(1.0):
            assert time.monotonic() < deadline, "not everything was acknowledged in time"


def read_back(bootstrap_servers: str, total: int, deadline: float) -> dict[int, list[tuple[int, int]]]:
    """Read the whole topic; return the partitions and offsets at which each number is stored."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([TOPIC])
    found: dict[int, list[tuple[int, int]]] = {}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{len(found)} of {total} read in time"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error, partition, offset, value = message.error(), message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error.str()
            ended.add(partition)
        else:
            assert value is not None
            found.setdefault(int(value[:12]), []).append((partition, offset))
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("kills", "flush"),
    [
        pytest.param(3, False, id="page cache, 3 kills"),
        pytest.param(50, False, id="page cache, 50 kills", marks=pytest.mark.slow),
        pytest.param(2, True, id="fsync, 2 kills"),
        pytest.param(8, True, id="fsync, 8 kills", marks=pytest.mark.slow),
    ],
)
def test_kills_lose_no_record_and_duplicate_none(kills: int, flush: bool) -> None:
    seed = int(os.environ.get("BARNABAS_SEED", random.randrange(10**6)))
    print(f"BARNABAS_SEED={seed}")
    rng = random.Random(seed)
    deadline = time.monotonic() + PATIENCE
    settings: dict[str, str | int | bool] = {"log.segment.bytes": 2_000_000, "offsets.topic.num.partitions": 4}
    if flush:
        settings["log.flush.interval.messages"] = 1
    with BarnabasBroker(settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        load = Load(broker.bootstrap_servers, rng)
        for _ in range(kills):
            load.run_until(len(load.acknowledged) + rng.randrange(1, 600), deadline)
            broker.kill()
            load.send(rng.randrange(50))
            broker.start()
        load.finish(deadline)
        assert len(load.acknowledged) == load.sent
        found = read_back(broker.bootstrap_servers, load.sent, deadline)
    missing = [number for number in load.acknowledged if number not in found]
    duplicated = {number: places for number, places in found.items() if len(places) > 1}
    assert not missing
    assert not duplicated
    assert {number: places[0] for number, places in found.items()} == load.acknowledged
    for partition in range(PARTITIONS):
        order = sorted((places[0][1], number) for number, places in found.items() if places[0][0] == partition)
        assert [number for _, number in order] == sorted(number for _, number in order)
