"""Our consumer as a member of groups of the consumer protocol (KIP-848): join, leave, rebalance, crash, return."""

import asyncio
import re
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any

import pytest

from barnabas import Admin, Consumer, ConsumerRebalanceListener, NewTopic, Producer, TopicPartition
from barnabas.errors import (
    InvalidRegularExpressionError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from barnabas_client.membership.heartbeats import LEAVE_EPOCH
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.interop.server import Server

pytestmark = [pytest.mark.asyncio, pytest.mark.interop]

#: Seconds for anything that must happen; the machine may be slow.
LONG = 90.0


@pytest.fixture
def address(quick_groups: Server) -> str:
    return quick_groups.bootstrap_servers


class Log(ConsumerRebalanceListener):
    """Keeps what a rebalance listener is called with, and what it makes of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []
        self.owned: set[TopicPartition] = set()

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Awaitable[None] | None:
        self.calls.append(("revoked", frozenset(revoked)))
        self.owned -= set(revoked)
        return None

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Awaitable[None] | None:
        self.calls.append(("assigned", frozenset(assigned)))
        self.owned |= set(assigned)
        return None

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Awaitable[None] | None:
        self.calls.append(("lost", frozenset(lost)))
        self.owned -= set(lost)
        return None


class AsyncLog(Log):
    """The same with coroutine functions, and without `on_partitions_lost`, as listeners for aiokafka are."""

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0)
        super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0)
        super().on_partitions_assigned(assigned)


class Member:
    """A consumer that polls in the background, and its listener."""

    def __init__(self, consumer: Consumer[Any, Any], listener: Log) -> None:
        self.consumer = consumer
        self.log = listener
        self.values: list[bytes] = []
        self.polling = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            for records in (await self.consumer.getmany(timeout_ms=100)).values():
                self.values += [record.value or b"" for record in records]

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.consumer.assignment()

    async def pause(self) -> None:
        """Poll no more."""
        self.polling.cancel()
        await asyncio.wait([self.polling])

    async def stop(self) -> None:
        await self.pause()
        await self.consumer.stop()


async def until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, f"not within {LONG} s: {what()}"
        await asyncio.sleep(0.05)


class World:
    """A topic and a group of their own, and members."""

    def __init__(self, address: str) -> None:
        self.address = address
        name = uuid.uuid4().hex[:8]
        self.topic, self.group = f"topic-{name}", f"group-{name}"
        self.members: list[Member] = []

    async def create(self, partitions: int, topic: str | None = None) -> frozenset[TopicPartition]:
        name = topic or self.topic
        async with Admin(bootstrap_servers=self.address) as admin:
            await admin.create_topics([NewTopic(name, num_partitions=partitions)])
        return frozenset(TopicPartition(name, number) for number in range(partitions))

    async def join(
        self,
        *,
        listener: Log | None = None,
        pattern: str | re.Pattern[str] | None = None,
        static: str | None = None,
        **settings: Any,
    ) -> Member:
        given: dict[str, Any] = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 1000, **settings}
        consumer: Consumer[Any, Any] = Consumer(
            bootstrap_servers=self.address,
            group_id=self.group,
            group_protocol="consumer",
            group_instance_id=static,
            **given,
        )
        listener = listener or Log()
        if pattern is None:
            consumer.subscribe([self.topic], listener=listener)
        else:
            consumer.subscribe(pattern=pattern, listener=listener)
        await consumer.start()
        member = Member(consumer, listener)
        self.members.append(member)
        return member

    async def send(self, *values: bytes) -> None:
        async with Producer(bootstrap_servers=self.address) as producer:
            for value in values:
                await producer.send_and_wait(self.topic, value)

    async def share(self, members: Sequence[Member], partitions: frozenset[TopicPartition]) -> None:
        """Wait until these members own all partitions, evenly, each exactly once, and their listeners know."""

        def shared() -> bool:
            owned = [member.owned for member in members]
            sizes = [len(one) for one in owned]
            return (
                sum(sizes) == len(partitions)
                and frozenset().union(*owned) == partitions
                and max(sizes) - min(sizes) <= 1
                and all(member.log.owned == member.owned for member in members)
            )

        await until(shared, lambda: [(sorted(one.owned), one.log.calls) for one in members])


@pytest.fixture
async def world(address: str) -> AsyncIterator[World]:
    made = World(address)
    yield made
    for member in made.members:
        await member.stop()


async def test_members_come_and_go(world: World) -> None:
    partitions = await world.create(6)
    first = await world.join()
    await world.share([first], partitions)
    second = await world.join(listener=AsyncLog())
    await world.share([first, second], partitions)
    third = await world.join()
    await world.share([first, second, third], partitions)
    # Incremental: what stays was never revoked.
    revoked = frozenset().union(*(what for kind, what in first.log.calls if kind == "revoked"))
    assert revoked == partitions - first.owned
    await second.stop()
    assert not second.log.owned
    await world.share([first, third], partitions)
    await first.stop()
    await world.share([third], partitions)
    assert not any(kind == "lost" for member in world.members for kind, _ in member.log.calls)


async def test_offsets_are_committed_with_the_member_epoch(world: World) -> None:
    await world.create(1)
    await world.send(b"a", b"b")
    first = await world.join(enable_auto_commit=False)
    await until(lambda: len(first.values) == 2, lambda: first.values)
    await first.consumer.commit()
    second = await world.join()  # the epoch changes
    await first.consumer.commit()
    await first.stop()
    await world.send(b"c")
    await until(lambda: bool(second.values), lambda: second.values)
    assert second.values == [b"c"]


async def test_revoked_partitions_are_committed_first(world: World) -> None:
    """No record is read twice while partitions move between members that run."""
    partitions = await world.create(4)
    first = await world.join()
    await world.share([first], partitions)
    sent = [b"%d" % number for number in range(40)]
    await world.send(*sent)
    second = await world.join()
    await world.share([first, second], partitions)
    await until(lambda: len(first.values) + len(second.values) >= 40, lambda: (first.values, second.values))
    assert sorted(first.values + second.values) == sorted(sent)


@pytest.mark.slow
async def test_a_pattern_is_matched_by_the_broker(world: World) -> None:
    first = await world.create(2)
    member = await world.join(pattern=f"{world.topic}(-more)?")
    await world.share([member], first)
    more = await world.create(1, f"{world.topic}-more")
    await world.create(1, f"{world.topic}-other")
    await world.share([member], first | more)
    assert member.consumer.subscription() == {world.topic, f"{world.topic}-more"}
    member.consumer.subscribe([world.topic], listener=member.log)
    await world.share([member], first)
    assert ("revoked", more) in member.log.calls


async def test_an_invalid_pattern(world: World) -> None:
    with pytest.raises(InvalidRegularExpressionError, match="RE2"):
        await world.join(pattern="(?=lookahead)")


async def test_a_pattern_that_the_client_matches(world: World) -> None:
    partitions = await world.create(2)
    member = await world.join(pattern=re.compile(f"{world.topic}$"))
    await world.share([member], partitions)


async def test_a_topic_grows(world: World) -> None:
    await world.create(1)
    member = await world.join()
    async with Admin(bootstrap_servers=world.address) as admin:
        await admin.create_partitions({world.topic: 3})
    await world.share([member], frozenset(TopicPartition(world.topic, number) for number in range(3)))


async def test_a_static_member_returns(world: World) -> None:
    """It leaves with epoch -2, so its partitions stay its own, and the other member notices nothing."""
    partitions = await world.create(4)
    first, second = await world.join(static="one"), await world.join(static="two")
    await world.share([first, second], partitions)
    kept, calls = second.owned, list(first.log.calls)
    await second.stop()
    returned = await world.join(static="two")
    await world.share([first, returned], partitions)
    assert returned.owned == kept
    assert first.log.calls == calls


async def test_an_instance_id_that_is_in_use(world: World) -> None:
    await world.create(1)
    await world.join(static="one")
    with pytest.raises(UnreleasedInstanceIdError, match="group_instance_id"):
        await world.join(static="one")


async def test_an_unknown_assignor(world: World) -> None:
    await world.create(1)
    with pytest.raises(UnsupportedAssignorError, match="'uniform' or 'range'"):
        await world.join(group_remote_assignor="best")


@pytest.mark.parametrize("assignor", ["uniform", "range"])
async def test_an_assignor_of_the_broker(world: World, assignor: str) -> None:
    partitions = await world.create(4)
    members = [await world.join(group_remote_assignor=assignor) for _ in range(2)]
    await world.share(members, partitions)


async def test_a_member_that_does_not_poll_is_replaced(world: World) -> None:
    partitions = await world.create(4)
    first = await world.join(max_poll_interval_ms=3000)
    second = await world.join()
    await world.share([first, second], partitions)
    await first.pause()
    await until(lambda: second.owned == partitions, lambda: second.log.calls)
    first.polling = asyncio.create_task(first._poll())
    await world.share([first, second], partitions)
    assert any(kind == "lost" for kind, _ in first.log.calls)


async def test_a_member_that_is_removed_joins_again(world: World) -> None:
    """Somebody else leaves with its member id: the coordinator does not know it, so its partitions are lost."""
    partitions = await world.create(2)
    member = await world.join()
    await world.share([member], partitions)
    membership = member.consumer._running_group().membership
    leave = ConsumerGroupHeartbeatRequest(
        group_id=world.group, member_id=membership.view.member_id, member_epoch=LEAVE_EPOCH
    )
    await membership.ask_coordinator(leave, ConsumerGroupHeartbeatResponse, LONG)
    await until(lambda: ("lost", partitions) in member.log.calls, lambda: member.log.calls)
    await world.share([member], partitions)


@pytest.mark.slow
async def test_a_killed_member_is_replaced(world: World) -> None:
    """`barnabas consume --group-protocol consumer` is killed; its session expires."""
    partitions = await world.create(2)
    member = await world.join()
    command = [sys.executable, "-m", "barnabas_client.cli", "consume", "-b", world.address, "-g", world.group]
    killed = await asyncio.create_subprocess_exec(*command, "--group-protocol", "consumer", world.topic)
    try:
        await until(lambda: len(member.owned) == 1, lambda: member.log.calls)
    finally:
        killed.kill()
        await killed.wait()
    await world.share([member], partitions)
