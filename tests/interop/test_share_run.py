"""Our `ShareConsumer.run` and `barnabas shares stuck`, with Barnabas and with Apache Kafka."""

import asyncio
import json
import sys
from collections import Counter

import pytest

from barnabas import (
    Admin,
    AlterConfigOp,
    ConfigResource,
    Consumer,
    NewTopic,
    Producer,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)
from tests.interop.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

#: Seconds to wait for what a run has to do.
PATIENCE = 60.0
RECORDS = 200


async def prepared(servers: str, name: str, values: list[bytes]) -> None:
    """A topic with records, and a group of the same name that begins with the first one."""
    async with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        await admin.create_topics([NewTopic(name, num_partitions=1), NewTopic(f"{name}-dead", num_partitions=1)])
        earliest = AlterConfigOp("share.auto.offset.reset", "earliest")
        await admin.incremental_alter_configs({ConfigResource.group(name): [earliest]})
        for value in values:
            await producer.send_and_wait(name, value, key=b"key " + value)


async def stuck(servers: str, group: str) -> list[tuple[int, int]]:
    """Offsets and deliveries of the records that `barnabas shares stuck` prints."""
    command = (sys.executable, "-m", "barnabas_client.cli", "shares", "stuck", group, "--json", "-b", servers)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(PATIENCE):
        printed, _ = await process.communicate()
    return [(row["offset"], row["deliveries"]) for row in json.loads(printed)]


async def test_records_are_handled_retried_and_become_dead_letters(server: Server, fresh: str) -> None:
    servers = server.bootstrap_servers
    await prepared(servers, fresh, [b"%d" % number for number in range(RECORDS)])
    seen: Counter[bytes | None] = Counter()
    done = asyncio.Event()
    consumer = ShareConsumer(fresh, bootstrap_servers=servers, group_id=fresh)

    async def handle(record: ShareRecord) -> None:
        seen[record.value] += 1
        if len(seen) == RECORDS:
            done.set()
        if record.value == b"7" or (record.value == b"8" and seen[b"8"] == 1):
            raise RuntimeError("it does not fit")

    async with consumer, Consumer(bootstrap_servers=servers) as dead:
        running = asyncio.create_task(
            consumer.run(handle, concurrency=20, retries=2, retry_backoff_ms=10, dead_letter_topic=f"{fresh}-dead")
        )
        dead.assign([TopicPartition(f"{fresh}-dead", 0)])
        await dead.seek_to_beginning()
        async with asyncio.timeout(PATIENCE):
            letter = await dead.getone()
            await done.wait()
        consumer.wakeup()
        await running
    assert (letter.key, letter.value) == (b"key 7", b"7")
    assert {value: times for value, times in seen.items() if times > 1} == {b"7": 3, b"8": 2}
    assert await stuck(servers, fresh) == []


async def test_a_record_that_comes_back_is_stuck(server: Server, fresh: str) -> None:
    servers = server.bootstrap_servers
    await prepared(servers, fresh, [b"good", b"bad"])
    consumer = ShareConsumer(fresh, bootstrap_servers=servers, group_id=fresh)

    async def handle(record: ShareRecord) -> None:
        if record.value == b"bad":
            await record.release()
            if record.delivery_count == 3:
                consumer.wakeup()

    async with asyncio.timeout(PATIENCE), consumer:
        await consumer.run(handle)
    ((offset, deliveries),) = await stuck(servers, fresh)
    assert offset == 1
    assert deliveries >= 3
