"""Groups for the page to show: real members of a real broker. Used by the tests in a browser and by the screenshots."""

import asyncio
import struct
from collections.abc import Awaitable, Callable

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_protocol.errors import ErrorCode
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
from tests.broker.http.support import coordinated
from tests.wire import PATIENCE, Wire

#: Names that a page must show as text: markup, escape sequences of terminals, 10 KB, a path, text that runs backwards.
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "\"><script>document.title='taken'</script>",
    "\x1b[31mred\x1b]0;title\x07",
    "long-" + "x" * 10_000,
    "a/../b?c=d&e#f%2Fg",
    "abc\u202egpj.exe",
)


async def start(log_dir: str, **settings: str) -> BrokerServer:
    """A broker with the page, on free ports."""
    given = {
        "log.dir": log_dir,
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    return await BrokerServer.start(Config(BROKER_KEYS, given), port=0, http_port=0)


class RawMember:
    """A member of a classic group that sends what a test asks for, and nothing else: it can die, or never rejoin.

    Args:
        wire: its connection.
        group: the group.
        client_id: its client id.
    """

    def __init__(self, wire: Wire, group: str, client_id: str) -> None:
        self._wire = wire
        self._group = group
        self._client_id = client_id
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.others: list[str] = []

    async def join(self, topic: str, *, session_ms: int = 60_000, rebalance_ms: int = 60_000) -> None:
        """Send JoinGroup until the join phase is over."""
        await coordinated(self._wire, self._group)
        name = topic.encode()
        subscription = struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = await self._wire.ask(request, 2, JoinGroupResponse, client_id=self._client_id)
                if answer.error_code == ErrorCode.NONE:
                    break
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.leads = answer.leader == answer.member_id
        self.others = [each.member_id for each in answer.members]

    async def sync(self, topic: str, shares: dict[str, list[int]] | None = None) -> None:
        """Send SyncGroup; the leader with the partitions of each member."""
        name = topic.encode()
        assignments = []
        for member_id, numbers in (shares or {}).items():
            listed = struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
            data = struct.pack(">hih", 0, 1, len(name)) + name + listed + struct.pack(">i", -1)
            assignments.append(SyncGroupRequestAssignment(member_id=member_id, assignment=data))
        request = SyncGroupRequest(
            group_id=self._group, generation_id=self.generation, member_id=self.member_id, assignments=assignments
        )
        answer = await self._wire.ask(request, 0, SyncGroupResponse, client_id=self._client_id)
        assert answer.error_code == ErrorCode.NONE

    async def heartbeat(self) -> int:
        """Send a heartbeat; the error code of the response."""
        request = HeartbeatRequest(group_id=self._group, generation_id=self.generation, member_id=self.member_id)
        return (await self._wire.ask(request, 0, HeartbeatResponse, client_id=self._client_id)).error_code

    async def commit(self, wire: Wire, topic: str, offsets: dict[int, int]) -> int:
        """Commit offsets, over a connection that does not wait for a join phase; the error code of the response."""
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        answer = await wire.ask(request, 7, OffsetCommitResponse, client_id=self._client_id)
        return answer.topics[0].partitions[0].error_code

    async def leave(self, reason: str | None = None) -> None:
        """Send LeaveGroup with a reason."""
        identity = MemberIdentity(member_id=self.member_id, reason=reason)
        request = LeaveGroupRequest(group_id=self._group, members=[identity])
        answer = await self._wire.ask(request, 5, LeaveGroupResponse, client_id=self._client_id)
        assert answer.error_code == ErrorCode.NONE


async def until(true: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    """Wait for something, for a bounded time."""
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = true()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.02)


class Orders:
    """A story of the group `orders-service`, told by its members: one joins, another joins and is waited for, leaves
    because it did not poll, a third joins and dies."""

    GROUP = "orders-service"
    TOPIC = "orders"

    def __init__(self, first: RawMember, second: RawMember, third: RawMember) -> None:
        self.first, self.second, self.third = first, second, third
        #: Whether the first member consumes, for those who commit its offsets.
        self.consuming = True

    async def rebalance(self, other: RawMember, shares: tuple[list[int], list[int]], *, session_ms: int) -> None:
        """`other` joins beside the first member, which rejoins when it hears of it."""
        joining = asyncio.create_task(other.join(self.TOPIC, session_ms=session_ms))
        await self.rejoin()
        await joining
        if self.first.leads:
            leader, follower = self.first, other
        else:
            leader, follower = other, self.first
        await leader.sync(self.TOPIC, {self.first.member_id: shares[0], other.member_id: shares[1]})
        await follower.sync(self.TOPIC)

    async def rejoin(self) -> None:
        """The first member hears of a rebalance and rejoins."""
        first = self.first

        async def heard() -> bool:
            return await first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

        await until(heard)
        await first.join(self.TOPIC)

    async def begin(self) -> None:
        await self.first.join(self.TOPIC)
        await self.first.sync(self.TOPIC, {self.first.member_id: [0, 1, 2, 3]})

    async def second_joins(self) -> None:
        await self.rebalance(self.second, ([0, 1], [2, 3]), session_ms=60_000)

    async def second_leaves(self, reason: str = "consumer poll timeout has expired.") -> None:
        await self.second.leave(reason)
        await self.alone()

    async def alone(self) -> None:
        await self.rejoin()
        await self.first.sync(self.TOPIC, {self.first.member_id: [0, 1, 2, 3]})

    async def third_joins_and_dies(self) -> None:
        await self.rebalance(self.third, ([0, 2], [1, 3]), session_ms=700)
        await self.alone()
