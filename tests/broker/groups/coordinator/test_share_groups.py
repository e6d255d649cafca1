"""Share groups beside groups of the other types: one partition, one load, one owner of each id."""

import asyncio

from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas_protocol.records import decode_records
from tests.broker.groups.support import CALLER, Service, turn

E = ErrorCode
T = b"t" * 16


async def beat(service: Service, epoch: int = 0, group: str = "g") -> ShareGroupHeartbeatResponse:
    """The heartbeat of the one member; with an epoch of 0 it joins."""
    request = ShareGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=["t"] if not epoch else None,
    )
    return await service.groups.share_groups.heartbeat(request, 1, CALLER)


def with_topic(service: Service) -> Service:
    service.groups.topics_changed({"t": 2}, [Topic(T, "t", 2, ())])
    return service


async def test_a_load_finds_each_group_with_its_machine(service: Service) -> None:
    """The type of a record says which machine owns it: one replay loads groups of all types."""
    joined = await beat(with_topic(service))
    await service.ask(service.commit(5, group="offsets"), 8)
    await service.member(group="classic")
    again = with_topic(await Service(service.log).loaded())
    listed = {each.group_id: (each.group_type, each.group_state) for each in again.list_groups().groups}
    assert listed == {
        "g": ("share", "Stable"),
        "offsets": ("classic", "Empty"),
        "classic": ("classic", "Stable"),
    }
    assert again.committed(group="offsets") == 5
    later = await beat(again, joined.member_epoch)
    assert (later.error_code, later.member_epoch) == (E.NONE, joined.member_epoch)


async def test_groups_of_all_types_share_one_batch(service: Service) -> None:
    """One iteration of the event loop appends the records of groups of all types together."""
    with_topic(service)
    before = service.log.appends
    joining = asyncio.ensure_future(beat(service))
    await turn()
    committing = service.commit(5, group="offsets")
    assert (await service.ask(committing, 8)).topics[0].partitions[0].error_code == E.NONE
    batch = service.log.batches[0][0]
    assert service.log.appends == before + 1
    assert {int.from_bytes((record.key or b"")[:2], "big") for record in decode_records(batch)} > {1, 10, 11}
    assert (await joining).error_code == E.NONE


async def test_a_member_of_a_group_that_moved_does_not_expire_here(service: Service) -> None:
    """The timer of its session goes on without holding the event loop."""
    await beat(with_topic(service))
    machine = service.groups.share_groups.find("g")
    service.groups.unload(0)
    await service.after(120)
    assert list(machine.members) == ["m"]
    assert (await beat(service)).error_code == E.NOT_COORDINATOR


async def test_share_groups_commit_no_offsets(service: Service) -> None:
    await beat(with_topic(service))
    for version in (8, 9):
        for generation in (-1, 3):
            answer = await service.ask(service.commit(1, generation=generation, version=version), version)
            assert answer.topics[0].partitions[0].error_code == E.GROUP_ID_NOT_FOUND
    assert await service.committed_in_transaction(1) == E.GROUP_ID_NOT_FOUND
    assert [each.group_id for each in service.list_groups().groups] == ["g"]


async def test_an_id_belongs_to_one_type(service: Service) -> None:
    await beat(with_topic(service))
    assert (await service.ask(service.join(), 9)).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    refused = await service.ask(service.groups.consumer_heartbeat(consumer, 1, CALLER), 1)
    assert (refused.error_code, refused.error_message) == (E.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")
    assert service.describe(version=6).error_message == "Group g is not a classic group."
    await service.ask(service.commit(1, group="offsets"), 8)
    other = await beat(service, group="offsets")
    assert (other.error_code, other.error_message) == (E.GROUP_ID_NOT_FOUND, "Group offsets is not a share group.")


async def test_a_commit_to_a_deleted_group_does_not_replace_the_share_group_that_has_its_id(service: Service) -> None:
    with_topic(service)
    await service.ask(service.commit(1), 8)
    service.log.hold = True
    deleting = service.delete("g")
    await turn()
    committing = service.commit(2)
    await turn()
    service.log.hold = False
    done, error = service.log.held.pop(0)
    done(error)
    assert (await service.ask(deleting, 2)).results[0].error_code == E.NONE
    assert (await beat(service)).error_code == E.NONE
    done, error = service.log.held.pop(0)
    done(error)
    await service.ask(committing, 8)
    assert [(each.group_id, each.group_type) for each in service.list_groups().groups] == [("g", "share")]


async def test_the_states_of_a_deleted_group_are_deleted_first(service: Service) -> None:
    joined = await beat(with_topic(service))
    assert {(key.group, key.partition) for key in service.states.epochs} == {("g", 0), ("g", 1)}
    assert (await service.ask(service.delete("g"), 2)).results[0].error_code == E.NON_EMPTY_GROUP
    await beat(service, -1)
    deleted = await service.ask(service.delete("g", "missing"), 2)
    assert [(each.group_id, each.error_code) for each in deleted.results] == [
        ("g", E.NONE),
        ("missing", E.GROUP_ID_NOT_FOUND),
    ]
    assert not service.states.epochs
    assert (await beat(service, joined.member_epoch)).error_code == E.GROUP_ID_NOT_FOUND
    assert service.list_groups().groups == []
