"""The source, the sink and the group's progress against Apache Kafka itself, without Spark around them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from barnabas_client import NewTopic, TopicPartition
from barnabas_client.errors import ErrorCode, KafkaError
from barnabas_pipeline.commit import Committer
from barnabas_pipeline.commit_plan import Entry, Plan
from barnabas_pipeline.options import ReadOptions
from barnabas_pipeline.planning import DataLossError
from barnabas_pipeline.remote import close_all
from barnabas_pipeline.stream import StreamReader
from tests.interop.kafka_server import ApacheKafka, KafkaUnavailable, has_tools
from tests.pipeline.support import admin, committed, consume, numbered, produce
from tests.pipeline.test_sink_commit import stage, writer

pytestmark = pytest.mark.kafka

ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    server = ApacheKafka()
    try:
        server.__enter__()
    except KafkaUnavailable as error:
        if os.environ.get("CI") == "true" and has_tools():
            pytest.fail(f"Apache Kafka could not run: {error.reason}", pytrace=False)
        pytest.skip(f"no Apache Kafka: {error.reason}")
    try:
        yield server
    finally:
        close_all()
        server.__exit__(None, None, None)


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
    reader = StreamReader(ReadOptions.of(given, streaming=True))
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


def test_a_failed_commit_goes_on_where_it_stopped(
    kafka: ApacheKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create(kafka, "to-write")
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.batch.size": "500"}
    one = writer(tmp_path, given, topic)
    staged = stage(one, numbered(0, 300))
    whole = Committer._staged
    left = 5

    def some(self: Committer, plan: Plan, entry: Entry, sequence: int) -> bytearray:
        nonlocal left
        left -= 1
        if left < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "enough")
        return whole(self, plan, entry, sequence)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "_staged", some)
        with pytest.raises(KafkaError, match="enough"):
            one.commit(staged, 0)
    assert 0 < len(consume(kafka.bootstrap_servers, topic)) < 300
    one.commit(stage(one, numbered(0, 300)), 0)
    one.commit(stage(one, numbered(300, 100)), 1)
    found = sorted(record.value for record in consume(kafka.bootstrap_servers, topic))
    assert found == sorted(numbered(0, 400))
