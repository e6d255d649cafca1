"""Commits in the background, lag, metrics and what else the consumer knows about itself."""

import asyncio
import threading
import time
from typing import Any

import pytest

from barnabas_client import Admin, Consumer, OffsetAndMetadata, TopicPartition
from barnabas_client.errors import (
    CommitFailedError,
    IllegalOperationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    WakeupError,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import FetchRequest
from barnabas_protocol.messages.join_group import JoinGroupRequest
from barnabas_protocol.messages.list_offsets import ListOffsetsRequest
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest
from barnabas_protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas_protocol.registry import ApiKey
from tests.client import consumers
from tests.client.consumers import T0, T1, stored, values
from tests.world.answers import drop, refused, silence
from tests.world.broker import ScriptedBroker, until
from tests.world.programs import Machine, Simulation, simulated

Reported = list[tuple[dict[TopicPartition, OffsetAndMetadata], KafkaError | None]]


def member(broker: ScriptedBroker, *topics: str, **settings: Any) -> Consumer:
    given = {"enable_auto_commit": False, "heartbeat_interval_ms": 20, **settings}
    return consumers.member(broker, *topics, **given)


async def poll_for_ever(reader: Consumer) -> None:
    while True:
        await reader.getmany(timeout_ms=1)


# In the background.


@simulated
async def test_a_background_commit_calls_its_callback(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a", b"b", b"c"])
    seen: Reported = []
    ended = asyncio.Event()

    async def later(offsets: dict[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
        await asyncio.sleep(0)
        seen.append((offsets, error))
        ended.set()

    async with member(broker, "t") as reader:
        await values(reader, 2)
        reader.commit_async(callback=lambda offsets, error: seen.append((offsets, error)))
        await until(lambda: len(seen) == 1)
        reader.commit_async({T0: (3, "by hand")}, later)
        await ended.wait()
    assert seen == [({T0: OffsetAndMetadata(2, "", 0)}, None), ({T0: OffsetAndMetadata(3, "by hand", -1)}, None)]
    assert await stored(broker) == (3, "by hand")


@simulated
async def test_a_failed_background_commit_is_not_retried_and_the_next_commit_covers_it(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a", b"b", b"c"])
    seen: Reported = []
    broker.script.once(ApiKey.OFFSET_COMMIT, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), drop)
    async with member(broker, "t") as reader:
        for _ in range(2):
            await values(reader, 1)
            reader.commit_async(callback=lambda offsets, error: seen.append((offsets, error)))
            await until(lambda: bool(seen) and seen[-1][0] == reader._subscription.positions())
        assert [type(error) for _, error in seen] == [KafkaError, KafkaConnectionError]
        assert await stored(broker) is None
        await reader.commit()
        assert await stored(broker) == (2, "")
    assert len(broker.script.asked(OffsetCommitRequest)) == 3


@simulated
async def test_commit_waits_for_background_commits(broker: Machine) -> None:
    await broker.create("t")
    seen: Reported = []
    async with member(broker, "t") as reader:
        for offset in range(1, 6):
            reader.commit_async({T0: offset}, lambda offsets, error: seen.append((offsets, error)))
        await reader.commit({T0: 6})
        assert [offsets[T0].offset for offsets, _ in seen] == [1, 2, 3, 4, 5]
        assert await stored(broker) == (6, "")


@simulated
async def test_a_callback_may_commit(broker: Machine) -> None:
    await broker.create("t")
    ended = asyncio.Event()
    async with member(broker, "t") as reader:

        async def again(offsets: dict[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
            await reader.commit({T0: 2})
            ended.set()

        reader.commit_async({T0: 1}, again)
        async with asyncio.timeout(60):
            await ended.wait()
    assert await stored(broker) == (2, "")


@simulated
async def test_a_callback_that_raises_is_logged(simulation: Simulation) -> None:
    broker = await simulation.machine()
    await broker.create("t")

    def fails(offsets: dict[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
        raise RuntimeError("no")

    async with member(broker, "t") as reader:
        reader.commit_async({T0: 1}, fails)
        await reader.commit({T0: 2})
    assert "the callback of commit_async raised" in "".join(simulation.history())


@simulated
async def test_commit_times_out_behind_a_background_commit_that_hangs(broker: Machine) -> None:
    await broker.create("t")
    async with member(broker, "t", request_timeout_ms=400, close_timeout_ms=200) as reader:
        broker.script.always(ApiKey.OFFSET_COMMIT, silence)
        reader.commit_async({T0: 1})
        with pytest.raises(KafkaTimeoutError):
            await reader.commit({T0: 2})


@simulated
async def test_invalid_background_commits(broker: Machine) -> None:
    await broker.create("t")
    async with member(broker, "t") as reader:
        wrong: Any = "callback"
        with pytest.raises(TypeError, match="give a function of offsets and error"):
            reader.commit_async({T0: 1}, wrong)
        with pytest.raises(ValueError, match="at least 0"):
            reader.commit_async({T0: -1})
    async with member(broker, group_id=None) as reader:
        reader.assign([T0])
        for call in (reader.commit_async, reader.enforce_rebalance):
            with pytest.raises(IllegalOperationError, match="group_id"):
                call()


# Lag.


@simulated
async def test_lag_by_partition(broker: Machine) -> None:
    await broker.create("t", 2)
    await broker.write("t", [b"%d" % at for at in range(10)])
    async with member(broker, "t") as reader:
        assert await reader.lag() == {T0: 10, T1: 0}
        await values(reader, 4)
        assert await reader.lag(T0) == {T0: 6}
        assert reader.metrics()["records-lag-max"] == 6


@simulated
async def test_lag_asks_the_leader_if_no_fetch_is_recent(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"] * 5)
    async with member(broker, auto_offset_reset="none") as reader:
        reader.assign([T0])
        with pytest.raises(NoOffsetForPartitionError):
            await reader.lag()
        reader.pause(T0)
        reader.seek(T0, 2)
        assert not broker.script.asked(FetchRequest)
        before = len(broker.script.asked(ListOffsetsRequest))
        assert await reader.lag() == {T0: 3}
        assert len(broker.script.asked(ListOffsetsRequest)) == before + 1


@simulated
async def test_lag_of_read_committed_ends_at_the_last_stable_offset(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"] * 5)
    async with member(broker, "t", isolation_level="read_committed") as reader:
        await values(reader, 1)
        state = reader._subscription.state(T0)
        state.last_stable_offset = 3
        state.measured_at = asyncio.get_running_loop().time() + 60
        assert await reader.lag() == {T0: 2}
        assert (reader.last_stable_offset(T0), reader.highwater(T0)) == (3, 5)
        state.measured_at = 0.0  # long ago: the leader is asked
        reader.pause(T0)
        assert await reader.lag() == {T0: 4}
    assert broker.script.asked(ListOffsetsRequest)[-1].isolation_level == 1


# Metrics.


@simulated
async def test_metrics_of_a_member(broker: Machine) -> None:
    await broker.create("t", 2)
    await broker.write("t", [b"x" * 100] * 10)
    async with member(broker, "t") as reader:
        await values(reader, 10)
        assert abs((reader.last_poll_timestamp(T0) or 0) - time.time() * 1_000) < 30_000
        await reader.commit()
        await until(lambda: int(reader.metrics()["heartbeat-total"] or 0) > 2)
        seen = reader.metrics()
        assert seen["records-consumed-total"] == 10
        assert int(seen["bytes-consumed-total"] or 0) > 1_000
        assert seen["assigned-partitions"] == 2
        assert seen["commit-total"] == 1
        assert seen["rebalance-total"] == 1
        assert seen["failed-rebalance-total"] == 0
        assert (seen["generation"], seen["member-state"], seen["group-id"]) == (1, "STABLE", "g")
        for name in (
            "records-consumed-rate",
            "bytes-consumed-rate",
            "fetch-rate",
            "fetch-latency-avg",
            "fetch-latency-max",
            "fetch-size-avg",
            "commit-latency-avg",
            "commit-latency-max",
            "rebalance-latency-last",
        ):
            assert float(seen[name] or 0) > 0, name
        for name in ("last-heartbeat-seconds-ago", "last-rebalance-seconds-ago", "last-poll-seconds-ago"):
            assert 0 <= float(seen[name] or 0) < 30, name
        assert seen["event-loop-lag"] is not None


async def test_metrics_before_anything_has_happened() -> None:
    seen = Consumer("t").metrics()
    assert seen["records-consumed-total"] == 0
    assert seen["records-lag-max"] is None
    assert seen["last-poll-seconds-ago"] is None


# The rest.


@simulated
async def test_enforce_rebalance(broker: Machine) -> None:
    await broker.create("t")
    async with member(broker, "t") as reader:
        reader.enforce_rebalance("more memory")
        await until(lambda: reader._running().gate.awaited)
        assert await reader.getmany(timeout_ms=20) == {}
        await until(lambda: reader.metrics()["rebalance-total"] == 2)
    assert broker.script.asked(JoinGroupRequest)[-1].reason == "more memory"


@simulated
async def test_seek_to_committed(broker: Machine) -> None:
    await broker.create("t", 2)
    await broker.write("t", [b"%d" % at for at in range(5)])
    async with member(broker, "t") as reader:
        assert await values(reader, 3) == [b"0", b"1", b"2"]
        await reader.commit({T0: 1})
        assert await reader.seek_to_committed() == {T0: 1, T1: 0}
        assert await values(reader, 1) == [b"1"]


@pytest.mark.usefixtures("no_complaints")
async def test_a_wakeup_is_never_lost(real: ScriptedBroker) -> None:
    """From threads, at any moment of polls that find records and of polls that wait."""
    await real.create("t")
    await real.write("t", [b"x"] * 1_000)
    async with member(real, "t", max_poll_records=1) as reader:
        for _ in range(50):
            thread = threading.Thread(target=reader.wakeup)
            thread.start()
            with pytest.raises(WakeupError):
                await poll_for_ever(reader)
            thread.join()


@simulated
async def test_automatic_commits_continue_after_a_failure(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])
    broker.script.once(ApiKey.OFFSET_COMMIT, refused(ErrorCode.REQUEST_TIMED_OUT))
    async with member(broker, "t", enable_auto_commit=True, auto_commit_interval_ms=5) as reader:
        await values(reader, 2)
        waiting = asyncio.ensure_future(reader.getmany(timeout_ms=10_000))
        await until(lambda: len(broker.script.asked(OffsetCommitRequest)) >= 2)
        assert await stored(broker) == (2, "")
        waiting.cancel()
        await asyncio.wait([waiting])


@simulated
async def test_offsets_are_named_by_topic_id(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])
    async with member(broker, "t") as reader:
        await values(reader, 2)
        await reader.commit()
        committed = await reader.committed(T0)
    assert committed is not None
    assert committed == 2
    assert broker.script.versions(ApiKey.OFFSET_COMMIT) == broker.script.versions(ApiKey.OFFSET_FETCH) == {10}


@simulated
async def test_offsets_are_named_by_topic_name_while_an_id_is_not_known(broker: Machine) -> None:
    elsewhere = TopicPartition("elsewhere", 0)
    await broker.create("elsewhere")
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])
    async with member(broker, "t") as reader:
        await values(reader, 2)
        await reader.commit({T0: 1, elsewhere: 5})
        assert await reader.committed(elsewhere) == 5
    assert await stored(broker) == (1, "")
    assert 9 in broker.script.versions(ApiKey.OFFSET_COMMIT)
    assert 9 in broker.script.versions(ApiKey.OFFSET_FETCH)


@simulated
async def test_a_topic_id_that_has_changed_is_requested_again(broker: Machine) -> None:
    """Offsets of the topic before are not committed for the new one, whose records they would skip."""
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])
    broker.script.always(ApiKey.FETCH, silence)  # which would notice it first
    async with (
        Admin(bootstrap_servers=broker.address) as admin,
        member(broker, "t", metadata_max_age_ms=3_600_000) as reader,
    ):
        assert await reader.position(T0) == 0
        await admin.delete_topics(["t"])
        await broker.create("t")
        with pytest.raises(CommitFailedError, match="topic 't' was deleted and created again"):
            await reader.commit({T0: 2})
        assert await reader.committed(T0) is None
        await reader.commit({T0: 1})
        assert await reader.committed(T0) == 1
        await admin.delete_topics(["t"])
        await broker.create("t")
        asked = len(broker.script.asked(OffsetFetchRequest))
        assert await reader.committed(T0) is None
        assert len(broker.script.asked(OffsetFetchRequest)) > asked + 1
    for key in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
        assert broker.script.versions(key) == {10}
