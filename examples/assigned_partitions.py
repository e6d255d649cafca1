"""Assign partitions by hand, without a group that distributes or revokes them.

python -m examples.assigned_partitions --topic foo --partitions 0 1

For programs that keep state for a partition, or that a supervisor restarts when they fail. The group id is used only to
commit offsets. The program starts at the committed offsets, reads up to the current end, commits and exits.
"""

from barnabas import Consumer, TopicPartition, run
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
            for partition, records in (await consumer.getmany(timeout_ms=100)).items():
                for record in records:
                    print(f"{partition} offset {record.offset}: {record.value!r}", flush=True)
        await consumer.commit()
    print("read up to", ", ".join(f"{one}: {ends[one]}" for one in chosen))


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--partitions", type=int, nargs="+", default=[0, 1])
    given = vars(arguments.parse_args())
    del given["count"]  # the program exits by itself
    run(main(**given))
