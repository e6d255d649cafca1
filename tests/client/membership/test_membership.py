"""The membership's thread, against a real broker in a process of its own: what a program does with its event loop is
its own business until `max_poll_interval_ms`."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from barnabas_broker.testing import Broker
from barnabas_client import Admin, Consumer, NewTopic, Producer, TopicPartition
from barnabas_client.errors import CommitFailedError, KafkaError
from barnabas_client.lifecycle import State
from tests.stopwatch import stopwatch
from tests.world.broker import until

pytestmark = [pytest.mark.usefixtures("no_complaints"), pytest.mark.broad]

#: Seconds. Without heartbeats a member is out after these.
SESSION = 3.0


@pytest.fixture(scope="module")
def live() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
async def topic(live: Broker) -> str:
    name = f"topic-{uuid4().hex[:12]}"
    async with Admin(bootstrap_servers=live.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
    async with Producer(bootstrap_servers=live.bootstrap_servers) as producer:
        for at in range(20):
            await producer.send(topic=name, value=b"%d" % at, partition=0)
    return name


def member(live: Broker, *topics: str, **settings: Any) -> Consumer:
    given: dict[str, Any] = {
        "bootstrap_servers": live.bootstrap_servers,
        "group_id": f"group-{uuid4().hex[:12]}",
        "client_id": f"client-{uuid4().hex[:12]}",
        "auto_offset_reset": "earliest",
        "session_timeout_ms": round(SESSION * 1000),
        "heartbeat_interval_ms": 100,
        **settings,
    }
    return Consumer(*topics, **given)


def group_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("barnabas-group-")}


def block(seconds: float) -> None:
    """Keep the event loop from running, as a program does that computes or calls what is not async."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)


async def test_a_blocked_program_stays_a_member(live: Broker, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    async with member(live, topic) as consumer:
        assert (await consumer.getone()).value == b"0"
        before = consumer.metrics()
        block(1.5 * SESSION)
        assert (await consumer.getone()).offset == 1
        await consumer.commit()
        await asyncio.sleep(0)
        after = consumer.metrics()
    assert before["generation"] == after["generation"] == 1
    assert after["rebalance-total"] == 1
    longest = after["event-loop-lag-max"]
    assert isinstance(longest, float)
    assert longest >= 1_000 * SESSION
    seen = [record.getMessage() for record in caplog.records if "the event loop was blocked" in record.getMessage()]
    assert len(seen) == 1
    assert "in block (test_membership.py:" in seen[0]
    assert "asyncio.to_thread" in seen[0]


async def test_a_program_that_blocks_between_ready_records_still_polls(live: Broker, topic: str) -> None:
    async with member(live, topic, max_poll_interval_ms=4_000) as consumer:
        count = 0
        async for _ in consumer:
            block(0.25)  # twenty times: much longer than the interval in all, never as long in one
            count += 1
            if count == 20:
                break
        assert consumer.metrics()["generation"] == 1
        assert consumer.metrics()["failed-rebalance-total"] == 0
        await consumer.commit()


async def test_a_program_that_blocks_too_long_leaves_with_a_warning(
    live: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    consumer = member(live, topic, max_poll_interval_ms=1_500, enable_auto_commit=False)
    async with consumer:
        first = await consumer.poll(2_000)
        client_id = consumer._client.client_id
        asked = threading.Event()

        def left() -> None:
            live.wait_for_request("LeaveGroup", client_id=client_id)
            asked.set()

        watcher = threading.Thread(target=left)
        watcher.start()
        while not asked.is_set():
            block(0.1)
        watcher.join(60)
        await until(lambda: consumer._running_group().membership.generation < 0)
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            await consumer.commit({TopicPartition(topic, 0): 1})
        again = await consumer.poll(10_000)
        while not again:
            again = await consumer.poll(10_000)
        assert again[0].offset == first[0].offset  # nothing was committed
        assert consumer.metrics()["failed-rebalance-total"] == 1
    left_because = [r.getMessage() for r in caplog.records if "leaving the group" in r.getMessage()]
    assert len(left_because) == 1
    assert "did not poll for max_poll_interval_ms (1500 ms)" in left_because[0]
    assert "event_loop_blocked='in block (test_membership.py:" in left_because[0]


async def test_the_thread_ends_with_the_consumer(live: Broker, topic: str) -> None:
    before = group_threads()
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with member(live, topic) as consumer:
            (thread,) = group_threads() - before
            assert thread.daemon
            assert consumer.assignment()
    assert group_threads() <= before
    assert len(os.listdir("/proc/self/fd")) <= descriptors


async def test_a_failed_start_leaves_no_thread(live: Broker, topic: str) -> None:
    before = group_threads()
    with pytest.raises(KafkaError, match=r"group\.min\.session\.timeout\.ms"):
        await member(live, topic, session_timeout_ms=50, heartbeat_interval_ms=10).start()
    with pytest.raises(KafkaError):
        await member(live, topic, bootstrap_servers="127.0.0.1:1", request_timeout_ms=500).start()
    assert group_threads() <= before


async def test_without_a_group_there_is_no_thread(live: Broker, topic: str) -> None:
    before = group_threads()
    async with member(live, topic, group_id=None) as consumer:
        assert (await consumer.getone()).value == b"0"
        assert group_threads() <= before
        assert "generation" not in consumer.metrics()


async def test_a_dropped_consumer_leaves_its_group(live: Broker, topic: str) -> None:
    before = group_threads()
    consumer = member(live, topic)
    client_id = consumer._client.client_id
    await consumer.start()
    session = consumer._running()
    (thread,) = group_threads() - before
    with pytest.warns(ResourceWarning, match="never stopped"):
        del consumer
    await asyncio.to_thread(live.wait_for_request, "LeaveGroup", client_id=client_id)
    await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()
    await session.close(time.monotonic() + 1)


def test_a_loop_that_ends_without_a_stop_ends_the_thread(live: Broker) -> None:
    before = group_threads()
    consumer = member(live, "any")

    async def forget() -> None:
        await consumer.start()
        for connection in consumer._running().network.connections:
            connection.abort("the program is careless, but the test is not about these")

    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda loop, context: None)  # of tasks that the runner cancelled
        runner.run(forget())
        (thread,) = group_threads() - before
    thread.join(60)
    assert not thread.is_alive()
    consumer._life.state = State.STOPPED


async def test_leaving_does_not_wait_behind_a_join(live: Broker, topic: str) -> None:
    """The second member's JoinGroup waits for the first one, which does not poll."""
    first = member(live, topic)
    async with first:
        settings = {"group_id": first._config.group_id, "request_timeout_ms": 500, "close_timeout_ms": 10_000}
        second = member(live, topic, **settings)
        client_id = second._client.client_id
        await second.start()  # gives up waiting for its partitions
        async with stopwatch() as took:
            await second.stop()
            assert took() < 5
        await asyncio.to_thread(live.wait_for_request, "LeaveGroup", client_id=client_id)


@pytest.mark.parametrize("commits", [True, False], ids=["with a commit", "without"])
async def test_close_ends_in_time_if_the_broker_is_frozen(commits: bool) -> None:
    """A stopped process keeps its connections and accepts bytes, but does not answer."""
    before = group_threads()
    with Broker() as broker:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"a")
        consumer = member(broker, "t", close_timeout_ms=1_000, enable_auto_commit=commits)
        await consumer.start()
        assert (await consumer.getone()).value == b"a"
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            async with stopwatch() as took:
                await consumer.close()
                assert took() < 2.5  # the timeout, and the farewell that waits for nothing
        finally:
            os.kill(broker.pid, signal.SIGCONT)
    assert group_threads() <= before
