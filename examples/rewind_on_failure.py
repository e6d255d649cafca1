"""Retry a record that cannot be processed: the consumer seeks back to it.

python -m examples.rewind_on_failure --topic foo --failures 3

`process` fails now and then, like a database that is briefly unavailable. The consumer skips the rest of the failed
partition's batch and seeks back to the failed record; other partitions continue. A seek affects only this consumer: it
commits nothing and causes no rebalance. (`Consumer.run` retries for you, with pauses between attempts.)
"""

from collections.abc import Callable

from barnabas import Consumer, ConsumerRecord, TopicPartition, run
from examples.arguments import parser

COMMIT_INTERVAL = 100


def failing(failures: int) -> Callable[[ConsumerRecord], None]:
    """Return a function that fails `failures` times, at every 50th record."""
    left = failures

    def process(record: ConsumerRecord) -> None:
        nonlocal left
        if left and record.offset % 50 == 49:
            left -= 1
            raise ConnectionError(f"the database is unavailable at {record.topic_partition} offset {record.offset}")

    return process


async def main(bootstrap_servers: str, topic: str, group: str, count: int | None, failures: int) -> None:
    """Process `count` records."""
    process = failing(failures)
    processed = uncommitted = 0
    consumer = Consumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        while count is None or processed < count:
            failed: dict[TopicPartition, int] = {}
            left = None if count is None else count - processed
            for partition, records in (await consumer.getmany(timeout_ms=100, max_records=left)).items():
                for record in records:
                    try:
                        process(record)
                    except ConnectionError as error:
                        print(f"{error}: retrying", flush=True)
                        failed[partition] = record.offset
                        break
                    processed += 1
                    uncommitted += 1
            for partition, offset in failed.items():
                consumer.seek(partition, offset)
            if uncommitted >= COMMIT_INTERVAL:
                await consumer.commit()
                uncommitted = 0
        await consumer.commit()
    print(f"{processed} records are processed")


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--failures", type=int, default=3)
    run(main(**vars(arguments.parse_args())))
