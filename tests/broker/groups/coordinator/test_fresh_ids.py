"""200,000 heartbeats, each of a member id that was never seen: they leave nothing behind.

The first of them may fill what has a bound; the others must not keep any more memory.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from itertools import count

import pytest

from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.effects import Caller
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.groups.support import Service

IDS = 200_000
#: After so many heartbeats everything that has a bound has reached it.
FIRST = 50_000
#: Blocks of memory that may be kept after that: one for 500 heartbeats.
MOST_KEPT = 300
T = b"t" * 16


def heartbeat(number: int, epoch: int, group: str = "g") -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=f"fresh-{number}", member_epoch=epoch)
    if epoch == 0:
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names = ["t"]
        request.topic_partitions = []
    elif epoch == -2:
        request.instance_id = f"instance-{number}"
    return request


Make = Callable[[int], ConsumerGroupHeartbeatRequest]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("make", "max_size", "code"),
    [
        (lambda number: heartbeat(number, 1), 11, ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda number: heartbeat(number, 0), 10, ErrorCode.GROUP_MAX_SIZE_REACHED),
        (lambda number: heartbeat(number, -1), 11, ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda number: heartbeat(number, -2), 11, ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda number: heartbeat(number, 1, f"new-{number}"), 11, ErrorCode.GROUP_ID_NOT_FOUND),
        (lambda number: heartbeat(number, -1, f"new-{number}"), 11, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
    ids=["beats", "joins", "leaves", "leaves-static", "beats-new-group", "leaves-new-group"],
)
async def test_fresh_member_ids_leave_nothing_behind(make: Make, max_size: int, code: ErrorCode) -> None:
    service = await Service(group_consumer_max_size=str(max_size), group_consumer_assignment_interval_ms="0").loaded()
    service.groups.topics_changed({"t": 4}, [Topic(T, "t", 4)])
    for number in range(-10, 0):
        joining = service.groups.consumer_heartbeat(heartbeat(number, 0), 1, Caller("client", "/127.0.0.1"))
        assert isinstance(joining, asyncio.Future)
        await service.after(0.02)
    hosted = service.groups.groups["g"]
    members, appends, published = set(hosted.group.members), service.log.appends, len(service.published)
    assert len(members) == 10
    numbers = count()

    def attack(times: int) -> int:
        """Blocks of memory that are in use afterwards."""
        for _ in range(times):
            number = next(numbers)
            request, caller = make(number), Caller(f"client-{number}", "/127.0.0.1")
            response = service.groups.consumer_heartbeat(request, 1, caller)
            assert not isinstance(response, asyncio.Future)
            assert response.error_code == code
        gc.collect()
        return sys.getallocatedblocks()

    before = attack(FIRST)
    kept = attack(IDS - FIRST) - before
    await service.after(1)
    assert kept < MOST_KEPT
    assert list(service.groups.groups) == ["g"]
    assert set(hosted.group.members) == members
    assert (service.log.appends, len(service.published)) == (appends, published)
