"""The reference works: a third-party client reads back the records that it has written to Apache Kafka."""

import time
import uuid

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.kafka_server import ApacheKafka, kafka_cluster
from tests.interop.waiting import ask_until

pytestmark = pytest.mark.kafka

RECORDS = 100


def _create(kafka: ApacheKafka, partitions: int, replicas: int = 1) -> str:
    topic = f"reference-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(30)
    return topic


def _produce(kafka: ApacheKafka, topic: str) -> set[tuple[bytes, bytes]]:
    sent = {(b"key-%d" % n, b"value-%d" % n) for n in range(RECORDS)}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    failed: list[str] = []
    for key, value in sent:
        producer.produce(topic, value, key, on_delivery=lambda error, _: failed.append(str(error)) if error else None)
    assert producer.flush(30) == 0
    assert failed == []
    return sent


def _consume(kafka: ApacheKafka, topic: str) -> list[tuple[bytes, bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        got: list[tuple[bytes, bytes]] = []
        deadline = time.monotonic() + 30
        while len(got) < RECORDS and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None
                key, value = message.key(), message.value()
                assert isinstance(key, bytes) and isinstance(value, bytes)
                got.append((key, value))
        return got
    finally:
        consumer.close()


def test_written_records_are_read_back(apache_kafka: ApacheKafka) -> None:
    topic = _create(apache_kafka, 3)
    sent = _produce(apache_kafka, topic)
    got = _consume(apache_kafka, topic)
    assert len(got) == RECORDS
    assert set(got) == sent


def test_tools_run_against_apache_kafka(apache_kafka: ApacheKafka) -> None:
    topic = _create(apache_kafka, 2)
    listed = apache_kafka.tool("kafka-topics", "--bootstrap-server", apache_kafka.bootstrap_servers, "--list")
    assert listed.returncode == 0, listed.stderr
    assert topic in listed.stdout.splitlines()


def test_three_nodes_form_a_cluster(needs_jars: None) -> None:
    with kafka_cluster(3, {"min.insync.replicas": 2}, heap="256m") as nodes:
        admin = AdminClient({"bootstrap.servers": nodes[0].bootstrap_servers})
        ask_until(lambda: len(admin.list_topics(timeout=10).brokers) == len(nodes), "all nodes are registered", 60)
        topic = _create(nodes[0], 3, len(nodes))
        sent = _produce(nodes[1], topic)
        assert set(_consume(nodes[2], topic)) == sent
