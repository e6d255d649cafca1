"""Clients of other projects meet faults, and continue."""

import asyncio

import aiokafka
import confluent_kafka
import pytest

from barnabas_broker.testing import Broker, Faults
from barnabas_client import Consumer, Producer
from tests.kafka_python import kafka

pytestmark = pytest.mark.programs

#: Seconds after which nothing is coming any more.
PATIENCE = 60.0


def quiet(error: confluent_kafka.KafkaError) -> None:
    """That a connection broke is what the test is about."""


@pytest.mark.parametrize("idempotent", [True, False])
def test_confluent_kafka_repeats_a_lost_produce(running: Broker, faults: Faults, idempotent: bool) -> None:
    topic = f"confluent-{idempotent}".lower()
    running.create_topic(topic)
    lost = faults.drop("Produce", executed=True)
    servers = {"bootstrap.servers": running.bootstrap_servers, "error_cb": quiet, "log_level": 0}
    producer = confluent_kafka.Producer({**servers, "enable.idempotence": idempotent})
    producer.produce(topic, b"once")
    assert producer.flush(PATIENCE) == 0
    assert lost.fired == 1
    consumer = confluent_kafka.Consumer({**servers, "group.id": topic, "auto.offset.reset": "earliest"})
    _, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), PATIENCE)
    consumer.close()
    assert high == (1 if idempotent else 2)


async def test_aiokafka_waits_for_a_coordinator(running: Broker, faults: Faults) -> None:
    running.create_topic("aio")
    slow = faults.error("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=running.bootstrap_servers) as producer:
        await producer.send_and_wait("aio", b"value")
    consumer = aiokafka.AIOKafkaConsumer(
        "aio", bootstrap_servers=running.bootstrap_servers, group_id="aio", auto_offset_reset="earliest"
    )
    async with asyncio.timeout(PATIENCE), consumer:
        assert (await consumer.getone()).value == b"value"
    assert slow.fired == 2


def test_kafka_python_survives_a_restart(running: Broker, faults: Faults) -> None:
    running.create_topic("python")
    producer = kafka.KafkaProducer(bootstrap_servers=running.bootstrap_servers)
    producer.send("python", b"before").get(PATIENCE)
    faults.restart()
    producer.send("python", b"after").get(PATIENCE)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "python",
        bootstrap_servers=running.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE * 1000,
    )
    assert [next(consumer).value, next(consumer).value] == [b"before", b"after"]
    consumer.close()


async def test_barnabas_reads_on_after_an_error(running: Broker, faults: Faults) -> None:
    running.create_topic("own")
    async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
        await producer.send_and_wait("own", b"value")
    moved = faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER")
    consumer = Consumer(
        "own", bootstrap_servers=running.bootstrap_servers, group_id="own", auto_offset_reset="earliest"
    )
    async with asyncio.timeout(PATIENCE), consumer:
        assert (await consumer.getone()).value == b"value"
    assert moved.fired == 1


async def test_a_disconnected_member_rejoins(running: Broker, faults: Faults) -> None:
    running.create_topic("cut-off")
    consumer = Consumer("cut-off", bootstrap_servers=running.bootstrap_servers, group_id="cut-off", client_id="member")
    async with asyncio.timeout(PATIENCE), consumer:
        await asyncio.to_thread(running.wait_for_request, "Fetch", client_id="member")
        before = running.requests[-1]
        assert faults.disconnect("member") >= 1
        await asyncio.to_thread(running.wait_for_request, "Fetch", client_id="member", after=before)
