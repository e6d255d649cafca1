"""Exactly once: commit results and offsets in one SQLite transaction.

python -m examples.exactly_once --topic foo --database /tmp/totals.sqlite

Values are numbers, which the program sums by key. Each poll is one transaction with the sums and the next offset of
each partition. If the program is killed, at any moment, the database has both from before or both from after the last
transaction. The next run starts, in its rebalance listener, at the offsets of the database instead of the group's. A
consumer that was removed from the group but still runs finds other offsets in the database, and rolls back.

With --member the consumer is a static member: if it restarts within its session timeout, it gets its partitions back
without a rebalance.
"""

import sqlite3
from collections import Counter
from collections.abc import Collection, Sequence

from barnabas import Consumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition, run
from examples.arguments import parser


class Totals:
    """Sums by key, and the next offset of each partition; consumers in several processes use the same file."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS totals (key BLOB PRIMARY KEY, total INTEGER, records INTEGER)"
        )
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS offsets (topic TEXT, partition INTEGER, next INTEGER,"
            " PRIMARY KEY (topic, partition))"
        )

    def next_offset(self, partition: TopicPartition) -> int:
        """Return the offset at which to continue."""
        question = "SELECT next FROM offsets WHERE topic = ? AND partition = ?"
        found = self._database.execute(question, partition).fetchone()
        return 0 if found is None else int(found[0])

    def add(self, partition: TopicPartition, expected: int, records: Sequence[ConsumerRecord]) -> bool:
        """Add the records' values if the partition is still at the offset `expected`; return whether it was."""
        totals: Counter[bytes] = Counter()
        numbers: Counter[bytes] = Counter()
        for record in records:
            totals[record.key or b""] += int(record.value or b"0")
            numbers[record.key or b""] += 1
        rows = [(key, totals[key], numbers[key]) for key in totals]
        self._database.execute("BEGIN IMMEDIATE")
        try:
            current = self.next_offset(partition) == expected
            if current:
                self._database.executemany(
                    "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
                    " SET total = total + excluded.total, records = records + excluded.records",
                    rows,
                )
                self._database.execute(
                    "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)", (*partition, records[-1].offset + 1)
                )
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT" if current else "ROLLBACK")
        return current

    def totals(self) -> dict[bytes, tuple[int, int]]:
        """Return the sum and the number of records of each key."""
        return {key: (total, records) for key, total, records in self._database.execute("SELECT * FROM totals")}

    def close(self) -> None:
        """Close the file."""
        self._database.close()


class Restore(ConsumerRebalanceListener):
    """Starts each partition at the offset in the database."""

    def __init__(self, consumer: Consumer, totals: Totals) -> None:
        self.consumer = consumer
        self.totals = totals
        self.expected: dict[TopicPartition, int] = {}

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        for partition in assigned:
            offset = self.totals.next_offset(partition)
            self.consumer.seek(partition, offset)
            self.expected[partition] = offset
            print(f"{partition} continues at {offset}", flush=True)


async def main(
    bootstrap_servers: str, topic: str, group: str, count: int | None, database: str, member: str | None = None
) -> None:
    """Sum the values of `count` records."""
    totals = Totals(database)
    seen = 0
    consumer = Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        group_instance_id=member,
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        fetch_max_wait_ms=50,
    )
    restore = Restore(consumer, totals)
    consumer.subscribe([topic], listener=restore)
    async with consumer:
        while count is None or seen < count:
            left = None if count is None else count - seen
            for partition, records in (await consumer.getmany(timeout_ms=100, max_records=left)).items():
                if totals.add(partition, restore.expected[partition], records):
                    restore.expected[partition] = records[-1].offset + 1
                    seen += len(records)
                else:
                    print(f"another consumer has read {partition} meanwhile", flush=True)
                    restore.on_partitions_assigned([partition])
    for key, (total, number) in sorted(totals.totals().items()):
        print(f"{key!r}: {total} in {number} records")
    totals.close()


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--database", default="totals.sqlite")
    arguments.add_argument("--member", help="the id of a static member, unique in the group")
    run(main(**vars(arguments.parse_args())))
