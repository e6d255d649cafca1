"""A topic with records, consumers whose every commit is checked, and what their handlers have done."""

import asyncio
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from barnabas_client import Admin, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition


class Watched(Consumer):
    """Checks each commit: all records below it must have been handled, or a crash would skip some."""

    def __init__(self, *topics: str, done: Mapping[TopicPartition, set[int]], **settings: Any) -> None:
        defaults = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
        super().__init__(*topics, **{**defaults, **settings})
        self.done = done

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        assert offsets is not None
        for partition, offset in offsets.items():
            assert isinstance(offset, int)
            assert set(range(offset)) <= self.done[partition]
        await super().commit(offsets)


class World:
    """A topic with records, a group, and what was handled."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.servers = bootstrap_servers
        self.topic = f"t-{uuid.uuid4().hex}"
        self.group = f"g-{uuid.uuid4().hex}"
        self.partitions: list[TopicPartition] = []
        self.done: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        self.times: Counter[tuple[TopicPartition, int]] = Counter()
        self.total = 0

    async def fill(self, partitions: int, each: int, keys: int = 3) -> None:
        async with Admin(bootstrap_servers=self.servers) as admin:
            await admin.create_topics([NewTopic(self.topic, num_partitions=partitions, replication_factor=1)])
        self.partitions = [TopicPartition(self.topic, number) for number in range(partitions)]
        async with Producer(bootstrap_servers=self.servers) as producer:
            for number in range(each):
                for partition in range(partitions):
                    await producer.send(
                        self.topic,
                        b"%d" % number,
                        key=b"%d" % (number % keys),
                        partition=partition,
                        headers=[("h", b"1")],
                    )
        self.total += partitions * each

    def consumer(self, **settings: Any) -> Watched:
        settings = {"group_id": self.group, **settings}
        return Watched(self.topic, bootstrap_servers=self.servers, done=self.done, **settings)

    def finish(self, record: ConsumerRecord) -> None:
        self.done[record.topic_partition].add(record.offset)
        self.times[record.topic_partition, record.offset] += 1

    @property
    def handled(self) -> int:
        return sum(len(offsets) for offsets in self.done.values())

    def until(self, count: int | None = None) -> Callable[[ConsumerRecord, Consumer], None]:
        """Note a record as handled; wake the consumer when `count`, or all, are."""

        def finish(record: ConsumerRecord, consumer: Consumer) -> None:
            self.finish(record)
            if self.handled >= (self.total if count is None else count):
                consumer.wakeup()

        return finish

    async def committed(self) -> int:
        async with Consumer(bootstrap_servers=self.servers, group_id=self.group) as consumer:
            found = await consumer.committed_offsets(*self.partitions)
        return sum(0 if one is None else one.offset for one in found.values())


async def reach(condition: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that within 20 s")
