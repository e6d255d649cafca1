"""Sends the records of a task."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby

from barnabas_client.sync import BatchReceipt, Producer
from barnabas_pipeline.sink.records import SinkRecord
from barnabas_protocol.wire import Buffer


def send(producer: Producer[Buffer, Buffer], records: Sequence[SinkRecord]) -> list[BatchReceipt]:
    """Send records; the receipts wait for their acknowledgements, see :func:`acknowledged`.

    Raises:
        KafkaError: there is no room for a record, or its topic is not known.
        TypeError, ValueError: a record cannot be sent.
    """
    receipts: list[BatchReceipt] = []
    for (topic, partition), group in _groups(records):
        keys, values, headers = zip(*((one.key, one.value, one.headers) for one in group), strict=True)
        receipts += producer.send_many(topic, values, keys, headers if any(headers) else None, partition=partition)
    return receipts


def acknowledged(receipts: Iterable[BatchReceipt]) -> None:
    """Wait until the brokers have the records.

    Raises:
        KafkaError: a broker refused records, or did not acknowledge them in time.
    """
    for receipt in receipts:
        receipt.result()


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
