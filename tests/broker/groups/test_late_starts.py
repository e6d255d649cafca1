"""Members that begin to read long after they have got their partitions."""

from typing import Any

import pytest

from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.sightings import ClientAddress
from barnabas_broker.steps import finish
from barnabas_explain.catalog import MemberBeganLate
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker.groups.support import Service
from tests.broker.groups.test_fetch_reports import away
from tests.broker.groups.test_sightings import Program
from tests.broker.groups.test_stuck import Logs, Reader

T = b"t" * 16


async def restarted(logs: Logs, *, made_of: type[Reader] = Reader, committed: int | None = 5) -> Reader:
    """A member that has committed, was stopped, and has joined again."""

    class Reading(Service):
        def __init__(self) -> None:
            self.logs = logs
            super().__init__(group_initial_rebalance_delay_ms="0")

    member = made_of(await Reading().loaded(), "client")
    await member.join()
    await member.asks(0)
    await member.goes_on(5)
    if committed is not None:
        await member.commits(committed)
    await restarts(member)
    return member


async def restarts(member: Reader) -> None:
    member.leave()
    member.connection.lost("client", "")
    await member.service.after(1)
    member.connect()
    await member.join()


def late(member: Program) -> list[tuple[int, int]]:
    """For how many seconds members had their partitions before they began to read, and the records that waited."""
    found = member.service.events_of(MemberBeganLate)
    assert all(each.partitions == {"t": [0]} for each in found)
    return [(round(each.took_ms / 1000), each.records) for each in found]


async def test_a_member_whose_program_is_busy_before_its_first_poll() -> None:
    member = await restarted(Logs(20))
    await member.waits(50)
    assert late(member) == [], "it has not begun"
    await member.asks(0)
    await member.goes_on(5, 10, 15)
    await member.asks(0)
    assert late(member) == [(50, 15)]
    (event,) = member.service.events_of(MemberBeganLate)
    assert event.member.member_id == member.member_id
    await restarts(member)
    await member.waits(30)
    await member.asks(0)
    assert late(member) == [(50, 15), (30, 15)]


async def test_a_member_that_begins_late_with_offsets_of_its_own() -> None:
    member = await restarted(Logs(20))
    await member.waits(50)
    await member.goes_on(5, 10)
    assert late(member) == [(50, 15)]


@pytest.mark.parametrize("seconds", [1, 8])
async def test_a_member_that_begins_soon(seconds: int) -> None:
    member = await restarted(Logs(20))
    await member.service.after(seconds)
    await member.asks(0)
    await member.waits(50)
    await member.goes_on(5)
    assert late(member) == []


async def test_a_member_that_has_fetched_may_ask_for_committed_offsets_at_any_time() -> None:
    member = await restarted(Logs(20))
    await member.goes_on(5)
    await member.waits(50)
    await member.asks(0)
    assert late(member) == []


@pytest.mark.parametrize("committed", [20, None])
async def test_a_member_whose_partitions_have_no_records_to_read_does_not_begin_late(committed: int | None) -> None:
    member = await restarted(Logs(20), committed=committed)
    await member.waits(50)
    await member.asks(0)
    assert late(member) == []


async def test_records_that_have_come_to_a_partition_without_a_committed_offset() -> None:
    logs = Logs(20)
    member = await restarted(logs, committed=None)
    await member.waits(30)
    logs.written.append((member.service.wall, 18))
    await member.waits(20)
    await member.asks(0)
    assert late(member) == [(50, 2)]


async def test_markers_of_transactions_are_no_records() -> None:
    logs = Logs(20)
    member = await restarted(logs)
    logs.has = False
    await member.waits(50)
    await member.asks(0)
    assert late(member) == []


async def test_the_time_begins_anew_with_each_rebalance_of_the_classic_protocol() -> None:
    """A member that has to join again cannot read."""
    member = await restarted(Logs(20))
    for _ in range(4):
        await member.waits(5)
        await member.join_with()
    await member.asks(0)
    assert late(member) == []


async def test_a_member_that_rejoins_after_it_has_read_is_not_late() -> None:
    member = await restarted(Logs(20))
    await member.asks(0)
    await member.goes_on(5)
    await member.join_with()
    await member.waits(50)
    await member.asks(0)
    await member.goes_on(5)
    assert late(member) == []


async def test_members_of_one_client_id_and_host_are_not_told_apart() -> None:
    member = await restarted(Logs(20))
    other = Reader(member.service, "client")
    other.owned = ()
    await member.join_with(other)
    await member.waits(50)
    await member.asks(0)
    await member.goes_on(5)
    assert late(member) == []


async def test_a_client_that_a_quota_makes_wait_is_not_late() -> None:
    member = await restarted(Logs(20))
    await member.waits(25)
    member.fetches.throttled(ClientAddress("client", "/127.0.0.1"))
    await member.waits(25)
    await member.asks(0)
    assert late(member) == []


@pytest.mark.parametrize(
    ("asks", "reports", "found"),
    [(True, False, True), (True, True, False), (False, False, False)],
    ids=["it asks for committed offsets", "it may have fetched there before", "it only fetches"],
)
async def test_a_member_whose_partitions_another_broker_leads(asks: bool, reports: bool, found: bool) -> None:
    """It may have sent Fetches there before the coordinator sees one."""
    member = await away()
    await member.commits(5)
    if not reports:
        member.other.service = None
    await restarts(member)
    await Reader.waits(member, 50)
    if asks:
        await member.asks(0)
    member.service.groups.fetches.fetched(ClientAddress("client", "/127.0.0.1"))
    assert late(member) == ([(50, 15)] if found else [])


class Modern(Program):
    """A member of a group of the consumer protocol.

    Attributes:
        epoch: its member epoch.
        numbers: the partitions that it owns.
    """

    def __init__(self, service: Service, client_id: str) -> None:
        super().__init__(service, client_id)
        self.member_id = f"m-{client_id}"
        self.epoch = 0
        self.numbers: list[int] = []

    async def beats(self, *, reports: bool = False) -> None:
        fields: dict[str, Any] = {}
        if not self.epoch:
            fields = {"rebalance_timeout_ms": 300_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        elif reports:
            fields = {"topic_partitions": [HeartbeatTopicPartitions(topic_id=T, partitions=self.numbers)]}
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, member_epoch=self.epoch, **fields
        )
        response = await self.service.ask(self.service.groups.consumer_heartbeat(request, 1, self.caller), 1)
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.numbers = [each for topic in response.assignment.topic_partitions for each in topic.partitions]

    async def leaves(self) -> None:
        self.epoch = -1
        await self.beats()

    async def asks(self) -> None:
        wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=self.numbers)]
        group = OffsetFetchRequestGroup(group_id="g", member_id=self.member_id, member_epoch=self.epoch, topics=wanted)
        request = OffsetFetchRequest(groups=[group])
        await self.service.ask(finish(self.service.groups.offsets.fetch(request, 9, self.caller)), 9)

    @property
    def caller(self) -> Caller:
        return Caller(self.client_id, "/127.0.0.1", connection=self.connection)


async def modern(*client_ids: str) -> list[Modern]:
    """Programs that may become members of a group with a topic of one partition, of which 15 records wait."""

    class Reading(Service):
        logs = Logs(20)

    service = await Reading(group_consumer_assignment_interval_ms="0").loaded()
    service.groups.topics_changed({"t": 1}, [Topic(T, "t", 1)])
    service.commit(5)
    await service.after(1)
    return [Modern(service, each) for each in client_ids]


async def beat(*members: Modern, seconds: int) -> None:
    for _ in range(seconds // 5):
        for each in members:
            await each.beats()
        await members[0].service.after(5)


async def test_a_member_of_the_consumer_protocol_that_begins_late() -> None:
    (member,) = await modern("a")
    await member.beats()
    assert member.numbers == [0]
    await beat(member, seconds=50)
    await member.asks()
    assert late(member) == [(50, 15)]


async def test_a_member_without_partitions_has_nothing_to_begin_with() -> None:
    one, spare = await modern("a", "b")
    await one.beats()
    await one.asks()
    await spare.beats()
    await beat(one, spare, seconds=60)
    assert (one.numbers, spare.numbers) == ([0], [])
    await one.leaves()
    await beat(spare, seconds=5)
    assert spare.numbers == [0]
    await spare.asks()
    assert late(spare) == []
