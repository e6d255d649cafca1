"""The sink that writes each micro-batch exactly once, whatever fails and however often it is done again.

Spark may run a micro-batch again, with the same id, until its commit has succeeded and is written down. So:

1. **Tasks write nothing to Kafka.** They choose partitions, encode record batches and put these into files in the
   query's checkpoint location (:func:`stage`).
2. **The driver's commit makes a plan**, once for each micro-batch: which staged batches go where, in which order, with
   which producer id and sequence numbers (those of idempotent producers, KIP-98), and where each partition ended
   before. The plan is on disk before the first record is sent. From then on it is what counts: if the commit fails, or
   its process is killed, the micro-batch comes again, and whatever its tasks have staged the second time is thrown
   away.
3. **Sending a plan can be done again.** What of it is in a partition already is found by reading the heads of the
   batches behind where it ended before: those of that producer id, whose sequence numbers say which they are. Only the
   rest is sent, with the same numbers: of a request of the killed process that is still under way the broker takes one,
   and drops the other.
4. **A second file says that it is done**, and where sequence numbers go on. A micro-batch that is not newer is not
   sent.

What that costs: everything is written twice (files, then Kafka), and passes through the driver; a micro-batch waits for
two flushes to disk, and a recovery reads what came into the partitions meanwhile. What it does not give: records of a
micro-batch become visible one by one, not at once as in a transaction; after a kill the second part of them comes with
the restart. Records that retention deletes between the kill and the restart can no longer be looked for: that is an
error.
"""

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas_client.producer.partitioner import StickyPartitioner, positive_hash
from barnabas_client.structs import TopicPartition
from barnabas_pipeline.commit import Committer
from barnabas_pipeline.commit_plan import Entry, Staged
from barnabas_pipeline.remote import Remote, remote_for
from barnabas_pipeline.rows import Row, WriteOptions, rows_of
from barnabas_pipeline.staging import Folder
from barnabas_protocol.records import BatchBuilder

#: The folder in the checkpoint location.
FOLDER: Final = "barnabas-sink"
#: A batch that is full: where it goes, its records, its bytes.
Full = tuple[TopicPartition, int, bytearray]


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    """For ``df.writeStream`` with ``exactlyOnce=true``."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def _folder(self) -> Folder:
        assert self._options.checkpoint is not None
        return Folder(f"{self._options.checkpoint.rstrip('/')}/{FOLDER}")

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return stage(iterator, self._options, self._folder())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Write what was staged, unless it is written.

        Raises:
            KafkaError: it cannot be written now; done again, it goes on where it stopped.
            RuntimeError: it cannot be known any more what was written.
        """
        self._committer().commit(_staged(messages), batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """A task or the commit has failed."""
        self._committer().abort(_staged(messages), batch_id)

    def _committer(self) -> "Committer":
        return Committer(self._folder(), remote_for(self._options.settings))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def stage(batches: Iterator[Any], options: WriteOptions, folder: Folder) -> Staged:
    """Put the rows of a task into a file, as record batches for the partitions they go to.

    Raises:
        ValueError: a row cannot be written: no such topic or partition, or it is too large.
        OSError: the file cannot be written.
    """
    stager = _Stager(options, remote_for(options.settings))
    name = f"staged-{uuid.uuid4().hex}"
    first = next(batches, None)
    if first is None:
        return Staged(None, ())
    entries: list[Entry] = []
    at = 0
    with folder.writing(name) as file:

        def put(full: list[Full]) -> None:
            nonlocal at
            for tp, count, data in full:
                file.write(data)
                entries.append(Entry(name, tp.topic, tp.partition, at, len(data), count))
                at += len(data)

        while first is not None:
            for row in rows_of(first, options.topic):
                put(stager.add(row))
            first = next(batches, None)
        put(stager.rest())
    return Staged(name, tuple(entries))


class _Stager:
    """Gathers rows into record batches."""

    def __init__(self, options: WriteOptions, remote: Remote) -> None:
        self._settings = options.settings
        self._remote = remote
        self._builders: dict[TopicPartition, BatchBuilder] = {}
        self._topics: dict[str, tuple[tuple[int, ...], StickyPartitioner]] = {}

    def add(self, row: Row) -> list[Full]:
        """Take a row; returns the batch that it filled, if it did."""
        tp = TopicPartition(row.topic, self._partition(row))
        builder = self._builders.get(tp)
        full: list[Full] = []
        if builder is not None and not builder.has_room(row.key, row.value, row.headers):
            full.append((tp, builder.count, builder.close()))
            builder = None
        if builder is None:
            settings = self._settings
            builder = BatchBuilder(settings.batch_size, compression=settings.compression_type)
            self._builders[tp] = builder
        builder.append(row.key, row.value, row.headers, int(time.time() * 1000))
        if builder.size > max(self._settings.max_request_size, self._settings.batch_size):
            raise ValueError(
                f"a record of {builder.size} bytes for {tp} is larger than kafka.max.request.size "
                f"({self._settings.max_request_size}). To do: raise it, and the topic's max.message.bytes"
            )
        return full

    def rest(self) -> list[Full]:
        """The batches that are not full."""
        return [(tp, builder.count, builder.close()) for tp, builder in sorted(self._builders.items())]

    def _partition(self, row: Row) -> int:
        known = self._topics.get(row.topic)
        if known is None:
            info = self._remote.topics({row.topic}).get(row.topic)
            if info is None:
                raise ValueError(f"topic '{row.topic}' does not exist. To do: create it, or check its name")
            sticky = StickyPartitioner(self._settings.batch_size, random.randrange)
            known = self._topics[row.topic] = (info.partitions, sticky)
        partitions, sticky = known
        if row.partition is not None:
            if row.partition not in partitions:
                raise ValueError(f"topic '{row.topic}' has no partition {row.partition}, only {len(partitions)}")
            return row.partition
        if row.key is not None:
            return partitions[positive_hash(row.key) % len(partitions)]
        return sticky.next(partitions, len(row.value or b""))
