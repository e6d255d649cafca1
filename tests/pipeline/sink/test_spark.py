"""The sink in Spark: batches, streams, and a stream that is restarted after its commit failed."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from barnabas_broker.testing import Broker
from barnabas_client.producer.partitioner import positive_hash
from tests.pipeline.support import SLOW_WORKER, consume, numbered, options, produce, written_values
from tests.sampling import slow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def save(frame: DataFrame, broker: Broker, mode: str = "append", **given: str) -> None:
    frame.write.format("barnabas").options(**options(broker, given)).mode(mode).save()


def test_rows_are_written_with_all_their_columns(spark: SparkSession, broker: Broker, topic: str) -> None:
    frame = spark.sql(
        f"""SELECT * FROM VALUES
        ('{topic}', 'k1', 'one', 2, array(named_struct('key', 'h', 'value', CAST('x' AS BINARY)))),
        ('{topic}', 'k2', 'two', CAST(NULL AS INT), NULL),
        ('{topic}', NULL, NULL, 0, array()) AS (topic, key, value, partition, headers)"""
    )
    save(frame, broker)
    found = {record.key: record for record in consume(broker.bootstrap_servers, topic)}
    assert len(found) == 3
    assert (found[b"k1"].value, found[b"k1"].partition, found[b"k1"].headers) == (b"one", 2, (("h", b"x"),))
    assert (found[b"k2"].partition, found[b"k2"].headers) == (positive_hash(b"k2") % 3, ())
    assert (found[None].value, found[None].partition) == (None, 0)


@pytest.mark.slow
def test_the_option_topic_overrides_the_column(spark: SparkSession, broker: Broker, topic: str) -> None:
    save(
        spark.sql("SELECT 'elsewhere' AS topic, CAST(id AS STRING) AS value, id AS more FROM range(50)"),
        broker,
        topic=topic,
    )
    assert sorted(map(int, written_values(broker.bootstrap_servers, topic))) == list(range(50))


@pytest.mark.parametrize(
    ("query", "given", "mode", "match"),
    [
        ("SELECT 'x' AS value", {}, "append", "topic option required when no 'topic' column is present"),
        slow(("SELECT 'x' AS data", {"topic": "t"}, "append", "required column 'value' not found: there are data")),
        slow(
            (
                "SELECT 1 AS value",
                {"topic": "t"},
                "append",
                "value column type must be a string or binary, but it is int",
            )
        ),
        slow(("SELECT 'x' AS value", {"topic": "t"}, "overwrite", "save mode overwrite is not allowed")),
        slow(("SELECT 'x' AS value", {"topic": "t", "exactlyOnce": "true"}, "append", "only for streaming queries")),
        slow(("SELECT 'x' AS value, CAST(NULL AS STRING) AS topic", {}, "append", "null topic present in the data")),
        slow(
            (
                "SELECT 'x' AS value",
                {"topic": "t", "kafka.linger.msec": "3"},
                "append",
                "did you mean 'kafka.linger.ms'",
            )
        ),
    ],
)
def test_invalid_writes_are_errors(
    spark: SparkSession, broker: Broker, query: str, given: dict[str, str], mode: str, match: str
) -> None:
    with pytest.raises(PySparkException, match=match):
        save(spark.sql(query), broker, mode, **given)


def copy(spark: SparkSession, broker: Broker, source: str, sink: str, folder: Path, given: dict[str, str]) -> None:
    """Copy a topic, in micro-batches of about 100 records, up to its end."""
    stream = spark.readStream.format("barnabas").options(
        **options(broker, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    )
    writer = stream.load().select("key", "value", "partition").writeStream.format("barnabas")
    sink_options = options(broker, {"topic": sink, "checkpointLocation": str(folder), **given})
    query = writer.options(**sink_options).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(200)
    except StreamingQueryException as error:
        if SLOW_WORKER not in str(error):
            raise
        copy(spark, broker, source, sink, folder, given)
    finally:
        query.stop()


def test_a_stream_is_written_at_least_once(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.create_topic(f"{topic}-out", partitions=3)
    produce(broker.bootstrap_servers, topic, numbered(0, 90))
    copy(spark, broker, topic, f"{topic}-out", tmp_path, {})
    before = consume(broker.bootstrap_servers, topic)
    after = consume(broker.bootstrap_servers, f"{topic}-out")
    assert [(r.partition, r.key, r.value) for r in after] == [(r.partition, r.key, r.value) for r in before]


@pytest.mark.slow  # `test_transactional.py` and `test_exactly_once.py` test the same without Spark
def test_a_stream_is_written_exactly_once(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    sink = f"{topic}-out"
    broker.create_topic(sink, partitions=3)
    produce(broker.bootstrap_servers, topic, numbered(0, 150))
    given = {"exactlyOnce": "true", "kafka.client.id": "once", "kafka.batch.size": "600"}
    with (
        broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", nth=3, times=None, client_id="once"),
        pytest.raises(StreamingQueryException, match="TOPIC_AUTHORIZATION_FAILED"),
    ):
        copy(spark, broker, topic, sink, tmp_path, given)
    begun = consume(broker.bootstrap_servers, sink)
    assert 0 < len(begun) < 100
    copy(spark, broker, topic, sink, tmp_path, given)
    found = consume(broker.bootstrap_servers, sink)
    assert written_values(broker.bootstrap_servers, sink) == sorted(numbered(0, 150))
    # A restart without new records writes nothing.
    copy(spark, broker, topic, sink, tmp_path, given)
    assert consume(broker.bootstrap_servers, sink) == found
