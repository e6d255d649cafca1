"""Committed offsets that stand still while records wait: what is seen of their owner, and what is no such thing."""

from collections.abc import Mapping
from typing import TypeVar

import pytest

from barnabas_broker.coordinators.leader import DistantLog, Leader
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.coordinator.fetches import Fetches
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.sightings import ClientAddress
from barnabas_broker.steps import finish
from barnabas_broker.storage.retention import Removal
from barnabas_explain.catalog import (
    AbortedRecordsRead,
    CommitsBeyondEnd,
    CommitsLastRecord,
    CommitsOften,
    CommitsWentBack,
    FetchOutOfRange,
    LagGrows,
    MemberExpired,
    MemberLeft,
    MemberRewound,
    MemberSkipped,
    NothingCommitted,
    NothingFetched,
    OffsetsStuck,
    RecordsAborted,
)
from barnabas_explain.members import Partition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker.groups.support import Service
from tests.broker.groups.test_sightings import Program

#: Longer than group.stuck.offset.ms and the rebalance timeout of a :class:`Program`, in seconds.
LONG = 45


class Logs:
    """One partition.

    Attributes:
        start: its first offset.
        end_offset: its last stable offset, and its end.
        has: whether a consumer gets a record from its committed offset on.
        here: whether this broker has a replica that is in sync.
        leads: its leader.
        compressed: the codec of each batch, and those of the batches before.
        compressed_at: the first offset of such a batch; None if it is that of each one.
        is_aborted: whether all of its records are in aborted transactions.
        written: the times of its batches in ms, and their first offsets.
    """

    def __init__(self, end: int = 20) -> None:
        self.start, self.end_offset = 0, end
        self.has: bool | None = True
        self.here = True
        self.leads = Leader(1, 0, is_here=True)
        self.reported: Mapping[Partition, DistantLog] = {}
        self.compressed: tuple[str, tuple[str, ...]] | None = ("none", ())
        self.compressed_at: int | None = None
        self.is_aborted = False
        self.removed: Removal | None = None
        self.aborts: tuple[int, str | None] | None = None
        self.written: list[tuple[int, int]] = []

    def leader(self, topic: str, partition: int) -> Leader | None:
        return self.leads

    def is_distant(self, topic: str, partition: int) -> bool:
        return not self.here

    def learn(self, reported: Mapping[Partition, DistantLog]) -> None:
        self.reported = reported

    def _distant(self, topic: str, partition: int) -> DistantLog | None:
        return None if self.here else self.reported.get((topic, partition))

    def readable(self, topic: str, partition: int) -> tuple[int, int] | None:
        distant = self._distant(topic, partition)
        if distant is not None:
            return distant.start, distant.stable
        return (self.start, self.end_offset) if self.here else None

    def removal(self, topic: str, partition: int) -> Removal | None:
        return self.removed

    def end(self, topic: str, partition: int) -> int | None:
        return self.end_offset if self.here else None

    def has_records(self, topic: str, partition: int, offset: int) -> bool | None:
        distant = self._distant(topic, partition)
        if distant is not None:
            return distant.has_records if distant.offset == offset else None
        return self.has

    def since(self, topic: str, partition: int, time_ms: int) -> int | None:
        return next((offset for at, offset in self.written if at >= time_ms), None)

    def codecs(self, topic: str, partition: int, offset: int) -> tuple[str, tuple[str, ...], int] | None:
        at = offset if self.compressed_at is None else self.compressed_at
        return None if self.compressed is None else (*self.compressed, at)

    def aborted_between(self, topic: str, partition: int, start: int, end: int) -> tuple[int, str | None] | None:
        return self.aborts if start < end else self.aborts and (0, None)

    def aborted(self, topic: str, partition: int, offset: int) -> tuple[int, int, tuple[str, ...]] | None:
        return (self.end_offset - offset, self.end_offset, ("prices",)) if self.is_aborted else None


class Reader(Program):
    """A member that fetches one partition, and sends heartbeats.

    Attributes:
        is_committed: whether it is ``read_committed``.
    """

    is_committed = False

    @property
    def fetches(self) -> Fetches:
        """What the leader of the partitions sees of its Fetches."""
        return self.service.groups.fetches

    async def goes_on(
        self, *offsets: int, seconds: float = 1.0, delivered: bool = True, partitions: tuple[int, ...] = (0,)
    ) -> None:
        """Fetch at each of these offsets, one after the other."""
        for offset in offsets:
            address = ClientAddress(self.client_id, "/127.0.0.1")
            fetch = self.fetches.fetched(address, is_committed=self.is_committed)
            for partition in partitions:
                watch = None if fetch is None else fetch.asks(("t", partition), offset)
                if watch is not None and delivered:
                    watch.delivered()
            await self.waits(seconds)

    async def asks(self, *partitions: int) -> None:
        """Ask for committed offsets, as clients do when they have got partitions."""
        wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=list(partitions))]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])
        await self.service.ask(finish(self.service.groups.offsets.fetch(request, 8, self.caller)), 8)

    async def waits(self, seconds: float = LONG) -> None:
        """Only send heartbeats."""
        for _ in range(max(round(seconds / 5), 1)):
            self.heartbeat()
            await self.service.after(min(seconds, 5))

    async def commits(self, offset: int, partition: int = 0) -> None:
        answer = self.service.commit(
            offset,
            partition=partition,
            member_id=self.member_id,
            generation=self.generation,
            version=7,
            caller=self.caller,
        )
        await self.service.ask(answer, 7)

    @property
    def stuck(self) -> list[OffsetsStuck]:
        return self.service.events_of(OffsetsStuck)


R = TypeVar("R", bound=Reader)


async def reader_of(made_of: type[R], logs: Logs, client_id: str = "client", asked: tuple[int, ...] = (0, 1)) -> R:
    class Reading(Service):
        def __init__(self) -> None:
            self.logs = logs
            super().__init__(group_stuck_offset_ms="5000", group_initial_rebalance_delay_ms="0")

    made = made_of(await Reading().loaded(), client_id)
    await made.join()
    await made.asks(*asked)
    return made


async def reader(logs: Logs, client_id: str = "client") -> Reader:
    return await reader_of(Reader, logs, client_id)


async def test_a_member_that_gets_the_same_record_again_and_again() -> None:
    member = await reader(Logs())
    await member.commits(5)
    await member.goes_on(*([5, 8] * 20))
    (event,) = member.stuck
    assert (event.fetches, event.offset, event.positions) == ("again", 5, (("t", 0, 5),))
    assert event.records == 15
    assert event.deliveries is not None
    assert event.deliveries >= 10
    assert event.member.client_id == "client"


@pytest.mark.parametrize("fails", [False, True])
async def test_a_member_that_goes_on_at_its_committed_offset_after_each_rebalance_does_not_fail(fails: bool) -> None:
    member = await reader(Logs())
    await member.commits(5)
    for _ in range(8):
        await member.join_with()
        await member.goes_on(*([5, 8] * (3 if fails else 1)), seconds=4)
    assert ("again" in {event.fetches for event in member.stuck}) is fails


@pytest.mark.parametrize(("each_on_a_new_connection", "found"), [(True, True), (False, False)])
async def test_a_client_that_connects_again_after_each_response_with_a_batch_that_is_too_large(
    each_on_a_new_connection: bool, found: bool
) -> None:
    member = await reader(Logs())
    await member.commits(5)
    for number in range(45):
        connection = number if each_on_a_new_connection else number // 2
        client = ClientAddress(member.client_id, "/127.0.0.1")
        fetch = member.service.groups.fetches.fetched(client, connection=connection)
        watch = None if fetch is None else fetch.asks(("t", 0), 5)
        if watch is not None:
            watch.delivered(400_000, 60_000)
        await member.waits(1)
    event = member.stuck[0]
    assert event.fetches == "again"
    seen = (event.reconnects or 0) >= 2, event.response_bytes, event.max_bytes
    assert seen == ((True, 400_000, 60_000) if found else (False, None, None))


@pytest.mark.parametrize(
    ("waits", "gives_up"), [((11,), True), ((1,), False), ((4, 11), False)], ids=["constant", "at once", "varies"]
)
async def test_a_client_that_connects_again_after_the_same_time_each_time_has_probably_given_up(
    waits: tuple[float, ...], gives_up: bool
) -> None:
    member = await reader(Logs())
    await member.commits(5)
    for number in range(45 // round(waits[0]) + 4):
        client = ClientAddress(member.client_id, "/127.0.0.1")
        fetch = member.service.groups.fetches.fetched(client, connection=number)
        watch = None if fetch is None else fetch.asks(("t", 0), 5)
        if watch is not None:
            watch.delivered(400_000, 500_000)
        for _ in range(round(waits[number % len(waits)])):
            await member.waits(1)
    event = member.stuck[-1]
    assert (event.fetches, event.reconnects is not None) == ("again", True)
    assert (event.gives_up_ms is not None) is gives_up
    assert not gives_up or event.gives_up_ms == pytest.approx(11_000)


async def test_a_member_that_reads_a_record_again_after_a_pause_may_wait_on_purpose() -> None:
    """A delay queue goes back to a record that is too young, and pauses."""
    member = await reader(Logs())
    await member.commits(5)
    for _ in range(8):
        await member.goes_on(5, 20, seconds=1)
        await member.waits(15)
    event = member.stuck[-1]
    assert (event.fetches, event.offset) == ("again", 5)
    assert 14_000 <= (event.every_ms or 0) <= 18_000
    assert event.may_wait
    assert not event.is_proven


async def test_a_member_that_waits_before_records_of_two_partitions_is_told_once() -> None:
    member = await reader_of(TwoPartitions, Logs())
    for partition in member.owned:
        await member.commits(5, partition)
    for _ in range(8):
        await member.goes_on(5, 20, partitions=member.owned)
        await member.waits(15)
    event = member.stuck[-1]
    assert (event.fetches, event.positions) == ("again", (("t", 0, 5), ("t", 1, 5)))


async def timing_out(
    member: Reader, *, host: str = "/127.0.0.1", every: int = 1, offsets: tuple[int, ...] = (5,)
) -> None:
    """A program whose transactions are aborted by their timeout, and which then reads again.

    Args:
        member: it reads at these offsets.
        host: from which the producer comes.
        every: so many reads are from one abort to the next.
        offsets: of each read.
    """
    for read in range(12):
        if read % every == 0:
            member.service.timed_out.aborted("orders-1", host, 10_000, 19_000, member.service.time)
        await member.goes_on(*offsets, seconds=1)
        await member.waits(15)


async def test_a_member_whose_transactions_are_aborted_by_their_timeout() -> None:
    member = await reader_of(TwoPartitions, Logs())
    for partition in member.owned:
        await member.commits(5, partition)
    sight = member.service.groups._hosted_groups.by_id["g"].sightings.get(member.member_id)
    assert sight is not None
    sight.transactional_id = "orders-1"
    await timing_out(member, offsets=(5, 20))
    event = member.stuck[-1]
    assert event.positions == (("t", 0, 5), ("t", 1, 5))
    assert (event.transactional_id, event.is_own, event.open_ms) == ("orders-1", True, 19_000)
    assert event.transaction_timeout_ms == 10_000
    assert (event.aborts or 0) >= 6
    assert event.is_proven
    member.service.timed_out.committed("orders-1")
    await member.waits(300)
    assert member.stuck[-1].aborts is None


@pytest.mark.parametrize(
    ("host", "every", "found"), [("/127.0.0.1", 1, True), ("/10.0.0.1", 1, False), ("/127.0.0.1", 2, False)]
)
async def test_a_member_that_reads_again_after_each_abort_of_its_host(host: str, every: int, found: bool) -> None:
    member = await reader(Logs())
    await member.commits(5)
    await timing_out(member, host=host, every=every, offsets=(5, 20))
    event = member.stuck[-1]
    assert event.fetches == "again"
    assert (event.transactional_id, event.is_own) == (("orders-1", False) if found else (None, None))


async def test_aborts_of_another_id_of_its_host_are_not_those_of_a_member_that_commits_in_transactions() -> None:
    member = await reader(Logs())
    await member.commits(5)
    sight = member.service.groups._hosted_groups.by_id["g"].sightings.get(member.member_id)
    assert sight is not None
    sight.transactional_id = "another"
    await timing_out(member, offsets=(5, 20))
    assert (member.stuck[-1].transactional_id, member.stuck[-1].aborts) == ("another", None)


async def test_a_group_without_commits_whose_transactions_are_aborted() -> None:
    member = await reader(Logs())
    await timing_out(member, offsets=(0, 20))
    event = member.service.events_of(NothingCommitted)[-1]
    assert (event.transactional_id, event.is_own, event.offset) == ("orders-1", False, 0)


ZSTD = ("zstd", ("none",))


@pytest.mark.parametrize(
    ("offsets", "compressed", "codec"),
    [
        ([5], ZSTD, "zstd"),
        ([5], ("zstd", ()), "zstd"),
        ([5], ("zstd", ("none", "zstd")), None),
        ([5], ("none", ("zstd",)), None),
        ([5], None, None),
        ([5, 8], ZSTD, None),
    ],
    ids=["the first one", "none before", "it has read others", "not compressed", "not known", "it gets past it"],
)
async def test_a_batch_that_a_member_may_not_be_able_to_read(
    offsets: list[int], compressed: tuple[str, tuple[str, ...]] | None, codec: str | None
) -> None:
    logs = Logs()
    logs.compressed = compressed
    member = await reader(logs)
    await member.commits(5)
    await member.goes_on(*(offsets * 40))
    event = member.stuck[0]
    assert (event.fetches, event.codec) == ("again", codec)
    assert event.codecs_before == (compressed[1] or None if codec and compressed else None)


@pytest.mark.parametrize("was_there", [True, False])
async def test_a_batch_soon_after_the_committed_offset_was_there_when_the_member_stopped(was_there: bool) -> None:
    """The member fetches nothing more, and leaves as it is not polled."""
    logs = Logs()
    logs.compressed, logs.compressed_at = ZSTD, 8
    member = await reader(logs)
    await member.commits(5)
    logs.written.append((member.service.wall + 60_000, 9 if was_there else 8))
    await member.goes_on(5, 8)
    await member.waits()
    (event,) = member.stuck
    found = (*ZSTD, (("t", 0, 8),)) if was_there else (None, None, None)
    assert (event.codec, event.codecs_before, event.codec_at) == found
    member.leave()
    (left,) = member.service.events_of(MemberLeft)
    assert (left.codec, left.codecs_before, left.codec_at) == found


@pytest.mark.parametrize("offsets", [[0], [0, 20]], ids=["it cannot read it", "it begins anew each time"])
async def test_a_group_without_commits_that_does_not_get_past_its_first_batch(offsets: list[int]) -> None:
    logs = Logs()
    logs.compressed = "lz4", ()
    member = await reader(logs)
    await member.goes_on(*(offsets * 40))
    found = [(event.offset, event.codec) for event in member.service.events_of(NothingCommitted)]
    assert found == ([(0, "lz4")] if len(offsets) == 1 else [])


async def test_a_member_that_does_not_fetch() -> None:
    member = await reader(Logs())
    await member.commits(5)
    await member.goes_on(5, 20)
    await member.waits()
    (event,) = member.stuck
    assert event.fetches == "none"
    assert event.fetched_ago_ms is not None
    assert event.fetched_ago_ms > 25_000


@pytest.mark.parametrize(
    ("offsets", "given"),
    [
        (range(5, 18), 16),
        ((*range(5, 17), *[17] * 12), 17),
        ((5, 17, 18), 17),
        ((5, 18, 5), None),
    ],
    ids=["it has asked for more", "it waits for more", "it got the first ones at once", "it went back"],
)
async def test_up_to_where_a_member_had_got_records_when_it_left(offsets: tuple[int, ...], given: int | None) -> None:
    member = await reader(Logs())
    await member.commits(5)
    await member.waits(5)
    await member.goes_on(*offsets)
    member.leave()
    (left,) = member.service.events_of(MemberLeft)
    assert (left.positions or ())[0] == ("t", 0, 5)
    assert left.given == (None if given is None else (("t", 0, given),))


class TwoPartitions(Reader):
    """A member that has read records of two partitions, and works through them: it fetches seldom or nothing more."""

    owned: tuple[int, ...] = (0, 1)

    async def works(self, *offsets: int, fetches: int = 0) -> None:
        """Commit both partitions, and then each of these offsets of the second one, one after 4 s.

        Args:
            offsets: to commit.
            fetches: so many Fetches of the second partition follow each commit whose offset can be divided by 4.
        """
        await self.commits(5)
        await self.goes_on(5)
        for offset in offsets:
            for _ in range(0 if offset % 4 else fetches):
                fetch = self.fetches.fetched(ClientAddress(self.client_id, "/127.0.0.1"))
                if fetch is not None:
                    fetch.asks(("t", 1), offset)
            await self.commits(offset, 1)
            await self.waits(4)


@pytest.mark.parametrize("fetches", [0, 1])
async def test_a_member_that_advances_in_another_partition_does_not_stand_still(fetches: int) -> None:
    """It may fetch more records of that one when it has worked through those that it has."""
    member = await reader_of(TwoPartitions, Logs(100))
    await member.works(*range(1, 20), fetches=fetches)
    assert member.stuck == []
    await member.waits(90)
    assert {place.partition for event in member.stuck for place in event.positions} == {0, 1}


async def test_a_member_that_fetches_another_partition_all_the_time_has_paused_this_one() -> None:
    member = await reader_of(TwoPartitions, Logs(100))
    await member.works(*range(1, 20), fetches=20)
    event = member.stuck[0]
    assert (event.fetches, event.positions) == ("none", (("t", 0, 5),))


async def test_a_member_that_has_closed_its_connection_is_away() -> None:
    """A static one may be so for long."""
    member = await reader(Logs())
    await member.commits(5)
    await member.goes_on(5, 20)
    member.connection.lost("client", "")
    await member.waits()
    assert not member.stuck


async def test_a_look_that_fails_is_not_the_last_one() -> None:
    logs = Logs()
    member = await reader(logs)
    await member.commits(5)
    check = member.service.groups._stuck
    check._runs, looks = True, check._look_at_all(logs)
    logs.readable = None  # type: ignore[assignment,method-assign]
    with pytest.raises(TypeError):
        list(looks)
    del logs.readable
    await member.waits()
    assert len(member.stuck) == 1


async def test_it_is_told_again_when_it_has_lasted_twice_as_long() -> None:
    member = await reader(Logs())
    await member.commits(5)
    await member.waits(200)
    first, second, third = (event.stood_ms for event in member.stuck)
    assert second >= 2 * first
    assert third >= 2 * second


async def test_a_member_that_reads_on_and_does_not_commit() -> None:
    member = await reader(Logs(100))
    await member.commits(5)
    await member.goes_on(*range(5, 45))
    (event,) = member.stuck
    assert event.fetches == "beyond"
    assert not event.is_proven


async def test_a_member_that_usually_commits_seldom_is_told_once() -> None:
    """A sink that writes a file, and commits then."""
    member = await reader(Logs(1_000))
    for offset in range(0, 200, 40):
        await member.commits(offset + 5)
        await member.goes_on(*range(offset + 5, offset + 45))
    (event,) = member.stuck
    assert event.fetches == "beyond"
    await member.goes_on(*range(205, 305))
    assert [each.positions[0].offset for each in member.stuck] == [5, 165], "it commits no more"


@pytest.mark.parametrize("fetches_ahead", [False, True])
async def test_a_lag_that_grows(fetches_ahead: bool) -> None:
    logs = Logs(0)
    member = await reader(logs)
    for offset in range(10, 400, 10):
        logs.end_offset += 40
        await member.commits(offset)
        await member.goes_on(logs.end_offset if fetches_ahead else offset)
    found = member.service.events_of(LagGrows)
    first = found[0]
    assert (first.led, first.committed_in, first.factor) == (1, 1, 4)
    assert first.lag - first.lag_before == first.written - first.consumed > 100
    assert [each.took_ms for each in found[1:]] > [each.took_ms * 1.9 for each in found[:-1]]


class Patient(Reader):
    """One of two members, which has a day for the work between two polls."""

    rebalance_timeout_ms = 86_400_000
    software = "librdkafka 2.5"

    async def commits_and_fetches(self, offset: int, *, fetches_from: int) -> None:
        """Commit its partition, and send a Fetch; the time does not pass."""
        if offset >= 0:
            await self.commits(offset, self.owned[0])
        fetch = self.service.groups.fetches.fetched(ClientAddress(self.client_id, "/127.0.0.1"))
        if fetch is not None:
            fetch.asks(("t", self.owned[0]), fetches_from)
        self.heartbeat()


async def two_members(logs: Logs) -> tuple[Patient, Patient]:
    first = await reader_of(Patient, logs, "first")
    second = Patient(first.service, "second")
    second.owned = (1,)
    await first.join_with(second)
    await first.asks(0)
    await second.asks(1)
    return first, second


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_lag_that_grows_says_what_is_written_to_the_partition_that_has_it(hangs: bool) -> None:
    """The second member gets on more slowly than is written, or hangs at last."""
    logs = Logs(0)
    first, second = await two_members(logs)
    for look in range(500):
        logs.end_offset += 10
        logs.written.append((round(first.service.wall), logs.end_offset - 10))
        await first.commits(logs.end_offset - 1)
        await second.commits(20 if hangs and look > 20 else 1 + look, 1)
        second.heartbeat()
        await first.goes_on(logs.end_offset)
    grows = first.service.events_of(LagGrows)[-1]
    assert [each.positions[0][:2] for each in grows.behind or ()] == [("t", 1)]
    if hangs:
        assert grows.written_there is None
    else:
        assert grows.written_there == pytest.approx(10 * grows.took_ms / 1000, rel=0.05)


async def test_the_lag_of_a_topic_that_members_do_not_read_any_more_is_not_theirs() -> None:
    logs = Logs(0)
    member = await reader(logs)
    answer = member.service.commit(
        0, topic="old", member_id=member.member_id, generation=member.generation, version=7, caller=member.caller
    )
    await member.service.ask(answer, 7)
    for end in range(40, 4_000, 40):
        logs.end_offset = end
        await member.commits(end - 10)
        await member.goes_on(end)
    assert member.service.events_of(LagGrows) == []


async def test_a_lag_that_grows_says_which_member_has_it_and_since_when_that_stands_still() -> None:
    """The second one hangs after its first commits; its library fetches ahead."""
    logs = Logs(0)
    first, second = await two_members(logs)
    for look in range(800):
        logs.end_offset += 10
        await first.commits_and_fetches(logs.end_offset, fetches_from=logs.end_offset)
        hangs = look >= 3
        await second.commits_and_fetches(-1 if hangs else logs.end_offset, fetches_from=logs.end_offset)
        await first.service.after(1)
    grows = first.service.events_of(LagGrows)
    assert {(event.members, event.idle, event.owned) for event in grows} == {(2, 0, 2)}
    (behind,) = grows[-1].behind or ()
    assert (behind.member.client_id, behind.positions) == ("second", (("t", 1, 30),))
    assert behind.stood_ms is not None
    assert abs(behind.stood_ms - grows[-1].took_ms) < 20_000
    stuck = first.stuck[0]
    assert (stuck.member.client_id, stuck.fetches, stuck.commits, stuck.others_keep_up) == ("second", "beyond", 3, True)
    assert 600_000 <= stuck.stood_ms < 620_000
    assert stuck.is_proven


@pytest.mark.parametrize(("late", "found"), [(0, True), (1_000, True), (2_000, False)])
async def test_a_lag_that_grows_where_the_offsets_of_several_members_stand(late: int, found: bool) -> None:
    """Each of them does not get on in one of its partitions, and gets on in the other one, so many records late."""
    logs = Logs(0)
    first = await reader_of(Patient, logs, "first")
    second = Patient(first.service, "second")
    first.owned, second.owned = (0, 2), (1, 3)
    await first.join_with(second)
    for look in range(400):
        logs.end_offset += 10
        for member, (gets_on, stands) in ((first, (0, 2)), (second, (1, 3))):
            await member.commits(max(logs.end_offset - late, look), gets_on)
            if look < 3:
                await member.commits(logs.end_offset, stands)
            member.heartbeat()
        await first.service.after(1)
    grows = first.service.events_of(LagGrows)
    assert grows
    behind = {each.member.client_id: each.positions for each in grows[-1].behind or ()}
    assert behind == ({"first": (("t", 2, 30),), "second": (("t", 3, 30),)} if found else {})
    assert all((each.stood_ms or 0) >= grows[-1].took_ms / 3 for each in grows[-1].behind or ())


async def test_a_worker_of_one_partition_that_hangs_while_the_member_reads_on() -> None:
    logs = Logs(0)
    member = await reader_of(TwoPartitions, logs)
    for second in range(60):
        logs.end_offset += 10
        if second == 0:
            await member.commits(10, 0)
        await member.commits(logs.end_offset, 1)
        await member.goes_on(logs.end_offset, partitions=(0, 1))
    stuck = member.stuck[0]
    assert (stuck.fetches, stuck.positions, stuck.hangs) == ("beyond", (("t", 0, 10),), True)
    assert (stuck.lag_of_others or 0) <= 10


async def aborting(*, is_committed: bool = True, records: tuple[int, ...] = ()) -> list[RecordsAborted]:
    """What is reported of a member that commits past aborted records; at these looks there are others."""
    logs = Logs(0)
    logs.is_aborted, logs.has = True, False
    member = await reader(logs)
    member.is_committed = is_committed
    for look in range(40):
        logs.end_offset += 40
        logs.is_aborted = look not in records
        await member.goes_on(logs.end_offset - 30)
        await member.commits(logs.end_offset - 20)
    return member.service.events_of(RecordsAborted)


async def test_a_group_whose_records_are_all_aborted() -> None:
    first, second, *_ = await aborting()
    assert (first.partitions, first.transactional_ids) == ({"t": [0]}, ("prices",))
    assert 5_000 <= first.took_ms <= 7_000
    assert first.records >= 40 * 5
    assert second.took_ms >= 2 * first.took_ms


async def test_a_group_that_gets_a_record_now_and_then() -> None:
    assert await aborting(records=tuple(range(0, 40, 4))) == []


async def test_a_group_that_is_not_read_committed_gets_aborted_records() -> None:
    assert await aborting(is_committed=False) == []


class ThreePartitions(Reader):
    """A member that reads three partitions."""

    owned = (0, 1, 2)


@pytest.mark.parametrize("reads_all", [True, False])
async def test_lag_of_partitions_that_are_read_to_the_end_and_not_committed_is_no_lag_that_grows(
    reads_all: bool,
) -> None:
    """One partition is committed, as there only are the records that a filter lets pass."""
    logs = Logs(0)
    member = await reader_of(ThreePartitions, logs, asked=(0, 1, 2))
    for partition in (1, 2):
        await member.commits(0, partition)
    for _ in range(60):
        logs.end_offset += 40
        await member.commits(logs.end_offset, 0)
        await member.goes_on(logs.end_offset if reads_all else 1, partitions=(0, 1, 2))
    assert bool(member.service.events_of(LagGrows)) == (not reads_all)


@pytest.mark.parametrize("client_id", ["client", "another"])
async def test_a_lag_that_grows_says_which_client_a_quota_makes_wait(client_id: str) -> None:
    logs = Logs(0)
    member = await reader(logs)
    for offset in range(10, 400, 10):
        logs.end_offset += 40
        await member.commits(offset)
        member.service.groups.fetches.throttled(ClientAddress(client_id, "/127.0.0.1"))
        await member.goes_on(offset)
    throttled = {event.throttled for event in member.service.events_of(LagGrows)}
    assert throttled == {("client",) if client_id == "client" else None}


@pytest.mark.parametrize(("records", "seconds", "is_told"), [(1, 0.02, True), (2, 0.02, False), (1, 0.1, False)])
async def test_a_member_that_commits_each_record_many_times_a_second(
    records: int, seconds: float, is_told: bool
) -> None:
    member = await reader(Logs(10_000))
    for offset in range(0, round(9 / seconds) * records, records):
        await member.commits(offset + records)
        await member.service.after(seconds)
        if offset % 100 == 0:
            member.heartbeat()
    found = member.service.events_of(CommitsOften)
    assert [event.took_ms >= 5_000 for event in found] == [True] * is_told
    for event in found:
        assert (event.member.client_id, event.commits) == ("client", event.records)
        assert 20 <= event.commits / event.took_ms * 1000 <= 51


@pytest.mark.parametrize(
    ("commits", "later", "seconds", "is_told"),
    [(-1, 0.1, 20, True), (0, 0.1, 20, False), (0, 0.9, 20, False), (-1, 0.1, 4, False), (-2, 0.1, 20, False)],
    ids=["the last record", "the next one", "late", "a short time", "two records before"],
)
async def test_a_member_that_commits_the_offset_of_the_last_record(
    commits: int, later: float, seconds: int, is_told: bool
) -> None:
    logs = Logs(0)
    member = await reader(logs)
    for end in range(1, seconds + 1):
        logs.end_offset = end
        await member.goes_on(end, seconds=later)
        await member.commits(max(end + commits, 0))
        await member.goes_on(end, seconds=1 - later)
    found = member.service.events_of(CommitsLastRecord)
    assert bool(found) is is_told
    for event in found:
        assert (event.member.client_id, event.partitions) == ("client", {"t": [0]})
        assert event.times >= 5
        assert event.took_ms >= 5_000
    assert len(found) <= 2, "again when it has lasted twice as long"


async def test_a_member_that_reaches_the_end_now_and_then_is_only_late() -> None:
    logs = Logs(0)
    member = await reader(logs)
    for end in range(1, 30):
        logs.end_offset = end
        await member.goes_on(end, seconds=0.1)
        await member.commits(end - 1 if end % 4 else end)
        await member.goes_on(end, seconds=0.9)
    assert member.service.events_of(CommitsLastRecord) == []


async def test_a_member_whose_connection_is_closed_has_no_twin() -> None:
    member = await reader(Logs(100))
    await member.commits(5)
    await member.waits(25)
    member.heartbeat()
    member.connection.lost("client", "")
    await member.service.after(8)
    assert not member.stuck, "what ends does not stand still"


async def test_a_member_that_connects_anew_is_not_another_one() -> None:
    member = await reader(Logs(100))
    await member.commits(5)
    await member.goes_on(5, 8)
    member.connect()
    await member.goes_on(*([5, 8] * 20))
    (event,) = member.stuck
    assert event.fetches == "again"


async def test_fetches_of_members_of_two_groups_that_are_alike_are_not_told_apart() -> None:
    logs = Logs(100)
    logs.compressed = ZSTD
    member = await reader(logs)
    await member.commits(5)
    other = Reader(member.service, member.client_id)
    await other.join("h")
    await member.goes_on(*([5, 8] * 20))
    (event,) = member.stuck
    assert (event.fetches, event.fetched_ago_ms) == ("unknown", None)
    assert (event.codec, event.codecs_before, event.codec_at) == (*ZSTD, None)
    assert event.is_proven


async def test_fetches_of_members_of_a_group_that_are_alike_are_told_apart_by_their_partitions() -> None:
    """As on a laptop, where each program has the client id of its library."""
    member = await reader(Logs(100))
    other = Reader(member.service, member.client_id)
    other.owned = (1,)
    await member.join_with(other)
    await other.asks(1)
    await member.commits(5)
    for offset in (5, 8) * 20:
        other.heartbeat()
        await member.goes_on(offset)
    (event,) = member.stuck
    assert (event.fetches, event.offset, event.fetched_ago_ms) == ("again", 5, None)


async def test_fetches_of_members_of_two_groups_that_are_alike_are_told_apart_by_their_topics() -> None:
    member = await reader(Logs(100))
    await member.commits(5)
    other = Reader(member.service, member.client_id)
    other.reads = "other"
    await other.join("h")
    await member.goes_on(*([5, 8] * 20))
    (event,) = member.stuck
    assert (event.fetches, event.offset) == ("again", 5)


@pytest.mark.parametrize("grows", [True, False])
async def test_a_group_without_commits_of_members_that_are_alike(grows: bool) -> None:
    logs = Logs(100)
    member = await reader(logs)
    other = Reader(member.service, member.client_id)
    await other.join("h")
    await member.goes_on(1, 2, 3)
    logs.end_offset += 50 * grows
    await member.goes_on(*range(60))
    found = member.service.events_of(NothingCommitted)
    assert [(event.group, event.written) for event in found[:1]] == [("g", 50)] * grows


async def test_a_fetch_of_the_program_before_is_not_that_of_a_member() -> None:
    member = await reader(Logs())
    await member.commits(5)
    member.service.groups.fetches.fetched(ClientAddress(member.client_id, "/127.0.0.1"))
    await member.waits(5)
    member.leave()
    successor = Reader(member.service, member.client_id)
    await successor.join()
    await successor.asks(0)
    member.connection.lost("client", "")
    await successor.waits(60)
    (event,) = successor.stuck
    assert (event.fetches, event.fetched_ago_ms) == ("none", None)


async def test_who_waits_for_a_transaction_has_another_explanation() -> None:
    member = await reader(Logs())
    await member.commits(5)
    assert await member.service.committed_in_transaction(8) == 0
    await member.waits()
    assert not member.stuck


async def test_a_group_without_commits() -> None:
    member = await reader(Logs(100))
    await member.goes_on(*range(45))
    (event,) = member.service.events_of(NothingCommitted)
    assert event.partitions == {"t": [0]}
    assert event.ahead > 10
    assert not member.stuck


@pytest.mark.parametrize("commits_both", [False, True])
async def test_a_member_that_commits_only_one_of_the_partitions_that_it_reads(commits_both: bool) -> None:
    logs = Logs(1_000)
    member = await reader_of(TwoPartitions, logs)
    member.service.groups.topics_changed({"t": 2}, [Topic(bytes(16), "t", 2)])
    for offset in range(90):
        await member.goes_on(offset)
        await member.commits(offset, 1)
        if commits_both:
            await member.commits(offset)
    found = member.service.events_of(NothingCommitted)
    assert [(event.partitions, event.only_committed) for event in found[:1]] == [({"t": [0]}, {"t": [1]})] * (
        not commits_both
    )
    assert not member.stuck


async def _commits_back(member: Reader, *fetched: int) -> CommitsWentBack:
    """Commits of its partition 0 that go back, and again after Fetches at these offsets."""
    for offset in (20, 3):
        await member.commits(offset)
    for offset in fetched:
        await member.goes_on(offset, partitions=(0, 1))
    for offset in (30, 7):
        await member.commits(offset)
    return member.service.events_of(CommitsWentBack)[-1]


async def test_a_member_that_commits_the_offsets_of_another_partition() -> None:
    member = await reader_of(TwoPartitions, Logs(1_000))
    member.service.groups.topics_changed({"t": 2}, [Topic(bytes(16), "t", 2)])
    event = await _commits_back(member, *range(20, 60))
    assert (event.reads_on, event.uncommitted, event.same_offset) == (True, {"t": [1]}, None)


@pytest.mark.parametrize(("fetched", "reads_on"), [((*range(20, 60),), True), ((*range(20, 40), *range(5, 25)), None)])
async def test_a_member_whose_commits_go_back_while_it_reads_on(
    fetched: tuple[int, ...], reads_on: bool | None
) -> None:
    member = await reader_of(TwoPartitions, Logs(1_000))
    await member.commits(5, 1)
    event = await _commits_back(member, *fetched)
    assert (event.reads_on, event.uncommitted, event.same_offset) == (reads_on, None, None)


@pytest.mark.parametrize(("host", "group"), [("/127.0.0.1", "old"), ("/10.0.0.7", None)])
async def test_a_group_whose_program_commits_to_another_group_in_transactions(host: str, group: str | None) -> None:
    member = await reader(Logs(100))
    producer = Caller("producer", host)
    for offset in range(45):
        await member.goes_on(offset)
        assert await member.service.committed_in_transaction(offset, group="old", caller=producer) == ErrorCode.NONE
        member.service.end_transaction(commit=True)
    (event,) = member.service.events_of(NothingCommitted)
    assert (event.other_group, event.transactional_id) == (group, group and "x")


async def test_a_group_without_commits_whose_member_waits_at_the_end_says_nothing() -> None:
    """It may have begun at latest: then it has read nothing."""
    member = await reader(Logs(100))
    await member.goes_on(*([100] * LONG), delivered=False)
    assert not member.service.events_of(NothingCommitted)


async def test_a_member_that_has_not_fetched_since_it_joined() -> None:
    member = await reader(Logs(100))
    await member.waits()
    (event,) = member.service.events_of(NothingFetched)
    assert (event.partitions, event.records, event.member.client_id) == ({"t": [0]}, 100, "client")
    assert event.fetches == "none"
    assert event.stood_ms > 5_000


async def test_a_member_that_has_not_taken_its_assignment() -> None:
    member = await reader_of(Reader, Logs(100), asked=())
    await member.waits()
    (event,) = member.service.events_of(NothingFetched)
    assert (event.fetches, event.is_incremental) == ("untaken", False)
    await member.commits(5)
    await member.waits()
    (stuck,) = member.stuck
    assert (stuck.fetches, stuck.is_proven) == ("untaken", True)


async def test_a_member_that_has_not_taken_one_of_its_partitions() -> None:
    member = await reader_of(TwoPartitions, Logs(100), asked=(1,))
    await member.works(*range(1, 20), fetches=20)
    event = member.stuck[0]
    assert (event.fetches, event.positions) == ("untaken", (("t", 0, 5),))


@pytest.mark.parametrize("has_fetched", [False, True])
async def test_a_member_that_never_fetches_one_of_its_partitions(has_fetched: bool) -> None:
    """It has paused it before its first record. If it has fetched it once, it may work through what it got."""
    member = await reader_of(TwoPartitions, Logs(100))
    member.service.groups.topics_changed({"t": 2}, [Topic(bytes(16), "t", 2)])
    await member.goes_on(0, partitions=(0, 1) if has_fetched else (1,))
    for offset in range(60):
        await member.goes_on(offset, partitions=(1,))
        await member.commits(offset, 1)
    found = [(event.partitions, event.fetches_others) for event in member.service.events_of(NothingFetched)]
    assert found[:1] == ([] if has_fetched else [({"t": [0]}, True)])


async def test_a_member_that_connects_anew_has_asked_for_its_offsets_before() -> None:
    member = await reader(Logs(100))
    member.connect()
    await member.waits()
    assert [event.fetches for event in member.service.events_of(NothingFetched)] == ["none"]


async def test_a_member_that_has_fetched_once_may_have_had_nothing_to_read() -> None:
    member = await reader(Logs(100))
    member.service.groups.fetches.fetched(ClientAddress(member.client_id, "/127.0.0.1"))
    await member.waits()
    assert not member.service.events_of(NothingFetched)


@pytest.mark.parametrize("cause", ["another broker", "no record", "a twin"])
async def test_no_fetch_is_no_disease_with(cause: str) -> None:
    logs = Logs(100)
    logs.here, logs.has = cause != "another broker", cause != "no record"
    member = await reader(logs)
    if cause == "a twin":
        await Reader(member.service, member.client_id).join("h")
    await member.waits()
    assert not [each for each in member.service.events_of(NothingFetched) if each.group == "g"]


async def test_what_moves_is_not_stuck() -> None:
    member = await reader(Logs(1_000))
    for offset in range(5, 85, 10):
        await member.commits(offset)
        await member.waits(15)
    assert not member.stuck


async def test_within_the_rebalance_timeout_a_member_may_be_busy() -> None:
    member = await reader(Logs())
    await member.commits(5)
    await member.waits(25)
    assert not member.stuck


async def test_nothing_is_stuck_behind_an_open_transaction_or_at_the_end() -> None:
    member = await reader(Logs(5))
    await member.commits(5)
    await member.waits()
    assert not member.stuck


async def test_markers_of_transactions_are_not_waited_for() -> None:
    logs = Logs()
    logs.has = False
    member = await reader(logs)
    await member.commits(5)
    await member.waits()
    assert not member.stuck


async def test_offsets_before_the_log_are_another_disease() -> None:
    logs = Logs()
    logs.start = 10
    member = await reader(logs)
    await member.commits(5)
    member.fetches.out_of_range(ClientAddress(member.client_id, "/127.0.0.1"), ("t", 0), 5, (10, 20))
    await member.waits()
    assert not member.stuck
    lost, left = member.service.events_of(FetchOutOfRange)
    assert (lost.left_ms, left.offset) == (None, 5)
    assert left.left_ms is not None
    assert 5_000 <= left.left_ms <= 12_000
    member.fetches.looked_up(ClientAddress(member.client_id, "/127.0.0.1"), ("t", 0), 10, latest=False)
    *_, went_on = member.service.events_of(FetchOutOfRange)
    assert (went_on.position, went_on.left_ms) == (10, None)


async def test_a_member_that_goes_on_after_records_that_were_deleted_is_not_left() -> None:
    logs = Logs()
    logs.start = 10
    member = await reader(logs)
    await member.commits(5)
    member.fetches.out_of_range(ClientAddress(member.client_id, "/127.0.0.1"), ("t", 0), 5, (10, 20))
    await member.goes_on(12, 15, 18, 20, 20, 20, 20, 20, seconds=5)
    assert [each.position for each in member.service.events_of(FetchOutOfRange)] == [None, 12]
    assert not member.stuck


async def test_an_offset_that_stands_still_until_its_records_are_deleted_still_does() -> None:
    logs = Logs()
    member = await reader(logs)
    await member.commits(5)
    await member.waits(3)
    logs.start = 10
    await member.waits()
    assert member.stuck
    assert (member.stuck[0].is_deleted, member.stuck[0].fetches, member.stuck[0].records) == (True, "none", 10)


async def test_a_member_that_waits_at_the_end_after_records_that_were_deleted_is_healthy() -> None:
    """It commits nothing before the next record comes."""
    logs = Logs()
    logs.start = 10
    member = await reader(logs)
    await member.commits(5)
    await member.goes_on(*(20,) * 12, seconds=5, delivered=False)
    assert not member.stuck


async def test_nothing_is_known_of_partitions_of_other_brokers() -> None:
    logs = Logs()
    logs.here = False
    member = await reader(logs)
    await member.commits(5)
    await member.waits()
    assert not member.stuck


async def test_the_time_begins_again_with_another_owner() -> None:
    member = await reader(Logs())
    await member.commits(5)
    await member.waits(25)
    member.leave()
    successor = Reader(member.service, "other")
    await successor.join()
    await successor.waits(25)
    assert not successor.stuck
    await successor.waits(25)
    (event,) = successor.stuck
    assert event.member.client_id == "other"


async def test_requests_that_are_repeated_once_are_no_poison() -> None:
    member = await reader(Logs(100))
    await member.commits(5)
    await member.goes_on(5, 5, *range(6, 45))
    (event,) = member.stuck
    assert event.fetches == "beyond"


async def test_a_group_without_members_is_not_looked_at() -> None:
    member = await reader(Logs())
    await member.commits(5)
    member.leave()
    await member.service.after(LONG)
    assert not member.stuck


async def test_commits_after_the_end_of_the_log_are_reported_with_their_client() -> None:
    member = await reader(Logs(20))
    await member.commits(20)
    assert not member.service.events_of(CommitsBeyondEnd)
    await member.commits(30)
    await member.commits(31)
    (event,) = member.service.events_of(CommitsBeyondEnd)
    assert event.beyond == (("t", 0, 30, 20),)
    assert (event.member.client_id, event.member.member_id) == ("client", member.member_id)
    await member.waits(15)
    await member.commits(32)
    assert len(member.service.events_of(CommitsBeyondEnd)) == 2


async def test_commits_in_a_transaction_after_the_end_of_the_log_are_reported() -> None:
    member = await reader(Logs(20))
    assert await member.service.committed_in_transaction(20, group="other") == ErrorCode.NONE
    assert not member.service.events_of(CommitsBeyondEnd)
    await member.service.committed_in_transaction(30, group="other")
    (event,) = member.service.events_of(CommitsBeyondEnd)
    assert event.beyond == (("t", 0, 30, 20),)


async def test_the_last_member_that_leaves_says_where_records_waited() -> None:
    member = await reader(Logs(20))
    await member.commits(5)
    member.leave()
    (event,) = member.service.events_of(MemberLeft)
    assert event.unread == (("t", 0),)
    assert event.positions == (("t", 0, 5),)


async def test_the_last_member_that_leaves_without_a_commit_says_that_there_were_records() -> None:
    member = await reader(Logs(20))
    member.leave()
    (event,) = member.service.events_of(MemberLeft)
    assert event.unread == (("t", 0),)
    assert event.positions == (("t", 0, -1),)


async def test_the_last_member_that_leaves_at_the_end_of_the_log_leaves_nothing() -> None:
    member = await reader(Logs(20))
    await member.commits(20)
    member.leave()
    (event,) = member.service.events_of(MemberLeft)
    assert event.unread is None


async def test_commits_after_the_end_of_the_log_are_reported_of_so_many_groups_of_a_connection() -> None:
    member = await reader(Logs(20))
    for number in range(45):
        answer = member.service.commit(30, group=f"g{number}", version=7, caller=member.caller)
        await member.service.ask(answer, 7)
    assert len(member.service.events_of(CommitsBeyondEnd)) == 16


async def test_a_member_that_fetches_from_the_beginning() -> None:
    member = await reader(Logs(20))
    await member.commits(10)
    for _ in range(2):
        member.service.groups.fetches.from_start(ClientAddress("client", "/127.0.0.1"), ("t", 0), 0)
    (event,) = member.service.events_of(MemberRewound)
    assert (event.topic, event.partition, event.log_start, event.offset) == ("t", 0, 0, 10)
    assert event.member.member_id == member.member_id


@pytest.mark.parametrize(
    ("committed", "client_id", "topic"),
    [(0, "client", "t"), (None, "client", "t"), (10, "rdkafka", "t"), (10, "other", "t"), (10, "client", "u")],
    ids=["nothing is before it", "nothing is committed", "a default client id", "another client", "another topic"],
)
async def test_to_begin_is_not_to_go_back(committed: int | None, client_id: str, topic: str) -> None:
    member = await reader(Logs(20), client_id if client_id == "rdkafka" else "client")
    if committed is not None:
        await member.commits(committed)
    member.service.groups.fetches.from_start(ClientAddress(client_id, "/127.0.0.1"), (topic, 0), 0)
    assert not member.service.events_of(MemberRewound)


async def test_a_member_that_had_to_go_to_the_beginning_has_another_explanation() -> None:
    member = await reader(Logs(20))
    await member.commits(10)
    member.service.groups.fetches.out_of_range(ClientAddress("client", "/127.0.0.1"), ("t", 0), 30, (0, 20))
    member.service.groups.fetches.from_start(ClientAddress("client", "/127.0.0.1"), ("t", 0), 0)
    assert not member.service.events_of(MemberRewound)


@pytest.mark.parametrize(
    ("end", "asks_at", "fetches_at", "reported"),
    [(20, 0, 20, True), (20, 0, 5, False), (5, 0, 5, False), (20, 5, 20, False)],
    ids=["a seek to the end", "an end that is only looked up", "no record is skipped", "a look-up while it reads"],
)
async def test_a_member_that_begins_at_the_end(end: int, asks_at: int, fetches_at: int, reported: bool) -> None:
    member = await reader(Logs(end))
    await member.commits(5)
    member.leave()
    await member.join()
    if asks_at:
        await member.goes_on(asks_at)
    member.service.groups.fetches.looked_up(ClientAddress("client", "/127.0.0.1"), ("t", 0), end, latest=True)
    await member.goes_on(fetches_at, fetches_at)
    events = member.service.events_of(MemberSkipped)
    assert [(each.offset, each.position, each.member.member_id) for each in events] == (
        [(5, 20, member.member_id)] if reported else []
    )


class Restarted(Reader):
    """A member that is gone for a while, joins again, and begins at an offset that its program keeps."""

    async def restarts(self, *, at: int, end: int = 20) -> None:
        """Leave; the log grows up to an end; join, and fetch from an offset on."""
        self.leave()
        logs = self.service.logs
        assert isinstance(logs, Logs)
        await self.service.after(30)
        logs.written.append((self.service.wall - 1, logs.end_offset))
        logs.end_offset = max(end, logs.end_offset)
        await self.service.after(30)
        await self.join()
        await self.begins(at)

    async def begins(self, *offsets: int) -> None:
        """Ask for the committed offset, and fetch from these offsets on."""
        await self.asks(0)
        await self.goes_on(*offsets)

    @property
    def skipped(self) -> list[tuple[int | None, int, int | None]]:
        """Committed offset, position and records of each jump forward."""
        found = self.service.events_of(MemberSkipped)
        assert all(each.is_kept for each in found)
        return [(each.offset, each.position, each.records) for each in found]

    @property
    def rewound(self) -> list[tuple[int, int | None]]:
        """Committed offset and position of each jump back."""
        found = self.service.events_of(MemberRewound)
        assert all(each.is_kept for each in found)
        return [(each.offset, each.position) for each in found]


async def test_a_member_that_begins_after_the_committed_offset_skips_what_came_meanwhile() -> None:
    member = await reader_of(Restarted, Logs(10))
    await member.begins(0)
    await member.commits(7)
    await member.restarts(at=18)
    assert member.skipped == [(7, 18, 8)], "8 and 9 may have been read, and not committed"
    await member.commits(18)
    await member.restarts(at=18, end=30)
    await member.goes_on(20, 25)
    assert len(member.skipped) == 1


@pytest.mark.parametrize("how", ["it goes on", "no gap", "deleted", "default", "another member", "two connections"])
async def test_what_is_no_jump_over_records(how: str) -> None:
    member = await reader_of(Restarted, Logs(10), "rdkafka" if how == "default" else "client")
    logs = member.service.logs
    assert isinstance(logs, Logs)
    await member.begins(0)
    await member.commits(7)
    if how == "deleted":
        logs.start = 18
    if how == "another member":
        other = Reader(member.service, "other")
        other.owned = ()
        await member.join_with(other)
        await other.asks(0)
        await other.waits(5)
    if how == "two connections":
        member.connect()
        member.heartbeat()
    at = {"it goes on": 7, "no gap": 9}.get(how, 18)
    await member.restarts(at=at)
    await member.goes_on(19)
    assert member.skipped == []


async def test_a_member_that_was_removed_may_have_read_on() -> None:
    member = await reader_of(Restarted, Logs(10))
    await member.begins(0)
    await member.commits(7)
    await member.service.after(30)
    (gone,) = member.service.events_of(MemberExpired)
    assert gone.connection == "open"
    await member.restarts(at=18)
    assert member.skipped == []


async def test_a_member_that_fetches_ahead_and_asks_for_its_committed_offsets() -> None:
    """It keeps its positions in a rebalance, as with a cooperative assignor, and looks at its lag."""
    member = await reader_of(Restarted, Logs(10))
    await member.begins(0)
    await member.commits(7)
    await member.restarts(at=7)
    for offset in (12, 16):
        await member.begins(offset)
        await member.join_with()
        await member.begins(offset + 2)
    assert (member.skipped, member.rewound) == ([], [])


async def test_a_member_that_goes_back_at_each_assignment() -> None:
    member = await reader_of(Restarted, Logs(100))
    await member.begins(0)
    for committed in (20, 40):
        await member.commits(committed)
        await member.join_with()
        await member.begins(5, committed)
        await member.goes_on(3)
    assert member.rewound == [(20, 5), (40, 5)]


async def test_an_offset_that_is_committed_after_the_assignment_is_not_before_it() -> None:
    """The last commit of the owner before may come late."""
    member = await reader_of(Restarted, Logs(100))
    await member.commits(20)
    await member.service.after(1)
    await member.join_with()
    await member.commits(40)
    await member.begins(20)
    assert member.rewound == []


async def test_an_old_assignment_says_nothing_about_a_fetch() -> None:
    """A seek while it reads may be on purpose."""
    member = await reader_of(Restarted, Logs(100))
    await member.commits(20)
    await member.service.after(1)
    await member.join_with()
    await member.waits(15)
    await member.begins(5)
    assert member.rewound == []


class Jumping(Reader):
    """A member that looks at the end of its partition after each poll."""

    async def polls(self, offset: int, end: int, epoch: int = 0) -> None:
        """Look up the end, and fetch from an offset on: it waits there, and gets the next record."""
        groups = self.service.groups
        groups.fetches.looked_up(ClientAddress(self.client_id, "/127.0.0.1"), ("t", 0), end, latest=True)
        fetch = groups.fetches.fetched(ClientAddress(self.client_id, "/127.0.0.1"))
        assert fetch is not None
        fetch.asks(("t", 0), offset, epoch)
        fetch.answered(("t", 0), end)
        fetch.answered(("t", 0), end + 1)
        await self.service.after(1)
        self.heartbeat()


async def test_a_member_that_jumps_to_the_end_while_it_reads_is_reported_once_a_minute() -> None:
    member = await reader_of(Jumping, Logs(10_000))
    await member.commits(5)
    await member.goes_on(5)
    for end in range(10, 30):
        await member.polls(end, end)
    assert not member.service.events_of(MemberSkipped), "it has read all"
    for jump in range(1, 71):
        await member.polls(1_000 + jump * 50, 1_000 + jump * 50)
    first, second = member.service.events_of(MemberSkipped)
    assert (first.fetched, first.position, first.times, first.records) == (30, 1_050, 1, 1_020)
    assert (second.times, second.records) == (60, 60 * 49)


@pytest.mark.parametrize("cause", ["it is not behind", "it goes on elsewhere", "another leader", "a default client id"])
async def test_what_is_no_jump_to_the_end(cause: str) -> None:
    client_id = "rdkafka" if cause == "a default client id" else "client"
    member = await reader_of(Jumping, Logs(10_000), client_id)
    await member.commits(1_050 if cause == "it is not behind" else 5)
    await member.goes_on(5)
    if cause == "a default client id":
        member.service.groups.fetches.looked_up(ClientAddress(client_id, "/127.0.0.1"), ("t", 0), 20, latest=True)
        fetch = member.service.groups.fetches.fetched(ClientAddress(client_id, "/127.0.0.1"))
        assert fetch is None or not fetch.looked_up, "other programs may have it"
        return
    await member.polls(20, 20)
    await member.polls(20, 20)
    await member.polls(1_000 if cause == "it goes on elsewhere" else 1_050, 1_050, cause == "another leader")
    assert not member.service.events_of(MemberSkipped)


async def test_a_member_that_goes_back_to_a_time() -> None:
    member = await reader(Logs(100))
    await member.commits(50)
    groups = member.service.groups
    groups.fetches.looked_up_time(ClientAddress("client", "/127.0.0.1"), ("t", 0), 30)
    await member.goes_on(50, 60)
    assert not member.service.events_of(MemberRewound), "it has only looked"
    await member.goes_on(30, 30, 70)
    (event,) = member.service.events_of(MemberRewound)
    assert (event.position, event.offset, event.log_start) == (30, 50, 0)


@pytest.mark.parametrize("first", ["latest", "earliest"])
async def test_a_new_partition_that_is_read_from_its_end_on(first: str) -> None:
    member = await reader(Logs(7))
    await member.commits(7)
    await member.goes_on(7)
    await member.service.after(1)
    for partitions in (2, 3):  # the first time all topics are told
        member.service.groups.topics_changed({"t": partitions})
    new = ("t", 2)
    await member.asks(0, 1, 2)

    async def fetch(offset: int) -> None:
        found = member.service.groups.fetches.fetched(ClientAddress("client", "/127.0.0.1"))
        if found is not None:
            found.asks(new, offset)

    if first == "earliest":
        member.service.groups.fetches.looked_up(ClientAddress("client", "/127.0.0.1"), new, 0, latest=False)
        await fetch(0)
    for _ in range(2):  # the second one is to compute its lag
        member.service.groups.fetches.looked_up(ClientAddress("client", "/127.0.0.1"), new, 7, latest=True)
        await fetch(7)
    events = member.service.events_of(MemberSkipped)
    assert [(each.partition, each.offset, each.position) for each in events] == (
        [(2, None, 7)] if first == "latest" else []
    )


async def test_a_new_group_begins_at_latest_by_its_own_wish() -> None:
    member = await reader(Logs(7))
    member.service.groups.fetches.looked_up(ClientAddress("client", "/127.0.0.1"), ("t", 0), 7, latest=True)
    await member.goes_on(7)
    assert not member.service.events_of(MemberSkipped)


@pytest.mark.parametrize(
    ("written_after", "committed", "known", "reported"),
    [
        (10, None, True, [(2, 5_250)]),
        (-10, None, True, []),
        (10, 7, True, []),
        (10, None, False, []),
    ],
    ids=["lost", "they were there before", "it has a committed offset", "a fresh group"],
)
async def test_first_records_that_come_while_no_member_reads_their_partition(
    written_after: int, committed: int | None, known: bool, reported: list[tuple[int, float]]
) -> None:
    """A group with auto.offset.reset=latest, and a partition that never had a commit; a client id of a library."""
    logs = Logs(0)
    member = await reader_of(Reader, logs, "rdkafka", (1,) if known else ())
    if committed is not None:
        await member.commits(committed, 1)
    member.leave()
    logs.written, logs.end_offset = [(member.service.wall + written_after, 2)], 7
    await member.service.after(5)
    await member.join()
    await member.asks(1)
    member.service.groups.fetches.looked_up(ClientAddress("rdkafka", "/127.0.0.1"), ("t", 1), 7, latest=True)
    await member.goes_on(7, partitions=(1,))
    events = member.service.events_of(MemberSkipped)
    assert [(each.first, each.away_ms) for each in events if each.away_ms is not None] == reported
    assert len(events) == len(reported)


async def test_first_records_that_come_while_the_broker_restarts_too() -> None:
    """Which partitions members had is not known; when the group committed last in their topic is."""
    logs = Logs(0)
    member = await reader_of(Reader, logs, "client", (0,))
    await member.commits(0)
    await member.service.after(5)
    logs.written, logs.end_offset = [(member.service.wall, 2)], 7
    await member.asks(1)
    member.service.groups.fetches.looked_up(ClientAddress("client", "/127.0.0.1"), ("t", 1), 7, latest=True)
    await member.goes_on(7, partitions=(1,))
    (event,) = member.service.events_of(MemberSkipped)
    assert (event.first, event.away_ms) == (2, 5_000)


async def test_a_partition_that_is_read_is_not_new_any_more() -> None:
    """A program that looks up the end later, and jumps there, does not begin there."""
    member = await reader(Logs(20))
    await member.commits(5)
    await member.goes_on(5)
    member.service.groups.fetches.looked_up(ClientAddress("client", "/127.0.0.1"), ("t", 0), 20, latest=True)
    await member.goes_on(20)
    assert not member.service.events_of(MemberSkipped)


async def test_up_to_where_a_member_that_is_killed_has_read_while_its_offset_stood_still() -> None:
    member = await reader(Logs())
    await member.commits(5)
    await member.goes_on(5, 8, 12, 16)
    member.connection.lost("client", "")
    await member.service.after(11)
    (gone,) = member.service.events_of(MemberExpired)
    assert (gone.furthest, gone.commits) == ((("t", 0, 16),), 1)


async def test_records_that_were_deleted_before_a_member_fetched_them_have_the_reason() -> None:
    logs = Logs()
    member = await reader(logs)
    logs.removed = Removal(15, "retention.ms", 1_795_876_800, 604_800_000)
    member.service.groups.fetches.out_of_range(ClientAddress(member.client_id, "/127.0.0.1"), ("t", 0), 3, (15, 40))
    (lost,) = member.service.events_of(FetchOutOfRange)
    assert (lost.deleted_by, lost.newest_timestamp, lost.retention_ms) == ("retention.ms", 1_795_876_800, 604_800_000)


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_member_that_is_given_records_of_aborted_transactions(is_committed: bool) -> None:
    logs = Logs(0)
    logs.aborts = 1, "payer-1"
    member = await reader(logs)
    member.is_committed = is_committed
    for _ in range(40):
        logs.end_offset += 40
        await member.goes_on(logs.end_offset - 30)
        await member.commits(logs.end_offset)
    found = member.service.events_of(AbortedRecordsRead)
    assert bool(found) is not is_committed
    for event in found[:1]:
        assert (event.partitions, event.transactional_ids) == ({"t": [0]}, ("payer-1",))
        assert event.transactions >= 5
