"""The source, the sinks, progress in a group, the archive and the lag report against Apache Kafka."""

import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from barnabas_client import NewTopic, TopicPartition
from barnabas_client.errors import ErrorCode, KafkaError
from barnabas_client.loop_thread import close_loop_thread
from barnabas_pipeline.brokers.remote import remote_for
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.lag.analysis import LagWindow, analyze
from barnabas_pipeline.lake import live_files
from barnabas_pipeline.lake.archive import ArchiveJob, run_archive
from barnabas_pipeline.sink.checkpoint_folder import CheckpointFolder
from barnabas_pipeline.sink.commit_plan import CommitPlan, StagedBatch
from barnabas_pipeline.sink.committer import Committer
from barnabas_pipeline.sink.decision import Decision
from barnabas_pipeline.sink.transactional import FOLDER, DecisionFiles
from barnabas_pipeline.source.options import ReadOptions
from barnabas_pipeline.source.planning import DataLossError
from barnabas_pipeline.source.stream import StreamReader
from tests.interop.kafka_server import ApacheKafka
from tests.pipeline.staging import stage, writer
from tests.pipeline.support import SLOW_WORKER, admin, committed, consume, numbered, produce, written_values
from tests.pipeline.transacting import Query, committed_values, is_open

pytestmark = pytest.mark.kafka

ALL = ReadAllAvailable()


@pytest.fixture
def kafka(apache_kafka: ApacheKafka) -> Iterator[ApacheKafka]:
    yield apache_kafka
    close_loop_thread()


def create(kafka: ApacheKafka, topic: str) -> str:
    admin(kafka.bootstrap_servers, lambda one: one.create_topics([NewTopic(topic, 3, 1)]))
    return topic


def values(reader: StreamReader, start: dict[str, object], end: dict[str, object]) -> list[bytes]:
    return sorted(
        value
        for one in reader.partitions(start, end)
        for batch in reader.read(one)
        for value in batch.column("value").to_pylist()
    )


def test_a_stream_is_read_and_its_progress_committed(kafka: ApacheKafka) -> None:
    topic = create(kafka, "to-read")
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.group.id": "reading",
    }
    produce(kafka.bootstrap_servers, topic, numbered(0, 500))
    reader = StreamReader(lambda: ReadOptions.of(given, streaming=True))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert values(reader, start, end) == sorted(numbered(0, 500))
    assert reader.latestOffset(end, ALL) == end
    assert sum(committed(kafka.bootstrap_servers, "reading").values()) == 500

    produce(kafka.bootstrap_servers, topic, numbered(500, 10), partition=0)
    later = reader.latestOffset(end, ALL)
    admin(kafka.bootstrap_servers, lambda one: one.delete_records({TopicPartition(topic, 0): later[topic]["0"] - 2}))
    with pytest.raises(DataLossError, match=f"of {topic}-0 are gone"):
        reader.partitions(end, later)


def test_a_failed_commit_continues_where_it_stopped(
    kafka: ApacheKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create(kafka, "to-write")
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.batch.size": "500"}
    one = writer(tmp_path, given, topic)
    staged = stage(one, numbered(0, 300))
    read_batch = Committer._read
    left = 5

    def some(self: Committer, plan: CommitPlan, batch: StagedBatch, sequence: int) -> bytearray:
        nonlocal left
        left -= 1
        if left < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "enough")
        return read_batch(self, plan, batch, sequence)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "_read", some)
        with pytest.raises(KafkaError, match="enough"):
            one.commit(staged, 0)
    assert 0 < len(consume(kafka.bootstrap_servers, topic)) < 300
    one.commit(stage(one, numbered(0, 300)), 0)
    one.commit(stage(one, numbered(300, 100)), 1)
    found = written_values(kafka.bootstrap_servers, topic)
    assert found == sorted(numbered(0, 400))


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_from_spark_through_topics_to_a_lake(spark: SparkSession, kafka: ApacheKafka, tmp_path: Path) -> None:
    first, second = create(kafka, "from-spark"), create(kafka, "to-the-lake")
    reach = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    remote, lake = remote_for(Settings.of(reach)), str(tmp_path / "lake")
    for start in (0, 50):
        numbers = spark.range(start, start + 50)
        rows = numbers.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(id AS n)) AS value")
        rows.write.format("barnabas").options(**reach, topic=first).mode("append").save()

        source = spark.readStream.format("barnabas").options(**reach, subscribe=first, startingOffsets="earliest")
        read = source.option("kafka.group.id", "copying").load().select("key", "value")
        sink = read.writeStream.format("barnabas").options(**reach, topic=second, exactlyOnce="true")
        copied = sink.option("checkpointLocation", str(tmp_path / "copy")).trigger(availableNow=True).start()
        assert copied.awaitTermination(200)
        assert sum(committed(kafka.bootstrap_servers, "copying").values()) == start + 50

        job = ArchiveJob(lake=lake, options=reach, group="keeping")
        done = run_archive(spark, remote, [second], job, pause=None)[second].progress
        assert (done.records, done.quarantined, done.lag) == (50, 0, 0)

    found = pd.read_parquet(live_files(f"{lake}/topic={second}"))
    assert sorted(value["n"] for value in found["value"]) == list(range(100))
    assert sum(committed(kafka.bootstrap_servers, "keeping").values()) == 100
    now = time.time_ns() // 1_000_000
    last = analyze(spark, remote, reach, LagWindow(groups=["keeping"], interval_ms=500), now).rows
    last = last[last["time"] == now]
    assert (last["committed"].sum(), last["lag"].sum()) == (100, 0)


def test_transactions_are_completed_after_their_driver_was_killed(kafka: ApacheKafka, tmp_path: Path) -> None:
    topic = create(kafka, "in-transactions")
    query = Query(tmp_path, {"kafka.bootstrap.servers": kafka.bootstrap_servers}, topic)
    before = query.tasks(0, numbered(0, 300), count=3)
    assert committed_values(kafka.bootstrap_servers, topic) == []
    # As a driver that is killed between its decision and its ends, of which one was sent.
    decision = Decision.first(before, 0)
    assert decision is not None
    DecisionFiles(CheckpointFolder(str(tmp_path / FOLDER))).write(decision)
    remote = remote_for(Settings.of({"kafka.bootstrap.servers": kafka.bootstrap_servers}))
    assert before[1].prepared is not None and before[2].prepared is not None
    assert remote.run(remote.end_transactions([before[1].prepared], committed=True)) == {}
    # A coordinator aborts one of the others, as at its timeout.
    name = before[2].prepared.transactional_id
    admin(kafka.bootstrap_servers, lambda one: one.fence_producers([name]))

    again = query.tasks(0, numbered(0, 300), count=3)
    assert [one.task for one in again if one.prepared is not None] == [2]
    query.writer.commit(again, 0)
    query.writer.commit(query.tasks(0, numbered(0, 300), count=3), 0)
    query.writer.abort(query.tasks(1, numbered(300, 60)), 1)
    query.writer.commit(query.tasks(1, numbered(300, 60)), 1)
    assert committed_values(kafka.bootstrap_servers, topic) == sorted(numbered(0, 360))
    assert not is_open(kafka.bootstrap_servers, topic)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_stream_is_written_in_transactions(spark: SparkSession, kafka: ApacheKafka, tmp_path: Path) -> None:
    first, second = create(kafka, "from-here"), create(kafka, "in-transactions-to-here")
    reach = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    produce(kafka.bootstrap_servers, first, numbered(0, 200))
    source = spark.readStream.format("barnabas").options(**reach, subscribe=first, startingOffsets="earliest")
    read = source.option("maxOffsetsPerTrigger", "70").load().select("key", "value")
    sink = read.writeStream.format("barnabas").options(**reach, topic=second, exactlyOnce="transactional")
    for attempt in range(3):
        copied = sink.option("checkpointLocation", str(tmp_path / "copy")).trigger(availableNow=True).start()
        try:
            assert copied.awaitTermination(150)
            break
        except StreamingQueryException as error:
            if SLOW_WORKER not in str(error) or attempt == 2:
                raise
    assert committed_values(kafka.bootstrap_servers, second) == sorted(numbered(0, 200))
    assert not is_open(kafka.bootstrap_servers, second)
