"""Loads for groups of the consumer protocol (KIP-848); prints its measurements. SERVER is the server's process id.

python -m tests.bench.loads.consumer_groups converge ADDRESS SERVER TOPIC PARTITIONS MEMBERS SESSION
python -m tests.bench.loads.consumer_groups steady   ADDRESS SERVER TOPIC PARTITIONS MEMBERS GROUPS SECONDS

Members behave as Kafka's clients do: they report what they own whenever that has changed, at once, and heartbeat at the
interval that the coordinator asks for. They have no partitions to read, and revoke at once. Every wait has a limit.
"""

import asyncio
import json
import random
import resource
import statistics
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import Final

import uvloop

from barnabas_protocol.codec import encode_request
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from tests.bench.loads.groups import FAST, SHARED, Peer, Volley, connected, coordinated, cpu
from tests.bench.wire import CLIENT, PASSING

#: Limit of one step in seconds: thousands of members on a busy machine.
LIMIT: Final = 180.0
#: Seconds between two heartbeats of a member at the fixed rate, the default of clients.
INTERVAL: Final = 5.0
#: Members that leave one after the other, each when the group has settled. How long it takes depends on when the member
#: that gains a partition heartbeats next, so they leave at times that have nothing to do with heartbeats.
LEAVES: Final = 21
#: Members that die one after the other, each when the group has settled, after as many as have left have joined again.
DEATHS: Final = 7
#: Seconds for which a server may go on with what came before the load.
_REST: Final = 20.0
#: Seconds after which a request that met a coordinator that is not ready is repeated.
PAUSE: Final = 0.02
_VERSION: Final = 1
_LEAVE: Final = -1
#: Where the error code is in a response frame: after the correlation id, the tags and the throttle time.
_ERROR: Final = slice(9, 11)


class World:
    """What the members of one group own, as they see it."""

    def __init__(self, partitions: int) -> None:
        self.members: list[Member] = []
        self._partitions = partitions
        self._sizes: Counter[int] = Counter()
        self._owned = 0
        self._epochs: Counter[int] = Counter()
        self._changed = asyncio.Event()

    def add(self, member: "Member") -> None:
        self.members.append(member)
        self._sizes[0] += 1
        self._epochs[member.epoch] += 1

    def remove(self, member: "Member") -> None:
        self.members.remove(member)
        self._sizes[len(member.owned)] -= 1
        self._epochs[member.epoch] -= 1
        self._owned -= len(member.owned)

    def resized(self, before: int, after: int) -> None:
        self._sizes[before] -= 1
        self._sizes[after] += 1
        self._owned += after - before
        if self._owned == self._partitions:
            self._changed.set()

    def moved_on(self, before: int, after: int) -> None:
        self._epochs[before] -= 1
        self._epochs[after] += 1
        if self._epochs[after] == len(self.members):
            self._changed.set()

    @property
    def shared(self) -> bool:
        """Whether each partition has an owner, and no member has two more than another one."""
        least = self._partitions // len(self.members)
        return self._owned == self._partitions and all(
            size in (least, least + 1) for size, count in self._sizes.items() if count
        )

    async def converged(self) -> float:
        """Wait until the partitions are shared; the time at which they are."""
        async with asyncio.timeout(LIMIT):
            while not self.shared:
                self._changed.clear()
                await self._changed.wait()
        if len(set().union(*(member.owned for member in self.members))) != self._partitions:
            raise RuntimeError("a partition has two owners")
        return time.perf_counter()

    async def settled(self) -> None:
        """Wait until all members have the last epoch, which they learn with their next heartbeats."""
        async with asyncio.timeout(LIMIT):
            while not self.shared or len(+self._epochs) > 1:
                self._changed.clear()
                await self._changed.wait()


class Member:
    """A member of a group."""

    def __init__(self, peer: Peer, group: str, topic: str, world: World) -> None:
        self.owned: set[int] = set()
        self.heard = 0.0
        self.peer = peer
        self._world = world
        self._group, self._topic = group, topic
        self._id = str(uuid.uuid4())
        self.epoch = 0
        #: By which part of the interval the next heartbeat is late, once.
        self.shift = 0.0
        self._topic_id: bytes | None = None
        self._tasks: list[asyncio.Task[None]] = []
        world.add(self)

    def start(self) -> None:
        self._tasks.append(asyncio.create_task(self._run()))

    async def stop(self) -> None:
        """Send nothing more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            if not task.cancelled():
                task.result()
        self._tasks.clear()

    async def leave(self) -> None:
        await self.stop()
        self._world.remove(self)
        await self._ask(ConsumerGroupHeartbeatRequest(group_id=self._group, member_id=self._id, member_epoch=_LEAVE))

    async def die(self) -> None:
        await self.stop()
        self._world.remove(self)

    def frame(self) -> bytes:
        """A heartbeat that has nothing to say, as bytes."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._id, member_epoch=self.epoch, topic_partitions=None
        )
        return encode_request(request, _VERSION, 1, CLIENT)

    async def _run(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._id,
            member_epoch=0,
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=[self._topic],
            topic_partitions=[],
        )
        while True:
            answer = await self._ask(request)
            changed = self._read(answer)
            if not changed:
                late, self.shift = self.shift, 0.0
                await asyncio.sleep(answer.heartbeat_interval_ms / 1000 * (1 + late))
            request = ConsumerGroupHeartbeatRequest(
                group_id=self._group, member_id=self._id, member_epoch=self.epoch, topic_partitions=None
            )
            if changed and self._topic_id is not None:
                own = HeartbeatTopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))
                request.topic_partitions = [own] if self.owned else []

    def _read(self, answer: ConsumerGroupHeartbeatResponse) -> bool:
        """Take over what a response says; whether that changes what the member owns."""
        if answer.member_epoch != self.epoch:
            self._world.moved_on(self.epoch, answer.member_epoch)
            self.epoch = answer.member_epoch
        if answer.assignment is None:
            return False
        before, after = self.owned, set()
        for topic in answer.assignment.topic_partitions:
            self._topic_id = bytes(topic.topic_id)
            after.update(topic.partitions)
        self.owned = after
        if after == before:
            return False
        self._world.resized(len(before), len(after))
        return True

    async def _ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        while True:
            answer = await self.peer.ask(request, _VERSION, ConsumerGroupHeartbeatResponse)
            self.heard = time.perf_counter()
            if answer.error_code not in PASSING:
                break
            await asyncio.sleep(PAUSE)
        if answer.error_code:
            raise RuntimeError(f"ConsumerGroupHeartbeat: error {answer.error_code} {answer.error_message}")
        return answer


class Beats(Volley):
    """Heartbeats of many members: each response has the id of its member, and no error."""

    def frame_received(self, frame: bytes) -> None:
        self.count += 1
        if self.first is None:
            self.first = frame
            self.begun.set_result(None)
        if frame[_ERROR] != b"\0\0":
            self.strange += 1


def _richest(world: World) -> Member:
    return max(world.members, key=lambda member: len(member.owned))


async def _at_rest(server: int) -> None:
    """Wait until the server has done what its start and the new topic left it to do, but not for ever."""
    deadline, before = time.monotonic() + _REST, -1.0
    while (used := cpu(server)) - before > 0.02 and time.monotonic() < deadline:
        before = used
        await asyncio.sleep(1)


async def converge(
    address: str, server: int, topic: str, partitions: int, members: int, session: float
) -> dict[str, float]:
    """Measure how long it takes until all partitions are shared again after joins, leaves and deaths."""
    group = f"bench-{uuid.uuid4().hex}"
    coordinated(address)
    found: dict[str, float] = {}
    async with connected(address, Peer, members) as connections:
        world = World(partitions)
        for peer in connections:
            Member(peer, group, topic, world)
        await _at_rest(server)
        used, started = cpu(server), time.perf_counter()
        for member in world.members:
            member.start()
        found["join"] = await world.converged() - started
        found["join cpu"] = cpu(server) - used
        await world.settled()
        times, cpus, peers, phase = [], [], [], random.Random(0)
        for _ in range(min(LEAVES, members - 2)):
            await asyncio.sleep(1 + phase.random())  # the coordinator computes a target a second
            goes = _richest(world)
            used, started = cpu(server), time.perf_counter()
            await goes.leave()
            peers.append(goes.peer)
            times.append(await world.converged() - started)
            await world.settled()
            cpus.append(cpu(server) - used)
        found["leave"], found["leave cpu"] = statistics.median(times), statistics.median(cpus)
        for peer in peers:
            Member(peer, group, topic, world).start()
        await world.settled()
        # A session ends a whole number of intervals after a heartbeat. Members that joined at once heartbeat at one
        # time: all of them would do so right after a session ends, or right before.
        for member in world.members:
            member.shift = phase.random()
        await asyncio.sleep(4)
        deaths = []
        for _ in range(min(DEATHS, members - 2)):
            dies = _richest(world)
            await dies.die()
            deaths.append(await world.converged() - dies.heard - session)
            await world.settled()
        found["death"] = statistics.median(deaths)
        for member in world.members:
            await member.stop()
        frames = [member.frame() for member in world.members]
        found.update(await _fast(address, server, frames, 1.0))
    return found


async def _fast(address: str, server: int, frames: Sequence[bytes], seconds: float) -> dict[str, float]:
    """Heartbeats at full speed after a warm-up: requests/s, and the server's processor time per request."""
    connections, depth = FAST
    async with connected(address, Beats, connections) as volleys:
        for number, one in enumerate(volleys):
            mine = frames[number::connections] or frames
            one.go(cycle(mine), depth)
        await asyncio.sleep(seconds / 2)
        before, used, started = sum(one.count for one in volleys), cpu(server), time.perf_counter()
        await asyncio.sleep(seconds)
        count, elapsed = sum(one.count for one in volleys) - before, time.perf_counter() - started
        used = cpu(server) - used
        _no_errors(volleys)
    return {"rate": count / elapsed, "cpu": used / count}


def _no_errors(volleys: Sequence[Volley]) -> None:
    for one in volleys:
        if one.ended.done():
            one.ended.result()
    if wrong := sum(one.strange for one in volleys):
        raise RuntimeError(f"{wrong} heartbeats have failed")


async def steady(
    address: str, server: int, topic: str, partitions: int, members: int, groups: int, seconds: float
) -> dict[str, float]:
    """Measure heartbeats of groups in which nothing happens, evenly spread."""
    coordinated(address)
    worlds = []
    async with connected(address, Peer, SHARED) as peers:
        for _ in range(groups):
            name, world = f"bench-{uuid.uuid4().hex}", World(partitions)
            for number in range(members):
                Member(peers[number % SHARED], name, topic, world)
            for member in world.members:
                member.start()
            worlds.append(world)
        for world in worlds:
            await world.settled()
        await asyncio.gather(*(member.stop() for world in worlds for member in world.members))
    frames = [member.frame() for world in worlds for member in world.members]
    async with asyncio.timeout(LIMIT), connected(address, Beats, SHARED) as volleys:
        pace = len(frames) / INTERVAL
        used, started = cpu(server), time.perf_counter()
        sent, total = 0, int(pace * seconds)
        while sent < total:
            now = time.perf_counter()
            while sent < total and (due := started + sent / pace) <= now:
                volleys[sent % SHARED].shoot(frames[sent % len(frames)], due)
                sent += 1
            await asyncio.sleep(0.001)
        for one in volleys:
            one.close_down()
        used, elapsed = cpu(server) - used, time.perf_counter() - started
        await asyncio.wait([one.ended for one in volleys])
        _no_errors(volleys)
        times = sorted(taken for one in volleys for taken in one.times)
    return {"rate": pace, "share": used / elapsed, "p99": times[len(times) * 99 // 100]}


def main(what: str, address: str, server: int, topic: str, *rest: float) -> None:
    # Each member has a connection.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def work() -> dict[str, float]:
        if what == "converge":
            partitions, members, session = rest
            return await converge(address, server, topic, int(partitions), int(members), session)
        partitions, members, groups, seconds = rest
        return await steady(address, server, topic, int(partitions), int(members), int(groups), seconds)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(work())))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], *map(float, sys.argv[5:]))
