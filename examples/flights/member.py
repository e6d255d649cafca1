"""One consumer of the flights demo, in a process of its own, so that it can be killed.

It reports events to its parent as JSON lines on stdout.
"""

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from barnabas import Consumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from examples.flights.ledger import Ledger

TOPIC = "flights"
GROUP = "flight-counters"


def report(event: str, **data: object) -> None:
    """Report an event to the parent."""
    print(json.dumps({"event": event, **data}), flush=True)


class Listener(ConsumerRebalanceListener):
    """Starts partitions at the ledger's offsets, which may be ahead of the group's."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.consumer: Consumer | None = None

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        assert self.consumer is not None
        for partition in assigned:
            self.consumer.seek(partition, self.ledger.next_offset(partition.partition))
        report("assigned", partitions=sorted(p.partition for p in assigned))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        report("revoked", partitions=sorted(p.partition for p in revoked))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        report("lost", partitions=sorted(p.partition for p in lost))


def count(ledger: Ledger, partition: TopicPartition, records: list[ConsumerRecord]) -> int:
    """Add flights and the offsets that they cover in one transaction; return how many were counted."""
    carriers = Counter(json.loads(record.value or b"{}")["carrier"] for record in records)
    counted = ledger.add(partition.partition, records[0].offset, records[-1].offset + 1, carriers)
    return len(records) if counted else 0


async def consume(bootstrap_servers: str, name: str, ledger: Ledger) -> None:
    """Count flights until SIGTERM."""
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
                report("counted", flights=counted)


if __name__ == "__main__":
    servers, member, file = sys.argv[1:]
    asyncio.run(consume(servers, member, Ledger(Path(file))))
