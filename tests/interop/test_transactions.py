"""Transactions of confluent-kafka and aiokafka against a broker: commit, abort, fencing, consume-transform-produce."""

import asyncio
import uuid
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import pytest

from barnabas_broker.testing import Broker

PATIENCE = 60.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def producer(broker: Broker, name: str) -> confluent_kafka.Producer:
    made = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "log_level": 0}
    )
    made.init_transactions(PATIENCE)
    return made


def committed(broker: Broker, topic: str, end: bytes) -> list[bytes]:
    """The committed records of a topic, up to the value `end`."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": str(uuid.uuid4()),
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while end not in values:
        (message,) = consumer.consume(1, PATIENCE) or (None,)
        assert message is not None, values
        assert message.error() is None
        values.append(message.value() or b"")
    consumer.close()
    return values


def test_confluent_kafka_commits_and_aborts(broker: Broker) -> None:
    sender = producer(broker, "id")
    for at in range(6):
        sender.begin_transaction()
        for _ in range(10):
            sender.produce("t", b"%d" % at, partition=0)
        sender.flush(PATIENCE)  # what is not sent yet an abort would only drop
        if at % 2:
            sender.abort_transaction(PATIENCE)
        else:
            sender.commit_transaction(PATIENCE)
    sender.begin_transaction()
    sender.produce("t", b"end", partition=0)
    sender.commit_transaction(PATIENCE)
    assert committed(broker, "t", b"end") == [*[b"0"] * 10, *[b"2"] * 10, *[b"4"] * 10, b"end"]


def test_confluent_kafkas_second_producer_fences_the_first(broker: Broker) -> None:
    first = producer(broker, "id")
    first.begin_transaction()
    first.produce("t", b"of the first", partition=0)
    first.flush(PATIENCE)
    second = producer(broker, "id")
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        first.commit_transaction(PATIENCE)
    assert raised.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    second.begin_transaction()
    second.produce("t", b"end", partition=0)
    second.commit_transaction(PATIENCE)
    assert committed(broker, "t", b"end") == [b"end"]


async def test_aiokafka_consumes_and_produces_in_one_transaction(broker: Broker) -> None:
    settings = {"bootstrap_servers": broker.bootstrap_servers}
    source = aiokafka.TopicPartition("source", 0)
    async with aiokafka.AIOKafkaProducer(**settings, transactional_id="id") as sender:
        async with sender.transaction():
            for value in range(10):
                await sender.send("source", b"%d" % value, partition=0)
        consumer = aiokafka.AIOKafkaConsumer(
            **settings,
            group_id="g",
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        async with consumer:
            consumer.assign([source])
            async with asyncio.timeout(PATIENCE):
                for attempt in ("aborted", "committed"):
                    await consumer.seek_to_beginning(source)
                    values = [(await consumer.getone()).value for _ in range(10)]
                    await sender.begin_transaction()
                    for value in values:
                        await sender.send("target", value + b" " + attempt.encode(), partition=0)
                    await sender.send_offsets_to_transaction({source: 10}, "g")
                    if attempt == "aborted":
                        await sender.abort_transaction()
                    else:
                        await sender.commit_transaction()
                for _ in range(1000):
                    if await consumer.committed(source) == 10:
                        break
                    await asyncio.sleep(0.05)  # the marker may still be on its way
                else:
                    pytest.fail("the offset is not committed")
        async with sender.transaction():
            await sender.send("target", b"end", partition=0)
    found = await asyncio.to_thread(committed, broker, "target", b"end")
    assert found == [*(b"%d committed" % value for value in range(10)), b"end"]
