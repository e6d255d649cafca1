"""The coordinator's shell: which groups it has, shapes by version, appends in batches, inspection."""

import asyncio

import pytest

from barnabas_broker.groups.classic.members import MAX_PENDING
from barnabas_broker.groups.coordinator.hosting import MAX_UNUSED_GROUPS
from barnabas_broker.groups.effects import EventType
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import java_string_hash
from tests.broker.groups.support import Service, assignment, turn


@pytest.fixture
async def service() -> Service:
    return await Service().loaded()


@pytest.mark.parametrize("session", [5_999, 1_800_001, 0, -1])
async def test_rule_12_session_timeouts_out_of_bounds(service: Service, session: int) -> None:
    answer = service.join("member", session=session)
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert answer.member_id == "member"
    for session in (6_000, 1_800_000):
        assert service.join(session=session).error_code == ErrorCode.MEMBER_ID_REQUIRED


async def test_rule_27_below_version_3_the_error_is_the_answers_own(service: Service) -> None:
    member_id = await service.member()
    for version in range(6):
        answer = await service.ask(service.leave("stranger", version=version), version)
        if version < 3:
            assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        else:
            assert answer.error_code == ErrorCode.NONE
            assert [each.error_code for each in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert (await service.ask(service.leave(member_id, version=1), 1)).error_code == ErrorCode.NONE


async def test_rule_29_the_protocol_name_of_an_error_is_empty_below_version_7_and_null_from_there(
    service: Service,
) -> None:
    for version in range(10):
        answer = await service.ask(service.join("unknown", version=version), version)
        assert answer.protocol_name == ("" if version < 7 else None)


async def test_rule_30_while_loading() -> None:
    service = Service()
    loading = asyncio.ensure_future(service.groups.load(0, 1))
    await turn()
    service.log.ends[0] = 1
    service = Service(service.log)
    loading.cancel()
    loading = asyncio.ensure_future(service.groups.load(0, 1))
    await turn()
    assert service.heartbeat("member", 1) == ErrorCode.NONE
    assert service.sync("member", 1).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert service.join("member").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert service.leave("member").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert service.commit(1).topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for version in range(1, 10):
        answer = await service.ask(service.fetch(version=version), version)
        if version >= 8:
            assert answer.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        elif version >= 2:
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        else:
            assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert service.describe().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert service.list_groups().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert service.delete("g").results[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert service.delete_offsets("t").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await loading
    assert service.join().error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [("test-group", 12), ("my-group", 12), ("polygenelubricants", 0), ("😀", 49), ("", 0)],
)
async def test_rule_31_the_partition_of_a_group(group_id: str, partition: int) -> None:
    assert Service(offsets_topic_num_partitions="50").groups.partition_for(group_id) == partition
    assert java_string_hash("polygenelubricants") == 2**31


async def test_not_the_coordinator_of_what_is_led_elsewhere() -> None:
    service = Service()
    assert service.heartbeat("member", 1) == ErrorCode.NOT_COORDINATOR
    assert service.join().error_code == ErrorCode.NOT_COORDINATOR
    assert service.sync("member", 1).error_code == ErrorCode.NOT_COORDINATOR
    assert service.leave("member").error_code == ErrorCode.NOT_COORDINATOR
    assert service.commit(1).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert service.fetch().groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert service.describe().error_code == ErrorCode.NOT_COORDINATOR
    assert service.list_groups().groups == []


async def test_an_empty_group_id_is_invalid_where_members_are_concerned(service: Service) -> None:
    assert service.join(group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert service.sync("m", 1, group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert service.leave("m", group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert service.heartbeat("m", 1, group="") == ErrorCode.INVALID_GROUP_ID
    committed = await service.ask(service.commit(3, group=""), 8)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert service.committed(group="") == 3


async def test_a_group_id_that_cannot_be_kept_is_invalid(service: Service) -> None:
    assert service.join(group="é" * 16_384).error_code == ErrorCode.INVALID_GROUP_ID
    assert service.join(group="é" * 16_383).error_code == ErrorCode.MEMBER_ID_REQUIRED


async def test_sync_5_must_say_what_it_speaks(service: Service) -> None:
    assert service.sync("m", 1, protocol=None).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert service.sync("m", 1, version=4, protocol=None).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_sync_5_is_refused_if_it_speaks_something_else(service: Service) -> None:
    member_id = await service.member()
    assert service.sync(member_id, 1, protocol="sticky").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_a_group_from_the_first_join_to_the_last_leave(service: Service) -> None:
    member_id = await service.member()
    described = service.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert described.members[0].member_id == member_id == "client-id1"
    assert described.members[0].client_host == "/127.0.0.1"
    assert described.members[0].member_assignment == assignment(t=[0])
    assert service.heartbeat(member_id, 1) == ErrorCode.NONE
    committing = service.commit(42, member_id=member_id, generation=1)
    assert (await service.ask(committing, 8)).topics[0].partitions[0].error_code == ErrorCode.NONE
    service.leave(member_id)
    await turn()
    assert service.describe().group_state == "Empty"
    assert service.committed() == 42


async def test_a_member_that_is_silent_is_removed(service: Service) -> None:
    member_id = await service.member()
    await service.after(9)
    assert service.describe().group_state == "Stable"
    await service.after(1.5)
    assert service.describe().group_state == "Empty"
    assert service.heartbeat(member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_commits_in_flight_share_an_append(service: Service) -> None:
    before = service.log.appends
    parked = [service.commit(offset, partition=offset) for offset in range(1000)]
    answers = [await service.ask(each, 8) for each in parked]
    assert all(each.topics[0].partitions[0].error_code == ErrorCode.NONE for each in answers)
    assert service.log.appends == before + 1
    assert service.committed(partition=999) == 999


async def test_a_commit_is_answered_and_counts_when_it_is_in_the_log(service: Service) -> None:
    service.log.hold = True
    committing = service.commit(5)
    await turn()
    await turn()
    assert not committing.done()
    assert service.committed() == -1
    service.log.release()
    assert service.committed() == 5
    assert (await service.ask(committing, 8)).topics[0].partitions[0].error_code == ErrorCode.NONE


async def test_commits_that_are_settled_together_are_answered_together_the_newest_first(service: Service) -> None:
    answered: list[int] = []
    for offset in range(5):
        service.commit(offset).add_done_callback(lambda _, offset=offset: answered.append(offset))
    for _ in range(3):
        assert answered == []
        await turn()
    assert answered == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
async def test_a_commit_that_cannot_be_written_says_why(service: Service, error: ErrorCode, told: ErrorCode) -> None:
    service.log.fail = error
    answer = await service.ask(service.commit(5), 8)
    assert answer.topics[0].partitions[0].error_code == told
    service.log.fail = ErrorCode.NONE
    assert service.committed() == -1
    if error != ErrorCode.REQUEST_TIMED_OUT:
        assert service.list_groups().groups == [], "it was to exist for that commit"


async def test_a_commit_that_takes_too_long_is_given_up_and_counts_if_it_arrives_after_all(service: Service) -> None:
    service.log.hold = True
    committing = service.commit(5)
    await service.after(5.5)
    assert (await service.ask(committing, 8)).topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert service.committed() == -1
    service.log.release()
    assert service.committed() == 5


async def test_metadata_of_a_commit_is_limited(service: Service) -> None:
    answer = await service.ask(service.commit(5, metadata="x" * 4096), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    for text in ("x" * 4097, "😀" * 2049):
        answer = await service.ask(service.commit(6, metadata=text), 8)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    answer = await service.ask(service.commit(6, metadata="x" * 4096, topic="t" * 40_000), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert service.committed() == 5


async def test_commits_to_topics_that_are_not_there(service: Service) -> None:
    service.groups.topics_changed({"t": 2})
    answer = await service.ask(service.commit(5, topic="u"), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = await service.ask(service.commit(5, partition=2), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = await service.ask(service.commit(5, partition=1), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def test_commits_to_an_absent_group(service: Service) -> None:
    for version, error in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
        answer = service.commit(5, generation=0, member_id="m", version=version)
        assert answer.topics[0].partitions[0].error_code == error
    assert service.list_groups().groups == []


async def test_fetching_offsets_in_every_version(service: Service) -> None:
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


async def test_a_stable_fetch_waits_for_commits_on_their_way(service: Service) -> None:
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


async def test_describing_a_group_that_is_not_there(service: Service) -> None:
    for version in range(6):
        assert (service.describe(version=version).error_code, service.describe().group_state) == (0, "Dead")
    described = service.describe(version=6)
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described.error_message == "Group g not found."


async def test_listing_groups(service: Service) -> None:
    await service.member()
    await service.ask(service.commit(1, group="simple"), 8)
    listed = service.list_groups().groups
    assert [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in listed] == [
        ("g", "consumer", "Stable", "classic"),
        ("simple", "", "Empty", "classic"),
    ]
    assert [each.group_id for each in service.list_groups("stable").groups] == ["g"]
    assert [each.group_id for each in service.list_groups("Empty", types=("Classic",)).groups] == ["simple"]
    assert service.list_groups(types=("consumer",)).groups == []


async def test_deleting_groups(service: Service) -> None:
    member_id = await service.member()
    await service.ask(service.commit(1, group="simple"), 8)
    answer = await service.ask(service.delete("g", "simple", "absent"), 2)
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("simple", ErrorCode.NONE),
        ("absent", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    service.leave(member_id)
    assert (await service.ask(service.delete("g"), 2)).results[0].error_code == ErrorCode.NONE
    assert service.list_groups().groups == []
    again = await Service(service.log).loaded()
    assert again.list_groups().groups == []


async def test_a_group_that_cannot_be_deleted_stays(service: Service) -> None:
    await service.ask(service.commit(1), 8)
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    answer = await service.ask(service.delete("g"), 2)
    assert answer.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert service.committed() == 1


async def test_deleting_offsets(service: Service) -> None:
    member_id = await service.member(topics=("t",))
    for topic in ("t", "u"):
        await service.ask(service.commit(1, topic=topic, member_id=member_id, generation=1), 8)
    kept = service.delete_offsets("t")
    assert kept.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    gone = await service.ask(service.delete_offsets("u"), 0)
    assert gone.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (service.committed("t"), service.committed("u")) == (1, -1)
    assert service.delete_offsets("t", group="absent").error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_topic_that_is_deleted_takes_its_offsets_along(service: Service) -> None:
    for topic in ("t", "u"):
        await service.ask(service.commit(1, topic=topic), 8)
    service.groups.topics_deleted(["t"])
    await turn()
    assert (service.committed("t"), service.committed("u")) == (-1, 1)


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
    assert {note.type for _, note in service.notes} == {EventType.OFFSETS_EXPIRED, EventType.GROUP_DELETED}
    assert (await Service(service.log).loaded()).list_groups().groups == []


async def test_a_client_may_say_when_its_offsets_expire(service: Service) -> None:
    await service.ask(service.commit(1, version=4, retention=600_000), 4)
    await service.ask(service.commit(2, version=4, partition=1, retention=-1), 4)
    service.time += 700
    service.wall += 700_000
    service.groups.tick()
    await turn()
    assert (service.committed(), service.committed(partition=1)) == (-1, 2)
    assert (await Service(service.log).loaded()).committed(partition=1) == 2


async def test_unloading_answers_what_is_parked(service: Service) -> None:
    member_id = await service.member()
    joining = service.join(member_id, topics=("other",))
    assert (await service.ask(joining, 9)).error_code == ErrorCode.NONE
    answer = await service.ask(service.join(), 9)
    parked = service.join(answer.member_id)
    service.log.hold = True
    committing = service.commit(3, group="simple")
    service.groups.unload(0)
    left = await service.ask(parked, 9)
    assert (left.error_code, left.member_id) == (ErrorCode.NOT_COORDINATOR, answer.member_id)
    assert (await service.ask(committing, 8)).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert service.heartbeat(member_id, 2) == ErrorCode.NOT_COORDINATOR
    service.log.release()
    await service.after(60)


async def test_closing_writes_what_waits_and_answers_what_is_parked(service: Service) -> None:
    committing = service.commit(3, group="simple")
    answer = await service.ask(service.join(), 9)
    parked = service.join(answer.member_id)
    await service.groups.close()
    assert (await service.ask(committing, 8)).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (await service.ask(parked, 9)).error_code == ErrorCode.NOT_COORDINATOR
    assert service.join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_group_that_cannot_be_written_never_existed(service: Service) -> None:
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    parked = service.join(version=3)
    answer = await service.ask(parked, 3)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert service.list_groups().groups == []


async def test_an_assignment_that_cannot_be_written_is_nobodys(service: Service) -> None:
    answer = await service.ask(service.join(), 9)
    joining = service.join(answer.member_id)
    await service.after(3.25)
    await service.ask(joining, 9)
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    syncing = service.sync(answer.member_id, 1, {answer.member_id: b"x"})
    assert (await service.ask(syncing, 5)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert service.describe().group_state == "PreparingRebalance"


async def test_a_million_ids_that_nobody_comes_back_with(service: Service) -> None:
    for _ in range(MAX_PENDING + 500):
        assert service.join(session=1_800_000).error_code == ErrorCode.MEMBER_ID_REQUIRED
    hosted = service.groups.groups["g"]
    assert len(hosted.group.members.pending) == MAX_PENDING


async def test_a_million_groups_that_nobody_enters(service: Service) -> None:
    for number in range(MAX_UNUSED_GROUPS + 500):
        assert service.join(group=f"g{number}").error_code == ErrorCode.MEMBER_ID_REQUIRED
        if number % 1000 == 0:
            await turn()
    await turn()
    await turn()
    assert len(service.groups.groups) == MAX_UNUSED_GROUPS
    assert len(service.list_groups().groups) == MAX_UNUSED_GROUPS


async def test_refused_joins_leave_nothing_behind(service: Service) -> None:
    for number in range(100):
        service.join("unknown", group=f"g{number}")
    assert service.list_groups().groups == []
    assert service.log.records() == []


async def test_a_topic_that_grows_is_noted_by_who_subscribes_to_it(service: Service) -> None:
    await service.member(topics=("t",))
    service.groups.topics_changed({"t": 1, "u": 1})
    service.groups.topics_changed({"t": 2, "u": 2})
    noted = [note.data for _, note in service.notes if note.type is EventType.TOPIC_CHANGED]
    assert noted == [{"topic": "t", "before": 1, "partitions": 2}]


async def test_one_timer_for_many_groups(service: Service) -> None:
    for number in range(100):
        service.join(group=f"g{number}")
    heap = service.groups._hosted_groups.timers
    assert len(heap) <= 101
