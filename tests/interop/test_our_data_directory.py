"""Apache Kafka starts on logs that Barnabas has written, with the files that Kafka does not know, and goes on."""

import re
import shutil

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas_broker.storage import Inline, LogDirectory, names
from barnabas_broker.storage import TopicPartition as Partition
from barnabas_broker.storage.checksummed_file import copy_path
from tests.broker.storage.support import batch, broker_config, topic_config
from tests.interop.kafka_server import ApacheKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.usefixtures("needs_jars")]

KAFKAS, OURS = 20, 120
CONFIG = {"segment.bytes": "1048576", "index.interval.bytes": "1000"}


def test_kafka_reads_and_continues_what_barnabas_has_written() -> None:
    with ApacheKafka() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for future in admin.create_topics([NewTopic("events", 2, 1, config=CONFIG)]).values():
            future.result()
        expected = {0: produced(kafka, 0), 1: produced(kafka, 1)}
        kafka.stop()

        # Partition 0 is continued, partition 1 is written anew.
        now = 1_700_000_000_000
        directory = LogDirectory.open(kafka.log_dir, broker_config(), node_id=1, now_ms=now, background=Inline())
        topic_id = directory.logs[Partition("events", 1)].topic_id
        epoch = directory.logs[Partition("events", 1)].leader_epochs.latest
        directory.close(now)
        shutil.rmtree(kafka.log_dir / "events-1")
        expected[1] = []
        directory = LogDirectory.open(kafka.log_dir, broker_config(), node_id=1, now_ms=now, background=Inline())
        for index in (0, 1):
            log = directory.create(Partition("events", index), topic_id, topic_config(CONFIG), now)
            for n in range(OURS):
                value = b"barnabas-%d-%d" % (index, n) * 1500
                log.append_as_leader(
                    batch(value, timestamp=now + n, producer=(4711, 0, n)), leader_epoch=epoch, now_ms=now
                )
                expected[index].append(value)
            log.set_high_watermark(log.log_end_offset)
            assert len(log.segments) > 1
        directory.checkpoint()
        directory.close(now)
        for index in (0, 1):
            assert list((kafka.log_dir / f"events-{index}").glob(f"*{names.CHECKSUMS}"))
        # Kafka's own one of partition 0 has not changed.
        assert copy_path(kafka.log_dir / "events-1" / names.EPOCH_CHECKPOINT).exists()
        assert copy_path(kafka.log_dir / names.RECOVERY_POINTS).exists()

        kafka.start()
        for index in (0, 1):
            expected[index] += produced(kafka, index)
            assert consumed(kafka, index, len(expected[index])) == expected[index]
        kafka.stop()
        logged = kafka.server_log.read_text().splitlines()
        assert not [line for line in logged if re.search(r" (ERROR|WARN) .*(LogManager|LogLoader|storage|log\.)", line)]


def produced(kafka: ApacheKafka, partition: int) -> list[bytes]:
    """Values that a client has just produced."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    values = [b"kafka-%d-%d" % (partition, n) for n in range(KAFKAS)]
    for value in values:
        producer.produce("events", value, partition=partition)
    assert producer.flush(60) == 0
    return values


def consumed(kafka: ApacheKafka, partition: int, count: int) -> list[bytes]:
    """The first values of a partition."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition("events", partition, 0)])
    try:
        messages = consumer.consume(count, timeout=60)
    finally:
        consumer.close()
    assert not [message.error() for message in messages if message.error()]
    return [message.value() or b"" for message in messages]
