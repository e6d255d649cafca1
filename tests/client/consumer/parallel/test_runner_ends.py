"""`Consumer.run` while partitions come and go, and every way to end it."""

import asyncio
import random
from collections.abc import Collection
from functools import partial
from typing import Any

import pytest

from barnabas_client import (
    Admin,
    ConsumerRebalanceListener,
    ConsumerRecord,
    TopicPartition,
)
from barnabas_client.consumer.parallel.config import HandlerOrder
from barnabas_client.errors import IllegalStateError
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.bench.wire import Link
from tests.client.parallel_world import Watched, World, reach

pytestmark = [pytest.mark.usefixtures("no_complaints"), pytest.mark.broad]


@pytest.fixture
def world(bootstrap_servers: str) -> World:
    return World(bootstrap_servers)


async def test_a_rebalance_waits_for_running_handlers_and_commits(world: World) -> None:
    await world.fill(partitions=2, each=50)
    seen: list[tuple[str, int]] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            seen.append(("revoked", running))

        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            seen.append(("assigned", len(assigned)))

    running = 0
    go = asyncio.Event()
    started = asyncio.Event()

    async def handler(record: ConsumerRecord) -> None:
        nonlocal running
        running += 1
        started.set()
        await go.wait()
        running -= 1
        world.finish(record)
        if world.handled == world.total:
            for each in (first, second):
                each.wakeup()

    settings: dict[str, Any] = {"heartbeat_interval_ms": 50, "max_poll_records": 10}
    first, second = world.consumer(**settings), world.consumer(**settings)
    first.subscribe([world.topic], listener=Listener())
    async with first:
        run = asyncio.create_task(first.run(handler, order="none", concurrency=5))
        await started.wait()
        async with asyncio.TaskGroup() as tasks:
            joining = tasks.create_task(second.start())
            await reach(lambda: first._subscription.states[world.partitions[0]].revoking)
            assert running == 5
            assert not joining.done()
            go.set()
        await asyncio.gather(run, second.run(handler, order="none", concurrency=5))
        await second.stop()
    assert seen[:3] == [("assigned", 2), ("revoked", 0), ("assigned", 1)]
    assert set(world.times.values()) == {1}
    assert await world.committed() == 100


async def test_a_rebalance_waits_only_up_to_the_drain_timeout(world: World) -> None:
    await world.fill(partitions=2, each=1)
    cancelled = []
    started = asyncio.Event()

    async def stuck(record: ConsumerRecord) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(record.partition)
            raise

    first, second = world.consumer(heartbeat_interval_ms=50), world.consumer()
    async with first:
        run = asyncio.create_task(first.run(stuck, drain_timeout_ms=50))
        await started.wait()

        async def handler(record: ConsumerRecord) -> None:
            world.until(1)(record, second)

        async with second:
            await reach(lambda: sorted(cancelled[:2]) == [0, 1])
            await second.run(handler)
        first.wakeup()
        await run


def put_out(servers: str, group: str, member_id: str) -> None:
    """Remove a member from its group, without its knowledge."""
    with Link(servers) as link:
        leave = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)])
        assert link.ask(leave, 4, LeaveGroupResponse).error_code == 0


async def test_handlers_of_lost_partitions_are_cancelled_at_once(world: World) -> None:
    await world.fill(partitions=1, each=5)
    cancelled = asyncio.Event()
    lost: list[TopicPartition] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
            lost.extend(partitions)

    async def handler(record: ConsumerRecord) -> None:
        if lost:
            world.until(1)(record, consumer)
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    consumer = world.consumer(heartbeat_interval_ms=50)
    consumer.subscribe([world.topic], listener=Listener())
    async with consumer:
        run = asyncio.create_task(consumer.run(handler))
        await reach(lambda: consumer._runner is not None and len(consumer._runner.handlers) > 0)
        async with Admin(bootstrap_servers=world.servers) as admin:
            (found,) = await admin.describe_consumer_groups([world.group])
        await asyncio.to_thread(put_out, world.servers, world.group, found.members[0].member_id)
        await asyncio.wait_for(cancelled.wait(), 20)
        await run
    assert lost == world.partitions


async def test_a_cancelled_run_finishes_running_handlers(world: World) -> None:
    await world.fill(partitions=1, each=10)
    go, started = asyncio.Event(), asyncio.Event()

    async def handler(record: ConsumerRecord) -> None:
        started.set()
        await go.wait()
        world.finish(record)

    async with world.consumer() as consumer:
        run = asyncio.create_task(consumer.run(handler, order="none", concurrency=4))
        await started.wait()
        run.cancel()
        await reach(lambda: consumer._runner is not None and consumer._runner.handlers.ending)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert world.handled == 4
    assert await world.committed() == 4


async def test_a_second_cancellation_does_not_wait(world: World) -> None:
    await world.fill(partitions=1, each=1)
    started, ended = asyncio.Event(), asyncio.Event()

    async def handler(record: ConsumerRecord) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with world.consumer() as consumer:
        run = asyncio.create_task(consumer.run(handler))
        await started.wait()
        run.cancel()
        await reach(lambda: consumer._runner is not None and consumer._runner.handlers.ending)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await asyncio.wait_for(ended.wait(), 10)
    assert await world.committed() == 0


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_stop_ends_the_run_first(world: World, by_hand: bool) -> None:
    await world.fill(partitions=1, each=10)
    go, started = asyncio.Event(), asyncio.Event()

    async def handler(record: ConsumerRecord) -> None:
        started.set()
        await go.wait()
        world.finish(record)

    consumer = world.consumer()
    if by_hand:
        consumer.unsubscribe()
        consumer.assign(world.partitions)
    await consumer.start()
    run = asyncio.create_task(consumer.run(handler, order="none", concurrency=3))
    await started.wait()
    stop = asyncio.create_task(consumer.stop())
    await reach(lambda: consumer._runner is not None and consumer._runner.handlers.ending)
    go.set()
    await asyncio.gather(run, stop)
    assert world.handled == 3
    assert await world.committed() == 3


async def test_a_handler_cannot_stop_the_consumer(world: World) -> None:
    await world.fill(partitions=1, each=1)
    async with world.consumer() as consumer:

        async def handler(record: ConsumerRecord) -> None:
            await consumer.stop()

        with pytest.raises(IllegalStateError, match="call wakeup"):
            await consumer.run(handler, retries=0)


@pytest.mark.parametrize("order", ["partition", "key", "none"])
async def test_no_record_is_skipped_through_rebalances_and_failures(world: World, order: HandlerOrder) -> None:
    """Consumers come, are woken, stopped and cancelled while handlers fail now and then; every commit is checked."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    await world.fill(partitions=4, each=250)
    lives: dict[asyncio.Task[None], Watched] = {}

    async def handler(record: ConsumerRecord) -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0.001)
        if chance.random() < 0.05:
            raise ConnectionError("now and then")
        world.finish(record)

    async def live(consumer: Watched) -> None:
        async with consumer:
            await consumer.run(
                handler, order=order, concurrency=4, retries=1_000, retry_backoff_ms=1, commit_interval_ms=5
            )

    def begin() -> None:
        consumer = world.consumer(heartbeat_interval_ms=50, max_poll_records=chance.choice([7, 50, 500]))
        lives[asyncio.create_task(live(consumer))] = consumer

    async def end(task: asyncio.Task[None], how: str) -> None:
        consumer = lives.pop(task)
        if how == "wakeup":
            consumer.wakeup()
        elif how == "stop":
            await reach(lambda: consumer._runner is not None)
            await consumer.stop()
        else:
            task.cancel()
        await asyncio.wait({task}, timeout=60)
        assert task.cancelled() or (how != "cancel" and task.exception() is None)

    def more(before: int) -> bool:
        return world.handled >= min(before + 60, world.total)

    begin()
    for _ in range(8):
        await reach(partial(more, world.handled))
        if len(lives) == 1 or (len(lives) < 3 and chance.random() < 0.5):
            begin()
        else:
            await end(chance.choice(list(lives)), chance.choice(["wakeup", "stop", "cancel"]))
    await reach(lambda: world.handled == world.total)
    for task in list(lives):
        await end(task, "wakeup")
    assert await world.committed() == world.total
