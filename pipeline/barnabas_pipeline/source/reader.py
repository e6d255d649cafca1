"""Reading ranges of offsets in Spark's tasks, and the plan of a batch query.

A range ends at an offset, not after a count: compaction leaves gaps, and control records have offsets too. The next
fetch is sent before the records of the previous response are converted to Arrow.
"""

import functools
import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas_client.columns import iter_columns
from barnabas_client.consumer.fetched import Chunk, cut
from barnabas_client.structs import TopicPartition
from barnabas_pipeline.brokers.remote import FetchResult, Remote, remote_for
from barnabas_pipeline.source.columns import to_arrow
from barnabas_pipeline.source.offsets import OffsetRange, split_ranges
from barnabas_pipeline.source.options import ReadOptions
from barnabas_pipeline.source.planning import data_loss, final, initial
from barnabas_protocol.errors import DecodeError, ErrorCode
from barnabas_protocol.records import read_header


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """The range that one task reads."""

    range: OffsetRange


class BatchReader(DataSourceReader):
    """The reader of a batch query: the driver resolves the starting and ending offsets once."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges that tasks read.

        Raises:
            ValueError, DataLossError, KafkaError: as :mod:`barnabas_pipeline.source.planning`.
        """
        options = self._options
        remote = remote_for(options.settings)
        start = initial(remote, options).positions
        end = final(remote, options, sorted(start))
        for tp in start:
            if end[tp] < start[tp]:
                data_loss(options, f"{tp} ends at offset {end[tp]}, before its start {start[tp]}")
        ranges = [OffsetRange(tp, start[tp], end[tp]) for tp in sorted(start)]
        return plan(ranges, options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the records of a range as Arrow record batches."""
        return read_range(partition, self._options)


def plan(ranges: Sequence[OffsetRange], options: ReadOptions) -> list[InputPartition]:
    """Split ranges into tasks. If all are empty there is one empty task: Spark would add one of its own otherwise."""
    found = split_ranges(ranges, options.min_partitions, options.max_records)
    return [RangePartition(one) for one in found] or [RangePartition(OffsetRange(TopicPartition("", 0), 0, 0))]


def read_range(partition: InputPartition, options: ReadOptions) -> Iterator[Any]:
    """Read a range as Arrow record batches.

    Raises:
        DataLossError: records were deleted, and `failOnDataLoss` is true.
        RuntimeError: a batch is corrupt, or no records arrive; the message names partition and offset.
        KafkaError: the fetch failed.
    """
    if not isinstance(partition, RangePartition):
        raise TypeError(f"{partition!r} is not a range of offsets")
    yield from _RangeReader(partition.range, options, remote_for(options.settings)).read()
    if TaskContext.get() is not None:
        _freeze_modules()


@functools.cache
def _freeze_modules() -> None:
    """Exclude the objects of imported modules from garbage collection, once in each worker.

    Spark runs the garbage collector after every task, before the next one starts. That took 35 ms of CPU time, several
    times as much as a task with few records.
    """
    gc.collect()
    gc.freeze()


class _RangeReader:
    """Reads one range.

    Args:
        wanted: the range.
        options: the source's.
        remote: the brokers.
    """

    def __init__(self, wanted: OffsetRange, options: ReadOptions, remote: Remote) -> None:
        self._tp, self._position, self._end = wanted
        self._options = options
        self._remote = remote

    def read(self) -> Iterator[Any]:
        """Read all of it."""
        size = self._options.settings.max_partition_fetch_bytes
        deadline = self._deadline()
        coming = self._remote.start_fetch(self._tp, self._position, size) if self._position < self._end else None
        try:
            while coming is not None:
                answer, coming = coming.result(), None
                start, chunks = self._position, self._chunks(answer)
                if self._position > start:
                    deadline = self._deadline()
                elif time.monotonic() > deadline:
                    raise RuntimeError(
                        f"no record of {self._tp} arrived at offset {self._position}, though there should be some up "
                        f"to {self._end}; the partition ends at {answer.end}. To do: check the brokers, or raise "
                        "kafkaConsumer.pollTimeoutMs"
                    )
                if self._position < self._end:
                    coming = self._remote.start_fetch(self._tp, self._position, size)
                yield from self._arrow(chunks, start)
        finally:
            if coming is not None:
                coming.cancel()

    def _deadline(self) -> float:
        return time.monotonic() + self._options.poll_timeout

    def _chunks(self, answer: FetchResult) -> list[Chunk]:
        """Return the batches of a response, and advance the position past them."""
        tp, position = self._tp, self._position
        if answer.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            data_loss(self._options, f"{tp} was deleted while offsets {position} to {self._end} were to be read")
            self._position = self._end
            return []
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            first = self._remote.earliest([tp])[tp]
            if first > position:
                end = min(first, self._end)
                data_loss(self._options, f"offsets {position} to {end - 1} of {tp} are gone: it starts at {first}")
                self._position = end
            else:
                data_loss(self._options, f"{tp} ends before offset {position}, which was to be read")
                self._position = self._end
            return []
        committed = self._options.settings.isolation_level == "read_committed"
        aborted = (answer.data.aborted_transactions or []) if committed else None
        chunks = cut(tp, answer.data.records or b"", position, aborted)
        if chunks:
            self._position = max(position, chunks[-1].end)
        broken = next((chunk for chunk in chunks if chunk.error is not None), None)
        if broken is not None and broken.end < self._end:
            raise self._corrupt(broken.end, broken.error)
        return chunks

    def _arrow(self, chunks: Sequence[Chunk], start: int) -> Iterator[Any]:
        batches = [chunk.batch for chunk in chunks if chunk.batch is not None]
        wanted = (batch for batch in batches if read_header(batch).base_offset < self._end)
        options, at = self._options, start
        crcs = options.settings.check_crcs
        try:
            for part in iter_columns(wanted, start, self._end, headers=options.headers, check_crcs=crcs):
                at = max(at, part.end)
                if len(part.offsets):
                    yield to_arrow(*self._tp, part)
        except DecodeError as error:
            raise self._corrupt(at, error) from error

    def _corrupt(self, offset: int, error: object) -> RuntimeError:
        return RuntimeError(
            f"the records of {self._tp} at offset {offset} cannot be read: {error}. To do: read again; if the error "
            "persists, the data is damaged on the broker's disk or in transit: start after it (startingOffsets)"
        )
