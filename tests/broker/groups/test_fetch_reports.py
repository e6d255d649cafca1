"""A member whose partitions another broker leads than the one that coordinates its group."""

from collections.abc import Awaitable, Callable, Collection

import pytest

from barnabas_broker.coordinators.leader import Leader
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.coordinator.fetches import Fetches
from barnabas_broker.groups.fetch_reports import (
    VERSION,
    AskedClient,
    AskedPartition,
    FetchMessage,
    FetchNotice,
    FetchQuestions,
    FetchReport,
    FetchReporter,
)
from barnabas_broker.groups.sightings import ClientAddress, Clients
from barnabas_broker.groups.stuck import Standing
from barnabas_broker.groups.watched import MOST
from barnabas_broker.steps import finish
from barnabas_broker.storage.retention import Removal
from barnabas_explain.catalog import (
    AbortedRecordsRead,
    BrokerNotReached,
    FetchDenied,
    FetchesWaited,
    FetchOutOfRange,
    LagGrows,
    MemberRewound,
    MemberSkipped,
    OffsetsStuck,
    RecordsAborted,
)
from barnabas_protocol.codec import decode, encode
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.wire import Buffer
from tests.broker.groups.support import Service
from tests.broker.groups.test_sightings import Program
from tests.broker.groups.test_stuck import Logs, Reader, TwoPartitions

CLIENT = ClientAddress("client", "/127.0.0.1")
PLACE = ("t", 0)
#: The coordinator, and the leader of the partitions.
HERE, THERE = 1, 2


class Other:
    """The other broker, as one of them sees it.

    Attributes:
        service: its coordinator; None while it cannot be reached.
        asked: the messages that it got.
        late: the messages that wait for their answers, with what is to be called; None if it answers at once.
        left: whether it has left the cluster.
    """

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.service: Service | None = None
        self.asked: list[FetchMessage] = []
        self.late: list[tuple[FetchMessage, Callable[[Buffer | None], None]]] | None = None
        self.left = False

    def all(self) -> Collection[int]:
        return [] if self.left else [self.node_id]

    def advertised(self, node_id: int, listener: str) -> str | None:
        return f"b{node_id}:9092"

    def ask(self, node_id: int, message: bytes, done: Callable[[Buffer | None], None]) -> None:
        assert node_id == self.node_id
        self.asked.append(decode(FetchMessage, VERSION, message))
        if self.late is not None:
            self.late.append((self.asked[-1], done))
            return
        done(
            None if self.service is None else encode(finish(self.service.groups.fetches_seen(self.asked[-1])), VERSION)
        )


class Coordinator(Service):
    """The coordinator, whose clock is that of the leader, too."""

    def __init__(self, logs: Logs, other: Other) -> None:
        self.logs, self.others = logs, other
        self.leader: Service | None = None
        super().__init__(group_stuck_offset_ms="5000", group_initial_rebalance_delay_ms="0")

    async def after(self, seconds: float) -> None:
        for _ in range(max(1, round(seconds * 4))):
            await super().after(0.25)
            if self.leader is not None:
                self.leader.time, self.leader.wall = self.time, self.wall


class Away(TwoPartitions):
    """A member that sends its Fetches to another broker than its heartbeats.

    Attributes:
        leader: the broker that leads its partitions.
        logs: the partition there, and the replica of the coordinator.
        other: the leader, as the coordinator reaches it.
    """

    owned: tuple[int, ...] = (0,)
    leader: Service
    logs: tuple[Logs, Logs]
    other: Other

    @property
    def fetches(self) -> Fetches:
        return self.leader.groups.fetches


class AwayWithTwo(Away):
    """The same with two partitions."""

    owned = (0, 1)


async def distant(end: int = 20, made_of: type[Away] = Away) -> Away:
    """The same if the coordinator has no replica."""
    member = await away(end, made_of)
    member.logs[1].here = False
    return member


async def away(end: int = 20, made_of: type[Away] = Away, logs_of: type[Logs] = Logs) -> Away:
    there, here, other, back = logs_of(end), logs_of(end), Other(THERE), Other(HERE)
    there.leads, here.leads = Leader(THERE, 7, is_here=True), Leader(THERE, 7, is_here=False)

    class Leading(Service):
        logs = there
        others = back

    coordinator = Coordinator(here, other)
    await coordinator.loaded()
    member = made_of(coordinator, "client")
    member.leader = other.service = await Leading(group_initial_rebalance_delay_ms="0").loaded()
    coordinator.leader, back.service = member.leader, coordinator
    member.logs, member.other = (there, here), other
    await member.join()
    await member.asks(0, 1)
    return member


async def at_home(end: int = 20, made_of: type[Reader] = Reader) -> Reader:
    """A member whose only broker leads its partitions."""

    class One(Service):
        logs = Logs(end)

    member = made_of(await One(group_stuck_offset_ms="5000", group_initial_rebalance_delay_ms="0").loaded(), "client")
    await member.join()
    await member.asks(0, 1)
    return member


async def reads_again(member: Reader) -> None:
    await member.commits(5)
    await member.goes_on(*([5, 8] * 20))


async def reads_on(member: Reader) -> None:
    await member.commits(5)
    await member.goes_on(*range(5, 20), seconds=4)


async def pauses(member: Reader) -> None:
    await member.commits(5)
    await member.goes_on(5)
    await member.waits(60)


@pytest.mark.parametrize("behaves", [reads_again, reads_on, pauses])
async def test_what_is_said_is_the_same_as_if_the_coordinator_led_the_partition(
    behaves: Callable[[Reader], Awaitable[None]],
) -> None:
    said = []
    for member in (await at_home(), await away(), await distant()):
        await behaves(member)
        event = member.stuck[0]
        said.append((event.fetches, event.positions, event.records, event.offset, bool(event.ahead)))
    assert said[0] == said[1] == said[2]


async def test_a_broker_that_cannot_be_reached_makes_nothing_known() -> None:
    member = await away()
    member.other.service = None
    await reads_again(member)
    await member.waits(60)
    assert member.stuck == []
    member.other.service = member.leader
    await member.goes_on(*([5, 8] * 60))
    assert member.stuck[0].fetches == "again"


async def test_a_broker_that_is_not_reached_any_more_makes_nothing_known() -> None:
    """Otherwise its last counts would look as if the member had stopped."""
    member = await away()
    await member.commits(5)
    await member.goes_on(5, 6, 7)
    member.other.service = None
    await member.goes_on(*range(8, 20), seconds=2)
    await member.waits(60)
    assert member.stuck == []


async def test_a_log_without_a_replica_is_not_known_while_its_leader_cannot_be_reached() -> None:
    member = await distant()
    await member.commits(5)
    await member.goes_on(*([5, 8] * 20))
    assert len(member.stuck) == 1
    member.other.service = None
    await member.goes_on(*([5, 8] * 60))
    assert len(member.stuck) == 1


async def test_records_that_consumers_do_not_get_do_not_wait_in_a_log_without_a_replica() -> None:
    member = await distant()
    member.logs[0].has = False
    await reads_again(member)
    assert member.stuck == []


async def test_another_leader_begins_to_count_anew() -> None:
    member = await away()
    await member.commits(5)
    await member.goes_on(*range(5, 10), seconds=5)
    there, here = member.logs
    there.leads, here.leads = Leader(HERE, 8, is_here=False), Leader(HERE, 8, is_here=True)
    member.leader = member.service
    await member.goes_on(*range(10, 14), seconds=5)
    assert member.stuck == []
    await member.goes_on(*range(14, 20), seconds=5)
    assert member.stuck[0].fetches == "beyond"


@pytest.mark.parametrize(("fetches", "stands"), [(0, False), (1, False), (20, True)])
async def test_a_member_that_works_through_another_partition_does_not_stand_still(fetches: int, stands: bool) -> None:
    two = await away(100, AwayWithTwo), await distant(100, AwayWithTwo)
    for member in (await at_home(100, TwoPartitions), *two):
        assert isinstance(member, TwoPartitions)
        await member.works(*range(1, 20), fetches=fetches)
        assert bool(member.stuck) is stands


async def test_a_leader_of_which_the_coordinator_does_not_know_yet_counts_nothing() -> None:
    member = await away()
    there, _ = member.logs
    there.leads = there.leads._replace(epoch=8)
    await reads_again(member)
    assert member.stuck == []


async def test_a_client_with_a_member_of_a_group_elsewhere_is_not_told_apart() -> None:
    member = await away()
    twin = Program(member.leader, "client")
    await twin.join("other")
    await member.commits(5)
    await member.goes_on(*([5, 8] * 20))
    assert {event.fetches for event in member.stuck} == {"unknown"}


@pytest.mark.parametrize("stands", [True, False])
async def test_a_client_whose_other_member_is_gone_is_told_apart_again(stands: bool) -> None:
    """From the next offset on its Fetches are known to be those of one member."""
    member = await away(1_000)
    twin = Program(member.leader, "client")
    await twin.join("other")
    await member.commits(5)
    await member.goes_on(*([5, 8] * 10))
    twin.connection.lost("client", "")
    for offset in (5,) if stands else range(400, 800):
        await member.commits(offset)
        await member.goes_on(offset, seconds=5 if stands else 0.25)
    await member.commits(900)
    await member.goes_on(*([900, 910] * 20))
    assert member.stuck[-1].fetches == "again"


async def test_a_broker_that_has_left_coordinates_no_group() -> None:
    member = await away()
    twin = Program(member.leader, "client")
    await twin.join("other")
    await member.commits(5)
    await member.goes_on(*([5, 8] * 10))
    for log in member.logs:
        log.leads = Leader(HERE, 8, is_here=True)
    member.leader, member.other.left = member.service, True
    await member.waits(100)
    await member.commits(6)
    await member.goes_on(*([6, 8] * 20))
    assert member.stuck[-1].fetches == "again"


@pytest.mark.parametrize("answers", [True, False])
async def test_an_answer_that_is_late_does_not_count(answers: bool) -> None:
    """This broker leads the partition meanwhile, and counts for itself."""
    member = await away()
    member.other.late = []
    await member.commits(5)
    await member.goes_on(5, 6, 7)
    for log in member.logs:
        log.leads = Leader(HERE, 8, is_here=True)
    member.leader, late = member.service, member.other.late
    await member.goes_on(8, 8)
    assert late
    for message, done in late:
        report = finish(member.other.service.groups.fetches_seen(message)) if member.other.service else None
        done(encode(report, VERSION) if answers and report else None)
    await member.goes_on(*([8, 9] * 20))
    assert member.stuck[0].fetches == "again"


class BothLead(Logs):
    """Partitions with odd numbers are led by the coordinator."""

    def leader(self, topic: str, partition: int) -> Leader | None:
        led_there = super().leader(topic, partition)
        if partition % 2 == 0 or led_there is None:
            return led_there
        return Leader(HERE, 3, is_here=not led_there.is_here)


class CutOff(AwayWithTwo):
    """A member with a partition that each broker leads, of which it does not reach the other one."""

    @property
    def fetches(self) -> Fetches:
        return self.service.groups.fetches

    async def gets_on(self, seconds: int) -> None:
        """Fetch and commit what the coordinator leads, once a second."""
        for offset in range(6, 6 + seconds):
            await self.commits(offset, 1)
            await self.goes_on(offset, partitions=(1,))

    async def keeps_up(self, seconds: int) -> None:
        """Wait for records at the end of what the coordinator leads."""
        await self.commits(1_000, 1)
        await self.goes_on(*[1_000] * seconds, partitions=(1,))

    @property
    def unreached(self) -> list[BrokerNotReached]:
        return self.service.events_of(BrokerNotReached)


async def cut_off() -> CutOff:
    member = await away(1_000, CutOff, BothLead)
    assert isinstance(member, CutOff)
    await member.commits(5, 0)
    return member


async def test_a_member_that_fetches_nothing_of_the_partitions_of_a_broker_probably_does_not_reach_it() -> None:
    member = await cut_off()
    await member.gets_on(40)
    event = member.unreached[0]
    (behind,) = event.behind
    assert (event.broker, event.address) == (THERE, "b2:9092")
    assert (behind.member.client_id, behind.positions, behind.lag) == ("client", (("t", 0, 5),), 995)
    assert 5_000 <= (behind.stood_ms or 0) <= 7_000
    assert member.stuck == [], "it has paused nothing"


async def test_a_partition_without_a_committed_offset_is_told_with_the_broker_that_is_not_reached() -> None:
    member = await away(1_000, CutOff, BothLead)
    assert isinstance(member, CutOff)
    member.service.groups.topics_changed({"t": 2}, [Topic(bytes(16), "t", 2)])
    await member.gets_on(40)
    assert [each.positions for each in member.unreached[0].behind] == [(("t", 0, -1),)]


async def test_a_member_that_is_connected_to_the_leader_has_paused_the_partition() -> None:
    member = await cut_off()
    closed = member.leader.groups.opened(CLIENT)
    await member.keeps_up(40)
    assert (member.unreached, member.stuck[0].fetches) == ([], "none")
    # Clients and brokers close connections that are not used.
    closed()
    await member.keeps_up(200)
    assert member.unreached == []


async def test_a_member_that_has_fetched_from_the_leader_has_paused_the_partition() -> None:
    member = await cut_off()
    await member.keeps_up(3)
    fetch = member.leader.groups.fetches.fetched(CLIENT)
    assert fetch is not None, "the leader has been asked about it"
    await member.keeps_up(40)
    assert (member.unreached, member.stuck[0].fetches) == ([], "none")


async def test_the_program_that_had_the_client_id_before_may_have_reached_the_leader() -> None:
    """Before it was deployed anew, or before its network policy changed."""
    member = await cut_off()
    await member.keeps_up(3)
    assert member.leader.groups.fetches.fetched(CLIENT) is not None
    member.leave()
    await member.service.after(1)
    await member.join()
    await member.asks(0, 1)
    await member.gets_on(40)
    assert [each.positions for each in member.unreached[0].behind] == [(("t", 0, 5),)]
    assert member.stuck == []


async def test_a_member_that_fetches_nothing_at_all_stands_still() -> None:
    member = await cut_off()
    await member.waits(100)
    assert member.unreached == []
    assert member.stuck


async def test_nothing_is_said_of_a_broker_that_the_coordinator_does_not_reach_either() -> None:
    member = await cut_off()
    member.other.service = None
    await member.gets_on(40)
    assert (member.unreached, member.stuck) == ([], [])


async def test_members_that_do_not_reach_a_broker_are_told_together() -> None:
    member = await cut_off()
    twin = CutOff(member.service, "twin")
    twin.leader, twin.owned = member.leader, (2, 3)
    await member.join_with(twin)
    await member.asks(0, 1)
    await twin.asks(2, 3)
    await twin.commits(7, 2)
    for offset in range(6, 26):
        for each, partition in ((member, 1), (twin, 3)):
            await each.commits(offset, partition)
            await each.goes_on(offset, partitions=(partition,), seconds=0.5)
    (event, *_) = member.unreached
    assert {each.member.client_id: each.positions for each in event.behind} == {
        "client": (("t", 0, 5),),
        "twin": (("t", 2, 7),),
    }
    assert member.stuck == []


class Asked:
    """The other brokers; their answers are late.

    Attributes:
        messages: what they are asked.
    """

    def __init__(self) -> None:
        self.messages: list[FetchMessage] = []

    def all(self) -> Collection[int]:
        return [THERE]

    def advertised(self, node_id: int, listener: str) -> str | None:
        return None

    def ask(self, node_id: int, message: bytes, done: Callable[[Buffer | None], None]) -> None:
        self.messages.append(decode(FetchMessage, VERSION, message))


def test_a_client_with_many_partitions_holds_no_broker() -> None:
    asked, logs, clients, most = Asked(), Logs(), Clients(), 100
    logs.leads = Leader(THERE, 7, is_here=False)
    questions = FetchQuestions(clients, logs, asked, lambda: 0.0)

    def ask() -> list[FetchMessage]:
        asked.messages.clear()
        questions.begin()
        for partition in range(1_000):
            standing = Standing(5, 1, 0.0)
            standing.owned(None, logs.leads, 1, 0.0)
            questions.add(CLIENT, ("t", partition), standing)
        sent = 0
        for _ in questions.ask():
            assert len(asked.messages) <= sent + 1
            sent = len(asked.messages)
        return [*asked.messages]

    reporter = FetchReporter(Clients(), leading := Logs(), lambda group_id: False)
    leading.leads = Leader(THERE, 7, is_here=True)
    counted: dict[int, int] = {}
    for now in (10.0, 40.0):
        for message in ask():
            assert sum(1 + len(client.partitions) for client in message.clients) <= most
            *steps, report = steps_of(reporter, message, now)
            assert len(steps) > sum(len(client.partitions) for client in message.clients)
            for client, reported in zip(message.clients, report.clients, strict=True):
                for place, each in zip(client.partitions, reported.partitions, strict=True):
                    counted[place.partition] = each.counted_ms
    assert counted == dict.fromkeys(range(1_000), 30_000)


def steps_of(reporter: FetchReporter, message: FetchMessage, now: float) -> list[FetchReport]:
    """A report for each step, the last one of which is whole."""
    report = FetchReport(clients=[], logs=[])
    steps = reporter.report(message, now)
    found = []
    while True:
        found.append(report)
        try:
            next(steps)
        except StopIteration as stop:
            found.append(stop.value)
            return found


def test_many_logs_without_a_replica_hold_no_broker() -> None:
    asked, looked = Asked(), 0

    class Distant(Logs):
        def leader(self, topic: str, partition: int) -> Leader | None:
            nonlocal looked
            looked += 1
            return self.leads

    logs = Distant()
    logs.here, logs.leads = False, Leader(THERE, 7, is_here=False)
    questions = FetchQuestions(Clients(), logs, asked, lambda: 0.0)
    questions.begin()
    for partition in range(1_000):
        questions.add_log(("t", partition), 3)
    before = 0
    for _ in questions.ask():
        assert looked - before <= 100
        before = looked
    assert [len(message.logs) for message in asked.messages] == [100] * 10


def test_a_message_with_too_many_elements_is_refused() -> None:
    notice = FetchNotice(kind="", client_id="", host="", topic="", partition=0, numbers=[], text="")
    with pytest.raises(DecodeError):
        decode(FetchMessage, VERSION, encode(FetchMessage(notices=[notice] * 20_000, clients=[], logs=[]), VERSION))


@pytest.mark.parametrize("has_replica", [True, False])
async def test_lag_that_grows(has_replica: bool) -> None:
    member = await (away(0) if has_replica else distant(0))
    log = member.logs[1 if has_replica else 0]
    for second in range(60):
        log.end_offset += 100
        await member.commits(second * 20)
        await member.goes_on(second * 20)
    (event, *_) = member.service.events_of(LagGrows)
    assert (event.led, event.committed_in) == (1, 1)


@pytest.mark.parametrize("is_committed", [True, False])
async def test_records_of_aborted_transactions_are_looked_at_once_it_is_known_how_a_member_reads(
    is_committed: bool,
) -> None:
    member = await away(100)
    member.is_committed = is_committed
    member.logs[1].aborts = 1, "orders-1"
    for offset in range(1, 30):
        member.logs[1].end_offset = offset
        await member.commits(offset)
        await member.goes_on(offset)
    assert bool(member.service.events_of(AbortedRecordsRead)) is not is_committed


async def test_a_read_committed_member_that_gets_only_aborted_records() -> None:
    member = await away()
    member.is_committed = True
    member.logs[1].is_aborted = True
    await member.commits(5)
    for _ in range(40):
        member.logs[1].end_offset += 1
        await member.goes_on(6)
    assert member.service.events_of(RecordsAborted)


async def test_records_that_were_deleted_before_they_were_read() -> None:
    member = await away()
    member.logs[0].removed = Removal(15, "retention.ms", 1_795_876_800, 604_800_000)
    member.fetches.out_of_range(CLIENT, PLACE, 3, (15, 40))
    await member.waits(1)
    (lost,) = member.service.events_of(FetchOutOfRange)
    assert (lost.member.member_id, lost.offset, lost.log_start, lost.log_end) == (member.member_id, 3, 15, 40)
    assert (lost.deleted_by, lost.newest_timestamp, lost.retention_ms) == ("retention.ms", 1_795_876_800, 604_800_000)
    member.fetches.looked_up(CLIENT, PLACE, 40, latest=True)
    await member.waits(1)
    _, went_on = member.service.events_of(FetchOutOfRange)
    assert (went_on.position, went_on.reset) == (40, "latest")


async def test_a_member_that_asks_for_the_offset_of_a_time_after_its_records_were_deleted() -> None:
    member = await away()
    member.fetches.out_of_range(CLIENT, PLACE, 3, (15, 40))
    await member.waits(1)
    member.fetches.looked_up_time(CLIENT, PLACE, 20)
    await member.waits(1)
    _, went_on = member.service.events_of(FetchOutOfRange)
    assert (went_on.position, went_on.reset) == (20, "by_duration")


@pytest.mark.parametrize(
    ("commits", "asks_at", "begins_at", "found"),
    [(False, 20, 20, True), (False, 20, 5, False), (True, 20, 20, True), (True, 20, 3, False)],
    ids=["it begins at the end", "it only looks up the end", "it seeks to the end", "it goes on"],
)
async def test_a_member_that_begins_at_the_end(commits: bool, asks_at: int, begins_at: int, found: bool) -> None:
    said = []
    for member in (await at_home(), await away()):
        logs = member.service.logs
        assert isinstance(logs, Logs)
        await member.commits(0, 1)
        await member.waits(90)
        if commits:
            await member.commits(3)
        member.leave()
        logs.written = [(member.service.wall + 1, 10)]
        await member.waits(1)
        await member.join()
        await member.asks(0)
        await member.waits(1)
        member.fetches.looked_up(CLIENT, PLACE, asks_at, latest=True)
        await member.goes_on(begins_at, begins_at)
        said.append([(each.log_start, each.position, each.offset) for each in member.service.events_of(MemberSkipped)])
    assert said[0] == said[1]
    assert bool(said[1]) is found


@pytest.mark.parametrize("commits_since", [True, False])
async def test_a_member_that_has_committed_since_it_began_has_not_gone_back(commits_since: bool) -> None:
    """A notice may come after the first commit: the first one opens a connection."""
    member = await away()
    back = member.leader.others
    assert isinstance(back, Other)
    back.late = []
    if not commits_since:
        await member.commits(5)
        await member.waits(1)
    member.fetches.from_start(CLIENT, PLACE, 0)
    await member.waits(1)
    if commits_since:
        await member.commits(5)
    ((notice, _),) = back.late
    finish(member.service.groups.fetches_seen(notice))
    assert bool(member.service.events_of(MemberRewound)) is not commits_since


@pytest.mark.parametrize(("seconds", "said"), [(-1, []), (1, [3])])
async def test_a_member_that_has_committed_since_it_began_at_the_end(seconds: int, said: list[int]) -> None:
    member = await away()
    await member.commits(5)
    began_ms = member.service.wall + seconds * 1000
    notice = FetchNotice(
        kind="begins_at_end",
        client_id="client",
        host="/127.0.0.1",
        topic="t",
        partition=0,
        numbers=[3, began_ms],
        text="",
    )
    finish(member.service.groups.fetches_seen(FetchMessage(notices=[notice], clients=[], logs=[])))
    assert [each.position for each in member.service.events_of(MemberRewound)] == said


async def test_other_things_that_go_wrong_when_a_member_reads() -> None:
    member = await away()
    await member.commits(5)
    await member.waits(1)
    member.fetches.from_start(CLIENT, PLACE, 0)
    member.fetches.denied(CLIENT, "t", "User:alice")
    await member.waits(1)
    (rewound,), (denied,) = member.service.events_of(MemberRewound), member.service.events_of(FetchDenied)
    assert (rewound.offset, denied.principal) == (5, "User:alice")
    for _ in range(3):
        member.fetches.waited(CLIENT, "t", 1_000, 5_000)
        await member.waits(6)
    (waited,) = member.service.events_of(FetchesWaited)
    assert (waited.min_bytes, waited.waited_ms, waited.times) == (1_000, 5_000, 3)


@pytest.mark.parametrize("client_id", ["stranger", "client"])
async def test_what_no_group_reads_is_no_event(client_id: str) -> None:
    member = await away()
    topic = "t" if client_id == "stranger" else "not-subscribed"
    member.fetches.out_of_range(ClientAddress(client_id, "/127.0.0.1"), (topic, 0), 3, (15, 40))
    await member.waits(1)
    assert member.service.events_of(FetchOutOfRange) == []
    sent = {notice.kind for message in member.other.asked for notice in message.notices}
    assert sent == {"gets"}, "it is not sent back"


async def test_a_flood_of_notices_is_bounded() -> None:
    member = await away()
    back = member.leader.others
    assert isinstance(back, Other)
    for number in range(1_000):
        member.fetches.out_of_range(ClientAddress(f"client-{number}", "/127.0.0.1"), PLACE, 3, (15, 40))
    await member.waits(1)
    (message,) = back.asked
    assert len(message.notices) == 200


@pytest.mark.parametrize(("kind", "numbers"), [("out_of_range", [1]), ("of a newer broker", []), ("denied", [1, 2])])
async def test_a_notice_that_is_not_understood_is_ignored(kind: str, numbers: list[int]) -> None:
    member = await away()
    notice = FetchNotice(
        kind=kind, client_id="client", host="/127.0.0.1", topic="t", partition=0, numbers=numbers, text=""
    )
    before = len(member.service.published)
    finish(member.service.groups.fetches_seen(FetchMessage(notices=[notice], clients=[], logs=[])))
    assert len(member.service.published) == before


async def test_counts_are_forgotten_and_bounded() -> None:
    leader = (await away()).leader

    def ask(*clients: AskedClient) -> FetchReport:
        return finish(leader.groups.fetches_seen(FetchMessage(notices=[], clients=list(clients), logs=[])))

    def counted(*reports: FetchReport) -> int:
        return sum(each.counted_ms >= 0 for report in reports for one in report.clients for each in one.partitions)

    many = AskedClient(
        client_id="many",
        host="/h",
        partitions=[AskedPartition(topic="t", partition=n, leader_epoch=7, count=1) for n in range(MOST)],
    )
    one = AskedClient(
        client_id="one", host="/h", partitions=[AskedPartition(topic="t", partition=0, leader_epoch=7, count=1)]
    )
    assert counted(ask(many)) == MOST
    assert counted(ask(one)) == 0, "there is no room"
    leader.time += 200
    assert counted(ask(one)) == 1
    assert counted(ask(many)) == MOST - 1
    for _ in range(3):
        leader.time += 100
        report = ask(one)
    assert report.clients[0].partitions[0].counted_ms == 300_000, "it is asked for again and again"


async def test_a_broker_without_others_asks_nothing() -> None:
    member = await at_home()
    await reads_again(member)
    assert isinstance(member.stuck[0], OffsetsStuck)
