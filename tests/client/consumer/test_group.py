"""The consumer as a member of a group whose coordinator agrees: commits, listeners, rebalances between polls, the
end."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from barnabas_client import Admin, ConsumerRebalanceListener, TopicPartition
from barnabas_client.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    RebalanceListenerError,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.heartbeat import HeartbeatRequest
from barnabas_protocol.messages.join_group import JoinGroupRequest
from barnabas_protocol.messages.leave_group import LeaveGroupRequest
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas_protocol.registry import ApiKey
from tests.client.consumers import T0, T1, member, stored, until_stored, values
from tests.world.answers import drop, refused, silence
from tests.world.broker import until
from tests.world.programs import Machine, Simulation, simulated


async def beats(broker: Machine, count: int) -> None:
    """Wait for so many further heartbeats."""
    enough = len(broker.script.asked(HeartbeatRequest)) + count
    await until(lambda: len(broker.script.asked(HeartbeatRequest)) >= enough)


class Listener(ConsumerRebalanceListener):
    """Records its calls."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, list[TopicPartition]]] = []

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.seen.append(("revoked", list(revoked)))

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.seen.append(("assigned", list(assigned)))

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.seen.append(("lost", list(lost)))


# Joining and reading.


@simulated
async def test_start_waits_for_the_first_assignment(broker: Machine) -> None:
    await broker.create("t", 2)
    await broker.write("t", [b"a"])
    async with member(broker, "t") as reader:
        assert reader.assignment() == {T0, T1}
        assert await values(reader, 1) == [b"a"]
        await until(lambda: len(broker.script.asked(HeartbeatRequest)) > 2)
    assert broker.script.asked(LeaveGroupRequest)[0].members[0].reason == "the consumer is being closed"


@simulated
async def test_a_member_continues_at_the_committed_offset(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"%d" % at for at in range(10)])
    async with member(broker, "t") as reader:
        assert await values(reader, 4) == [b"0", b"1", b"2", b"3"]
    assert await stored(broker) == (4, "")
    async with member(broker, "t") as reader:
        assert await values(reader, 1) == [b"4"]


@simulated
async def test_an_older_broker(broker: Machine) -> None:
    for key, newest in (
        (ApiKey.JOIN_GROUP, 2),
        (ApiKey.SYNC_GROUP, 1),
        (ApiKey.HEARTBEAT, 1),
        (ApiKey.LEAVE_GROUP, 1),
        (ApiKey.FIND_COORDINATOR, 1),
        (ApiKey.OFFSET_COMMIT, 2),
        (ApiKey.LIST_OFFSETS, 1),
        (ApiKey.METADATA, 2),
        (ApiKey.FETCH, 4),
    ):
        broker.limit(key, newest)
    await broker.create("t")
    await broker.write("t", [b"a"])
    async with member(broker, "t") as reader:
        assert await values(reader, 1) == [b"a"]
        await reader.commit()
    assert await stored(broker) == (1, "")
    assert broker.script.versions(ApiKey.FETCH) == {4}


@simulated
async def test_topics_created_while_a_member_runs(simulation: Simulation) -> None:
    broker = await simulation.machine(auto_create_topics_enable="false")
    async with member(broker, "t") as reader:
        assert reader.assignment() == frozenset()
        waiting = asyncio.ensure_future(reader.getone())
        await asyncio.sleep(0)
        await broker.create("t")
        await broker.write("t", [b"a"])
        assert (await waiting).value == b"a"


@simulated
async def test_added_partitions(broker: Machine) -> None:
    await broker.create("t")
    async with member(broker, "t") as reader:
        async with Admin(bootstrap_servers=broker.address) as admin:
            await admin.create_partitions({"t": 2})
        await broker.write("t", [b"b"], 1)
        reader._running().network.want_refresh(urgent=True)
        assert await values(reader, 1) == [b"b"]
        assert reader.assignment() == {T0, T1}


@simulated
async def test_a_new_subscription(broker: Machine) -> None:
    await broker.create("t")
    await broker.create("u")
    await broker.write("u", [b"u"])
    async with member(broker, "t") as reader:
        reader.subscribe(["u"])
        assert await values(reader, 1) == [b"u"]
        assert reader.assignment() == {TopicPartition("u", 0)}


@simulated
async def test_unsubscribe_leaves_the_group_and_subscribe_rejoins(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])
    listener = Listener()
    async with member(broker) as reader:
        reader.subscribe(["t"], listener=listener)
        await values(reader, 1)
        reader.unsubscribe()
        assert reader.assignment() == frozenset()
        await until(lambda: bool(broker.script.asked(LeaveGroupRequest)))
        assert await stored(broker) == (1, "")
        assert listener.seen == [("assigned", [T0]), ("revoked", [T0])]
        with pytest.raises(IllegalStateError, match="nothing to poll"):
            await reader.getone()
        reader.subscribe(["t"])
        assert await values(reader, 1) == [b"b"]


@simulated
async def test_start_waits_for_the_first_assignment_only_up_to_the_request_timeout(broker: Machine) -> None:
    await broker.create("t")
    broker.script.once(ApiKey.JOIN_GROUP, silence)
    async with member(broker, "t", request_timeout_ms=500, close_timeout_ms=100) as reader:
        assert reader.assignment() == frozenset()


# Heartbeats and rebalances.


@simulated
async def test_a_rebalance_waits_until_the_program_polls(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"%d" % at for at in range(5)])
    listener = Listener()
    async with member(broker) as reader:
        reader.subscribe(["t"], listener=listener)
        assert await values(reader, 2) == [b"0", b"1"]
        broker.script.once(ApiKey.HEARTBEAT, refused(ErrorCode.REBALANCE_IN_PROGRESS))
        await beats(broker, 3)
        assert len(broker.script.asked(JoinGroupRequest)) == 2  # the second of the first round: a member id
        assert listener.seen == [("assigned", [T0])]
        assert await values(reader, 1) == [b"2"]
        assert listener.seen == [("assigned", [T0]), ("revoked", [T0]), ("assigned", [T0])]
        assert len(broker.script.asked(JoinGroupRequest)) == 3
        assert await stored(broker) == (2, "")  # what was read, no less and no more


@simulated
async def test_a_rebalance_proceeds_while_a_poll_waits(broker: Machine) -> None:
    await broker.create("t")
    async with member(broker, "t") as reader:
        waiting = asyncio.ensure_future(reader.getone())
        broker.script.once(ApiKey.HEARTBEAT, refused(ErrorCode.REBALANCE_IN_PROGRESS))
        await until(lambda: len(broker.script.asked(SyncGroupRequest)) == 2)
        await broker.write("t", [b"a"])
        assert (await waiting).value == b"a"


@simulated
async def test_a_rebalance_during_iteration(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"%d" % at for at in range(5)])
    read = []
    async with member(broker, "t") as reader:
        async for record in reader:
            read.append(record.value)
            if len(read) == 2:
                broker.script.once(ApiKey.HEARTBEAT, refused(ErrorCode.REBALANCE_IN_PROGRESS))
                await until(lambda: reader._running().gate.awaited)
            if len(read) == 5:
                break
    assert read == [b"0", b"1", b"2", b"3", b"4"]
    assert len(broker.script.asked(SyncGroupRequest)) == 2


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@simulated
async def test_a_removed_member_loses_its_partitions_and_rejoins(broker: Machine, code: ErrorCode) -> None:
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])
    listener = Listener()
    async with member(broker) as reader:
        reader.subscribe(["t"], listener=listener)
        assert await values(reader, 1) == [b"a"]
        broker.script.once(ApiKey.HEARTBEAT, refused(code))
        await until(lambda: reader._running().gate.awaited)
        assert await values(reader, 1) == [b"a"]  # nothing was committed, so it is read again
        assert listener.seen == [("assigned", [T0]), ("lost", [T0]), ("assigned", [T0])]


@simulated
async def test_a_fenced_member_raises_in_every_poll(broker: Machine) -> None:
    await broker.create("t")
    async with member(broker, "t", group_instance_id="i") as reader:
        broker.script.once(ApiKey.HEARTBEAT, refused(ErrorCode.FENCED_INSTANCE_ID))
        for _ in range(2):
            with pytest.raises(FencedInstanceIdError, match="group_instance_id 'i'"):
                await reader.getone()
        with pytest.raises(FencedInstanceIdError):
            await reader.commit({T0: 1})
    assert not broker.script.asked(LeaveGroupRequest)


@simulated
async def test_start_raises_if_the_group_refuses_the_member(broker: Machine) -> None:
    await broker.create("t")
    broker.script.once(ApiKey.JOIN_GROUP, refused(ErrorCode.INVALID_SESSION_TIMEOUT))
    reader = member(broker, "t")
    with pytest.raises(KafkaError, match=r"group\.min\.session\.timeout\.ms"):
        await reader.start()


@simulated
async def test_fetching_continues_while_the_coordinator_is_unknown(broker: Machine) -> None:
    await broker.create("t")
    async with member(broker, "t") as reader:
        for round_ in range(3):
            broker.script.once(ApiKey.HEARTBEAT, drop if round_ % 2 else refused(ErrorCode.NOT_COORDINATOR))
            await beats(broker, 2)
            await broker.write("t", [b"%d" % round_])
            assert await values(reader, 1) == [b"%d" % round_]
    assert len(broker.script.asked(SyncGroupRequest)) == 1


@simulated
async def test_a_program_that_does_not_poll_leaves_and_rejoins_with_its_next_poll(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])
    listener = Listener()
    async with member(broker, max_poll_interval_ms=1_000) as reader:
        reader.subscribe(["t"], listener=listener)
        assert await values(reader, 1) == [b"a"]
        await until(lambda: bool(broker.script.asked(LeaveGroupRequest)))
        assert "max_poll_interval_ms" in (broker.script.asked(LeaveGroupRequest)[0].members[0].reason or "")
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            await reader.commit()
        assert await values(reader, 1) == [b"a"]
        assert listener.seen[:3] == [("assigned", [T0]), ("lost", [T0]), ("assigned", [T0])]


@simulated
async def test_a_program_that_waits_in_a_poll_stays_a_member(broker: Machine) -> None:
    await broker.create("t")
    async with member(broker, "t", max_poll_interval_ms=1_000) as reader:
        assert await reader.getmany(timeout_ms=2_000) == {}
    assert len(broker.script.asked(SyncGroupRequest)) == 1


# Listeners.


@simulated
async def test_a_listener_seeks_before_anything_is_fetched(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"%d" % at for at in range(5)])

    class Elsewhere(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            for tp in assigned:
                assert await reader.position(tp) == 0
                await asyncio.sleep(0)
                reader.seek(tp, 3)

    reader = member(broker)
    reader.subscribe(["t"], listener=Elsewhere())
    async with reader:
        assert await values(reader, 2) == [b"3", b"4"]


@simulated
async def test_a_listener_commits_revoked_partitions(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])

    class Committing(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            await reader.commit({tp: (await reader.position(tp), "revoked") for tp in revoked})

    reader = member(broker, enable_auto_commit=False)
    reader.subscribe(["t"], listener=Committing())
    async with reader:
        await values(reader, 2)
    assert await stored(broker) == (2, "revoked")


@simulated
async def test_a_listener_of_plain_functions(broker: Machine) -> None:
    await broker.create("t")
    seen = []

    class Plain:
        def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            seen.append(("revoked", revoked))

        def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            seen.append(("assigned", assigned))

    listener: Any = Plain()  # aiokafka's listeners know no lost partitions
    reader = member(broker)
    reader.subscribe(["t"], listener=listener)
    async with reader:
        broker.script.once(ApiKey.HEARTBEAT, refused(ErrorCode.UNKNOWN_MEMBER_ID))
        await until(lambda: reader._running().gate.awaited)
        await reader.getmany(timeout_ms=20)
        await until(lambda: len(seen) == 3)
    assert seen == [("assigned", [T0]), ("revoked", [T0]), ("assigned", [T0]), ("revoked", [T0])]


@simulated
async def test_the_error_of_a_listener_is_raised_by_the_next_poll_and_stops_nothing(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])

    class Failing(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            raise RuntimeError("no")

    reader = member(broker)
    reader.subscribe(["t"], listener=Failing())
    async with reader:
        with pytest.raises(RebalanceListenerError, match="on_partitions_assigned raised RuntimeError: no") as raised:
            await reader.getone()
        assert isinstance(raised.value.__cause__, RuntimeError)
        assert await values(reader, 1) == [b"a"]


@simulated
async def test_a_listener_cannot_poll(broker: Machine) -> None:
    await broker.create("t")

    class Polling(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            await reader.getone()

    reader = member(broker)
    reader.subscribe(["t"], listener=Polling())
    async with reader:
        with pytest.raises(RebalanceListenerError, match="a rebalance listener cannot poll"):
            await reader.getone()


# Commits.


@simulated
async def test_automatic_commits_cover_earlier_polls(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"%d" % at for at in range(5)])
    async with member(broker, "t", auto_commit_interval_ms=5, max_poll_records=2) as reader:
        assert await reader.position(T0) == 0
        assert len(await reader.poll(1_000)) == 2
        await until(lambda: reader._running_group().commits._is_due)
        # The program may still be at work on these.
        assert await stored(broker) in (None, (0, ""))
        assert len(await reader.poll(1_000)) == 2
        await until_stored(broker, 2)


@simulated
async def test_an_automatic_commit_while_the_program_waits(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    async with member(broker, "t", auto_commit_interval_ms=5) as reader:
        await values(reader, 1)
        waiting = asyncio.ensure_future(reader.getmany(timeout_ms=2_000))
        await until_stored(broker, 1)
        commits = len(broker.script.asked(OffsetCommitRequest))
        await until(lambda: len(broker.script.asked(HeartbeatRequest)) > 10)
        assert len(broker.script.asked(OffsetCommitRequest)) == commits  # nothing new, nothing to commit
        await broker.write("t", [b"b"])
        assert len((await waiting)[T0]) == 1


@simulated
async def test_a_failed_automatic_commit_is_covered_by_the_next(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    broker.script.once(ApiKey.OFFSET_COMMIT, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), drop)
    async with member(broker, "t", auto_commit_interval_ms=5) as reader:
        await values(reader, 1)
        waiting = asyncio.ensure_future(reader.getmany(timeout_ms=2_000))
        await until_stored(broker, 1)
        waiting.cancel()
        await asyncio.wait([waiting])


@simulated
async def test_no_automatic_commits_when_they_are_off(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    async with member(broker, "t", enable_auto_commit=False, auto_commit_interval_ms=1) as reader:
        await values(reader, 1)
        await reader.getmany(timeout_ms=20)
    assert not broker.script.asked(OffsetCommitRequest)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
@simulated
async def test_a_commit_is_retried_after_retriable_errors(broker: Machine, code: ErrorCode) -> None:
    await broker.create("t")
    broker.script.once(ApiKey.OFFSET_COMMIT, refused(code), drop)
    async with member(broker, "t", enable_auto_commit=False) as reader:
        await reader.commit({T0: 3})
        assert await stored(broker) == (3, "")


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError, "UNKNOWN_MEMBER_ID.*poll to rejoin"),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError, "ILLEGAL_GENERATION.*poll to rejoin"),
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgressError, "commit again"),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, KafkaError, "OFFSET_METADATA_TOO_LARGE"),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError, "group_instance_id"),
    ],
)
@simulated
async def test_the_error_of_a_refused_commit_names_the_cause(
    broker: Machine, code: ErrorCode, error: type[KafkaError], says: str
) -> None:
    await broker.create("t")
    broker.script.once(ApiKey.OFFSET_COMMIT, refused(code))
    async with member(broker, "t", enable_auto_commit=False) as reader:
        with pytest.raises(error, match=says):
            await reader.commit({T0: 3})


@simulated
async def test_a_commit_from_outside_of_a_group_with_members(broker: Machine) -> None:
    await broker.create("t")
    async with member(broker, "t"), member(broker) as reader:
        reader.assign([T0])
        with pytest.raises(CommitFailedError, match="the group has members"):
            await reader.commit({T0: 3})


@simulated
async def test_a_commit_times_out(broker: Machine) -> None:
    await broker.create("t")
    async with member(broker, "t", enable_auto_commit=False, request_timeout_ms=1_000) as reader:
        broker.script.always(ApiKey.OFFSET_COMMIT, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        with pytest.raises(KafkaTimeoutError, match=r"within 1 s; the last attempt: .*COORDINATOR_LOAD_IN_PROGRESS"):
            await reader.commit({T0: 3})


# The end.


@simulated
async def test_stop_ends_without_a_broker(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    reader = member(broker, "t", close_timeout_ms=50)
    await reader.start()
    await values(reader, 1)
    await broker.stop()
    async with asyncio.timeout(60):
        await reader.stop()


@simulated
async def test_stop_ends_if_the_broker_does_not_answer(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    broker.script.always(ApiKey.OFFSET_COMMIT, silence)
    reader = member(broker, "t", close_timeout_ms=50)
    await reader.start()
    await values(reader, 1)
    async with asyncio.timeout(60):
        await reader.stop()


@simulated
async def test_stop_calls_the_listener(broker: Machine) -> None:
    await broker.create("t")
    listener = Listener()
    reader = member(broker)
    reader.subscribe(["t"], listener=listener)
    async with reader:
        pass
    assert listener.seen == [("assigned", [T0]), ("revoked", [T0])]


@simulated
async def test_a_leader_without_partitions(broker: Machine) -> None:
    await broker.create("t")
    broker.script.once(ApiKey.SYNC_GROUP, lambda request: SyncGroupResponse(error_code=0, assignment=b""))
    async with member(broker, "t") as reader:
        assert reader.assignment() == frozenset()
        assert await reader.getmany(timeout_ms=10) == {}
