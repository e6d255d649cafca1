"""Keep the offsets of a group in the program's own store: the rebalance listener restores and saves them.

python -m examples.offset_store_group --topic foo --store /tmp/offsets.sqlite

The group assigns the partitions, and the store has their positions. When a partition is assigned, the consumer seeks to
the position in the store before it fetches. When a partition is revoked, it saves its position before another consumer
reads it. In between it saves positions after every hundred records. To rewind the group, change the store.
"""

import sqlite3
from collections.abc import Collection

from barnabas import Consumer, ConsumerRebalanceListener, TopicPartition, run
from examples.arguments import parser

SAVE_INTERVAL = 100


class OffsetStore:
    """The next offset of each partition; consumers in several processes use the same file."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, timeout=30)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS offsets (topic TEXT, partition INTEGER, next INTEGER,"
            " PRIMARY KEY (topic, partition))"
        )

    def get(self, partition: TopicPartition) -> int:
        """Return the offset at which to continue: 0 at first."""
        question = "SELECT next FROM offsets WHERE topic = ? AND partition = ?"
        found = self._database.execute(question, partition).fetchone()
        return 0 if found is None else int(found[0])

    def put(self, offsets: dict[TopicPartition, int]) -> None:
        """Save offsets."""
        with self._database:
            rows = [(*partition, offset) for partition, offset in offsets.items()]
            self._database.executemany("INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)", rows)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


class StoreListener(ConsumerRebalanceListener):
    """Restores positions from the store, and saves them."""

    def __init__(self, consumer: Consumer, store: OffsetStore) -> None:
        self.consumer = consumer
        self.store = store
        self.consumed: dict[TopicPartition, int] = {}

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        for partition in assigned:
            self.consumer.seek(partition, self.store.get(partition))
            print(f"{partition} continues at {self.store.get(partition)}", flush=True)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.save()
        print("saved", ", ".join(f"{one}: {self.store.get(one)}" for one in revoked), flush=True)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        for partition in lost:  # other consumers may have read them already
            self.consumed.pop(partition, None)

    def save(self) -> None:
        """Save the positions of the consumed records."""
        self.store.put(self.consumed)
        self.consumed.clear()


async def main(bootstrap_servers: str, topic: str, group: str, count: int | None, store: str) -> None:
    """Print `count` records."""
    offsets = OffsetStore(store)
    seen = 0
    consumer = Consumer(bootstrap_servers=bootstrap_servers, group_id=group, enable_auto_commit=False)
    listener = StoreListener(consumer, offsets)
    consumer.subscribe([topic], listener=listener)
    async with consumer:
        async for record in consumer:
            print(f"{record.topic_partition} offset {record.offset}: {record.value!r}", flush=True)
            listener.consumed[record.topic_partition] = record.offset + 1
            seen += 1
            if seen % SAVE_INTERVAL == 0:
                listener.save()
            if seen == count:
                break
    offsets.close()


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--store", default="offsets.sqlite")
    run(main(**vars(arguments.parse_args())))
