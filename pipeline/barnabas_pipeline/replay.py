"""Replay: it sends a Parquet table to a topic, in order, at a given speed.

Spark reads and sorts. The driver receives the rows one partition of the sorted table after another, and sends them with
one idempotent producer: records with the same key keep their order, and one clock determines the speed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
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

from barnabas_pipeline.brokers.remote import Remote
from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake.table import Table

#: Rows that are sent before the producer waits for acknowledgements.
_CHUNK: Final = 1_000
_TIME: Final = "_barnabas_time"


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """Settings of a replay.

    Attributes:
        table: the path of a table of a lake, or of any Parquet.
        topic: the topic to send to.
        key: the column of the keys; None for `key`, if it exists.
        value: the column of the values; None for `value`, or the whole row as JSON if that does not exist.
        order_by: the columns to sort by; None for `timestamp`, and each partition by offset.
        where: an SQL condition for the rows to send.
        rate: records per second; None for no limit.
        speed: a multiple of the original speed; None for no limit.
        keep_timestamps: whether records keep their original timestamps.
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
    """Computes when a record is due. Pure.

    Args:
        rate: records per second; None for no limit.
        speed: a multiple of the original speed; None for no limit.
    """

    def __init__(self, rate: float | None, speed: float | None) -> None:
        self._rate, self._speed = rate, speed
        self._first: int | None = None
        self._latest = 0.0

    def due(self, number: int, time_ms: int | None) -> float:
        """Return when a record is due, in seconds after the first one.

        Args:
            number: the number of the record, from 0 on.
            time_ms: its original timestamp; a record that is older than the previous one is due at the same time.
        """
        if self._rate is not None:
            return number / self._rate
        if self._speed is None or time_ms is None:
            return self._latest
        if self._first is None:
            self._first = time_ms
        self._latest = max(self._latest, (time_ms - self._first) / 1000 / self._speed)
        return self._latest


def rows(spark: SparkSession, job: ReplayJob) -> DataFrame:
    """Return the rows to send, in order, with the columns key, value, headers and time_ms.

    Raises:
        LakeError: the table cannot be read, lacks a column, or has no order.
    """
    table = _read(spark, job.table)
    try:
        if job.where:
            table = table.where(job.where)
        value = _column(table, job.value, "value")
        key = _column(table, job.key, "key")
        order, moment = _order(table, job)
        if moment is None and (job.speed is not None or job.keep_timestamps):
            raise LakeError(
                "the table has no column `timestamp`, so its original speed is not known. To do: give --order-by a "
                "column of timestamps, or --rate instead of --speed"
            )
        has_headers = "headers" in table.columns and isinstance(table.schema["headers"].dataType, ArrayType)
        whole = sf.to_json(sf.struct(*table.columns), {"ignoreNullFields": "false"}).cast("binary")
        # A window expression must be a column before Spark can sort by it.
        timed = table.withColumn(_TIME, sf.lit(None).cast("timestamp") if moment is None else moment)
        return timed.orderBy(*order).select(
            (sf.lit(None).cast("binary") if key is None else key).alias("key"),
            (whole if value is None else value).alias("value"),
            (sf.col("headers") if has_headers else sf.lit(None)).alias("headers"),
            sf.unix_millis(sf.col(_TIME)).alias("time_ms"),
        )
    except AnalysisException as error:
        why = str(error).strip().partition("\n")[0]
        raise LakeError(f"{job.table} does not fit: {why}. To do: its columns are {', '.join(table.columns)}") from None


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
    """Return a column as bytes."""
    if name is None and default not in table.columns:
        return None
    chosen = table.select(name or default)
    kind: DataType = chosen.schema.fields[0].dataType
    column = sf.col(name or default)
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, StructType | ArrayType | MapType):
        # In a struct a field that the JSON did not have is null, and most of the fields that are null were absent.
        column = sf.to_json(column, {"ignoreNullFields": "true"})
    return column.cast("string").cast("binary")


def _order(table: DataFrame, job: ReplayJob) -> tuple[list[Column], Column | None]:
    """Return the columns to sort by, and the one with the time of a record."""
    if job.order_by:
        kind = table.select(job.order_by[0]).schema.fields[0].dataType
        first = sf.col(job.order_by[0])
        if isinstance(kind, TimestampNTZType):
            first = first.cast("timestamp")
        timed = isinstance(kind, TimestampType | TimestampNTZType | StringType)
        moment = (sf.try_to_timestamp(first) if isinstance(kind, StringType) else first) if timed else None
        return [sf.col(name) for name in job.order_by], moment
    names = set(table.columns)
    timed = "timestamp" in names and isinstance(table.schema["timestamp"].dataType, TimestampType)
    if {"partition", "offset"} <= names:
        before = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
        # At least the time of the previous record of the partition, so that sorting by time keeps its order.
        moment = sf.max("timestamp").over(before) if timed else None
        order = [sf.col("partition"), sf.col("offset")]
        return ([sf.col(_TIME), *order] if timed else order), moment
    if timed:
        return [sf.col("timestamp")], sf.col("timestamp")
    raise LakeError(
        f"{job.table} has no columns that determine its order. To do: give --order-by, one or more of "
        f"{', '.join(table.columns)}"
    )


def send(remote: Remote, job: ReplayJob, ordered: DataFrame, shown: Callable[[int], None] = lambda sent: None) -> int:
    """Send rows; return how many.

    Args:
        remote: the brokers.
        job: where to send, and how fast.
        ordered: the result of :func:`rows`.
        shown: called with the number of acknowledged records.

    Raises:
        KafkaError: the broker refused a record.
    """
    pace, producer = Pace(job.rate, job.speed), remote.producer()
    due: list[Any] = []
    acknowledged = 0

    def flush() -> None:
        nonlocal acknowledged
        if due:
            keys, values, headers, times = zip(*due, strict=True)
            receipts = producer.send_many(job.topic, values, keys, headers, times if job.keep_timestamps else None)
            acknowledged += sum(receipt.result().record_count for receipt in receipts)
            due.clear()
        shown(acknowledged)

    iterator = ordered.toLocalIterator(prefetchPartitions=True)
    began = time.monotonic()
    for number, (key, value, headers, time_ms) in enumerate(iterator):
        at = began + pace.due(number, time_ms)
        if at - time.monotonic() > 0.002 or len(due) == _CHUNK:
            flush()
            time.sleep(max(at - time.monotonic(), 0.0))
        named = [(name, _bytes(content)) for name, content in headers or ()]
        due.append((_bytes(key), _bytes(value), named, round(time.time() * 1000) if time_ms is None else time_ms))
    flush()
    return acknowledged


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
