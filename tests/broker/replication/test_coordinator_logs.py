"""The order of the results of a coordinator's log, and what it says while replicas are missing."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_broker.cluster.image import BrokerRegistered, Image, PartitionChanged, PartitionInfo, TopicCreated
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.coordinators.leader import DistantLog, Leader
from barnabas_broker.replication.coordinator_logs import ConsumedLogs, CoordinatorTopicLog
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.replica import Replica
from barnabas_broker.storage import LogDirectory
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import TRANSACTIONS_TOPIC
from barnabas_protocol.records.builder import build_batch


async def test_results_come_in_the_order_of_the_log(tmp_path: Path) -> None:
    """When the last follower leaves the ISR, an append that waited for it is durable, and the next one at once."""
    config = Config(BROKER_KEYS, {})
    both = PartitionInfo(1, 0, (1, 2), (1, 2))
    topic = TopicCreated(TRANSACTIONS_TOPIC, bytes(range(16)), (both,), {"min.insync.replicas": "1"})
    image = Image("cluster").apply_all([BrokerRegistered(1, {}), BrokerRegistered(2, {}), topic])
    directory = LogDirectory.open(tmp_path, config, node_id=1, now_ms=0)
    replicas = ReplicaManager(directory, config, 1, lambda: 0, now=lambda: 0.0)
    replicas.start(image)
    log = CoordinatorTopicLog(TRANSACTIONS_TOPIC, replicas, lambda: 0)
    results: list[str] = []

    def append(name: str) -> None:
        log.append(0, build_batch([(b"key", b"value", (), 0)]), lambda error: results.append(f"{name}: {error.name}"))

    append("first")
    change = PartitionChanged(TRANSACTIONS_TOPIC, 0, both._replace(isr=(1,), partition_epoch=1))
    replicas.image_changed(image.apply(change), [change])
    append("second")
    append("third")
    for _ in range(3):
        await asyncio.sleep(0)
    append("fourth")
    assert results == ["first: NONE", "second: NONE", "third: NONE", "fourth: NONE"]
    replicas.wake_fetches()
    directory.close(0)


async def test_an_append_that_waits_for_replicas_is_logged_once_and_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(BROKER_KEYS, {})
    alone = PartitionInfo(1, 0, (1, 2), (1,))
    topic = TopicCreated(TRANSACTIONS_TOPIC, bytes(range(16)), (alone,), {"min.insync.replicas": "2"})
    image = Image("cluster").apply_all([BrokerRegistered(1, {}), BrokerRegistered(2, {}), topic])
    directory = LogDirectory.open(tmp_path, config, node_id=1, now_ms=0)
    replicas = ReplicaManager(directory, config, 1, lambda: 0, now=lambda: 0.0)
    replicas.start(image)
    log = CoordinatorTopicLog(TRANSACTIONS_TOPIC, replicas, lambda: 0)
    results: list[ErrorCode] = []

    def append() -> None:
        log.append(0, build_batch([(b"key", b"value", (), 0)]), results.append)

    with caplog.at_level("INFO"):
        for _ in range(20):  # as a client asks for two seconds
            append()
        assert results == [ErrorCode.NOT_ENOUGH_REPLICAS] * 20
        assert caplog.text.count("cannot be written") == 1
        change = PartitionChanged(TRANSACTIONS_TOPIC, 0, alone._replace(isr=(1, 2), partition_epoch=1))
        replicas.image_changed(image.apply(change), [change])
        append()
        assert caplog.text.count("can be written again") == 1
        for number in range(300):  # a replica that comes and goes
            isr = (1, 2)[: 1 + number % 2]
            change = PartitionChanged(TRANSACTIONS_TOPIC, 0, alone._replace(isr=isr, partition_epoch=2 + number))
            replicas.image_changed(image.apply(change), [change])
            append()
        assert len(results) > 150
        assert caplog.text.count("cannot be written") + caplog.text.count("can be written again") == 2
    replicas.wake_fetches()
    directory.close(0)


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[tuple[ConsumedLogs, Replica]]:
    """Partition 0 of the topic t."""
    config = Config(BROKER_KEYS, {})
    alone = PartitionInfo(1, 0, (1,), (1,))
    topic = TopicCreated("t", bytes(range(16)), (alone,), {})
    image = Image("cluster").apply_all([BrokerRegistered(1, {}), topic])
    directory = LogDirectory.open(tmp_path, config, node_id=1, now_ms=0)
    replicas = ReplicaManager(directory, config, 1, lambda: 0, now=lambda: 0.0)
    replicas.start(image)
    yield ConsumedLogs(replicas), replicas.find("t", 0)
    directory.close(0)


TWO: list[tuple[bytes, bytes, tuple[()], int]] = [(b"key", b"value", (), 0), (b"key", b"value", (), 0)]


async def test_a_replica_that_follows_in_sync_is_read_as_that_of_the_leader(tmp_path: Path) -> None:
    config = Config(BROKER_KEYS, {})
    led_by_two = PartitionInfo(2, 4, (1, 2), (1, 2))
    topic = TopicCreated("t", bytes(range(16)), (led_by_two,), {})
    image = Image("cluster").apply_all([BrokerRegistered(1, {}), BrokerRegistered(2, {}), topic])
    directory = LogDirectory.open(tmp_path, config, node_id=1, now_ms=0)
    replicas = ReplicaManager(directory, config, 1, lambda: 0, now=lambda: 0.0)
    replicas.start(image)
    logs = ConsumedLogs(replicas)
    (following,) = replicas.each()
    following.log.append_as_follower(build_batch(TWO, compression="gzip"))
    assert logs.leader("t", 0) == Leader(2, 4, is_here=False)
    assert (logs.readable("t", 0), logs.end("t", 0)) == ((0, 0), 2), "the high watermark is not known yet"
    following.log.set_high_watermark(2)
    assert logs.readable("t", 0) == (0, 2)
    assert logs.has_records("t", 0, 1)
    assert logs.codecs("t", 0, 0) == ("gzip", (), 0)
    assert logs.since("t", 0, 0) == 0
    late = PartitionChanged("t", 0, led_by_two._replace(isr=(2,), partition_epoch=1))
    replicas.image_changed(image.apply(late), [late])
    known = logs.readable("t", 0), logs.end("t", 0), logs.has_records("t", 0, 1)
    assert known == (None, None, None), "it may lack committed records"
    assert (logs.codecs("t", 0, 0), logs.since("t", 0, 0)) == (None, None)
    assert logs.is_distant("t", 0)
    logs.learn({("t", 0): DistantLog(1, 9, 3, has_records=True)})
    assert (logs.readable("t", 0), logs.end("t", 0)) == ((1, 9), None)
    assert (logs.has_records("t", 0, 3), logs.has_records("t", 0, 4)) == (True, None)
    early = PartitionChanged("t", 0, led_by_two._replace(partition_epoch=2))
    replicas.image_changed(image.apply(early), [early])
    assert (logs.readable("t", 0), logs.has_records("t", 0, 1)) == ((0, 2), True), "its own replica counts"
    directory.close(0)


async def test_the_codecs_at_an_offset_and_before(replica: tuple[ConsumedLogs, Replica]) -> None:
    logs, here = replica
    for codec in ("none", "gzip", "gzip", "zstd"):
        here.append(build_batch(TWO, compression=codec), 0)
    assert logs.codecs("t", 0, 6) == ("zstd", ("gzip", "none"), 6)
    assert logs.codecs("t", 0, 7) == ("zstd", ("gzip", "none"), 7)
    assert logs.codecs("t", 0, 0) == ("none", (), 0)
    assert logs.codecs("t", 0, 4) == ("zstd", ("gzip", "none"), 6), "it is the first one that is compressed with it"
    assert logs.codecs("t", 0, 8) is logs.codecs("t", 0, 9) is logs.codecs("t", 1, 0) is None


async def test_the_first_batch_since_a_time(replica: tuple[ConsumedLogs, Replica]) -> None:
    logs, here = replica
    for time_ms in (100, 200):
        here.append(build_batch([(b"key", b"value", (), time_ms), (b"key", b"value", (), time_ms + 10)]), 0)
    assert [logs.since("t", 0, time_ms) for time_ms in (0, 100, 111, 205, 211)] == [0, 0, 2, 2, None]
    assert logs.since("t", 1, 0) is None


async def test_records_that_are_all_aborted(replica: tuple[ConsumedLogs, Replica]) -> None:
    logs, here = replica

    def transact(sequence: int, *, committed: bool) -> None:
        batch = build_batch(TWO, transactional=True, producer_id=7, producer_epoch=0, base_sequence=sequence)
        verified = here.log.producers.verify(7, 0, sequence, 0, "prices", bumps_epoch=False)
        here.append(batch, 0, verification=verified)
        here.append_marker(7, 0, 0, commit=committed, coordinator_epoch=0, transaction_version=1)

    transact(0, committed=False)
    assert logs.aborted("t", 0, 0) == (2, 2, ("prices",))
    transact(2, committed=True)
    transact(4, committed=False)
    assert logs.aborted("t", 0, 0) is logs.aborted("t", 0, 3) is None, "another transaction of the same producer"
    assert logs.aborted("t", 0, 5) == (2, 8, ("prices",)), "the marker of the one before is no record"
    assert logs.aborted("t", 0, 8) is None
    assert (logs.has_records("t", 0, 3), logs.has_records("t", 0, 5)) == (True, False)
