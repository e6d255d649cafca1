"""DescribeGroups, ListGroups and DeleteGroups."""

from barnabas_broker.steps import finish
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.delete_groups import DeleteGroupsRequest
from tests.broker.groups.support import CALLER, Service


async def test_describing_an_unknown_group(service: Service) -> None:
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


async def test_a_group_stays_if_its_tombstones_cannot_be_appended(service: Service) -> None:
    await service.ask(service.commit(1), 8)
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    answer = await service.ask(service.delete("g"), 2)
    assert answer.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert service.committed() == 1


async def test_a_group_that_gets_a_member_while_others_are_deleted_stays(service: Service) -> None:
    for group in ("a", "b"):
        await service.ask(service.commit(1, group=group), 8)
    steps = service.groups.delete_groups(DeleteGroupsRequest(groups_names=["a", "b"]), 2, CALLER)
    next(steps)
    await service.member(group="b")
    answer = await service.ask(finish(steps), 2)
    assert [each.error_code for each in answer.results] == [ErrorCode.NONE, ErrorCode.NON_EMPTY_GROUP]
    assert [each.group_id for each in service.list_groups().groups] == ["b"]


async def test_a_deletion_from_before_an_unload_deletes_nothing_after_it(service: Service) -> None:
    for partition in (0, 1):
        await service.ask(service.commit(1, partition=partition), 8)
    steps = service.groups.offsets.delete(service.offset_deletion("t", 0, 1), 0, CALLER)
    next(steps)
    await service.groups.load(0, 2)
    answer = await service.ask(finish(steps), 0)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert [service.committed(partition=partition) for partition in (0, 1)] == [1, 1]
