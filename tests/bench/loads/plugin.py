"""Time until a test gets its first record with the pytest plugin's fixtures; prints seconds.

python -m tests.bench.loads.plugin CLIENT

The test is written into a new folder and run by a pytest that loads only the plugin of this project. It sends a record
with the client and reads it as a new group. `start` counts from the start of pytest's process, `ready` from the moment
when the fixtures are set up.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

#: Limit of the whole run in seconds.
LIMIT: Final = 60.0
#: The file with the two times of the test.
TIMES: Final = "times"

_HEAD: Final = f"""
import time
from pathlib import Path


def test_first_record(kafka_bootstrap_servers, kafka_topic):
    ready = time.monotonic()
    there = first(kafka_bootstrap_servers, kafka_topic)
    Path({TIMES!r}).write_text(f"{{ready}} {{there}}")
"""
_ASYNC: Final = """
import asyncio

from {module} import {consumer}, {producer}


def first(servers, topic):
    return asyncio.run(talk(servers, topic))


async def talk(servers, topic):
    producer = {producer}(bootstrap_servers=servers)
    await producer.start()
    await producer.send_and_wait(topic, b"hello")
    consumer = {consumer}(topic, bootstrap_servers=servers, group_id="first", auto_offset_reset="earliest")
    await consumer.start()
    record = await consumer.getone()
    there = time.monotonic()
    assert record.value == b"hello"
    await consumer.stop()
    await producer.stop()
    return there
"""
_KAFKA_PYTHON: Final = """
from kafka import KafkaConsumer, KafkaProducer


def first(servers, topic):
    producer = KafkaProducer(bootstrap_servers=servers)
    producer.send(topic, b"hello").get(timeout=30)
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, group_id="first", auto_offset_reset="earliest")
    record = next(consumer)
    there = time.monotonic()
    assert record.value == b"hello"
    consumer.close()
    producer.close()
    return there
"""
_CONFLUENT: Final = """
from confluent_kafka import Consumer, Producer


def first(servers, topic):
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"hello")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "first", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    there = time.monotonic()
    assert message.value() == b"hello"
    consumer.close()
    return there
"""
CLIENTS: Final = {
    "Barnabas": _ASYNC.format(module="barnabas_client", consumer="Consumer", producer="Producer"),
    "aiokafka": _ASYNC.format(module="aiokafka", consumer="AIOKafkaConsumer", producer="AIOKafkaProducer"),
    "kafka-python": _KAFKA_PYTHON,
    "confluent-kafka": _CONFLUENT,
}


def main(client: str) -> None:
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
        Path(folder, "test_first.py").write_text(_HEAD + CLIENTS[client])
        command = [sys.executable, "-m", "pytest", "-q", "--rootdir", folder, "test_first.py"]
        started = time.monotonic()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        ready, there = map(float, Path(folder, TIMES).read_text().split())
    print(json.dumps({"start": there - started, "ready": there - ready}))


if __name__ == "__main__":
    main(*sys.argv[1:])
