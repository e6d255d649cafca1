"""Assign partitions by hand: no group assigns or revokes them.

python -m examples.assigned_partitions --topic foo --partitions 0 1

For programs that keep local state for a partition, or that another program restarts after a failure. The offsets are
committed to the group. The program starts at the committed offset, reads to the current end, commits and ends.
"""

import asyncio

from barnabas_client import Consumer, TopicPartition
from examples.arguments import parser


async def main(bootstrap_servers: str, topic: str, group: str, partitions: list[int]) -> None:
    """Read up to the current end."""
    chosen = [TopicPartition(topic, number) for number in partitions]
    consumer = Consumer(bootstrap_servers=bootstrap_servers, group_id=group, enable_auto_commit=False)
    consumer.assign(chosen)
    async with consumer:
        for partition in chosen:
            committed = await consumer.committed(partition)
            if committed is None:
                await consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, committed)
        ends = await consumer.end_offsets(chosen)
        while [one for one in chosen if await consumer.position(one) < ends[one]]:
            for record in await consumer.poll(timeout_ms=100):
                print(f"{record.topic}-{record.partition} offset {record.offset}: {record.value!r}", flush=True)
        await consumer.commit()
    print("read up to", ", ".join(f"{one}: {ends[one]}" for one in chosen))


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--partitions", type=int, nargs="+", default=[0, 1])
    given = vars(arguments.parse_args())
    del given["count"]  # it ends by itself
    asyncio.run(main(**given))
