"""Loads for the group coordinator; prints its measurements. SERVER is the process id of the server.

python -m tests.bench.loads.groups rebalance  ADDRESS SERVER MEMBERS DELAY
python -m tests.bench.loads.groups heartbeats ADDRESS SERVER GROUPS SECONDS
python -m tests.bench.loads.groups commits    ADDRESS SERVER TOPIC SECONDS
python -m tests.bench.loads.groups fill       ADDRESS SERVER TOPIC PARTITIONS REQUESTS

Repeated frames have the same correlation id, so every response must have the bytes of the first one, which is decoded
and checked. Every wait has a limit.
"""

import asyncio
import itertools
import json
import os
import struct
import sys
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar, cast

import uvloop

from barnabas_protocol.codec import decode_response, encode_request
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas_protocol.schema import Request, Response
from tests.bench.wire import CLIENT, PASSING, Link

R = TypeVar("R", bound=Response)

#: Limit of one measurement in seconds.
LIMIT: Final = 60.0
#: The groups of `fill`, and the offset that it commits.
FILLED: Final = tuple(f"filled-{number}" for number in range(10))
OFFSET: Final = 4711
#: 1,000 commits in flight: connections, and commits on each.
COMMITS: Final = (100, 10)
#: Heartbeats at full speed: connections, and heartbeats in flight on each.
FAST: Final = (4, 16)
#: Seconds between a member's heartbeats, the default of clients.
INTERVAL: Final = 3.0
#: Connections shared by the members that heartbeat at that interval.
SHARED: Final = 100

_SIZE: Final = struct.Struct(">i")
_SUBSCRIPTION: Final = b"\0\1\0\0\0\1\0\5topic\xff\xff\xff\xff\0\0\0\0"
_ASSIGNMENT: Final = b"\0\1\0\0\0\1\0\5topic\0\0\0\1\0\0\0\0\xff\xff\xff\xff"


def cpu(server: int) -> float:
    """Return the processor time that the server has used, in seconds."""
    words = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def coordinated(address: str) -> None:
    """Wait until groups have a coordinator: send heartbeats of an unknown member."""
    deadline = time.monotonic() + LIMIT
    with Link(address) as link:
        stranger = HeartbeatRequest(group_id="nobody", generation_id=1, member_id="nobody")
        find = FindCoordinatorRequest(key="nobody")
        while (
            link.ask(find, 0, FindCoordinatorResponse).error_code in PASSING
            or link.ask(stranger, 4, HeartbeatResponse).error_code != ErrorCode.UNKNOWN_MEMBER_ID
        ):
            if time.monotonic() > deadline:
                raise RuntimeError("no coordinator")
            time.sleep(0.05)


class Frames(asyncio.Protocol):
    """Splits the received bytes into frames."""

    def __init__(self) -> None:
        self.transport: asyncio.WriteTransport
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        start, size = 0, len(data)
        while size - start >= 4:
            end = start + 4 + _SIZE.unpack_from(data, start)[0]
            if end > size:
                break
            self.frame_received(data[start + 4 : end])
            start = end
        self._rest = data[start:]

    def shut(self) -> None:
        self.transport.close()

    def frame_received(self, frame: bytes) -> None:
        raise NotImplementedError


P = TypeVar("P", bound=Frames)


@asynccontextmanager
async def connected(address: str, make: Callable[[], P], count: int) -> AsyncIterator[list[P]]:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    found: list[P] = []
    try:
        # A few at a time, because the server's accept queue is short.
        while len(found) < count:
            few = min(50, count - len(found))
            opened = await asyncio.gather(*(loop.create_connection(make, host, int(port)) for _ in range(few)))
            found += [protocol for _, protocol in opened]
        yield found
    finally:
        for one in found:
            one.shut()


class Peer(Frames):
    """Sends requests and receives the responses in the same order."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[asyncio.Future[bytes]] = deque()

    async def ask(self, request: Request, version: int, answer: type[R]) -> R:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.transport.write(encode_request(request, version, 1, CLIENT))
        return decode_response(answer, version, await future)

    def frame_received(self, frame: bytes) -> None:
        future = self._waiting.popleft()
        if not future.done():
            future.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_exception(RuntimeError("the server has closed the connection"))


class Member:
    """A member of a group on a connection of its own."""

    def __init__(self, peer: Peer, group: str, rebalance_ms: int) -> None:
        self.member_id = ""
        self.leads = False
        self._peer = peer
        self._group = group
        self._rebalance_ms = rebalance_ms
        self._generation = -1

    async def enter(self) -> None:
        """Join with retries, then sync; afterwards the member is stable."""
        joined = await self._join()
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            joined = await self._join()
        _check("JoinGroup", joined.error_code)
        self.leads = joined.leader == joined.member_id
        self._generation = joined.generation_id
        shares = [SyncGroupRequestAssignment(member_id=m.member_id, assignment=_ASSIGNMENT) for m in joined.members]
        sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        synced = await self._peer.ask(sync, 5, SyncGroupResponse)
        _check("SyncGroup", synced.error_code)
        if bytes(synced.assignment) != _ASSIGNMENT:
            raise RuntimeError("a member did not get its assignment")

    async def follow(self) -> None:
        """Heartbeat until a rebalance starts, then rejoin."""
        heartbeat = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self.member_id)
        answer = await self._peer.ask(heartbeat, 4, HeartbeatResponse)
        if answer.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            raise RuntimeError(f"Heartbeat: error {answer.error_code}, no rebalance is on")
        await self.enter()

    async def leave(self) -> None:
        leave = LeaveGroupRequest(group_id=self._group, members=[MemberIdentity(member_id=self.member_id)])
        _check("LeaveGroup", (await self._peer.ask(leave, 5, LeaveGroupResponse)).error_code)

    @property
    def generation(self) -> int:
        return self._generation

    async def _join(self) -> JoinGroupResponse:
        join = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION)],
        )
        return await self._peer.ask(join, 9, JoinGroupResponse)


def _check(what: str, error: int) -> None:
    if error:
        raise RuntimeError(f"{what}: error {error}")


async def rebalance(address: str, server: int, members: int, delay: float) -> dict[str, float]:
    """Measure a rebalance. The rebalance timeout equals the initial delay, so that joins do not extend the delay."""
    group = f"bench-{uuid.uuid4().hex}"
    coordinated(address)
    async with asyncio.timeout(LIMIT), connected(address, Peer, members) as peers:
        everyone = [Member(peer, group, int(delay * 1000)) for peer in peers]
        used, started = cpu(server), time.perf_counter()
        await asyncio.gather(*(member.enter() for member in everyone))
        entered, entered_cpu = time.perf_counter() - started - delay, cpu(server) - used
        _one_generation(everyone)
        goes = next(member for member in everyone if not member.leads)
        everyone.remove(goes)
        used, started = cpu(server), time.perf_counter()
        await goes.leave()
        await asyncio.gather(*(member.follow() for member in everyone))
        left, left_cpu = time.perf_counter() - started, cpu(server) - used
        _one_generation(everyone)
    return {"join": entered, "join cpu": entered_cpu, "leave": left, "leave cpu": left_cpu}


def _one_generation(members: Sequence[Member]) -> None:
    if len({member.generation for member in members}) != 1 or sum(member.leads for member in members) != 1:
        raise RuntimeError("the members are not of one generation with one leader")


class Volley(Frames):
    """Sends frames and records the latency of each. Every response must equal the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.strange = 0
        self.first: bytes | None = None
        self.times: list[float] = []
        self.closing = False
        #: Done when the first response has arrived, or the connection is lost.
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._due: deque[float] = deque()
        self._next: Iterator[bytes] = iter(())

    def go(self, frames: Iterator[bytes], depth: int) -> None:
        """Keep `depth` frames in flight until `frames` ends."""
        self._next = frames
        self.closing = True
        for frame in itertools.islice(frames, depth):
            self.shoot(frame, time.perf_counter())

    def shoot(self, frame: bytes, due: float) -> None:
        self._due.append(due)
        self.transport.write(frame)

    def shut(self) -> None:
        self.ended.cancel()
        super().shut()

    def close_down(self) -> None:
        """Send no more frames; the volley ends with the last response."""
        self.closing = True
        if not self._due and not self.ended.done():
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        before = self.count
        super().data_received(data)
        now = time.perf_counter()
        answered = self.count - before
        for _ in range(answered):
            self.times.append(now - self._due.popleft())
        following = list(itertools.islice(self._next, answered))
        if following:
            self.transport.write(b"".join(following))
            self._due.extend([now] * len(following))
        elif self.closing and not self._due and not self.ended.done():
            self.ended.set_result(None)

    def frame_received(self, frame: bytes) -> None:
        self.count += 1
        if self.first is None:
            self.first = frame
            self.begun.set_result(None)
        elif frame != self.first:
            self.strange += 1

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.begun.done():
            self.begun.set_result(None)
        if not self.ended.done():
            self.ended.set_exception(RuntimeError("the server has closed the connection"))


def _fine(volleys: Sequence[Volley], fine: Callable[[bytes], bool]) -> None:
    for volley in volleys:
        if volley.ended.done():
            volley.ended.result()
        if volley.strange:
            raise RuntimeError(f"{volley.strange} of {volley.count} answers are not like the first one")
        if volley.first is None or not fine(volley.first):
            raise RuntimeError("the server has answered with an error, or not at all")


async def volley(
    address: str, server: int, shape: tuple[int, int], frames: Sequence[bytes], seconds: float, check: type[R]
) -> dict[str, float]:
    """Send at full speed after a warm-up; return requests/s and the server's processor time per request."""
    connections, depth = shape
    async with connected(address, Volley, connections) as volleys:
        share = -(-len(frames) // connections)
        for number, one in enumerate(volleys):
            mine = frames[number * share : (number + 1) * share] or frames
            one.go(itertools.cycle(mine), depth)
        broken = [one.ended for one in volleys]
        await asyncio.wait(broken, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([one.begun for one in volleys], timeout=LIMIT)
        before, used, started = sum(one.count for one in volleys), cpu(server), time.perf_counter()
        await asyncio.wait(broken, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        count, elapsed = sum(one.count for one in volleys) - before, time.perf_counter() - started
        used = cpu(server) - used
        _fine(volleys, lambda frame: _no_error(check, frame))
    if not count:
        raise RuntimeError("no answers")
    return {"rate": count / elapsed, "cpu": used / count}


async def paced(address: str, server: int, frames: Sequence[bytes], seconds: float) -> dict[str, float]:
    """Heartbeat for every group each `INTERVAL`, evenly spread; latency counts from the scheduled time."""
    async with asyncio.timeout(LIMIT), connected(address, Volley, SHARED) as volleys:
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
        _fine(volleys, lambda frame: _no_error(HeartbeatResponse, frame))
        times = sorted(taken for one in volleys for taken in one.times)
    return {"rate": pace, "share": used / elapsed, "p99": times[len(times) * 99 // 100]}


def _no_error(check: type[Response], frame: bytes) -> bool:
    if check is HeartbeatResponse:
        return decode_response(HeartbeatResponse, 4, frame).error_code == 0
    answer = decode_response(OffsetCommitResponse, 8, frame)
    errors = {partition.error_code for topic in answer.topics for partition in topic.partitions}
    return errors == {0}


async def _alone(peer: Peer, groups: Iterator[str], frames: list[bytes]) -> None:
    for group in groups:
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION)],
        )
        joined = await peer.ask(join, 2, JoinGroupResponse)
        _check("JoinGroup", joined.error_code)
        member, generation = joined.member_id, joined.generation_id
        share = SyncGroupRequestAssignment(member_id=member, assignment=_ASSIGNMENT)
        sync = SyncGroupRequest(group_id=group, generation_id=generation, member_id=member, assignments=[share])
        _check("SyncGroup", (await peer.ask(sync, 2, SyncGroupResponse)).error_code)
        heartbeat = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
        frames.append(encode_request(heartbeat, 4, 1, CLIENT))


async def heartbeats(address: str, server: int, groups: int, seconds: float) -> dict[str, dict[str, float]]:
    name = f"bench-{uuid.uuid4().hex}"
    coordinated(address)
    frames: list[bytes] = []
    async with asyncio.timeout(LIMIT), connected(address, Peer, 50) as peers:
        names = (f"{name}-{number}" for number in range(groups))
        await asyncio.gather(*(_alone(peer, names, frames) for peer in peers))
    # One group before and after the many groups, so that a change of the machine's speed affects both equally.
    half = [await volley(address, server, FAST, frames[:1], seconds / 2, HeartbeatResponse)]
    many = await volley(address, server, FAST, frames, seconds, HeartbeatResponse)
    half.append(await volley(address, server, FAST, frames[:1], seconds / 2, HeartbeatResponse))
    one = {key: (half[0][key] + half[1][key]) / 2 for key in many}
    return {"one": one, "many": many, "paced": await paced(address, server, frames, max(INTERVAL, 2 * seconds))}


def _commit(group: str, topic: str, partitions: Sequence[int]) -> bytes:
    offsets = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=OFFSET, committed_metadata="")
        for number in partitions
    ]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=offsets)])
    return encode_request(request, 8, 1, CLIENT)


async def commits(address: str, server: int, topic: str, seconds: float) -> dict[str, float]:
    """Measure commits with one group per connection."""
    name = f"bench-{uuid.uuid4().hex}"
    coordinated(address)
    frames = [_commit(f"{name}-{number}", topic, [0]) for number in range(COMMITS[0])]
    return await volley(address, server, COMMITS, frames, seconds, OffsetCommitResponse)


async def fill(address: str, server: int, topic: str, partitions: int, requests: int) -> dict[str, float]:
    """Commit `partitions` offsets with each request until all are acknowledged."""
    coordinated(address)
    frames = [_commit(group, topic, range(partitions)) for group in FILLED]
    each = requests // len(frames)
    used, started = cpu(server), time.perf_counter()
    async with connected(address, Volley, len(frames)) as volleys:
        for one, frame in zip(volleys, frames, strict=True):
            one.go(itertools.repeat(frame, each), 2)
        _, late = await asyncio.wait([one.ended for one in volleys], timeout=LIMIT)
        if late:
            raise RuntimeError(f"{sum(one.count for one in volleys)} of {requests} requests after {LIMIT:.0f} s")
        _fine(volleys, lambda frame: _no_error(OffsetCommitResponse, frame))
        records = sum(one.count for one in volleys) * partitions
    elapsed = time.perf_counter() - started
    return {"records": records, "seconds": elapsed, "cpu": cpu(server) - used}


def main(what: str, address: str, server: int, first: str, *rest: float) -> None:
    works: dict[str, Callable[[], Awaitable[object]]] = {
        "rebalance": lambda: rebalance(address, server, int(first), rest[0]),
        "heartbeats": lambda: heartbeats(address, server, int(first), rest[0]),
        "commits": lambda: commits(address, server, first, rest[0]),
        "fill": lambda: fill(address, server, first, int(rest[0]), int(rest[1])),
    }

    async def work() -> object:
        return await works[what]()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(work())))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], *map(float, sys.argv[5:]))
