"""The group coordinator: its groups, validation, response versions, limits."""

import asyncio

import pytest

from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.members import MAX_PENDING
from barnabas_broker.groups.coordinator.hosting import MAX_UNUSED_GROUPS
from barnabas_broker.groups.sightings import ClientAddress
from barnabas_explain.catalog import RebalanceOver, SessionRefused, SubscriptionChanged, TopicChanged, TopicDeleted
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import java_string_hash
from tests.broker.groups.support import CALLER, Service, assignment, turn


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [("test-group", 12), ("my-group", 12), ("polygenelubricants", 0), ("😀", 49), ("", 0)],
)
async def test_the_partition_of_a_group(group_id: str, partition: int) -> None:
    assert Service(offsets_topic_num_partitions="50").groups.partition_for(group_id) == partition
    assert java_string_hash("polygenelubricants") == 2**31


async def test_groups_of_other_brokers_get_not_coordinator() -> None:
    service = Service()
    assert service.heartbeat("member", 1) == ErrorCode.NOT_COORDINATOR
    assert service.join().error_code == ErrorCode.NOT_COORDINATOR
    assert service.sync("member", 1).error_code == ErrorCode.NOT_COORDINATOR
    assert service.leave("member").error_code == ErrorCode.NOT_COORDINATOR
    assert service.commit(1).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert service.fetch().groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert service.describe().error_code == ErrorCode.NOT_COORDINATOR
    assert service.list_groups().groups == []


async def test_requests_while_the_partition_is_loading() -> None:
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


async def test_an_empty_group_id_is_valid_for_offsets_only(service: Service) -> None:
    assert service.join(group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert service.sync("m", 1, group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert service.leave("m", group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert service.heartbeat("m", 1, group="") == ErrorCode.INVALID_GROUP_ID
    committed = await service.ask(service.commit(3, group=""), 8)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert service.committed(group="") == 3


async def test_a_group_id_longer_than_a_record_allows_is_invalid(service: Service) -> None:
    assert service.join(group="é" * 16_384).error_code == ErrorCode.INVALID_GROUP_ID
    assert service.join(group="é" * 16_383).error_code == ErrorCode.MEMBER_ID_REQUIRED


async def test_a_group_from_the_first_join_group_to_the_last_leave_group(service: Service) -> None:
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


async def test_a_new_group_whose_record_cannot_be_appended_does_not_exist(service: Service) -> None:
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    pending = service.join(version=3)
    answer = await service.ask(pending, 3)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert service.list_groups().groups == []


async def test_an_assignment_that_cannot_be_appended_is_not_returned(service: Service) -> None:
    answer = await service.ask(service.join(), 9)
    joining = service.join(answer.member_id)
    await service.after(3.25)
    await service.ask(joining, 9)
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    syncing = service.sync(answer.member_id, 1, {answer.member_id: b"x"})
    assert (await service.ask(syncing, 5)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert service.describe().group_state == "PreparingRebalance"


async def test_the_number_of_pending_members_is_limited(service: Service) -> None:
    for _ in range(MAX_PENDING + 500):
        assert service.join(session=1_800_000).error_code == ErrorCode.MEMBER_ID_REQUIRED
    group = service.groups.groups["g"].group
    assert isinstance(group, ClassicGroup)
    assert len(group.members.pending) == MAX_PENDING


async def test_the_number_of_groups_with_only_pending_members_is_limited(service: Service) -> None:
    for number in range(MAX_UNUSED_GROUPS + 500):
        assert service.join(group=f"g{number}").error_code == ErrorCode.MEMBER_ID_REQUIRED
        if number % 1000 == 0:
            await turn()
    await turn()
    await turn()
    assert len(service.groups.groups) == MAX_UNUSED_GROUPS
    assert len(service.list_groups().groups) == MAX_UNUSED_GROUPS


async def test_refused_join_groups_create_no_groups(service: Service) -> None:
    for number in range(100):
        service.join("unknown", group=f"g{number}")
    assert service.list_groups().groups == []
    assert service.log.records() == []


async def test_a_topic_that_grows_is_an_event_of_the_groups_that_subscribe_to_it(service: Service) -> None:
    await service.member(topics=("t", "later"))
    service.groups.topics_changed({"t": 1, "u": 1})
    service.groups.topics_changed({"t": 2, "u": 2, "unrelated": 1})
    service.groups.topics_changed({"t": 2, "u": 2, "unrelated": 1, "later": 3})
    changes = [event for _, event in service.published if isinstance(event, TopicChanged)]
    assert [(event.topic, event.before, event.partitions) for event in changes] == [("t", 1, 2), ("later", 0, 3)]


async def test_a_changed_subscription_says_which_topics_are_new(service: Service) -> None:
    member_id = await service.member(topics=("t",))
    service.groups.topics_changed({"t": 1, "old": 1})
    service.groups.topics_changed({"t": 1, "old": 1, "later": 3})
    service.join(member_id, topics=("t", "later", "old"))
    (changed,) = service.events_of(SubscriptionChanged)
    assert (changed.added, changed.new_topics) == (("later", "old"), ("later",))


async def test_changes_of_topics_say_which_client_has_asked_for_them(service: Service) -> None:
    member_id = await service.member(topics=("t",))
    service.groups.topics_changed({"t": 1})
    service.groups.topics_changed({"t": 1, "later": 3, "of another broker": 1})
    provisioner = ClientAddress("provisioner", "/10.0.0.7")
    service.groups.new_topics.changed_by("later", provisioner)
    service.join(member_id, topics=("t", "later", "of another broker"))
    (changed,) = service.events_of(SubscriptionChanged)
    assert changed.created_by == ("provisioner (10.0.0.7)",)
    service.groups.topics_deleted(["later", "of another broker"])
    deleted = {event.topic: event for event in service.events_of(TopicDeleted)}
    assert deleted["later"].by_client == "the client provisioner (10.0.0.7)"
    assert deleted["of another broker"].by_client == ""


async def test_a_changed_subscription_says_which_new_topics_its_own_client_has_made(service: Service) -> None:
    member_id = await service.member(topics=("t",))
    topics = {"t": 1, "letters": 1, "of another": 1, "elsewhere": 1}
    service.groups.topics_changed({"t": 1})
    service.groups.topics_changed(topics)
    service.groups.new_topics.created_for("letters", ClientAddress(CALLER.client_id, CALLER.host))
    service.groups.new_topics.created_for("of another", ClientAddress("other", CALLER.host))
    service.groups.new_topics.created_for("elsewhere", ClientAddress(CALLER.client_id, "/10.0.0.7"))
    service.join(member_id, topics=tuple(topics))
    (changed,) = service.events_of(SubscriptionChanged)
    assert changed.own_topics == ("letters",)


async def test_a_rebalance_says_which_new_topics_the_clients_of_its_members_have_made(service: Service) -> None:
    service.groups.topics_changed({"u": 1})
    service.groups.topics_changed({"u": 1, "t": 1})
    service.groups.new_topics.created_for("t", ClientAddress(CALLER.client_id, CALLER.host))
    await service.member()
    assert service.events_of(RebalanceOver)[-1].own_topics == ("t",)


async def test_unloading_fails_deferred_requests_with_not_coordinator(service: Service) -> None:
    member_id = await service.member()
    joining = service.join(member_id, topics=("other",))
    assert (await service.ask(joining, 9)).error_code == ErrorCode.NONE
    answer = await service.ask(service.join(), 9)
    pending = service.join(answer.member_id)
    service.log.hold = True
    committing = service.commit(3, group="simple")
    service.groups.unload(0)
    left = await service.ask(pending, 9)
    assert (left.error_code, left.member_id) == (ErrorCode.NOT_COORDINATOR, answer.member_id)
    assert (await service.ask(committing, 8)).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert service.heartbeat(member_id, 2) == ErrorCode.NOT_COORDINATOR
    service.log.release()
    await service.after(60)


async def test_closing_appends_collected_records_and_responds_to_deferred_requests(service: Service) -> None:
    committing = service.commit(3, group="simple")
    answer = await service.ask(service.join(), 9)
    pending = service.join(answer.member_id)
    await service.groups.close()
    assert (await service.ask(committing, 8)).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (await service.ask(pending, 9)).error_code == ErrorCode.NOT_COORDINATOR
    assert service.join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_many_groups_have_one_timer(service: Service) -> None:
    for number in range(100):
        service.join(group=f"g{number}")
    heap = service.groups._runtime.timers
    assert len(heap) <= 101


async def test_a_refused_session_timeout_is_reported_once_in_a_while_of_a_group() -> None:
    service = await Service().loaded()
    for group in [f"g{number}" for number in range(100)] + ["g0"]:
        service.join(session=1_000, group=group)
    refused = service.events_of(SessionRefused)
    assert len(refused) == 64
    assert (refused[0].session_ms, refused[0].least_ms, refused[0].most_ms) == (1_000, 6_000, 1_800_000)
    assert refused[0].member.client_id == "client"
    assert not service.groups.groups, "no group is made"
    await service.after(60)
    service.join(session=2_000_000)
    assert service.events_of(SessionRefused)[-1].session_ms == 2_000_000


async def test_a_session_timeout_that_another_broker_refuses_is_not_reported() -> None:
    service = Service()
    service.join(session=1_000)
    assert not service.events_of(SessionRefused)
