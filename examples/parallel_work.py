"""Process many records at a time: slow work in the order of keys, with retries and a dead-letter topic.

python -m examples.parallel_work --topic foo --concurrency 20

Each record takes a tenth of a second, like a call to another service. Twenty are processed at a time, those of one key
in order. A record that fails is retried twice, then it goes to the topic foo.dead. The offset up to which all records
are finished is committed; Ctrl-C finishes the running ones.
"""

import asyncio
import signal

from barnabas_client import Consumer, ConsumerRecord
from examples.arguments import parser


async def main(bootstrap_servers: str, topic: str, group: str, count: int | None, concurrency: int) -> None:
    """Work on `count` records."""
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
            raise ValueError("there is nothing to do")
        done += 1
        print(f"{record.topic_partition} offset {record.offset}: {record.value!r}", flush=True)
        if done == count:
            consumer.wakeup()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, consumer.wakeup)
    async with consumer:
        await consumer.run(
            work,
            concurrency=concurrency,
            order="key",
            retries=2,
            dead_letter_topic=f"{topic}.dead",
        )
    print(f"{done} records are done")


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--concurrency", type=int, default=20)
    asyncio.run(main(**vars(arguments.parse_args())))
