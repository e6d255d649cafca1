"""`barnabas groups`; output that Kafka's tool has as well is compared with it character by character."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_client import Consumer, Producer, TopicPartition
from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import GroupListings
from barnabas_client.cli import watch
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.http.support import make_topic
from tests.browser.scenes import RawMember
from tests.client.cli.conftest import PATIENCE, Cli
from tests.client.real_broker import ONLY_BARNABAS
from tests.sampling import slow
from tests.wire import Wire

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: A port of five digits, as free ones are; those of four are padded to as much.
PORT = re.compile(r"127\.0\.0\.1:(\d{5}|\d{4} )")


def normalized(text: str) -> str:
    """Text without what differs from run to run."""
    return UUID.sub("01234567-89ab-cdef-0123-456789abcdef", PORT.sub("127.0.0.1:19292", text))


def golden(name: str) -> str:
    """What kafka-consumer-groups 4.3 printed for the same."""
    return (Path(__file__).parent / "golden" / f"{name}.txt").read_text()


@pytest.fixture
async def empty(cli: Cli, numbers: None) -> None:
    """A group "old" without members, that has read the first partition up to 4 and nothing of the second."""
    await cli("groups", "reset-offsets", "old", "--to-offset", "4", "-t", "t:0", "--execute")


@asynccontextmanager
async def worker(cli: Cli, group: str) -> AsyncIterator[Consumer]:
    """The member of a group. It has committed 3 for the second partition."""
    async with Consumer(
        "t", bootstrap_servers=cli.address, group_id=group, client_id="worker", enable_auto_commit=False
    ) as consumer:
        (second,) = [tp for tp in consumer.assignment() if tp.partition == 1]
        await consumer.commit({second: 3})
        yield consumer


@pytest.fixture
async def live(cli: Cli, numbers: None) -> AsyncIterator[Consumer]:
    """A group "live" with a member that has committed 3 for the second partition."""
    async with worker(cli, "live") as consumer:
        yield consumer


@pytest.mark.usefixtures("empty")
async def test_an_empty_group_is_described_as_kafka_describes_it(cli: Cli) -> None:
    printed = await cli("groups", "describe", "old")
    assert printed.out == golden("describe-empty")
    assert printed.err == "\nConsumer group 'old' has no active members.\n"


@pytest.mark.usefixtures("live")
async def test_a_live_group_is_described_as_kafka_describes_it(cli: Cli) -> None:
    printed = await cli("groups", "describe", "live")
    assert normalized(printed.out) == golden("describe-live")
    assert printed.err == ""
    assert normalized((await cli("groups", "describe", "live", "--members")).out) == golden("describe-members")
    verbose = await cli("groups", "describe", "live", "--members", "--verbose")
    assert verbose.lines[1].split()[-2:] == ["#PARTITIONS", "ASSIGNMENT"]
    assert verbose.lines[2].split()[-2:] == ["2", "t:0,1"]
    assert normalized((await cli("groups", "describe", "live", "--state")).out) == golden("describe-state")


@pytest.mark.usefixtures("empty", "live")
async def test_groups_are_listed(cli: Cli) -> None:
    assert (await cli("groups", "list")).lines == ["live", "old"]
    assert (await cli("groups", "list", "--long")).lines == [
        "GROUP                     STATE                TYPE            PROTOCOL",
        "live                      Stable               classic         consumer",
        "old                       Empty                classic         -",
    ]
    assert (await cli("groups", "list", "--state", "stable")).lines == ["live"]
    listed = (await cli("groups", "list", "--json")).json
    assert listed[0] == {"group": "live", "state": "Stable", "type": "classic", "protocol": "consumer"}
    every = (await cli("groups", "describe", "--all-groups", "--json")).json
    assert [group["group"] for group in every] == ["live", "old"]
    (member,) = every[0]["members"]
    assert member["partitions"] == [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
    assert [row["lag"] for row in every[0]["offsets"]] == [None, 0]
    assert (every[0]["lag"], every[0]["uncommitted"]) == (None, 5)  # five records wait, and nothing is committed there
    assert (every[1]["lag"], every[1]["uncommitted"]) == (1, 0)


@pytest.mark.usefixtures("live")
async def test_partitions_that_no_member_has_yet_are_described(cli: Cli) -> None:
    await cli("topics", "alter", "t", "--partitions", "3")
    (described,) = (await cli("groups", "describe", "live", "--json")).json
    assert [(row["partition"], row["log_end_offset"], row["client_id"]) for row in described["offsets"]] == [
        (0, 5, "worker"),
        (1, 3, "worker"),
        (2, 0, None),
    ]


@pytest.mark.usefixtures("empty")
async def test_a_missing_group_is_reported_beside_the_others(cli: Cli) -> None:
    printed = await cli("groups", "describe", "none", "old", status=1)
    assert printed.err.splitlines()[0] == (
        "barnabas: describe group 'none': GROUP_ID_NOT_FOUND, Group none not found. To do: check its name"
    )
    assert printed.lines[2].startswith("old ")
    first, second = (await cli("groups", "describe", "none", "old", "--json", status=1)).json
    assert "GROUP_ID_NOT_FOUND" in first["error"]
    assert (second["group"], second["error"], second["lag"]) == ("old", None, 1)
    assert "name groups" in (await cli("groups", "describe", status=2)).err


@pytest.mark.usefixtures("empty", "live")
async def test_groups_and_offsets_are_deleted(cli: Cli) -> None:
    refused = await cli("groups", "delete", "live", "none", status=1)
    assert "NON_EMPTY_GROUP. To do: stop its members first" in refused.err
    assert "GROUP_ID_NOT_FOUND" in refused.err
    assert (await cli("groups", "delete", "old", "-t", "t")).lines == [
        "old: offset of t-0 deleted",
        "old: offset of t-1 deleted",
    ]
    assert (await cli("groups", "delete", "live", "-t", "t:1", "--json", status=1)).json[0]["partition"] == "t-1"
    await cli("groups", "reset-offsets", "older", "--to-latest", "-t", "t", "--execute")
    assert (await cli("groups", "delete", "older")).out == "older: deleted\n"


@pytest.mark.usefixtures("live")
async def test_members_are_removed(cli: Cli) -> None:
    """The program of this one still runs, and joins again with another member id."""
    (member,) = (await cli("groups", "describe", "live", "--json")).json[0]["members"]
    member_id = member["consumer_id"]
    assert (await cli("groups", "remove-member", "live", member_id)).out == f"live: {member_id} removed\n"
    (refused,) = (await cli("groups", "remove-member", "live", "gone", "--json", status=1)).json
    assert (refused["group"], refused["member"]) == ("live", "gone")
    assert "UNKNOWN_MEMBER_ID" in refused["error"]
    assert "GROUP_ID_NOT_FOUND" in (await cli("groups", "remove-member", "none", "gone", status=1)).err


@pytest.mark.usefixtures("live")
async def test_a_group_is_watched(cli: Cli) -> None:
    printed = await cli("groups", "watch", "live", "--max", "2", "--interval", "10ms")
    head, behind, _, columns, first, second = printed.lines[:6]
    assert "  live  Stable  1 member  range  coordinator 127.0.0.1:" in head
    assert behind == "0 records behind, 0.0 s  5 records without a committed offset"
    assert columns.split() == [
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "LAG-TIME",
        "IN/S",
        "OUT/S",
        "MEMBER",
        "HOST",
    ]
    assert first.split() == ["t", "0", "-", "5", "-", "-", "-", "-", "worker", "127.0.0.1"]
    assert second.split() == ["t", "1", "3", "3", "0", "0.0", "s", "-", "-", "worker", "127.0.0.1"]
    assert sum("  live  Stable  " in line for line in printed.lines) == 2
    assert "GROUP_ID_NOT_FOUND" in (await cli("groups", "watch", "none", status=1)).err


@ONLY_BARNABAS
async def test_a_group_is_watched_until_a_disease_comes_back(cli: Cli, own_broker: BrokerServer) -> None:
    wire = await Wire.connect(own_broker.port)
    await make_topic(wire, "t")
    member = RawMember(wire, "g", "worker-1")
    for _ in range(2):  # what was before does not count
        await member.join("t")
        await member.sync("t", {member.member_id: [0]})
        await member.leave("consumer poll timeout has expired.")
        member.member_id = ""
    until = ("groups", "watch", "g", "--until", "slow_poll", "-i", "10ms")
    assert (await cli(*until, "--max", "3", status=1)).out.count("  g  Empty  ") == 3
    process = await cli.start(*until, "--json")
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        await process.stdout.readline()
        await member.join("t")
        await member.sync("t", {member.member_id: [0]})
        await member.leave("consumer poll timeout has expired.")
        *_, last = (await process.communicate())[0].splitlines()
    assert process.returncode == 0
    found = json.loads(last)
    assert (found["group"], found["kind"], found["sure"]) == ("g", "slow_poll", "certain")
    await wire.close()


@pytest.mark.usefixtures("numbers")
async def test_a_group_is_watched_until_it_has_a_finding_of_now(cli: Cli) -> None:
    async with worker(cli, "old") as consumer:
        await consumer.commit({TopicPartition("t", 0): 4})
    watch = ("groups", "watch", "old", "-i", "1ms", "--max", "2", "--until")
    found = await cli(*watch, "no_members")
    assert "old  broken, certain [no_members]: old has no members, and 1 record to read." in found.out
    await cli(*watch, "stuck", status=1)
    assert "broken" not in (await cli(*watch, "finding", status=1)).out, "it was so before"


@pytest.mark.timeout(5 * PATIENCE)
@pytest.mark.usefixtures("empty")
async def test_lag_is_shown_in_seconds_too(cli: Cli) -> None:
    process = await cli.start("groups", "watch", "old", "-i", "1ms", "--json")
    assert process.stdout is not None
    known = 0
    async with asyncio.timeout(3 * PATIENCE):
        while known < 2:  # a look does not wait long for the record; a later one has it, and keeps it
            look = json.loads(await process.stdout.readline())
            (row,) = look["offsets"]
            assert row["lag"] == 1
            if known or row["lag_seconds"] is not None:
                assert row["lag_seconds"] == pytest.approx(look["time"] / 1000 - 5, abs=1)  # the record is of 1970
                known += 1
        process.send_signal(signal.SIGINT)
        await process.communicate()


@pytest.mark.usefixtures("empty", "live")
async def test_several_groups_are_watched(cli: Cli) -> None:
    for names in ([], ["old", "live"]):
        printed = await cli("groups", "watch", *names, "--max", "1")
        assert printed.lines[0].endswith("  2 groups")
        rows = {line.split()[0]: line.split()[1:5] for line in printed.lines[3:5]}
        assert rows == {"live": ["Stable", "1", "2", "-"], "old": ["Empty", "0", "1", "1"]}
    found = json.loads((await cli("groups", "watch", "old", "none", "--max", "1", "--json")).out)
    assert [(one["group"], one["error"] is None) for one in found["groups"]] == [("old", True), ("none", False)]


@ONLY_BARNABAS
@pytest.mark.usefixtures("live")
async def test_the_first_view_has_the_reason_of_the_last_rebalance(cli: Cli) -> None:
    printed = await cli("groups", "watch", "live", "--max", "1")
    after = printed.lines[printed.lines.index("LAST REBALANCES") + 1 :]
    assert "Generation 1: worker (127.0.0.1) joined" in after[0]
    view = json.loads((await cli("groups", "watch", "live", "--max", "1", "--json")).out)
    assert view["rebalances"][-1]["text"].startswith("Generation 1: ")
    assert (view["lag"], view["uncommitted"]) == (None, 5)
    assert view["offsets"][1]["consumed_per_second"] is None


@ONLY_BARNABAS
@pytest.mark.usefixtures("live")
async def test_a_rebalance_is_explained(cli: Cli) -> None:
    printed = await cli("groups", "explain", "live")
    assert "Generation 1: worker (127.0.0.1) joined" in printed.lines[0]
    assert "    worker (127.0.0.1) gained t-0 to t-1." in printed.lines
    (explanation,) = (await cli("groups", "explain", "live", "--json", "--since", "1h", "--generation", "1")).json
    assert explanation["generation"] == 0
    later = await cli("groups", "explain", "live", "--generation", "7")
    assert (later.out, later.err.startswith("No event of group 'live' matches")) == ("", True)
    unknown = await cli("groups", "explain", "none", status=1)
    assert "no events are recorded for group 'none'" in unknown.err
    assert "whether its consumers reach the address that the broker tells them" in unknown.err


@ONLY_BARNABAS
async def test_a_consumer_whose_subscription_matches_nothing_does_not_join(
    cli: Cli, own_broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas_broker.groups.searches.PATIENCE", 0.05)
    wire = await Wire.connect(own_broker.port)
    async with asyncio.timeout(PATIENCE):
        while not own_broker.view.history.recent("audit"):
            await wire.ask(FindCoordinatorRequest(coordinator_keys=["audit"]), 4, FindCoordinatorResponse, "auditor")
    told = (await cli("groups", "explain", "audit")).lines[0]
    assert "The client auditor (127.0.0.1, User:ANONYMOUS) asked for this group's coordinator, stayed" in told
    (found,) = (await cli("groups", "doctor", "audit", "--json", status=1)).json
    assert (found["kind"], found["severity"], found["sure"]) == ("never_joined", "broken", "probable")
    address = f"127.0.0.1:{own_broker.port}, advertised.listeners of listener PLAINTEXT"
    assert found["text"].endswith(
        f"either it does not reach the coordinator at the address that it got ({address}), or its subscription matches"
        " no topic that exists."
    )
    assert found["remedy"].startswith(f"Check both. First whether it can connect to 127.0.0.1:{own_broker.port}")
    find = FindCoordinatorRequest(coordinator_keys=["billing"])
    await wire.close()
    wire = await Wire.connect(own_broker.port)
    await wire.ask(find, 4, FindCoordinatorResponse, "biller")
    topics = MetadataRequest(topics=[MetadataRequestTopic(name="ordres")], allow_auto_topic_creation=False)
    async with asyncio.timeout(PATIENCE):
        while not own_broker.view.history.recent("billing"):
            await wire.ask(topics, 9, MetadataResponse, "biller")
    (found,) = (await cli("groups", "doctor", "billing", "--json", status=1)).json
    assert found["text"].endswith(": it asked for ordres, which does not exist.")
    assert found["remedy"].startswith("Correct the name in its subscription, or create the topic")
    await wire.close()


@ONLY_BARNABAS
@pytest.mark.usefixtures("numbers")
async def test_a_group_that_is_only_committed_to_is_explained(cli: Cli) -> None:
    await cli("groups", "reset-offsets", "flink", "--to-offset", "4", "-t", "t:0", "--execute")
    told = (await cli("groups", "explain", "flink")).out
    assert "The group has no members, and never had any, as far as is known: it has 1 committed offset (t-0) of" in told


@ONLY_BARNABAS
@pytest.mark.usefixtures("numbers")
async def test_a_partition_that_no_program_of_the_group_reads_is_told(cli: Cli) -> None:
    await cli("groups", "reset-offsets", "assigned", "--to-latest", "-t", "t:0,1", "--execute")
    await cli("topics", "alter", "t", "-p", "3")
    async with Producer(bootstrap_servers=cli.address) as producer:
        await producer.send_and_wait("t", b"8", partition=2)
    (found,) = (await cli("groups", "doctor", "assigned", "--json", status=1)).json
    assert found["kind"] == "left_out"
    assert found["text"].startswith("Probably no program of assigned reads t-2: the group has no members")
    assert found["text"] in [one["text"] for one in (await cli("groups", "explain", "assigned", "--json")).json]


@ONLY_BARNABAS
@pytest.mark.usefixtures("numbers")
async def test_a_group_id_that_was_perhaps_not_meant(cli: Cli) -> None:
    await cli("groups", "reset-offsets", "invoice", "--to-latest", "-t", "t:0", "--execute")
    async with worker(cli, "invoices"), worker(cli, "Invoices"):
        for group, status in (("invoice", 0), ("invoces", 2)):
            noted = f"{group} has no members. Did you mean"
            assert noted in (await cli("groups", "doctor", group, status=status)).err
            assert noted in (await cli("groups", "explain", group, status=status and 1)).err
        for group in ("invoices", "Invoices"):
            (found,) = (await cli("groups", "doctor", group, "--json", status=1)).json
            assert (found["kind"], found["group"]) == ("two_spellings", "Invoices and invoices")
            assert found["text"] in (await cli("groups", "explain", group)).out
        assert (await cli("groups", "doctor", "--json", status=1)).json == [found]


@ONLY_BARNABAS
@pytest.mark.usefixtures("numbers")
async def test_the_explanation_says_how_the_group_is_now_as_the_doctor_does(cli: Cli) -> None:
    async with worker(cli, "old") as consumer:
        await consumer.commit({TopicPartition("t", 0): 4})
    *_, last = (await cli("groups", "explain", "old", "--json")).json
    (found,) = (await cli("groups", "doctor", "old", "--json", status=1)).json
    assert (last["text"], last["remedy"]) == (found["text"], found["remedy"])
    assert last["text"] == "old has no members, and 1 record to read."
    earlier = (await cli("groups", "explain", "old", "--generation", "1", "--json")).json
    assert last["text"] not in [one["text"] for one in earlier]


@pytest.mark.usefixtures("numbers")
async def test_a_rebalance_is_explained_from_the_records_of_the_coordinator(cli: Cli) -> None:
    # A group of its own: "live" has a generation for each test on Apache Kafka, which may be a rebalance storm.
    async with worker(cli, "explained"):
        printed = await cli(
            "groups", "explain", "explained", "--source", "offsets", "--generation", "1", "--since", "10m"
        )
        assert any("Generation 1: worker (127.0.0.1) joined" in line for line in printed.lines)
        assert "    worker (127.0.0.1) gained t-0 to t-1." in printed.lines
        assert printed.err.startswith("From __consumer_offsets since ")
        found = (await cli("groups", "explain", "explained", "--source", "offsets", "--json")).json
        assert "1 offset was committed in 1 partition." in [one["text"] for one in found]
    unknown = await cli("groups", "explain", "none", "--source", "offsets", status=1)
    assert "or name an earlier time with --since" in unknown.err


@pytest.mark.usefixtures("live")
async def test_watch_rebuilds_the_last_rebalance_if_no_events_are_recorded(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_events(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(watch, "locate", no_events)
    printed = await cli("groups", "watch", "live", "--max", "1")
    after = printed.lines[printed.lines.index("LAST REBALANCES") + 1 :]
    assert any("worker (127.0.0.1)" in line for line in after)
    assert not any("offset was committed in" in line for line in after)


async def lines_until(process: asyncio.subprocess.Process, text: str) -> list[str]:
    """The lines that a command prints, up to one with a text."""
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(PATIENCE):
        while not lines or text not in lines[-1]:
            line = await process.stdout.readline()
            assert line, (lines, (await process.communicate())[1])
            lines.append(line.decode().rstrip())
    return lines


@pytest.mark.timeout(5 * PATIENCE)
@pytest.mark.parametrize("source", [slow("offsets"), slow("polls"), None])
async def test_what_happens_to_a_group_is_followed(cli: Cli, live: Consumer, source: str | None) -> None:
    async def poll() -> None:
        while True:
            await live.getmany(timeout_ms=20)

    polls = asyncio.create_task(poll())
    options = [] if source is None else ["--source", source]
    process = await cli.start("groups", "explain", "live", "--follow", "-i", "20ms", *options)
    await lines_until(process, "the first look: 1 member" if source == "polls" else "Generation 1: worker")
    async with Consumer(
        "t", bootstrap_servers=cli.address, group_id="live", client_id="second", enable_auto_commit=False
    ):
        lines = await lines_until(process, "second (127.0.0.1) gained t-")
    assert any("second (127.0.0.1) joined" in line for line in lines)
    polls.cancel()
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert process.returncode == 130


@pytest.mark.usefixtures("numbers")
async def test_a_group_of_the_consumer_protocol_is_explained(cli: Cli) -> None:
    async with Consumer("t", bootstrap_servers=cli.address, group_id="new", group_protocol="consumer"):
        told = await cli("groups", "explain", "new", "--source", "offsets", "--since", "1m")
        assert "is to get t-0 to t-1." in told.out
        process = await cli.start("groups", "explain", "new", "--source", "polls", "-i", "20ms")
        await lines_until(process, "the first look: 1 member")
        process.send_signal(signal.SIGINT)
        await process.communicate()


@pytest.mark.usefixtures("live")
async def test_a_group_is_described_as_it_was(cli: Cli) -> None:
    now = (await cli("groups", "describe", "live", "--json")).json[0]
    past = (await cli("groups", "describe", "live", "--at", "0s", "--json")).json[0]
    for name in ("group", "state", "assignment_strategy", "offsets", "members", "lag"):
        assert past[name] == now[name], name
    printed = await cli("groups", "describe", "live", "--at", "0s")
    assert normalized(printed.out) == golden("describe-live")
    assert re.match(r"As of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, generation 1", printed.err)
    members = await cli("groups", "describe", "live", "--at", "0s", "--members", "--verbose")
    assert members.lines[-1].split()[-3:] == ["worker", "2", "t:0,1"]
    before = await cli("groups", "describe", "live", "--at", "2001-01-01", status=1)
    assert "group 'live' has no record of 2001-01-01" in before.err
    listed = await cli("groups", "describe", "--all-groups", "--at", "1h", status=2)
    assert "--at needs the names of groups" in listed.err


@pytest.mark.timeout(5 * PATIENCE)
@ONLY_BARNABAS
@pytest.mark.usefixtures("live")
async def test_watch_continues_while_the_broker_is_down(cli: Cli, own_broker: BrokerServer) -> None:
    # Long enough for a first look on a busy machine, short enough to see the end of the broker within the bound.
    process = await cli.start("groups", "watch", "live", "-i", "1ms", "--timeout", "5s", "--json")
    assert process.stdout is not None
    async with asyncio.timeout(3 * PATIENCE):
        assert json.loads(await process.stdout.readline())["state"] == "Stable"
        await own_broker.stop()
        while "error" not in (look := json.loads(await process.stdout.readline())) or look["error"] is None:
            pass
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert process.returncode == 130


@ONLY_BARNABAS
async def test_the_configuration_of_a_group_is_changed(cli: Cli) -> None:
    key = "consumer.session.timeout.ms"
    assert (await cli("groups", "alter", "g", "--set", f"{key}=50000", "--dry-run")).out == (
        f"g: could be changed: {key}=50000\n"
    )
    assert (await cli("groups", "alter", "g", "--unset", key)).out == f"g: unchanged, not set: {key}\n"
    assert (await cli("groups", "alter", "g", "--set", f"{key}=50000")).out == f"g: changed: {key}=50000\n"
    changed = await cli("groups", "alter", "g", "--unset", key, "--json")
    assert changed.json == {"group": "g", "changes": [f"{key} unset"], "executed": True}
    assert "must be between" in (await cli("groups", "alter", "g", "--set", f"{key}=1", status=1)).err
    assert (
        "did you mean consumer.session"
        in (await cli("groups", "alter", "g", "--unset", "consumer.session.timeout", status=1)).err
    )
    assert "nothing to change" in (await cli("groups", "alter", "g", status=2)).err


async def heartbeat(wire: Wire, member_id: str, epoch: int, **given: Any) -> int:
    """A heartbeat of a member of the group "newer"; its new member epoch."""
    joins = {"rebalance_timeout_ms": 300_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    request = ConsumerGroupHeartbeatRequest(
        group_id="newer", member_id=member_id, member_epoch=epoch, **(given if epoch else joins)
    )
    response = await wire.ask(request, 1, ConsumerGroupHeartbeatResponse)
    assert response.error_code == ErrorCode.NONE
    return response.member_epoch


@ONLY_BARNABAS
async def test_a_group_of_the_consumer_protocol_that_reconciles(cli: Cli, numbers: None, empty: None) -> None:
    """Kafka's tool prints the same tables for this group."""
    wire = await Wire.connect(int(cli.address.rpartition(":")[2]))
    first = await heartbeat(wire, "a", 0)
    second = await heartbeat(wire, "b", 0)
    async with asyncio.timeout(PATIENCE):
        while second == first:  # the next target is computed after group.consumer.assignment.interval.ms
            second = await heartbeat(wire, "b", second)
    assert await heartbeat(wire, "a", first) == first
    members = await cli("groups", "describe", "newer", "--members", "--verbose")
    assert "\n".join([*members.out.splitlines()[:4], ""]) == golden("describe-epochs")
    first_line, second_line = members.out.splitlines()[4:]
    assert re.fullmatch(r"test \(a\) has been revoking t:1 for [0-9.]+s, it may take 5m00s", first_line)
    assert second_line == "test (b) waits for t:1 of test (a)"
    state = await cli("groups", "describe", "newer", "--state", "--verbose")
    assert state.lines[1].split()[-3:] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert state.lines[2].split()[-4:] == ["Reconciling", "3", "3", "2"]
    both = await cli("groups", "describe", "newer", "--verbose")
    assert [line.split()[0] for line in both.lines if line].count("GROUP") == 2
    assert second_line in both.lines
    (data,) = (await cli("groups", "describe", "newer", "--json")).json
    assert (data["epoch"], data["assignment_epoch"]) == (3, 3)
    known = [(each["epoch"], len(each["partitions"]), len(each["target"])) for each in data["members"]]
    assert known == [(2, 2, 1), (3, 0, 1)]
    await wire.close()


async def test_the_doctor_of_healthy_and_sick_groups(cli: Cli, live: Consumer) -> None:
    """The group "live" has a member; "old" has none, and records to read."""
    healthy = await cli("groups", "doctor", "live")
    assert healthy.out == "Nothing is wrong with 1 group.\n"
    # Apache Kafka does not record when members joined.
    early = re.fullmatch(
        r"A member joined [0-9.]+ m?s ago: offsets that stand still.* are found 5 min to 6 min after .*\n", healthy.err
    )
    assert early or not healthy.err
    await cli("groups", "reset-offsets", "read", "--to-offset", "4", "-t", "t:0", "--execute")
    assert (await cli("groups", "doctor", "read")).out == "Nothing is wrong with 1 group.\n", "it had no members"
    async with worker(cli, "old") as consumer:
        await consumer.commit({TopicPartition("t", 0): 4})
    sick = await cli("groups", "doctor", status=1)
    first, *last, _ = sick.lines
    assert first == "old  broken, certain [no_members]: old has no members, and 1 record to read."
    assert all("The last one was worker (127.0.0.1)" in line for line in last), "none without events"
    (found,) = (await cli("groups", "doctor", "old", "--json", status=1)).json
    assert (found["group"], found["kind"], found["severity"], found["sure"]) == (
        "old",
        "no_members",
        "broken",
        "certain",
    )
    for number in (1, 2, 3):
        async with worker(cli, f"cron-{number}") as consumer:
            await consumer.commit({TopicPartition("t", 0): 4})
    crons = [each for each in (await cli("groups", "doctor", "--json", status=1)).json if "cron" in each["group"]]
    assert [each["kind"] for each in crons] == (["new_group_id"] if last else ["no_members"] * 3)
    unknown = await cli("groups", "doctor", "none", status=2)
    assert "perhaps they do not reach the address that the broker tells them" in unknown.err
    assert "none" in unknown.err
    several = await cli("groups", "doctor", "old", "live", "read", "old", "--json", status=1)
    assert [each["group"] for each in several.json] == ["old"]
    assert (await cli("groups", "doctor", "live", "read")).out == "Nothing is wrong with 2 groups.\n"


@ONLY_BARNABAS
@pytest.mark.usefixtures("numbers")
async def test_a_group_without_members_is_judged_by_its_earlier_runs(cli: Cli) -> None:
    """Also by those before the time that is asked for: a job may run once a day."""
    async with worker(cli, "job") as consumer:
        await consumer.commit({TopicPartition("t", 0): 4})
    lately = (await cli("groups", "explain", "job", "--since", "0ms", "--json")).json
    (told,) = (await cli("groups", "doctor", "--since", "0ms", "--json", status=1)).json
    assert told["kind"] == "no_members"
    assert told["evidence"][0].startswith("The last one was worker (127.0.0.1)")
    assert [each["details"] for each in lately] == [told["evidence"]]


@pytest.mark.usefixtures("numbers")
async def test_the_doctor_leaves_out_what_is_meant_so(cli: Cli) -> None:
    """A topic that is empty most of the time, and a group that is not used any more."""
    async with worker(cli, "old") as consumer:
        await consumer.commit({TopicPartition("t", 0): 4})
    await cli("topics", "create", "dead-letters")
    async with Consumer("dead-letters", bootstrap_servers=cli.address, group_id="repair"):
        for odd in ("empty_topic:repair", "empty_topic", "odd", "odd:r*", "finding:repair"):
            left = await cli("groups", "doctor", "--ignore", odd, status=1)
            assert [line.split("]")[0] for line in left.lines if "[" in line] == ["old  broken, certain [no_members"]
            assert "1 finding ignored.\n" in left.err
        left = await cli("groups", "doctor", "--ignore", "empty_topic:old", "--json", status=1)
        assert [each["kind"] for each in left.json] == ["no_members", "empty_topic"]
        assert "ignored" not in left.err
        nothing = await cli("groups", "doctor", "--ignore", "no_members:o?d", "--ignore", "odd")
        assert nothing.out == "Nothing else is wrong with 2 groups.\n"
        assert "2 findings ignored.\n" in nothing.err
        assert (await cli("groups", "doctor", "--ignore", "finding", "--json")).json == []
    unknown = await cli("groups", "doctor", "--ignore", "no_member:old", status=2)
    assert "'no_member' is not a finding, did you mean no_members?" in unknown.err


async def test_the_doctor_examines_what_the_other_brokers_know(
    cli: Cli, live: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that does not answer hides its groups only, and that is said."""
    whole = Admin.list_consumer_groups
    silent = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "list the groups of broker 2: no response")

    async def without_one(admin: Admin, *, raise_errors: bool = True) -> GroupListings:
        return GroupListings(await whole(admin), [silent])

    monkeypatch.setattr(Admin, "list_consumer_groups", without_one)
    found = await cli("groups", "doctor", status=2)
    assert "list the groups of broker 2: no response" in found.err
    assert "The groups that this broker coordinates are not examined" in found.err
