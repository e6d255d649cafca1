"""The source of a streaming query without Spark: micro-batches, data loss, commits and errors."""

import gc
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from barnabas_broker.testing import Broker
from barnabas_client import Admin, Producer, TopicPartition
from barnabas_client.errors import KafkaTimeoutError
from barnabas_client.loop_thread import close_loop_thread
from barnabas_pipeline.brokers.remote import remote_for
from barnabas_pipeline.source.offsets import OffsetRange, SourceOffset
from barnabas_pipeline.source.options import ReadOptions
from barnabas_pipeline.source.planning import DataLossError
from barnabas_pipeline.source.reader import BatchReader, RangePartition, _freeze_modules
from barnabas_pipeline.source.stream import StreamReader
from tests.pipeline.support import admin, committed, numbered, options, produce, run

pytestmark = pytest.mark.broad

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def _disconnected() -> Iterator[None]:
    yield
    close_loop_thread()


def stream(broker: Broker, topic: str, given: dict[str, str] | None = None) -> StreamReader:
    given_options = options(broker, {"subscribe": topic, "startingOffsets": "earliest", **(given or {})})
    return StreamReader(lambda: ReadOptions.of(given_options, streaming=True))


def read(reader: StreamReader | BatchReader, partitions: Any) -> list[bytes]:
    return sorted(
        value for one in partitions for batch in reader.read(one) for value in batch.column("value").to_pylist()
    )


def values(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    return read(reader, reader.partitions(start, end))


def positions(offset: dict[str, Any], topic: str) -> dict[str, int]:
    found: dict[str, int] = offset[topic]
    return found


def delete_before(broker: Broker, tp: TopicPartition, offset: int) -> None:
    admin(broker.bootstrap_servers, lambda one: one.delete_records({tp: offset}))


def test_a_query_reads_existing_and_then_new_records(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, numbered(0, 20))
    reader = stream(broker, topic)
    start = reader.initialOffset()
    assert positions(start, topic) == {"0": 0, "1": 0, "2": 0}
    end = reader.latestOffset(start, ALL)
    assert values(reader, start, end) == sorted(numbered(0, 20))
    assert reader.latestOffset(end, ALL) == end
    produce(broker.bootstrap_servers, topic, numbered(20, 5))
    later = reader.latestOffset(end, ALL)
    assert values(reader, end, later) == sorted(numbered(20, 5))
    assert reader.reportLatestOffset() == later


def test_a_new_query_starts_at_the_latest_offset_by_default(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, numbered(0, 5), partition=0)
    reader = StreamReader(lambda: ReadOptions.of(options(broker, subscribe=topic), streaming=True))
    assert positions(reader.initialOffset(), topic) == {"0": 5, "1": 0, "2": 0}
    produce(broker.bootstrap_servers, topic, numbered(5, 5), partition=0)
    assert positions(reader.initialOffset(), topic) == {"0": 5, "1": 0, "2": 0}


def test_a_micro_batch_is_limited(broker: Broker, topic: str) -> None:
    for partition, count in ((0, 90), (1, 9), (2, 1)):
        produce(broker.bootstrap_servers, topic, numbered(0, count), partition=partition)
    reader = stream(broker, topic, {"maxOffsetsPerTrigger": "10"})
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit)
    assert positions(end, topic) == {"0": 9, "1": 1, "2": 1}
    assert positions(reader.latestOffset(end, ALL), topic) == {"0": 90, "1": 9, "2": 1}


def test_a_micro_batch_waits_for_the_minimum_until_the_maximum_delay(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, numbered(0, 5))
    reader = stream(broker, topic, {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "10m"})
    now = 0.0
    reader._clock = lambda: now
    reader._last_batch = 0.0
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    start = reader.initialOffset()
    now = 599.0
    assert reader._next(SourceOffset.of_json(start), limit) is None
    now = 600.0
    assert reader._next(SourceOffset.of_json(start), limit) is not None
    now = 0.0
    produce(broker.bootstrap_servers, topic, numbered(0, 5))
    assert reader._next(SourceOffset.of_json(start), limit) is not None


def test_available_now_reads_up_to_the_end_at_its_start(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, numbered(0, 30))
    reader = stream(broker, topic, {"maxOffsetsPerTrigger": "20", "minOffsetsPerTrigger": "20"})
    reader.prepareForTriggerAvailableNow()
    produce(broker.bootstrap_servers, topic, numbered(30, 30))
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    found: list[bytes] = []
    while (end := reader.latestOffset(start, limit)) != start:
        found += values(reader, start, end)
        start = end
    assert sorted(found) == sorted(numbered(0, 30))


def test_new_partitions_are_read_from_their_beginning(broker: Broker, topic: str) -> None:
    reader = stream(broker, topic, {"startingOffsets": "latest"})
    start = reader.initialOffset()
    admin(broker.bootstrap_servers, lambda one: one.create_partitions({topic: 5}))
    produce(broker.bootstrap_servers, topic, numbered(0, 7), partition=4)
    end = reader.latestOffset(start, ALL)
    assert positions(end, topic) == {"0": 0, "1": 0, "2": 0, "3": 0, "4": 7}
    assert values(reader, start, end) == sorted(numbered(0, 7))


def test_new_matching_topics_are_read(broker: Broker, topic: str) -> None:
    given_options = options(broker, subscribePattern=f"{topic}(-more)?", startingOffsets="latest")
    reader = StreamReader(lambda: ReadOptions.of(given_options, streaming=True))
    start = reader.initialOffset()
    broker.create_topic(f"{topic}-more")
    produce(broker.bootstrap_servers, f"{topic}-more", numbered(0, 3))
    end = reader.latestOffset(start, ALL)
    assert values(reader, start, end) == sorted(numbered(0, 3))


def test_records_deleted_before_a_micro_batch_are_data_loss(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    tp = TopicPartition(topic, 0)
    produce(broker.bootstrap_servers, topic, numbered(0, 10), partition=0)
    reader = stream(broker, topic)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    delete_before(broker, tp, 4)
    with pytest.raises(DataLossError, match=f"offsets 0 to 3 of {tp} are gone: it starts at 4.*failOnDataLoss"):
        reader.partitions(start, end)
    easy = stream(broker, topic, {"failOnDataLoss": "false"})
    with caplog.at_level(logging.WARNING):
        assert values(easy, start, end) == sorted(numbered(4, 6))
    assert f"offsets 0 to 3 of {tp} are gone" in caplog.text


def test_records_deleted_during_a_task_are_data_loss(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, numbered(0, 10), partition=0)
    reader = stream(broker, topic)
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, ALL))
    delete_before(broker, TopicPartition(topic, 0), 7)
    with pytest.raises(DataLossError, match=f"offsets 0 to 6 of {topic}-0 are gone"):
        read(reader, partitions)
    assert read(stream(broker, topic, {"failOnDataLoss": "false"}), partitions) == sorted(numbered(7, 3))


def test_a_recreated_topic_is_data_loss(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, numbered(0, 3), partition=0)
    reader = stream(broker, topic)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    broker.delete_topic(topic)
    broker.create_topic(topic, partitions=3)
    produce(broker.bootstrap_servers, topic, numbered(100, 9), partition=0)  # past the old offset
    end = reader.latestOffset(start, ALL)
    with pytest.raises(DataLossError, match=f"topic '{topic}' was deleted and created again"):
        reader.partitions(start, end)
    assert values(stream(broker, topic, {"failOnDataLoss": "false"}), start, end) == sorted(numbered(100, 9))


def test_a_micro_batch_does_not_read_a_topic_recreated_since(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, numbered(0, 3), partition=0)
    reader, easy = stream(broker, topic), stream(broker, topic, {"failOnDataLoss": "false"})
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    broker.delete_topic(topic)
    broker.create_topic(topic, partitions=3)
    produce(broker.bootstrap_servers, topic, numbered(100, 9), partition=0)
    with pytest.raises(DataLossError, match=f"{topic}-0 was deleted"):
        reader.partitions(start, end)
    assert values(easy, start, end) == []
    assert values(easy, end, easy.latestOffset(end, ALL)) == sorted(numbered(100, 9))


def test_a_deleted_topic_is_data_loss(broker: Broker) -> None:
    topic = "to-be-deleted"
    broker.create_topic(topic)
    produce(broker.bootstrap_servers, topic, numbered(0, 3))
    reader, easy = stream(broker, topic), stream(broker, topic, {"failOnDataLoss": "false"})
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    partitions = reader.partitions(start, end)
    broker.delete_topic(topic)
    with pytest.raises(ValueError, match=f"topic '{topic}' does not exist"):
        reader.latestOffset(end, ALL)
    with pytest.raises(DataLossError, match=f"{topic}-0 was deleted"):
        reader.partitions(start, end)
    with pytest.raises(DataLossError, match=f"{topic}-0 was deleted while offsets 0 to 3"):
        read(reader, partitions)
    assert read(easy, partitions) == []
    gone = easy.latestOffset(end, ALL)
    assert gone == {}
    assert values(easy, end, gone) == []


def test_modules_are_excluded_from_garbage_collection_in_workers(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.unfreeze()  # see tests/conftest.py
    produce(broker.bootstrap_servers, topic, [b"one"])
    reader = BatchReader(ReadOptions.of(options(broker, subscribe=topic), streaming=False))
    assert read(reader, reader.partitions()) == [b"one"]
    assert gc.get_freeze_count() == 0, "only in Spark's tasks"
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    try:
        assert read(reader, reader.partitions()) == [b"one"]
        assert gc.get_freeze_count() > 10_000
    finally:
        _freeze_modules.cache_clear()


def test_compacted_offsets_do_not_block_a_range() -> None:
    eager = {"log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.01"}
    with Broker(config=eager) as broker:
        config = {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.01"}
        broker.create_topic("compacted", config=config)
        reader = stream(broker, "compacted")
        start = reader.initialOffset()
        for _ in range(30):
            produce(broker.bootstrap_servers, "compacted", [b"same"] * 4)
        end = reader.latestOffset(start, ALL)
        assert positions(end, "compacted") == {"0": 120}
        until = time.monotonic() + 60
        found = values(reader, start, end)
        while len(found) == 120 and time.monotonic() < until:
            found = values(reader, start, end)
        assert 0 < len(found) < 120
        assert set(found) == {b"same"}
        # A range without any records.
        assert values(reader, start, {"compacted": {"0": 2}}) == []


def test_completed_micro_batches_are_committed_to_the_group(broker: Broker, topic: str) -> None:
    group = f"group-of-{topic}"
    produce(broker.bootstrap_servers, topic, numbered(0, 4), partition=1)
    reader = stream(broker, topic, {"kafka.group.id": group})
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert committed(broker.bootstrap_servers, group) == {}  # the first micro-batch is not complete yet
    assert reader.latestOffset(end, ALL) == end
    assert committed(broker.bootstrap_servers, group)[TopicPartition(topic, 1)] == 4
    produce(broker.bootstrap_servers, topic, numbered(4, 2), partition=1)
    last = reader.latestOffset(end, ALL)
    reader.commit(last)
    assert committed(broker.bootstrap_servers, group)[TopicPartition(topic, 1)] == 6


def test_a_failed_commit_to_the_group_is_a_warning(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(broker.bootstrap_servers, topic, numbered(0, 4))
    reader = stream(broker, topic, {"kafka.group.id": "forbidden"})
    end = reader.latestOffset(reader.initialOffset(), ALL)
    with broker.faults.error("OffsetCommit", "GROUP_AUTHORIZATION_FAILED"):
        assert reader.latestOffset(end, ALL) == end
    assert "the offsets were not committed to the group  group='forbidden'" in caplog.text


def test_a_commit_that_times_out_names_the_timeout(broker: Broker, topic: str) -> None:
    remote = remote_for(ReadOptions.of(options(broker, subscribe=topic), streaming=True).settings)
    with (
        broker.faults.delay("FindCoordinator", 60),
        pytest.raises(KafkaTimeoutError, match=r"did not answer within 0\.2 s\. To do: check that they are up$"),
    ):
        remote.commit("late", {TopicPartition(topic, 0): 1}, "", 0.2)


def test_a_restarting_broker_is_waited_for(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, numbered(0, 4))
    reader = stream(broker, topic)
    start = reader.initialOffset()
    broker.restart()
    end = reader.latestOffset(start, ALL)
    broker.faults.disconnect()
    assert values(reader, start, end) == sorted(numbered(0, 4))


def test_unreachable_brokers_are_named() -> None:
    given_options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "300", "subscribe": "x"}
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        StreamReader(lambda: ReadOptions.of(given_options, streaming=True)).initialOffset()


def batch(broker: Broker, **given: str) -> BatchReader:
    return BatchReader(ReadOptions.of(options(broker, given), streaming=False))


def ranges(reader: BatchReader) -> list[tuple[int, int, int]]:
    found = [one.range for one in reader.partitions() if isinstance(one, RangePartition)]
    return [(one.tp.partition, one.start, one.end) for one in found]


@pytest.fixture
def timed(broker: Broker, topic: str) -> str:
    """A topic whose partition 0 has 10 records, one per second from 1,000,000 ms on."""

    async def work() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(10):
                await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=1_000_000 + 1000 * number)

    run(work())
    return topic


def test_a_batch_starts_and_ends_at_the_given_offsets(broker: Broker, timed: str) -> None:
    def of(**given: str) -> list[tuple[int, int, int]]:
        return ranges(batch(broker, assign=f'{{"{timed}": [0]}}', **given))

    assert of() == [(0, 0, 10)]
    assert of(startingOffsets=f'{{"{timed}": {{"0": 3}}}}') == [(0, 3, 10)]
    assert of(startingOffsets=f'{{"{timed}": {{"0": -2}}}}', endingOffsets=f'{{"{timed}": {{"0": 7}}}}') == [(0, 0, 7)]
    assert of(endingOffsets=f'{{"{timed}": {{"0": -1}}}}') == [(0, 0, 10)]
    assert of(startingTimestamp="1002500", endingTimestamp="1007000") == [(0, 3, 7)]
    assert of(startingOffsetsByTimestamp=f'{{"{timed}": {{"0": 1009000}}}}', endingTimestamp="9999999") == [(0, 9, 10)]
    assert of(minPartitions="3") == [(0, 0, 3), (0, 3, 6), (0, 6, 10)]


def test_a_time_after_all_records_is_an_error_by_default(broker: Broker, timed: str) -> None:
    given = {"assign": f'{{"{timed}": [0]}}', "startingTimestamp": "9999999"}
    with pytest.raises(ValueError, match=f"'startingTimestamp': no record of {timed}-0 has a timestamp of 9999999"):
        ranges(batch(broker, **given))
    assert ranges(batch(broker, **given, startingOffsetsByTimestampStrategy="latest")) == [(0, 0, 0)]


def test_offsets_must_name_all_partitions(broker: Broker, topic: str) -> None:
    with pytest.raises(ValueError, match=f"'startingOffsets' lacks {topic}-1.*must specify all partitions"):
        ranges(batch(broker, subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 3}}}}'))
    with pytest.raises(ValueError, match=f"'endingOffsets' names {topic}-7, which is not read"):
        ranges(batch(broker, assign=f'{{"{topic}": [0]}}', endingOffsets=f'{{"{topic}": {{"0": 3, "7": 1}}}}'))


def test_missing_topics_and_partitions_are_named(broker: Broker, topic: str) -> None:
    with pytest.raises(ValueError, match="topic 'nowhere' does not exist"):
        ranges(batch(broker, subscribe=f"{topic},nowhere"))
    with pytest.raises(ValueError, match=f"partition {topic}-9 does not exist"):
        ranges(batch(broker, assign=f'{{"{topic}": [9]}}'))


def test_offsets_out_of_range_are_named(broker: Broker, timed: str) -> None:
    delete_before(broker, TopicPartition(timed, 0), 3)
    given = {"assign": f'{{"{timed}": [0]}}'}
    beyond, before = f'{{"{timed}": {{"0": 50}}}}', f'{{"{timed}": {{"0": 2}}}}'
    with pytest.raises(DataLossError, match=f"'endingOffsets' has offset 50 for {timed}-0, which has 3 to 10"):
        ranges(batch(broker, **given, endingOffsets=beyond))
    with pytest.raises(DataLossError, match=f"'startingOffsets' has offset 2 for {timed}-0, which has 3 to 10"):
        ranges(batch(broker, **given, startingOffsets=before))
    easy = batch(broker, **given, startingOffsets=before, endingOffsets=beyond, failOnDataLoss="false")
    assert ranges(easy) == [(0, 3, 10)]


def test_waiting_for_records_times_out(broker: Broker, topic: str) -> None:
    reader = batch(broker, subscribe=topic, **{"kafkaConsumer.pollTimeoutMs": "200"})
    with pytest.raises(RuntimeError, match=f"no record of {topic}-0 arrived at offset 0, .* up to 50.*pollTimeoutMs"):
        read(reader, [RangePartition(OffsetRange(TopicPartition(topic, 0), 0, 50))])


def test_a_corrupt_batch_is_named_with_its_offset(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, numbered(0, 4), partition=0)
    log = next(broker.data_dir.glob(f"{topic}-0/*.log"))
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.write_bytes(data)
    reader = batch(broker, assign=f'{{"{topic}": [0]}}')
    with pytest.raises(RuntimeError, match=rf"records of {topic}-0 at offset 0 cannot be read: CRC"):
        read(reader, reader.partitions())


def test_the_lag_of_a_query_is_visible(broker: Broker, topic: str) -> None:
    """The admin client sees the committed offset and the end of the log."""
    group = f"lag-of-{topic}"
    produce(broker.bootstrap_servers, topic, numbered(0, 6), partition=2)
    reader = stream(broker, topic, {"kafka.group.id": group})
    end = reader.latestOffset(reader.initialOffset(), ALL)
    reader.latestOffset(end, ALL)
    produce(broker.bootstrap_servers, topic, numbered(6, 4), partition=2)

    async def lag(one: Admin) -> int:
        tp = TopicPartition(topic, 2)
        done = (await one.list_consumer_group_offsets(group))[tp].offset
        ends = await one.list_offsets({tp: -1})
        assert done is not None
        return ends[tp].offset - done

    assert admin(broker.bootstrap_servers, lag) == 4
