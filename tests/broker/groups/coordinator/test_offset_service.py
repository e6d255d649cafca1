"""OffsetCommit, OffsetFetch, OffsetDelete and the expiry of offsets."""

import gc
import tracemalloc

import pytest

from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.sightings import ClientAddress
from barnabas_broker.steps import finish
from barnabas_explain.catalog import GroupDeleted, OffsetsAltered, OffsetsExpired, TopicDeleted
from barnabas_explain.members import OffsetChange
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.group_records import Committed
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.groups.support import CALLER, Service, turn


async def test_commits_of_one_iteration_are_one_append(service: Service) -> None:
    before = service.log.appends
    pending = [service.commit(offset, partition=offset) for offset in range(1000)]
    answers = [await service.ask(each, 8) for each in pending]
    assert all(each.topics[0].partitions[0].error_code == ErrorCode.NONE for each in answers)
    assert service.log.appends == before + 1
    assert service.committed(partition=999) == 999


async def test_a_group_that_only_has_an_offset_takes_little_memory(service: Service) -> None:
    many = 1000
    await service.ask(service.commit(1, group="first"), 8)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(many):
            service.commit(5, group=f"group-{number}")
        await turn()
        await turn()
        gc.collect()
        assert len(service.groups.groups) == many + 1
        assert tracemalloc.get_traced_memory()[0] / many < 2000  # 2,650 with a deque and a set that are empty
    finally:
        tracemalloc.stop()


async def test_a_commit_is_effective_and_answered_when_it_is_in_the_log(service: Service) -> None:
    service.log.hold = True
    committing = service.commit(5)
    await turn()
    await turn()
    assert not committing.done()
    assert service.committed() == -1
    service.log.release()
    assert service.committed() == 5
    assert (await service.ask(committing, 8)).topics[0].partitions[0].error_code == ErrorCode.NONE


async def test_commits_that_are_appended_together_are_answered_together_newest_first(service: Service) -> None:
    answered: list[int] = []
    for offset in range(5):
        service.commit(offset).add_done_callback(lambda _, offset=offset: answered.append(offset))
    for _ in range(3):
        assert answered == []
        await turn()
    assert answered == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
async def test_the_error_of_a_commit_that_cannot_be_appended(
    service: Service, error: ErrorCode, expected: ErrorCode
) -> None:
    service.log.fail = error
    answer = await service.ask(service.commit(5), 8)
    assert answer.topics[0].partitions[0].error_code == expected
    service.log.fail = ErrorCode.NONE
    assert service.committed() == -1
    if error != ErrorCode.REQUEST_TIMED_OUT:
        assert service.list_groups().groups == [], "it was to exist for that commit"


async def test_a_commit_that_times_out_is_effective_if_it_is_appended_later(service: Service) -> None:
    service.log.hold = True
    committing = service.commit(5)
    await service.after(5.5)
    assert (await service.ask(committing, 8)).topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert service.committed() == -1
    service.log.release()
    assert service.committed() == 5


async def test_the_metadata_of_a_commit_is_limited(service: Service) -> None:
    answer = await service.ask(service.commit(5, metadata="x" * 4096), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    for text in ("x" * 4097, "😀" * 2049):
        answer = await service.ask(service.commit(6, metadata=text), 8)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert service.committed() == 5


async def test_a_commit_larger_than_a_batch_is_refused_whole(service: Service) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=6, committed_metadata="x" * 4096)
        for index in range(300)
    ]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
    answer = await service.ask(finish(service.groups.offsets.commit(request, 8, CALLER)), 8)
    codes = {each.error_code for each in answer.topics[0].partitions}
    assert (len(answer.topics[0].partitions), codes) == (300, {ErrorCode.INVALID_COMMIT_OFFSET_SIZE})
    assert service.committed() == -1


async def test_offset_fetch_in_every_version(service: Service) -> None:
    await service.ask(service.commit(7, epoch=3, metadata="text"), 8)
    for version in range(1, 8):
        answer = await service.ask(service.fetch(version=version), version)
        found = answer.topics[0].partitions[0]
        assert (found.committed_offset, found.metadata, found.error_code) == (7, "text", ErrorCode.NONE)
        assert found.committed_leader_epoch == (3 if version >= 5 else -1)
    for version in (8, 9):
        answer = await service.ask(service.fetch(groups=("g", "absent"), version=version), version)
        assert [each.group_id for each in answer.groups] == ["g", "absent"]
        assert [each.topics[0].partitions[0].committed_offset for each in answer.groups] == [7, -1]
        assert [each.error_code for each in answer.groups] == [ErrorCode.NONE, ErrorCode.NONE]
    everything = await service.ask(service.fetch(None, groups=("g", "absent")), 8)
    assert [[topic.name for topic in each.topics] for each in everything.groups] == [["t"], []]


async def test_a_stable_offset_fetch_waits_for_commits_that_are_being_appended(service: Service) -> None:
    await service.ask(service.commit(1), 8)
    service.log.hold = True
    service.commit(2)
    fetching = service.fetch(stable=True)
    assert service.committed() == 1
    await turn()
    await turn()
    assert not fetching.done()
    service.log.release()
    answer = await service.ask(fetching, 8)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 2


async def test_kip_447_offsets_of_an_open_transaction_are_unstable_to_a_stable_offset_fetch(service: Service) -> None:
    await service.ask(service.commit(5), 8)
    offsets = service.groups.groups["g"].offsets
    offsets.apply("t", 0, Committed(7, -1, "", 0), -1, 9)
    for version in (7, 9):
        response = await service.ask(service.fetch(stable=True, version=version), version)
        found = (response.topics if version < 8 else response.groups[0].topics)[0].partitions[0]
        assert (found.error_code, found.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert service.committed() == 5, "the last stable offset, for clients that do not ask for stable offsets"
    offsets.end_transaction(9, commit=False)
    response = await service.ask(service.fetch(stable=True), 8)
    assert response.groups[0].topics[0].partitions[0].committed_offset == 5


async def test_offsets_that_a_client_sets_or_deletes_that_is_not_a_member_are_an_event(service: Service) -> None:
    member_id = await service.member()
    await service.ask(service.commit(500, member_id=member_id, generation=1), 8)
    await service.ask(service.leave(member_id), 5)
    assert service.events_of(OffsetsAltered) == []
    connection = service.groups.connected(ClientAddress("admin", "/10.0.0.7"), "")
    admin = Caller("admin", "/10.0.0.7", principal="User:alice", connection=connection)
    await service.ask(service.commit(0, caller=admin), 8)
    await service.ask(service.delete_offsets("t"), 0)
    reset, deleted = service.events_of(OffsetsAltered)
    assert (reset.client_id, reset.host, reset.principal) == ("admin", "/10.0.0.7", "User:alice")
    assert (reset.offsets, reset.changes) == (1, (OffsetChange("t", 0, 500, 0),))
    assert (deleted.client_id, deleted.changes) == ("client", (OffsetChange("t", 0, 0, None),))


async def test_a_client_that_commits_in_transactions_to_a_group_without_members_is_reported_once(
    service: Service,
) -> None:
    caller = Caller("producer", "/h", connection=service.groups.connected(ClientAddress("producer", "/h"), ""))
    for offset in (5, 10, 20):
        assert await service.committed_in_transaction(offset, group="old", caller=caller) == ErrorCode.NONE
        service.end_transaction(commit=True)
    (altered,) = service.events_of(OffsetsAltered)
    assert (altered.transactional_id, altered.commits_on, altered.client_id) == ("x", True, "producer")
    assert altered.changes == (OffsetChange("t", 0, 5, 10),)
    await service.member()
    for offset in (5, 10, 20):
        assert await service.committed_in_transaction(offset, caller=caller) == ErrorCode.NONE
    assert service.events_of(OffsetsAltered) == [altered], "older clients do not say which member commits"


async def test_a_consumer_without_a_subscription_is_reported_with_its_second_commit_and_when_it_goes_back(
    service: Service,
) -> None:
    connection = service.groups.connected(ClientAddress("client", "/h"), "")
    for offset in (5, 10, 20, 7, 8):
        await service.ask(service.commit(offset, caller=Caller("client", "/h", connection=connection)), 8)
    second, back = service.events_of(OffsetsAltered)
    assert (second.changes, second.times, second.commits_on) == ((OffsetChange("t", 0, 5, 10),), 2, True)
    assert (back.changes, back.times, back.backs) == ((OffsetChange("t", 0, 20, 7),), 2, 1)
    again = service.groups.connected(ClientAddress("client", "/h"), "")
    for offset in (9, 10, 11):
        await service.ask(service.commit(offset, caller=Caller("client", "/h", connection=again)), 8)
    first, second = service.events_of(OffsetsAltered)[2:]
    assert (first.changes, first.times, first.commits_on) == ((OffsetChange("t", 0, 8, 9),), None, None)
    assert (second.changes, second.commits_on) == ((OffsetChange("t", 0, 9, 10),), True)


async def test_commits_that_go_back_all_the_time_are_counted(service: Service) -> None:
    """Two programs read the same partitions with assign(), and commit in turn."""
    callers = [
        Caller(name, "/h", connection=service.groups.connected(ClientAddress(name, "/h"), "")) for name in ("a", "b")
    ]
    for at in range(100):
        for offset, caller in zip((100 + at, at), callers, strict=True):
            await service.ask(service.commit(offset, caller=caller), 8)
        await service.after(1)
    by_b = [event for event in service.events_of(OffsetsAltered) if event.client_id == "b"]
    assert len(by_b) <= 8
    counted = sum(event.times or 1 for event in by_b)
    assert 60 < counted <= 100, "the last ones are not reported yet"
    assert all(event.times == event.backs for event in by_b)
    assert by_b[-1].turns == by_b[-1].times == by_b[-1].backs
    assert by_b[-1].other_client_id == "a"
    await service.after(1_000)
    for offset in (5, 200, 5):
        await service.ask(service.commit(offset, caller=callers[1]), 8)
    assert len([event for event in service.events_of(OffsetsAltered) if event.client_id == "b"]) == len(by_b) + 2


async def test_an_offset_that_is_set_back_names_the_client_without_membership_that_had_committed_it(
    service: Service,
) -> None:
    async def commit(client_id: str, offset: int) -> None:
        await service.ask(service.commit(offset, caller=Caller(client_id, "/h")), 8)

    for client_id, offset in (("a", 5), ("a", 9), ("b", 2), ("b", 1)):
        await commit(client_id, offset)
    others = [event.other_client_id for event in service.events_of(OffsetsAltered)]
    assert others == [None, "a", None]


async def test_deleting_a_topic_deletes_its_offsets(service: Service) -> None:
    for topic in ("t", "u"):
        await service.ask(service.commit(1, topic=topic), 8)
    service.groups.topics_deleted(["t"])
    await turn()
    assert (service.committed("t"), service.committed("u")) == (-1, 1)
    assert [(event.topic, event.offsets) for event in service.events_of(TopicDeleted)] == [("t", 1)]


async def test_offsets_of_a_deleted_topic_are_deleted_a_step_at_a_time(service: Service) -> None:
    groups = [f"g-{number}" for number in range(450)]
    for group in groups:
        await service.ask(service.commit(1, group=group), 8)
    service.groups.topics_deleted(["t"])
    assert len(service.events_of(TopicDeleted)) == 199
    # The topic is created again, and a group that is still to come commits.
    await service.ask(service.commit(2, group=groups[-1]), 8)
    for _ in range(3):
        await turn()
    assert len(service.events_of(TopicDeleted)) == 449
    left = {name: hosted.offsets.find("t", 0) for name, hosted in service.groups.groups.items()}
    assert [(name, offset.offset) for name, offset in left.items() if offset is not None] == [(groups[-1], 2)]


async def test_offsets_expire_and_the_group_with_them() -> None:
    service = await Service(offsets_retention_minutes="1").loaded()
    await service.ask(service.commit(1), 8)
    service.time += 700
    service.wall += 700_000
    service.groups.tick()
    await turn()
    await turn()
    assert service.committed() == -1
    assert service.list_groups().groups == []
    assert {type(event) for _, event in service.published} == {OffsetsExpired, GroupDeleted}
    assert (await Service(service.log).loaded()).list_groups().groups == []


async def test_offset_commit_4_may_set_the_retention(service: Service) -> None:
    await service.ask(service.commit(1, version=4, retention=600_000), 4)
    await service.ask(service.commit(2, version=4, partition=1, retention=-1), 4)
    service.time += 700
    service.wall += 700_000
    service.groups.tick()
    await turn()
    assert (service.committed(), service.committed(partition=1)) == (-1, 2)
    assert (await Service(service.log).loaded()).committed(partition=1) == 2


async def test_however_many_groups_have_expired_one_check_deletes_them(service: Service) -> None:
    for number in range(1000):
        service.commit(5, group=f"group-{number}")
    await turn()
    await expired(service)
    assert len(service.groups.groups) == 1000, "nothing has expired yet"
    service.time += 8 * 24 * 3600
    service.wall += 8 * 24 * 3_600_000
    await expired(service)
    assert service.groups.groups == {}


async def expired(service: Service) -> None:
    """The offsets are checked, in steps of 200 groups."""
    service.time += 700
    service.wall += 700_000
    service.groups.tick()
    for _ in range(20):
        await turn()


async def test_a_commit_that_is_being_appended_spares_its_group_and_no_other() -> None:
    service = await Service(offsets_retention_minutes="1").loaded()
    for group in ("before", "during", "other"):
        await service.ask(service.commit(1, group=group), 8)
    service.log.hold = True
    service.time += 700
    service.wall += 700_000
    service.commit(2, group="before")
    await turn()
    service.groups.tick()
    service.commit(2, group="during")
    await turn()
    assert set(service.groups.groups) == {"before", "during", "other"}
    service.log.hold = False
    service.log.release()
    await turn()
    await turn()
    assert set(service.groups.groups) == {"before", "during"}
    assert (service.committed(group="before"), service.committed(group="during")) == (2, 2)
    restarted = await Service(service.log).loaded()
    assert (restarted.committed(group="before"), restarted.committed(group="during")) == (2, 2)
    assert set(restarted.groups.groups) == {"before", "during"}
