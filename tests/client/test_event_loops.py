"""Admin, producer and consumer on asyncio's own event loop and on uvloop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from barnabas_client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.client.consumers import stored
from tests.world.broker import running

Run = Callable[[Coroutine[Any, Any, None]], None]


async def scenario() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    async with running() as broker:
        async with Admin(bootstrap_servers=broker.address) as admin:
            await admin.create_topics([NewTopic("t", num_partitions=2)])
        async with Producer(bootstrap_servers=broker.address, compression_type="lz4") as producer:
            for at in range(500):
                await producer.send("t", b"x" * 1_000, key=b"%d" % at)
        settings: dict[str, Any] = {"bootstrap_servers": broker.address, "fetch_max_wait_ms": 20}
        async with Consumer("t", group_id="g", auto_offset_reset="earliest", **settings) as consumer:
            count = 0
            async for _ in consumer:
                count += 1
                if count == 500:
                    break
        committed = [await stored(broker, TopicPartition("t", number)) for number in range(2)]
        assert sum(one[0] for one in committed if one is not None) == 500
    assert not complaints


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_both_loops(run: Run) -> None:
    run(scenario())
