"""One consumer of the flights demo, a process of its own so that it can be killed without goodbye.

It tells its parent what happens as one JSON object a line on stdout.
"""

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from barnabas_client import Consumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from examples.flights.ledger import Ledger

TOPIC = "flights"
GROUP = "flight-counters"


def tell(event: str, **data: object) -> None:
    """Tell the parent."""
    print(json.dumps({"event": event, **data}), flush=True)


class Listener(ConsumerRebalanceListener):
    """Reads on where the ledger is, which may be further than the group knows."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.consumer: Consumer | None = None

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        assert self.consumer is not None
        for partition in assigned:
            self.consumer.seek(partition, self.ledger.next_offset(partition.partition))
        tell("assigned", partitions=sorted(p.partition for p in assigned))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        tell("revoked", partitions=sorted(p.partition for p in revoked))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        tell("lost", partitions=sorted(p.partition for p in lost))


def count(ledger: Ledger, partition: TopicPartition, records: list[ConsumerRecord]) -> int:
    """Count flights and the offsets they cover in one transaction; how many were counted."""
    carriers = Counter(json.loads(record.value or b"{}")["carrier"] for record in records)
    counted = ledger.add(partition.partition, records[0].offset, records[-1].offset + 1, carriers)
    return len(records) if counted else 0


async def consume(bootstrap_servers: str, name: str, ledger: Ledger) -> None:
    """Count until told to stop."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    listener = Listener(ledger)
    consumer = Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id=GROUP,
        client_id=name,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
    )
    listener.consumer = consumer
    consumer.subscribe([TOPIC], listener=listener)
    async with consumer:
        while not stopping.is_set():
            batches = await consumer.getmany(timeout_ms=200, max_records=2000)
            done = {p: records[-1].offset + 1 for p, records in batches.items()}
            counted = sum(count(ledger, p, records) for p, records in batches.items())
            if done:
                await consumer.commit(done)
                tell("counted", flights=counted)


if __name__ == "__main__":
    servers, member, file = sys.argv[1:]
    asyncio.run(consume(servers, member, Ledger(Path(file))))
