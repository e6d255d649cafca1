"""A log of a coordinator is damaged, and its broker leads: no committed offset and no transaction is lost."""

import asyncio
from collections.abc import Callable

import pytest

from barnabas_client import Consumer, Producer
from tests.cluster.harness import PATIENCE, SHORT_LEASE, Brokers, Node, create, eventually, leaders
from tests.cluster.test_damage import OFFSETS, TOPIC, WHERE, committed, flip, in_sync, led, remove_folder, servers
from tests.cluster.test_operating import barnabas

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.parametrize(
        "cluster",
        [
            [
                SHORT_LEASE,
                "min.insync.replicas=2",
                "default.replication.factor=3",
                "offsets.topic.replication.factor=3",
                "offsets.topic.num.partitions=1",
                "offsets.topic.segment.bytes=1024",
                "transaction.state.log.num.partitions=1",
                "transaction.state.log.replication.factor=3",
                "transaction.state.log.segment.bytes=1024",
                "leader.imbalance.check.interval.seconds=100000",
            ]
        ],
        indirect=True,
    ),
]

TRANSACTIONS = "__transaction_state"
IDS = 5
#: Longer than a test takes.
OPEN_MS = 900_000


async def damaged(cluster: Brokers, topic: str, damage: Callable[[Node, str], None]) -> None:
    """Stop the leader of a coordinator's partition, damage its log, start it again and let it lead."""
    await in_sync(cluster, topic)
    (leader,) = leaders(await cluster[1].metadata(topic), topic)
    assert await cluster[leader].stop() == 0
    damage(cluster[leader], topic)
    await cluster[leader].start()
    await in_sync(cluster, topic)
    await barnabas(cluster, "cluster", "elect-preferred", "--execute")

    async def found() -> bool:
        return "replica has lost records" in cluster[leader].output.read_text()

    if damage is flip:
        await eventually("the damage is found", found)
    else:  # It was not in sync when it lost everything: it has fetched it again.
        await in_sync(cluster, topic, leader=leader)


async def kill_leader(cluster: Brokers, topic: str) -> None:
    """Kill the broker that leads now, which may be the one whose log was damaged."""
    await eventually("a coordinator is there", lambda: led(cluster, topic))
    (leader,) = leaders(await cluster.running[0].metadata(topic), topic)
    cluster[leader].kill()
    others = cluster.running

    async def another_leads() -> bool:
        found = [leaders(await node.metadata(topic), topic) for node in others]
        return all(each not in ([], [-1], [leader]) for each in found)

    await eventually("another coordinator is there", another_leads)


@pytest.mark.parametrize("damage", [flip, remove_folder])
async def test_committed_offsets(cluster: Brokers, damage: Callable[[Node, str], None]) -> None:
    await cluster.start(3)
    await create(cluster[1], TOPIC, 1, 3)
    before = await committed(cluster, commit=True)
    assert before == [number * 10 + 9 for number in range(10)]
    await damaged(cluster, OFFSETS, damage)
    assert await committed(cluster, commit=False) == before
    await kill_leader(cluster, OFFSETS)
    assert await committed(cluster, commit=False) == before


async def send(producers: list[Producer], values: list[bytes]) -> None:
    """One record of a transaction of each producer."""
    for producer, value in zip(producers, values, strict=True):
        await producer.send_and_wait(TOPIC, value)


async def commit(producers: list[Producer], values: list[bytes]) -> None:
    for producer in producers:
        await producer.begin_transaction()
    await send(producers, values)
    for producer in producers:
        await producer.commit_transaction()


@pytest.mark.parametrize("damage", [flip, remove_folder])
async def test_transactions(cluster: Brokers, damage: Callable[[Node, str], None]) -> None:
    """Producers that are in the middle of a transaction commit it, and further ones, with the ids that they have."""
    await cluster.start(3)
    await create(cluster[1], TOPIC, 1, 3)
    written: list[bytes] = []

    def values(what: str) -> list[bytes]:
        made = [f"{what} {number}".encode() for number in range(IDS)]
        written.extend(made)
        return made

    producers = [
        Producer(bootstrap_servers=servers(cluster), transactional_id=f"id-{number}", transaction_timeout_ms=OPEN_MS)
        for number in range(IDS)
    ]
    for producer in producers:
        await producer.start()
    for round_number in range(3):
        await commit(producers, values(f"before {round_number}"))
    for producer in producers:
        await producer.begin_transaction()
    await send(producers, values("open"))
    await damaged(cluster, TRANSACTIONS, damage)
    await send(producers, values("open, after the damage"))
    await kill_leader(cluster, TRANSACTIONS)
    for producer in producers:
        await producer.commit_transaction()
    await commit(producers, values("after"))
    for producer in producers:
        await producer.stop()
    found: list[bytes | None] = []
    async with Consumer(
        bootstrap_servers=servers(cluster), auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([WHERE])
        async with asyncio.timeout(PATIENCE):
            while len(found) < len(written):
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [record.value for record in records]
    assert found == written
