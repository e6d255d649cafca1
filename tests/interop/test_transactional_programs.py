"""Programs that use transactions, as their authors publish them: each record exactly once, across aborts and kills.

Kafka's TransactionalMessageCopier (which its own system tests use), Kafka Streams' WordCountDemo with
`exactly_once_v2`, and consume-transform-produce loops of aiokafka, kafka-python and franz-go.
"""

import asyncio
import json
import time
import uuid
from collections import defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop import process
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.franz_go import BUILD_LIMIT, program
from tests.interop.kafka_server import KafkaUnavailable, has_tools, jars, start_tool
from tests.interop.server import Server
from tests.kafka_python import kafka
from tests.needs import missing

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

#: Limit of one program in seconds.
LIMIT: Final = 150.0
FOLDER: Final = Path(__file__).parent


def create(server: Server, *topics: str) -> None:
    """Create topics of one partition."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    new = [NewTopic(topic, 1, 1) for topic in topics]
    for created in admin.create_topics(new).values():
        created.result(LIMIT)


def write(server: Server, topic: str, values: Sequence[bytes]) -> None:
    """Write values to partition 0."""
    sender = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap_servers})
    for value in values:
        sender.produce(topic, value, partition=0)
    assert sender.flush(LIMIT) == 0


def committed(server: Server, topic: str) -> Generator[confluent_kafka.Message, None, None]:
    """The committed records of partition 0; fails if no further one arrives within the limit."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": str(uuid.uuid4()),
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        while True:
            message = consumer.poll(LIMIT)
            assert message is not None, f"no more records in {topic} within {LIMIT:.0f} s"
            assert message.error() is None, message.error()
            yield message
    finally:
        consumer.close()


def all_committed(server: Server, topic: str) -> list[bytes]:
    """All committed values of partition 0, when nothing writes to it any more."""
    sender = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap_servers})
    sender.produce(topic, b"the last", partition=0)
    assert sender.flush(LIMIT) == 0
    values: list[bytes] = []
    for message in committed(server, topic):
        if message.value() == b"the last":
            break
        values.append(message.value() or b"")
    return values


# ------------------------------------------------------------------------------------------- TransactionalMessageCopier


@pytest.mark.kafka
@pytest.mark.parametrize("mode", [(), ("--group-mode", "--use-group-metadata")], ids=["assigned", "in a group"])
def test_kafkas_message_copier(server: Server, fresh: str, mode: tuple[str, ...], needs_jars: None) -> None:
    """It aborts transactions at random. It is killed once, and the next one fences it."""
    source, target = f"{fresh}-in", f"{fresh}-out"
    create(server, source, target)
    values = [b"%d" % number for number in range(5_000)]
    write(server, source, values)
    address = ("--broker-list", server.bootstrap_servers, "--consumer-group", fresh, "--transactional-id", fresh)
    topics = ("--input-topic", source, "--input-partition", "0", "--output-topic", target)
    args = (*address, *topics, "--transaction-size", "50", "--enable-random-aborts", *mode)
    copied = 0
    with start_tool("kafka-transactional-message-copier", *args) as first:
        assert first.stdout is not None
        while copied < 1_000:
            copied = _copied(first.stdout.readline(), copied)
        first.kill()
    with start_tool("kafka-transactional-message-copier", *args) as second:
        out, _ = second.communicate(timeout=LIMIT)
        assert second.returncode == 0, out[-2000:]
    assert all_committed(server, target) == values


def _copied(line: str, before: int) -> int:
    assert line, f"the program ended after {before} messages"
    done: int = json.loads(line).get("totalProcessed", before)
    return done


# ------------------------------------------------------------------------------------------------------- Kafka Streams


@pytest.fixture(scope="module")
def streams(needs_jars: None) -> Path:
    """Folder with the jars of Kafka Streams and its examples."""
    try:
        return jars("kafka-streams", FOLDER / "streams" / "pom.xml")
    except KafkaUnavailable as error:
        missing(f"Kafka Streams cannot run here: {error.reason}", on_this_machine=has_tools())


@pytest.mark.kafka
def test_kafka_streams_counts_words_exactly_once(streams: Path, tmp_path: Path) -> None:
    """WordCountDemo, killed while it works, counts each word exactly once: its output is 1, 2, 3, ... of each word."""
    words = ("all", "streams", "lead", "to", "kafka")
    source, target = "streams-plaintext-input", "streams-wordcount-output"  # names of the program
    settings = {
        "processing.guarantee": "exactly_once_v2",
        "state.dir": str(tmp_path / "state"),
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "commit.interval.ms": "100",
    }
    with BarnabasBroker({"group.initial.rebalance.delay.ms": 0}) as server:
        create(server, source, target)
        properties = tmp_path / "streams.properties"
        lines = [f"bootstrap.servers={server.bootstrap_servers}", *(f"{key}={one}" for key, one in settings.items())]
        properties.write_text("\n".join(lines) + "\n")
        main = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
        line = " ".join(words).encode()
        counts: defaultdict[bytes, list[int]] = defaultdict(list)
        written = 0
        output = committed(server, target)
        for end in (300, 600):
            with start_tool(main, str(properties), more=streams) as program:
                write(server, source, [line] * (300 - written % 300))
                written = end
                # The first one is killed in the middle of its work.
                stop = 200 if end == 300 else 600
                while len(counts) < len(words) or min(map(len, counts.values())) < stop:
                    message = next(output)
                    counts[message.key() or b""].append(int.from_bytes(message.value() or b"", "big"))
                if end == 300:
                    program.kill()
        output.close()
    assert counts == {word.encode(): list(range(1, 601)) for word in words}


# ------------------------------------------------------------------------------------------------------ Python clients


async def test_aiokafka_copies_each_record_once(server: Server, fresh: str) -> None:
    """Consume, transform, produce: of three transactions one is aborted, and its records are read again."""
    source, target = f"{fresh}-in", f"{fresh}-out"
    await asyncio.to_thread(create, server, source, target)
    values = [b"%d" % number for number in range(1_000)]
    await asyncio.to_thread(write, server, source, values)
    partition = aiokafka.TopicPartition(source, 0)
    async with (
        aiokafka.AIOKafkaProducer(
            bootstrap_servers=server.bootstrap_servers, transactional_id=fresh, enable_idempotence=True
        ) as sender,
        aiokafka.AIOKafkaConsumer(
            bootstrap_servers=server.bootstrap_servers,
            group_id=fresh,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer,
        asyncio.timeout(LIMIT),
    ):
        consumer.assign([partition])
        position = attempt = 0
        while position < len(values):
            batch = (await consumer.getmany(partition, timeout_ms=1000, max_records=70)).get(partition, [])
            if not batch:
                continue
            attempt += 1
            await sender.begin_transaction()
            for record in batch:
                await sender.send(target, record.value, partition=0)
            await sender.send_offsets_to_transaction({partition: batch[-1].offset + 1}, fresh)
            if attempt % 3 == 0:
                await sender.abort_transaction()
                consumer.seek(partition, position)
            else:
                await sender.commit_transaction()
                position = batch[-1].offset + 1
    assert await asyncio.to_thread(all_committed, server, target) == values


def test_kafka_python_copies_each_record_once(server: Server, fresh: str) -> None:
    """Consume, transform, produce: of three transactions one is aborted, and its records are read again."""
    source, target = f"{fresh}-in", f"{fresh}-out"
    create(server, source, target)
    values = [b"%d" % number for number in range(1_000)]
    write(server, source, values)
    partition = kafka.TopicPartition(source, 0)
    sender = kafka.KafkaProducer(bootstrap_servers=server.bootstrap_servers, transactional_id=fresh)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=server.bootstrap_servers,
        group_id=fresh,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    try:
        sender.init_transactions()
        consumer.assign([partition])
        position = attempt = 0
        deadline = time.monotonic() + LIMIT
        while position < len(values):
            assert time.monotonic() < deadline, position
            batch = consumer.poll(timeout_ms=1000, max_records=70).get(partition, [])
            if not batch:
                continue
            attempt += 1
            after = batch[-1].offset + 1
            sender.begin_transaction()
            for record in batch:
                sender.send(target, record.value, partition=0)
            sender.send_offsets_to_transaction({partition: kafka.OffsetAndMetadata(after, "", -1)}, fresh)
            if attempt % 3 == 0:
                sender.abort_transaction()
                consumer.seek(partition, position)
            else:
                sender.commit_transaction()
                position = after
    finally:
        sender.close(timeout=LIMIT)
        consumer.close(timeout_ms=int(LIMIT * 1000))
    assert all_committed(server, target) == values


# ------------------------------------------------------------------------------------------------------------ franz-go


@pytest.mark.slow  # go builds the program first, which takes minutes
@pytest.mark.timeout(400 + BUILD_LIMIT)
def test_franz_go_copies_each_record_once(server: Server, fresh: str) -> None:
    """A GroupTransactSession, which aborts every third transaction."""
    copier = program("copier")
    source, target = f"{fresh}-in", f"{fresh}-out"
    create(server, source, target)
    values = [b"%d" % number for number in range(1_000)]
    write(server, source, values)
    done = process.run([str(copier), server.bootstrap_servers, source, target, fresh, "1000"], LIMIT)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["aborted"] > 0
    assert all_committed(server, target) == values
