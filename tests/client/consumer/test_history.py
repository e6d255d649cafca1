"""Truncated partitions (KIP-320), and topics that are deleted and created again."""

import asyncio
from typing import Any

import pytest

from barnabas_client import Admin
from barnabas_client.consumer.fetcher import Fetcher
from barnabas_client.errors import LogTruncationError, OffsetOutOfRangeError
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import FetchRequest
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest
from barnabas_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from barnabas_protocol.registry import ApiKey
from tests.client.consumers import T0, consumer, values
from tests.world.answers import drop, refused
from tests.world.broker import until
from tests.world.programs import Machine, Simulation, simulated


@pytest.fixture(params=["OffsetForLeaderEpoch", "Fetch", "both"])
def way(request: pytest.FixtureRequest) -> str:
    """The API by which histories are compared; for "both", whichever is first."""
    return str(request.param)


async def write_four(broker: Machine, way: str) -> None:
    """Write records in batches of their own."""
    if way == "OffsetForLeaderEpoch":
        broker.limit(ApiKey.FETCH, 11)
    elif way == "Fetch":
        broker.limit(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2)
    await broker.create("t")
    for value in (b"0", b"1", b"2", b"3"):
        await broker.write("t", [value])


async def create_again(broker: Machine) -> None:
    async with Admin(bootstrap_servers=broker.address) as admin:
        await admin.delete_topics(["t"])
    await broker.create("t")


@simulated
async def test_after_a_truncation_the_consumer_continues_at_the_divergence(simulation: Simulation, way: str) -> None:
    broker = await simulation.machine()
    await write_four(broker, way)
    async with consumer(broker) as reader:
        reader.assign([T0])
        assert await values(reader, 4) == [b"0", b"1", b"2", b"3"]
        await broker.lead_again("t", lost_from=2)
        for value in (b"two", b"three", b"four"):
            await broker.write("t", [value])
        assert await values(reader, 3) == [b"two", b"three", b"four"]
    assert "records that were read are gone from the partition" in "".join(simulation.logged)


@simulated
async def test_a_truncation_without_a_reset_policy_is_raised_until_a_seek(broker: Machine, way: str) -> None:
    await write_four(broker, way)
    async with consumer(broker, auto_offset_reset="none") as reader:
        reader.assign([T0])
        reader.seek(T0, 0)
        assert await values(reader, 4) == [b"0", b"1", b"2", b"3"]
        await broker.lead_again("t", lost_from=2)
        await broker.write("t", [b"two"])
        for _ in range(2):
            with pytest.raises(
                LogTruncationError, match=r"records of t-0 .* position 4 are gone, from offset 2 on"
            ) as seen:
                await reader.getone()
        assert (seen.value.position, seen.value.offset, seen.value.leader_epoch) == (4, 2, 0)
        assert seen.value.offset is not None
        reader.seek(T0, seen.value.offset)
        assert await values(reader, 1) == [b"two"]


@simulated
async def test_a_new_leader_with_all_records_changes_nothing(broker: Machine, way: str) -> None:
    await write_four(broker, way)
    async with consumer(broker) as reader:
        reader.assign([T0])
        assert await values(reader, 2) == [b"0", b"1"]
        for round_ in range(3):
            await broker.lead_again("t")
            await broker.write("t", [b"new %d" % round_])
        assert await values(reader, 5) == [b"2", b"3", b"new 0", b"new 1", b"new 2"]


@simulated
async def test_truncated_records_that_were_only_buffered_are_fetched_again(broker: Machine, way: str) -> None:
    await write_four(broker, way)
    async with consumer(broker) as reader:
        reader.assign([T0])
        assert await values(reader, 2) == [b"0", b"1"]
        await until(lambda: reader._subscription.state(T0).fetch_offset == 4)
        await broker.lead_again("t", lost_from=3)
        await broker.write("t", [b"three"])
        reader._running().network.want_refresh(urgent=True)
        await until(lambda: reader._subscription.state(T0).fetch_epoch == 1)
        assert await values(reader, 2) == [b"2", b"three"]


@simulated
async def test_the_check_of_a_position_is_retried(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])
    async with consumer(broker) as reader:
        reader.assign([T0])
        await values(reader, 2)
        broker.script.once(ApiKey.OFFSET_FOR_LEADER_EPOCH, drop, drop)
        await broker.lead_again("t")
        await broker.write("t", [b"c"])
        assert await values(reader, 1) == [b"c"]
    assert len(broker.script.asked(OffsetForLeaderEpochRequest)) >= 3


@simulated
async def test_committed_positions_are_checked_before_the_first_fetch(broker: Machine) -> None:
    await broker.create("t")
    for value in (b"0", b"1", b"2"):
        await broker.write("t", [value])
    async with consumer(broker, group_id="g") as reader:
        reader.assign([T0])
        await values(reader, 3)
    (committed,) = broker.script.asked(OffsetCommitRequest)
    assert committed.topics[0].partitions[0].committed_leader_epoch == 0
    await broker.lead_again("t", lost_from=1)
    await broker.write("t", [b"one"])
    await broker.write("t", [b"two"])
    await broker.write("t", [b"three"])
    async with consumer(broker, group_id="g", auto_offset_reset="latest") as reader:
        reader.assign([T0])
        assert await values(reader, 3) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("step", ["_resolve", "_check", "_fetch"])
@pytest.mark.parametrize("seeks_to", [1, None])
@simulated
async def test_a_seek_between_a_decision_and_its_request_is_obeyed(
    broker: Machine, monkeypatch: pytest.MonkeyPatch, step: str, seeks_to: int | None
) -> None:
    """The position is that of the program, and no request is made about the one before it, or without an epoch."""
    await broker.create("t")
    for value in (b"0", b"1", b"2"):
        await broker.write("t", [value])
    async with consumer(broker, group_id="g") as reader:
        reader.assign([T0])
        await values(reader, 3)
    original = getattr(Fetcher, step)
    seeks = iter([True])

    def after_a_seek(self: Fetcher, *args: Any, **given: Any) -> Any:
        async def work() -> None:
            if next(seeks, False):
                if seeks_to is None:
                    await reader.seek_to_beginning(T0)
                else:
                    reader.seek(T0, seeks_to)
            await original(self, *args, **given)

        return work()

    monkeypatch.setattr(Fetcher, step, after_a_seek)
    async with consumer(broker, group_id="g", auto_offset_reset="latest") as reader:
        reader.assign([T0])
        found = await asyncio.wait_for(values(reader, 2), 30)
        assert found == [b"1", b"2"] if seeks_to == 1 else [b"0", b"1"]
        assert next(seeks, True), "the program has sought"
    epochs = [one.topics[0].partitions[0].leader_epoch for one in broker.script.asked(OffsetForLeaderEpochRequest)]
    assert -1 not in epochs


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH])
@simulated
async def test_a_leader_epoch_error_refreshes_metadata(broker: Machine, code: ErrorCode) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    async with consumer(broker) as reader:
        reader.assign([T0])
        assert await values(reader, 1) == [b"a"]
        broker.script.once(ApiKey.FETCH, refused(code))
        await broker.lead_again("t")
        await broker.write("t", [b"b"])
        assert await values(reader, 1) == [b"b"]
    assert broker.script.asked(FetchRequest)[-1].topics[0].partitions[0].current_leader_epoch == 1


@pytest.mark.parametrize("newest", [12, 17])
@simulated
async def test_a_topic_that_was_created_again_is_read_from_its_start(simulation: Simulation, newest: int) -> None:
    broker = await simulation.machine()
    broker.limit(ApiKey.FETCH, newest)
    await broker.create("t")
    await broker.write("t", [b"old"] * 3)
    async with consumer(broker) as reader:
        reader.assign([T0])
        assert await values(reader, 3) == [b"old"] * 3
        await create_again(broker)
        await broker.write("t", [b"%d" % at for at in range(5)])  # the old position would be in the middle of them
        if newest == 12:
            reader._running().network.want_refresh(urgent=True)  # without topic ids the broker does not notice
            await until(lambda: "created again" in "".join(simulation.logged))
        assert await values(reader, 5) == [b"0", b"1", b"2", b"3", b"4"]
    assert "a topic was deleted and created again, resetting" in "".join(simulation.logged)


@simulated
async def test_a_topic_that_was_created_again_without_a_reset_policy(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"old"] * 3)
    async with consumer(broker, auto_offset_reset="none") as reader:
        reader.assign([T0])
        reader.seek(T0, 0)
        await values(reader, 3)
        await create_again(broker)
        await broker.write("t", [b"new"] * 5)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match=r"'t' was deleted and created again, so position 3 of t-0"):
                await reader.getone()
        reader.seek(T0, 4)
        assert await values(reader, 1) == [b"new"]


@simulated
async def test_a_deleted_topic_causes_one_warning_and_is_waited_for(simulation: Simulation) -> None:
    broker = await simulation.machine(auto_create_topics_enable="false")
    await broker.create("t")
    await broker.write("t", [b"old"])
    async with consumer(broker) as reader:
        reader.assign([T0])
        await values(reader, 1)
        async with Admin(bootstrap_servers=broker.address) as admin:
            await admin.delete_topics(["t"])
        waiting = asyncio.ensure_future(reader.getone())
        await until(lambda: "a topic does not exist" in "".join(simulation.logged))
        asked = len(broker.script.keys())
        await until(lambda: len(broker.script.keys()) > asked + 5)
        assert "".join(simulation.logged).count("a topic does not exist") == 1
        await broker.create("t")
        await broker.write("t", [b"new"])
        assert (await waiting).value == b"new"
