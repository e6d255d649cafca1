"""Groups that change their protocol while they have members: upgrades, downgrades, their records, and failover."""

import asyncio
from typing import Any

import pytest

from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.embedded_protocol import read_assignment
from barnabas_broker.steps import finish
from barnabas_explain.catalog import EpochBumped, GroupDowngraded, GroupUpgraded, JoinRefused
from barnabas_explain.explain import explain
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.group_records import CONSUMER_KEYS, key_type, read_consumer_record, read_group_value
from barnabas_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.groups.memory import MemoryLog
from tests.broker.groups.support import CALLER, Service, assignment, owned_subscription, turn

T = b"t" * 16
NONE, REBALANCE = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS


async def started(log: MemoryLog | None = None, policy: str = "bidirectional", **keys: str) -> Service:
    keys.update(group_consumer_assignment_interval_ms="0", group_consumer_migration_policy=policy)
    service = Service(log, compiling=False, matching=False, **keys)
    service.groups.topics_changed({"t": 4}, [Topic(T, "t", 4)])
    return await service.loaded()


class Classic:
    """A client of the classic protocol with the cooperative assignor.

    Attributes:
        owned: the partitions of the topic t that it owns.
        generation: of its last JoinGroup.
    """

    def __init__(self, service: Service, instance: str | None = None, topic: str = "t") -> None:
        self.service, self.instance, self.topic = service, instance, topic
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()

    def join(self, metadata: bytes | None = None) -> Any:
        """Send JoinGroup; its response, or a future."""
        metadata = metadata or owned_subscription({self.topic: self.owned} if self.owned else {}, self.topic)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata)],
        )
        return self.service.groups.join(request, 9, CALLER)

    async def joined(self, asked: Any) -> ErrorCode:
        """Take the response of a JoinGroup."""
        response = await self.service.ask(asked, 9)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            response = await self.service.ask(self.join(), 9)
        if response.error_code == NONE:
            self.member_id, self.generation = response.member_id, response.generation_id
        return ErrorCode(response.error_code)

    def sync(self, assignments: dict[str, bytes] | None = None) -> Any:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="cooperative-sticky",
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=assigned)
                for each, assigned in (assignments or {}).items()
            ],
        )
        return self.service.groups.sync(request, 5, CALLER)

    async def synced(self, asked: Any) -> ErrorCode:
        """Take the response of a SyncGroup."""
        response = await self.service.ask(asked, 5)
        if response.error_code == NONE:
            self.owned = read_assignment(response.assignment)[0].get(self.topic, set())
        return ErrorCode(response.error_code)

    def beat(self) -> ErrorCode:
        return self.service.heartbeat(self.member_id, self.generation)

    async def rejoin(self) -> None:
        """In a group of the consumer protocol: rejoin until heartbeats succeed, or only others can help."""
        for _ in range(4):
            if self.beat() == NONE:
                return
            assert await self.joined(self.join()) == NONE
            assert await self.synced(self.sync()) == NONE


class Modern:
    """A client of the consumer protocol."""

    def __init__(self, service: Service, member_id: str = "c", instance: str | None = None) -> None:
        self.service, self.member_id, self.instance = service, member_id, instance
        self.epoch = 0
        self.owned: list[int] = []

    def send(self, epoch: int, **fields: Any) -> Any:
        """Send a heartbeat; its response, or a future."""
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance,
            **fields,
        )
        return self.service.groups.consumer_heartbeat(request, 1, CALLER)

    async def join(self) -> Any:
        first = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        return await self.took(self.send(0, **first))

    async def beat(self) -> Any:
        owned = [HeartbeatTopicPartitions(topic_id=T, partitions=self.owned)] if self.owned else []
        return await self.took(self.send(self.epoch, topic_partitions=owned))

    async def leave(self, epoch: int = -1) -> Any:
        return await self.service.ask(self.send(epoch), 1)

    async def took(self, asked: Any) -> Any:
        response = await self.service.ask(asked, 1)
        if response.error_code == NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.owned = [each for topic in response.assignment.topic_partitions for each in topic.partitions]
        return response


async def classic_group(service: Service, count: int = 2, *, static: bool = False) -> list[Classic]:
    """A Stable classic group of members that share the topic t."""
    members = [Classic(service, f"i{number}" if static else None) for number in range(count)]
    for member in members:
        if not static:
            member.member_id = (await service.ask(member.join(), 9)).member_id
    joining = [member.join() for member in members]
    await service.after(6.5)
    for member, asked in zip(members, joining, strict=True):
        assert await member.joined(asked) == NONE
    shares = {each.member_id: assignment(t=range(at, 4, count)) for at, each in enumerate(members)}
    syncing = [member.sync(shares if at == 0 else None) for at, member in enumerate(members)]
    for member, asked in zip(members, syncing, strict=True):
        assert await member.synced(asked) == NONE
    return members


async def converge(classic: list[Classic], modern: list[Modern], rounds: int = 6) -> None:
    """All members follow the protocol until every partition has one owner."""
    for _ in range(rounds):
        for member in modern:
            await member.beat()
        for each in classic:
            await each.rejoin()
    owned = [partition for each in classic for partition in each.owned]
    owned += [partition for member in modern for partition in member.owned]
    assert sorted(owned) == [0, 1, 2, 3]


def group_of(service: Service) -> ClassicGroup | ConsumerGroup:
    return service.groups.groups["g"].group


async def described(service: Service) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    response = await service.ask(finish(service.groups.consumer_describe(request, 1, CALLER)), 1)
    return response.groups[0]


def written(service: Service, since: int = 0) -> list[str]:
    """The records of the log: type, member id, and - for a tombstone."""
    out = []
    for record in service.log.records()[since:]:
        number = key_type(record.key)
        member_id = ""
        if number in CONSUMER_KEYS and record.key is not None:
            member_id = getattr(read_consumer_record(number, record.key, None)[0], "member_id", "")
        out.append(f"{'' if record.value is not None else '-'}{number}{member_id and ' '}{member_id}")
    return out


async def test_a_group_is_upgraded_when_a_member_of_the_consumer_protocol_joins() -> None:
    service = await started()
    a, b = classic_group_members = await classic_group(service)
    generation = a.generation
    before = len(service.log.records())
    modern = Modern(service)
    joined = await modern.join()
    assert (joined.error_code, joined.member_epoch, modern.owned) == (NONE, generation + 1, [])
    # The old group's tombstone and the whole new group come first, as in Kafka.
    records = written(service, before)
    one, other = a.member_id, b.member_id
    assert records[:9] == [
        "-2",
        *(f"5 {one}", f"5 {other}"),
        "3",
        *(f"7 {one}", f"7 {other}"),
        "6",
        *(f"8 {one}", f"8 {other}"),
    ]
    assert records[9:11] == ["5 c", "3"]
    assert [a.beat(), b.beat()] == [REBALANCE, REBALANCE]
    await converge(classic_group_members, [modern])
    group = await described(service)
    assert (group.group_state, group.group_epoch) == ("Stable", generation + 1)
    assert {each.member_id: each.member_type for each in group.members} == {one: 0, other: 0, "c": 1}
    assert [each.group_type for each in service.list_groups().groups] == ["consumer"]
    types = [type(event) for _, event in service.published]
    assert GroupUpgraded in types
    assert types.index(GroupUpgraded) < types.index(EpochBumped)


async def test_members_keep_what_they_own_if_an_upgrade_interrupts_a_second_rebalance() -> None:
    """A generation that no member has synced has no assignments: members say what they own as they join."""
    service = await started()
    a, b = members = await classic_group(service)
    joining = [a.join(), b.join()]
    for member, asked in zip(members, joining, strict=True):
        assert await member.joined(asked) == NONE
    a.owned.discard(2)
    a.join()
    group = group_of(service)
    assert isinstance(group, ClassicGroup)
    assert all(member.assignment == b"" for member in group.members)
    modern = Modern(service)
    joined = await modern.join()
    assert (joined.error_code, modern.owned) == (NONE, [2])
    await converge(members, [modern])


async def test_a_mixed_group_survives_failover() -> None:
    service = await started()
    members = await classic_group(service)
    service.commit(7, member_id=members[0].member_id, generation=members[0].generation)
    modern = Modern(service)
    await modern.join()
    await converge(members, [modern])
    again = await started(service.log)
    for member in members:
        member.service = again
        assert member.beat() == NONE
    modern.service = again
    assert (await modern.beat()).error_code == NONE
    assert again.committed() == 7
    newcomer = Classic(again)
    assert await newcomer.joined(newcomer.join()) == NONE
    assert await newcomer.synced(newcomer.sync()) == NONE
    await converge([*members, newcomer], [modern])
    # Every member of the consumer protocol dies: what is left is a classic group, on the next coordinator, too.
    for _ in range(5):
        await again.after(9.5)
        for each in (*members, newcomer):
            each.beat()
    assert isinstance(group_of(again), ClassicGroup)
    third = await started(again.log)
    assert isinstance(group_of(third), ClassicGroup)
    assert len(group_of(third).members) == 3
    assert third.committed() == 7


async def test_deferred_requests_of_the_classic_group_are_asked_to_rejoin() -> None:
    service = await started()
    a, b = await classic_group(service)
    c = Classic(service)
    c.member_id = (await service.ask(c.join(), 9)).member_id
    joining = c.join()
    assert isinstance(joining, asyncio.Future)
    await Modern(service).join()
    assert await c.joined(joining) == REBALANCE
    assert isinstance(group_of(service), ConsumerGroup)
    assert await c.joined(c.join()) == NONE
    assert a.beat() == b.beat() == REBALANCE


async def test_a_sync_that_waits_is_asked_to_rejoin() -> None:
    service = await started()
    a, b = await classic_group(service)
    c = Classic(service)
    c.member_id = (await service.ask(c.join(), 9)).member_id
    joining = [c.join(), a.join(), b.join()]
    for member, asked in zip((c, a, b), joining, strict=True):
        await member.joined(asked)
    syncing = c.sync()
    assert isinstance(syncing, asyncio.Future)
    modern = Modern(service)
    await modern.join()
    assert await c.synced(syncing) == REBALANCE
    for member in (a, b, c):
        await member.rejoin()
    await converge([a, b, c], [modern])


async def test_a_group_without_a_generation_is_upgraded_without_members() -> None:
    service = await started()
    a = Classic(service)
    a.member_id = (await service.ask(a.join(), 9)).member_id
    joining = a.join()
    modern = Modern(service)
    assert (await modern.join()).error_code == NONE
    assert modern.owned == [0, 1, 2, 3]
    assert await a.joined(joining) == REBALANCE
    assert await a.joined(a.join()) == NONE
    assert await a.synced(a.sync()) == NONE
    await converge([a], [modern])
    assert written(service)[:2] == ["2", "-2"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"policy": "disabled"}, "online upgrade is disabled"),
        ({"policy": "DOWNGRADE"}, "online upgrade is disabled"),
        ({"group_consumer_max_size": "1"}, "exceeds the consumer group maximum size"),
    ],
)
async def test_an_upgrade_is_refused_with_the_reason(keys: dict[str, str], message: str) -> None:
    service = await started(None, **keys)
    a, b = await classic_group(service)
    before = len(service.log.records())
    refused = await Modern(service).join()
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message.startswith("Cannot upgrade classic group g to consumer group because ")
    assert message in refused.error_message
    assert (a.beat(), b.beat(), len(service.log.records())) == (NONE, NONE, before)


@pytest.mark.parametrize(
    ("given", "message", "code"),
    [
        (
            b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01x",
            "an unsupported custom assignor is in use",
            ErrorCode.GROUP_ID_NOT_FOUND,
        ),
        (b"\x00\x00\x00", "the embedded consumer protocol is malformed", ErrorCode.GROUP_ID_NOT_FOUND),
        # As in Kafka, where the append fails.
        (assignment(t=range(250_000)), "too large to be appended together", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_leader_with_data_of_its_own_stops_the_upgrade(given: bytes, message: str, code: ErrorCode) -> None:
    service = await started()
    a, b = await classic_group(service)
    joining = [a.join(), b.join()]
    for member, asked in zip((a, b), joining, strict=True):
        await member.joined(asked)
    await service.ask(a.sync({a.member_id: given}), 5)
    refused = await Modern(service).join()
    assert refused.error_code == code
    assert message in refused.error_message
    assert a.beat() == b.beat() == NONE


async def test_a_leader_that_gives_back_what_members_have_sent_does_not_stop_the_upgrade() -> None:
    service = await started()
    a, b = await classic_group(service)
    data = b"\x00\x00\x00\x02xy"
    metadata = b"\x00\x00\x00\x00\x00\x01\x00\x01t" + data
    joining = [a.join(metadata), b.join(metadata)]
    for member, asked in zip((a, b), joining, strict=True):
        await member.joined(asked)
    syncing = [a.sync({a.member_id: assignment(t=[0, 1, 2, 3])[:-4] + data}), b.sync()]
    for member, asked in zip((a, b), syncing, strict=True):
        assert await member.synced(asked) == NONE
    modern = Modern(service)
    assert (await modern.join()).error_code == NONE
    await converge([a, b], [modern])


@pytest.mark.parametrize(("protocol_type", "told"), [("connect", "connect"), ("consumer", None)])
async def test_a_classic_client_that_a_group_of_the_consumer_protocol_refuses_is_reported(
    protocol_type: str, told: str | None
) -> None:
    service = await started()
    assert (await Modern(service).join()).error_code == NONE
    await Classic(service).joined(Classic(service).join())
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name="own", metadata=b"")],
    )
    answer = await service.ask(service.groups.join(request, 3, CALLER), 3)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (refused,) = service.events_of(JoinRefused)
    assert (refused.protocol_type, refused.offered, refused.generation) == (told, ("own",), 3)
    assert refused.supported == ("cooperative-sticky",)


async def test_another_protocol_type_is_not_upgraded() -> None:
    service = await started()
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="connect",
        protocols=[JoinGroupRequestProtocol(name="default", metadata=b"")],
    )
    joining = service.groups.join(request, 3, CALLER)
    refused = await Modern(service).join()
    assert "does not use the consumer embedded protocol" in refused.error_message
    assert isinstance(joining, asyncio.Future)
    assert not joining.done()


async def test_a_member_that_is_refused_does_not_upgrade_the_group() -> None:
    service = await started(group_consumer_max_size="2")
    a, b = await classic_group(service)
    refused = await Modern(service).join()
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(group_of(service), ClassicGroup)
    assert a.beat() == b.beat() == NONE


async def test_a_member_that_has_joined_again_keeps_what_it_works_on() -> None:
    """It does not know its last assignment, whose record was written: its SyncGroup failed."""
    service = await started()
    a, b = await classic_group(service)
    assert a.owned == {0, 2}
    joining = [a.join(), b.join()]
    for member, asked in zip((a, b), joining, strict=True):
        assert await member.joined(asked) == NONE
    syncing = a.sync({a.member_id: assignment(t=[0]), b.member_id: assignment(t=[1, 3])})
    await service.ask(syncing, 5)  # The response is lost: the member goes on with both.
    waits = a.join()
    modern = Modern(service)
    joined = await modern.join()
    assert (joined.error_code, modern.owned) == (NONE, [])
    assert await a.joined(waits) == REBALANCE
    for _ in range(4):
        for member in (a, b):
            await member.rejoin()
        await modern.beat()
        owned = [*a.owned, *b.owned, *modern.owned]
        assert len(owned) == len(set(owned))
    assert sorted(owned) == [0, 1, 2, 3]


async def test_a_static_member_upgrades_in_its_place() -> None:
    service = await started()
    members = await classic_group(service, static=True)
    modern = Modern(service, instance="i0")
    joined = await modern.join()
    assert (joined.error_code, set(modern.owned)) == (NONE, {0, 2})
    assert members[1].beat() == NONE  # Nothing has changed for the other one.
    assert members[0].beat() == ErrorCode.UNKNOWN_MEMBER_ID
    # Back again: the group is classic at once, and rebalances, so that a member leads.
    back = Classic(service, "i0")
    assert await back.joined(back.join()) == NONE
    assert isinstance(group_of(service), ClassicGroup)
    assert await back.synced(back.sync()) == REBALANCE
    assert members[1].beat() == REBALANCE
    joining = [back.join(), members[1].join()]
    for member, asked in zip((back, members[1]), joining, strict=True):
        assert await member.joined(asked) == NONE
    group = group_of(service)
    assert isinstance(group, ClassicGroup)
    assert group.members.leader in (back.member_id, members[1].member_id)


@pytest.mark.parametrize("grown", [False, True], ids=["rebalancing", "grown"])
async def test_a_static_member_that_upgrades_a_group_without_a_whole_assignment_causes_a_new_one(grown: bool) -> None:
    service = await started()
    a, b = await classic_group(service, static=True)
    if grown:
        service.groups.topics_changed({"t": 5}, [Topic(T, "t", 5)])
    else:
        joining = [a.join(), b.join()]
        for member, asked in zip((a, b), joining, strict=True):
            assert await member.joined(asked) == NONE
    modern = Modern(service, instance="i0")
    joined = await modern.join()
    assert joined.member_epoch == group_of(service).generation == a.generation + 1
    assert b.beat() == REBALANCE
    for _ in range(4):
        await b.rejoin()
        await modern.beat()
    assert sorted([*b.owned, *modern.owned]) == list(range(5 if grown else 4))


async def mixed(**keys: str) -> tuple[Service, list[Classic], Modern]:
    """A group of two members of the classic protocol and one of the consumer protocol."""
    service = await started(None, **keys)
    members = await classic_group(service)
    modern = Modern(service)
    await modern.join()
    await converge(members, [modern])
    return service, members, modern


async def test_a_group_is_downgraded_when_the_last_member_of_the_consumer_protocol_leaves() -> None:
    service, (a, b), modern = await mixed()
    epoch = group_of(service).generation
    await service.ask(service.commit(5, member_id=a.member_id, generation=a.generation), 8)
    before = len(service.log.records())
    assert (await modern.leave()).error_code == NONE
    one, other = a.member_id, b.member_id
    assert written(service, before) == [
        *(f"-8 {each}" for each in (one, other, "c")),
        *(f"-7 {each}" for each in (one, other, "c")),
        "-6",
        *(f"-5 {each}" for each in (one, other, "c")),
        "-4",
        "-3",
        "2",
    ]
    value = read_group_value(service.log.records()[-1].value or b"")
    assert (value.protocol_type, value.generation, value.protocol) == ("consumer", epoch, "cooperative-sticky")
    assert {each.member_id: read_assignment(bytes(each.assignment))[0]["t"] for each in value.members} == {
        one: a.owned,
        other: b.owned,
    }
    group = group_of(service)
    assert isinstance(group, ClassicGroup)
    assert group.state.value == "PreparingRebalance"
    assert a.beat() == b.beat() == REBALANCE
    joining = [a.join(), b.join()]
    for member, asked in zip((a, b), joining, strict=True):
        assert await member.joined(asked) == NONE
    assert (a.generation, group.members.leader) == (epoch + 1, one)
    assert service.committed() == 5


async def test_a_downgraded_group_rebalances_on_the_next_coordinator_too() -> None:
    """Else the partitions of the member that was the last one of the consumer protocol would never have an owner."""
    service, (a, b), modern = await mixed()
    assert (await modern.leave()).error_code == NONE
    again = await started(service.log)
    a.service = b.service = again
    assert sorted((*a.owned, *b.owned)) != [0, 1, 2, 3]
    assert a.beat() == b.beat() == REBALANCE
    joining = [a.join(), b.join()]
    for member, asked in zip((a, b), joining, strict=True):
        assert await member.joined(asked) == NONE
    shares = {a.member_id: assignment(t=[0, 1]), b.member_id: assignment(t=[2, 3])}
    syncing = [a.sync(shares), b.sync()]
    for member, asked in zip((a, b), syncing, strict=True):
        assert await member.synced(asked) == NONE
    assert (a.owned, b.owned) == ({0, 1}, {2, 3})
    third = await started(again.log)
    a.service = b.service = third
    assert a.beat() == b.beat() == NONE, "it has rebalanced, and need not again"


async def test_a_member_that_expires_downgrades_the_group() -> None:
    service, (a, b), _ = await mixed()
    for _ in range(5):
        await service.after(9.5)
        a.beat()
        b.beat()
    assert isinstance(group_of(service), ClassicGroup)
    (event,) = [event for _, event in service.published if isinstance(event, GroupDowngraded)]
    assert (event.cause, event.members) == ("member_expired", 2)


async def test_an_administrator_downgrades_the_group() -> None:
    service, (a, b), _ = await mixed()
    assert (await service.ask(service.leave("c"), 5)).members[0].error_code == NONE
    assert isinstance(group_of(service), ClassicGroup)
    assert a.beat() == b.beat() == REBALANCE


async def test_all_members_leave_at_once() -> None:
    service, (a, b), _ = await mixed()
    await service.ask(service.leave(a.member_id, b.member_id, "c"), 5)
    group = group_of(service)
    assert isinstance(group, ConsumerGroup)
    assert group.is_empty


async def test_an_old_leave_group_has_one_member() -> None:
    service, (a, _), _ = await mixed()
    assert (await service.ask(service.leave("x", version=2), 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    left = await service.ask(service.leave(a.member_id, version=2), 2)
    assert (left.error_code, a.beat()) == (NONE, ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize("keys", [{"policy": "upgrade"}, {"group_max_size": "2"}])
async def test_a_group_that_may_not_be_downgraded_goes_on(keys: dict[str, str]) -> None:
    service, members, modern = await mixed(**keys)
    more = Classic(service)
    assert await more.joined(more.join()) == NONE
    assert await more.synced(more.sync()) == NONE
    await modern.leave()
    await service.after(0.5)
    assert isinstance(group_of(service), ConsumerGroup)
    await converge([*members, more], [])


async def test_a_downgrade_that_is_not_appended_is_repeated() -> None:
    service, (a, b), modern = await mixed()
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await modern.leave()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    service.log.fail = NONE
    # Another coordinator still finds the group of the consumer protocol; this one goes on.
    other = await started(service.log)
    assert isinstance(group_of(other), ConsumerGroup)
    before = len(service.log.records())
    joining = [a.join(), b.join()]
    for member, asked in zip((a, b), joining, strict=True):
        assert await member.joined(asked) == NONE
    shares = {a.member_id: assignment(t=[0, 1]), b.member_id: assignment(t=[2, 3])}
    syncing = [a.sync(shares), b.sync()]
    for member, asked in zip((a, b), syncing, strict=True):
        assert await member.synced(asked) == NONE
    records = written(service, before)
    assert (records.count("-3"), records.count("-8 c"), records[-1]) == (1, 1, "2")
    third = await started(service.log)
    assert isinstance(group_of(third), ClassicGroup)


async def test_a_group_that_is_upgraded_again_after_its_downgrade_was_not_appended_has_no_member_of_before() -> None:
    service, (a, b), modern = await mixed()
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await modern.leave()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    service.log.fail = NONE
    second = Modern(service, "d")
    assert (await second.join()).error_code == NONE
    assert modern.member_id == "c"
    found = group_of(await started(service.log))
    assert isinstance(found, ConsumerGroup)
    assert sorted(found.members) == sorted([a.member_id, b.member_id, "d"])
    assert "c" not in found.targets


async def test_an_upgrade_that_is_not_appended_is_repeated() -> None:
    service = await started()
    a, b = await classic_group(service)
    modern = Modern(service)
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await modern.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    service.log.fail = NONE
    assert isinstance(group_of(await started(service.log)), ClassicGroup)
    before = len(service.log.records())
    assert (await modern.join()).error_code == NONE
    assert written(service, before)[0] == "-2"
    await converge([a, b], [modern])
    third = await started(service.log)
    assert len(group_of(third).members) == 3


@pytest.mark.parametrize("upgraded", [False, True])
async def test_a_group_whose_change_of_protocol_was_not_appended_is_deleted_whole(upgraded: bool) -> None:
    if upgraded:
        service = await started()
        a, b = await classic_group(service)
        modern = Modern(service)
    else:
        service, (a, b), modern = await mixed()
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    if upgraded:
        await modern.join()
    else:
        await modern.leave()
    await service.ask(service.leave(a.member_id, b.member_id), 5)
    if upgraded:
        await modern.leave()
    await turn()
    assert isinstance(group_of(service), ConsumerGroup if upgraded else ClassicGroup)
    service.log.fail = NONE
    assert (await service.ask(service.delete("g"), 2)).results[0].error_code == NONE
    again = await started(service.log)
    assert "g" not in again.groups.groups


async def test_part_of_an_upgrade_is_no_upgrade() -> None:
    service = await started()
    a, b = await classic_group(service)
    modern = Modern(service)
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    joining = modern.send(0, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"], topic_partitions=[])
    await service.after(0.25)
    await modern.took(joining)
    # Only what came after it is appended, and then the broker dies.
    group = group_of(service)
    assert isinstance(group, ConsumerGroup)
    group._appends.unwritten.clear()
    service.log.fail = NONE
    await Modern(service, "d").join()
    again = await started(service.log)
    assert isinstance(group_of(again), ClassicGroup)
    for member in (a, b):
        member.service = again
        assert member.beat() == NONE
    # Its next record removes the leftovers.
    joining = [a.join(), b.join()]
    for member, asked in zip((a, b), joining, strict=True):
        assert await member.joined(asked) == NONE
    assert await a.synced(a.sync({a.member_id: assignment(t=[0])})) == NONE
    assert "-5 d" in written(again)


async def test_a_response_that_waits_for_the_log_is_sent_after_the_downgrade() -> None:
    service, _, modern = await mixed()
    c = Classic(service)
    c.member_id = (await service.ask(c.join(), 9)).member_id
    service.log.hold = True
    joining = c.join()
    leaving = modern.send(-1)
    await service.after(0.25)
    assert isinstance(group_of(service), ClassicGroup)
    assert not joining.done()
    assert not leaving.done()
    service.log.hold = False
    service.log.release()
    assert (await service.ask(leaving, 1)).error_code == NONE
    assert await c.joined(joining) == NONE
    # Its generation is that of the group of the consumer protocol: it joins the rebalance of the classic one.
    assert await c.synced(c.sync()) == REBALANCE


async def test_a_group_is_upgraded_again_before_its_downgrade_is_in_the_log() -> None:
    service, (a, b), modern = await mixed()
    service.log.hold = True
    leaving = modern.send(-1)
    await service.after(0.25)
    second = Modern(service, "d")
    joining = second.send(0, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"], topic_partitions=[])
    assert isinstance(group_of(service), ConsumerGroup)
    service.log.hold = False
    service.log.release()
    assert (await service.ask(leaving, 1)).error_code == NONE
    await second.took(joining)
    await converge([a, b], [second])
    again = await started(service.log)
    group = group_of(again)
    assert isinstance(group, ConsumerGroup)
    assert sorted(group.members) == sorted([a.member_id, b.member_id, "d"])


def told(service: Service) -> list[tuple[str, list[str], str | None]]:
    """The explanations of the group's events: text, details and remedy."""
    service.groups.journal.flush()
    return [(each.text, each.details, each.remedy) for each in explain(service.events.events_of("g"))]


def story(service: Service, start: str) -> tuple[str, list[str], str | None]:
    (found,) = [each for each in told(service) if each[0].startswith(start)]
    return found


async def test_an_upgrade_is_one_story() -> None:
    service = await started()
    members = await classic_group(service, static=True)
    modern = Modern(service, instance="i0")
    await modern.join()
    text, details, remedy = story(service, "Upgraded")
    assert text == (
        "Upgraded to the consumer protocol: i0 joined with it, and 1 member went on with the classic protocol."
    )
    assert details == []
    assert remedy == "To finish the upgrade, restart the other members with group.protocol=consumer."
    await service.after(2.0)
    assert members[1].beat() == NONE
    other = Modern(service, "d", "i1")
    await other.join()
    text, details, remedy = story(service, "Upgraded")
    assert details == [
        "After 2 s: static member i1 rejoined with a new member id; the upgrade is complete, with 2 members of the"
        " consumer protocol."
    ]
    assert remedy is None


async def test_an_upgrade_with_dynamic_members_and_its_way_back() -> None:
    service, (a, b), modern = await mixed()
    assert story(service, "Upgraded")[1] == []
    await service.ask(service.leave(b.member_id), 5)
    await service.after(1.0)
    await modern.leave()
    text, details, remedy = story(service, "Upgraded")
    assert details == [
        "After 0 ms: client…-id2 (127.0.0.1) left; 1 of 2 members uses the classic protocol.",
        "After 1 s: the group was downgraded again.",
    ]
    assert remedy is None
    text, details, remedy = story(service, "Downgraded")
    assert text == (
        "Downgraded to the classic protocol: client…c (127.0.0.1) left; 1 member of the classic protocol went on and"
        " rebalanced."
    )
    assert await a.joined(a.join()) == NONE
    assert await a.synced(a.sync({a.member_id: assignment(t=[0, 1, 2, 3])})) == NONE
    # The rebalance of the classic group knows why it was, and what happened in between is not part of it.
    generation = a.generation
    text, details, remedy = story(service, f"Generation {generation}")
    assert text == f"Generation {generation}: client…c (127.0.0.1) was the last member of the consumer protocol."
    assert details[0].startswith("Joining took ")


async def test_a_rebalance_that_an_upgrade_interrupts() -> None:
    service = await started()
    await classic_group(service)
    c = Classic(service)
    c.member_id = (await service.ask(c.join(), 9)).member_id
    joining = c.join()
    await Modern(service).join()
    assert await c.joined(joining) == REBALANCE
    texts = [each for each in told(service) if each[0].startswith("Generation 1 ended")]
    assert [each[1] for each in texts] == [["The group was upgraded to the consumer protocol before it was over."]]
