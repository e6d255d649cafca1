"""Sends the records of a task."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby

from barnabas_client.producer.producer import Producer
from barnabas_client.producer.receipts import BatchReceipt
from barnabas_pipeline.sink.records import SinkRecord


async def send(producer: Producer, records: Sequence[SinkRecord]) -> None:
    """Send records, and wait for their acknowledgements.

    Raises:
        KafkaError: the broker refused a record, or did not acknowledge it in time.
        TypeError, ValueError: a record cannot be sent.
    """
    receipts: list[BatchReceipt] = []
    for (topic, partition), group in _groups(records):
        keys, values, headers = zip(*((one.key, one.value, one.headers) for one in group), strict=True)
        receipts += await producer.send_many(
            topic, values, keys, headers if any(headers) else None, partition=partition
        )
    await asyncio.gather(*receipts)


def _groups(records: Sequence[SinkRecord]) -> Iterable[tuple[tuple[str, int | None], Iterable[SinkRecord]]]:
    """Group records by topic and given partition, so that those of a partition stay in their order."""
    groups: defaultdict[tuple[str, int | None], list[SinkRecord]] = defaultdict(list)
    for record in records:
        groups[record.topic, record.partition].append(record)
    given = {topic for topic, partition in groups if partition is not None}
    if any(partition is None and topic in given for topic, partition in groups):
        # A key may choose a partition that another record gives.
        return groupby(records, lambda record: (record.topic, record.partition))
    return groups.items()
