"""The source of a streaming query: what its micro-batches take, and what became of what they were to take.

It lives as long as the query, in a Python process on the driver's side. Spark asks it for
:meth:`StreamReader.latestOffset` before each micro-batch, writes the answer into the checkpoint, and then asks for the
partitions; after a restart it may ask for the partitions of the last micro-batch first. Source:
``KafkaMicroBatchStream.scala``.
"""

import logging
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

from barnabas_client.structs import TopicPartition
from barnabas_pipeline.offsets import Offset, Range, behind, limited
from barnabas_pipeline.options import ReadOptions
from barnabas_pipeline.planning import data_loss, find_partitions, initial
from barnabas_pipeline.reader import plan, read_range
from barnabas_pipeline.remote import Remote, remote_for
from barnabas_protocol.errors import KafkaError

_log: Final = logging.getLogger("barnabas_pipeline")

#: Spark asks about every 12 ms when there is nothing new. It gets its answer after so many seconds, or when there is.
_IDLE_SECONDS: Final = 0.25
#: Between two looks at the brokers meanwhile.
_PAUSE_SECONDS: Final = 0.025
#: How long a query waits for the commit to its group, which is only information, in seconds.
_COMMIT_SECONDS: Final = 5.0
#: What is noted beside the offsets of a group.
COMMIT_METADATA: Final = "spark"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's source."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._clock: Callable[[], float] = time.monotonic
        self._initial: dict[str, Any] | None = None
        self._latest: Offset | None = None
        #: With Trigger.AvailableNow what there was when the query started.
        self._target: Offset | None = None
        self._committed: dict[str, Any] | None = None
        self._last_batch = self._clock()

    # What Spark asks.

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint starts. Spark asks again and again until the first micro-batch is planned:
        it must not move with what comes meanwhile."""
        if self._initial is None:
            self._initial = initial(self._remote(), self._options).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say a micro-batch should take."""
        options = self._options
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable() if options.max_offsets is None else ReadMaxRows(options.max_offsets)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` itself if there is nothing to do.

        That Spark asks says that everything before `start` is done: it is committed to the group.
        """
        begin = Offset.of_json(start)
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
        """From now on, nothing that comes later is read."""
        self._target = self._look()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where records ended when that was last looked at."""
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What the tasks of a micro-batch read.

        Raises:
            DataLossError: records before `end` are gone, and `failOnDataLoss` is true.
        """
        return plan(self._ranges(Offset.of_json(start), Offset.of_json(end)), self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow record batches."""
        return read_range(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has no more use for what is before `end`."""
        self._commit(end, Offset.of_json(end))

    # Inside.

    def _remote(self) -> Remote:
        return remote_for(self._options.settings)

    def _look(self) -> Offset:
        """Where records end now."""
        remote = self._remote()
        partitions, ids = find_partitions(remote, self._options, may_miss=not self._options.fail_on_data_loss)
        self._latest = Offset(remote.latest(partitions), ids)
        return self._latest

    def _next(self, begin: Offset, limit: ReadLimit) -> Offset | None:
        """Where a micro-batch from `begin` on ends; None if it is not time for one yet."""
        end = self._target or self._look()
        start = self._starts(begin, end)
        if isinstance(limit, ReadMinRows) and self._target is None:
            waited = self._clock() - self._last_batch
            if behind(start, end.positions) < limit.min_rows and waited < self._options.max_delay:
                return None
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_offsets
        if most is None or isinstance(limit, ReadAllAvailable):
            return end
        return Offset(limited(start, end.positions, most), end.ids)

    def _starts(self, begin: Offset, end: Offset) -> dict[TopicPartition, int]:
        """Where each partition of `end` is read from: new ones, and those of topics made anew, from their beginning."""
        known = {tp: offset for tp, offset in begin.positions.items() if not _made_anew(tp.topic, begin, end)}
        new = [tp for tp in end.positions if tp not in known]
        first = self._remote().earliest(new)
        return {tp: known.get(tp, first.get(tp, 0)) for tp in end.positions}

    def _ranges(self, begin: Offset, end: Offset) -> list[Range]:
        """What is read between two offsets, after a look at what is still there."""
        options = self._options
        for tp in sorted(set(begin.positions) - set(end.positions)):
            data_loss(options, f"{tp} was deleted: it was read up to offset {begin.positions[tp]}")
        for topic in sorted({tp.topic for tp in end.positions}):
            if _made_anew(topic, begin, end):
                data_loss(options, f"topic '{topic}' was deleted and created again since the last micro-batch")
        first = self._first(end)
        ranges: list[Range] = []
        for tp, stop in sorted(end.positions.items()):
            earliest = first.get(tp)
            if earliest is None:
                data_loss(options, f"{tp} was deleted while offsets up to {stop} were to be read")
                continue
            start = begin.positions.get(tp)
            if start is None or _made_anew(tp.topic, begin, end):
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
            ranges.append(Range(tp, start, stop))
        return ranges

    def _first(self, end: Offset) -> Mapping[TopicPartition, int]:
        """The first offset of each partition that is still there, and still the same."""
        remote = self._remote()
        there = remote.topics({tp.topic for tp in end.positions})
        same = {name: info for name, info in there.items() if info.id == end.ids.get(name, info.id)}
        return remote.earliest(
            [tp for tp in end.positions if tp.topic in same and tp.partition in same[tp.topic].partitions]
        )

    def _commit(self, told: dict[str, Any], offset: Offset) -> None:
        """Note in the group what is done, unless that is nothing yet."""
        group = self._options.settings.group_id
        if group is None or told in (self._initial, self._committed):
            return
        try:
            self._remote().commit(group, offset.positions, COMMIT_METADATA, _COMMIT_SECONDS)
        except KafkaError as error:
            # Only information: checkpoints are what counts.
            _log.warning("the offsets of group '%s' were not committed: %s", group, error)
        self._committed = told


def _made_anew(topic: str, begin: Offset, end: Offset) -> bool:
    """Whether a topic is another one than it was."""
    return topic in begin.ids and topic in end.ids and begin.ids[topic] != end.ids[topic]
