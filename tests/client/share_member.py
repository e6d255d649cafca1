"""A member of a share group, for tests: it joins, acquires records, and leaves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.share_fetch import (
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from barnabas_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.wire import Wire

#: Attempts to ask, while a coordinator loads or a state is created.
ATTEMPTS = 2_000
_NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class ShareMember:
    """A member of a share group that subscribes to one topic."""

    def __init__(self, wire: Wire, group: str, topic: str, name: str) -> None:
        self.wire = wire
        self.group = group
        self.topic = topic
        self.name = name
        self.epoch = 0
        self.partitions: dict[bytes, list[int]] = {}

    async def beat(self, epoch: int) -> None:
        """Send a heartbeat."""
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=[self.topic],
        )
        for _ in range(ATTEMPTS):
            response = await self.wire.ask(request, 1, ShareGroupHeartbeatResponse, "worker")
            if response.error_code not in _NOT_YET:
                break
        assert response.error_code == ErrorCode.NONE, response
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.partitions = {one.topic_id: list(one.partitions) for one in response.assignment.topic_partitions}

    async def join(self) -> None:
        """Join, and have partitions."""
        await self.wire.ask(
            FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]), 6, FindCoordinatorResponse
        )
        for _ in range(ATTEMPTS):
            await self.beat(self.epoch)
            if self.partitions:
                return
        raise AssertionError("the member has no partitions")

    async def acquire(self, records: int = 500) -> int:
        """Open a session and acquire records as soon as there are some; returns how many."""
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=0,
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1_000_000,
            max_records=records,
            batch_size=records,
            topics=[
                ShareFetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        ShareFetchPartition(partition_index=number, acknowledgement_batches=[]) for number in numbers
                    ],
                )
                for topic_id, numbers in self.partitions.items()
            ],
            forgotten_topics_data=[],
        )
        response = await self.wire.ask(request, 2, ShareFetchResponse, "worker")
        assert response.error_code == ErrorCode.NONE, response
        return sum(
            run.last_offset - run.first_offset + 1
            for topic in response.responses
            for one in topic.partitions
            for run in one.acquired_records
        )


@asynccontextmanager
async def share_member(servers: str, group: str, topic: str, name: str = "m") -> AsyncIterator[ShareMember]:
    """A member that has joined, and leaves in the end."""
    async with await Wire.connect(int(servers.rsplit(":", 1)[1])) as wire:
        member = ShareMember(wire, group, topic, name)
        await member.join()
        yield member
        await member.beat(-1)
