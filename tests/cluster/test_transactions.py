"""Transactions on three brokers: markers and verification between them, coordinators and leaders that die.

Partition n of a topic is led by another broker than partition n + 1. Broker 1 coordinates the transactions.
"""

import asyncio
import json
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import confluent_kafka
import pytest

from barnabas_client import Admin, KafkaError, Producer
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import TRANSACTIONS_TOPIC, partition_for
from barnabas_protocol.messages.metadata import MetadataResponse
from tests.cluster.harness import PATIENCE, SHORT_LEASE, Brokers, create, eventually, leaders

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(6 * PATIENCE)]

T = TypeVar("T")

#: Partitions of every topic: one for each broker.
COUNT: Final = 3
SETTINGS: Final = [
    "min.insync.replicas=2",
    "default.replication.factor=3",
    "offsets.topic.num.partitions=3",
    "transaction.state.log.num.partitions=3",
    "replica.lag.time.max.ms=1500",
    "replica.fetch.backoff.ms=100",
]
#: Seconds after which a call of librdkafka is repeated.
_CALL: Final = 10.0

three_brokers = pytest.mark.parametrize("cluster", [SETTINGS], indirect=True)


@pytest.fixture
async def admin(cluster: Brokers) -> AsyncIterator[Admin]:
    """Three brokers with the topics t and source; 1 and 2 are missed soon after they die, 3 is not."""
    for node_id in (1, 2):
        cluster.add(node_id, SHORT_LEASE).launch()
    await asyncio.gather(*(node.serving() for node in cluster.nodes.values()))
    # The last one is not the controller: that must not sleep while another broker dies.
    await cluster.add(3).start()
    await cluster.live(3)
    for topic in ("t", "source"):
        assert await create(cluster[1], topic, COUNT, 3) == ErrorCode.NONE
        await cluster.agree(f"{topic} is everywhere", partial(spread, topic=topic), topic)
    async with Admin(bootstrap_servers=bootstrap(cluster)) as made:
        yield made


def spread(metadata: MetadataResponse, topic: str) -> bool:
    """Whether each broker leads one partition of a topic."""
    return sorted(leaders(metadata, topic)) == [1, 2, 3]


def bootstrap(cluster: Brokers) -> str:
    return ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes.values())


async def repeated(what: str, call: Callable[[], T]) -> T:
    """Call librdkafka until it does not fail with an error that says to try again."""
    results: list[T] = []

    async def done() -> bool:
        try:
            results.append(await asyncio.to_thread(call))
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable():
                raise
        return bool(results)

    await eventually(what, done)
    return results[0]


class Sender:
    """A transactional producer of librdkafka."""

    def __init__(self, cluster: Brokers, name: str) -> None:
        self.name = name
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap(cluster),
                "transactional.id": name,
                "log_level": 0,
                "reconnect.backoff.max.ms": 500,
            }
        )

    async def init(self) -> None:
        await repeated("the producer is initialized", lambda: self.producer.init_transactions(_CALL))

    async def send(self, value: str) -> None:
        """Begin a transaction and send a record to each partition."""
        self.producer.begin_transaction()
        errors: list[object] = []
        for partition in range(COUNT):
            self.producer.produce("t", value, partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert await asyncio.to_thread(self.producer.flush, PATIENCE) == 0
        assert errors == [None] * COUNT

    async def end(self, *, commit: bool) -> None:
        call = self.producer.commit_transaction if commit else self.producer.abort_transaction
        await repeated("the transaction ends", lambda: call(_CALL))


async def coordinated_by(cluster: Brokers, admin: Admin, node_id: int) -> str:
    """A transactional id whose coordinator is this broker."""
    first = Sender(cluster, "first")  # creates the topic
    await first.init()
    await cluster.agree(
        "the topic has leaders", lambda metadata: spread(metadata, TRANSACTIONS_TOPIC), TRANSACTIONS_TOPIC
    )
    led = leaders(await cluster[node_id].metadata(TRANSACTIONS_TOPIC), TRANSACTIONS_TOPIC)
    names = (f"id-{number}" for number in range(1000))
    return next(name for name in names if led[partition_for(name, COUNT)] == node_id)


async def state(admin: Admin, name: str) -> str:
    """The state of a transactional id; "" while it has no coordinator."""
    try:
        (described,) = await admin.describe_transactions([name], timeout_ms=5_000)
    except (KafkaError, TimeoutError):
        return ""
    return described.state


async def becomes(admin: Admin, name: str, wanted: str) -> None:
    async def reached() -> bool:
        return await state(admin, name) == wanted

    await eventually(f"{name} is {wanted}", reached)


async def committed(cluster: Brokers, topic: str = "t") -> list[Counter[str]]:
    """The values of each partition that read_committed returns, when all transactions have ended."""

    def read() -> list[Counter[str]]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap(cluster),
                "group.id": str(uuid.uuid4()),
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        found: list[Counter[str]] = [Counter() for _ in range(COUNT)]
        ended: set[int] = set()
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(COUNT)])
            while len(ended) < COUNT:
                (message,) = consumer.consume(1, PATIENCE) or (None,)
                assert message is not None, found
                partition, error, value = message.partition(), message.error(), message.value()
                assert partition is not None
                if error is None and value is not None:
                    found[partition][value.decode()] += 1
                elif error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ended.add(partition)
        finally:
            consumer.close()
        return found

    return await asyncio.to_thread(read)


def each_partition(*values: str) -> list[Counter[str]]:
    return [Counter(values)] * COUNT


@three_brokers
async def test_transactions_end_on_partitions_of_all_leaders(cluster: Brokers, admin: Admin) -> None:
    sender = Sender(cluster, await coordinated_by(cluster, admin, 1))
    await sender.init()
    for number in range(6):
        await sender.send(f"{number}")
        await sender.end(commit=number % 2 == 0)
    await becomes(admin, sender.name, "CompleteAbort")
    assert await committed(cluster) == each_partition("0", "2", "4")


@three_brokers
async def test_version_2_adds_partitions_from_every_leader(cluster: Brokers, admin: Admin) -> None:
    """Barnabas's client: the leaders add their partitions at the coordinator (KIP-890)."""
    name = await coordinated_by(cluster, admin, 1)
    async with Producer(bootstrap_servers=bootstrap(cluster), transactional_id=name) as producer:
        for number in range(6):
            await producer.begin_transaction()
            for partition in range(COUNT):
                await producer.send_and_wait("t", b"%d" % number, partition=partition)
            if number % 2 == 0:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
    (described,) = await admin.describe_transactions([name])
    assert described.producer_epoch >= 6
    await becomes(admin, name, "CompleteAbort")
    assert await committed(cluster) == each_partition("0", "2", "4")


@three_brokers
async def test_events_of_all_coordinators_are_explained(cluster: Brokers, admin: Admin) -> None:
    names = [await coordinated_by(cluster, admin, node_id) for node_id in (1, 2, 3)]
    for name in names:
        sender = Sender(cluster, name)
        await sender.init()
        await sender.send(name)
        await Sender(cluster, name).init()  # fences it, and aborts its transaction

    async def explained() -> bool:
        command = (
            sys.executable,
            "-m",
            "barnabas_client.cli",
            "-b",
            bootstrap(cluster),
            "transactions",
            "explain",
            "--json",
        )
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
        out, err = await process.communicate()
        assert process.returncode == 0, err
        found = [event for one in json.loads(out) for event in one["data"]]
        assert {event["cause"] for event in found} <= {"fenced"}
        return sorted(event["transactional_id"] for event in found) == sorted(names)

    await eventually("the events of all coordinators are there", explained)


@three_brokers
async def test_a_processor_commits_offsets_and_records_together(cluster: Brokers, admin: Admin) -> None:
    plain = confluent_kafka.Producer({"bootstrap.servers": bootstrap(cluster), "acks": "all", "log_level": 0})
    for number in range(300):
        plain.produce("source", f"{number}", partition=number % COUNT)
    assert await asyncio.to_thread(plain.flush, PATIENCE) == 0
    sender = Sender(cluster, await coordinated_by(cluster, admin, 1))
    await sender.init()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap(cluster),
            "group.id": "processor",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    positions = dict.fromkeys(range(COUNT), 0)
    consumer.assign([confluent_kafka.TopicPartition("source", each, 0) for each in range(COUNT)])
    turns = 0
    while sum(positions.values()) < 300:
        messages = await asyncio.to_thread(consumer.consume, 25, PATIENCE / 4)
        if not messages:
            continue
        turns += 1
        sender.producer.begin_transaction()
        ahead = dict(positions)
        for message in messages:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert message.error() is None and partition is not None and offset is not None
            sender.producer.produce("t", value, partition=(partition + 1) % COUNT)
            ahead[partition] = max(ahead[partition], offset + 1)
        offsets = [confluent_kafka.TopicPartition("source", each, at) for each, at in ahead.items()]
        send = partial(sender.producer.send_offsets_to_transaction, offsets, consumer.consumer_group_metadata(), _CALL)
        await repeated("the offsets are sent", send)
        commit = turns % 3 > 0
        await sender.end(commit=commit)
        if commit:
            positions = ahead
        else:
            for each, at in positions.items():
                consumer.seek(confluent_kafka.TopicPartition("source", each, at))
    places = [confluent_kafka.TopicPartition("source", each) for each in range(COUNT)]

    def stable() -> list[int]:
        return [each.offset for each in consumer.committed(places, _CALL)]

    assert await repeated("the offsets are read", stable) == [100] * COUNT
    await asyncio.to_thread(consumer.close)
    found = sum(await committed(cluster), Counter[str]())
    assert found == Counter(f"{number}" for number in range(300))


@three_brokers
@pytest.mark.parametrize("at", ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"])
async def test_the_coordinator_dies_and_another_one_continues(cluster: Brokers, admin: Admin, at: str) -> None:
    sender = Sender(cluster, await coordinated_by(cluster, admin, 1))
    await sender.init()
    expected = []
    if at != "Empty":
        commit = at.endswith("Commit")
        expected = ["first"] if commit or at == "Ongoing" else []
        await sender.send("first")
        ending: Awaitable[None] | None = None
        if at.startswith("Prepare"):
            # The marker of its partition cannot be written: the decision stays, for as long as it sleeps.
            cluster[3].pause()
            ending = asyncio.ensure_future(sender.end(commit=commit))
        elif at.startswith("Complete"):
            await sender.end(commit=commit)
        await becomes(admin, sender.name, at)
    cluster[1].kill()
    partition = partition_for(sender.name, COUNT)

    def moved(metadata: MetadataResponse) -> bool:
        return leaders(metadata, TRANSACTIONS_TOPIC)[partition] in (2, 3)

    if at.startswith("Prepare"):
        await eventually("it moves", lambda: _sees(cluster, 2, moved))
        cluster[3].resume()
    await cluster.agree("it moves", moved, TRANSACTIONS_TOPIC)
    if at == "Ongoing":
        await becomes(admin, sender.name, "Ongoing")
        await sender.end(commit=True)
    elif at.startswith("Prepare"):
        assert ending is not None
        await ending
        await becomes(admin, sender.name, at.replace("Prepare", "Complete"))
    await sender.send("second")
    await sender.end(commit=True)
    await becomes(admin, sender.name, "CompleteCommit")
    assert await committed(cluster) == each_partition(*expected, "second")


async def _sees(cluster: Brokers, node_id: int, check: Callable[[MetadataResponse], bool]) -> bool:
    return check(await cluster[node_id].metadata(TRANSACTIONS_TOPIC))


@three_brokers
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
async def test_a_leader_dies_while_markers_are_under_way(
    cluster: Brokers, admin: Admin, commit: bool, frozen: bool
) -> None:
    sender = Sender(cluster, await coordinated_by(cluster, admin, 1))
    await sender.init()
    await sender.send("first")
    cluster[2].pause()
    ending = asyncio.ensure_future(sender.end(commit=commit))
    if not frozen:
        await becomes(admin, sender.name, "PrepareCommit" if commit else "PrepareAbort")
        cluster[2].resume()
        cluster[2].kill()
    await ending
    await becomes(admin, sender.name, "CompleteCommit" if commit else "CompleteAbort")
    if frozen:
        cluster[2].resume()
        await cluster.live(3)
    await sender.send("second")
    await sender.end(commit=True)
    assert await committed(cluster) == each_partition(*(["first"] if commit else []), "second")
