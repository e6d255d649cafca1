"""Groups of hundreds of members that change their protocol: some members at a time, but as a whole for all others."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from barnabas_broker.coordinators import writer
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.coordinator import service as service_module
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.group_records import key_type
from barnabas_protocol.records import decode_records
from tests.broker.groups.coordinator.test_migration import Classic, Modern, classic_group, group_of, started
from tests.broker.groups.support import Service, turn

#: Members; a step converts a hundred of them.
MANY = 350
NONE, REBALANCE = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
JOIN = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"], "topic_partitions": []}


async def turns_until(service: Service, wanted: type[ClassicGroup] | type[ConsumerGroup]) -> int:
    """How many iterations of the loop it takes until the group has the protocol that is wanted."""
    for count in range(200):
        if isinstance(group_of(service), wanted):
            return count
        await turn()
    raise AssertionError(f"still {group_of(service)}")


async def answer(service: Service, asked: Any, version: int) -> Any:
    """A response that comes after up to some hundred iterations of the loop."""
    for _ in range(300):
        while service.offloaded:
            service.offloaded.pop()()
        if not isinstance(asked, asyncio.Future) or asked.done():
            break
        service.time += 0.002
        service.groups.tick()
        await turn()
    return await service.ask(asked, version)


async def upgraded(**keys: str) -> tuple[Service, list[Classic], Modern]:
    """A large group of the consumer protocol, all of whose members but one use the classic one."""
    service = await started(None, **keys)
    members = await classic_group(service, MANY)
    modern = Modern(service)
    await modern.took(await answer(service, modern.send(0, **JOIN), 1))
    assert isinstance(group_of(service), ConsumerGroup)
    return service, members, modern


def batches(service: Service) -> list[list[int]]:
    """The types of the records in each batch of the log."""
    return [[key_type(record.key) for record in decode_records(batch)] for batch in service.log.batches[0]]


async def test_a_large_group_is_upgraded_in_steps_during_which_it_may_be_read() -> None:
    service = await started()
    members = await classic_group(service, MANY)
    first = members[0]
    before = len(service.log.batches[0])
    modern = Modern(service)
    joining = modern.send(0, **JOIN)
    steps = 0
    while isinstance(group_of(service), ClassicGroup):
        assert first.beat() == NONE
        assert service.describe().group_state == "Stable"
        assert len(service.describe().members) == MANY
        assert len(service.log.batches[0]) == before, "nothing is appended before all of it is there"
        await turn()
        steps += 1
    # Three times a hundred members of 350 are read, converted and made members, and 1,053 records are encoded.
    assert steps >= 10
    await modern.took(await answer(service, joining, 1))
    assert modern.epoch == first.generation + 1
    assert first.beat() == REBALANCE
    (whole, *others) = batches(service)[before:]
    assert whole == [2, *[5] * MANY, 3, *[7] * MANY, 6, *[8] * MANY]
    assert others[0][:2] == [5, 3], "the member that has joined"


async def test_requests_that_would_change_a_group_wait_for_the_end_of_its_upgrade() -> None:
    service = await started()
    members = await classic_group(service, MANY)
    a, b, c = members[:3]
    modern, other = Modern(service), Modern(service, "other")
    joining = modern.send(0, **JOIN)
    newcomer = Classic(service)
    waiting = [a.join(), b.sync(), service.leave(c.member_id), other.send(0, **JOIN), newcomer.join()]
    assert all(isinstance(each, asyncio.Future) for each in waiting)
    await turns_until(service, ConsumerGroup)
    assert (await answer(service, joining, 1)).error_code == NONE
    rejoined, synced, left, joined, given = [
        await answer(service, asked, version) for asked, version in zip(waiting, (9, 5, 5, 1, 9), strict=True)
    ]
    assert (rejoined.error_code, rejoined.generation_id) == (NONE, a.generation + 1)
    assert synced.error_code == REBALANCE
    assert left.members[0].error_code == NONE
    assert joined.error_code == NONE
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    group = group_of(service)
    assert isinstance(group, ConsumerGroup)
    assert len(group.members) == MANY + 1
    assert c.member_id not in group.members


async def test_a_broker_that_is_killed_between_two_steps_has_upgraded_the_group_or_not() -> None:
    service = await started()
    members = await classic_group(service, MANY)
    service.log.hold = True
    modern = Modern(service)
    modern.send(0, **JOIN)
    seen = []
    for _ in range(60):
        await turn()
        again = await started(service.log)
        group = group_of(again)
        seen.append(type(group).__name__)
        ids = {each.member_id for each in members}
        if isinstance(group, ClassicGroup):
            assert set(group.members.by_id) == ids
        else:
            assert set(group.members) - {"c"} == ids
        if len(seen) > 3 and seen[-3:] == ["ConsumerGroup"] * 3:
            break
    assert set(seen) == {"ClassicGroup", "ConsumerGroup"}
    assert seen == sorted(seen)
    for member in members[:3]:
        member.service = again
        assert member.beat() in (NONE, REBALANCE)


async def test_a_group_that_moves_to_another_broker_during_its_upgrade_is_not_upgraded() -> None:
    service = await started()
    a, b, *_ = await classic_group(service, MANY)
    joining, rejoining = Modern(service).send(0, **JOIN), a.join()
    await turn()
    service.groups.unload(0)
    for asked, version in ((joining, 1), (rejoining, 9)):
        assert (await answer(service, asked, version)).error_code == ErrorCode.NOT_COORDINATOR
    again = await started(service.log)
    b.service = again
    assert isinstance(group_of(again), ClassicGroup)
    assert b.beat() == NONE


async def test_timers_of_a_group_wait_for_the_end_of_its_upgrade() -> None:
    service = await started()
    members = await classic_group(service, MANY)
    await service.after(9.5)
    for member in members[1:]:
        assert member.beat() == NONE
    Modern(service).send(0, **JOIN)
    service.time += 1.0
    service.groups.tick()
    assert len(group_of(service).members) == MANY, "the session of the first member is over"
    await turns_until(service, ConsumerGroup)
    assert len(group_of(service).members) == MANY + 1, "it has a new one"


async def test_a_large_group_that_cannot_be_upgraded_goes_on() -> None:
    service = await started()
    members = await classic_group(service, MANY)
    group = group_of(service)
    assert isinstance(group, ClassicGroup)
    group.members.by_id[members[-1].member_id].assignment = b"\x00\x00\x00"
    asked, rejoining = Modern(service).send(0, **JOIN), members[1].join()
    refused = await answer(service, asked, 1)
    assert "malformed" in refused.error_message
    assert group_of(service) is group
    await turn()
    assert members[0].beat() == REBALANCE, "the other one rejoins"
    assert isinstance(rejoining, asyncio.Future)
    assert not rejoining.done()


@pytest.mark.parametrize(
    ("keys", "instance", "code"),
    [
        ({"group_consumer_max_size": str(MANY)}, None, ErrorCode.GROUP_MAX_SIZE_REACHED),
        ({}, "new", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_member_that_is_refused_does_not_convert_a_large_group(
    keys: dict[str, str], instance: str | None, code: ErrorCode
) -> None:
    """It could repeat its request as often as it wants to."""
    service = await started(None, **keys)
    members = await classic_group(service, MANY)
    modern = Modern(service, "new" if instance is None else members[0].member_id, instance)
    before = service.log.batches[0][:]
    refused = await service.ask(modern.send(0, **JOIN), 1)
    assert refused.error_code == code
    assert service.groups._hosted_groups.by_id["g"].change is None, "at once, without a step of a conversion"
    assert isinstance(group_of(service), ClassicGroup)
    assert service.log.batches[0] == before


async def test_records_of_an_upgrade_that_are_larger_than_a_batch_are_compressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "BATCH_BYTES", 40_000)
    monkeypatch.setattr(service_module, "BATCH_BYTES", 40_000)
    service, members, _ = await upgraded()
    (batch,) = [each for each in service.log.batches[0] if len(list(decode_records(each))) > 3 * MANY]
    assert len(batch) < 40_000 < sum(len(each.value or b"") + len(each.key or b"") for each in decode_records(batch))
    again = await started(service.log)
    assert set(group_of(again).members) == {"c", *(each.member_id for each in members)}


@pytest.mark.parametrize("compressed", [True, False])
async def test_an_upgrade_whose_records_do_not_fit_into_a_batch_is_refused_as_in_kafka(
    monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    service = await started()
    if compressed:
        monkeypatch.setattr(service_module, "BATCH_BYTES", 4_000)
    else:
        hosted_groups = service.groups._hosted_groups
        hosted_groups.consumer_settings = replace(hosted_groups.consumer_settings, max_migration_bytes=50_000)
    members = await classic_group(service, MANY)
    refused = await answer(service, Modern(service).send(0, **JOIN), 1)
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "the records of its 350 members are too large to be appended together" in refused.error_message
    assert isinstance(group_of(service), ClassicGroup)
    assert members[0].beat() == NONE


async def test_a_large_upgrade_that_is_not_appended_is_repeated_in_steps() -> None:
    service = await started()
    members = await classic_group(service, MANY)
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    modern = Modern(service)
    assert (await answer(service, modern.send(0, **JOIN), 1)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    service.log.fail = NONE
    assert isinstance(group_of(await started(service.log)), ClassicGroup)
    before = len(service.log.batches[0])
    asked = modern.send(0, **JOIN)
    turns = 0
    while len(service.log.batches[0]) == before:
        await turn()
        turns += 1
    assert turns >= 4, "250 records at a time"
    assert (await answer(service, asked, 1)).error_code == NONE
    whole = batches(service)[before]
    assert whole.count(2) == 1
    assert len(whole) > 3 * MANY
    assert set(group_of(await started(service.log)).members) == {"c", *(each.member_id for each in members)}


async def test_a_large_group_is_downgraded_in_steps_during_which_it_may_be_read() -> None:
    service, members, modern = await upgraded()
    a, b = members[:2]
    before = len(service.log.batches[0])
    leaving = modern.send(-1)
    rejoining, newcomer = a.join(), Classic(service)
    given = newcomer.join()
    steps = 0
    while isinstance(group_of(service), ConsumerGroup):
        assert b.beat() == REBALANCE
        assert not group_of(service).is_dead
        assert [each.group_type for each in service.list_groups().groups] == ["consumer"]
        assert len(service.log.batches[0]) == before
        await turn()
        steps += 1
    assert steps >= 8
    assert (await answer(service, leaving, 1)).error_code == NONE
    assert (await answer(service, given, 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED
    group = group_of(service)
    assert isinstance(group, ClassicGroup)
    assert len(group.members) == MANY
    assert isinstance(rejoining, asyncio.Future)
    assert not rejoining.done(), "it waits for the others"
    (whole,) = batches(service)[before:]
    assert whole[-1] == 2
    assert whole.count(8) == whole.count(7) == whole.count(5) == MANY + 1
    again = await started(service.log)
    assert set(group_of(again).members.by_id) == {each.member_id for each in members}  # type: ignore[union-attr]


async def test_a_broker_that_is_killed_between_two_steps_has_downgraded_the_group_or_not() -> None:
    service, members, modern = await upgraded()
    ids = {each.member_id for each in members}
    modern.send(-1)
    seen = []
    for _ in range(40):
        group = group_of(await started(service.log))
        seen.append(type(group).__name__)
        if isinstance(group, ClassicGroup):
            assert set(group.members.by_id) == ids
            break
        assert set(group.members) == {"c", *ids}
        await turn()
    assert len(seen) > 2
    assert set(seen[:-1]) == {"ConsumerGroup"}
    assert seen[-1] == "ClassicGroup"


async def test_a_group_that_is_too_large_for_a_downgrade_goes_on() -> None:
    service, members, modern = await upgraded()
    group = group_of(service)
    assert isinstance(group, ConsumerGroup)
    group._settings = replace(group._settings, max_migration_bytes=50_000)
    assert (await answer(service, modern.send(-1), 1)).error_code == NONE
    assert group_of(service) is group
    assert set(group.members) == {each.member_id for each in members}
    assert members[0].beat() == REBALANCE


async def test_a_group_that_moves_to_another_broker_during_its_downgrade_is_not_downgraded() -> None:
    service, members, modern = await upgraded()
    leaving, rejoining = modern.send(-1), members[0].join()
    await turn()
    service.groups.unload(0)
    for asked, version in ((leaving, 1), (rejoining, 9)):
        assert (await answer(service, asked, version)).error_code == ErrorCode.NOT_COORDINATOR
    again = await started(service.log)
    assert set(group_of(again).members) == {"c", *(each.member_id for each in members)}


async def test_a_large_downgrade_that_is_not_appended_is_repeated_in_steps() -> None:
    service, members, modern = await upgraded()
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await answer(service, modern.send(-1), 1)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    service.log.fail = NONE
    assert isinstance(group_of(await started(service.log)), ConsumerGroup)
    joining = [each.join() for each in members]
    joined = [await answer(service, asked, 9) for asked in joining]
    assert {each.error_code for each in joined} == {NONE}
    for member, response in zip(members, joined, strict=True):
        member.generation = response.generation_id
    before = len(service.log.batches[0])
    syncing = members[0].sync({each.member_id: b"" for each in members})
    turns = 0
    while len(service.log.batches[0]) == before:
        await turn()
        turns += 1
    assert turns >= 4
    assert (await answer(service, syncing, 5)).error_code == NONE
    whole = batches(service)[before]
    assert whole[-1] == 2
    assert whole.count(5) == MANY + 1
    assert isinstance(group_of(await started(service.log)), ClassicGroup)
