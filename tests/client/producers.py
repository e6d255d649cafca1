"""Producers with short timeouts for tests, and the records they wrote."""

from typing import Any

from barnabas_client import Producer, TopicPartition
from barnabas_protocol.records import read_header
from tests.world.broker import ScriptedBroker

T0 = TopicPartition("t", 0)


def producer(broker: ScriptedBroker, **settings: Any) -> Producer[Any, Any]:
    given: dict[str, Any] = {
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 5,
        "request_timeout_ms": 5_000,
        "delivery_timeout_ms": 20_000,
        "max_block_ms": 5_000,
        **settings,
    }
    return Producer(bootstrap_servers=broker.address, **given)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % at for at in range(count)]


def batches(broker: ScriptedBroker, topic: str = "t", partition: int = 0) -> list[tuple[int, int]]:
    """Sequence number and size of each written batch."""
    written = [read_header(batch) for batch in broker.batches(topic, partition)]
    return [(header.base_sequence, header.count) for header in written]
