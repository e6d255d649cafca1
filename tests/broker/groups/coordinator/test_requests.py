"""The coordinator keeps the requests that change a group or are refused, in the order in which they came."""

from typing import Any

from barnabas_broker.groups.effects import Caller
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import HeartbeatTopicPartitions
from tests.broker.groups.coordinator.test_consumer_groups import T, beat, commit, join, owned, started
from tests.broker.groups.support import Service


def rows(service: Service, group: str = "g") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.groups.requests.of(group)["requests"]
    return found


def short(service: Service) -> list[tuple[str, str, str | None]]:
    """API, client id or member id, and answer of each request."""
    return [(row["api"], row["client_id"], row["answer"]) for row in rows(service)]


async def test_the_requests_of_a_rebalance() -> None:
    """A second member joins: the first one hears of it, and rejoins."""
    service = await Service(group_initial_rebalance_delay_ms="0").loaded()
    one, two = Caller("one", "/10.0.0.1"), Caller("two", "/10.0.0.2")
    first = await service.ask(service.join(version=3, caller=one), 3)
    await service.ask(service.sync(first.member_id, 1, {first.member_id: b"a"}), 5)
    assert service.heartbeat(first.member_id, 1) == ErrorCode.NONE
    await service.ask(service.commit(5, member_id=first.member_id, generation=1), 8)
    second = service.join(version=3, caller=two, reason="more work")
    await service.after(1.5)
    assert rows(service)[-1]["answer"] is None  # it waits for the first member
    assert service.heartbeat(first.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    await service.after(1)
    await service.ask(service.join(first.member_id, version=3, caller=one), 3)
    joined = await service.ask(second, 3)
    refused = await service.ask(service.commit(6, member_id=first.member_id, generation=1), 8)
    assert refused.topics[0].partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION
    follower = service.sync(joined.member_id, 2)
    await service.ask(service.sync(first.member_id, 2, {first.member_id: b"a", joined.member_id: b"b"}), 5)
    await service.ask(follower, 5)
    await service.ask(service.leave(joined.member_id, reason="done"), 5)
    assert short(service) == [
        ("JoinGroup", "one", "NONE"),
        ("SyncGroup", "client", "NONE"),
        ("JoinGroup", "two", "NONE"),
        ("Heartbeat", "client", "REBALANCE_IN_PROGRESS"),
        ("JoinGroup", "one", "NONE"),
        ("OffsetCommit", "client", "ILLEGAL_GENERATION"),
        ("SyncGroup", "client", "NONE"),
        ("SyncGroup", "client", "NONE"),
        ("LeaveGroup", "client", "NONE"),
    ]
    waited = rows(service)[2]
    assert (waited["waited_ms"], waited["given"], waited["reason"]) == (2_500, 2, "more work")
    assert (waited["member_id"], waited["host"]) == (joined.member_id, "/10.0.0.2")
    assert [row["generation"] for row in rows(service)][3:6] == [1, None, 1]
    assert rows(service)[-1]["reason"] == "done"
    times = [row["time"] for row in rows(service)]
    assert times == sorted(times)


async def test_the_cause_of_a_rebalance_is_a_request_at_its_time() -> None:
    service = await Service(group_initial_rebalance_delay_ms="0").loaded()
    first = await service.ask(service.join(version=3), 3)
    await service.ask(service.sync(first.member_id, 1, {first.member_id: b"a"}), 5)
    await service.after(60)
    began = service.wall
    service.join(version=3)
    (event,) = [each for each in service.groups.journal.recent("g")[-2:] if each.type == "rebalance_started"]
    assert event.time == began == rows(service)[-1]["time"]


async def test_a_member_that_must_come_again_with_its_id() -> None:
    """A new group has no request yet: a client may ask for member ids in ever new groups."""
    service = await Service(group_initial_rebalance_delay_ms="0").loaded()
    given = await service.ask(service.join(), 9)
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert rows(service) == []
    await service.ask(service.join(given.member_id), 9)
    again = await service.ask(service.join(), 9)
    assert [row["answer"] for row in rows(service)] == ["NONE", "MEMBER_ID_REQUIRED"]
    assert rows(service)[-1]["member_id"] == again.member_id


async def test_groups_that_do_not_exist_have_no_requests() -> None:
    service = await Service().loaded()
    assert service.heartbeat("m", 1, group="none") == ErrorCode.UNKNOWN_MEMBER_ID
    await service.ask(service.leave("m", group="none"), 5)
    await service.ask(service.commit(1, group="none", member_id="m", generation=1), 8)
    await service.ask(service.sync("m", 1, group="none"), 5)
    assert rows(service, "none") == []


async def test_a_group_that_another_broker_coordinates_is_forgotten() -> None:
    service = await Service(group_initial_rebalance_delay_ms="0").loaded()
    first = await service.ask(service.join(version=3), 3)
    waiting = service.join(version=3)
    assert len(rows(service)) == 2
    service.groups.unload(0)
    assert (await service.ask(waiting, 3)).error_code == ErrorCode.NOT_COORDINATOR
    assert rows(service) == []
    await service.groups.load(0, 2)
    assert service.heartbeat(first.member_id, 1) in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


async def test_some_partitions_of_a_commit_are_refused() -> None:
    service = await Service().loaded()
    service.groups.topics_changed({"t": 1})
    await service.ask(service.commit(1), 8)
    refused = await service.ask(service.commit(1, partition=1), 8)
    assert refused.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await service.ask(service.commit(1, metadata="x" * 5_000), 8)
    assert [row["answer"] for row in rows(service)] == ["UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_METADATA_TOO_LARGE"]


async def test_a_commit_with_an_older_epoch_to_an_unknown_topic_is_refused() -> None:
    service = await started(group_consumer_assignment_interval_ms="0")
    await join(service, "a")
    await join(service, "b")
    kept = owned(await beat(service, "a", 2))
    await beat(service, "a", 2, topic_partitions=[HeartbeatTopicPartitions(topic_id=T, partitions=kept)])
    assert await commit(service, "a", 2, name="unknown") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4
    assert rows(service)[-1]["answer"] == "UNKNOWN_TOPIC_OR_PARTITION"


async def test_a_commit_that_cannot_be_appended_is_refused() -> None:
    service = await Service().loaded()
    await service.ask(service.commit(1), 8)
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    await service.ask(service.commit(2), 8)
    assert [row["answer"] for row in rows(service)] == ["COORDINATOR_NOT_AVAILABLE"]


async def test_a_transactional_commit_that_is_refused() -> None:
    service = await Service().loaded()
    service.groups.topics_changed({"t": 1})
    await service.ask(service.commit(1), 8)
    assert await service.committed_in_transaction(2) == ErrorCode.NONE
    assert rows(service) == []
    assert await service.committed_in_transaction(2, member_id="m", generation=7) != ErrorCode.NONE
    service.verification = ErrorCode.INVALID_TXN_STATE
    assert await service.committed_in_transaction(2, producer_id=8) != ErrorCode.NONE
    assert [row["api"] for row in rows(service)] == ["TxnOffsetCommit"] * 2
    assert [row["generation"] for row in rows(service)] == [7, None]
    assert rows(service)[0]["answer"] in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")


async def test_heartbeats_of_the_consumer_protocol() -> None:
    service = await started()
    epoch = (await join(service, "a")).member_epoch
    assert (await beat(service, "a", epoch)).error_code == ErrorCode.NONE
    later = (await join(service, "b")).member_epoch
    before = len(rows(service))
    await beat(service, "b", later)
    assert len(rows(service)) == before
    assert (await beat(service, "b", 9)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert await commit(service, "b", 9) != [0] * 4
    await beat(service, "b", -1)
    found = [(row["api"], row["member_id"], row["answer"], row["given"]) for row in rows(service)]
    assert found[0] == ("ConsumerGroupHeartbeat", "a", "NONE", epoch)
    assert found[-3:] == [
        ("ConsumerGroupHeartbeat", "b", "FENCED_MEMBER_EPOCH", None),
        ("OffsetCommit", "b", "STALE_MEMBER_EPOCH", None),
        ("ConsumerGroupHeartbeat", "b", "NONE", -1),
    ]
