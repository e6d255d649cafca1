"""Files of one broker are missing or damaged: the others' records are served, and the broker fetches them again."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas_client import Consumer, Producer, TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.metadata import MetadataResponse
from tests.cluster.harness import PATIENCE, SHORT_LEASE, Brokers, Node, create, eventually, leaders
from tests.cluster.test_operating import barnabas

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.parametrize(
        "cluster",
        [
            [
                SHORT_LEASE,
                "min.insync.replicas=2",
                "log.segment.bytes=4096",
                "default.replication.factor=3",
                "offsets.topic.replication.factor=3",
                "offsets.topic.num.partitions=1",
                "leader.imbalance.check.interval.seconds=100000",
            ]
        ],
        indirect=True,
    ),
]

RECORDS = 1000
TOPIC = "kept"
OFFSETS = "__consumer_offsets"
WHERE = TopicPartition(TOPIC, 0)


def servers(cluster: Brokers) -> str:
    return ",".join(f"127.0.0.1:{node.port}" for node in cluster.running)


async def write(cluster: Brokers) -> list[int]:
    """Start three brokers, and write records that all of them acknowledge.

    Returns:
        The brokers; the first one leads, and is the preferred leader.
    """
    await cluster.start(3)
    assert await create(cluster[1], TOPIC, 1, 3) == ErrorCode.NONE
    await in_sync(cluster, TOPIC)
    async with Producer(bootstrap_servers=servers(cluster), acks="all") as producer:
        for first in range(0, RECORDS, 20):
            sent = [await producer.send(TOPIC, b"%d" % number) for number in range(first, first + 20)]
            await asyncio.gather(*sent)
    (leader,) = leaders(await cluster[1].metadata(TOPIC), TOPIC)
    return [leader, *(number for number in (1, 2, 3) if number != leader)]


async def written(cluster: Brokers) -> list[int]:
    """All records that the cluster serves, as soon as it serves any."""
    found: list[int] = []
    async with Consumer(bootstrap_servers=servers(cluster), auto_offset_reset="earliest") as consumer:
        consumer.assign([WHERE])
        async with asyncio.timeout(PATIENCE):
            end = (await consumer.end_offsets([WHERE]))[WHERE]
            while await consumer.position(WHERE) < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [int(record.value or b"") for record in records]
    return found


async def in_sync(cluster: Brokers, topic: str, *, leader: int | None = None) -> None:
    """Wait until all three replicas are in sync, and, if it is given, until this broker leads."""

    def all_are(metadata: MetadataResponse) -> bool:
        found = [part for each in metadata.topics if each.name == topic for part in each.partitions]
        return bool(found) and all(
            len(part.isr_nodes) == 3 and part.leader_id in (leader or part.leader_id,) for part in found
        )

    await cluster.agree(f"{topic} is in sync", all_are, topic)


def folder(node: Node, topic: str = TOPIC) -> Path:
    return node.directory / "data" / f"{topic}-0"


def remove_folder(node: Node, topic: str = TOPIC) -> None:
    shutil.rmtree(folder(node, topic))


def remove_files(node: Node, topic: str = TOPIC) -> None:
    for path in folder(node, topic).iterdir():
        path.unlink()


def remove_half(node: Node, topic: str = TOPIC) -> None:
    logs = sorted(folder(node, topic).glob("*.log"))
    for log in logs[: (len(logs) + 1) // 2]:
        for path in folder(node, topic).glob(f"{log.stem}.*"):
            path.unlink()


def remove_last(node: Node, topic: str = TOPIC) -> None:
    sorted(folder(node, topic).glob("*.log"))[-1].unlink()


def cut(node: Node, topic: str = TOPIC) -> None:
    """Cut the largest segment to half of its size."""
    log = max(folder(node, topic).glob("*.log"), key=lambda each: each.stat().st_size)
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size // 2)


def swap_disk(node: Node, topic: str = TOPIC) -> None:
    shutil.rmtree(node.directory / "data")


def flip(node: Node, topic: str = TOPIC) -> None:
    """Flip a bit of a record in a segment that is closed."""
    log = sorted(folder(node, topic).glob("*.log"))[1]
    with log.open("r+b") as file:
        file.seek(100)
        (byte,) = file.read(1)
        file.seek(100)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("damage", [remove_folder, remove_files, remove_half, remove_last, cut, swap_disk])
async def test_the_last_leader_has_lost_files_and_starts_first(
    cluster: Brokers, damage: Callable[[Node], None]
) -> None:
    first, second, third = await write(cluster)
    for number in (third, second, first):
        assert await cluster[number].stop() == 0
    damage(cluster[first])
    await cluster[first].start()
    status = (await barnabas(cluster, "cluster", "status", "--json", status=1)).json
    (problem,) = [each for each in status["problems"] if each["topic"] == TOPIC]
    assert problem["leader"] == -1
    await cluster[second].start()
    await cluster[third].start()
    await in_sync(cluster, TOPIC)
    assert await written(cluster) == list(range(RECORDS))
    # It has fetched everything again: it may lead now.
    await barnabas(cluster, "cluster", "elect-preferred", "--execute")
    await in_sync(cluster, TOPIC, leader=first)
    assert await written(cluster) == list(range(RECORDS))


@pytest.mark.parametrize("damage", [remove_folder, cut])
async def test_a_follower_has_lost_files_and_the_leader_is_killed_as_soon_as_it_is_back(
    cluster: Brokers, damage: Callable[[Node], None]
) -> None:
    first, second, third = await write(cluster)
    assert await cluster[third].stop() == 0
    damage(cluster[third])
    await cluster[third].start()
    cluster[first].kill()
    await cluster.agree("another leads", lambda each: leaders(each, TOPIC) in ([second], [third]), TOPIC)
    assert await written(cluster) == list(range(RECORDS))
    await cluster[first].start()
    await in_sync(cluster, TOPIC)
    assert await written(cluster) == list(range(RECORDS))


async def led_by_a_damaged_broker(cluster: Brokers) -> list[int]:
    """A bit has flipped on the disk of the leader, and no client has read it yet; the brokers, the leader first."""
    first, second, third = await write(cluster)
    assert await cluster[first].stop() == 0
    flip(cluster[first])
    await cluster[first].start()
    await in_sync(cluster, TOPIC)
    await barnabas(cluster, "cluster", "elect-preferred", "--execute")
    await in_sync(cluster, TOPIC, leader=first)
    return [first, second, third]


async def test_a_leader_that_finds_damage_resigns_and_its_follower_is_killed(cluster: Brokers) -> None:
    first, *others = await led_by_a_damaged_broker(cluster)
    # The reader finds the damage, and goes on at the next leader.
    assert await written(cluster) == list(range(RECORDS))
    (leader,) = leaders(await cluster[first].metadata(TOPIC), TOPIC)
    assert leader in others
    cluster[leader].kill()
    await cluster.agree("a third leads", lambda each: leaders(each, TOPIC) not in ([leader], [-1]), TOPIC)
    assert await written(cluster) == list(range(RECORDS))
    await cluster[leader].start()
    await in_sync(cluster, TOPIC)
    assert not (folder(cluster[first]) / "lost-records").exists()
    assert await written(cluster) == list(range(RECORDS))


async def test_a_damaged_leader_is_stopped_and_its_follower_is_killed(cluster: Brokers) -> None:
    first, second, third = await led_by_a_damaged_broker(cluster)
    reader = asyncio.create_task(written(cluster))
    assert await cluster[first].stop() == 0
    await cluster[first].start()
    cluster[second].kill()
    await cluster.agree("another leads", lambda each: leaders(each, TOPIC) in ([first], [third]), TOPIC)
    assert await reader == list(range(RECORDS))
    await cluster[second].start()
    await in_sync(cluster, TOPIC)
    assert await written(cluster) == list(range(RECORDS))


async def test_the_only_replica_in_sync_leads_with_damage_and_names_it(cluster: Brokers) -> None:
    first, second, third = await led_by_a_damaged_broker(cluster)
    assert await cluster[third].stop() == 0
    cluster[second].kill()
    shutil.rmtree(cluster[second].directory / "data")
    await cluster[second].start()

    async def named() -> bool:
        found = (await barnabas(cluster, "cluster", "status", "--json", status=1)).json
        conditions = [each for broker in found["brokers"] for each in broker["conditions"]]
        return any(
            each["condition"] == "records_lost"
            and f"{TOPIC}-0" in each["text"]
            and str(folder(cluster[first])) in each["text"]
            and "this broker leads without them" in each["text"]
            for each in conditions
        )

    # The new disk cannot be filled: the fetches of its broker find the damage.
    await eventually("the damage is named", named)
    assert leaders(await cluster[first].metadata(TOPIC), TOPIC) == [first]
    await cluster[third].start()
    await in_sync(cluster, TOPIC)
    assert await written(cluster) == list(range(RECORDS))


async def led(cluster: Brokers, topic: str) -> bool:
    found = [leaders(await node.metadata(topic), topic) for node in cluster.running]
    return all(each not in ([], [-1]) for each in found)


async def committed(cluster: Brokers, *, commit: bool) -> list[int | None]:
    """The committed offset of each of ten groups; with `commit`, each commits some first."""
    found = []
    for number in range(10):
        group = f"group-{number}"
        async with Consumer(bootstrap_servers=servers(cluster), group_id=group, enable_auto_commit=False) as consumer:
            consumer.assign([WHERE])
            for offset in range(10 if commit else 0):
                await consumer.commit({WHERE: number * 10 + offset})
            found.append(await consumer.committed(WHERE))
    return found


@pytest.mark.parametrize("damage", [remove_folder, remove_files, remove_half, cut])
async def test_committed_offsets_survive_a_coordinator_that_has_lost_files(
    cluster: Brokers, damage: Callable[[Node, str], None]
) -> None:
    await write(cluster)
    before = await committed(cluster, commit=True)
    assert before == [number * 10 + 9 for number in range(10)]
    await in_sync(cluster, OFFSETS)
    (leader,) = leaders(await cluster[1].metadata(OFFSETS), OFFSETS)
    others = [number for number in (1, 2, 3) if number != leader]
    for number in (*others, leader):
        assert await cluster[number].stop() == 0
    damage(cluster[leader], OFFSETS)
    for number in (leader, *others):
        await cluster[number].start()
    await eventually("the offsets are served", lambda: led(cluster, OFFSETS))
    assert await committed(cluster, commit=False) == before
    await in_sync(cluster, OFFSETS)
    assert await committed(cluster, commit=False) == before
