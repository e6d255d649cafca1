"""etcd loses its data, or goes back to a backup, under running brokers; `barnabas cluster restore` brings it back."""

import asyncio
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.cluster.etcd_restore import EPOCH_STEP
from barnabas_broker.cluster.image_file import NAME as IMAGE_FILE
from barnabas_client import Consumer, Producer, TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.metadata import MetadataResponse
from tests.cluster.harness import PATIENCE, SHORT_LEASE, Brokers, Etcd, create, eventually, leaders

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(8 * PATIENCE)]

PARTITIONS = 3
RECORDS = 60
SETTINGS = (
    SHORT_LEASE,
    "min.insync.replicas=2",
    "offsets.topic.num.partitions=2",
    "group.initial.rebalance.delay.ms=0",
)


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd that the test may damage."""
    server = Etcd(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def brokers(own_etcd: Etcd, tmp_path: Path) -> Iterator[Brokers]:
    cluster = Brokers(f"etcd://127.0.0.1:{own_etcd.port}/lost", tmp_path, SETTINGS)
    yield cluster
    cluster.close()
    print(cluster.logs())


def bootstrap(brokers: Brokers) -> str:
    return ",".join(f"127.0.0.1:{node.port}" for node in brokers.running)


async def write(brokers: Brokers, topic: str, text: str) -> None:
    """Write records to all partitions, acknowledged by all replicas in sync."""
    async with Producer(bootstrap_servers=bootstrap(brokers), acks="all") as producer:
        sent = [
            await producer.send(topic, f"{text}-{number}".encode(), partition=number % PARTITIONS)
            for number in range(RECORDS)
        ]
        await asyncio.wait_for(asyncio.gather(*sent), PATIENCE)


async def values(brokers: Brokers, topic: str) -> list[str]:
    """Read all records, partition after partition."""
    found: list[str] = []
    async with Consumer(bootstrap_servers=bootstrap(brokers)) as consumer:
        places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(places)
        async with asyncio.timeout(PATIENCE):
            while len(found) < sum(ends.values()):
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    found += [(record.value or b"").decode() for record in records]
    return sorted(found)


def written(*texts: str) -> list[str]:
    return sorted(f"{text}-{number}" for text in texts for number in range(RECORDS))


async def run(*argv: str) -> tuple[int | None, str]:
    """Run a command; return its exit status and what it printed."""
    command = [sys.executable, "-m", "barnabas_client.cli", *argv]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, out.decode()


async def barnabas(*argv: str, status: int = 0) -> str:
    """Run a command; return what it printed."""
    found, text = await run(*argv)
    assert found == status, text
    return text


async def halted(brokers: Brokers) -> None:
    """Wait until each broker says that it serves nothing any more."""

    async def all_are() -> bool:
        return all("this broker serves nothing until it is restarted" in n.output.read_text() for n in brokers.running)

    await eventually("the brokers stop serving", all_are)


async def stop(brokers: Brokers) -> None:
    for node in brokers.running:
        assert await node.stop() == 0


async def start_again(brokers: Brokers) -> None:
    for node in brokers.nodes.values():
        node.launch()
    await asyncio.gather(*(node.serving() for node in brokers.nodes.values()))
    await brokers.live(len(brokers.nodes))


def all_led(topic: str) -> Callable[[MetadataResponse], bool]:
    return lambda metadata: len(found := leaders(metadata, topic)) == PARTITIONS and -1 not in found


async def filled(brokers: Brokers) -> dict[str, Any]:
    """Write records and a committed offset; return the topic's metadata."""
    await brokers.live(3)
    assert await create(brokers[1], "kept", PARTITIONS, 3) == ErrorCode.NONE
    await brokers.agree("it has leaders", all_led("kept"), "kept")
    await write(brokers, "kept", "before")
    place = TopicPartition("kept", 0)
    async with Consumer(bootstrap_servers=bootstrap(brokers), group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([place])
        await asyncio.wait_for(consumer.commit({place: 7}), PATIENCE)
    return await described(brokers)


async def described(brokers: Brokers) -> dict[str, Any]:
    (topic,) = (await brokers[1].metadata("kept")).topics
    return {"id": topic.topic_id, "epochs": {p.partition_index: p.leader_epoch for p in topic.partitions}}


async def in_sync(brokers: Brokers, topic: str) -> None:
    """Wait until all replicas agree: each of them can lead."""
    await brokers.agree(
        "replicas are in sync",
        lambda metadata: all(len(p.isr_nodes) == 3 for p in metadata.topics[0].partitions),
        topic,
    )


async def check_restored(brokers: Brokers, before: dict[str, Any]) -> None:
    """Check that everything is there, and that the cluster can be written."""
    await brokers.agree("it has leaders", all_led("kept"), "kept")
    after = await described(brokers)
    assert after["id"] == before["id"]
    assert all(after["epochs"][index] >= epoch + EPOCH_STEP for index, epoch in before["epochs"].items())
    assert await values(brokers, "kept") == written("before")
    place = TopicPartition("kept", 0)
    async with Consumer(bootstrap_servers=bootstrap(brokers), group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([place])
        assert await asyncio.wait_for(consumer.committed(place), PATIENCE) == 7
    await write(brokers, "kept", "after")
    assert await values(brokers, "kept") == written("before", "after")
    await in_sync(brokers, "kept")
    assert await create(brokers[2], "new", 1, 3) == ErrorCode.NONE


async def test_etcd_is_wiped_under_running_brokers_and_restored(
    own_etcd: Etcd, brokers: Brokers, tmp_path: Path
) -> None:
    await brokers.start(3)
    before = await filled(brokers)
    own_etcd.kill()
    shutil.rmtree(own_etcd.directory / "etcd")
    own_etcd.start()
    await halted(brokers)
    image = str(tmp_path / "cluster.json")
    directories = [str(node.directory / "data") for node in brokers.nodes.values()]
    sources = [word for directory in directories for word in ("--data-dir", directory)]
    await stop(brokers)
    assert "3 topics, 7 partitions" in await barnabas("cluster", "export", image, *sources)
    assert "dry run" in await barnabas("cluster", "restore", image, "--cluster", brokers.url)
    again = brokers[1]
    again.launch()
    assert await again.ended() == 1
    assert "store the metadata that the brokers have kept in it with `barnabas cluster restore`" in (
        again.output.read_text()
    )
    restored = await barnabas("cluster", "restore", image, "--cluster", brokers.url, "--execute", "--json")
    assert json.loads(restored)["found_batch"] is None
    await start_again(brokers)
    await check_restored(brokers, before)
    refused = await barnabas("cluster", "restore", image, "--cluster", brokers.url, "--execute", status=1)
    assert "3 brokers are registered in etcd: 1, 2, 3" in refused


async def test_etcd_goes_back_to_a_backup_under_running_brokers_and_is_restored(
    own_etcd: Etcd, brokers: Brokers
) -> None:
    await brokers.start(3)
    backup = own_etcd.directory / "backup"
    own_etcd.kill()
    shutil.copytree(own_etcd.directory / "etcd", backup)
    own_etcd.start()
    before = await filled(brokers)
    own_etcd.kill()
    shutil.rmtree(own_etcd.directory / "etcd")
    shutil.copytree(backup, own_etcd.directory / "etcd")
    own_etcd.start()
    await halted(brokers)
    await stop(brokers)
    again = brokers[1]
    again.launch()
    assert await again.ended() == 1
    assert "etcd has lost the metadata after batch" in again.output.read_text()
    directories = [str(node.directory / "data") for node in brokers.nodes.values()]

    async def restored() -> bool:
        # The leases of the backup expire first.
        status, text = await run("cluster", "restore", *directories, "--cluster", brokers.url, "--execute")
        assert status == 0 or "registered in etcd" in text, text
        return status == 0

    await eventually("the metadata is restored", restored)
    await start_again(brokers)
    await check_restored(brokers, before)


async def test_brokers_without_kept_images_start_on_a_backup_with_larger_leader_epochs(
    own_etcd: Etcd, brokers: Brokers
) -> None:
    """The backup knows smaller leader epochs than the logs: none of these is used for other records."""
    await brokers.start(3)
    await filled(brokers)
    backup = own_etcd.directory / "backup"
    own_etcd.kill()
    shutil.copytree(own_etcd.directory / "etcd", backup)
    own_etcd.start()
    await brokers.live(3)
    for node_id in (1, 2, 3):
        assert await brokers[node_id].stop() == 0
        await brokers.live(2)
        await write(brokers, "kept", f"while {node_id} is stopped")
        await brokers[node_id].start()
        await brokers.live(3)
        await in_sync(brokers, "kept")
    used = await described(brokers)
    await stop(brokers)
    own_etcd.kill()
    shutil.rmtree(own_etcd.directory / "etcd")
    shutil.copytree(backup, own_etcd.directory / "etcd")
    for node in brokers.nodes.values():
        (node.directory / "data" / IMAGE_FILE).unlink()
    own_etcd.start()
    await start_again(brokers)
    await brokers.agree("it has leaders", all_led("kept"), "kept")
    found = await described(brokers)
    assert found["id"] == used["id"]
    assert all(found["epochs"][index] > epoch for index, epoch in used["epochs"].items())
    await write(brokers, "kept", "after")
    texts = ["before", *(f"while {node_id} is stopped" for node_id in (1, 2, 3)), "after"]
    assert await values(brokers, "kept") == written(*texts)
    await in_sync(brokers, "kept")
