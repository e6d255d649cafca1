"""Share groups (KIP-932) on several brokers.

- The leader of a group's partition and its share coordinator die. Two members of confluent-kafka release each third
  record once, and accept the others. What a broker has confirmed as accepted is not delivered again; everything else
  comes back, until nothing is left.
- Dead letters go to another broker.
"""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import OFFSETS_TOPIC, SHARE_GROUPS_TOPIC
from barnabas_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.messages.metadata import MetadataResponse
from tests.cluster.harness import PATIENCE, SHORT_LEASE, Brokers, create, eventually, leaders
from tests.wire import Wire

confluent_kafka = pytest.importorskip("confluent_kafka")
if not hasattr(confluent_kafka, "ShareConsumer"):
    pytest.skip("confluent-kafka before 2.15 has no ShareConsumer", allow_module_level=True)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(6 * PATIENCE)]

TOPIC: Final = "work"
GROUP: Final = "workers"
#: Records that are produced before each kill, and after the last one.
PART: Final = 200
SETTINGS: Final = [
    SHORT_LEASE,
    "min.insync.replicas=2",
    "default.replication.factor=3",
    "offsets.topic.num.partitions=1",
    "share.coordinator.state.topic.num.partitions=1",
    "share.coordinator.state.topic.replication.factor=3",
    "share.coordinator.state.topic.min.isr=2",
    "replica.lag.time.max.ms=1500",
    "replica.fetch.backoff.ms=100",
]


#: A group with this configuration begins with the first record of a partition.
BEGINNING: Final = {"share.auto.offset.reset": "earliest"}


@dataclass
class Seen:
    """What the members of a group have seen.

    Attributes:
        accepted: records of which a broker has confirmed that they are accepted.
        unclear: those of which none has: if they are not, they come back.
        counts: the delivery counts of each record, in their order.
    """

    accepted: set[int] = field(default_factory=set)
    unclear: set[int] = field(default_factory=set)
    counts: dict[int, list[int]] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """Records that are accepted, perhaps."""
        return len(self.accepted | self.unclear)


class Member:
    """A member in a thread of its own.

    Attributes:
        seen: what all members have seen together.
        mistakes: what must not happen.
    """

    def __init__(self, bootstrap: str, seen: "Seen") -> None:
        self.seen = seen
        self.mistakes: list[str] = []
        self._stop = threading.Event()
        self._consumer = confluent_kafka.ShareConsumer(
            {"bootstrap.servers": bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
        )
        self._consumer.subscribe([TOPIC])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._work()
        except Exception as error:
            self.mistakes.append(repr(error))
            raise

    def _work(self) -> None:
        taken = []
        for message in self._consumer.poll(0.2):
            if message.error() is not None:
                continue
            number = int(message.value())
            if number in self.seen.accepted:
                self.mistakes.append(f"{number} was accepted, and is delivered again")
            counts = self.seen.counts.setdefault(number, [])
            counts.append(message.delivery_count())
            release = number % 3 == 0 and len(counts) == 1
            kinds = confluent_kafka.AcknowledgeType
            self._consumer.acknowledge(message, kinds.RELEASE if release else kinds.ACCEPT)
            if not release:
                taken.append(number)
        try:
            confirmed = all(error is None for error in self._consumer.commit_sync(PATIENCE).values())
        except confluent_kafka.KafkaException:
            confirmed = False
        (self.seen.accepted if confirmed else self.seen.unclear).update(taken)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        self._consumer.close()


def in_sync(metadata: MetadataResponse) -> bool:
    """Whether all partitions have three replicas in sync."""
    return all(len(part.isr_nodes) == 3 for topic in metadata.topics for part in topic.partitions) and all(
        topic.error_code == ErrorCode.NONE for topic in metadata.topics
    )


async def configure(cluster: Brokers, values: Mapping[str, str]) -> None:
    """Configure the group."""
    configs = [IncrementalAlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items()]
    resource = IncrementalAlterConfigsResource(resource_type=32, resource_name=GROUP, configs=configs)
    async with await Wire.connect(cluster[1].port) as wire:
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await wire.ask(request, 1, IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == ErrorCode.NONE, answer


async def start_offset(cluster: Brokers) -> int:
    """The first record that the group has not processed, as its coordinator says; -1 if it is not known."""
    led = leaders(await cluster.running[0].metadata(OFFSETS_TOPIC), OFFSETS_TOPIC)[0]
    if led < 0:
        return -1
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)]
    async with await Wire.connect(cluster[led].port) as wire:
        request = DescribeShareGroupOffsetsRequest(groups=groups)
        answer = await wire.ask(request, 1, DescribeShareGroupOffsetsResponse)
    return next((part.start_offset for topic in answer.groups[0].topics for part in topic.partitions), -1)


@pytest.mark.parametrize("cluster", [SETTINGS], indirect=True)
async def test_no_record_is_lost_and_none_accepted_twice_though_leaders_die(cluster: Brokers) -> None:
    await cluster.start(3)
    assert await create(cluster[1], TOPIC, 1, 3) == ErrorCode.NONE
    await configure(cluster, BEGINNING)
    bootstrap = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes.values())
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    seen = Seen()
    members = [Member(bootstrap, seen) for _ in range(2)]
    made = 0

    async def produce() -> None:
        nonlocal made
        for number in range(made, made + PART):
            producer.produce(TOPIC, b"%d" % number, partition=0)
        made += PART
        assert await asyncio.to_thread(producer.flush, PATIENCE) == 0

    async def more_accepted(least: int) -> None:
        async def enough() -> bool:
            assert not any(member.mistakes for member in members), [member.mistakes for member in members]
            return seen.done >= least

        await eventually(f"{least} records are accepted", enough, 2 * PATIENCE)

    try:
        await produce()
        await more_accepted(PART // 2)
        for topic in (TOPIC, SHARE_GROUPS_TOPIC):
            names = (TOPIC, OFFSETS_TOPIC, SHARE_GROUPS_TOPIC)
            await cluster.agree("all replicas are in sync", in_sync, *names)
            victim = leaders(await cluster.running[0].metadata(topic), topic)[0]
            before = seen.done
            producing = asyncio.create_task(produce())
            cluster[victim].kill()
            await producing
            await more_accepted(before + PART // 2)
            await cluster[victim].start()
        await more_accepted(made)

        async def processed() -> bool:
            return await start_offset(cluster) == made

        await eventually("the coordinator says that all is processed", processed, 2 * PATIENCE)
    finally:
        for member in members:
            await asyncio.to_thread(member.stop)
    assert sorted(seen.accepted | seen.unclear) == list(range(made)), "none is lost"
    assert [member.mistakes for member in members] == [[], []]
    assert [number for number in range(0, made, 3) if max(seen.counts[number]) < 2] == [], "what is released comes back"


@pytest.mark.parametrize("cluster", [SETTINGS], indirect=True)
async def test_deliveries_are_counted_across_a_failover(cluster: Brokers) -> None:
    """A record that was released twice, before the leaders of its partition and of its state die, is delivered a third
    time."""
    await cluster.start(3)
    assert await create(cluster[1], TOPIC, 1, 3) == ErrorCode.NONE
    await configure(cluster, BEGINNING)
    bootstrap = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes.values())
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(TOPIC, b"0", partition=0)
    assert await asyncio.to_thread(producer.flush, PATIENCE) == 0
    consumer = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([TOPIC])

    def release() -> tuple[list[int], bool]:
        """Release what there is; the delivery counts, and whether a broker has confirmed it."""
        counts = []
        for message in consumer.poll(0.5):
            if message.error() is None:
                counts.append(message.delivery_count())
                consumer.acknowledge(message, confluent_kafka.AcknowledgeType.RELEASE)
        return counts, not counts or all(error is None for error in consumer.commit_sync(PATIENCE).values())

    async def delivered(count: int) -> None:
        async def again() -> bool:
            counts, confirmed = await asyncio.to_thread(release)
            assert counts in ([], [count])
            # The client may have got the third one before its leader died.
            assert confirmed or count == 3
            return bool(counts)

        await eventually(f"delivery {count}", again, 2 * PATIENCE)

    try:
        await delivered(1)
        await delivered(2)
        for topic in (TOPIC, SHARE_GROUPS_TOPIC):
            names = (TOPIC, OFFSETS_TOPIC, SHARE_GROUPS_TOPIC)
            await cluster.agree("all replicas are in sync", in_sync, *names)
            victim = leaders(await cluster.running[0].metadata(topic), topic)[0]
            cluster[victim].kill()
            await cluster[victim].start()
        await delivered(3)
    finally:
        await asyncio.to_thread(consumer.close)


async def create_on(cluster: Brokers, name: str, node_id: int, configs: Mapping[str, str]) -> None:
    """Create a topic with one partition, whose only replica is on a broker."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[node_id])],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    async with await Wire.connect(cluster[node_id].port) as wire:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(PATIENCE * 1000))
        answer = await wire.ask(request, 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE
    await cluster.agree(f"{name} has a leader", lambda metadata: leaders(metadata, name) == [node_id], name)


async def test_dead_letters_go_to_the_leader_of_their_topic(cluster: Brokers) -> None:
    """A rejected record is on another broker then, with Kafka's headers after its own."""
    await cluster.start(2)
    await create_on(cluster, TOPIC, 1, {})
    await create_on(cluster, "dlq.work", 2, {"errors.deadletterqueue.group.enable": "true"})
    letters = {
        "errors.deadletterqueue.topic.name": "dlq.work",
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    await configure(cluster, {**BEGINNING, **letters})
    bootstrap = f"127.0.0.1:{cluster[1].port}"
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(3):
        producer.produce(TOPIC, b"%d" % number, b"key", partition=0, headers=[("of", b"mine")])
    assert await asyncio.to_thread(producer.flush, PATIENCE) == 0
    member = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    )
    member.subscribe([TOPIC])
    reader = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    reader.assign([confluent_kafka.TopicPartition("dlq.work", 0, 0)])
    seen: set[bytes] = set()

    def reject_the_last() -> bool:
        """Accept two records and reject the last one; whether all were delivered."""
        kinds = confluent_kafka.AcknowledgeType
        for message in member.poll(0.5):
            if message.error() is None:
                seen.add(message.value())
                member.acknowledge(message, kinds.REJECT if message.value() == b"2" else kinds.ACCEPT)
        errors = member.commit_sync(PATIENCE).values()
        assert not any(errors), errors
        return len(seen) == 3

    async def rejected() -> bool:
        return await asyncio.to_thread(reject_the_last)

    try:
        await eventually("all records are delivered", rejected)
        (letter,) = await asyncio.to_thread(reader.consume, 1, PATIENCE)
    finally:
        await asyncio.to_thread(member.close)
        await asyncio.to_thread(reader.close)
    assert (letter.key(), letter.value()) == (b"key", b"2")
    assert letter.headers() == [
        ("of", b"mine"),
        ("__dlq.errors.topic", TOPIC.encode()),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"2"),
        ("__dlq.errors.group", GROUP.encode()),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    ]
