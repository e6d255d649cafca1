"""Groups of the consumer protocol in the coordinator: records, replay, offsets, changes of the protocol."""

import asyncio
import gc
from typing import Any

import pytest

from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.effects import Caller, Persist
from barnabas_broker.steps import finish
from barnabas_explain.catalog import EpochBumped, JoinRefused, MemberLeft, RegexRefused, TopicChanged, TopicDeleted
from barnabas_explain.members import Position
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.group_records import key_type
from barnabas_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from barnabas_protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker.groups.support import CALLER, Service, turn

T = b"t" * 16
ORDERS = b"o" * 16


async def started(*, compiling: bool = False, matching: bool = False, **keys: str) -> Service:
    service = await Service(None, compiling=compiling, matching=matching, **keys).loaded()
    service.groups.topics_changed({"t": 4}, [Topic(T, "t", 4)])
    return service


async def beat(
    service: Service, member_id: str, epoch: int, version: int = 1, caller: Caller = CALLER, **fields: Any
) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        **{"group_id": "g", "member_id": member_id, "member_epoch": epoch, **fields}
    )
    return await service.ask(service.groups.consumer_heartbeat(request, version, caller), version)


async def join(service: Service, member_id: str, **fields: Any) -> Any:
    full: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    return await beat(service, member_id, 0, **{**full, **fields})


def owned(response: Any) -> list[int]:
    return [number for topic in response.assignment.topic_partitions for number in topic.partitions]


async def commit(service: Service, member_id: str, epoch: int, version: int = 9, **topic: Any) -> list[int]:
    named = {"topic_id": T} if version >= 10 else {"name": "t"}
    topics = [
        OffsetCommitRequestTopic(
            **{**named, **topic},
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata=None)
                for index in range(4)
            ],
        )
    ]
    request = OffsetCommitRequest(group_id="g", member_id=member_id, generation_id_or_member_epoch=epoch, topics=topics)
    response = await service.ask(finish(service.groups.offsets.commit(request, version, CALLER)), version)
    return [each.error_code for each in response.topics[0].partitions]


async def fetch(service: Service, member_id: str | None, epoch: int, version: int = 9, **topic: Any) -> Any:
    named = {"topic_id": T} if version >= 10 else {"name": "t"}
    group = OffsetFetchRequestGroup(
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        topics=[OffsetFetchRequestTopics(**{**named, **topic}, partition_indexes=[0])],
    )
    request = OffsetFetchRequest(groups=[group])
    response = await service.ask(finish(service.groups.offsets.fetch(request, version, CALLER)), version)
    return response.groups[0]


async def described(service: Service) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    response = await service.ask(finish(service.groups.consumer_describe(request, 1, CALLER)), 1)
    return response.groups[0]


async def test_two_members_share_a_topic_and_survive_a_restart() -> None:
    service = await started(group_consumer_assignment_interval_ms="0")
    assert owned(await join(service, "a")) == [0, 1, 2, 3]
    assert owned(await join(service, "b")) == []
    kept = owned(await beat(service, "a", 2))
    report = [HeartbeatTopicPartitions(topic_id=T, partitions=kept)]
    assert (await beat(service, "a", 2, topic_partitions=report)).member_epoch == 3
    given = owned(await beat(service, "b", 3))
    assert sorted(kept + given) == [0, 1, 2, 3]
    again = Service(service.log, group_consumer_assignment_interval_ms="0")
    again.groups.topics_changed({"t": 4}, [Topic(T, "t", 4)])
    await again.loaded()
    steady = await beat(again, "a", 3)
    assert (steady.error_code, steady.member_epoch, steady.assignment) == (ErrorCode.NONE, 3, None)
    group = await described(again)
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        3,
        3,
        "uniform",
    )
    assert {each.member_id: each.assignment.topic_partitions[0].partitions for each in group.members} == {
        "a": kept,
        "b": given,
    }
    assert [each.member_type for each in group.members] == [1, 1]


async def test_requests_that_are_refused_create_no_group() -> None:
    service = await started()
    assert (await beat(service, "a", 1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await beat(service, "a", -1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await join(service, "")).error_code == ErrorCode.INVALID_REQUEST
    assert (await join(service, "a", group_id="g" * 40_000)).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await join(service, "a", server_assignor="?")).error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert (await join(service, "a", subscribed_topic_names=["x" * 200] * 2000)).error_code == (
        ErrorCode.UNKNOWN_SERVER_ERROR
    )
    assert service.groups.groups == {} and service.log.records() == []


async def test_an_assignor_that_the_broker_does_not_have_is_reported_once_in_a_while() -> None:
    service = await started()
    for _ in range(3):
        await join(service, "a", server_assignor="sticky")
    (refused,) = service.events_of(JoinRefused)
    assert (refused.error, refused.offered) == ("UNSUPPORTED_ASSIGNOR", ("sticky",))
    assert (refused.supported, refused.member.client_id) == (("uniform", "range"), "client")
    await join(service, "a")
    await service.after(60)
    await beat(service, "a", 1, server_assignor="sticky" * 100)
    (_, of_member) = service.events_of(JoinRefused)
    assert (len(of_member.offered[0]), of_member.generation) == (255, 3)


async def test_an_empty_classic_group_becomes_a_consumer_group_and_back() -> None:
    service = await started()
    await service.ask(service.commit(5), 8)
    assert owned(await join(service, "a")) == [0, 1, 2, 3]
    assert (await fetch(service, "a", 2)).topics[0].partitions[0].committed_offset == 5
    await beat(service, "a", -1)
    member = await service.ask(service.join(), 9)
    assert member.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (await join(service, "b")).error_code == ErrorCode.NONE
    tombstones = [key_type(record.key) for record in service.log.records() if record.value is None]
    assert tombstones.count(3) == 1


def type_of(service: Service) -> str:
    """The type of the only group."""
    (group,) = service.list_groups().groups
    return str(group.group_type)


async def emptied() -> Service:
    """A coordinator with an empty consumer group, whose log holds the results of appends."""
    service = await started()
    await join(service, "a")
    await beat(service, "a", -1)
    service.log.hold = True
    return service


async def test_an_empty_group_stays_until_its_tombstones_are_in_the_log() -> None:
    service = await emptied()
    joining, later = service.join(), service.join()
    await service.after(4.75)
    assert not later.done()  # What would change the group waits for the log.
    await service.after(0.5)
    for each in (joining, later, service.join()):
        assert (await service.ask(each, 9)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert type_of(service) == "consumer"
    service.log.hold = False
    service.log.release()
    assert "g" not in service.groups.groups
    assert (await service.ask(service.join(), 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert type_of(service) == "classic"


async def test_requests_to_a_group_that_is_deleted_wait_no_longer_than_an_append() -> None:
    service = await emptied()
    service.join()
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="b",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    heartbeat = service.groups.consumer_heartbeat(request, 1, CALLER)
    waiting = [service.sync("a", 1), service.leave("a"), heartbeat]
    await service.after(5.25)
    codes = [(await service.ask(each, version)).error_code for each, version in zip(waiting, (5, 5, 1), strict=True)]
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS])
async def test_an_empty_group_is_deleted_while_another_takes_its_place(error: ErrorCode) -> None:
    service = await emptied()
    deleting = service.delete("g")
    await turn()
    service.log.fail = error
    joining = service.join()
    await turn()
    service.log.hold, service.log.fail = False, ErrorCode.NONE
    service.log.release()
    assert (await service.ask(deleting, 2)).results[0].error_code == ErrorCode.NONE
    expected = ErrorCode.COORDINATOR_NOT_AVAILABLE if error else ErrorCode.MEMBER_ID_REQUIRED
    assert (await service.ask(joining, 9)).error_code == expected
    assert ("g" in service.groups.groups) is (error == ErrorCode.NONE)


async def test_an_empty_group_moves_to_another_broker_while_another_takes_its_place() -> None:
    service = await emptied()
    joining = service.join()
    await turn()
    service.groups.unload(0)
    assert (await service.ask(joining, 9)).error_code == ErrorCode.NOT_COORDINATOR
    service.log.release()
    assert "g" not in service.groups.groups


async def test_a_target_of_an_empty_group_is_not_appended_after_its_tombstones() -> None:
    service = await started()
    service.groups.topics_changed({"t": 400}, [Topic(T, "t", 400)])
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    joining = service.groups.consumer_heartbeat(request, 1, CALLER)
    await turn()
    await beat(service, "a", -1)
    service.log.hold = True
    other = service.join()
    await turn()
    count = len(service.log.records())
    for compute in service.offloaded:
        compute()
    await turn()
    assert len(service.log.records()) == count
    service.log.hold = False
    service.log.release()
    assert (await service.ask(other, 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (await service.ask(joining, 1)).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_group_is_deleted() -> None:
    service = await started()
    await join(service, "a")
    await commit(service, "a", 2)

    async def delete() -> int:
        request = DeleteGroupsRequest(groups_names=["g"])
        response = await service.ask(finish(service.groups.delete_groups(request, 2, CALLER)), 2)
        error: int = response.results[0].error_code
        return error

    assert await delete() == ErrorCode.NON_EMPTY_GROUP
    await beat(service, "a", -1)
    assert await delete() == ErrorCode.NONE
    assert service.groups.groups == {}
    again = await Service(service.log).loaded()
    assert again.groups.groups == {}


async def test_a_large_group_is_assigned_elsewhere_and_recorded_in_steps() -> None:
    service = await started(group_consumer_assignment_interval_ms="0")
    service.groups.topics_changed({"t": 900}, [Topic(T, "t", 900)])
    waiting = service.groups.consumer_heartbeat(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="a",
            member_epoch=0,
            rebalance_timeout_ms=1,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        1,
        CALLER,
    )
    assert isinstance(waiting, asyncio.Future) and not waiting.done()
    service.offloaded.pop()()
    assert len(owned(await service.ask(waiting, 1))) == 900


async def test_unloading_ends_what_waits() -> None:
    service = await started()
    service.log.hold = True
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    waiting = service.groups.consumer_heartbeat(request, 1, CALLER)
    service.groups.unload(0)
    assert (await service.ask(waiting, 1)).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_regex_is_resolved_and_survives_a_restart() -> None:
    service = await started()
    service.groups.topics_changed({"t": 4, "orders": 2}, [Topic(T, "t", 4), Topic(ORDERS, "orders", 2)])
    joined = await join(service, "a", subscribed_topic_names=[], subscribed_topic_regex="o.*")
    assert (joined.member_epoch, owned(joined)) == (1, [])
    await service.after(2)
    given = await beat(service, "a", 1)
    assert (given.member_epoch, [each.topic_id for each in given.assignment.topic_partitions]) == (2, [ORDERS])
    assert (await described(service)).members[0].subscribed_topic_regex == "o.*"
    assert [record for record in service.log.records() if key_type(record.key) == 16] != []
    again = Service(service.log)
    again.groups.topics_changed({"t": 4, "orders": 2}, [Topic(T, "t", 4), Topic(ORDERS, "orders", 2)])
    await again.loaded()
    steady = await beat(again, "a", 2)
    assert (steady.error_code, steady.member_epoch, steady.assignment) == (ErrorCode.NONE, 2, None)
    group = again.groups.groups["g"].group
    assert isinstance(group, ConsumerGroup) and group.subscriptions.resolved["o.*"].topics == {"orders"}
    await service.after(12)
    topics = [Topic(T, "t", 4), Topic(ORDERS, "orders", 2), Topic(b"p" * 16, "offers", 1)]
    service.groups.topics_changed({each.name: each.partitions for each in topics}, topics)
    await beat(service, "a", 2)
    await turn()  # The group hashes its topics in a step of its own.
    grown = await beat(service, "a", 2)
    assert [each.topic_id for each in grown.assignment.topic_partitions] == [ORDERS, b"p" * 16]


async def test_a_regex_finds_only_topics_that_the_member_may_describe() -> None:
    service = await started()
    topics = [Topic(T, "t", 4), Topic(ORDERS, "orders", 2), Topic(b"p" * 16, "offers", 1)]
    service.groups.topics_changed({each.name: each.partitions for each in topics}, topics)
    caller = Caller("client", "/127.0.0.1", lambda topic: topic != "offers")
    await join(service, "a", caller=caller, subscribed_topic_names=[], subscribed_topic_regex="o.*")
    await service.after(2)
    given = await beat(service, "a", 1, caller=caller)
    assert [each.topic_id for each in given.assignment.topic_partitions] == [ORDERS]
    # What was found is remembered for other groups, whose members may describe more.
    await join(service, "b", group_id="h", subscribed_topic_names=[], subscribed_topic_regex="o.*")
    group = service.groups.groups["h"].group
    assert isinstance(group, ConsumerGroup) and group.subscriptions.resolved["o.*"].topics == {"orders", "offers"}


async def test_a_regex_that_is_invalid_is_refused_and_changes_nothing() -> None:
    service = await started()
    refused = await join(service, "a", subscribed_topic_names=[], subscribed_topic_regex="(")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.error_message == ("SubscribedTopicRegex `(` is not a valid regular expression: missing closing ).")
    assert service.groups.groups == {} and service.log.records() == []
    (reported,) = service.events_of(RegexRefused)
    assert (reported.problem, reported.member.client_id) == (refused.error_message, "client")
    await join(service, "a")
    before = len(service.log.records())
    refused = await beat(service, "a", 2, subscribed_topic_regex="a" * 11_000)
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(service.log.records()) == before
    assert (await beat(service, "a", 2)).error_code == ErrorCode.NONE
    assert (await beat(service, "b", 1, subscribed_topic_regex="(")).error_code != ErrorCode.NONE


async def test_a_member_leaves_whatever_its_regex_is() -> None:
    service = await started()
    await join(service, "a")
    assert (await beat(service, "a", -1, subscribed_topic_regex="(")).error_code == ErrorCode.NONE


async def test_a_regex_is_checked_outside_the_loop_while_the_partition_moves_away() -> None:
    service = await started(compiling=True)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=[],
        subscribed_topic_regex="t.*",
        topic_partitions=[],
    )
    waiting = service.groups.consumer_heartbeat(request, 1, CALLER)
    assert isinstance(waiting, asyncio.Future) and not waiting.done()
    service.groups.unload(0)
    service.offloaded.pop()()
    assert (await service.ask(waiting, 1)).error_code == ErrorCode.NOT_COORDINATOR
    assert service.groups.groups == {}


async def test_matches_that_come_after_the_group_is_gone_are_ignored() -> None:
    service = await started(matching=True)
    joined = await join(service, "a", subscribed_topic_names=[], subscribed_topic_regex="t.*")
    assert joined.member_epoch == 1
    before = len(service.log.records())
    service.groups.unload(0)
    service.offloaded.pop()()
    assert len(service.log.records()) == before and service.groups.groups == {}


async def test_many_topics_are_hashed_in_steps() -> None:
    service = await started()
    topics = [Topic(number.to_bytes(16, "big"), f"t{number}", 1) for number in range(1_000)]
    service.groups.topics_deleted(["t"])
    service.groups.topics_changed({each.name: 1 for each in topics}, topics)
    await join(service, "a", subscribed_topic_names=[], subscribed_topic_regex="t.*")
    group = service.groups.groups["g"].group
    assert isinstance(group, ConsumerGroup) and group.subscriptions.resolved == {}
    await service.after(2)
    assert len(group.subscriptions.resolved["t.*"].topics) == 1_000 and group.epoch == 2


async def test_the_configuration_of_a_group_applies_before_and_after_it_exists() -> None:
    service = await started()
    service.groups.group_configured("g", {"consumer.heartbeat.interval.ms": "6000"})
    assert (await join(service, "a")).heartbeat_interval_ms == 6000
    service.groups.group_configured("g", {"consumer.heartbeat.interval.ms": "7000"})
    assert (await beat(service, "a", 2)).heartbeat_interval_ms == 7000
    service.groups.group_configured("g", {"consumer.heartbeat.interval.ms": "1"})
    assert (await beat(service, "a", 2)).heartbeat_interval_ms == 5000, "the broker's bound"
    service.groups.group_configured("g", {"of.a.later.version": "1"})
    assert (await beat(service, "a", 2)).heartbeat_interval_ms == 5000
    service.groups.group_configured("g", {})
    assert (await beat(service, "a", 2)).heartbeat_interval_ms == 5000


async def test_a_longer_session_of_a_group() -> None:
    service = await started()
    await join(service, "a")
    service.groups.group_configured("g", {"consumer.session.timeout.ms": "60000"})
    await service.after(50)
    assert (await beat(service, "a", 2)).error_code == ErrorCode.NONE
    service.groups.group_configured("g", {})
    await service.after(46)
    assert (await beat(service, "a", 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_append_leaves_nothing_to_the_collector() -> None:
    """A full collection of what thousands of members left took more than half a second."""
    service = await started()
    gc.collect()
    gc.disable()
    try:
        for member in ("a", "b", "c"):
            assert (await join(service, member)).error_code == ErrorCode.NONE
        assert not [each for each in gc.get_objects() if isinstance(each, Persist)]
    finally:
        gc.enable()


async def test_topics_of_a_group_that_grow_or_are_deleted_are_events_before_the_epoch_that_they_cause() -> None:
    service = await started()
    joined = await join(service, "m")
    service.published.clear()
    service.groups.topics_changed({"t": 6, "unrelated": 1}, [Topic(T, "t", 6)])
    grown = await beat(service, "m", joined.member_epoch)
    service.groups.topics_deleted(["t", "unrelated"])
    await beat(service, "m", grown.member_epoch)
    about = [event for _, event in service.published if isinstance(event, TopicChanged | TopicDeleted | EpochBumped)]
    assert [event.type for event in about] == [
        "topic_changed",
        "group_epoch_bumped",
        "topic_deleted",
        "group_epoch_bumped",
    ]
    assert [event.topic for event in about if not isinstance(event, EpochBumped)] == ["t", "t"]


async def test_the_last_event_of_a_member_has_the_offsets_of_its_partitions() -> None:
    service = await started()
    joined = await join(service, "m")
    assert set(await commit(service, "m", joined.member_epoch)) == {ErrorCode.NONE}
    await beat(service, "m", -1)
    (left,) = service.events_of(MemberLeft)
    assert left.positions == tuple(Position("t", number, 7) for number in range(4))
    assert left.committed_sum == 28
