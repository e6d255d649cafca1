"""Brokers stop, are killed and return; leaders move."""

import time

import pytest

from barnabas_client import Producer
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.metadata import MetadataResponse
from tests.cluster.harness import SHORT_LEASE, Brokers, Node, create, eventually, leaders

pytestmark = pytest.mark.cluster

lease_ends = pytest.mark.parametrize("cluster", [[SHORT_LEASE]], indirect=True)


@lease_ends
async def test_leaders_move_off_a_killed_broker_which_then_returns(cluster: Brokers) -> None:
    await cluster.start(3)
    assert await create(cluster[2], "moved", 6, 3) == ErrorCode.NONE
    await cluster.agree(
        "the topic is everywhere", lambda metadata: sorted(set(leaders(metadata, "moved"))) == [1, 2, 3], "moved"
    )
    cluster[1].kill()

    def taken_over(metadata: MetadataResponse) -> bool:
        return set(leaders(metadata, "moved")) == {2, 3} and {b.node_id for b in metadata.brokers} == {2, 3}

    await cluster.agree("leaders on the others", taken_over, "moved")
    assert await create(cluster[3], "meanwhile", 1, 3) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert await create(cluster[3], "meanwhile", 1, 2) == ErrorCode.NONE
    await cluster[1].start()
    await cluster.live(3)
    await cluster.agree(
        "it knows what it missed", lambda metadata: len(leaders(metadata, "meanwhile")) == 1, "meanwhile"
    )


async def test_a_killed_broker_is_replaced_before_its_lease_expires(cluster: Brokers) -> None:
    """Its lease lasts for minutes: the kernel refuses connections to its port, so the others know that it has ended."""
    await cluster.start(3)
    assert await create(cluster[1], "led", 6, 3) == ErrorCode.NONE
    await cluster.agree("the topic is everywhere", lambda metadata: set(leaders(metadata, "led")) == {1, 2, 3}, "led")
    addresses = ",".join(f"127.0.0.1:{node.port}" for node in cluster.running)
    async with Producer(bootstrap_servers=addresses, acks="all") as producer:
        for partition in range(6):
            await producer.send_and_wait("led", b"every follower has fetched this", partition=partition)
    began = time.monotonic()
    cluster[1].kill()
    await cluster.agree("the others lead", lambda metadata: set(leaders(metadata, "led")) == {2, 3}, "led")
    print(f"others lead {time.monotonic() - began:.3f} s after kill -9")
    await cluster[1].start()
    await cluster.live(3)


async def test_acks_do_not_wait_for_the_lease_of_a_killed_broker_that_leads_nothing(cluster: Brokers) -> None:
    await cluster.start(3)
    assert await create(cluster[1], "one", 1, 3) == ErrorCode.NONE
    await cluster.agree("the topic is everywhere", lambda metadata: len(leaders(metadata, "one")) == 1, "one")
    (leader,) = leaders(await cluster[1].metadata("one"), "one")
    async with Producer(bootstrap_servers=f"127.0.0.1:{cluster[leader].port}", acks="all") as producer:
        await producer.send_and_wait("one", b"every follower has fetched this")
        follower = next(node for node in cluster.running if node.node_id != leader)
        began = time.monotonic()
        follower.kill()
        # It is in the ISR, and its lease lasts for five minutes.
        await producer.send_and_wait("one", b"and this by those that live")
        print(f"acknowledged {time.monotonic() - began:.3f} s after kill -9")
        await cluster.live(2)
    await follower.start()
    await cluster.live(3)


async def test_a_stopped_broker_moves_its_leaderships_at_once(cluster: Brokers) -> None:
    await cluster.start(3)
    assert await create(cluster[1], "handed", 6, 2) == ErrorCode.NONE
    assert await cluster[3].stop() == 0

    def handed_over(metadata: MetadataResponse) -> bool:
        return set(leaders(metadata, "handed")) == {1, 2}

    # Its lease still lasts for minutes.
    await cluster.agree("the others lead", handed_over, "handed")
    await cluster.live(2)


@lease_ends
async def test_the_last_in_sync_replica_leads_again_after_its_return(cluster: Brokers) -> None:
    await cluster.start(2)
    assert await create(cluster[1], "alone", 4, 1) == ErrorCode.NONE
    await cluster.agree("both lead", lambda metadata: set(leaders(metadata, "alone")) == {1, 2}, "alone")
    before = leaders(await cluster[1].metadata("alone"), "alone")
    cluster[2].kill()
    await cluster.live(1)
    await cluster[2].start()

    async def as_before() -> bool:
        return leaders(await cluster[1].metadata("alone"), "alone") == before

    await eventually("its partitions are its own again", as_before)


@lease_ends
async def test_a_node_id_in_use_is_rejected(cluster: Brokers) -> None:
    await cluster.start(1)
    other = Node(cluster.url, 1, cluster.directory / "other", cluster.settings)
    other.launch()
    assert await other.ended() == 1
    assert f"node id 1 is in use by the broker at 127.0.0.1:{cluster[1].port}" in other.output.read_text()
