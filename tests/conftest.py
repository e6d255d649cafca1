"""What all tests share: no property depends on the speed of a machine; one Apache Kafka for those marked `kafka`."""

import os
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from hypothesis import HealthCheck, settings

from tests.interop.kafka_server import ApacheKafka, KafkaUnavailable, has_tools, resolve
from tests.interop.waiting import ask_until

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

#: Nothing is deleted behind the back of tests that write records of 1970: the first look comes after 30 s otherwise.
NO_RETENTION: Final = {"log.initial.task.delay.ms": 86_400_000}

#: Seconds. Kafka makes the topic of its groups, with 50 partitions, when the first group is asked for.
FIRST_GROUP: Final = 60


@pytest.fixture(scope="session")
def needs_jars() -> None:
    """Java is here, and so are Kafka's jars: its servers and programs can run."""
    try:
        resolve()
    except KafkaUnavailable as error:
        # A skip that nobody reads would hide in CI that nothing was compared with the real thing any more.
        if os.environ.get("CI") == "true" and has_tools():
            pytest.fail(f"Apache Kafka could not run: {error.reason}", pytrace=False)
        pytest.skip(f"no Apache Kafka: {error.reason}")


@pytest.fixture(scope="session")
def apache_kafka(needs_jars: None) -> Iterator[ApacheKafka]:
    """One Apache Kafka for all tests of a session; its groups have their coordinator."""
    with ApacheKafka(NO_RETENTION) as kafka:
        ask_until(lambda: _has_coordinators(kafka), "a coordinator of groups", FIRST_GROUP)
        yield kafka


def _has_coordinators(kafka: ApacheKafka) -> bool:
    member = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "first"})
    try:
        member.committed([TopicPartition("none", 0)], FIRST_GROUP)
    except KafkaException:
        return False
    finally:
        member.close()
    return True
