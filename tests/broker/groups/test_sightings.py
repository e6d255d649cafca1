"""What the coordinator sees of members besides their requests goes into the events about them."""

from typing import Any

from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.sightings import ClientAddress, MemberConnection, SeenClient, Sightings
from barnabas_explain.catalog import (
    CommitsRefused,
    CommitsWentBack,
    FetchDenied,
    FetchesWaited,
    FetchOutOfRange,
    MemberDisconnected,
    MemberEvent,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MemberReconnected,
    MemberSlow,
)
from barnabas_explain.members import Member, OffsetChange, Position
from barnabas_protocol.messages.heartbeat import HeartbeatRequest
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.groups.support import Service, assignment, subscription


class Program:
    """A client with one member, which uses one connection at a time."""

    #: The partitions that it assigns to itself.
    owned: tuple[int, ...] = (0,)
    #: The topic that it subscribes to.
    reads = "t"
    rebalance_timeout_ms = 30_000
    software = "library 1.0"

    def __init__(self, service: Service, client_id: str = "client") -> None:
        self.service = service
        self.client_id = client_id
        self.member_id = ""
        self.generation = -1
        self.connect()

    def connect(self) -> None:
        self.connection: MemberConnection = self.service.groups.connected(
            ClientAddress(self.client_id, "/127.0.0.1"), self.software
        )

    @property
    def caller(self) -> Caller:
        return Caller(self.client_id, "/127.0.0.1", connection=self.connection)

    async def join(self, group_id: str = "g") -> None:
        """Join as the only member, and get an assignment."""
        self.member_id = ""
        await self.join_with(group_id=group_id)

    async def join_with(self, *others: "Program", group_id: str = "g") -> None:
        """Join together with other members, and assign partitions to all of them."""
        all_members = (*others, self)
        waiting = [each._joining(group_id) for each in all_members]
        await self.service.after(0.25)
        for each, answer in zip(all_members, waiting, strict=True):
            joined = await self.service.ask(answer, 3)
            each.member_id, each.generation = joined.member_id, joined.generation_id
        assigned = {each.member_id: assignment(**{self.reads: each.owned}) for each in all_members}
        synced = [each._syncing(group_id, assigned) for each in all_members]
        for answer in synced:
            await self.service.ask(answer, 3)

    def _joining(self, group_id: str) -> Any:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(self.reads))],
        )
        return self.service.groups.join(request, 3, self.caller)

    def _syncing(self, group_id: str, assigned: dict[str, bytes]) -> Any:
        sync = SyncGroupRequest(
            group_id=group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type=None,
            protocol_name=None,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in assigned.items()
            ],
        )
        return self.service.groups.sync(sync, 3, self.caller)

    def heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id="g", generation_id=self.generation, member_id=self.member_id, group_instance_id=None
        )
        self.service.groups.heartbeat(request, 3, self.caller)

    def leave(self, caller: Caller | None = None) -> None:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=None, reason=None)
        request = LeaveGroupRequest(group_id="g", member_id="", members=[identity])
        self.service.groups.leave(request, 4, caller or self.caller)


async def program(client_id: str = "client", service: Service | None = None) -> Program:
    made = service or await Service(group_initial_rebalance_delay_ms="0").loaded()
    started = Program(made, client_id)
    await started.join()
    return started


def newest(service: Service, kind: type[MemberEvent]) -> dict[str, Any]:
    """The fields of the newest event of a type."""
    return next(event.values() for _, event in reversed(service.published) if isinstance(event, kind))


async def test_a_member_that_leaves_and_joins_again_on_its_connection() -> None:
    one = await program()
    first = one.member_id
    joined = newest(one.service, MemberJoined)
    assert (joined["software"], joined["rebalance_timeout_ms"], joined["session_ms"]) == ("library 1.0", 30_000, 10_000)
    await one.service.after(5)
    one.heartbeat()
    await one.service.after(1)
    one.leave()
    left = newest(one.service, MemberLeft)
    assert left["connection"] == "open"
    assert left["joined_ago_ms"] == 6_250
    assert "removed_by" not in left
    await one.service.after(2)
    await one.join()
    again = newest(one.service, MemberJoined)
    assert (again["old_member_id"], again["rejoined_ms"]) == (first, 2_000)


async def test_a_member_whose_connection_is_closed_without_a_leave() -> None:
    one = await program()
    await one.service.after(3)
    one.heartbeat()
    one.connection.lost("client", "Connection reset by peer")
    closed = newest(one.service, MemberDisconnected)
    assert (closed["member"].member_id, closed["closed_by"]) == (one.member_id, "client")
    assert 3_000 <= closed["age_ms"] < 4_000
    assert "gone_ago_ms" not in closed
    await one.service.after(7)
    slow = newest(one.service, MemberSlow)
    assert (slow["connection"], slow["closed_ago_ms"]) == ("closed", slow["heard_ago_ms"])
    await one.service.after(4)
    expired = newest(one.service, MemberExpired)
    assert (expired["connection"], expired["closed_by"]) == ("closed", "client")
    assert expired["closed_error"] == "Connection reset by peer"
    assert 9_500 < expired["closed_ago_ms"] <= 11_000


async def test_a_member_that_connects_again_and_again_is_reported_once_in_a_minute() -> None:
    one = await program()
    for _ in range(3):
        one.connection.lost("client", "")
        one.connect()
        one.heartbeat()
    (closed,) = one.service.events_of(MemberDisconnected)
    (event,) = one.service.events_of(MemberReconnected)
    assert closed.member.member_id == event.member.member_id == one.member_id


async def test_a_connection_that_is_closed_after_a_leave_and_not_twice() -> None:
    one = await program()
    one.leave()
    await one.service.after(1)
    one.connection.lost("client", "")
    closed = newest(one.service, MemberDisconnected)
    assert closed["gone_ago_ms"] == 1_000
    assert sum(isinstance(event, MemberDisconnected) for _, event in one.service.published) == 1


async def test_a_member_that_uses_another_connection_is_not_gone_when_the_old_one_is_closed() -> None:
    one = await program()
    old = one.connection
    one.connect()
    one.heartbeat()
    old.lost("client", "")
    assert not any(isinstance(event, MemberDisconnected) for _, event in one.service.published)
    await one.service.after(11)
    assert newest(one.service, MemberExpired)["connection"] == "open"


async def test_a_member_that_another_client_removes() -> None:
    one = await program()
    admin = Program(one.service, "admin")
    one.leave(admin.caller)
    assert newest(one.service, MemberLeft)["removed_by"] == "admin"


async def test_a_program_that_leaves_on_another_connection_of_its_own_was_not_removed() -> None:
    """As one that is stopped while its JoinGroup waits for the response."""
    one = await program()
    one.connect()
    one.leave()
    assert "removed_by" not in newest(one.service, MemberLeft)


async def test_a_member_that_may_not_read_its_group_any_more() -> None:
    one = await program()
    groups = one.service.groups
    await one.service.after(2)
    groups.denied("another group", one.caller)
    await one.service.after(5)
    assert "denied_ago_ms" not in newest(one.service, MemberSlow)
    one.heartbeat()
    await one.service.after(5)
    groups.denied("g", one.caller)
    await one.service.after(2)
    slow = newest(one.service, MemberSlow)
    assert slow["denied_ago_ms"] < 2_000
    await one.service.after(4)
    assert newest(one.service, MemberExpired)["denied_ago_ms"] >= 4_000


async def test_the_last_fetch_counts_if_no_other_member_has_the_name() -> None:
    one = await program()
    one.service.groups.fetches.fetched(ClientAddress("client", "/127.0.0.1"))
    one.service.groups.fetches.fetched(ClientAddress("another", "/127.0.0.1"))
    await one.service.after(2)
    one.leave()
    assert newest(one.service, MemberLeft)["fetched_ago_ms"] == 2_000
    same = await program(service=one.service)
    same.service.groups.fetches.fetched(ClientAddress("client", "/127.0.0.1"))
    one.connection.use("other", "m")
    same.leave()
    assert "fetched_ago_ms" not in newest(one.service, MemberLeft)


async def test_connections_of_many_groups_are_followed_up_to_a_bound() -> None:
    one = await program()
    for number in range(100):
        one.connection.use(f"g{number}", "m")
    assert len(one.connection.members) == 16


async def test_the_last_event_of_a_member_has_the_offsets_of_its_partitions() -> None:
    one = await program()
    service = one.service
    for partition, offset in ((0, 42), (1, 100)):
        commit = service.commit(offset, partition=partition, member_id=one.member_id, generation=one.generation)
        await service.ask(commit, 8)
    one.leave()
    left = newest(service, MemberLeft)
    assert left["positions"] == (Position("t", 0, 42),)
    assert left["committed_sum"] == 142
    again = Program(service)
    await again.join()
    await service.after(20)
    assert newest(service, MemberExpired)["positions"] == (Position("t", 0, 42),)


async def test_the_last_event_of_a_new_member_has_what_it_committed() -> None:
    service = await Service(group_initial_rebalance_delay_ms="0").loaded()
    await service.ask(service.commit(40), 8)
    one = await program(service=service)

    async def commit(offset: int, partition: int = 0) -> None:
        asked = service.commit(offset, partition=partition, member_id=one.member_id, generation=one.generation)
        await service.ask(asked, 8)

    for offset, partition in ((42, 0), (45, 0), (7, 1)):
        await commit(offset, partition)
    one.leave()
    left = newest(service, MemberLeft)
    assert left["changes"] == (OffsetChange("t", 0, 40, 45), OffsetChange("t", 1, None, 7))
    await one.join()
    for offset in range(32):
        await commit(offset, offset)
        one.heartbeat()
        await service.after(1)
    one.leave()
    assert "changes" not in newest(service, MemberLeft), "it was a member for longer than 30 s"


async def test_what_a_new_member_commits_is_kept_up_to_a_bound() -> None:
    one = await program()
    service = one.service
    for partition in range(40):
        commit = service.commit(1, partition=partition, member_id=one.member_id, generation=one.generation)
        await service.ask(commit, 8)
    one.leave()
    assert len(newest(service, MemberLeft)["changes"]) == 30


async def test_the_last_event_of_a_member_has_the_transactional_id_of_its_commits() -> None:
    one = await program()
    service = one.service
    await service.ask(service.commit_in_transaction(5, member_id=one.member_id, generation=one.generation), 3)
    await service.after(2)
    one.leave()
    left = newest(service, MemberLeft)
    assert (left["transactional_id"], left["committed_ago_ms"]) == ("x", 2_000)
    assert left["commits"] == 1
    await one.join()
    for seconds in (3, 2):
        await service.after(seconds)
        await service.ask(service.commit(5, member_id=one.member_id, generation=one.generation), 8)
    one.leave()
    left = newest(service, MemberLeft)
    assert (left["commits"], left.get("transactional_id")) == (2, None)


async def test_fetches_that_wait_for_all_of_their_time_are_an_event_once_in_a_while() -> None:
    one = await program()
    service = one.service

    def wait(client_id: str = "client", topic: str = "t") -> None:
        service.groups.fetches.waited(ClientAddress(client_id, "/127.0.0.1"), topic, 1_000_000, 25_000)

    for _ in range(2):
        wait()
        wait("nobody")
    assert service.events_of(FetchesWaited) == []
    for _ in range(5):
        wait()
    (waited,) = service.events_of(FetchesWaited)
    assert (waited.member.member_id, waited.times, waited.min_bytes, waited.waited_ms) == (
        one.member_id,
        3,
        1_000_000,
        25_000,
    )
    for _ in range(300):
        one.heartbeat()
        await service.after(7)
    wait()
    assert [event.times for event in service.events_of(FetchesWaited)] == [3, 8]
    one.leave()
    await one.join()
    wait()
    assert len(service.events_of(FetchesWaited)) == 2, "it has begun anew"


async def test_refused_fetches_of_a_member_are_an_event_once_in_two_minutes_for_each_topic() -> None:
    one = await program()
    service = one.service

    def refuse(client_id: str = "client", topic: str = "t") -> None:
        service.groups.fetches.denied(ClientAddress(client_id, "/127.0.0.1"), topic, "User:geo")

    for _ in range(3):
        refuse()
        refuse("nobody")
        refuse(topic="other")
    (denied,) = service.events_of(FetchDenied)
    assert (denied.member.member_id, denied.topic, denied.principal) == (one.member_id, "t", "User:geo")
    for seconds in (*[7] * 17, 2):
        one.heartbeat()
        await service.after(seconds)
        refuse()
    assert len(service.events_of(FetchDenied)) == 2


async def test_commits_that_are_refused_one_after_the_other_are_an_event() -> None:
    one = await program()
    service = one.service

    async def commit(generation: int) -> None:
        await service.ask(
            service.commit(1, member_id=one.member_id, generation=generation, caller=one.caller, version=8), 8
        )

    for generation in (0, 0, one.generation, 0, 0):
        await commit(generation)
    assert service.events_of(CommitsRefused) == []
    for _ in range(2):
        await commit(0)
    (refused,) = service.events_of(CommitsRefused)
    assert (refused.error, refused.commits, refused.sent) == ("ILLEGAL_GENERATION", 3, 0)
    assert refused.member.member_id == one.member_id
    for _ in range(26):
        await commit(0)
    assert [event.commits for event in service.events_of(CommitsRefused)] == [3, 30]


async def test_commits_in_transactions_that_are_refused_say_whether_the_client_is_a_member() -> None:
    one = await program()
    service = one.service
    for _ in range(3):
        await service.committed_in_transaction(1, member_id=one.member_id, generation=0, caller=one.caller)
    one.leave()
    for _ in range(3):
        await service.committed_in_transaction(1, member_id=one.member_id, generation=0, caller=one.caller)
    found = [(event.error, event.transactional_id, event.is_member) for event in service.events_of(CommitsRefused)]
    assert found == [("ILLEGAL_GENERATION", "x", True), ("UNKNOWN_MEMBER_ID", "x", False)]


async def test_commits_of_a_member_that_go_back_are_an_event_once_in_10_s() -> None:
    one = await program()
    service = one.service

    async def commit(offset: int) -> None:
        await service.ask(service.commit(offset, member_id=one.member_id, generation=one.generation), 8)

    for offset in (20, 20, 21, 7, 3):
        await commit(offset)
    (back,) = service.events_of(CommitsWentBack)
    assert back.member.member_id == one.member_id
    assert back.changes == (OffsetChange("t", 0, 21, 7),)
    one.heartbeat()
    await service.after(9)
    one.heartbeat()
    await service.after(2)
    await commit(1)
    assert [event.changes for event in service.events_of(CommitsWentBack)][1:] == [(OffsetChange("t", 0, 3, 1),)]


async def test_a_fetch_outside_of_the_log_is_an_event_and_where_its_client_goes_on_another() -> None:
    one = await program()
    groups, service = one.service.groups, one.service

    def fetch(client_id: str = "client", topic: str = "t", partition: int = 0) -> None:
        groups.fetches.out_of_range(ClientAddress(client_id, "/127.0.0.1"), (topic, partition), 3, (15, 40))

    fetch("nobody")
    fetch(topic="not-subscribed")
    assert service.events_of(FetchOutOfRange) == []
    groups.fetches.looked_up(ClientAddress("client", "/127.0.0.1"), ("t", 0), 40, latest=True)
    for _ in range(3):
        fetch()
    (lost,) = service.events_of(FetchOutOfRange)
    assert (lost.member.member_id, lost.offset, lost.log_start, lost.log_end) == (one.member_id, 3, 15, 40)
    assert lost.reset is None
    for offset in (40, 41):
        groups.fetches.looked_up(ClientAddress("client", "/127.0.0.1"), ("t", 0), offset, latest=True)
    _, went_on = service.events_of(FetchOutOfRange)
    assert (went_on.position, went_on.reset) == (40, "latest")
    for partition in range(200):
        fetch(partition=partition)
    assert len(service.events_of(FetchOutOfRange)) == 65


async def test_a_partition_that_is_lost_again_is_reported_again() -> None:
    one = await program()
    groups, service = one.service.groups, one.service
    for offset, seconds in ((3, 6), (3, 1), (20, 1), (30, 6), (40, 0)):
        groups.fetches.out_of_range(ClientAddress("client", "/127.0.0.1"), ("t", 0), offset, (offset + 10, 90))
        one.heartbeat()
        await service.after(seconds)
    assert [event.offset for event in service.events_of(FetchOutOfRange)] == [3, 20, 40]


async def test_a_client_that_fetches_a_deleted_record_again_and_again_is_reported_seldom() -> None:
    one = await program()
    client = ClientAddress("client", "/127.0.0.1")
    for _ in range(36):
        one.service.groups.fetches.out_of_range(client, ("t", 0), 3, (13, 90))
        for _ in range(10):
            one.heartbeat()
            await one.service.after(5)
    assert len(one.service.events_of(FetchOutOfRange)) == 1
    one.service.groups.fetches.out_of_range(client, ("t", 0), 3, (13, 90))
    assert len(one.service.events_of(FetchOutOfRange)) == 2
    one.service.groups.fetches.looked_up(client, ("t", 0), 90, latest=True)
    assert [each.reset for each in one.service.events_of(FetchOutOfRange)] == [None, None, "latest"]


async def test_a_client_goes_on_by_itself_after_a_fetch_outside_of_the_log() -> None:
    one = await program()
    client, fetches = ClientAddress("client", "/127.0.0.1"), one.service.groups.fetches
    fetches.out_of_range(client, ("t", 0), 3, (13, 90))
    for offset in (3, 50, 60):
        fetch = fetches.fetched(client)
        if fetch is not None:
            fetch.asks(("t", 0), offset)
    _, went_on = one.service.events_of(FetchOutOfRange)
    assert (went_on.position, went_on.reset) == (50, None)


async def test_a_client_asks_for_the_offset_of_a_time_after_a_fetch_outside_of_the_log() -> None:
    one = await program()
    client, fetches = ClientAddress("client", "/127.0.0.1"), one.service.groups.fetches
    fetches.out_of_range(client, ("t", 0), 3, (13, 90))
    for offset in (50, 60):
        fetches.looked_up_time(client, ("t", 0), offset)
    _, went_on = one.service.events_of(FetchOutOfRange)
    assert (went_on.position, went_on.reset) == (50, "by_duration")


async def test_whose_fetch_it_was_is_not_guessed_if_the_client_has_several_groups() -> None:
    one = await program()
    one.connection.use("other", "m")
    one.service.commit(1, group="other")
    hosted = one.service.groups._hosted_groups
    hosted.by_id["other"] = hosted.by_id["g"]
    one.service.groups.fetches.out_of_range(ClientAddress("client", "/127.0.0.1"), ("t", 0), 3, (15, 40))
    assert one.service.events_of(FetchOutOfRange) == []


def _members_of_one_client(number: int) -> Sightings:
    """Members m0, m1 and so on, each with a connection of its own; the client of m0 asks for the offset of t-0."""
    client, group = SeenClient(), Sightings("g")
    connections = [MemberConnection(client, "c", "", lambda _: None) for _ in range(number)]
    for at, connection in enumerate(connections):
        member = Member(f"m{at}", "c", "/h", None)
        group.complete(MemberJoined(generation=0, member=member, session_ms=10_000), connection, 1.0)
    group.asked(connections[0], [("t", 0)])
    return group


def test_all_members_of_a_client_have_asked_for_the_offsets_that_it_asks_for() -> None:
    two = _members_of_one_client(2)
    assert [two.has_asked(member, ("t", 0)) for member in ("m0", "m1")] == [True, True]
    assert not two.has_asked("m1", ("t", 1))


def test_of_a_client_with_many_connections_it_is_not_known_what_it_has_asked_for() -> None:
    """One request must not look at thousands of connections."""
    assert _members_of_one_client(17).has_asked("m16", ("t", 1))
