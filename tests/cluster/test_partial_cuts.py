"""A leader is cut off from a part of the others only: producers go on while the cut lasts."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from barnabas_client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.cluster.harness import PATIENCE, eventually
from tests.cluster.hosts import namespaces_work
from tests.cluster.nemesis import HEAL_SECONDS
from tests.cluster.stand import BROKERS, Broker, Stand
from tests.needs import missing

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(8 * PATIENCE)]

#: A topic with one partition.
TOPIC = "led"
WHERE = TopicPartition(TOPIC, 0)


class Load:
    """Writes one record after the other with acks=all, each when the one before is acknowledged.

    Attributes:
        acknowledged: how many are.
        longest: seconds of the longest wait for an acknowledgement.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.acknowledged = 0
        self.longest = 0.0
        self.stopping = False

    async def run(self) -> None:
        # A leader that is cut off must answer: the producer waits for longer than the test.
        patience = 4 * round(PATIENCE) * 1000
        async with Producer(
            bootstrap_servers=self._bootstrap, acks="all", delivery_timeout_ms=patience, request_timeout_ms=patience
        ) as producer:
            while not self.stopping:
                began = time.monotonic()
                await producer.send_and_wait(TOPIC, b"%d" % self.acknowledged, partition=0)
                self.longest = max(self.longest, time.monotonic() - began)
                self.acknowledged += 1
                await asyncio.sleep(0.01)

    async def goes_on(self) -> None:
        """Wait until some more records are acknowledged."""
        goal = self.acknowledged + 20

        async def reached() -> bool:
            return self.acknowledged >= goal

        await eventually(f"{goal} records are acknowledged", reached)


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    """Three brokers with the topic, each on a host of its own."""
    if not namespaces_work():
        missing("networks are cut with network namespaces, which needs root and ip", on_this_machine=False)
    made = Stand(tmp_path, cuttable=True)
    try:
        await made.start()
        async with Admin(bootstrap_servers=made.bootstrap) as admin:

            async def registered() -> bool:
                return len((await admin.describe_cluster()).brokers) == len(BROKERS)

            await eventually("all brokers are registered", registered)
            await admin.create_topics([NewTopic(TOPIC, 1, len(BROKERS))])
        yield made
    finally:
        await asyncio.to_thread(made.close)
        for broker in made.brokers:
            print(f"--- {broker.name}\n{broker.output.read_text()}")


async def leader_of(stand: Stand, asked: Sequence[Broker] = ()) -> Broker:
    """The broker that leads the topic, as some of the brokers say, or any."""
    async with Admin(bootstrap_servers=[each.address for each in asked or stand.brokers]) as admin:
        (topic,) = await admin.describe_topics([TOPIC])
    return next(each for each in stand.brokers if each.number == topic.partitions[0].leader)


async def in_sync(stand: Stand) -> bool:
    async with Admin(bootstrap_servers=stand.bootstrap) as admin:
        (topic,) = await admin.describe_topics([TOPIC], raise_errors=False)  # some brokers do not know it yet
    return bool(topic.partitions) and len(topic.partitions[0].isr) == len(BROKERS)


async def stored(stand: Stand) -> list[int]:
    """All records of the topic."""
    found: list[int] = []
    async with Consumer(bootstrap_servers=stand.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([WHERE])
        async with asyncio.timeout(PATIENCE):
            end = (await consumer.end_offsets([WHERE]))[WHERE]
            while await consumer.position(WHERE) < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [int(record.value or b"") for record in records]
    return found


@pytest.mark.parametrize("cut", [Stand.separate, Stand.deafen, Stand.cut_from_etcd, Stand.isolate])
async def test_writes_continue_while_a_leader_is_cut_off(stand: Stand, cut: Callable[[Stand, Broker], None]) -> None:
    """From the other brokers only, while etcd and clients reach it; from what etcd sends to it; from etcd; from all but
    clients."""
    await eventually("all replicas are in sync", lambda: in_sync(stand), HEAL_SECONDS)
    load = Load(stand.bootstrap)
    writing = asyncio.create_task(load.run())
    try:
        await load.goes_on()
        before = load.longest
        leader = await leader_of(stand)
        began = time.monotonic()
        cut(stand, leader)

        async def moved() -> bool:
            # The leader itself may not hear of it before the cut ends.
            return await leader_of(stand, [each for each in stand.brokers if each is not leader]) is not leader

        await eventually("another broker leads", moved)
        print(f"after {time.monotonic() - began:.1f} s another broker leads")
        await load.goes_on()
        print(f"without an acknowledgement: {load.longest:.2f} s in the cut, {before:.2f} s before")
        leader.mend()
        await eventually("all replicas are in sync again", lambda: in_sync(stand), HEAL_SECONDS)
        await load.goes_on()
    finally:
        load.stopping = True
        await asyncio.wait_for(writing, PATIENCE)
    assert await stored(stand) == list(range(load.acknowledged))
