"""Records that a client sends and reads again."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiokafka

from tests.interop import process

#: An application with kafkajs.
TALK: Final = Path(__file__).with_name("kafkajs") / "talk.js"


async def by_aiokafka(settings: Mapping[str, Any], topic: str, lines: Sequence[bytes], limit: float) -> list[bytes]:
    """Send `lines` to a topic with aiokafka, and read as many as a member of a group that has the topic's name.

    Args:
        settings: of the producer and of the consumer.
        topic: the topic.
        lines: the values of the records.
        limit: seconds for all of it.

    Raises:
        TimeoutError: it took longer.
    """
    async with asyncio.timeout(limit):
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            for line in lines:
                await producer.send(topic, line)
        read: list[bytes] = []
        consumer = aiokafka.AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
        async with consumer:
            while len(read) < len(lines):
                read.append((await consumer.getone()).value)
    return read


def by_kafkajs(package: Path, servers: str, topic: str, settings: Mapping[str, Any], limit: float) -> dict[str, Any]:
    """Send a hundred records to a topic with kafkajs, and read them as a group that has the topic's name.

    Args:
        package: the folder of kafkajs.
        servers: the addresses of brokers.
        topic: the topic; it is created and deleted.
        settings: how to connect securely.
        limit: seconds for all of it.

    Returns:
        What the program has seen.
    """
    done = process.run(["node", str(TALK), str(package), servers, topic, json.dumps(settings)], limit)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert sorted(result["got"]) == sorted([f"k{n}", f"v{n}", f"{n}"] for n in range(100))
    return result
