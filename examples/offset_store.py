"""Keep offsets in the program's own store, here a JSON file, without a group.

python -m examples.offset_store --topic foo --partitions 0 1 --store /tmp/offsets.json

Like `examples.assigned_partitions`, but positions are read from the file and written to it. A program that keeps
offsets with its results can write both together: see `examples.exactly_once`.
"""

import json
import os
from pathlib import Path

from barnabas import Consumer, TopicPartition, run
from examples.arguments import parser


class OffsetStore:
    """The next offset of each partition, in a file that is replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, partition: TopicPartition) -> int:
        """Return the offset at which to continue: 0 at first."""
        return self.offsets.get(str(partition), 0)

    def put(self, offsets: dict[TopicPartition, int]) -> None:
        """Save offsets; after a crash the file has either all of them or none."""
        self.offsets |= {str(partition): offset for partition, offset in offsets.items()}
        fresh = self.path.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump(self.offsets, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)


async def main(bootstrap_servers: str, topic: str, partitions: list[int], store: str) -> None:
    """Read up to the current end."""
    saved = OffsetStore(Path(store))
    chosen = [TopicPartition(topic, number) for number in partitions]
    consumer = Consumer(bootstrap_servers=bootstrap_servers)
    consumer.assign(chosen)
    async with consumer:
        for partition in chosen:
            consumer.seek(partition, saved.get(partition))
        ends = await consumer.end_offsets(chosen)
        while any(saved.get(one) < ends[one] for one in chosen):
            taken = await consumer.getmany(timeout_ms=100)
            for partition, records in taken.items():
                for record in records:
                    print(f"{partition} offset {record.offset}: {record.value!r}", flush=True)
            if taken:
                saved.put({partition: records[-1].offset + 1 for partition, records in taken.items()})
    print("read up to", ", ".join(f"{one}: {saved.get(one)}" for one in chosen))


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--partitions", type=int, nargs="+", default=[0, 1])
    arguments.add_argument("--store", default="offsets.json")
    given = vars(arguments.parse_args())
    del given["count"], given["group"]  # the program exits by itself, and has no group
    run(main(**given))
