"""Rejected input and local failures: Kafka's error codes, and one clear log line."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_client import (
    Admin,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records.builder import build_batch
from tests.cluster.harness import (
    PATIENCE,
    SHORT_LEASE,
    Brokers,
    Etcd,
    Node,
    create,
    create_once,
    eventually,
    leaders,
    new_prefix,
)
from tests.needs import missing
from tests.wire import Wire

pytestmark = pytest.mark.cluster


async def produce(node: Node, topic: str, value: bytes) -> int:
    """Produce a record into partition 0 with acks=all; return the error code."""
    batch = build_batch([(None, value, (), 0)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    async with await Wire.connect(node.port) as wire:
        answer = await wire.ask(ProduceRequest(acks=-1, timeout_ms=15_000, topic_data=[data]), 7, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


async def leader(node: Node, topic: str) -> int:
    """Return the leader of partition 0."""
    return leaders(await node.metadata(topic), topic)[0]


def said(node: Node, what: str) -> int:
    """Return how many log lines of a broker contain `what`."""
    return sum(what in line for line in node.output.read_text().splitlines())


@pytest.mark.parametrize("cluster", [[SHORT_LEASE]], indirect=True)
async def test_a_second_cluster_on_the_same_prefix_is_rejected(cluster: Brokers) -> None:
    """Both clusters have a broker 1; the first one registers."""
    twins = [cluster.add(1), Node(cluster.url, 1, cluster.directory / "other", cluster.settings)]
    cluster.nodes[2] = twins[1]
    for twin in twins:
        twin.launch()
    ended = [asyncio.create_task(twin.ended()) for twin in twins]
    done, pending = await asyncio.wait(ended, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [1]
    (refused,) = [twin for twin, task in zip(twins, ended, strict=True) if task in done]
    (other,) = [twin for twin in twins if twin is not refused]
    await other.serving()
    assert said(refused, f"node id 1 is in use by the broker at 127.0.0.1:{other.port}") == 1
    assert [broker.port for broker in (await other.metadata()).brokers] == [other.port]
    other.kill()
    await asyncio.gather(*pending, return_exceptions=True)


async def test_a_data_directory_of_another_cluster_is_rejected(cluster: Brokers) -> None:
    await cluster.start(1)
    mine = (await cluster[1].metadata()).cluster_id
    await cluster[1].stop()
    theirs = Brokers(f"{cluster.url}-other", cluster.directory / "theirs")
    try:
        await theirs.start(1)
        stray = Node(theirs.url, 2, cluster[1].directory, theirs.settings)
        stray.launch()
        assert await stray.ended() == 2
        their_id = (await theirs[1].metadata()).cluster_id
        line = stray.output.read_text().splitlines()[-1]
        assert line.startswith("broker: ")
        assert str(mine) in line
        assert str(their_id) in line
        assert [broker.node_id for broker in (await theirs[1].metadata()).brokers] == [1]
    finally:
        theirs.close()
    await cluster[1].start()


async def test_more_replicas_than_brokers_are_rejected_with_both_numbers(cluster: Brokers) -> None:
    await cluster.start(2)
    asked = CreatableTopic(name="wide", num_partitions=1, replication_factor=3, assignments=[], configs=[])
    async with await Wire.connect(cluster[1].port) as wire:
        request = CreateTopicsRequest(topics=[asked], timeout_ms=10_000)
        (answer,) = (await wire.ask(request, 7, CreateTopicsResponse)).topics
    assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert answer.error_message is not None
    assert "3" in answer.error_message
    assert "2" in answer.error_message
    (wide,) = (await cluster[2].metadata("wide")).topics
    assert wide.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd for fault injection."""
    server = Etcd(tmp_path)
    yield server
    server.kill()


async def test_without_etcd_reads_and_writes_continue_while_the_lease_lasts(own_etcd: Etcd, tmp_path: Path) -> None:
    lease = ["broker.session.timeout.ms=15000"]
    cluster = Brokers(f"etcd://127.0.0.1:{own_etcd.port}/{new_prefix()}", tmp_path, lease)
    try:
        await cluster.start(2)
        assert await create(cluster[1], "led", 1, 2) == ErrorCode.NONE
        servers = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes.values())
        async with (
            Producer(bootstrap_servers=servers, acks="all") as producer,
            Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([TopicPartition("led", 0)])
            await producer.send_and_wait("led", b"before")
            assert (await consumer.getone()).value == b"before"
            leading = cluster[await leader(cluster[1], "led")]
            before = said(leading, "lease cannot be renewed")
            own_etcd.kill()
            gone = time.monotonic()
            # The broker renews its lease every third of its time: at least 7 s minus the margin are left.
            assert await produce(leading, "led", b"while it lasts") == ErrorCode.NONE
            assert (await consumer.getone()).value == b"while it lasts"
            assert time.monotonic() - gone < 60
            # Changes of the metadata need etcd.
            assert await create_once(leading, "never", 1, 1) == ErrorCode.REQUEST_TIMED_OUT

            async def refused() -> bool:
                return await produce(leading, "led", b"too late") == ErrorCode.NOT_LEADER_OR_FOLLOWER

            await eventually("the lease is over, and writes are refused", refused)
            assert said(leading, "lease cannot be renewed") == before + 1
            held = asyncio.create_task(producer.send_and_wait("led", b"after"))
            own_etcd.start()
            # Without intervention the producer's record is acknowledged, and the consumer receives it.
            await asyncio.wait_for(held, 60)
            async with asyncio.timeout(60):
                while (await consumer.getone()).value != b"after":
                    pass
            assert await create(cluster[1], "again", 1, 2) == ErrorCode.NONE
    finally:
        cluster.close()
        print(cluster.logs())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)]
    if os.geteuid() != 0:
        missing("only root can mount a small disk: run the tests as root", on_this_machine=False)
    if subprocess.run(command, capture_output=True, timeout=10).returncode != 0:
        missing("root cannot mount a disk in this container: give it CAP_SYS_ADMIN", on_this_machine=False)
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=10)


class Steady:
    """Writes one record after the other with acks=all, to a partition with a replica on the full disk.

    Attributes:
        longest: seconds of the longest wait for an acknowledgement.
        acknowledged: how many were acknowledged.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic
        self.longest = 0.0
        self.acknowledged = 0
        self.stopping = False

    async def run(self) -> None:
        async with Producer(bootstrap_servers=self._servers, acks="all", delivery_timeout_ms=120_000) as producer:
            while not self.stopping:
                began = time.monotonic()
                await producer.send_and_wait(self._topic, b"steady", partition=0)
                self.longest = max(self.longest, time.monotonic() - began)
                self.acknowledged += 1
                await asyncio.sleep(0.01)


async def isr_of(admin: Admin, topic: str) -> tuple[int, ...]:
    (found,) = await admin.describe_topics([topic])
    return tuple(sorted(found.partitions[0].isr))


# A follower that is only slow stays in the ISR for the default time of 30 s.
@pytest.mark.parametrize("cluster", [["log.index.size.max.bytes=65536", "min.insync.replicas=2"]], indirect=True)
async def test_a_broker_with_a_full_disk_lets_others_go_on_at_once_and_returns(
    cluster: Brokers, small_disk: Path
) -> None:
    cluster.nodes[1] = Node(cluster.url, 1, small_disk, cluster.settings)
    cluster.nodes[1].output = cluster.directory / "full.log"
    cluster.add(2)
    cluster.add(3)
    for node in cluster.nodes.values():
        node.launch()
    await asyncio.gather(*(node.serving() for node in cluster.nodes.values()))
    await cluster.live(3)
    servers = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes.values())
    topics = {"filled": [1, 2, 3], "led-here": [1, 2, 3], "followed": [2, 3, 1]}
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(name, replica_assignments={0: nodes}) for name, nodes in topics.items()])
        await cluster.agree("broker 1 leads it", lambda metadata: leaders(metadata, "filled") == [1], "filled")
        loads = [Steady(servers, name) for name in ("led-here", "followed")]
        writing = [asyncio.create_task(load.run()) for load in loads]
        try:
            value, acknowledged, code = os.urandom(500_000), 0, ErrorCode.NONE
            while code == ErrorCode.NONE:
                code = ErrorCode.of(await produce(cluster[1], "filled", value))
                acknowledged += code == ErrorCode.NONE
            assert code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert 0 < acknowledged <= 16

            async def left() -> bool:
                return all([await isr_of(admin, name) == (2, 3) for name in topics])

            await eventually("broker 1 is in no ISR", left)
            before = [load.acknowledged for load in loads]

            async def go_on() -> bool:
                return all(load.acknowledged >= count + 20 for load, count in zip(loads, before, strict=True))

            await eventually("records are acknowledged without broker 1", go_on)
            print(f"without an acknowledgement: {', '.join(f'{load.longest:.2f} s' for load in loads)}")
            # About a second, where the client waits for its next metadata; a busy machine takes longer.
            assert max(load.longest for load in loads) < 6
            conditions = {
                one.node_id: [each.name for each in one.conditions] for one in await admin.describe_conditions()
            }
            assert conditions == {1: ["disk_full"], 2: [], 3: []}
            assert said(cluster[1], "broker cannot write: it leaves the ISRs") >= 1
            assert await produce(cluster[await leader(cluster[2], "filled")], "filled", b"more") == ErrorCode.NONE

            command = ["mount", "-o", "remount,size=64m", str(small_disk)]
            await asyncio.to_thread(subprocess.run, command, check=True, timeout=10)

            async def back() -> bool:
                return all([await isr_of(admin, name) == (1, 2, 3) for name in topics])

            await eventually("broker 1 is in sync again", back)
            await eventually("it says nothing any more", lambda: has_no_conditions(admin))
        finally:
            for load in loads:
                load.stopping = True
            await asyncio.wait_for(asyncio.gather(*writing), PATIENCE)
    async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        where = TopicPartition("filled", 0)
        consumer.assign([where])
        assert (await consumer.end_offsets([where]))[where] >= acknowledged + 1
        for _ in range(acknowledged):
            assert (await consumer.getone()).value == value


async def has_no_conditions(admin: Admin) -> bool:
    return not any(one.conditions for one in await admin.describe_conditions())
