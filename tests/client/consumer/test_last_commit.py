"""The last commit of a run, or of a consumer that stops, during a rebalance: it is not dropped."""

import asyncio
from typing import Any

import pytest

from barnabas_client import ConsumerRecord, CooperativeStickyAssignor
from barnabas_client.consumer.consumer import Consumer
from barnabas_client.errors import WakeupError
from barnabas_client.membership.member import MemberState
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.join_group import JoinGroupRequest
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest
from barnabas_protocol.messages.sync_group import SyncGroupRequest
from barnabas_protocol.registry import ApiKey
from tests.client.consumers import member, stored
from tests.world.answers import held, refused
from tests.world.broker import until
from tests.world.programs import Machine, simulated


def cooperative(broker: Machine, **settings: Any) -> Consumer[Any, Any]:
    """A member that keeps its partitions while the group rebalances (KIP-429)."""
    return member(broker, "t", partition_assignment_strategy=[CooperativeStickyAssignor()], **settings)


async def rebalancing(broker: Machine, reader: Consumer[Any, Any], state: MemberState) -> None:
    """Start a rebalance and wait until the member is in `state`."""
    kind = JoinGroupRequest if state is MemberState.JOINING else SyncGroupRequest
    group, before = reader._running_group(), len(broker.script.asked(kind))
    reader.enforce_rebalance()
    await until(lambda: group.membership.view.state is state and len(broker.script.asked(kind)) > before)


async def rebalancing_in_a_poll(broker: Machine, reader: Consumer[Any, Any], state: MemberState) -> None:
    """The same, with a poll, which a rebalance waits for."""
    poll = asyncio.create_task(reader.getone())
    await rebalancing(broker, reader, state)
    reader.wakeup()
    with pytest.raises(WakeupError):
        await poll


@pytest.mark.parametrize(
    ("request_held", "state"), [(ApiKey.JOIN_GROUP, MemberState.JOINING), (ApiKey.SYNC_GROUP, MemberState.SYNCING)]
)
@pytest.mark.parametrize("end", ["wakeup", "stop"])
@simulated
async def test_a_run_that_ends_during_a_rebalance_commits(
    broker: Machine, request_held: ApiKey, state: MemberState, end: str
) -> None:
    await broker.create("t")
    await broker.write("t", [b"a", b"b", b"c"])
    finish, finished, go = asyncio.Event(), [], asyncio.Event()

    async def handler(record: ConsumerRecord) -> None:
        await finish.wait()
        finished.append(record.offset)

    async with cooperative(broker, enable_auto_commit=False) as reader:
        run = asyncio.create_task(reader.run(handler, order="none", commit_interval_ms=60_000))
        await until(lambda: reader._runner is not None and len(reader._runner.handlers) == 3)
        broker.script.always(request_held, held(go))
        await rebalancing(broker, reader, state)
        broker.script.always(request_held, None)
        finish.set()
        await until(lambda: len(finished) == 3)
        ending = asyncio.create_task(reader.stop()) if end == "stop" else None
        reader.wakeup()
        if state is MemberState.SYNCING:
            await until(lambda: reader._runner is not None and reader._runner.handlers.ending)
            go.set()
        await run
        if ending is not None:
            await ending
        assert await stored(broker) == (3, "")
        go.set()


@pytest.mark.parametrize(
    ("request_held", "state"), [(ApiKey.JOIN_GROUP, MemberState.JOINING), (ApiKey.SYNC_GROUP, MemberState.SYNCING)]
)
@simulated
async def test_a_consumer_that_stops_during_a_rebalance_commits(
    broker: Machine, request_held: ApiKey, state: MemberState
) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    go = asyncio.Event()
    reader = cooperative(broker, auto_commit_interval_ms=60_000)
    await reader.start()
    await reader.getone()
    broker.script.always(request_held, held(go))
    await rebalancing_in_a_poll(broker, reader, state)
    broker.script.always(request_held, None)
    if state is MemberState.SYNCING:
        asyncio.get_running_loop().call_later(0.05, go.set)
    position = reader._subscription.positions()
    await reader.stop()
    assert [await stored(broker, tp) for tp in position] == [(one.offset, "") for one in position.values()]
    go.set()


@simulated
async def test_a_commit_that_crosses_the_end_of_a_rebalance_is_made_again(broker: Machine) -> None:
    """The coordinator has a new generation already, and its JoinGroup response is still on its way."""
    await broker.create("t")
    await broker.write("t", [b"a"])
    go = asyncio.Event()
    async with cooperative(broker, auto_commit_interval_ms=60_000) as reader:
        await reader.getone()
        broker.script.always(ApiKey.JOIN_GROUP, held(go))
        await rebalancing_in_a_poll(broker, reader, MemberState.JOINING)
        broker.script.always(ApiKey.JOIN_GROUP, None)
        broker.script.once(ApiKey.OFFSET_COMMIT, *[refused(ErrorCode.ILLEGAL_GENERATION)] * 2)
        stopping = asyncio.create_task(reader.stop())
        await until(lambda: len(broker.script.asked(OffsetCommitRequest)) >= 2)
        go.set()
        await stopping
    assert await stored(broker) == (1, "")
    joins = broker.script.asked(JoinGroupRequest)
    assert joins[-1].member_id == joins[-2].member_id, "the membership was not lost"
    assert broker.script.asked(SyncGroupRequest)
