"""Store the offsets of a group outside of Kafka: the rebalance listener restores and saves them.

python -m examples.offset_store_group --topic foo --store /tmp/offsets.sqlite

The group assigns the partitions; the store has their positions. A consumer seeks to the stored position of an assigned
partition before the first fetch, and saves its position when the partition is revoked, before the next consumer reads
it. In between it saves the positions after every hundred records. To rewind the group, change the store.
"""

import asyncio
import sqlite3
from collections.abc import Collection

from barnabas_client import Consumer, ConsumerRebalanceListener, TopicPartition
from examples.arguments import parser

SAVE_INTERVAL = 100


class OffsetStore:
    """The next offset to read of each partition; consumers in several processes share the file."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, timeout=30)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS offsets (topic TEXT, partition INTEGER, next INTEGER,"
            " PRIMARY KEY (topic, partition))"
        )

    def get(self, partition: TopicPartition) -> int:
        """The next offset to read, 0 at first."""
        question = "SELECT next FROM offsets WHERE topic = ? AND partition = ?"
        found = self._database.execute(question, partition).fetchone()
        return 0 if found is None else int(found[0])

    def put(self, offsets: dict[TopicPartition, int]) -> None:
        """Store these offsets."""
        with self._database:
            rows = [(*partition, offset) for partition, offset in offsets.items()]
            self._database.executemany("INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)", rows)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


class Keeper(ConsumerRebalanceListener):
    """Restores positions from the store, and saves positions of consumed records."""

    def __init__(self, consumer: Consumer, store: OffsetStore) -> None:
        self.consumer = consumer
        self.store = store
        self.consumed: dict[TopicPartition, int] = {}

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        for partition in assigned:
            self.consumer.seek(partition, self.store.get(partition))
            print(f"{partition} goes on at {self.store.get(partition)}", flush=True)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.save()
        print("saved", ", ".join(f"{one}: {self.store.get(one)}" for one in revoked), flush=True)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        for partition in lost:  # other consumers may have continued already
            self.consumed.pop(partition, None)

    def save(self) -> None:
        """Save the positions of consumed records."""
        self.store.put(self.consumed)
        self.consumed.clear()


async def main(bootstrap_servers: str, topic: str, group: str, count: int | None, store: str) -> None:
    """Print `count` records."""
    offsets = OffsetStore(store)
    seen = unsaved = 0
    consumer = Consumer(bootstrap_servers=bootstrap_servers, group_id=group, enable_auto_commit=False)
    keeper = Keeper(consumer, offsets)
    consumer.subscribe([topic], listener=keeper)
    async with consumer:
        while count is None or seen < count:
            for record in await consumer.poll(timeout_ms=100):
                print(f"{record.topic_partition} offset {record.offset}: {record.value!r}", flush=True)
                keeper.consumed[record.topic_partition] = record.offset + 1
                seen += 1
                unsaved += 1
            if unsaved >= SAVE_INTERVAL:
                keeper.save()
                unsaved = 0
    offsets.close()


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--store", default="offsets.sqlite")
    asyncio.run(main(**vars(arguments.parse_args())))
