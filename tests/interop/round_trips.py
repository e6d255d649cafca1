"""Records that a client sends and reads again."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import aiokafka


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
