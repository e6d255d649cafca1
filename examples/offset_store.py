"""Store offsets outside of Kafka, here in a JSON file; a group is not needed.

python -m examples.offset_store --topic foo --partitions 0 1 --store /tmp/offsets.json

As `examples.assigned_partitions`, but the positions are read from the file and written to it. Offsets that are stored
beside the results can be written together with them: `examples.exactly_once`.
"""

import asyncio
import json
import os
from pathlib import Path

from barnabas_client import Consumer, TopicPartition
from examples.arguments import parser


class OffsetStore:
    """The next offset to read of each partition, in a file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, partition: TopicPartition) -> int:
        """The next offset to read, 0 at first."""
        return self.offsets.get(str(partition), 0)

    def put(self, offsets: dict[TopicPartition, int]) -> None:
        """Store these offsets; after a crash the file has all of them or none."""
        self.offsets |= {str(partition): offset for partition, offset in offsets.items()}
        fresh = self.path.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump(self.offsets, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)


async def main(bootstrap_servers: str, topic: str, partitions: list[int], store: str) -> None:
    """Read what there is now."""
    kept = OffsetStore(Path(store))
    chosen = [TopicPartition(topic, number) for number in partitions]
    consumer = Consumer(bootstrap_servers=bootstrap_servers)
    consumer.assign(chosen)
    async with consumer:
        for partition in chosen:
            consumer.seek(partition, kept.get(partition))
        ends = await consumer.end_offsets(chosen)
        while any(kept.get(one) < ends[one] for one in chosen):
            taken = await consumer.getmany(timeout_ms=100)
            for partition, records in taken.items():
                for record in records:
                    print(f"{partition} offset {record.offset}: {record.value!r}", flush=True)
            if taken:
                kept.put({partition: records[-1].offset + 1 for partition, records in taken.items()})
    print("read up to", ", ".join(f"{one}: {kept.get(one)}" for one in chosen))


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--partitions", type=int, nargs="+", default=[0, 1])
    arguments.add_argument("--store", default="offsets.json")
    given = vars(arguments.parse_args())
    del given["count"], given["group"]  # it ends by itself, and there is no group
    asyncio.run(main(**given))
