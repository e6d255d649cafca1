"""Process many records concurrently, in the order of each key, with retries and a dead letter topic.

python -m examples.parallel_work --topic foo --concurrency 20

Each record takes a tenth of a second, like a call to another service. Twenty are processed concurrently, those of one
key one after the other. A record that fails is retried twice, then sent to the topic foo.dead. An offset is committed
once all records before it are finished. Ctrl-C waits for the records in progress.
"""

import asyncio

from barnabas import Consumer, ConsumerRecord, run
from examples.arguments import parser


async def main(bootstrap_servers: str, topic: str, group: str, count: int | None, concurrency: int) -> None:
    """Process `count` records."""
    done = 0
    consumer = Consumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )

    async def work(record: ConsumerRecord) -> None:
        nonlocal done
        await asyncio.sleep(0.1)
        if not record.value:
            raise ValueError("the record has no value")
        done += 1
        print(f"{record.topic_partition} offset {record.offset}: {record.value!r}", flush=True)
        if done == count:
            consumer.wakeup()

    try:
        async with consumer:
            await consumer.run(
                work,
                concurrency=concurrency,
                order="key",
                retries=2,
                dead_letter_topic=f"{topic}.dead",
            )
    finally:
        print(f"{done} records are processed")


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--concurrency", type=int, default=20)
    run(main(**vars(arguments.parse_args())))
