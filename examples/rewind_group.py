"""Rewind a whole group, to process records again with a repaired program.

python -m examples.rewind_group --topic foo --rewind 100

Restart the consumers of the group with --rewind. When a partition is assigned, the rebalance listener seeks back from
its committed offset before anything is fetched. (For a group that is not running, use `barnabas groups reset-offsets`.)
"""

from collections.abc import Collection

from barnabas import Consumer, ConsumerRebalanceListener, TopicPartition, run
from examples.arguments import parser


class Rewind(ConsumerRebalanceListener):
    """Seeks back by `by` records from the committed offset, when a partition is first assigned."""

    def __init__(self, consumer: Consumer, by: int) -> None:
        self.consumer = consumer
        self.by = by
        self.done: set[TopicPartition] = set()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        beginnings = await self.consumer.beginning_offsets(assigned)
        for partition in set(assigned) - self.done:
            committed = await self.consumer.committed(partition)
            if committed is not None and self.by:
                offset = max(beginnings[partition], committed - self.by)
                self.consumer.seek(partition, offset)
                print(f"{partition} is rewound from {committed} to {offset}", flush=True)
            self.done.add(partition)

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self.consumer.commit()

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Commit nothing: other consumers have these partitions already."""


async def main(bootstrap_servers: str, topic: str, group: str, count: int | None, rewind: int) -> None:
    """Print `count` records."""
    seen = 0
    consumer = Consumer(
        bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.subscribe([topic], listener=Rewind(consumer, rewind))
    async with consumer:
        while count is None or seen < count:
            left = None if count is None else count - seen
            for partition, records in (await consumer.getmany(timeout_ms=100, max_records=left)).items():
                for record in records:
                    print(f"{partition} offset {record.offset}: {record.value!r}", flush=True)
                seen += len(records)
            await consumer.commit()


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--rewind", type=int, default=0, metavar="RECORDS")
    run(main(**vars(arguments.parse_args())))
