"""All members of a group move to the consumer protocol, some at a time, and back again.

Invariants: no partition has two owners in the view of the members, all partitions have an owner when they are done, and
no call holds the event loop.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas_broker.clock import Handle
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.embedded_protocol import read_assignment
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from barnabas_protocol.messages.heartbeat import HeartbeatRequest
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.groups.support import CALLER, Service, assignment, owned_subscription, turn

T = b"t" * 16
NONE = ErrorCode.NONE
PROTOCOL = "cooperative-sticky"
#: Seconds of processor time that a call may take. A busy machine takes longer.
HELD = 0.05


class TimedService(Service):
    """A coordinator whose callbacks are measured."""

    def __init__(self, loop: "World") -> None:
        self.loop = loop
        super().__init__(group_consumer_assignment_interval_ms="0")


class World:
    """A coordinator, the members of a group, and who owns each partition in their view.

    Attributes:
        owners: the member that owns each partition.
        calls: the processor time of each call of the coordinator, and of each of its callbacks.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.owners: dict[int, Member] = {}
        self.calls: list[float] = []
        self._loop = asyncio.get_running_loop()
        self.service = TimedService(self)
        self.service.groups.topics_changed({"t": partitions}, [Topic(T, "t", partitions)])

    def call(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call, and note how long it took."""
        started = time.thread_time()
        try:
            return work(*args)
        finally:
            self.calls.append(time.thread_time() - started)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Handle:
        return self._loop.call_soon(self.call, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Handle:
        return self._loop.call_later(delay, callback, *args)

    def create_future(self) -> "asyncio.Future[Any]":
        return self._loop.create_future()

    def group(self) -> ClassicGroup | ConsumerGroup:
        return self.service.groups.groups["g"].group

    async def pass_time(self, seconds: float) -> None:
        self.service.time += seconds
        self.service.wall += round(seconds * 1000)
        self.call(self.service.groups.tick)
        await turn()

    async def answers(self, asked: list[Any]) -> list[Any]:
        """The responses of requests, once all are there."""
        for _ in range(3_000):
            while self.service.offloaded:
                self.service.offloaded.pop(0)()
            if all(not isinstance(each, asyncio.Future) or each.done() for each in asked):
                return [each.result() if isinstance(each, asyncio.Future) else each for each in asked]
            await self.pass_time(0.002)
        raise AssertionError("responses are still deferred")


class Member:
    """What members of both protocols have in common."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.owned: set[int] = set()

    def own(self, partitions: set[int]) -> bool:
        """Take over what a response gives; returns whether partitions were revoked."""
        owners = self.world.owners
        revoked = self.owned - partitions
        for each in revoked:
            del owners[each]
        for each in partitions - self.owned:
            assert each not in owners, f"{each} still belongs to another member"
            owners[each] = self
        self.owned = partitions
        return bool(revoked)


class Classic(Member):
    """A member with the cooperative assignor."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.member_id, self.generation = "", -1
        self.leads: list[str] = []

    def join(self) -> Any:
        owned = {"t": sorted(self.owned)} if self.owned else {}
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=1_000_000,
            rebalance_timeout_ms=1_000_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=owned_subscription(owned, "t"))],
        )
        return self.world.call(self.world.service.groups.join, request, 9, CALLER)

    def joined(self, response: Any) -> None:
        assert response.error_code == NONE
        self.generation = response.generation_id
        self.leads = [each.member_id for each in response.members]

    def sync(self, shares: dict[str, bytes] | None = None) -> Any:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=[SyncGroupRequestAssignment(member_id=k, assignment=v) for k, v in (shares or {}).items()],
        )
        return self.world.call(self.world.service.groups.sync, request, 5, CALLER)

    def beat(self) -> ErrorCode:
        request = HeartbeatRequest(group_id="g", generation_id=self.generation, member_id=self.member_id)
        return ErrorCode(self.world.call(self.world.service.groups.heartbeat, request, 4, CALLER).error_code)

    def leave(self) -> Any:
        self.own(set())
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=self.member_id)])
        return self.world.call(self.world.service.groups.leave, request, 5, CALLER)


class Modern(Member):
    """A member of the consumer protocol."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world)
        self.member_id, self.epoch = f"modern-{number}", 0

    def send(self, epoch: int, *, full: bool = False) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=self.member_id, member_epoch=epoch)
        if epoch == 0:
            request.rebalance_timeout_ms, request.subscribed_topic_names = 1_000_000, ["t"]
            request.topic_partitions = []
        elif full:
            owned = [HeartbeatTopicPartitions(topic_id=T, partitions=sorted(self.owned))] if self.owned else []
            request.topic_partitions = owned
        return self.world.call(self.world.service.groups.consumer_heartbeat, request, 1, CALLER)

    def took(self, response: Any) -> bool:
        """Take a response; returns whether there is news for the coordinator."""
        assert response.error_code == NONE, response
        before, self.epoch = self.epoch, response.member_epoch
        if response.assignment is None:
            return self.epoch != before
        self.own({each for topic in response.assignment.topic_partitions for each in topic.partitions})
        return True

    def leave(self) -> Any:
        self.own(set())
        return self.send(-1)


async def classic_group(world: World, count: int) -> list[Classic]:
    """A Stable classic group."""
    await world.service.loaded()
    members = [Classic(world) for _ in range(count)]
    for each, response in zip(members, await world.answers([each.join() for each in members]), strict=True):
        each.member_id = response.member_id
    joining = [each.join() for each in members]
    for _ in range(5):
        await world.pass_time(3.0)
    await joined(world, members, joining)
    return members


async def joined(world: World, members: list[Classic], joining: list[Any]) -> None:
    """The rest of a rebalance of a classic group: the leader gives each member what it owned, and what is free."""
    for each, response in zip(members, await world.answers(joining), strict=True):
        each.joined(response)
    (leader,) = [each for each in members if each.leads]
    by_id = {each.member_id: each for each in members}
    assert set(leader.leads) == set(by_id)
    shares = {each.member_id: set(each.owned) for each in members}
    poorest = sorted(shares.values(), key=len)
    for at, partition in enumerate(sorted(set(range(world.partitions)) - world.owners.keys())):
        poorest[at % len(poorest)].add(partition)
    given = {member_id: assignment(t=sorted(share)) for member_id, share in shares.items()}
    syncing = [each.sync(given if each is leader else None) for each in members]
    for each, response in zip(members, await world.answers(syncing), strict=True):
        assert response.error_code == NONE
        each.own(read_assignment(response.assignment)[0].get("t", set()))


async def converge(world: World, classic: list[Classic], modern: list[Modern]) -> None:
    """All members of a group of the consumer protocol do what they are asked for, until nothing is left."""
    for _ in range(12):
        asked = [each for each in classic if each.beat() == ErrorCode.REBALANCE_IN_PROGRESS]
        for each, response in zip(asked, await world.answers([each.join() for each in asked]), strict=True):
            each.joined(response)
        for each, response in zip(asked, await world.answers([each.sync() for each in asked]), strict=True):
            # Others may have caused a new target meanwhile.
            if response.error_code == NONE:
                each.own(read_assignment(response.assignment)[0].get("t", set()))
        responses = await world.answers([each.send(each.epoch, full=True) for each in modern])
        news = [each.took(response) for each, response in zip(modern, responses, strict=True)]
        if not asked and not any(news):
            break
    assert sorted(world.owners) == list(range(world.partitions))
    group = world.group()
    assert isinstance(group, ConsumerGroup)
    assert group.state.value == "Stable"
    assert len(group.members) == len(classic) + len(modern)


def parts(count: int, at_a_time: int) -> Iterator[slice]:
    for start in range(0, count, at_a_time):
        yield slice(start, start + at_a_time)


@pytest.mark.parametrize(
    ("count", "at_a_time"), [(150, 40), pytest.param(3_000, 600, marks=pytest.mark.slow)], ids=["150", "3000"]
)
async def test_all_members_move_to_the_consumer_protocol_and_back(count: int, at_a_time: int) -> None:
    world = World(count + count // 2)
    gc.disable()  # the broker bounds its pauses, which are not the coordinator's
    try:
        classic = await classic_group(world, count)
        world.calls.clear()
        modern: list[Modern] = []
        for some in [slice(0, 1), *parts(count - 1, at_a_time)]:
            leaving, classic = classic[: some.stop - some.start], classic[some.stop - some.start :]
            new = [Modern(world, len(modern) + number) for number in range(len(leaving))]
            for each, response in zip(new, await world.answers([each.send(0) for each in new]), strict=True):
                each.took(response)
            modern += new
            left = await world.answers([each.leave() for each in leaving])
            assert all(response.members[0].error_code == NONE for response in left)
            await converge(world, classic, modern)
        assert not classic
        # And back. The last one downgrades the group.
        for some in parts(count - 1, at_a_time):
            more = modern[1 : 1 + some.stop - some.start]
            modern = [modern[0], *modern[1 + some.stop - some.start :]]
            back = [Classic(world) for _ in more]
            for one, response in zip(back, await world.answers([each.join() for each in back]), strict=True):
                one.member_id = response.member_id
            for one, response in zip(back, await world.answers([each.join() for each in back]), strict=True):
                one.joined(response)
            for one, response in zip(back, await world.answers([each.sync() for each in back]), strict=True):
                if response.error_code == NONE:
                    one.own(read_assignment(response.assignment)[0].get("t", set()))
            classic += back
            left = await world.answers([each.leave() for each in more])
            assert all(response.error_code == NONE for response in left)
            await converge(world, classic, modern)
        (last,) = modern
        (response,) = await world.answers([last.leave()])
        assert response.error_code == NONE
        group = world.group()
        assert isinstance(group, ClassicGroup)
        assert len(group.members) == count - 1
        assert all(each.beat() == ErrorCode.REBALANCE_IN_PROGRESS for each in classic)
        await joined(world, classic, [each.join() for each in classic])
        assert sorted(world.owners) == list(range(world.partitions))
    finally:
        gc.enable()
    assert max(world.calls) < HELD
