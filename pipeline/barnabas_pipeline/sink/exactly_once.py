"""The exactly-once sink: each micro-batch is written once, also after failures and restarts.

Spark may repeat a micro-batch, with the same id, until its commit has succeeded and is recorded in the checkpoint.
Therefore:

1. **Tasks write nothing to Kafka.** They choose partitions, encode record batches, and write these to files in the
   query's checkpoint location (:class:`Stager`).
2. **The driver's commit makes a plan**, once for each micro-batch: which staged batches go to which partition, in which
   order, with which producer id and sequence numbers (those of idempotent producers, KIP-98), and where each partition
   ends before. The plan is on disk before the first record is sent. If the commit fails, or its process is killed,
   Spark repeats the micro-batch; the existing plan is then continued, and what the tasks staged the second time is
   discarded.
3. **Sending a plan can be repeated.** The committer reads the headers of the record batches after the planned ends, and
   finds those of its producer id; their sequence numbers show which batches are already written. It sends the others,
   with the same numbers: if a request of the killed process is still under way, the broker drops the duplicate.
4. **A second file records that the micro-batch is done**, and the next sequence numbers. A micro-batch that is not
newer
   than this file is not sent.

Costs: all data is written twice (files, then Kafka) and passes through the driver; each micro-batch waits for two
flushes to disk, and a recovery reads what was appended to the partitions since. Limits: records of a micro-batch become
visible one by one, not at once as in a transaction; after a kill the rest follows with the restart. If retention
deletes records between the kill and the restart, the committer cannot know what was written: that is an error.
"""

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas_client.producer.partitioner import StickyPartitioner, positive_hash
from barnabas_client.structs import TopicPartition
from barnabas_pipeline.brokers.remote import Remote, remote_for
from barnabas_pipeline.sink.checkpoint_folder import CheckpointFolder
from barnabas_pipeline.sink.commit_plan import StagedBatch, StagedFile
from barnabas_pipeline.sink.committer import Committer
from barnabas_pipeline.sink.options import WriteOptions
from barnabas_pipeline.sink.records import SinkRecord, to_records
from barnabas_protocol.records import BatchBuilder

#: The sink's folder in the checkpoint location.
FOLDER: Final = "barnabas-sink"


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    """The writer of ``df.writeStream`` with ``exactlyOnce=true``.

    Args:
        options: the sink's.
        checkpoint: the query's checkpoint location.
    """

    def __init__(self, options: WriteOptions, checkpoint: str) -> None:
        self._options = options
        self._location = f"{checkpoint.rstrip('/')}/{FOLDER}"

    def _folder(self) -> CheckpointFolder:
        return CheckpointFolder(self._location)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of a task.

        Raises:
            ValueError: a row cannot be written: its topic or partition does not exist, or it is too large.
            OSError: the file cannot be written.
        """
        return Stager(self._options, remote_for(self._options.settings)).stage(iterator, self._folder())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Write what the tasks staged, unless it is already written.

        Raises:
            KafkaError: it cannot be written now; a second call continues where this one stopped.
            RuntimeError: it is no longer known what was written.
        """
        self._committer().commit(_staged(messages), batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Clean up after a task or the commit has failed."""
        self._committer().abort(_staged(messages), batch_id)

    def _committer(self) -> Committer:
        return Committer(self._folder(), remote_for(self._options.settings))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [message for message in messages if isinstance(message, StagedFile)]


class Stager:
    """Encodes the rows of a task as record batches in one file.

    Args:
        options: the sink's.
        remote: the brokers, to look up topics.
    """

    def __init__(self, options: WriteOptions, remote: Remote) -> None:
        self._options = options
        self._settings = options.settings
        self._remote = remote
        self._builders: dict[TopicPartition, BatchBuilder] = {}
        self._topics: dict[str, tuple[tuple[int, ...], StickyPartitioner]] = {}
        self._name = f"staged-{uuid.uuid4().hex}"
        self._batches: list[StagedBatch] = []
        self._size = 0

    def stage(self, rows: Iterator[Any], folder: CheckpointFolder) -> StagedFile:
        """Write Arrow record batches to a file of `folder`; no file is written if there are none."""
        first = next(rows, None)
        if first is None:
            return StagedFile(None, ())
        with folder.writing(self._name) as file:
            self._add_all(first, file)
            for batch in rows:
                self._add_all(batch, file)
            for tp, builder in sorted(self._builders.items()):
                self._write(file, tp, builder)
        return StagedFile(self._name, tuple(self._batches))

    def _add_all(self, batch: Any, file: BinaryIO) -> None:
        for record in to_records(batch, self._options.topic):
            self._add(record, file)

    def _add(self, record: SinkRecord, file: BinaryIO) -> None:
        tp = TopicPartition(record.topic, self._partition(record))
        builder = self._builders.get(tp)
        if builder is not None and not builder.has_room(record.key, record.value, record.headers):
            self._write(file, tp, builder)
            builder = None
        if builder is None:
            builder = BatchBuilder(self._settings.batch_size, compression=self._settings.compression_type)
            self._builders[tp] = builder
        builder.append(record.key, record.value, record.headers, int(time.time() * 1000))
        if builder.size > max(self._settings.max_request_size, self._settings.batch_size):
            raise ValueError(
                f"a record of {builder.size} bytes for {tp} is larger than kafka.max.request.size "
                f"({self._settings.max_request_size}). To do: raise it, and the topic's max.message.bytes"
            )

    def _write(self, file: BinaryIO, tp: TopicPartition, builder: BatchBuilder) -> None:
        count, data = builder.count, builder.close()
        file.write(data)
        self._batches.append(StagedBatch(self._name, tp.topic, tp.partition, self._size, len(data), count))
        self._size += len(data)

    def _partition(self, record: SinkRecord) -> int:
        """Return the partition that the record names, or the one that Kafka's own producers would choose."""
        known = self._topics.get(record.topic)
        if known is None:
            topic = self._remote.topics({record.topic}).get(record.topic)
            if topic is None:
                raise ValueError(f"topic '{record.topic}' does not exist. To do: create it, or check its name")
            # A generator of its own: the shared one belongs to the user's code in this worker.
            sticky = StickyPartitioner(self._settings.batch_size, random.Random().randrange)
            known = self._topics[record.topic] = (topic.partitions, sticky)
        partitions, sticky = known
        if record.partition is not None:
            if record.partition not in partitions:
                raise ValueError(f"topic '{record.topic}' has no partition {record.partition}, only {len(partitions)}")
            return record.partition
        if record.key is not None:
            return partitions[positive_hash(record.key) % len(partitions)]
        return sticky.next(partitions, len(record.value or b""))
