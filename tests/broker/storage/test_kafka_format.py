"""Apache Kafka reads our files, and we read Apache Kafka's."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas_broker.storage import Inline, LogDirectory, TopicPartition, names
from barnabas_broker.storage.inspect import DumpedBatch, Problem, check, dump
from barnabas_broker.storage.producer_state import read_snapshot
from barnabas_protocol.records import ControlType, control_record_type
from tests.broker.storage.support import TOPIC_ID, TP, at_once, batch, broker_config, read_records, topic_config
from tests.interop.kafka_server import ApacheKafka, run_tool

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.usefixtures("needs_jars")]


def written(path: Path) -> Path:
    """A directory that we have written and closed: segments, all codecs, a producer, epochs, compacted."""
    config = broker_config(log_index_interval_bytes="200")
    directory = LogDirectory.open(path, config, node_id=1, now_ms=0, background=Inline())
    log = directory.create(
        TP, TOPIC_ID, topic_config({"segment.bytes": "6000", "cleanup.policy": "compact"}, config), 0
    )
    sequence = 0
    for n in range(60):
        codec = ("none", "gzip", "snappy", "lz4", "zstd")[n % 5]
        keys = [b"key-%d" % ((n + k) % 30) for k in range(4)]
        log.append_as_leader(
            batch(*(b"value-%d-%d" % (n, k) * 5 for k in range(4)), keys=keys, timestamp=1_700_000_000_000 + n * 10,
                  compression=codec, producer=(4711, 0, sequence)),
            leader_epoch=n // 20,
            now_ms=1_700_000_000_000 + n * 10,
        )  # fmt: skip
        sequence += 4
    log.append_as_leader(
        batch(b"t", keys=[b"gone"], timestamp=1_700_000_001_000), leader_epoch=3, now_ms=1_700_000_001_000
    )
    log.set_high_watermark(log.log_end_offset)
    log.flush()
    directory.checkpoint()
    assert directory.compact(1_700_000_002_000)
    directory.close(1_700_000_002_000)
    return path / str(TP)


def dump_log(*args: str) -> str:
    done = run_tool("kafka-dump-log", *args)
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout + done.stderr  # what does not match goes to stderr, with exit code 0


def test_kafkas_dump_tool_reads_our_segments(tmp_path: Path) -> None:
    partition = written(tmp_path)
    logs = sorted(partition.glob("*.log"))
    assert len(logs) > 1
    out = dump_log("--deep-iteration", "--print-data-log", "--files", ",".join(map(str, logs)))
    theirs = [
        (int(offset), key, payload)
        for offset, key, payload in re.findall(r"^\| offset: (\d+).*? key: (\S+) payload: (.*)$", out, re.MULTILINE)
    ]
    ours = [
        (record.offset, record.key and record.key.decode(), record.value and record.value.decode())
        for path in logs
        for item in dump(path)
        if not isinstance(item, Problem)
        for record in item.records()
    ]
    assert theirs == ours
    assert not re.search(r"isvalid: false", out)
    assert len(re.findall(r"isvalid: true", out)) > len(logs)


def test_kafkas_dump_tool_accepts_our_indexes_and_snapshots(tmp_path: Path) -> None:
    partition = written(tmp_path)
    indexes = sorted(partition.glob("*.index")) + sorted(partition.glob("*.timeindex"))
    assert sum(path.stat().st_size > 0 for path in indexes) > 2
    out = dump_log("--index-sanity-check", "--files", ",".join(map(str, indexes)))
    assert out.count("passed sanity check") == len(indexes)
    out = dump_log("--verify-index-only", "--files", ",".join(map(str, indexes)))
    assert not re.search("mismatch|out of order|not found", out, re.IGNORECASE), out
    out = dump_log("--files", ",".join(str(path) for path in sorted(partition.glob("*.snapshot"))))
    assert re.search(r"producerId: 4711 producerEpoch: 0 .*lastSequence: 239", out)


@pytest.fixture(scope="module")
def kafka_directory(needs_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The directory of a cleanly shut down Apache Kafka, and the number of records in its topic."""
    count = 5000
    with ApacheKafka() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        topic = NewTopic("events", 1, 1, config={"segment.bytes": "1048576", "index.interval.bytes": "1000"})
        for future in admin.create_topics([topic]).values():
            future.result()
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "compression.type": "lz4",
             "batch.size": 5000, "linger.ms": 1}
        )  # fmt: skip
        for n in range(count):
            producer.produce("events", os.urandom(300) + b"%d" % n, key=b"%d" % (n % 100), timestamp=1000 + n)
            producer.poll(0)
        assert producer.flush(30) == 0
        kafka.stop()
        yield kafka.log_dir, count


def test_we_read_a_directory_of_kafka_and_append_to_it(kafka_directory: tuple[Path, int]) -> None:
    path, count = kafka_directory
    before = check(path / "events-0", records=True)
    assert before.problems == []
    directory = LogDirectory.open(path, broker_config(), node_id=1, now_ms=0, background=Inline())
    try:
        assert directory.was_clean
        log = directory.logs[TopicPartition("events", 0)]
        assert log.topic_id != bytes(16)
        assert (log.log_start_offset, log.log_end_offset, len(log.segments) > 1) == (0, count, True)
        records = read_records(log)
        assert [record.offset for record in records] == list(range(count))
        assert all((record.value or b"").endswith(b"%d" % record.offset) for record in records)
        assert [state.last_sequence for state in log.producers.states.values()] == [count - 1]
        for timestamp in (1000, 1001, 2345, 1000 + count - 1):
            found = at_once(log.offset_for_timestamp(timestamp))
            assert found is not None and found[:2] == (timestamp, timestamp - 1000)
        assert log.leader_epochs.entries()[0][1] == 0
        # Appends continue where it ended.
        log.append_as_leader(batch(b"ours", timestamp=9000), leader_epoch=log.leader_epochs.latest + 1, now_ms=9000)
    finally:
        directory.close(0)
    assert check(path / "events-0").problems == []
    # And Kafka's dump tool reads them.
    last = sorted((path / "events-0").glob("*.log"))[-1]
    out = dump_log("--deep-iteration", "--print-data-log", "--files", str(last))
    assert re.search(rf"offset: {count} .*payload: ours", out)


@pytest.fixture(scope="module")
def kafka_transactions(needs_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a partition with interleaved transactions, of a cleanly shut down Apache Kafka."""
    with ApacheKafka() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        topic = NewTopic("events", 1, 1, config={"segment.bytes": "1048576"})
        for future in admin.create_topics([topic]).values():
            future.result()
        producers = [
            Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name}) for name in ("a", "b")
        ]
        for producer in producers:
            producer.init_transactions(60)
        for n in range(6):
            for producer in producers:
                producer.begin_transaction()
                producer.produce("events", os.urandom(100_000))
                assert producer.flush(60) == 0
            first, second = producers if n % 2 else producers[::-1]
            first.abort_transaction(60)
            second.commit_transaction(60) if n % 3 else second.abort_transaction(60)
        producers[0].begin_transaction()
        producers[0].produce("events", b"open")
        assert producers[0].flush(60) == 0
        kafka.stop()
        yield kafka.log_dir / "events-0"


def test_kafkas_transaction_indexes_and_snapshots_equal_ours(kafka_transactions: Path, tmp_path: Path) -> None:
    """Recovery builds from Kafka's segments the files that Kafka has written beside them."""
    copy = tmp_path / "events-0"
    LogDirectory.open(tmp_path, broker_config(), node_id=1, now_ms=0, background=Inline()).close(0)
    (tmp_path / names.CLEAN_SHUTDOWN).unlink()
    copy.mkdir()
    theirs = {
        path.name: path.read_bytes()
        for path in kafka_transactions.iterdir()
        if path.suffix in (names.TXN_INDEX, names.SNAPSHOT) and path.stat().st_size
    }
    assert {names.TXN_INDEX, names.SNAPSHOT} == {Path(name).suffix for name in theirs}
    for path in [*kafka_transactions.glob("*.log"), kafka_transactions / names.PARTITION_METADATA]:
        (copy / path.name).write_bytes(path.read_bytes())
    directory = LogDirectory.open(tmp_path, broker_config(), node_id=1, now_ms=0, background=Inline())
    log = directory.logs[TopicPartition("events", 0)]
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset - 1
    directory.close(0)
    compared = 0
    for name, content in theirs.items():
        ours = (copy / name).read_bytes() if (copy / name).exists() else None
        if name.endswith(names.TXN_INDEX):
            assert ours == content
        elif ours is not None:  # recovery writes only that of the end
            assert known(ours) == known(content)
            compared += 1
    assert compared == 1


def known(snapshot: bytes) -> dict[int, tuple[object, ...]]:
    """What a snapshot says of each producer; Kafka writes them in no order."""
    return {
        state.producer_id: (
            state.epoch,
            state.coordinator_epoch,
            state.transaction_start,
            state.last_timestamp,
            *state.batches,
        )
        for state in read_snapshot(snapshot)
    }


def test_our_markers_equal_kafkas(kafka_transactions: Path, tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, broker_config(), node_id=1, now_ms=0, background=Inline())
    log = directory.create(TP, TOPIC_ID, topic_config(), 0)
    kinds = set()
    for path in sorted(kafka_transactions.glob("*.log")):
        for item in dump(path):
            assert isinstance(item, DumpedBatch)
            header = item.header
            if not header.is_control:
                continue
            record = item.records()[0]
            kind = control_record_type(record)
            kinds.add(kind)
            log.truncate_fully_and_start_at(header.base_offset)
            log.append_marker(
                header.producer_id,
                header.producer_epoch,
                commit=kind is ControlType.COMMIT,
                coordinator_epoch=int.from_bytes((record.value or b"")[2:6], "big"),
                transaction_version=2,
                leader_epoch=header.leader_epoch,
                now_ms=record.timestamp,
            )
            ours = next(iter(dump(log.segments.active.path(names.LOG))))
            assert isinstance(ours, DumpedBatch)
            assert ours.data == item.data
    assert kinds == {ControlType.ABORT, ControlType.COMMIT}
    directory.close(0)
