"""Topics as Arrow tables, for DuckDB, Polars, pandas and other programs that compute with tables. It needs the extra
`arrow`.

::

    from barnabas.tables import read_table

    orders = read_table("orders", bootstrap_servers="localhost:9092")
    print(orders.num_rows, orders.schema.names)

`read_table` reads a topic into memory, `read_batches` reads it batch by batch. Both end at the offset that was the last
one when they were called. The columns are the fields of :class:`barnabas.ConsumerRecord`; keys and values are bytes,
timestamps are in milliseconds, and headers are null for a record without any.

Calls wait, as those of :mod:`barnabas.sync`. In an event loop use :meth:`barnabas.Consumer.getmany_arrow`.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, Unpack

from barnabas_client.checks import check_topic
from barnabas_client.config import ClientConfig, ConsumerSettings
from barnabas_client.consumer.consumer import Consumer as AsyncConsumer
from barnabas_client.errors import KafkaTimeoutError, error_for
from barnabas_client.optional import require
from barnabas_client.structs import TopicPartition
from barnabas_client.sync import Consumer
from barnabas_protocol.errors import ErrorCode

if TYPE_CHECKING:
    import pyarrow

__all__ = ["read_batches", "read_table"]

#: Where a range begins or ends: at a time, or at an offset of each partition.
Bound = datetime | Mapping[int, int] | None

#: Milliseconds that a poll waits.
_WAIT_MS: Final = 500
#: Records of a record batch: enough for others to work fast on it.
_MOST_RECORDS: Final = 131_072


def read_table(
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    start: Bound = None,
    end: Bound = None,
    **settings: Unpack[ConsumerSettings],
) -> "pyarrow.Table":
    """Read a topic, or a part of it, into a table in memory.

    Args:
        topic: its name.
        partitions: the numbers of the partitions to read. Default: None, all of them.
        start: the first record: by time, or by an offset for each partition number. Default: None, the first one.
        end: the first record that is not read, likewise. Default: None, the end of the topic as it is now.
        settings: those of :class:`barnabas.Consumer`, such as `bootstrap_servers` and `isolation_level`.

    Raises:
        ImportError: the extra `arrow` is not installed.
        ValueError: a partition does not exist, or `settings` has a group.
        KafkaError: the topic does not exist, or cannot be read.
    """
    return read_batches(topic, partitions=partitions, start=start, end=end, **settings).read_all()


def read_batches(
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    start: Bound = None,
    end: Bound = None,
    **settings: Unpack[ConsumerSettings],
) -> "pyarrow.RecordBatchReader":
    """Read a topic, or a part of it, batch by batch: for topics that are larger than the memory.

    DuckDB, Polars and `pyarrow.dataset` take the reader like a table, but only once. Each record batch has records of
    one partition, in order of their offsets. Up to `fetch_max_bytes` are fetched ahead.

    Args:
        topic: its name.
        partitions: the numbers of the partitions to read. Default: None, all of them.
        start: the first record: by time, or by an offset for each partition number. Default: None, the first one.
        end: the first record that is not read, likewise. Default: None, the end of the topic as it is now.
        settings: those of :class:`barnabas.Consumer`, such as `bootstrap_servers` and `isolation_level`.

    Raises:
        ImportError: the extra `arrow` is not installed.
        ValueError: a partition does not exist, or `settings` has a group.
        KafkaError: the topic does not exist. Later, while the batches are read: it cannot be read.
    """
    pyarrow = require("pyarrow", extra="arrow", purpose="a table of records")
    columns = require("barnabas_client.columns", extra="arrow", purpose="a table of records")
    if settings.get("group_id") is not None:
        raise ValueError("group_id is given: leave it out, a table has what it asks for, not what a group assigns")
    settings.setdefault("auto_offset_reset", "earliest")
    consumer = Consumer(**settings)
    consumer.start()
    try:
        ends = consumer._call("assign", _assign(consumer._client, topic, partitions, start, end))
    except BaseException:
        consumer.stop()
        raise
    patience = settings.get("request_timeout_ms", ClientConfig.request_timeout_ms) / 1000
    return pyarrow.RecordBatchReader.from_batches(columns.SCHEMA, _read(consumer, ends, patience))


async def _assign(
    consumer: AsyncConsumer, topic: str, partitions: Iterable[int] | None, start: Bound, end: Bound
) -> dict[TopicPartition, int]:
    """Assign the partitions with something to read, from its start on; return where each ends."""
    check_topic(f"read_table({topic!r})", topic)
    found = (await consumer._running().network.look_up([topic])).topics.get(topic)
    if found is None or found.error != ErrorCode.NONE:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error
        raise error_for(code, f"read topic {topic!r}")
    numbers = sorted(found.partitions) if partitions is None else list(dict.fromkeys(partitions))
    missing = [number for number in numbers if number not in found.partitions]
    if missing:
        raise ValueError(f"topic {topic!r} has no partition {missing[0]}: it has {len(found.partitions)}")
    chosen = [TopicPartition(topic, number) for number in numbers]
    firsts, lasts = await consumer.beginning_offsets(chosen), await consumer.end_offsets(chosen)
    starts = await _offsets(consumer, start, firsts, lasts)
    stops = await _offsets(consumer, end, lasts, lasts)
    ranges = {tp: (max(starts[tp], firsts[tp]), min(stops[tp], lasts[tp])) for tp in chosen}
    ranges = {tp: (first, last) for tp, (first, last) in ranges.items() if first < last}
    consumer.assign(ranges)
    for tp, (first, _) in ranges.items():
        consumer.seek(tp, first)
    return {tp: last for tp, (_, last) in ranges.items()}


async def _offsets(
    consumer: AsyncConsumer,
    bound: Bound,
    default: Mapping[TopicPartition, int],
    lasts: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if bound is None:
        return dict(default)
    if isinstance(bound, datetime):
        found = await consumer.offsets_for_times(dict.fromkeys(lasts, max(round(bound.timestamp() * 1000), 0)))
        return {tp: lasts[tp] if one is None else one.offset for tp, one in found.items()}
    if isinstance(bound, Mapping):
        return {tp: bound.get(tp.partition, offset) for tp, offset in default.items()}
    raise TypeError(f"{bound!r} is neither a time nor offsets: give a datetime, or a dict of partitions with offsets")


def _read(consumer: Consumer, ends: dict[TopicPartition, int], patience: float) -> Iterator["pyarrow.RecordBatch"]:
    """Read all partitions to their ends, and stop the consumer.

    If the reader is dropped before, the consumer stops when it is deleted: that may happen in any thread, which must
    not wait.
    """
    try:
        deadline = time.monotonic() + patience
        while ends:
            table = consumer.getmany_arrow(timeout_ms=_WAIT_MS, max_records=_MOST_RECORDS)
            for batch in table.to_batches():
                tp = TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
                yield _until(batch, ends.get(tp, 0))
            progress = len(table) > 0
            for tp in list(ends):
                if consumer.position(tp) >= ends[tp]:
                    del ends[tp]
                    consumer.pause(tp)
                    progress = True
            if progress:
                deadline = time.monotonic() + patience
            elif time.monotonic() > deadline:
                raise KafkaTimeoutError(
                    f"no record of {', '.join(map(str, ends))} arrived for {patience:g} s, though there should be "
                    "more. To do: check the brokers, or raise request_timeout_ms"
                )
    except Exception:
        consumer.stop()
        raise
    consumer.stop()


def _until(batch: "pyarrow.RecordBatch", end: int) -> "pyarrow.RecordBatch":
    """The records of a batch before offset `end`."""
    last = batch.num_rows - 1
    if batch.column("offset")[last].as_py() < end:
        return batch
    return batch.slice(0, bisect_left(batch.column("offset").to_pylist(), end))
