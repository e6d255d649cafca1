"""All brokers were down, and the first to return has lost records: the others' records are served."""

import asyncio
import shutil
from pathlib import Path

import pytest

from barnabas_client import Consumer, Producer, TopicPartition
from barnabas_protocol.errors import ErrorCode
from tests.cluster.harness import PATIENCE, SHORT_LEASE, Brokers, Node, create, leaders
from tests.cluster.test_operating import barnabas

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.parametrize("cluster", [[SHORT_LEASE, "min.insync.replicas=2"]], indirect=True),
]

RECORDS = 1000
TOPIC = "kept"


async def write(cluster: Brokers) -> None:
    """Start three brokers, and write records that all of them acknowledge; broker 1 leads."""
    await cluster.start(3)
    assert await create(cluster[1], TOPIC, 1, 3) == ErrorCode.NONE
    await cluster.agree("it is everywhere", lambda metadata: len(leaders(metadata, TOPIC)) == 1, TOPIC)
    async with Producer(bootstrap_servers=f"127.0.0.1:{cluster[1].port}", acks="all") as producer:
        for first in range(0, RECORDS, 50):
            sent = [await producer.send(TOPIC, b"%d" % number) for number in range(first, first + 50)]
            await asyncio.gather(*sent)


async def written(cluster: Brokers) -> list[int]:
    """All records that the cluster serves, as soon as it serves any."""
    found: list[int] = []
    servers = ",".join(f"127.0.0.1:{node.port}" for node in cluster.running)
    async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        where = TopicPartition(TOPIC, 0)
        consumer.assign([where])
        async with asyncio.timeout(PATIENCE):
            end = (await consumer.end_offsets([where]))[where]
            while await consumer.position(where) < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [int(record.value or b"") for record in records]
    return found


def wipe(node: Node) -> None:
    shutil.rmtree(node.directory / "data")


def halve(node: Node) -> None:
    """What a power failure may leave: half of the log, and checkpoints of some time before."""
    data: Path = node.directory / "data"
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data / name).unlink(missing_ok=True)
    (log,) = (data / f"{TOPIC}-0").glob("*.log")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size // 2)


async def start_one_after_the_other(cluster: Brokers) -> None:
    await cluster[1].start()
    # Alone it leads nothing: it shows whom the partition waits for.
    status = (await barnabas(cluster, "cluster", "status", "--json", status=1)).json
    (problem,) = [each for each in status["problems"] if each["topic"] == TOPIC]
    assert problem["leader"] == -1
    assert problem["awaited"]
    for number in (2, 3):
        await cluster[number].start()
    await cluster.live(3)
    await cluster.agree("it is led", lambda metadata: leaders(metadata, TOPIC) not in ([], [-1]), TOPIC)


async def test_the_first_to_return_has_an_empty_disk(cluster: Brokers) -> None:
    await write(cluster)
    for node in cluster.running:
        node.kill()
    wipe(cluster[1])
    await start_one_after_the_other(cluster)
    assert await written(cluster) == list(range(RECORDS))


async def test_the_first_to_return_has_lost_half_of_its_log(cluster: Brokers) -> None:
    await write(cluster)
    for node in cluster.running:
        node.kill()
    halve(cluster[1])
    await start_one_after_the_other(cluster)
    assert await written(cluster) == list(range(RECORDS))


async def test_the_others_were_stopped_and_the_last_leader_has_an_empty_disk(cluster: Brokers) -> None:
    await write(cluster)
    assert await cluster[2].stop() == 0
    assert await cluster[3].stop() == 0
    await cluster.agree("broker 1 leads alone", lambda metadata: leaders(metadata, TOPIC) == [1], TOPIC)
    cluster[1].kill()
    wipe(cluster[1])
    await start_one_after_the_other(cluster)
    assert await written(cluster) == list(range(RECORDS))


async def test_all_were_killed_and_none_has_lost_anything(cluster: Brokers) -> None:
    await write(cluster)
    for node in cluster.running:
        node.kill()
    await start_one_after_the_other(cluster)
    assert await written(cluster) == list(range(RECORDS))


async def test_all_were_stopped(cluster: Brokers) -> None:
    await write(cluster)
    for number in (2, 3, 1):
        assert await cluster[number].stop() == 0
    # The last one that ran has everything, and leads at once.
    await cluster[1].start()
    await cluster.agree("it is led", lambda metadata: leaders(metadata, TOPIC) == [1], TOPIC)
    assert await written(cluster) == list(range(RECORDS))
