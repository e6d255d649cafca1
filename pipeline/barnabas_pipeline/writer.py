"""The sink: tasks send their rows and wait until they are acknowledged. At least once: a task, or a micro-batch, that
fails is done again by Spark, and what it had sent before is then there twice. For exactly once see
:mod:`barnabas_pipeline.exactly_once`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas_client.structs import RecordMetadata
from barnabas_pipeline.remote import Remote, remote_for
from barnabas_pipeline.rows import Row, WriteOptions, rows_of


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """How many records a task sent."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    """For ``df.write``."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task.

        Raises:
            KafkaError: one was refused, or not acknowledged in time.
            ValueError: a row cannot be sent.
        """
        return send_rows(iterator, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """For ``df.writeStream``, at least once."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task; raises as :meth:`BatchWriter.write`."""
        return send_rows(iterator, self._options)


def send_rows(batches: Iterator[Any], options: WriteOptions) -> Sent:
    """Send all rows and wait until they are acknowledged. While some are sent, the next ones are read."""
    remote = remote_for(options.settings)
    sending: Future[None] | None = None
    sent = 0
    try:
        for batch in batches:
            rows = list(rows_of(batch, options.topic))
            if sending is not None:
                sending.result()
            sending = remote.start(_send(remote, rows))
            sent += len(rows)
        if sending is not None:
            sending.result()
    except BaseException:
        if sending is not None:
            sending.cancel()
        # What it still has must not be sent behind the back of the task that does it again.
        remote.run(Remote.drop_producer)
        raise
    return Sent(sent)


async def _send(remote: Remote, rows: Sequence[Row]) -> None:
    producer = await remote.producer()
    receipts: list[asyncio.Future[RecordMetadata]] = []
    for topic, partition, key, value, headers in rows:
        receipts.append(await producer.send(topic, value, key, partition, headers=headers))
    await asyncio.gather(*receipts)
