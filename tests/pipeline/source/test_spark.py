"""The source in Spark: its name, columns, batches, streams, restarts and errors."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from barnabas_broker.testing import Broker
from barnabas_client import Producer, TopicPartition
from tests.pipeline.support import SLOW_WORKER, admin, committed, numbered, options, produce, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def load(spark: SparkSession, broker: Broker, **given: str) -> DataFrame:
    return spark.read.format("barnabas").options(**options(broker, given)).load()


def drain(
    spark: SparkSession,
    broker: Broker,
    folder: Path,
    way: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    /,
    **given: str,
) -> list[bytes]:
    """Run a query over all records, transformed by `way`; return all values that its sink has so far."""
    stream = spark.readStream.format("barnabas").options(**options(broker, {"startingOffsets": "earliest", **given}))
    query = (
        way(stream.load().select("value"))
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(200)
    except StreamingQueryException as error:
        if SLOW_WORKER not in str(error):
            raise
        return drain(spark, broker, folder, way, **given)
    finally:
        query.stop()
    return sorted(bytes(row.value) for row in spark.read.parquet(str(folder / "out")).collect())


#: From the guide "Structured Streaming + Kafka Integration".
COLUMNS = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
]
HEADERS = ("headers", "array<struct<key:string,value:binary>>")


def test_the_columns_are_those_of_sparks_connector(spark: SparkSession, broker: Broker, topic: str) -> None:
    async def work() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            headers = [("a", b"1"), ("a", None)]
            await producer.send_and_wait(topic, b"v", b"k", 1, timestamp_ms=1_700_000_000_123, headers=headers)
            await producer.send_and_wait(topic, None, partition=1, timestamp_ms=1_700_000_000_124)

    run(work())
    assert load(spark, broker, subscribe=topic).dtypes == COLUMNS
    found = load(spark, broker, subscribe=topic, includeHeaders="TRUE")
    assert found.dtypes == [*COLUMNS, HEADERS]
    first, second = found.orderBy("offset").selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition) == (b"k", b"v", topic, 1)
    assert (first.offset, first.ms, first.timestampType) == (0, 1_700_000_000_123, 0)
    assert [(one.key, one.value and bytes(one.value)) for one in first.headers] == [("a", b"1"), ("a", None)]
    assert (second.key, second.value, second.offset, second.headers) == (None, None, 1, None)


@pytest.mark.slow
def test_a_batch_is_split_among_tasks(spark: SparkSession, broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, numbered(0, 3000), partition=0)
    found = load(spark, broker, assign=f'{{"{topic}": [0]}}', minPartitions="3")
    tasks = found.groupBy(spark_partition_id().alias("task")).count().orderBy("task").collect()
    assert [row["count"] for row in tasks] == [1000, 1000, 1000]
    assert load(spark, broker, subscribe=topic, endingTimestamp="1").count() == 0


def test_a_query_continues_from_its_checkpoint(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    group = f"group-{topic}"
    given = {"subscribe": topic, "maxOffsetsPerTrigger": "60", "kafka.group.id": group}
    produce(broker.bootstrap_servers, topic, numbered(0, 100))
    assert drain(spark, broker, tmp_path, **given) == sorted(numbered(0, 100))
    # Including the last micro-batch, for which Spark does not call commit.
    assert sum(committed(broker.bootstrap_servers, group).values()) == 100

    admin(broker.bootstrap_servers, lambda one: one.create_partitions({topic: 4}))
    produce(broker.bootstrap_servers, topic, numbered(100, 30), partition=3)
    assert drain(spark, broker, tmp_path, **given) == sorted(numbered(0, 130))
    assert committed(broker.bootstrap_servers, group)[TopicPartition(topic, 3)] == 30


@pytest.mark.slow
def test_data_loss_fails_the_query_and_leaves_its_checkpoint_intact(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    tp = TopicPartition(topic, 0)
    produce(broker.bootstrap_servers, topic, numbered(0, 10), partition=0)
    drain(spark, broker, tmp_path, subscribe=topic)
    produce(broker.bootstrap_servers, topic, numbered(10, 10), partition=0)
    admin(broker.bootstrap_servers, lambda one: one.delete_records({tp: 15}))
    with pytest.raises(StreamingQueryException, match=f"offsets 10 to 14 of {tp} are gone"):
        drain(spark, broker, tmp_path, subscribe=topic)
    found = drain(spark, broker, tmp_path, subscribe=topic, failOnDataLoss="false")
    assert found == sorted([*numbered(0, 10), *numbered(15, 5)])


@pytest.mark.slow
def test_a_killed_worker_loses_no_records(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    produce(broker.bootstrap_servers, topic, numbered(0, 100))
    died = tmp_path / "died"

    def fatal(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            if not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    def through(rows: DataFrame) -> DataFrame:
        return rows.mapInArrow(fatal, rows.schema)

    # On local[2] Spark does not retry tasks: the query fails.
    with pytest.raises(StreamingQueryException, match="Python worker exited unexpectedly"):
        drain(spark, broker, tmp_path, through, subscribe=topic)
    assert died.exists()
    assert drain(spark, broker, tmp_path, through, subscribe=topic) == sorted(numbered(0, 100))


@pytest.mark.slow
def test_a_running_query_reads_new_records_and_partitions(spark: SparkSession, broker: Broker, topic: str) -> None:
    name = topic.replace("-", "_")
    stream = spark.readStream.format("barnabas").options(**options(broker, subscribe=topic, startingOffsets="earliest"))
    query = stream.load().writeStream.format("memory").queryName(name).start()
    try:
        produce(broker.bootstrap_servers, topic, numbered(0, 10))
        query.processAllAvailable()
        admin(broker.bootstrap_servers, lambda one: one.create_partitions({topic: 5}))
        produce(broker.bootstrap_servers, topic, numbered(10, 5), partition=4)
        query.processAllAvailable()
        found = sorted(bytes(row.value) for row in spark.table(name).collect())
    finally:
        query.stop()
    assert found == sorted(numbered(0, 15))


def test_errors_name_the_option_and_the_value(spark: SparkSession, broker: Broker, topic: str) -> None:
    def message(work: Any) -> str:
        with pytest.raises(PySparkException) as raised:
            work()
        return str(raised.value)

    text = message(lambda: load(spark, broker, subscribe="nowhere").count())
    assert "topic 'nowhere' does not exist" in text
    text = message(lambda: load(spark, broker, subscribe=topic, minPartitions="many").count())
    assert "option 'minPartitions' is 'many': give a whole number, 1 or more" in text


@pytest.mark.slow
def test_errors_of_a_stream_name_the_option_and_the_value(spark: SparkSession, broker: Broker, topic: str) -> None:
    given = options(broker, subscribe=topic, maxOffsetsPerTrigger="many")
    query = spark.readStream.format("barnabas").options(**given).load().writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(100)
    assert "option 'maxOffsetsPerTrigger' is 'many': give a whole number, 1 or more" in str(raised.value)
    assert "UnboundLocalError" not in str(raised.value)


@pytest.mark.slow
def test_another_schema_is_an_error(spark: SparkSession, broker: Broker, topic: str) -> None:
    reader = spark.read.format("barnabas").options(**options(broker, subscribe=topic)).schema("value string")
    with pytest.raises(PySparkException, match="the source has a fixed schema"):
        reader.load().count()
