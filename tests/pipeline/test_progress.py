"""A query's progress in a consumer group: the listener commits the offsets in progress events."""

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas_broker.testing import Broker
from barnabas_client import TopicPartition
from barnabas_pipeline.progress import GroupProgress, attach
from tests.pipeline.support import committed, numbered, options, produce


def listener(broker: Broker, group: str | None, queries: list[str] | None = None) -> GroupProgress:
    more = {} if group is None else {"kafka.group.id": group}
    return GroupProgress(options(broker, more), queries)


def test_the_progress_of_sparks_own_connector_is_committed(broker: Broker, topic: str) -> None:
    one = listener(broker, f"g-{topic}")
    one.completed("any", [f'{{"{topic}":{{"0":0,"2":7}}}}', '{"logOffset": 3}', None, "17", '"x"'])
    found = {TopicPartition(topic, 0): 0, TopicPartition(topic, 2): 7}
    assert committed(broker.bootstrap_servers, f"g-{topic}") == found


def test_topic_ids_are_not_topics(broker: Broker, topic: str) -> None:
    listener(broker, f"g-{topic}").completed(None, [f'{{"{topic}": {{"1": 4}}, "#ids": {{"{topic}": "00ff"}}}}'])
    assert committed(broker.bootstrap_servers, f"g-{topic}") == {TopicPartition(topic, 1): 4}


def test_without_a_group_id_the_query_name_is_used(broker: Broker, topic: str) -> None:
    one = listener(broker, None)
    one.completed(f"q-{topic}", [f'{{"{topic}": {{"1": 4}}}}'])
    one.completed(None, [f'{{"{topic}": {{"1": 5}}}}'])
    assert committed(broker.bootstrap_servers, f"q-{topic}") == {TopicPartition(topic, 1): 4}


def test_other_queries_are_ignored(broker: Broker, topic: str) -> None:
    one = listener(broker, f"g-{topic}", ["mine"])
    one.completed("other", [f'{{"{topic}": {{"1": 4}}}}'])
    assert committed(broker.bootstrap_servers, f"g-{topic}") == {}
    one.completed("mine", [f'{{"{topic}": {{"1": 5}}}}'])
    assert committed(broker.bootstrap_servers, f"g-{topic}") == {TopicPartition(topic, 1): 5}


def test_a_failed_commit_is_followed_by_the_next_one(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = listener(broker, f"g-{topic}")
    with broker.faults.error("OffsetCommit", "GROUP_AUTHORIZATION_FAILED"), caplog.at_level(logging.WARNING):
        one.completed("q", [f'{{"{topic}": {{"1": 4}}}}'])
    assert "were not committed" in caplog.text
    one.completed("q", [f'{{"{topic}": {{"1": 4}}}}'])
    assert committed(broker.bootstrap_servers, f"g-{topic}") == {TopicPartition(topic, 1): 4}


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ValueError, match=r"Option 'kafka\.bootstrap\.servers' must be specified"):
        GroupProgress({})


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_an_attached_listener_commits_each_micro_batch(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The source has no group id, like Spark's Kafka connector."""
    produce(broker.bootstrap_servers, topic, numbered(0, 30), partition=1)
    group = f"g-{topic}"
    attached = attach(spark, options(broker, {"kafka.group.id": group, "kafka.client.id": "listener"}))
    try:
        stream = spark.readStream.format("barnabas").options(
            **options(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
        )
        query = stream.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        running = query.trigger(availableNow=True).start()
        assert running.awaitTermination(200)
        broker.wait_for_request("OffsetCommit", client_id="listener", count=2, answered=True, timeout=90)
    finally:
        spark.streams.removeListener(attached)
    assert committed(broker.bootstrap_servers, group)[TopicPartition(topic, 1)] == 30
