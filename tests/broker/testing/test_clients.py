"""Clients of other projects meet faults, and continue."""

import asyncio
import threading
import time

import aiokafka
import confluent_kafka
import pytest

from barnabas_broker.testing import Broker, Faults
from barnabas_client import Consumer, Producer
from tests.kafka_python import kafka

pytestmark = [pytest.mark.programs, pytest.mark.together]

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


def test_librdkafka_loses_no_record_that_has_the_sequence_of_an_aborted_one(running: Broker, faults: Faults) -> None:
    # It does not send an aborted record again whose answer was lost, and gives its sequence to the next one. Apache
    # Kafka 4.3.1 takes that for a duplicate: it acknowledges it, and the transaction commits without it.
    topic, committed, broken = "sequences", [b"first"], threading.Event()
    refusals: list[confluent_kafka.KafkaError] = []
    running.create_topic(topic)
    servers = {"bootstrap.servers": running.bootstrap_servers, "error_cb": lambda error: broken.set(), "log_level": 0}
    # So long does an aborted record wait to be sent again.
    waits = {"retry.backoff.ms": 2000, "retry.backoff.max.ms": 2000}
    producer = confluent_kafka.Producer({**servers, **waits, "transactional.id": topic})
    producer.init_transactions(PATIENCE)
    send(producer, topic, b"first")
    # On a busy machine it may come to send the record again.
    for attempt in range(10):
        producer.begin_transaction()
        broken.clear()
        with faults.drop("Produce", executed=True) as lost:
            producer.produce(topic, b"aborted", partition=0)
            lost.wait(timeout=PATIENCE)
        poll_until(producer, broken)
        producer.abort_transaction(PATIENCE)
        value = b"%d" % attempt
        try:
            send(producer, topic, value)
        except confluent_kafka.KafkaException as error:
            refusals.append(error.args[0])
            producer.abort_transaction(PATIENCE)
            send(producer, topic, value)
        committed.append(value)
        if refusals:
            break
    assert [error.code() for error in refusals] == [confluent_kafka.KafkaError.UNKNOWN_PRODUCER_ID]
    assert refusals[0].txn_requires_abort()
    consumer = confluent_kafka.Consumer({**servers, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    messages = consumer.consume(len(committed), PATIENCE)
    consumer.close()
    assert [message.value() for message in messages] == committed


def send(producer: confluent_kafka.Producer, topic: str, value: bytes) -> None:
    """Send a record in a transaction of its own."""
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    producer.commit_transaction(PATIENCE)


def poll_until(producer: confluent_kafka.Producer, event: threading.Event) -> None:
    """Let callbacks be called until `event` is set."""
    deadline = time.monotonic() + PATIENCE
    while not event.is_set():
        assert time.monotonic() < deadline
        producer.poll(0.05)


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


@pytest.mark.parametrize("in_flight", [1, 5])
def test_librdkafka_loses_no_batch_that_is_refused_before_the_next_one(
    running: Broker, faults: Faults, in_flight: int
) -> None:
    # It sends the second batch of a partition before it has the answer to the first one. Apache Kafka 4.4 takes the
    # second one, because it does not know the producer yet; librdkafka then takes the first one for acknowledged.
    topic = f"gap-{in_flight}"
    running.create_topic(topic)
    settings = {
        "bootstrap.servers": running.bootstrap_servers,
        "enable.idempotence": True,
        "linger.ms": 0,
        "max.in.flight.requests.per.connection": in_flight,
        "log_level": 0,
    }
    producer = confluent_kafka.Producer(settings)
    delivered: list[confluent_kafka.Message] = []
    with faults.delay("Produce", 60) as held, faults.error("Produce", "NOT_LEADER_OR_FOLLOWER"):
        producer.produce(topic, b"first", partition=0, on_delivery=lambda _, message: delivered.append(message))
        held.wait(timeout=PATIENCE)
        producer.produce(topic, b"second", partition=0, on_delivery=lambda _, message: delivered.append(message))
        producer.poll(1)
    assert producer.flush(PATIENCE) == 0
    assert [(message.error(), message.value(), message.offset()) for message in delivered] == [
        (None, b"first", 0),
        (None, b"second", 1),
    ]
