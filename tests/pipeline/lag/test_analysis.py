"""Lag over time on a broker: a group that consumes, stalls and rebalances."""

import asyncio
import time

import pytest
from pyspark.sql import SparkSession

from barnabas_broker.testing import Broker
from barnabas_client import Admin, Consumer, Producer, TopicPartition
from barnabas_pipeline.brokers.remote import remote_for
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.errors import LagError
from barnabas_pipeline.lag import rows as lag_rows
from barnabas_pipeline.lag.analysis import LagWindow, analyze
from tests.pipeline.support import run

pytestmark = pytest.mark.spark


def options(broker: Broker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


async def consume_and_rebalance(servers: str, topic: str, group: str) -> None:
    """A member consumes 20 records of partition 0 and commits 15; another one joins, which is a rebalance."""
    async with Producer(bootstrap_servers=servers) as producer:
        for number in range(20):
            await producer.send_and_wait(topic, b"%d" % number, partition=0)

    def member(name: str) -> Consumer:
        return Consumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            client_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )

    async with member("worker-1") as first:
        seen = 0
        while seen < 20:
            seen += sum(map(len, (await first.getmany(timeout_ms=1000)).values()))
        await first.commit({TopicPartition(topic, 0): 15})
        second = member("worker-2")
        joining = asyncio.create_task(second.start())
        while not joining.done():
            await first.getmany(timeout_ms=100)
        await joining
        await second.stop()


def test_the_lag_and_the_rebalance_of_a_group(spark: SparkSession, broker: Broker, topic: str) -> None:
    group = f"group-of-{topic}"
    run(consume_and_rebalance(broker.bootstrap_servers, topic, group))
    remote = remote_for(Settings.of(options(broker)))
    now = time.time_ns() // 1_000_000 + 2_000
    said: list[str] = []
    tables = analyze(spark, remote, options(broker), LagWindow(groups=[group], interval_ms=500), now, said.append)

    last = tables.rows[tables.rows["time"] == now]
    assert last[["group", "topic", "partition", "committed", "end", "lag"]].to_numpy().tolist() == [
        [group, topic, 0, 15, 20, 5]
    ]
    assert 0 < last["lag_seconds"].iloc[0] < 120
    assert list(tables.rows.columns) == lag_rows.COLUMNS
    assert tables.events
    assert tables.broken == 0
    assert any("worker-2" in text and "joined" in text for text in tables.rebalances["text"])
    assert set(tables.rebalances["group"]) == {group}
    assert said[0] == "reading commits"


@pytest.mark.slow
def test_a_deleted_topic_and_deleted_offsets(spark: SparkSession, broker: Broker, topic: str) -> None:
    group, gone = f"group-of-{topic}", f"{topic}-gone"
    broker.create_topic(gone, partitions=1)

    async def commit() -> None:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            kept, away = TopicPartition(topic, 0), TopicPartition(topic, 1)
            await admin.alter_consumer_group_offsets(group, {kept: 1, away: 1, TopicPartition(gone, 0): 3})
            await admin.delete_consumer_group_offsets(group, [away])
            await admin.delete_topics([gone])

    run(commit())
    remote = remote_for(Settings.of(options(broker)))
    now = time.time_ns() // 1_000_000 + 1_000
    tables = analyze(spark, remote, options(broker), LagWindow(groups=[group], interval_ms=500), now)
    last = tables.rows[tables.rows["time"] == now].set_index(["topic", "partition"])
    assert (topic, 0) in last.index
    assert (topic, 1) not in last.index
    assert tables.stalls.empty


@pytest.mark.slow
def test_invalid_windows_are_errors(spark: SparkSession, broker: Broker, topic: str) -> None:
    run(consume_and_rebalance(broker.bootstrap_servers, topic, f"group-of-{topic}"))
    remote, now = remote_for(Settings.of(options(broker))), time.time_ns() // 1_000_000
    for window, why in (
        (LagWindow(groups=["absent"]), "no commits of absent"),
        (LagWindow(since=now, until=now - 5), "--since is not before --until"),
        (LagWindow(since=0, interval_ms=1_000), "give a longer --interval"),
    ):
        with pytest.raises(LagError, match=why):
            analyze(spark, remote, options(broker), window, now)
