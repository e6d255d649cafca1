"""The source of a streaming query: where each micro-batch ends, and the ranges that its tasks read.

It lives as long as the query, in a Python process of the driver. Before each micro-batch Spark calls
:meth:`StreamReader.latestOffset`, writes the result to the checkpoint, and then calls :meth:`StreamReader.partitions`;
after a restart it may begin with the partitions of the last micro-batch. Source: ``KafkaMicroBatchStream.scala``.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas_client.logs import logger
from barnabas_client.structs import TopicPartition
from barnabas_pipeline.brokers.remote import Remote, remote_for
from barnabas_pipeline.source.offsets import OffsetRange, SourceOffset, behind, limited
from barnabas_pipeline.source.options import ReadOptions
from barnabas_pipeline.source.planning import data_loss, find_partitions, initial
from barnabas_pipeline.source.reader import plan, read_range
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_pipeline")

#: Without new records Spark would call `latestOffset` every 12 ms. The call waits this many seconds for new records.
_IDLE_SECONDS: Final = 0.25
#: Seconds between two requests to the brokers meanwhile.
_PAUSE_SECONDS: Final = 0.025
#: Timeout in seconds of the commit to the group, which is for information only.
_COMMIT_SECONDS: Final = 5.0
#: The metadata of the committed offsets.
COMMIT_METADATA: Final = "spark"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query.

    Args:
        options: called once, by the first method that needs them; it raises ValueError if an option is wrong.
    """

    def __init__(self, options: Callable[[], ReadOptions]) -> None:
        self._check_options = options
        self._clock: Callable[[], float] = time.monotonic
        self._initial: dict[str, Any] | None = None
        self._latest: SourceOffset | None = None
        #: The end of the query with Trigger.AvailableNow.
        self._target: SourceOffset | None = None
        self._committed: dict[str, Any] | None = None
        self._last_batch = self._clock()

    # Called by Spark.

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint starts.

        Spark calls this repeatedly until the first micro-batch is planned; the result must not change meanwhile.
        """
        if self._initial is None:
            self._initial = initial(self._remote(), self._options).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch that the options set."""
        options = self._options
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable() if options.max_offsets is None else ReadMaxRows(options.max_offsets)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends; `start` if there is nothing to read.

        The call means that everything before `start` is processed, so `start` is committed to the group.
        """
        begin = SourceOffset.of_json(start)
        self._commit(start, begin)
        until = self._clock() + _IDLE_SECONDS
        while True:
            end = self._next(begin, limit)
            if end is not None and end.to_json() != start:
                self._last_batch = self._clock()
                return end.to_json()
            if self._target is not None or self._clock() >= until:
                return start
            time.sleep(_PAUSE_SECONDS)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at the current end of the partitions."""
        self._target = self._look()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of the partitions as of the last request."""
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges that the tasks of a micro-batch read.

        Raises:
            DataLossError: records before `end` were deleted, and `failOnDataLoss` is true.
        """
        return plan(self._ranges(SourceOffset.of_json(start), SourceOffset.of_json(end)), self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the records of a range as Arrow record batches."""
        return read_range(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit `end` to the group: Spark will not read before it again."""
        self._commit(end, SourceOffset.of_json(end))

    # Internals.

    @functools.cached_property
    def _options(self) -> ReadOptions:
        return self._check_options()

    def _remote(self) -> Remote:
        return remote_for(self._options.settings)

    def _look(self) -> SourceOffset:
        """Look up where the partitions end now."""
        remote = self._remote()
        partitions, ids = find_partitions(remote, self._options, may_miss=not self._options.fail_on_data_loss)
        self._latest = SourceOffset(remote.latest(partitions), ids)
        return self._latest

    def _next(self, begin: SourceOffset, limit: ReadLimit) -> SourceOffset | None:
        """Return where a micro-batch from `begin` on ends; None while it has to wait for more records."""
        end = self._target or self._look()
        start = self._starts(begin, end)
        if isinstance(limit, ReadMinRows) and self._target is None:
            waited = self._clock() - self._last_batch
            if behind(start, end.positions) < limit.min_rows and waited < self._options.max_delay:
                return None
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_offsets
        if most is None or isinstance(limit, ReadAllAvailable):
            return end
        return SourceOffset(limited(start, end.positions, most), end.ids)

    def _starts(self, begin: SourceOffset, end: SourceOffset) -> dict[TopicPartition, int]:
        """Return where each partition of `end` starts: new ones, and those of recreated topics, at their beginning."""
        known = {tp: offset for tp, offset in begin.positions.items() if not _recreated(tp.topic, begin, end)}
        new = [tp for tp in end.positions if tp not in known]
        first = self._remote().earliest(new)
        return {tp: known.get(tp, first.get(tp, 0)) for tp in end.positions}

    def _ranges(self, begin: SourceOffset, end: SourceOffset) -> list[OffsetRange]:
        """Return the ranges between two offsets, after a check which records still exist."""
        options = self._options
        for tp in sorted(set(begin.positions) - set(end.positions)):
            data_loss(options, f"{tp} was deleted: it was read up to offset {begin.positions[tp]}")
        for topic in sorted({tp.topic for tp in end.positions}):
            if _recreated(topic, begin, end):
                data_loss(options, f"topic '{topic}' was deleted and created again since the last micro-batch")
        first = self._first(end)
        ranges: list[OffsetRange] = []
        for tp, stop in sorted(end.positions.items()):
            earliest = first.get(tp)
            if earliest is None:
                data_loss(options, f"{tp} was deleted while offsets up to {stop} were to be read")
                continue
            start = begin.positions.get(tp)
            if start is None or _recreated(tp.topic, begin, end):
                start = earliest
                if earliest > 0:
                    data_loss(options, f"{tp} is new and starts at offset {earliest} instead of 0")
            elif stop < start:
                data_loss(options, f"the end of {tp} went back from offset {start} to {stop}")
                start = earliest
            elif earliest > start:
                data_loss(
                    options, f"offsets {start} to {min(earliest, stop) - 1} of {tp} are gone: it starts at {earliest}"
                )
                start = earliest
            ranges.append(OffsetRange(tp, start, stop))
        return ranges

    def _first(self, end: SourceOffset) -> Mapping[TopicPartition, int]:
        """Look up the log start offset of each partition that still exists, in a topic that was not recreated."""
        remote = self._remote()
        topics = remote.topics({tp.topic for tp in end.positions})
        same = {name: topic for name, topic in topics.items() if topic.id == end.ids.get(name, topic.id)}
        return remote.earliest(
            [tp for tp in end.positions if tp.topic in same and tp.partition in same[tp.topic].partitions]
        )

    def _commit(self, data: dict[str, Any], offset: SourceOffset) -> None:
        """Commit an offset to the group, unless it is the initial one or already committed."""
        group = self._options.settings.group_id
        if group is None or data in (self._initial, self._committed):
            return
        try:
            self._remote().commit(group, offset.positions, COMMIT_METADATA, _COMMIT_SECONDS)
        except KafkaError as error:
            # For information only: the query continues from its checkpoint.
            _log.warning("the offsets were not committed to the group", group=group, error=str(error))
        self._committed = data


def _recreated(topic: str, begin: SourceOffset, end: SourceOffset) -> bool:
    """Return whether a topic was deleted and created again between two offsets."""
    return topic in begin.ids and topic in end.ids and begin.ids[topic] != end.ids[topic]
