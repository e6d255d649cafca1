"""Topics as Arrow tables: `Consumer.getmany_arrow` and `barnabas.tables`, against a broker in this process."""

import asyncio
import gc
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import barnabas
import barnabas.sync
from barnabas import TopicPartition
from barnabas.errors import CorruptRecordError, UnknownTopicOrPartitionError
from barnabas.tables import read_batches, read_table
from barnabas.testing import Broker
from barnabas_client.columns import SCHEMA
from barnabas_client.consumer import fetcher
from barnabas_client.consumer.fetched import Chunk, cut
from barnabas_client.loop_thread import close_loop_thread

COUNT = 1_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=False, config={"num.partitions": 2}) as one:
        yield one
    close_loop_thread()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with the numbers 0 to 999 in partition 0 and their negatives in partition 1, a millisecond apart."""
    name = f"t-{uuid.uuid4().hex}"
    numbers = [b"%d" % number for number in range(COUNT)]
    with barnabas.sync.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=2_000) as producer:
        times = range(1_000, 1_000 + COUNT)
        producer.send_many(name, numbers, keys=[b"k"] * COUNT, timestamps_ms=times, partition=0)
        producer.send_many(name, [b"-" + number for number in numbers], timestamps_ms=times, partition=1)
        producer.flush()
    return name


def consumer(broker: Broker, topic: str) -> barnabas.Consumer:
    one = barnabas.Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=50
    )
    one.assign([TopicPartition(topic, 0)])
    return one


async def read(reader: barnabas.Consumer, count: int, most: int | None = None) -> pa.Table:
    """A table of `count` records."""
    tables = []
    async with asyncio.timeout(60):
        while count > 0:
            tables.append(await reader.getmany_arrow(timeout_ms=1_000, max_records=most))
            assert most is None or tables[-1].num_rows <= most
            count -= tables[-1].num_rows
    return pa.concat_tables(tables)


def numbers(table: pa.Table) -> list[int]:
    return [int(value) for value in table.column("value").to_pylist()]


async def test_a_poll_returns_a_table(broker: Broker, topic: str) -> None:
    async with consumer(broker, topic) as reader:
        table = await read(reader, COUNT)
        assert table.schema == SCHEMA
        assert numbers(table) == list(range(COUNT))
        row = table.slice(7, 1).to_pylist()[0]
        assert row == {
            "topic": topic,
            "partition": 0,
            "offset": 7,
            "timestamp": datetime.fromtimestamp(1.007, UTC),
            "timestamp_type": 0,
            "key": b"k",
            "value": b"7",
            "headers": None,
        }
        assert await reader.position(TopicPartition(topic, 0)) == COUNT
        assert reader.metrics()["records-consumed-total"] == COUNT
        assert (await reader.getmany_arrow()).num_rows == 0


async def test_a_poll_returns_no_more_records_than_wanted(broker: Broker, topic: str) -> None:
    async with consumer(broker, topic) as reader:
        assert (await read(reader, 7, 7)).num_rows == 7
        assert await reader.position(TopicPartition(topic, 0)) == 7
        assert numbers(await read(reader, COUNT - 7, 300)) == list(range(7, COUNT))


async def test_tables_and_records_may_alternate(broker: Broker, topic: str) -> None:
    async with consumer(broker, topic) as reader, asyncio.timeout(60):
        assert numbers(await read(reader, 3, 3)) == [0, 1, 2]
        assert (await reader.getone()).value == b"3"
        assert numbers(await read(reader, 2, 2)) == [4, 5]
        seen = []
        async for record in reader:
            seen.append(int(record.value or b""))
            seen += numbers(await read(reader, 2, 2))
            if len(seen) == 9:
                break
        assert seen == list(range(6, 15))


async def test_a_seek_drops_what_was_decoded(broker: Broker, topic: str) -> None:
    async with consumer(broker, topic) as reader:
        await read(reader, 10, 10)
        reader.seek(TopicPartition(topic, 0), 500)
        assert numbers(await read(reader, 3, 3)) == [500, 501, 502]


async def test_arguments_are_checked(broker: Broker, topic: str) -> None:
    async with consumer(broker, topic) as reader:
        with pytest.raises(ValueError, match="timeout_ms is -1"):
            await reader.getmany_arrow(timeout_ms=-1)
        with pytest.raises(ValueError, match="max_records is 0"):
            await reader.getmany_arrow(max_records=0)


async def test_records_before_damage_come_first(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []

    def damaged(*given: Any) -> list[Chunk]:
        chunks = cut(*given)
        if not ends:
            ends.append(chunks[1].end)
        return [_broken(chunk) if chunk.end == ends[0] else chunk for chunk in chunks]

    monkeypatch.setattr(fetcher, "cut", damaged)
    async with consumer(broker, topic) as reader, asyncio.timeout(60):
        table = await reader.getmany_arrow(timeout_ms=10_000)
        assert 0 < table.num_rows < ends[0]
        with pytest.raises(CorruptRecordError, match=f"{topic}-0 at offset {table.num_rows} cannot be decoded: CRC"):
            await reader.getmany_arrow(timeout_ms=10_000)


def _broken(chunk: Chunk) -> Chunk:
    batch = bytearray(chunk.batch or b"")
    batch[-1] ^= 1
    return chunk._replace(batch=memoryview(batch))


def test_a_missing_package_is_named(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"needs pyarrow, .* To do: pip install 'barnabas\[arrow\]'"):
        read_table(topic, bootstrap_servers=broker.bootstrap_servers)


def test_a_topic_is_read_into_a_table(broker: Broker, topic: str) -> None:
    import polars  # Starts threads, which a fork does not have.

    table = read_table(topic, bootstrap_servers=broker.bootstrap_servers)
    assert sorted(numbers(table)) == [*range(1 - COUNT, 0), 0, *range(COUNT)]
    found = polars.from_arrow(table)
    assert isinstance(found, polars.DataFrame)
    assert found.filter(polars.col("key").is_null()).height == COUNT


def test_batches_are_read_by_duckdb(broker: Broker, topic: str) -> None:
    import duckdb  # Takes 0.1 s.

    batches = read_batches(topic, bootstrap_servers=broker.bootstrap_servers)
    relation = duckdb.from_arrow(batches)
    rows = relation.aggregate('partition, count(*), max("offset")').order("partition").fetchall()
    assert rows == [(0, COUNT, COUNT - 1), (1, COUNT, COUNT - 1)]


def test_a_part_of_a_topic(broker: Broker, topic: str) -> None:
    servers = broker.bootstrap_servers

    def time(number: int) -> datetime:
        return datetime.fromtimestamp((1_000 + number) / 1000, UTC)

    part = read_table(topic, partitions=[0], start=time(10), end=time(20), bootstrap_servers=servers)
    assert numbers(part) == list(range(10, 20))
    part = read_table(topic, start={0: 998}, end={1: 2}, bootstrap_servers=servers)
    assert sorted(numbers(part)) == [-1, 0, 998, 999]
    assert read_table(topic, start=time(5 * COUNT), bootstrap_servers=servers).num_rows == 0


def test_what_cannot_be_read_is_an_error(broker: Broker, topic: str) -> None:
    servers = broker.bootstrap_servers
    with pytest.raises(UnknownTopicOrPartitionError, match="read topic 'no-such-topic'"):
        read_table("no-such-topic", bootstrap_servers=servers)
    with pytest.raises(ValueError, match="has no partition 2: it has 2"):
        read_table(topic, partitions=[2], bootstrap_servers=servers)
    with pytest.raises(ValueError, match="group_id is given"):
        read_table(topic, group_id="g", bootstrap_servers=servers)
    with pytest.raises(TypeError, match="'yesterday' is neither a time nor offsets"):
        read_table(topic, start="yesterday", bootstrap_servers=servers)  # type: ignore[arg-type]


def test_a_reader_may_be_dropped(broker: Broker, topic: str) -> None:
    batches = read_batches(topic, bootstrap_servers=broker.bootstrap_servers, max_partition_fetch_bytes=1_000)
    assert next(iter(batches)).num_rows > 0
    del batches
    gc.collect()
    assert read_table(topic, bootstrap_servers=broker.bootstrap_servers).num_rows == 2 * COUNT


def test_no_more_is_buffered_than_may_be_fetched(broker: Broker, topic: str) -> None:
    """Batches of a topic come in parts, not at the end of everything."""
    sizes = [
        batch.num_rows
        for batch in read_batches(topic, bootstrap_servers=broker.bootstrap_servers, max_partition_fetch_bytes=1_000)
    ]
    assert sum(sizes) == 2 * COUNT
    assert max(sizes) < COUNT


def test_ctrl_c_loses_no_records(broker: Broker, topic: str) -> None:
    with barnabas.sync.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(topic, 0)])
        table = reader.getmany_arrow(timeout_ms=10_000, max_records=10)
        assert numbers(table) == list(range(10))
        reader._loop.run(_unused(reader, table))  # as after Ctrl-C
        assert numbers(reader.getmany_arrow(timeout_ms=10_000, max_records=5)) == [0, 1, 2, 3, 4]


async def _unused(reader: "barnabas.sync.Consumer", table: pa.Table) -> None:
    reader._unused(table)
