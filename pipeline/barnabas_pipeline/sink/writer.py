"""The at-least-once sink: tasks send their rows and wait for the acknowledgements.

Spark repeats a task or micro-batch that fails; what the first attempt sent is then in the topic twice.
:mod:`barnabas_pipeline.sink.exactly_once` avoids that.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas_client.sync import BatchReceipt
from barnabas_pipeline.brokers.remote import remote_for
from barnabas_pipeline.sink.options import WriteOptions
from barnabas_pipeline.sink.records import to_records
from barnabas_pipeline.sink.sending import acknowledged, send


@dataclass(frozen=True)
class SentRecords(WriterCommitMessage):
    """A task's commit message: the number of records that it sent."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    """The writer of ``df.write``."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task.

        Raises:
            KafkaError: the broker refused a record, or did not acknowledge it in time.
            ValueError: a row cannot be sent.
        """
        return send_rows(iterator, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """The at-least-once writer of ``df.writeStream``."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task; raises as :meth:`BatchWriter.write`."""
        return send_rows(iterator, self._options)


def send_rows(batches: Iterator[Any], options: WriteOptions) -> SentRecords:
    """Send all rows and wait for their acknowledgements. One batch is sent while the next one is read."""
    remote = remote_for(options.settings)
    sending: list[BatchReceipt] = []
    sent = 0
    try:
        for batch in batches:
            records = list(to_records(batch, options.topic))
            acknowledged(sending)
            sending = send(remote.producer(), records)
            sent += len(records)
        acknowledged(sending)
    except BaseException:
        # Otherwise the producer would continue to send its buffer while Spark repeats the task.
        remote.drop_producer()
        raise
    return SentRecords(sent)
