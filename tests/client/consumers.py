"""Consumers with short timeouts for tests against a broker."""

import asyncio
from typing import Any

from barnabas_client import Consumer, TopicPartition
from tests.world.broker import ScriptedBroker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def consumer(broker: ScriptedBroker, *topics: str, **settings: Any) -> Consumer[Any, Any]:
    """A consumer without a group, unless `settings` name one."""
    given: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 20,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 5,
        "request_timeout_ms": 5_000,
        **settings,
    }
    return Consumer(*topics, bootstrap_servers=broker.address, **given)


def member(broker: ScriptedBroker, *topics: str, **settings: Any) -> Consumer[Any, Any]:
    """A member of group "g"."""
    given = {"group_id": "g", "heartbeat_interval_ms": 5, "session_timeout_ms": 6_000, **settings}
    return consumer(broker, *topics, **given)


async def values(reader: Consumer, count: int) -> list[Any]:
    """The values of the next records, which come within half a minute."""
    async with asyncio.timeout(30):
        return [(await reader.getone()).value for _ in range(count)]


async def stored(broker: ScriptedBroker, tp: TopicPartition = T0) -> tuple[int, str] | None:
    """The offset and the metadata that group "g" has committed."""
    async with consumer(broker, group_id="g") as reader:
        reader.assign([tp])
        found = (await reader.committed_offsets(tp))[tp]
        return None if found is None else (found.offset, found.metadata)


async def until_stored(broker: ScriptedBroker, offset: int) -> None:
    """Wait until group "g" has committed an offset."""
    async with asyncio.timeout(60):
        while await stored(broker) != (offset, ""):
            pass
