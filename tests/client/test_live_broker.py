"""Admin, producer and consumer against a live broker of the fixture `bootstrap_servers`: Barnabas or Apache Kafka."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import Producer as TransactionalProducer

from barnabas_client import (
    Admin,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from barnabas_client.config import Compression
from barnabas_client.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    KafkaError,
)
from barnabas_client.network.connection import Connection
from barnabas_client.producer.partitioner import positive_hash
from tests.world.broker import until

pytestmark = [pytest.mark.usefixtures("no_complaints"), pytest.mark.broad]

ADD_PARTITIONS_TO_TXN = 24


@pytest.fixture
async def topic(bootstrap_servers: str) -> AsyncIterator[str]:
    """A new topic with four partitions."""
    name = f"topic-{uuid4().hex[:12]}"
    async with Admin(bootstrap_servers=bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name, num_partitions=4, replication_factor=1)])
        yield name
        await admin.delete_topics([name])


@pytest.fixture
def group() -> str:
    return f"group-{uuid4().hex[:12]}"


@asynccontextmanager
async def reading(servers: str, *topics: str, **settings: Any) -> AsyncIterator[Consumer[Any, Any]]:
    given: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 6_000,
        **settings,
    }
    async with Consumer(*topics, bootstrap_servers=servers, **given) as consumer:
        yield consumer


async def write(servers: str, topic: str, values: Collection[bytes], **settings: Any) -> None:
    async with Producer(bootstrap_servers=servers, **settings) as producer:
        receipts = [await producer.send(topic, value, key=value) for value in values]
        await producer.flush()
        for receipt in receipts:
            receipt.result()


def numbered(count: int) -> list[bytes]:
    return [b"%d" % at for at in range(count)]


async def take(consumer: Consumer[bytes, Any], count: int) -> list[Any]:
    taken: list[Any] = []
    while len(taken) < count:
        taken += [record.value for record in await consumer.poll(1_000, max_records=count - len(taken))]
    return taken


# Writing and reading.


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_every_record_once_in_order(bootstrap_servers: str, topic: str, compression: Compression | None) -> None:
    async with Producer(bootstrap_servers=bootstrap_servers, compression_type=compression) as producer:
        receipts = [
            await producer.send(topic, value, key=b"k%d" % (at % 50), headers=[("at", value), ("none", None)])
            for at, value in enumerate(numbered(5_000))
        ]
        written = await asyncio.gather(*receipts)
    async with reading(bootstrap_servers, topic) as consumer:
        read = []
        async for record in consumer:
            read.append(record)
            if len(read) == 5_000:
                break
    assert {(one.partition, one.offset): one.value for one in read} == {
        (place.partition, place.offset): value for place, value in zip(written, numbered(5_000), strict=True)
    }
    for number in range(4):
        values = [int(one.value or b"") for one in read if one.partition == number]
        assert values == sorted(values)
    assert all(one.partition == positive_hash(one.key) % 4 for one in read)
    assert read[0].headers == (("at", read[0].value), ("none", None))


async def test_large_records(bootstrap_servers: str, topic: str) -> None:
    values = [bytes([at]) * 700_000 for at in range(8)]
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for value in values:
            await producer.send(topic, value)
    async with reading(bootstrap_servers, topic, max_partition_fetch_bytes=10_000) as consumer:
        assert sorted(await take(consumer, 8)) == values


async def test_nulls_and_serializers(bootstrap_servers: str, topic: str) -> None:
    def as_json(value: object) -> bytes:
        return json.dumps(value).encode()

    async with Producer(bootstrap_servers=bootstrap_servers, value_serializer=as_json) as sender:
        await sender.send_and_wait(topic, {"a": [1, None]}, partition=0, timestamp_ms=1_700_000_000_000)
        await sender.send_and_wait(topic, None, key=b"k", partition=0)
    async with reading(bootstrap_servers, topic, value_deserializer=json.loads) as consumer:
        first, second = await consumer.getone(), await consumer.getone()
    assert (first.key, first.value, first.timestamp, first.timestamp_type) == (
        None,
        {"a": [1, None]},
        1_700_000_000_000,
        0,
    )
    assert (second.key, second.value) == (b"k", None)


async def test_offsets_and_times(bootstrap_servers: str, topic: str) -> None:
    tp = TopicPartition(topic, 1)
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for time in (1_000, 2_000, 3_000):
            await producer.send_and_wait(topic, b"x", partition=1, timestamp_ms=1_700_000_000_000 + time)
    async with reading(bootstrap_servers) as consumer:
        assert await consumer.end_offsets([tp, TopicPartition(topic, 0)]) == {tp: 3, TopicPartition(topic, 0): 0}
        assert await consumer.beginning_offsets([tp]) == {tp: 0}
        found = (await consumer.offsets_for_times({tp: 1_700_000_001_500}))[tp]
        assert found is not None
        assert (found.offset, found.timestamp) == (1, 1_700_000_002_000)
        assert await consumer.offsets_for_times({tp: 1_800_000_000_000}) == {tp: None}
        consumer.assign([tp])
        await consumer.seek_to_end()
        assert await consumer.position(tp) == 3
        consumer.seek(tp, 1)
        assert (await consumer.getone()).offset == 1
        assert consumer.highwater(tp) == 3


async def test_a_position_out_of_range_is_reset(bootstrap_servers: str, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"v", partition=0)
    async with reading(bootstrap_servers) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 1_000)
        assert (await consumer.getone()).offset == 0


async def test_lag_and_metrics(bootstrap_servers: str, topic: str) -> None:
    await write(bootstrap_servers, topic, numbered(40))
    async with reading(bootstrap_servers) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(4)]
        consumer.assign(partitions)
        assert sum((await consumer.lag()).values()) == 40
        await take(consumer, 15)
        assert sum((await consumer.lag()).values()) == 25
        consumer.pause(*partitions)
        await write(bootstrap_servers, topic, numbered(5))
        await consumer.seek_to_end()
        assert await consumer.lag() == dict.fromkeys(partitions, 0)
        metrics = consumer.metrics()
        assert int(metrics["records-consumed-total"] or 0) >= 15
        assert metrics["assigned-partitions"] == metrics["paused-partitions"] == 4


async def test_a_topic_that_is_created_again_is_read_from_its_start(
    bootstrap_servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    tp = TopicPartition(topic, 0)
    async with Admin(bootstrap_servers=bootstrap_servers) as admin, reading(bootstrap_servers) as consumer:
        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            for value in numbered(3):
                await producer.send_and_wait(topic, value, partition=0)
            consumer.assign([tp])
            assert await take(consumer, 3) == numbered(3)
        consumer.pause(tp)  # Kafka would else create the topic anew by itself, when it is asked about it
        await admin.delete_topics([topic])
        await admin.create_topics([NewTopic(topic, num_partitions=4, replication_factor=1)])
        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            for value in numbered(8):
                await producer.send_and_wait(topic, value, partition=0)
        consumer.resume(tp)
        assert await take(consumer, 8) == numbered(8)
    assert "was deleted and created again" in caplog.text


# Groups.


async def test_metadata_of_commits(bootstrap_servers: str, topic: str, group: str) -> None:
    tp = TopicPartition(topic, 0)
    async with reading(bootstrap_servers, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([tp])
        assert await consumer.committed(tp) is None
        await consumer.commit({tp: (17, "note")})
        assert await consumer.committed_offsets(tp) == {tp: OffsetAndMetadata(17, "note", -1)}


async def test_each_record_is_read_once_while_members_join_and_leave(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    """Three members, one joins late and one leaves early, while records arrive: with a commit at each rebalance none is
    read twice."""
    seen: Counter[bytes | None] = Counter()
    total = 4_000
    done = asyncio.Event()

    async def member(stop: asyncio.Event) -> None:
        async with reading(bootstrap_servers, topic, group_id=group) as consumer:
            while not (stop.is_set() or done.is_set()):
                for record in await consumer.poll(50):
                    seen[record.value] += 1
                if len(seen) == total:
                    done.set()

    async def feed() -> None:
        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            for at, value in enumerate(numbered(total)):
                await producer.send(topic, value)
                if at % 100 == 0:
                    await producer.flush()

    stops = [asyncio.Event() for _ in range(3)]
    async with asyncio.timeout(60):
        first = asyncio.ensure_future(member(stops[0]))
        second = asyncio.ensure_future(member(stops[1]))
        feeding = asyncio.ensure_future(feed())
        await until(lambda: len(seen) > total // 4)
        third = asyncio.ensure_future(member(stops[2]))
        await until(lambda: len(seen) > total // 2)
        stops[0].set()
        await asyncio.gather(first, second, third, feeding)
    assert seen == Counter(numbered(total))


async def poll_for_ever(consumer: Consumer) -> None:
    while True:
        await consumer.poll(1_000)


async def test_a_second_member_with_the_same_instance_id_fences_the_first(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    async with (
        reading(bootstrap_servers, topic, group_id=group, group_instance_id="i") as first,
        reading(bootstrap_servers, topic, group_id=group, group_instance_id="i") as second,
    ):
        with pytest.raises(FencedInstanceIdError):
            await poll_for_ever(first)
        assert len(second.assignment()) == 4


async def test_a_member_that_does_not_poll_leaves(bootstrap_servers: str, topic: str, group: str) -> None:
    await write(bootstrap_servers, topic, numbered(10))
    async with reading(bootstrap_servers, topic, group_id=group, max_poll_interval_ms=500) as stuck:
        await stuck.getone()
        async with reading(bootstrap_servers, topic, group_id=group) as other:
            assert len(await take(other, 10)) == 10
            with pytest.raises(CommitFailedError):
                await stuck.commit()


async def test_a_group_together_with_aiokafka(bootstrap_servers: str, topic: str, group: str) -> None:
    """Members of both clients are in one group, with a leader of either client."""
    theirs = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        heartbeat_interval_ms=100,
        partition_assignment_strategy=[RangePartitionAssignor],
        auto_offset_reset="earliest",
    )
    await theirs.start()
    try:
        async with reading(bootstrap_servers, topic, group_id=group) as ours, asyncio.TaskGroup() as tasks:
            polls = tasks.create_task(poll_for_ever(ours))
            await until(lambda: len(ours.assignment()) == len(theirs.assignment()) == 2)
            polls.cancel()
        await until(lambda: len(theirs.assignment()) == 4)
    finally:
        await theirs.stop()


async def test_records_of_aiokafka_and_for_aiokafka(bootstrap_servers: str, topic: str) -> None:
    sender = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, compression_type="gzip")
    await sender.start()
    places = [await sender.send_and_wait(topic, value, key=value) for value in numbered(50)]
    await sender.stop()
    assert all(place.partition == positive_hash(value) % 4 for place, value in zip(places, numbered(50), strict=True))
    async with reading(bootstrap_servers, topic) as consumer:
        assert sorted(await take(consumer, 50)) == sorted(numbered(50))
    await write(bootstrap_servers, topic, numbered(50), compression_type="zstd")
    reader = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
    await reader.start()
    theirs = [(await reader.getone()).value for _ in range(100)]
    await reader.stop()
    assert Counter(theirs) == Counter(numbered(50) * 2)


async def test_settings_that_the_broker_refuses(bootstrap_servers: str, topic: str, group: str) -> None:
    consumer = Consumer(
        topic, bootstrap_servers=bootstrap_servers, group_id=group, session_timeout_ms=100, heartbeat_interval_ms=30
    )
    with pytest.raises(KafkaError, match=r"INVALID_SESSION_TIMEOUT.*group\.min\.session\.timeout\.ms"):
        await consumer.start()


async def test_read_committed_consumers_skip_aborted_transactions(bootstrap_servers: str, topic: str) -> None:
    host, port = bootstrap_servers.rsplit(":", 1)
    connection = await Connection.open(host, int(port), client_id="test", timeout=60)
    await connection.close()
    if ADD_PARTITIONS_TO_TXN not in connection.versions:
        pytest.skip("the broker has no transactions")

    def transactions() -> None:
        sender = TransactionalProducer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": topic, "compression.type": "lz4"}
        )
        sender.init_transactions(60)
        for at in range(6):
            sender.begin_transaction()
            for value in numbered(50):
                sender.produce(topic, b"%d-%s" % (at, value), partition=0)
            sender.flush(60)  # what is not sent yet an abort would only drop
            if at % 2:
                sender.abort_transaction(60)
            else:
                sender.commit_transaction(60)

    await asyncio.to_thread(transactions)
    everything = [b"%d-%s" % (at, value) for at in range(6) for value in numbered(50)]
    committed = [value for value in everything if value[0:1] in b"024"]
    async with reading(bootstrap_servers, topic, isolation_level="read_committed") as consumer:
        assert await take(consumer, len(committed)) == committed
        assert await consumer.poll(200) == []
        assert await consumer.position(TopicPartition(topic, 0)) == 306  # with the markers
    async with reading(bootstrap_servers, topic) as consumer:
        taken = await take(consumer, len(committed))
        assert any(value[0:1] in b"135" for value in taken)
