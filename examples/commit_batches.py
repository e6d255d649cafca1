"""Commit offsets by hand, after the records are in a database: at least once.

python -m examples.commit_batches --topic foo --database /tmp/records.sqlite

The program collects 200 records, inserts them, and commits. A crash before the insert loses nothing, because nothing
was committed. A crash between insert and commit inserts the last batch again. (`examples.exactly_once` avoids that.)
"""

import sqlite3

from barnabas import Consumer, ConsumerRecord, run
from examples.arguments import parser


def insert(database: sqlite3.Connection, records: list[ConsumerRecord]) -> None:
    """Insert a batch in one transaction."""
    with database:
        rows = [(record.topic, record.partition, record.offset, record.value) for record in records]
        database.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)


async def main(
    bootstrap_servers: str, topic: str, group: str, count: int | None, database: str, batch: int = 200
) -> None:
    """Insert `count` records, `batch` at a time."""
    store = sqlite3.connect(database)
    store.execute("CREATE TABLE IF NOT EXISTS records (topic TEXT, partition INTEGER, offset INTEGER, value BLOB)")
    buffer: list[ConsumerRecord] = []
    seen = 0
    consumer = Consumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        async for record in consumer:
            buffer.append(record)
            seen += 1
            if len(buffer) == batch:
                insert(store, buffer)
                await consumer.commit()  # all records so far are inserted
                print(f"{len(buffer)} records are inserted and committed", flush=True)
                buffer.clear()
            if seen == count:
                break
    store.close()


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--database", default="records.sqlite")
    arguments.add_argument("--batch", type=int, default=200)
    run(main(**vars(arguments.parse_args())))
