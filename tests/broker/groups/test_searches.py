"""Clients that ask for the coordinator of a group that does not exist, and stay away from it."""

from collections.abc import Callable

import pytest

from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.searches import MOST, PATIENCE, Search, Searches
from barnabas_broker.groups.sightings import ClientAddress, Clients, MemberConnection
from barnabas_explain.catalog import CoordinatorSought
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.groups.support import Service


def caller(client_id: str = "client", clients: Clients | None = None) -> Caller:
    client = (clients or Clients()).get(ClientAddress(client_id, "/h"))
    connection = MemberConnection(client, client_id, "library 1.0", lambda closed: None)
    return Caller(client_id, "/h", connection=connection)


class Groups:
    """What is looked for, and what is reported."""

    def __init__(self) -> None:
        self.reported: list[Search] = []
        self.searches = Searches(self.reported.append)

    def names(self, now: float) -> list[str]:
        """The groups that are reported until a time."""
        if self.searches.next_deadline() <= now:
            self.searches.fire(now)
        return [each.group_id for each in self.reported]


def test_a_client_that_stays_connected_and_does_not_join() -> None:
    groups, client = Groups(), caller()
    groups.searches.add("g", client, 10)
    groups.searches.add("g", client, 20)
    assert groups.searches.next_deadline() == 10 + PATIENCE
    assert groups.names(39) == []
    assert groups.names(40) == ["g"]
    groups.searches.add("g", client, 600)
    assert groups.names(700) == ["g"], "it is known"
    groups.searches.add("g", client, 4_000)
    assert groups.names(4_100) == ["g", "g"]


def _is_gone(searches: Searches, client: Caller) -> None:
    assert client.connection is not None
    client.connection.lost("client", "")


def _reads(searches: Searches, client: Caller) -> None:
    assert client.connection is not None
    client.connection.client.fetched_at = 15


def _describes(searches: Searches, client: Caller) -> None:
    searches.looked_at("g", client)


def _asks_for_another(searches: Searches, client: Caller) -> None:
    searches.add("h", client, 12)


@pytest.mark.parametrize("does", [_is_gone, _reads, _describes, _asks_for_another])
def test_a_program_that_is_no_consumer_without_topics(does: Callable[[Searches, Caller], None]) -> None:
    """A tool is soon gone, describes the group or asks for several; a reader with assign() sends Fetches."""
    groups, client = Groups(), caller()
    groups.searches.add("g", client, 10)
    does(groups.searches, client)
    assert groups.names(1_000) == []


def test_somebody_who_looks_at_the_group_does_not_excuse_the_consumer() -> None:
    groups, client = Groups(), caller()
    groups.searches.add("g", client, 10)
    tool = caller("tool")
    groups.searches.add("g", tool, 12)
    groups.searches.looked_at("g", tool)
    assert groups.names(40) == ["g"]
    assert groups.reported[0].caller is client


def test_a_tool_that_asks_does_not_hide_a_consumer_that_connects_again_and_again() -> None:
    """`barnabas groups explain` is such a tool."""
    groups, clients = Groups(), Clients()
    for at in range(10, 40, 3):
        client = caller(clients=clients)
        groups.searches.add("g", client, at)
        _is_gone(groups.searches, client)
        tool = caller("tool")
        groups.searches.add("g", tool, at + 1)
        groups.searches.looked_at("g", tool)
    assert groups.names(40) == ["g"]
    assert groups.reported[0].caller.client_id == "client"


def test_two_clients_that_do_not_join_are_one_report() -> None:
    groups, clients = Groups(), [caller(name) for name in ("one", "two")]
    for client in clients:
        groups.searches.add("g", client, 10)
    assert groups.names(40) == ["g"]


def test_a_client_that_connects_anew_is_looked_at_again() -> None:
    groups, client = Groups(), caller()
    groups.searches.add("g", client, 10)
    _is_gone(groups.searches, client)
    groups.searches.add("g", caller(), 20)
    assert groups.names(45) == []
    assert groups.names(50) == ["g"]


@pytest.mark.parametrize("reconnects", [False, True])
def test_a_client_that_does_not_reach_the_address_asks_again_and_again(reconnects: bool) -> None:
    groups, clients = Groups(), Clients()
    client = caller(clients=clients)
    for at in range(10, 40, 3):
        if reconnects:
            _is_gone(groups.searches, client)
            client = caller(clients=clients)
        groups.searches.add("g", client, at, advertised="elsewhere:9092")
    assert groups.names(40) == ["g"]
    (search,) = groups.reported
    assert (search.at, search.times, search.advertised) == (10, 10, "elsewhere:9092")
    assert search.asks_again(40)


@pytest.mark.parametrize("last", [12, 29])
def test_a_client_that_asks_only_at_first_has_the_address_it_needs(last: float) -> None:
    groups, client = Groups(), caller()
    groups.searches.add("g", client, 10)
    groups.searches.add("g", client, last)
    assert groups.names(40) == ["g"]
    assert not groups.reported[0].asks_again(40)


def test_programs_of_one_name_that_are_started_one_after_the_other_do_not_ask_again_and_again() -> None:
    groups, clients = Groups(), Clients()
    for at in range(10, 40, 10):
        groups.searches.add("g", caller(clients=clients), at)
    assert groups.names(40) == ["g"]
    assert not groups.reported[0].asks_again(40)


def test_a_reader_that_asks_again_is_no_consumer_without_topics() -> None:
    groups, clients = Groups(), Clients()
    for at in range(10, 40, 3):
        client = caller(clients=clients)
        groups.searches.add("g", client, at)
        _is_gone(groups.searches, client)
    _reads(groups.searches, client)
    assert groups.names(40) == []


def test_it_is_bounded() -> None:
    groups = Groups()
    clients = [caller() for _ in range(MOST + 1)]
    for number, client in enumerate(clients):
        groups.searches.add(f"g{number}", client, 10)
    groups.searches.add("a" * 10_000, caller(), 10)
    assert groups.names(40) == [f"g{number}" for number in range(1, MOST + 1)]


async def test_what_is_reported_names_the_client_and_its_library() -> None:
    service = await Service().loaded()
    connection = service.groups.connected(ClientAddress("audit", "/10.0.0.7"), "librdkafka 2.5")
    audit = Caller("audit", "/10.0.0.7", principal="User:alice", connection=connection)
    service.groups.sought("g", audit, "DOCKER", "broker:9092")
    await service.after(PATIENCE + 1)
    (event,) = service.events_of(CoordinatorSought)
    assert (event.group, event.client_id, event.host, event.principal) == ("g", "audit", "/10.0.0.7", "User:alice")
    assert event.software == "librdkafka 2.5"
    assert (event.listener, event.advertised) == ("DOCKER", "broker:9092")
    assert event.waited_ms == pytest.approx(PATIENCE * 1000, abs=500)
    assert (event.asks, event.missing, event.hidden, event.are_all) == (0, None, None, None)


async def test_what_is_reported_names_the_topics_that_do_not_exist_for_the_client() -> None:
    service = await Service().loaded()
    for group, names in (("g", [f"t{number}" for number in range(100)]), ("h", [])):
        connection = service.groups.connected(ClientAddress("c", "/h"), "librdkafka 2.5")
        service.groups.sought(group, Caller("c", "/h", connection=connection))
        connection.asked_for_topics(names, ["secret"] if names else [], are_all=not names)
    await service.after(PATIENCE + 1)
    named, pattern = service.events_of(CoordinatorSought)
    assert (named.missing, named.hidden, named.are_all) == (("t0", "t1", "t2", "t3", "t4"), ("secret",), None)
    assert (pattern.missing, pattern.hidden, pattern.are_all) == (None, None, True)


async def test_a_group_that_has_come_to_be_or_has_been_is_known() -> None:
    service = await Service(group_initial_rebalance_delay_ms="0").loaded()
    connections = [service.groups.connected(ClientAddress("c", "/h"), "") for _ in range(3)]
    joins, commits, late = (Caller("c", "/h", connection=each) for each in connections)
    service.groups.sought("g", joins)
    service.groups.sought("h", commits)
    member_id = await service.member()
    await service.ask(service.commit(5, group="h"), 8)
    await service.after(5)
    await service.ask(service.leave(member_id), 5)
    service.groups.sought("g", late)
    await service.after(PATIENCE + 1)
    assert service.events_of(CoordinatorSought) == []


async def test_a_client_that_may_not_join_does_not_stay_away() -> None:
    service = await Service().loaded()
    client = Caller("c", "/h", connection=service.groups.connected(ClientAddress("c", "/h"), ""))
    service.groups.sought("g", client)
    joins = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, server_assignor="sticky")
    joins.rebalance_timeout_ms, joins.subscribed_topic_names, joins.topic_partitions = 60_000, ["t"], []
    response = await service.ask(service.groups.consumer_heartbeat(joins, 1, client), 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    await service.after(PATIENCE + 1)
    assert service.events_of(CoordinatorSought) == []
