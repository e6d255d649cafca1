"""Groups of the consumer protocol (KIP-848) on three brokers, and the death of their coordinator.

Broker 1 coordinates the group and leads a third of its partitions. It is killed while records are being read, and while
a group migrates between the classic and the consumer protocol.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Any, Final, Literal, Protocol

import confluent_kafka
import pytest

from barnabas_client import Admin, Consumer, ConsumerRebalanceListener, CooperativeStickyAssignor, TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import OFFSETS_TOPIC, partition_for
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.metadata import MetadataResponse
from tests.cluster.harness import PATIENCE, SHORT_LEASE, Brokers, create, eventually, leaders
from tests.wire import Wire

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(6 * PATIENCE)]

TOPIC: Final = "t"
PARTITIONS: Final = 6
GroupProtocol = Literal["classic", "consumer"]
#: Partitions of __consumer_offsets: one for each broker.
SHARDS: Final = 3
SETTINGS: Final = [
    "min.insync.replicas=2",
    "default.replication.factor=3",
    f"offsets.topic.num.partitions={SHARDS}",
    "replica.lag.time.max.ms=1500",
    "replica.fetch.backoff.ms=100",
]


def spread(metadata: MetadataResponse, topic: str, partitions: int) -> bool:
    """Whether the brokers lead equally many partitions of a topic."""
    return sorted(leaders(metadata, topic)) == sorted([1, 2, 3] * (partitions // 3))


def bootstrap(cluster: Brokers) -> str:
    return ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes.values())


@pytest.fixture
async def group(cluster: Brokers) -> str:
    """The name of a group that broker 1 coordinates, and three brokers; 1 and 2 are missed soon after they die."""
    return await _started(cluster)


@pytest.fixture
async def migrating(cluster: Brokers) -> str:
    """As `group`, but each of the brokers is missed soon after it dies."""
    return await _started(cluster, SHORT_LEASE)


async def _started(cluster: Brokers, *third: str) -> str:
    """Start three brokers; `third` are settings of the third one."""
    for node_id in (1, 2):
        cluster.add(node_id, SHORT_LEASE).launch()
    await asyncio.gather(*(node.serving() for node in cluster.nodes.values()))
    await cluster.add(3, *third).start()
    await cluster.live(3)
    assert await create(cluster[1], TOPIC, PARTITIONS, 3) == ErrorCode.NONE
    await cluster.agree("the topic has leaders", partial(spread, topic=TOPIC, partitions=PARTITIONS), TOPIC)
    await eventually("a coordinator is found", partial(_finds, cluster, "first"))  # creates its topic
    await cluster.agree(
        "coordinators have leaders", partial(spread, topic=OFFSETS_TOPIC, partitions=SHARDS), OFFSETS_TOPIC
    )
    led = leaders(await cluster[1].metadata(OFFSETS_TOPIC), OFFSETS_TOPIC)
    name = next(one for one in (f"group-{n}" for n in range(1000)) if led[partition_for(one, SHARDS)] == 1)
    await eventually("the group's coordinator is found", partial(_finds, cluster, name))
    return name


async def _finds(cluster: Brokers, group: str) -> bool:
    async with await Wire.connect(cluster[2].port) as wire:
        found = await wire.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4, FindCoordinatorResponse)
        return found.coordinators[0].error_code == ErrorCode.NONE


class Owners:
    """Which member owns each partition, as the rebalance listeners of all members say."""

    def __init__(self) -> None:
        self.by_partition: dict[int, str] = {}
        #: What must not happen: a partition with two owners, or one that was lost.
        self.mistakes: list[str] = []
        self._lock = threading.Lock()

    def assigned(self, member: str, partitions: Collection[Any]) -> None:
        with self._lock:
            for one in partitions:
                owner = self.by_partition.setdefault(one.partition, member)
                if owner != member:
                    self.mistakes.append(f"{one.partition} was assigned to {member} while {owner} owned it")

    def revoked(self, member: str, partitions: Collection[Any]) -> None:
        with self._lock:
            for one in partitions:
                if self.by_partition.pop(one.partition, None) != member:
                    self.mistakes.append(f"{one.partition} was revoked from {member}, which did not own it")

    def lost(self, member: str, partitions: Collection[Any]) -> None:
        self.mistakes.append(f"{member} lost {[one.partition for one in partitions]}")


class Member(Protocol):
    """A member that reads in the background, and commits."""

    values: list[int]

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Ours(ConsumerRebalanceListener):
    """Barnabas's consumer."""

    def __init__(
        self, cluster: Brokers, group: str, name: str, owners: Owners, protocol: GroupProtocol = "consumer"
    ) -> None:
        self.values: list[int] = []
        self._name, self._owners = name, owners
        classic: dict[str, Any] = {
            "partition_assignment_strategy": [CooperativeStickyAssignor()],
            "heartbeat_interval_ms": 1000,
        }
        self._consumer: Consumer[Any, Any] = Consumer(
            bootstrap_servers=bootstrap(cluster),
            group_id=group,
            group_protocol=protocol,
            **(classic if protocol == "classic" else {}),
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
        )

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._owners.assigned(self._name, assigned)

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._owners.revoked(self._name, revoked)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._owners.lost(self._name, lost)

    async def start(self) -> None:
        self._consumer.subscribe([TOPIC], listener=self)
        await self._consumer.start()
        self._polling = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            for records in (await self._consumer.getmany(timeout_ms=100)).values():
                self.values += [int(record.value or b"") for record in records]

    async def stop(self) -> None:
        self._polling.cancel()
        await asyncio.wait([self._polling])
        await self._consumer.stop()


class Librdkafka:
    """librdkafka's consumer, on a thread of its own."""

    def __init__(
        self, cluster: Brokers, group: str, name: str, owners: Owners, protocol: GroupProtocol = "consumer"
    ) -> None:
        self.values: list[int] = []
        self._name, self._owners = name, owners
        # A classic member commits nothing: it repeats a commit whose broker died, and if the group has rebalanced
        # meanwhile, it counts the refusal (ILLEGAL_GENERATION, as from Kafka) as the loss of all its partitions.
        classic = {
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 1000,
            "enable.auto.commit": False,
        }
        self._stop = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap(cluster),
                "group.id": group,
                "group.protocol": protocol,
                **(classic if protocol == "classic" else {}),
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    async def start(self) -> None:
        self._consumer.subscribe(
            [TOPIC],
            on_assign=lambda _, partitions: self._owners.assigned(self._name, partitions),
            on_revoke=lambda _, partitions: self._owners.revoked(self._name, partitions),
            on_lost=lambda _, partitions: self._owners.lost(self._name, partitions),
        )
        self._polling = asyncio.ensure_future(asyncio.to_thread(self._poll))

    def _poll(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.values.append(int(message.value() or b""))
        self._consumer.close()

    async def stop(self) -> None:
        self._stop.set()
        await self._polling


class Producer:
    """Sends numbers to the partitions in turn."""

    def __init__(self, cluster: Brokers) -> None:
        self.sent = 0
        self._errors: list[object] = []
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap(cluster), "enable.idempotence": True, "log_level": 0}
        )

    def begin(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(TOPIC, f"{self.sent}", partition=self.sent % PARTITIONS, on_delivery=self._delivered)
            self.sent += 1

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._errors.append(error)

    async def send(self, count: int) -> None:
        self.begin(count)
        assert await asyncio.to_thread(self._producer.flush, PATIENCE) == 0
        assert self._errors == []


@pytest.mark.parametrize("cluster", [SETTINGS], indirect=True)
@pytest.mark.parametrize("kind", [Ours, Librdkafka])
async def test_the_coordinator_dies_and_members_go_on(
    cluster: Brokers, group: str, kind: type[Ours] | type[Librdkafka]
) -> None:
    owners, producer = Owners(), Producer(cluster)
    members: list[Member] = []

    async def join() -> None:
        members.append(kind(cluster, group, f"member-{len(members)}", owners))
        await members[-1].start()

    async def shared() -> bool:
        owned = list(owners.by_partition.values())
        share = PARTITIONS // len(members)
        return len(owned) == PARTITIONS and all(owned.count(f"member-{n}") == share for n in range(len(members)))

    async def all_read() -> bool:
        return {value for member in members for value in member.values} == set(range(producer.sent))

    try:
        for _ in range(2):
            await join()
        await eventually("both members own their share", shared)
        await producer.send(300)
        await eventually("the first records are read", all_read)
        before = dict(owners.by_partition)
        producer.begin(300)
        cluster[1].kill()
        await producer.send(0)
        await cluster.agree("another broker coordinates", partial(_moved, group=group), OFFSETS_TOPIC)
        await eventually("the records of the outage are read", all_read)
        assert owners.by_partition == before, "the members keep their partitions"
        await join()
        await eventually("the new coordinator gives the third member its share", shared)
        await producer.send(300)
        await eventually("the last records are read", all_read)
        assert owners.mistakes == []
    finally:
        await asyncio.gather(*(member.stop() for member in members))
    async with Admin(bootstrap_servers=f"127.0.0.1:{cluster[2].port}") as admin:
        committed = await admin.list_consumer_group_offsets(group)
    ends = dict.fromkeys(range(PARTITIONS), producer.sent // PARTITIONS)
    assert {tp.partition: each.offset for tp, each in committed.items()} == ends, "what was read is committed"


def _moved(metadata: MetadataResponse, group: str) -> bool:
    return leaders(metadata, OFFSETS_TOPIC)[partition_for(group, SHARDS)] in (2, 3)


async def _kind_of(cluster: Brokers, group: str) -> str:
    """The type of the group, as ListGroups has it; "" while no broker lists it."""
    async with Admin(bootstrap_servers=bootstrap(cluster)) as admin:
        listed = await admin.list_consumer_groups(raise_errors=False)
    return next((each.type for each in listed if each.group_id == group), "")


@pytest.mark.parametrize("cluster", [SETTINGS], indirect=True)
@pytest.mark.parametrize("modern", [Ours, Librdkafka])
async def test_a_group_migrates_and_its_coordinator_dies_meanwhile(
    cluster: Brokers, migrating: str, modern: type[Ours] | type[Librdkafka]
) -> None:
    """A classic group of both libraries is upgraded, and downgraded later. Each time the coordinator is killed."""
    group, owners, producer = migrating, Owners(), Producer(cluster)
    members: dict[str, Member] = {}
    gone: list[Member] = []

    async def join(kind: type[Ours] | type[Librdkafka], name: str, protocol: GroupProtocol) -> None:
        members[name] = kind(cluster, group, name, owners, protocol)
        await members[name].start()

    async def leave(name: str) -> None:
        gone.append(members.pop(name))
        await gone[-1].stop()

    async def shared() -> bool:
        owned = Counter(owners.by_partition.values())
        return owned == dict.fromkeys(members, PARTITIONS // len(members))

    async def all_read() -> bool:
        read = {value for member in (*members.values(), *gone) for value in member.values}
        return read == set(range(producer.sent))

    async def is_of(kind: str) -> bool:
        return await _kind_of(cluster, group) == kind

    async def coordinator() -> int:
        return leaders(await cluster[2].metadata(OFFSETS_TOPIC), OFFSETS_TOPIC)[partition_for(group, SHARDS)]

    try:
        await join(Ours, "old-ours", "classic")
        await join(Librdkafka, "old-librdkafka", "classic")
        await eventually("the classic members own their share", shared)
        await eventually("the group is classic", partial(is_of, "classic"))
        await producer.send(300)
        await eventually("the first records are read", all_read)
        # The coordinator dies when the group is upgraded, and the classic members have not rejoined yet.
        await join(modern, "new", "consumer")
        producer.begin(300)
        await eventually("the group is upgraded", partial(is_of, "consumer"))
        cluster[1].kill()
        await producer.send(0)
        await cluster.agree("another broker coordinates", partial(_moved, group=group), OFFSETS_TOPIC)
        await eventually("three members own their share", shared)
        await eventually("the group is still upgraded", partial(is_of, "consumer"))
        await eventually("the records of the upgrade are read", all_read)
        # The broker comes back, so that the next coordinator may die.
        await cluster[1].start()
        await cluster.agree("all replicas are in sync", _in_sync, OFFSETS_TOPIC, TOPIC)
        dying = await coordinator()
        producer.begin(300)
        await leave("new")
        await eventually("the group is downgraded", partial(is_of, "classic"))
        cluster[dying].kill()
        await producer.send(0)
        await eventually("the classic members own everything again", shared)
        await eventually("the group is still classic", partial(is_of, "classic"))
        await eventually("the last records are read", all_read)
        assert owners.mistakes == []
    finally:
        await asyncio.gather(*(member.stop() for member in members.values()))


def _in_sync(metadata: MetadataResponse) -> bool:
    partitions = [partition for topic in metadata.topics for partition in topic.partitions]
    return len(partitions) == PARTITIONS + SHARDS and all(len(each.isr_nodes) == 3 for each in partitions)
