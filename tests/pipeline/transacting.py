"""The sink with transactions without Spark, for its own tests and those against Apache Kafka."""

import asyncio
import uuid
from pathlib import Path

from barnabas_client import Consumer, TopicPartition
from barnabas_pipeline.sink.decision import TaskOutcome
from barnabas_pipeline.sink.options import WriteOptions
from barnabas_pipeline.sink.transactional import TaskIdentity, TransactionalWriter
from tests.pipeline.staging import PARTITIONS, SCHEMA, rows
from tests.pipeline.support import run


class Query:
    """A query with a checkpoint location, whose tasks are called one after the other.

    Args:
        checkpoint: the location.
        given: options of the sink.
        topic: to write to.
    """

    def __init__(self, checkpoint: Path | str, given: dict[str, str], topic: str, name: str = "") -> None:
        options = {
            **given,
            "topic": topic,
            "exactlyOnce": "transactional",
            "checkpointLocation": str(checkpoint),
        }
        self.name = name or uuid.uuid4().hex
        self.writer = TransactionalWriter(WriteOptions.of(options, SCHEMA, streaming=True), str(checkpoint))

    def write(self, batch: int, task: int, values: list[bytes]) -> TaskOutcome:
        """Run a task."""
        return self.writer.write_as(TaskIdentity(self.name, batch, task), iter([rows(values)]))

    def tasks(self, batch: int, values: list[bytes], count: int = 2) -> list[TaskOutcome]:
        """Run all tasks of a micro-batch, each with a part of the values."""
        return [self.write(batch, task, values[task::count]) for task in range(count)]


def committed_values(servers: str, topic: str) -> list[bytes]:
    """The values that a ``read_committed`` consumer sees, sorted."""

    async def work() -> list[bytes]:
        tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        async with Consumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign(tps)
            ends = await consumer.end_offsets(tps)
            found: list[bytes] = []
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    found += [record.value for record in records if record.value is not None]
            return sorted(found)

    return run(work())


def is_open(servers: str, topic: str) -> bool:
    """Whether a transaction is open in the topic."""

    async def work() -> bool:
        tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        async with (
            Consumer(bootstrap_servers=servers) as all_records,
            Consumer(bootstrap_servers=servers, isolation_level="read_committed") as committed,
        ):
            ends, stable = await asyncio.gather(all_records.end_offsets(tps), committed.end_offsets(tps))
            return ends != stable

    return run(work())
