"""Topics, records, brokers, transactions and ACLs of the console, of Apache Kafka and of Barnabas."""

import asyncio
from typing import Any

import aiohttp
import pytest

from barnabas_client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.client.console.running import console
from tests.interop.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
PATIENCE = 60


async def get(port: int, path: str) -> Any:
    """The JSON of a path."""
    async with (
        asyncio.timeout(PATIENCE),
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        assert response.status == 200, await response.text()
        return await response.json()


@pytest.mark.slow
async def test_the_rate_of_a_group_of_any_cluster(server: Server, fresh: str) -> None:
    """It is not known until the console has seen offsets move for ten seconds."""
    servers = server.bootstrap_servers
    partition = TopicPartition(fresh, 0)
    async with (
        Producer(bootstrap_servers=servers) as producer,
        Consumer(bootstrap_servers=servers, group_id=fresh, enable_auto_commit=False) as consumer,
        console(servers) as port,
    ):
        await producer.send_and_wait(fresh, b"0", partition=0)
        consumer.assign([partition])
        known: list[float] = []
        number = 0
        async with asyncio.timeout(PATIENCE):
            while not known:
                number += 1
                await producer.send_and_wait(fresh, b"%d" % number, partition=0)
                await consumer.commit({partition: number})
                (row,) = [each for each in (await get(port, "/groups"))["groups"] if each["group"] == fresh]
                known += [] if row["commit_rate"] is None else [row["commit_rate"]]
                if number == 1:
                    assert row["commit_rate"] is None
        assert known[0] > 0
        assert row["produce_rate"] > 0


async def test_any_cluster_is_shown(server: Server, fresh: str) -> None:
    servers = server.bootstrap_servers
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(fresh, 3, 1, topic_configs={"retention.ms": "123456"})])
        (log_dirs,) = await admin.describe_log_dirs()
    async with (
        Producer(bootstrap_servers=servers, transactional_id=f"{fresh}-pay") as producer,
        console(servers) as port,
    ):
        async with producer.transaction():
            for n in range(5):
                await producer.send(fresh, b"%d" % n, key=b"k", partition=1, headers=[("h", b"x")])
        await producer.begin_transaction()
        await producer.send_and_wait(fresh, b"open", partition=2)

        rows = {row["topic"]: row for row in (await get(port, "/topics"))["topics"]}
        # Five records and a marker; and one that is not committed.
        assert (rows[fresh]["records"], rows[fresh]["partitions"], rows[fresh]["known"]) == (7, 3, 3)
        assert rows[fresh]["size"] > 0
        assert rows["__transaction_state"]["internal"]

        topic = await get(port, f"/topics/{fresh}")
        offsets = [(each["start"], each["stable"], each["end"]) for each in topic["partitions"]]
        assert offsets == [(0, 0, 0), (0, 6, 6), (0, 0, 1)]
        values = {each["name"]: (each["value"], each["default"]) for each in topic["configs"]}
        assert values["retention.ms"] == ("123456", False)
        assert topic["notes"] == []

        found = await get(port, f"/topics/{fresh}/records")
        kinds = [(each["partition"], each["offset"], each["kind"]) for each in found["records"]]
        assert sorted(kinds) == [*((1, n, "record") for n in range(5)), (1, 5, "marker"), (2, 0, "record")]
        assert found["gaps"] == []
        after = await get(port, f"/topics/{fresh}/records?after=1:3&partition=1&count=1")
        assert [each["offset"] for each in after["records"]] == [3]
        assert after["next"] == {"1": 4}

        brokers = await get(port, "/brokers")
        (one,) = brokers["brokers"]
        assert (one["live"], one["address"], one["not_in_sync"]) == (True, servers, 0)
        assert [each["path"] for each in one["log_directories"]] == [each.path for each in log_dirs.log_dirs]

        made = await get(port, "/transactions")
        (pay,) = [each for each in made["open"] if each["transactional_id"] == f"{fresh}-pay"]
        assert (pay["state"], pay["partitions"], pay["client"]) == ("Ongoing", {fresh: [2]}, None)
        (waits,) = [each for each in made["blocked"] if each["topic"] == fresh]
        assert (waits["partition"], waits["records"]) == (2, 1)
        assert waits["producer"]["transactional_id"] == f"{fresh}-pay"
        await producer.abort_transaction()

        assert (await get(port, "/acls"))["authorizer"] is False
