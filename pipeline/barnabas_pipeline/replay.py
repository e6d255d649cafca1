"""A Parquet table back into a topic, in order, at a given speed.

Spark reads and sorts; the rows then come to the driver one partition of the sorted table after another, and one
idempotent producer there sends them. So records with the same key arrive in their order, and the speed is that of one
clock.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from barnabas_pipeline.lake import LakeError
from barnabas_pipeline.lake_table import Table
from barnabas_pipeline.remote import Remote

#: Rows that are fetched, and sent before the ones before them must be acknowledged.
_CHUNK: Final = 1_000
_TIME: Final = "_barnabas_time"


@dataclass(frozen=True, slots=True)
class Replay:
    """What is replayed how.

    Attributes:
        table: its path: a table of a lake, which is read by its log, or any Parquet.
        topic: where rows go.
        key: the column of keys; `key` if None and there is one.
        value: the column of values; `value` if None, or the whole row as JSON if there is none.
        order_by: columns to sort by; None for `timestamp`, but each partition by its offsets.
        where: SQL that holds for the rows that are sent.
        rate: records a second; None for no limit.
        speed: times the original tempo; None for no tempo.
        keep_timestamps: whether records get the time they had.
    """

    table: str
    topic: str
    key: str | None = None
    value: str | None = None
    order_by: tuple[str, ...] | None = None
    where: str | None = None
    rate: float | None = None
    speed: float | None = None
    keep_timestamps: bool = False


class Pace:
    """When a record is due. Pure.

    Args:
        rate: records a second; None for no limit.
        speed: times the original tempo; None for no tempo.
    """

    def __init__(self, rate: float | None, speed: float | None) -> None:
        self._rate, self._speed = rate, speed
        self._first: int | None = None
        self._latest = 0.0

    def due(self, number: int, time_ms: int | None) -> float:
        """Seconds after the first record.

        Args:
            number: of the record, from 0 on.
            time_ms: when it was written at first; a record that is older than the one before it is due with it.
        """
        if self._rate is not None:
            return number / self._rate
        if self._speed is None or time_ms is None:
            return self._latest
        if self._first is None:
            self._first = time_ms
        self._latest = max(self._latest, (time_ms - self._first) / 1000 / self._speed)
        return self._latest


def rows(spark: SparkSession, replay: Replay) -> DataFrame:
    """The rows to send, in order: key, value, headers, time_ms.

    Raises:
        LakeError: the table cannot be read, lacks a column, or has no order.
    """
    table = _read(spark, replay.table)
    try:
        if replay.where:
            table = table.where(replay.where)
        value = _column(table, replay.value, "value")
        key = _column(table, replay.key, "key")
        order, moment = _order(table, replay)
        if moment is None and (replay.speed is not None or replay.keep_timestamps):
            raise LakeError(
                "the table has no column `timestamp`, so its tempo is not known. To do: give --order-by a "
                "column of timestamps, "
                "or --rate instead of --speed"
            )
        has_headers = "headers" in table.columns and isinstance(table.schema["headers"].dataType, ArrayType)
        whole = sf.to_json(sf.struct(*table.columns), {"ignoreNullFields": "false"}).cast("binary")
        # Made a column first: what looks at several rows cannot be sorted by as it is.
        timed = table.withColumn(_TIME, sf.lit(None).cast("timestamp") if moment is None else moment)
        return timed.orderBy(*order).select(
            (sf.lit(None).cast("binary") if key is None else key).alias("key"),
            (whole if value is None else value).alias("value"),
            (sf.col("headers") if has_headers else sf.lit(None)).alias("headers"),
            sf.unix_millis(sf.col(_TIME)).alias("time_ms"),
        )
    except AnalysisException as error:
        why = str(error).strip().partition("\n")[0]
        raise LakeError(
            f"{replay.table} does not fit: {why}. To do: its columns are {', '.join(table.columns)}"
        ) from None


def _read(spark: SparkSession, path: str) -> DataFrame:
    table = Table(spark, path)
    if table.exists:
        return table.read()
    try:
        return spark.read.parquet(path)
    except AnalysisException as error:
        why = str(error).strip().partition("\n")[0]
        raise LakeError(f"{path} cannot be read: {why}. To do: name a table, such as LAKE/topic=TOPIC") from None


def _column(table: DataFrame, name: str | None, default: str) -> Column | None:
    """A column as bytes."""
    if name is None and default not in table.columns:
        return None
    chosen = table.select(name or default)
    kind: DataType = chosen.schema.fields[0].dataType
    column = sf.col(name or default)
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, StructType | ArrayType | MapType):
        column = sf.to_json(column, {"ignoreNullFields": "false"})
    return column.cast("string").cast("binary")


def _order(table: DataFrame, replay: Replay) -> tuple[list[Column], Column | None]:
    """What to sort by, and what tells the tempo."""
    if replay.order_by:
        kind = table.select(replay.order_by[0]).schema.fields[0].dataType
        first = sf.col(replay.order_by[0])
        if isinstance(kind, TimestampNTZType):
            first = first.cast("timestamp")
        timed = isinstance(kind, TimestampType | TimestampNTZType | StringType)
        moment = (sf.try_to_timestamp(first) if isinstance(kind, StringType) else first) if timed else None
        return [sf.col(name) for name in replay.order_by], moment
    names = set(table.columns)
    timed = "timestamp" in names and isinstance(table.schema["timestamp"].dataType, TimestampType)
    if {"partition", "offset"} <= names:
        before = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
        # Never before what stands before it in its partition, whatever its own timestamp says.
        moment = sf.max("timestamp").over(before) if timed else None
        order = [sf.col("partition"), sf.col("offset")]
        return ([sf.col(_TIME), *order] if timed else order), moment
    if timed:
        return [sf.col("timestamp")], sf.col("timestamp")
    raise LakeError(
        f"{replay.table} says nothing about its order. To do: give --order-by, one or more of "
        f"{', '.join(table.columns)}"
    )


def send(remote: Remote, replay: Replay, ordered: DataFrame, shown: Callable[[int], None] = lambda sent: None) -> int:
    """Send rows; how many.

    Args:
        remote: the brokers.
        replay: says where to and how fast.
        ordered: of :func:`rows`.
        shown: told how many are acknowledged.

    Raises:
        KafkaError: a record was refused; `shown` was told how many were not.
    """
    pace = Pace(replay.rate, replay.speed)

    async def work(remote: Remote) -> int:
        producer = await remote.producer()
        iterator: Iterator[Any] = await asyncio.to_thread(ordered.toLocalIterator, prefetchPartitions=True)
        began, sent, acknowledged = time.monotonic(), 0, 0
        waiting: list[Any] = []
        while chunk := await asyncio.to_thread(lambda: list(islice(iterator, _CHUNK))):
            for key, value, headers, time_ms in chunk:
                ahead = began + pace.due(sent, time_ms) - time.monotonic()
                if ahead > 0.002:
                    acknowledged += await _acknowledged(waiting)
                    shown(acknowledged)
                    await asyncio.sleep(began + pace.due(sent, time_ms) - time.monotonic())
                waiting.append(
                    await producer.send(
                        replay.topic,
                        None if value is None else bytes(value),
                        key=None if key is None else bytes(key),
                        timestamp_ms=time_ms if replay.keep_timestamps else None,
                        headers=[(one[0], None if one[1] is None else bytes(one[1])) for one in headers or ()],
                    )
                )
                sent += 1
            acknowledged += await _acknowledged(waiting)
            shown(acknowledged)
        return acknowledged

    return remote.run(work)


async def _acknowledged(waiting: list[Any]) -> int:
    """Wait for all of them; how many they were."""
    count = len(waiting)
    await asyncio.gather(*waiting)
    waiting.clear()
    return count
