"""The Spark profile of `docker-compose.yml`."""

import json

import pytest
from confluent_kafka import Producer

from tests.compose.stack import Stack

pytestmark = [pytest.mark.compose, pytest.mark.slow, pytest.mark.timeout(1800)]

_RECORDS = 1000


def test_pipeline_archives_a_topic_of_the_cluster(stack: Stack) -> None:
    """`docker compose --profile spark up pipeline` archives `events`; here it ends when it has reached the end."""
    _produce(stack.bootstrap_servers)
    stack.build("pipeline")
    command = stack.configuration()["services"]["pipeline"]["command"]
    output = stack.compose("run", "--rm", "--no-TTY", "pipeline", *command, "--once", "--json", timeout=600)
    assert json.loads(output)["topics"]["events"]["records"] == _RECORDS


def _produce(bootstrap_servers: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    for number in range(_RECORDS):
        producer.produce("events", json.dumps({"number": number}).encode())
    assert producer.flush(60) == 0
