"""The console over HTTP, of a real broker."""

import asyncio
import json
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from barnabas.console import examiner
from barnabas.console.command import _login
from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.http import json_rows, rates
from barnabas_client import Admin, NewTopic, Producer
from barnabas_client.admin.acls import AclBinding
from barnabas_client.cli.failures import CommandError
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records import build_batch
from tests.broker.http.support import commit, join_alone, make_topic, produce
from tests.browser import scenes
from tests.browser.scenes import Orders, RawMember
from tests.client.console.running import TOKEN, console
from tests.wire import PATIENCE, Wire

pytestmark = pytest.mark.broad

Connect = Callable[[], Awaitable[Wire]]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    broker = await scenes.start(str(tmp_path / "data"), num_partitions="4")
    yield broker
    await broker.stop()


@pytest.fixture
async def connect(broker: BrokerServer) -> AsyncIterator[Connect]:
    wires: list[Wire] = []

    async def more() -> Wire:
        wires.append(await Wire.connect(broker.port))
        return wires[-1]

    yield more
    for wire in wires:
        await wire.close()


async def ask(
    port: int | None, path: str, body: Any = None, method: str | None = None, **headers: str
) -> tuple[int, Any, Mapping[str, str]]:
    """A response: its status, its JSON, its headers."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    async with (
        asyncio.timeout(PATIENCE),
        aiohttp.ClientSession() as session,
        session.request(
            method or ("GET" if body is None else "POST"), f"http://127.0.0.1:{port}{path}", data=data, headers=given
        ) as response,
    ):
        raw = await response.read()
        return response.status, json.loads(raw) if raw else None, response.headers


async def reset(port: int, group: str, body: Any, **headers: str) -> tuple[int, Any]:
    given = {"Content_Type": "application/json", "X_Barnabas_Token": TOKEN, **headers}
    status, answer, _ = await ask(port, f"/groups/{group}/offsets", body, **given)
    return status, answer


async def settled(port: int, group: str, bands: int) -> dict[str, Any]:
    """The chart of a group when all its events were read and it has so many bands."""
    async with asyncio.timeout(PATIENCE):
        while True:
            status, made, _ = await ask(port, f"/groups/{group}/chart")
            assert status == 200, made
            if made["source"]["loaded"] and len(made["bands"]) >= bands:
                assert isinstance(made, dict)
                return made


async def orders(connect: Connect) -> Orders:
    await make_topic(await connect(), Orders.TOPIC)
    story = Orders(*[RawMember(await connect(), Orders.GROUP, name) for name in ("one", "two", "three")])
    await story.begin()
    await story.second_joins()
    await story.second_leaves()
    return story


def known(value: Any) -> Any:
    """What console and broker say alike: not what only the coordinator knows, nor what their samples tell."""
    assert isinstance(value, dict)
    other = (
        *("generation", "protocol_type", "protocol", "health_reason", "storm_score"),
        *("lag_ms", "lag_ms_exact", "commit_rate", "produce_rate", "findings"),
    )
    return {name: each for name, each in value.items() if name not in other}


async def test_the_list_and_a_page_say_what_the_doctor_says(broker: BrokerServer, connect: Connect) -> None:
    """A client without membership commits since the last member has left."""
    wire, of_member = await connect(), await connect()
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 5)
    member = RawMember(of_member, "billing", "c1")
    await member.join("t")
    await member.sync("t", {member.member_id: [0]})
    await member.leave("done")
    await of_member.close()
    await commit(wire, "billing", "t", {0: 1})
    async with console(f"127.0.0.1:{broker.port}") as port, asyncio.timeout(PATIENCE):
        found: list[dict[str, Any]] = []
        while not found:
            (row,) = (await ask(port, "/groups"))[1]["groups"]
            found = row["findings"]
        assert [(each["kind"], each["severity"], each["sure"]) for each in found] == [("no_members", "odd", "possible")]
        assert "which is not a member, committed at" in found[0]["text"]
        assert (await ask(port, "/groups/billing"))[1]["findings"] == found
        assert "findings" not in (await ask(port, "/groups/billing/chart"))[1]


async def test_a_group_without_members_is_judged_by_all_of_its_events(
    broker: BrokerServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the command does: a job that runs once a day has no event of the last hour."""
    monkeypatch.setattr(examiner, "SINCE_MS", 0)
    wire = await connect()
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 5)
    await commit(wire, "billing", "t", {0: 1})
    member = RawMember(wire, "billing", "c1")
    await member.join("t")
    await member.sync("t", {member.member_id: [0]})
    await member.leave("done")
    async with console(f"127.0.0.1:{broker.port}") as port, asyncio.timeout(PATIENCE):
        while not (found := (await ask(port, "/groups"))[1]["groups"][0]["findings"]):
            pass
    assert [each["kind"] for each in found] == ["no_members"]
    assert found[0]["evidence"][0].startswith(
        "c1 (127.0.0.1) was among the last ones, and its connection is still open"
    )


async def test_rates_come_from_offsets_that_move(
    broker: BrokerServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the page of the broker and on the console: nothing is known at first, then that a group consumes."""
    monkeypatch.setattr(rates, "LEAST", 0.001)
    wire = await connect()
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 1)
    number = 1
    await commit(wire, "g", "t", {0: number})
    async with console(f"127.0.0.1:{broker.port}") as port:
        for where in (port, broker.http_port):
            seen: list[float | None] = []
            async with asyncio.timeout(PATIENCE):
                while not (seen and seen[-1]):
                    (row,) = (await ask(where, "/groups"))[1]["groups"]
                    seen.append(row["commit_rate"])
                    await produce(wire, "t", 0, 5)
                    number += 1
                    await commit(wire, "g", "t", {0: number})
            if where == port:
                assert seen[0] is None  # the first look at a group tells no rate
            assert row["produce_rate"] > 0


async def test_groups_are_those_of_the_broker(broker: BrokerServer, connect: Connect) -> None:
    wire = await connect()
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 1_500)
    await commit(wire, "behind", "t", {0: 0})
    await join_alone(wire, "behind", "t", 0)
    await commit(wire, "without", "t", {0: 7})
    async with console(f"127.0.0.1:{broker.port}") as port:
        _, ours, headers = await ask(port, "/groups")
        _, theirs, _ = await ask(broker.http_port, "/groups")
        rows = {row["group"]: row for row in ours["groups"]}
        assert rows.keys() == {"behind", "without"}
        for row in theirs["groups"]:
            assert rows[row["group"]].keys() == row.keys()
            assert known(rows[row["group"]]) == known(row)
        status, _, _ = await ask(port, "/groups", If_None_Match=headers["ETag"])
        assert status == 304
        _, one, _ = await ask(port, "/groups/behind")
        _, other, _ = await ask(broker.http_port, "/groups/behind")
        assert one.keys() >= other.keys() - {"leader", "seconds_in_state"}
        for mine, real in zip(one["members"], other["members"], strict=True):
            same = ("member_id", "client_id", "host", "instance_id", "assignment")
            assert {name: mine[name] for name in same} == {name: real[name] for name in same}
        for mine, real in zip(
            [each for each in one["offsets"] if each["current_offset"] is not None],
            [each for each in other["offsets"] if each["current_offset"] is not None],
            strict=True,
        ):
            unknown = {"committed_ms", "metadata"}
            assert {name: mine[name] for name in mine.keys() - unknown} == {
                name: real[name] for name in real.keys() - unknown
            }


async def test_a_chart_from_recorded_events_is_that_of_the_broker(broker: BrokerServer, connect: Connect) -> None:
    await orders(connect)
    async with console(f"127.0.0.1:{broker.port}") as port:
        made = await settled(port, Orders.GROUP, 3)
        _, real, _ = await ask(broker.http_port, f"/groups/{Orders.GROUP}/chart")
        for part in ("lanes", "bands", "pauses", "explanations", "gaps", "more"):
            assert made[part] == real[part], part
        assert made["source"]["note"] is None


async def test_a_chart_from_consumer_offsets_has_the_same_generations(broker: BrokerServer, connect: Connect) -> None:
    await orders(connect)
    async with console(f"127.0.0.1:{broker.port}", source="offsets") as port:
        made = await settled(port, Orders.GROUP, 3)
    _, real, _ = await ask(broker.http_port, f"/groups/{Orders.GROUP}/chart")
    assert made["source"]["note"].startswith("From __consumer_offsets since ")

    def told(chart: dict[str, Any]) -> list[Any]:
        return [
            (
                band["generation"],
                [each["client_id"] for each in band["members"]],
                {each["client_id"]: each["gained"] for each in band["moves"] if each["gained"]},
            )
            for band in chart["bands"]
        ]

    assert told(made) == told(real)
    assert [(band["kind"], band["inferred"]) for band in made["bands"]] == [
        ("joined", True),
        ("joined", True),
        ("lost", True),  # the records do not say whether the member left or its session expired
    ]
    assert [lane["name"] for lane in made["lanes"]] == [lane["name"] for lane in real["lanes"]]


async def test_without_records_a_group_is_described_again_and_again(broker: BrokerServer, connect: Connect) -> None:
    story = await orders(connect)
    async with console(f"127.0.0.1:{broker.port}", source="polls") as port:
        assert (await settled(port, Orders.GROUP, 0))["source"]["note"].startswith("The group is described every 1 s")
        await story.rebalance(story.third, ([0, 2], [1, 3]), session_ms=60_000)
        made = await settled(port, Orders.GROUP, 1)
        band = made["bands"][-1]
        assert (band["kind"], band["inferred"], band["by"]) == ("joined", True, ["three (127.0.0.1)"])


async def test_an_unchanged_chart_is_not_sent_again(broker: BrokerServer, connect: Connect) -> None:
    await orders(connect)
    async with console(f"127.0.0.1:{broker.port}") as port:
        await settled(port, Orders.GROUP, 3)
        path = f"/groups/{Orders.GROUP}/chart"
        _, _, headers = await ask(port, path)
        assert (await ask(port, path, If_None_Match=headers["ETag"]))[0] == 304


async def test_a_page_that_moves_back_in_time_gets_earlier_events(broker: BrokerServer, connect: Connect) -> None:
    await orders(connect)
    async with console(f"127.0.0.1:{broker.port}") as port:
        later = await settled(port, Orders.GROUP, 3)
        earlier = later["since"] - 7_200_000
        _, made, _ = await ask(port, f"/groups/{Orders.GROUP}/chart?since={earlier}")
        assert made["since"] <= earlier
        assert len(made["bands"]) == 3
        assert (await ask(port, f"/groups/{Orders.GROUP}/chart?since=noon"))[0] == 400


async def test_what_is_not_there(broker: BrokerServer) -> None:
    async with console(f"127.0.0.1:{broker.port}") as port:
        status, answer, _ = await ask(port, "/groups/nobody")
        assert (status, answer) == (404, {"error": "this cluster has no group nobody"})
        assert (await ask(port, "/metrics"))[0] == 404
        status, answer, _ = await ask(port, "/", Accept="application/json")
        assert (status, answer["brokers"]) == (200, f"127.0.0.1:{broker.port}")
        assert answer["changes"] is False
        assert (await ask(port, "/healthz"))[0] == 200


async def test_brokers_that_do_not_answer_are_a_bad_gateway(broker: BrokerServer, connect: Connect) -> None:
    await orders(connect)
    async with console(f"127.0.0.1:{broker.port}") as port:
        await settled(port, Orders.GROUP, 3)
        await broker.stop()
        async with asyncio.timeout(PATIENCE):
            while (await ask(port, "/groups"))[0] != 502:
                pass
        status, made, _ = await ask(port, f"/groups/{Orders.GROUP}/chart")
        assert (status, len(made["bands"])) == (200, 3)  # what was read is kept


# Topics, brokers, transactions, ACLs


async def test_topics_are_those_of_the_broker(broker: BrokerServer, connect: Connect) -> None:
    wire = await connect()
    for name, count in (("t", 7), ("empty", 0)):
        await make_topic(wire, name)
        if count:
            await produce(wire, name, 0, count)
    await commit(wire, "g", "t", {0: 1})
    async with console(f"127.0.0.1:{broker.port}") as port:
        _, ours, headers = await ask(port, "/topics")
        _, theirs, _ = await ask(broker.http_port, "/topics")
        mine = {row.pop("topic"): row for row in ours["topics"]}
        real = {row.pop("topic"): row for row in theirs["topics"]}
        for row in (*mine.values(), *real.values()):
            row.pop("configs")  # of one topic only, by the console
        real["__consumer_offsets"] |= {name: mine["__consumer_offsets"][name] for name in ("records", "end", "size")}
        assert mine == real
        assert (mine["t"]["records"], mine["t"]["known"], ours["notes"]) == (7, 4, [])
        assert (await ask(port, "/topics", If_None_Match=headers["ETag"]))[0] in (200, 304)
        _, one, _ = await ask(port, "/topics/t")
        _, other, _ = await ask(broker.http_port, "/topics/t")
        assert one["partitions"] == other["partitions"]
        assert (one["topic_id"], one["internal"], one["shows_records"]) == (other["topic_id"], False, True)
        values = {each["name"]: each["value"] for each in other["configs"]}
        assert {each["name"]: each["value"] for each in one["configs"]} == values
        assert (await ask(port, "/topics/none"))[0] == 404
        assert (await ask(port, "/topics/" + "x" * 300))[0] == 404
        assert (await ask(port, "/topics/%3Cb%3E"))[0] == 404


async def test_records_are_those_of_the_broker(broker: BrokerServer, connect: Connect) -> None:
    wire = await connect()
    await make_topic(wire, "t")
    for partition, count in ((0, 30), (1, 3)):
        await produce(wire, "t", partition, count)
    async with (
        Producer(bootstrap_servers=f"127.0.0.1:{broker.port}", transactional_id="pay") as producer,
        producer.transaction(),
    ):
        await producer.send("t", b"\xff\x00", key=None, partition=2, headers=[("h", None)])
    async with console(f"127.0.0.1:{broker.port}") as port:
        for query in ("", "?count=8", "?partition=0&after=0:4&count=3", "?after=0:30,1:1", "?partition=2", "?since=0"):
            status, ours, _ = await ask(port, f"/topics/t/records{query}")
            _, theirs, _ = await ask(broker.http_port, f"/topics/t/records{query}")
            assert status == 200
            assert ours.keys() == theirs.keys()
            assert ours | {"time": 0} == theirs | {"time": 0}, query
        assert [row["kind"] for row in (await ask(port, "/topics/t/records?partition=2"))[1]["records"]] == [
            "record",
            "marker",
        ]
        assert (await ask(port, "/topics/t/records?partition=99"))[0] == 404
        assert (await ask(port, "/topics/none/records"))[0] == 404
        status, answer, _ = await ask(port, "/topics/t/records?after=x")
        assert (status, answer["error"].startswith("after: must be PARTITION:OFFSET")) == (400, True)


async def test_a_batch_that_cannot_be_read_is_a_row_with_its_error(
    broker: BrokerServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = await connect()
    await make_topic(wire, "t")
    monkeypatch.setattr(json_rows, "_MOST_DECOMPRESSED", 10_000)
    bomb = build_batch([(None, b"x" * 100_000, (), 0)], compression="gzip")
    data = [PartitionProduceData(index=0, records=bomb)]
    request = ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    assert (await wire.ask(request, 9, ProduceResponse)).responses[0].partition_responses[0].error_code == 0
    await produce(wire, "t", 0, 1)
    async with console(f"127.0.0.1:{broker.port}") as port:
        _, found, _ = await ask(port, "/topics/t/records?partition=0")
    assert [(row["offset"], row["kind"]) for row in found["records"]] == [(0, "error"), (1, "record")]


@pytest.mark.parametrize("show", [False, True])
async def test_records_are_shown_with_a_login_only_if_that_is_asked_for(tmp_path: Path, show: bool) -> None:
    """Every user of this machine can open the page, and the brokers let only this user read."""
    given = {
        "log.dir": str(tmp_path / "login"),
        "listeners": "OUT://127.0.0.1:0",
        "listener.security.protocol.map": "OUT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "OUT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.out.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";'
        ),
    }
    broker = await BrokerServer.start(Config(BROKER_KEYS, given), port=0, http_port=None)
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "a", "sasl_plain_password": "b"}
    servers = f"127.0.0.1:{broker.port}"
    try:
        async with Admin(bootstrap_servers=servers, **login) as admin:  # type: ignore[arg-type]
            await admin.create_topics([NewTopic("t")])
        async with console(servers, show_records=show, security=login) as port:
            status, answer, _ = await ask(port, "/topics/t/records")
            assert status == (200 if show else 403)
            assert show or "--show-records" in answer["error"]
            assert (await ask(port, "/topics/t"))[1]["shows_records"] is show
            assert (await ask(port, "/topics"))[1]["topics"][0]["topic"] == "t"
    finally:
        await broker.stop()


async def test_brokers_have_what_any_client_can_ask(broker: BrokerServer, connect: Connect) -> None:
    wire = await connect()
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 5)
    async with console(f"127.0.0.1:{broker.port}") as port:
        _, made, _ = await ask(port, "/brokers")
    _, real, _ = await ask(broker.http_port, "/broker")
    (one,) = made["brokers"]
    (known,) = real["brokers"]
    assert (one["node_id"], one["address"], one["leads"]) == (known["node_id"], known["address"], known["leads"])
    assert (one["live"], one["controller"], one["not_in_sync"], one["reason"]) == (True, True, 0, None)
    (directory,) = one["log_directories"]
    assert directory["disk_bytes"] == real["log_directory"]["disk_bytes"]
    assert directory["replicas"] == real["log_directory"]["partitions"]
    # What no request tells is not there, rather than zero.
    assert not {"requests", "loop_lag", "resident_bytes", "connections"} & made.keys()


async def test_open_transactions_and_what_waits_for_them(broker: BrokerServer, connect: Connect) -> None:
    await make_topic(await connect(), "t")
    async with (
        Producer(bootstrap_servers=f"127.0.0.1:{broker.port}", transactional_id="pay") as producer,
        console(f"127.0.0.1:{broker.port}") as port,
    ):
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a", partition=1)
        _, made, _ = await ask(port, "/transactions")
        _, real, _ = await ask(broker.http_port, "/transactions")
        await producer.abort_transaction()
    (mine,), (known,) = made["open"], real["open"]
    unknown = {"client": None, "updated_ms": None}
    assert mine == known | unknown
    (waiting,), (there,) = made["blocked"], real["blocked"]
    assert waiting.pop("producers_known")
    assert waiting == there
    assert (made["transactional_ids"], made["open_count"], made["notes"]) == (1, 1, [])


async def test_without_an_authorizer_that_is_said(broker: BrokerServer) -> None:
    async with console(f"127.0.0.1:{broker.port}") as port:
        _, made, _ = await ask(port, "/acls")
    assert (made["authorizer"], made["reason"], made["acls"]) == (False, None, [])


async def test_acls_are_those_of_the_cluster(tmp_path: Path) -> None:
    broker = await scenes.start(
        str(tmp_path / "acls"),
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    )
    try:
        async with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            topic = AclResourceType.TOPIC
            await admin.create_acls(
                [
                    AclBinding("User:<b>", AclOperation.READ, topic, "or", AclPatternType.PREFIXED),
                    AclBinding(
                        "User:*", AclOperation.ALL, topic, "*", host="::1", permission_type=AclPermissionType.DENY
                    ),
                ]
            )
        async with console(f"127.0.0.1:{broker.port}") as port:
            _, made, _ = await ask(port, "/acls")
        _, real, _ = await ask(broker.http_port, "/acls")
    finally:
        await broker.stop()
    listed = sorted(made["acls"], key=str)
    assert listed == sorted(real["acls"], key=str)
    assert listed == [
        {
            "permission": "ALLOW",
            "principal": "User:<b>",
            "host": "*",
            "operation": "READ",
            "resource_type": "TOPIC",
            "resource": "or",
            "prefixed": True,
        },
        {
            "permission": "DENY",
            "principal": "User:*",
            "host": "::1",
            "operation": "ALL",
            "resource_type": "TOPIC",
            "resource": "*",
            "prefixed": False,
        },
    ]
    # No request tells a client who needs no ACL.
    assert (made["authorizer"], made["count"], made["super_users"]) == (True, 2, None)
    assert (real["super_users"], real["allow_everyone"]) == (["User:ANONYMOUS"], False)


# Host header, and requests that change something


async def test_requests_for_foreign_names_are_refused(broker: BrokerServer) -> None:
    async with console(f"127.0.0.1:{broker.port}", changes=True) as port:
        for path in ("/", "/groups", "/healthz", "/page/page.js"):
            assert (await ask(port, path, Host=f"rebound.example:{port}"))[0] == 421
        assert (await ask(port, "/healthz", Host=f"localhost:{port}"))[0] == 200


async def test_without_the_flag_there_is_no_such_path(broker: BrokerServer) -> None:
    async with console(f"127.0.0.1:{broker.port}") as port:
        assert (await reset(port, "g", {"to": "earliest"}))[0] == 404
        status, answer, headers = await ask(port, "/groups/g", {"to": "earliest"})
        assert (status, headers["Allow"]) == (405, "GET, HEAD"), answer


async def test_a_dry_run_changes_nothing_and_what_it_showed_is_committed(
    broker: BrokerServer, connect: Connect
) -> None:
    wire = await connect()
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 10)
    await commit(wire, "g", "t", {0: 4, 1: 0})

    async def committed() -> list[Any]:
        _, group, _ = await ask(broker.http_port, "/groups/g")
        return [each["current_offset"] for each in group["offsets"]][:2]

    async with console(f"127.0.0.1:{broker.port}", changes=True) as port:
        status, shown = await reset(port, "g", {"to": "latest"})
        assert status == 200
        assert [(each["partition"], each["old_offset"], each["new_offset"]) for each in shown["offsets"]] == [
            (0, 4, 10),
            (1, 0, 0),
        ]
        assert shown["executed"] is False
        assert await committed() == [4, 0]
        await produce(wire, "t", 0, 5)  # the plan stays what was shown
        status, done = await reset(port, "g", {"plan": shown["plan"]})
        assert (status, done["executed"]) == (200, True)
        assert [each["error"] for each in done["offsets"]] == [None, None]
        assert await committed() == [10, 0]
        status, again = await reset(port, "g", {"plan": shown["plan"]})
        assert (status, "executed already" in again["error"]) == (409, True)
        _, other = await reset(port, "g", {"to": "earliest", "topics": ["t:0"]})
        assert (await reset(port, "another", {"plan": other["plan"]}))[0] == 409
        assert await committed() == [10, 0]


async def test_a_group_with_members_is_not_reset(broker: BrokerServer, connect: Connect) -> None:
    wire = await connect()
    await make_topic(wire, "t")
    await commit(wire, "g", "t", {0: 4})
    async with console(f"127.0.0.1:{broker.port}", changes=True) as port:
        _, shown = await reset(port, "g", {"to": "earliest"})
        await join_alone(wire, "g", "t", 0)
        status, answer = await reset(port, "g", {"plan": shown["plan"]})
        assert status == 200
        assert "UNKNOWN_MEMBER_ID" in answer["offsets"][0]["error"]
        status, answer = await reset(port, "g", {"to": "earliest"})
        assert status == 409
        assert "offsets can only be reset while group 'g' is inactive" in answer["error"]
        _, group, _ = await ask(broker.http_port, "/groups/g")
        assert group["offsets"][0]["current_offset"] == 4


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X_Barnabas_Token": ""}, 403),
        ({"X_Barnabas_Token": TOKEN[:-1]}, 403),
        ({"X_Barnabas_Token": TOKEN + "\u00e9"}, 403),
        ({"Origin": "http://rebound.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Host": "rebound.example"}, 421),
    ],
)
async def test_a_page_of_another_site_cannot_reset_offsets(
    broker: BrokerServer, headers: dict[str, str], status: int
) -> None:
    async with console(f"127.0.0.1:{broker.port}", changes=True) as port:
        assert (await reset(port, "g", {"to": "earliest"}, **headers))[0] == status


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"[" * 100_000, b'{"to": "earliest", "topics": {}}', b"\xff"])
async def test_a_body_that_is_not_what_it_should_be(broker: BrokerServer, body: bytes) -> None:
    async with console(f"127.0.0.1:{broker.port}", changes=True) as port:
        assert (await reset(port, "g", body))[0] == 400
        assert (await reset(port, "g", b" " * 300_000))[0] == 413


async def test_with_a_token_everything_needs_it(broker: BrokerServer) -> None:
    login = "the-login-of-the-test"
    async with console(f"127.0.0.1:{broker.port}", login=login, changes=True) as port:
        for path in ("/", "/groups", "/groups/g", "/groups/g/chart", "/groups/g/curves"):
            status, answer, headers = await ask(port, path)
            assert (status, headers["WWW-Authenticate"]) == (401, "Bearer"), path
            assert "Bearer TOKEN" in answer["error"]
            status, _, _ = await ask(port, path, Authorization=f"Bearer {login}")
            assert status != 401, path
        assert (await ask(port, "/healthz"))[:2] == (200, {"status": "ok"})
        # The token of changes is another one, and both are needed.
        status, _ = await reset(port, "g", {})
        assert status == 401
        status, _ = await reset(port, "g", {}, Authorization=f"Bearer {login}", X_Barnabas_Token="wrong")
        assert status == 403


@pytest.mark.parametrize(
    ("flags", "exposed", "why"),
    [
        ({}, False, None),
        ({"host": "0.0.0.0"}, None, "To do: give --token-file FILE, or --insecure"),
        ({"host": "0.0.0.0", "insecure": True}, True, None),
        ({"host": "0.0.0.0", "token_file": "token"}, False, None),
        ({"token_file": "nothing"}, None, "cannot be read"),
    ],
)
def test_other_addresses_need_a_token(
    tmp_path: Path, flags: dict[str, Any], exposed: bool | None, why: str | None
) -> None:
    (tmp_path / "token").write_text("0123456789abcdef")
    given: dict[str, Any] = {"host": "127.0.0.1", "insecure": False, "token_file": None, **flags}
    if given["token_file"] is not None:
        given["token_file"] = str(tmp_path / given["token_file"])
    if why is not None:
        with pytest.raises(CommandError, match=why):
            _login(Namespace(**given))
        return
    login, open_to_everyone = _login(Namespace(**given))
    assert (login.required, open_to_everyone) == (given["token_file"] is not None, exposed)
