"""Clients that push metrics over HTTP: the list, the values of one, and the clients of a group's members."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.http.client_metrics import pushing_members
from barnabas_broker.telemetry import Point, PushingClient, TelemetryClients
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.uuids import uuid_text
from tests.broker.handlers.test_telemetry import ALL, asked, push, subscribe
from tests.broker.http.conftest import Http
from tests.broker.http.support import make_topic
from tests.broker.telemetry.test_points import gauge, message, point, total
from tests.client.share_member import share_member
from tests.wire import Wire

NAN = float("nan")
CLIENT_INSTANCE_ID = b"i" * 16


async def test_a_client_and_its_values(broker: BrokerServer, http: Http) -> None:
    none = (await http.get("/client-metrics")).json
    assert (none["clients"], none["subscriptions"], none["series"]) == ([], [], 0)
    pushed = message(
        gauge("org.apache.kafka.consumer.lag", point(1.5, topic="<b>"), point(NAN, topic="u")),
        total("org.apache.kafka.consumer.records.total", 2, point(7)),
        group_id="g", member_id="m",
    )  # fmt: skip
    async with await Wire.connect(broker.port) as wire:
        await subscribe(wire, {**ALL, "match": "client_id=shop"})
        answer = await asked(wire)
        listed = (await http.get("/client-metrics")).json
        (before,) = listed["clients"]
        assert (before["pushed_ago_ms"], before["series"], before["group"]) == (None, 0, None)
        assert await push(wire, answer, pushed) is ErrorCode.NONE
        listed = (await http.get("/client-metrics")).json
        identity = uuid_text(answer.client_instance_id)
        one = (await http.get(f"/client-metrics/{identity}")).json
    (row,) = listed["clients"]
    assert row.pop("pushed_ago_ms") >= 0
    assert row.pop("heard_ago_ms") >= 0
    assert row.pop("port") > 0
    assert row == {
        "client_instance_id": identity,
        "client_id": "shop",
        "address": "127.0.0.1",
        "software_name": "unknown",
        "software_version": "unknown",
        "group": "g",
        "interval_ms": 100,
        "subscribed": True,
        "error": None,
        "series": 3,
    }
    assert (listed["series"], listed["dropped"]) == (3, 0)
    assert listed["subscriptions"] == [
        {"subscription": "all", "metrics": "*", "interval_ms": 100, "match": "client_id=shop"}
    ]
    assert one["labels"] == {"group_id": "g", "member_id": "m"}
    assert one["metrics"] == ["*"]
    assert one["values"] == [
        {"name": "consumer_lag", "labels": {"topic": "<b>"}, "value": 1.5, "total": False},
        {"name": "consumer_lag", "labels": {"topic": "u"}, "value": None, "total": False},
        {"name": "consumer_records_total", "labels": {}, "value": 7, "total": True},
    ]


async def test_a_push_that_was_refused_is_told_of(broker: BrokerServer, http: Http) -> None:
    async with await Wire.connect(broker.port) as wire:
        await subscribe(wire, ALL)
        assert await push(wire, await asked(wire), b"\xff") is ErrorCode.INVALID_RECORD
        (row,) = (await http.get("/client-metrics")).json["clients"]
    assert (row["error"], row["pushed_ago_ms"]) == ("INVALID_RECORD", None)


@pytest.mark.parametrize("name", ["x", uuid_text(bytes(16)), "%2e%2e", "%ff"])
async def test_a_client_that_is_not_known(broker: BrokerServer, http: Http, name: str) -> None:
    response = await http.get(f"/client-metrics/{name}")
    assert response.status == 404
    assert "pushes no metrics to this broker" in response.json["error"]


async def test_the_member_of_a_share_group_has_its_metrics(broker: BrokerServer, http: Http) -> None:
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
    async with share_member(f"127.0.0.1:{broker.port}", "queue", "t", "worker-1"):
        (member,) = (await http.get("/groups/queue")).json["members"]
        assert member["client_metrics"] is None
        async with await Wire.connect(broker.port) as wire:
            await subscribe(wire, ALL)
            answer = await asked(wire, client_id="worker")
            labels = {"group_id": "queue", "member_id": "worker-1"}
            pushed = message(gauge("consumer.a", point(1)), **labels)
            assert await push(wire, answer, pushed, client_id="worker") is ErrorCode.NONE
            (member,) = (await http.get("/groups/queue")).json["members"]
    identity = uuid_text(answer.client_instance_id)
    assert member["client_metrics"] == {"client_instance_id": identity, "count": 1, "certain": True}


# The client of a member

#: A client: its client id and address, what it pushes, and its labels.
Pushing = tuple[str, str, str, dict[str, str]]


def found(members: Sequence[tuple[str, str, str]], *clients: Pushing) -> dict[str, tuple[int | None, int, bool]]:
    """By member id: the number of the client, None if several fit; how many fit; and whether it is certain."""
    telemetry = TelemetryClients(lambda: CLIENT_INSTANCE_ID, lambda: 0.0)
    telemetry.subscribed({"all": ALL})
    numbers: dict[str | None, int | None] = {None: None}
    for number, (client_id, address, name, labels) in enumerate(clients, 1):
        identity = (100 + number).to_bytes(16)
        numbers[uuid_text(identity)] = number
        client = PushingClient(identity, client_id, "kgo", "1", address, 1)
        wanted = telemetry.ask(client).wanted
        instance = telemetry.push(client, wanted.subscription_id, 0, 0, 1, terminating=False)
        telemetry.add(instance, Point(name, labels, 1, delta=False))
    pieces = pushing_members(
        cast("Any", SimpleNamespace(telemetry=telemetry)),
        "g",
        [
            cast("Any", SimpleNamespace(member_id=member_id, client_id=client_id, client_host=f"/{address}"))
            for member_id, client_id, address in members
        ],
    )
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            return {
                member_id: (numbers[each["client_instance_id"]], each["count"], each["certain"])
                for member_id, each in done.value.items()
            }


ONE, TWO = ("one", "c", "10.0.0.1"), ("two", "c", "10.0.0.1")
PLACE = ONE[1:]


def test_a_client_that_names_its_member_is_that_member() -> None:
    clients = [
        (*PLACE, "consumer.a", {"group_id": "g", "group_member_id": "two"}),
        (*PLACE, "consumer.a", {"group_id": "g", "member_id": "one"}),
        (*PLACE, "consumer.a", {"group_id": "g"}),
    ]
    assert found([ONE, TWO], *clients) == {"one": (2, 1, True), "two": (1, 1, True)}


def test_a_name_of_a_member_does_not_count_from_elsewhere() -> None:
    claims = {"group_id": "g", "member_id": "one"}
    assert found([ONE], ("c", "10.0.0.2", "consumer.a", claims), ("d", "10.0.0.1", "consumer.a", claims)) == {}


def test_the_only_client_of_a_client_id_and_address() -> None:
    assert found([ONE], (*PLACE, "consumer.a", {"group_id": "g"})) == {"one": (1, 1, True)}
    assert found([ONE], (*PLACE, "consumer.a", {})) == {"one": (1, 1, True)}
    # The member id of before a rebalance.
    assert found([ONE], (*PLACE, "consumer.a", {"group_id": "g", "member_id": "old"})) == {"one": (1, 1, True)}


def test_several_that_fit_are_told_of() -> None:
    client = (*PLACE, "consumer.a", {"group_id": "g"})
    assert found([ONE], client, client) == {"one": (None, 2, False)}
    assert found([ONE, TWO], client) == {"one": (1, 1, False), "two": (1, 1, False)}


def test_clients_that_name_the_group_come_before_others() -> None:
    named: Pushing = (*PLACE, "consumer.a", {"group_id": "g"})
    unnamed: Pushing = (*PLACE, "consumer.a", {})
    assert found([ONE], unnamed, named) == {"one": (2, 1, True)}


def test_producers_and_members_of_other_groups_do_not_fit() -> None:
    assert found([ONE], (*PLACE, "org.apache.kafka.producer.a", {}), (*PLACE, "consumer.a", {"group_id": "h"})) == {}
