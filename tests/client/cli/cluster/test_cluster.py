"""`barnabas cluster` with four brokers that answer as one cluster; `status` and the refusals also with one broker."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas_client import Admin, ConfigResource, ConfigSource
from barnabas_client.cli.cluster import throttle
from barnabas_client.cli.cluster.plan_file import as_data
from barnabas_client.cli.command_line import CommandLine
from barnabas_client.cli.commands import COMMAND_LINE
from barnabas_client.cli.failures import CommandError
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from barnabas_protocol.registry import ApiKey
from tests.client.cli.cluster.scripted_cluster import THROTTLES, Moving, ScriptedCluster, scripted_cluster
from tests.client.cli.conftest import PATIENCE, Cli
from tests.client.real_broker import ONLY_BARNABAS
from tests.cluster.harness import eventually
from tests.interop.kafka_server import run_tool
from tests.world.answers import refused

ZERO, ONE, TWO = (TopicPartition("t", number) for number in range(3))
T = ConfigResource.topic("t")
QUICK = ("-i", "10ms")


@pytest.fixture
async def cluster(quiet: None) -> AsyncIterator[ScriptedCluster]:
    """Brokers 0 to 3; three partitions on 0 and 1."""
    async with scripted_cluster() as found:
        found.replicas = {ZERO: (0, 1), ONE: (0, 1), TWO: (0, 1)}
        yield found


@pytest.fixture
def run(cluster: ScriptedCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", cluster.address)
    return Cli(cluster.address, capsys, monkeypatch)


def test_the_command_and_the_option_cluster_do_not_clash() -> None:
    program: CommandLine = COMMAND_LINE
    for words in (
        ["--cluster", "prod", "cluster", "status"],
        ["cluster", "--cluster", "prod", "status"],
        ["cluster", "status", "--cluster=prod"],
    ):
        read = program.parse(words)
        assert (read.cluster, read.command.path) == ("prod", ("cluster", "status"))
    assert program.parse(["cluster", "status"]).cluster is None


# Status.


async def test_a_healthy_cluster(cluster: ScriptedCluster, run: Cli) -> None:
    printed = await run("cluster", "status")
    assert "healthy  4 brokers  1 topic  3 partitions" in printed.lines[0]
    assert printed.lines[1].startswith("0 down  0 offline  0 below min.insync.replicas  0 under-replicated  0 stray ")
    assert printed.lines[4].split() == ["0", cluster.address, "-", "controller", "3", "3", "3.0", "MB", "20.0", "MB"]
    assert "PROBLEM" not in printed.out
    data = (await run("cluster", "status", "--json")).json
    assert data["healthy"]
    assert data["brokers"][3]["replicas"] == 0
    assert set(data["counts"].values()) == {0}


async def test_problems_are_listed_worst_first_and_the_status_is_1(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.min_isr = 2
    cluster.replicas |= {TopicPartition("a", 0): (3,), TopicPartition("a", 1): (0, 1, 2)}
    cluster.isr = {ONE: (0,), TopicPartition("a", 1): (0, 1)}
    cluster.down = {3}
    cluster.strays = {2: TopicPartition("gone", 7)}
    cluster.leaders = {TWO: 1}
    printed = await run("cluster", "status", status=1)
    assert "not healthy" in printed.lines[0]
    assert printed.lines[1] == (
        "1 down  1 offline  2 below min.insync.replicas  2 under-replicated  1 stray  0 moving  "
        "1 not led by the preferred replica"
    )
    rows = [line.split() for line in printed.lines if line.startswith(("offline", "below", "under"))]
    assert rows == [
        ["offline", "a", "0", "none", "3", "3", "2", "3"],
        ["below-min-isr", "t", "1", "0", "0,1", "0", "2", "-"],
        ["under-replicated", "a", "1", "0", "0,1,2", "0,1", "2", "-"],
    ]
    assert printed.lines[-1].split() == ["gone", "7", "2", "1.0", "MB", "/data"]
    data = (await run("cluster", "status", "--json", status=1)).json
    assert [one["state"] for one in data["brokers"]] == ["controller", "live", "live", "down"]
    assert data["problems"][0]["problems"] == ["offline", "below-min-isr"]
    assert data["strays"] == [
        {"broker": 2, "topic": "gone", "partition": 7, "size": 1_000_000, "log_dir": "/data", "directory": None}
    ]


async def test_what_brokers_cannot_do_is_said_once_for_all_that_have_it(cluster: ScriptedCluster, run: Cli) -> None:
    full = "metadata_read_only: etcd refuses changes. To do: make room"
    cluster.conditions.update({1: full, 2: f"disk_full: no space\n{full}"})
    lines = (await run("cluster", "status", status=1)).lines
    at = lines.index("Not possible now:")
    assert lines[at + 1 : at + 3] == [
        "  broker 1,2: etcd refuses changes. To do: make room (metadata_read_only)",
        "  broker 2: no space (disk_full)",
    ]
    data = (await run("cluster", "status", "--json", status=1)).json
    assert data["healthy"] is False
    assert [one["conditions"] for one in data["brokers"] if one["broker"] == 1] == [
        [{"condition": "metadata_read_only", "text": "etcd refuses changes. To do: make room"}]
    ]
    assert "Not possible now: no space" in (await run("cluster", "describe-broker", "2")).out


async def test_a_partition_without_a_leader_shows_the_brokers_that_it_waits_for(
    cluster: ScriptedCluster, run: Cli
) -> None:
    cluster.down = {2, 3}
    cluster.replicas |= {TopicPartition("a", 0): (3, 2)}
    cluster.isr = {TopicPartition("a", 0): (3,)}
    cluster.eligible = {TopicPartition("a", 0): ([], [2])}
    data = (await run("cluster", "status", "--json", status=1)).json
    assert data["problems"][0]["awaited"] == [2, 3]


async def test_added_replicas_do_not_make_a_partition_under_replicated(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.moving = {ZERO: Moving((2, 3), 100)}
    data = (await run("cluster", "status", "--json")).json
    assert data["counts"]["under_replicated"] == 0
    assert data["moving"] == [
        {"topic": "t", "partition": 0, "replicas": [2, 3, 0, 1], "adding": [2, 3], "removing": [0, 1]}
    ]


async def test_status_is_shown_again_and_again_and_survives_an_outage(cluster: ScriptedCluster, run: Cli) -> None:
    views = await run("cluster", "status", "--watch", "-n", "3", "--json", *QUICK)
    assert [json.loads(line)["healthy"] for line in views.lines] == [True] * 3
    text = await run("cluster", "status", "--watch", "-n", "2", *QUICK)
    assert text.out.count("4 brokers") == 2
    assert "exclude each other" in (await run("cluster", "status", "--watch", "--wait", "1s", status=2)).err
    assert "--max needs --watch" in (await run("cluster", "status", "-n", "1", status=2)).err


async def test_status_waits_until_the_cluster_is_healthy(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.isr = {ONE: (0,)}
    assert (await run("cluster", "status", "--wait", "50ms", *QUICK, status=1)).out
    async with asyncio.timeout(PATIENCE):
        looked = cluster.asked[ApiKey.DESCRIBE_CONFIGS]
        looked.clear()
        waiting = asyncio.create_task(run("cluster", "status", "--wait", "15s", *QUICK))
        await looked.wait()
        cluster.isr = {}
        assert "healthy" in (await waiting).lines[0]


async def test_hostile_names_are_escaped(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.racks = {0: "\x1b[2J", 1: "b", 2: "c", 3: "d"}
    cluster.replicas = {TopicPartition("t\x1b[31m", at): (0, 1) for at in range(2)}
    cluster.isr = {TopicPartition("t\x1b[31m", 0): (0,)}
    for words, status in ((("status",), 1), (("rebalance",), 0), (("describe-broker", "0"), 0)):
        printed = await run("cluster", *words, status=status)
        assert "\x1b" not in printed.out + printed.err
        assert r"t\x1b[31m" in printed.out


async def test_a_broker_is_described(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.configs = {(4, "1"): {"log.retention.ms": "5"}}
    cluster.isr = {ONE: (0,)}
    printed = await run("cluster", "describe-broker", "1")
    assert "Not in sync: t-1" in printed.out
    assert "log.retention.ms=5" in printed.lines
    assert ["/data", "ok", "3", "3.0", "MB", "20.0", "MB", "50.0", "MB"] in [line.split() for line in printed.lines]
    data = (await run("cluster", "describe-broker", "1", "--json")).json
    assert data["topics"] == [{"topic": "t", "leaders": 0, "replicas": 3, "size": 3_000_000}]
    unknown = await run("cluster", "describe-broker", "9", status=1)
    assert unknown.err == "barnabas: there is no broker 9: the brokers are 0,1,2,3\n"


# Moves.


async def test_a_plan_is_only_printed(cluster: ScriptedCluster, run: Cli) -> None:
    printed = await run("cluster", "rebalance")
    assert printed.lines[-1] == "2 partitions to change: 2 replicas to copy (2.0 MB), 2 other preferred leaders"
    assert "dry run: nothing was changed" in printed.err
    plan = (await run("cluster", "rebalance", "--json")).json
    assert plan["version"] == 1
    assert set(plan["partitions"][0]) == {"topic", "partition", "replicas"}
    assert cluster.submitted() == []


async def test_a_plan_is_kept_replayed_and_undone(cluster: ScriptedCluster, run: Cli, tmp_path: Path) -> None:
    kept, undo = tmp_path / "plan.json", tmp_path / "undo.json"
    kept.write_text((await run("cluster", "rebalance", "--json")).out)
    before = dict(cluster.replicas)
    done = await run("cluster", "reassign", "--plan", str(kept), "--execute", "--undo", str(undo), *QUICK)
    assert "partitions done" in done.err
    assert done.lines[-1] == f"{len(json.loads(kept.read_text())['partitions'])} partitions changed"
    loads = [sum(node in replicas for replicas in cluster.replicas.values()) for node in range(4)]
    assert sorted(loads) == [1, 1, 2, 2]
    assert (await run("cluster", "rebalance")).out == "nothing to change: the replicas are where they should be\n"
    assert (await run("cluster", "reassign", "--plan", str(kept))).out.startswith("nothing to change")
    back = await run("cluster", "reassign", "--plan", "-", "--execute", "--json", *QUICK, stdin=undo)
    assert back.json["errors"] == []
    assert cluster.replicas == before


async def test_leaders_are_elected_after_the_moves(cluster: ScriptedCluster, run: Cli) -> None:
    await run("cluster", "reassign", "t:0", "--to", "2,1", "-r", "2", "--execute", *QUICK)
    assert set(cluster.replicas[ZERO]) == {1, 2}
    assert cluster.leaders.get(ZERO, cluster.replicas[ZERO][0]) == cluster.replicas[ZERO][0]
    assert set(cluster.replicas) - {ZERO} == {ONE, TWO}


async def test_partitions_move_some_at_a_time(cluster: ScriptedCluster, run: Cli) -> None:
    await run("cluster", "reassign", "t", "--to", "2,3", "--execute", "--batch", "2", *QUICK)
    assert [len(one) for one in cluster.submitted()] == [2, 1]


async def test_a_broker_is_emptied(cluster: ScriptedCluster, run: Cli) -> None:
    printed = await run("cluster", "decommission", "1", "--execute", *QUICK)
    assert "broker 1 has no replicas. Stop it before topics are created" in printed.err
    assert all(1 not in replicas and replicas[0] == 0 for replicas in cluster.replicas.values())
    assert "broker 1 has no replicas" in (await run("cluster", "decommission", "1")).err
    cluster.replicas = {ZERO: (0, 1, 2, 3)}
    refused = await run("cluster", "decommission", "1", status=1)
    assert refused.err == (
        "barnabas: broker 1 cannot be emptied: t-0 needs 4 replicas, but there are only 3 brokers. "
        "To do: add a broker first\n"
    )


async def test_a_broker_that_is_down_is_emptied_and_prevents_rebalancing(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.down = {1}
    assert "are down: 1" in (await run("cluster", "rebalance", status=1)).err
    assert "broker 1 is not live" in (await run("cluster", "reassign", "t", "--to", "1", status=1)).err
    await run("cluster", "decommission", "1", "--execute", *QUICK)
    assert all(1 not in replicas for replicas in cluster.replicas.values())


async def test_partitions_without_a_leader_are_not_moved(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.replicas |= {TopicPartition("a", 0): (3,)}
    cluster.down = {3}
    assert "dry run" in (await run("cluster", "decommission", "3")).err
    refused = await run("cluster", "decommission", "3", "--execute", status=1)
    assert "'a-0' has no leader, so that its replicas cannot be copied. To do: start a broker" in refused.err
    assert cluster.submitted() == []


@pytest.mark.programs
async def test_ctrl_c_leaves_the_reassignments_running_and_says_so(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.looks = 1_000_000
    words = ("cluster", "reassign", "t", "--to", "2,3", "--execute", "--batch", "2", *QUICK)
    process = await run.start(*words, "-b", cluster.address)
    asked = cluster.asked[ApiKey.LIST_PARTITION_REASSIGNMENTS]
    async with asyncio.timeout(PATIENCE):
        await cluster.asked[ApiKey.ALTER_PARTITION_REASSIGNMENTS].wait()
        asked.clear()
        await asked.wait()
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert process.returncode == 130
    assert b"what was begun goes on in the cluster: see `barnabas cluster reassign --progress`" in err
    assert b"; not begun: 1 partition of the plan" in err
    assert len(cluster.moving) == 2


async def test_refusals_are_reported_and_the_rest_is_done(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.refused = {ONE: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    printed = await run("cluster", "decommission", "1", "--execute", "--json", *QUICK, status=1)
    assert [one["partition"] for one in printed.json["errors"]] == [1]
    assert "INVALID_REPLICA_ASSIGNMENT" in printed.err
    assert 1 not in cluster.replicas[TWO]


async def test_a_plan_does_not_start_while_others_run(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.moving = {ZERO: Moving((2, 3), 1_000)}
    refused = await run("cluster", "decommission", "1", "--execute", status=1)
    assert "are being reassigned already. To do: wait for them" in refused.err


async def test_running_reassignments_are_followed_and_cancelled(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.moving = {ZERO: Moving((2, 3), 5)}
    assert (await run("cluster", "reassign", "--progress", *QUICK)).out == "1 reassignment completed\n"
    assert cluster.replicas[ZERO] == (2, 3)
    assert (await run("cluster", "reassign", "--progress")).out == "nothing moves\n"
    cluster.moving = {ONE: Moving((2, 3), 1_000), TWO: Moving((2, 3), 1_000)}
    dry = await run("cluster", "reassign", "t:1", "--cancel")
    assert dry.out == "t-1: would be cancelled, adding 2,3, removing 0,1\n"
    assert set(cluster.moving) == {ONE, TWO}
    done = await run("cluster", "reassign", "t:1", "--cancel", "--execute")
    assert done.out == "t-1: cancelled, adding 2,3, removing 0,1\n"
    assert set(cluster.moving) == {TWO}


async def test_a_reassignment_that_another_one_cancels_is_a_failure(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.looks = 1_000
    async with asyncio.timeout(PATIENCE):
        moving = asyncio.create_task(
            run("cluster", "reassign", "t:0", "--to", "2,3", "--execute", "--timeout", "1s", *QUICK, status=1)
        )
        await cluster.asked[ApiKey.ALTER_PARTITION_REASSIGNMENTS].wait()
        cluster.moving.clear()
        assert "t-0: it has the replicas 0,1 and not " in (await moving).err


async def test_throttles_are_set_and_removed(cluster: ScriptedCluster, run: Cli) -> None:
    refused = await run("cluster", "reassign", "t", "--to", "2,3", "--throttle", "10MB", "--execute", status=1)
    assert "these brokers cannot limit the rate of replication" in refused.err
    assert cluster.submitted() == []
    cluster.throttles = True
    await run("cluster", "reassign", "t:0", "--to", "2,3", "--throttle", "10MB", "--execute", *QUICK)
    changes = {(resource, key): value for resource, key, value in cluster.changes if value is not None}
    assert {changes[str(node), "follower.replication.throttled.rate"] for node in range(4)} == {"10000000"}
    assert changes["t", THROTTLES[0]] == "0:0,0:1"
    assert sorted(changes["t", THROTTLES[1]].split(",")) == ["0:2", "0:3"]
    assert not any(cluster.configs.values())


async def test_an_outage_ends_the_command_and_not_the_reassignments(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.throttles = True
    words = ("cluster", "reassign", "t:0", "--to", "2,3", "--throttle", "1MB", "--execute", *QUICK)
    none = ListPartitionReassignmentsResponse(topics=[])
    refuse = refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    cluster.brokers[0].script.once(ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda request: none, refuse)
    failed = await run(*words, status=1)
    assert "see `barnabas cluster reassign --progress`" in failed.err
    assert "CLUSTER_AUTHORIZATION_FAILED" in failed.err
    assert cluster.configs[2, "t"]
    assert set(cluster.moving) == {ZERO}
    followed = await run("cluster", "reassign", "--progress", *QUICK)
    assert followed.out == "1 reassignment completed\n"
    assert "throttles of topics and brokers were removed" in followed.err
    assert not any(cluster.configs.values())


async def test_throttles_that_were_left_are_removed_when_nothing_moves(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.throttles = True
    cluster.configs = {(2, "t"): dict.fromkeys(THROTTLES, "0:0"), (4, "1"): {"leader.replication.throttled.rate": "1"}}
    assert "throttles of topics and brokers were removed" in (await run("cluster", "reassign", "--progress")).err
    assert not any(cluster.configs.values())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "give one of --to, --plan, --cancel and --progress"),
        ("t --to 1 --cancel", "give one of --to"),
        ("--to 1,2", "--to needs topics"),
        ("t --plan x", "leave the topics out"),
        ("t --cancel -r 2", "--replication-factor needs --to"),
        ("--cancel --throttle 1MB", "--throttle needs --to or --plan"),
        ("t --to 1,1", "'1,1' is not a list of node ids"),
        ("t --to 1 --throttle fast", "'fast' is not a size"),
    ],
)
async def test_invalid_command_lines(run: Cli, words: str, why: str) -> None:
    assert why in (await run("cluster", "reassign", *words.split(), status=2)).err


async def test_what_does_not_exist_is_reported(run: Cli, tmp_path: Path) -> None:
    assert "there is no topic 'u'" in (await run("cluster", "rebalance", "u", status=1)).err
    assert "there is no partition 9 of 't': it has 3" in (await run("cluster", "rebalance", "t:9", status=1)).err
    plan = tmp_path / "plan.json"
    for text, why in (
        ("{", "is not a plan: it is not JSON"),
        ('{"version": 2}', 'is not a plan: give {"version": 1, "partitions": [...]}'),
        ('{"version": 1, "partitions": [{"topic": "t"}]}', "partitions[0]: give"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "node ids, each once"),
        ('{"version": 1, "partitions": [{"topic": "x", "partition": 0, "replicas": [1]}]}', "which does not exist"),
    ):
        plan.write_text(text)
        assert why in (await run("cluster", "reassign", "--plan", str(plan), status=1)).err
    assert "No such file" in (await run("cluster", "reassign", "--plan", str(tmp_path / "none"), status=1)).err


# Elections.


async def test_preferred_leaders_are_elected(cluster: ScriptedCluster, run: Cli) -> None:
    cluster.leaders = {ONE: 1, TWO: 1}
    dry = await run("cluster", "elect-preferred")
    assert [line.split() for line in dry.lines[1:]] == [["t", "1", "1", "0"], ["t", "2", "1", "0"]]
    assert "dry run" in dry.err
    assert cluster.elected == []
    assert "1 leader elected" in (await run("cluster", "elect-preferred", "t:1", "--execute")).err
    assert cluster.elected == [ONE]
    cluster.refused = {TWO: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    failed = await run("cluster", "elect-preferred", "--execute", "--json", status=1)
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in failed.json["partitions"][0]["error"]
    cluster.leaders = {}
    assert "led by their preferred replicas" in (await run("cluster", "elect-preferred")).out


# One real broker.


async def test_throttles_of_a_real_broker(cli: Cli, empty_servers: str) -> None:
    await cli("topics", "create", "t")
    async with Admin(bootstrap_servers=empty_servers) as admin:
        (topic,) = await admin.describe_topics(["t"])
        plan = {ZERO: topic.partitions[0].replicas}
        if "leader.replication.throttled.replicas" not in (await admin.describe_configs([T]))[0].entries:
            with pytest.raises(CommandError, match="cannot limit the rate of replication"):
                await throttle.require(admin, "t")
            return
        await throttle.require(admin, "t")
        await throttle.throttle(admin, plan, plan, 1_000_000)

        async def throttled() -> set[str]:
            entries = (await admin.describe_configs([T]))[0].entries
            return {key for key in THROTTLES if entries[key].source is ConfigSource.TOPIC}

        async def all_throttled() -> bool:
            return await throttled() == set(THROTTLES)

        async def none_throttled() -> bool:
            return not await throttled()

        # Kafka's brokers hear of what the controller has done after it was answered.
        await eventually("both are throttled", all_throttled)
        assert await throttle.lift(admin, ["t"])
        await eventually("none is throttled", none_throttled)


async def test_one_real_broker(cli: Cli, tmp_path: Path) -> None:
    await cli("topics", "create", "t", "-p", "2")
    await cli("cluster", "status", "--wait", "10s")
    data = (await cli("cluster", "status", "--json")).json
    assert (data["healthy"], len(data["brokers"]), data["counts"]["offline"]) == (True, 1, 0)
    (node,) = (one["broker"] for one in data["brokers"])
    assert data["brokers"][0]["log_dirs"][0]["total_bytes"] > 0
    topics = (await cli("cluster", "describe-broker", str(node), "--json")).json["topics"]
    assert {"topic": "t", "leaders": 2, "replicas": 2, "size": 0} in topics
    assert "nothing to change" in (await cli("cluster", "rebalance", "t")).out
    refused = await cli("cluster", "decommission", str(node), status=1)
    assert "cannot be emptied" in refused.err
    assert "needs 1 replica, but there is no other broker" in refused.err
    assert "led by their preferred" in (await cli("cluster", "elect-preferred", "t", "--execute")).out
    assert (await cli("cluster", "reassign", "--progress")).out == "nothing moves\n"
    assert (await cli("cluster", "reassign", "--cancel", "--execute")).out == "nothing moves\n"
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [7]}]}')
    refused = await cli("cluster", "reassign", "--plan", str(plan), "--execute", "--timeout", "5s", *QUICK, status=1)
    assert "INVALID_REPLICA_ASSIGNMENT" in refused.err


@pytest.mark.kafka
@ONLY_BARNABAS
async def test_kafkas_own_tool_reads_a_plan_and_its_plan_is_read(cli: Cli, tmp_path: Path) -> None:
    await cli("topics", "create", "t", "-p", "2")
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "t"}]}')
    tool = ("kafka-reassign-partitions", "--bootstrap-server", cli.address)
    made = await asyncio.to_thread(
        run_tool, *tool, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1"
    )
    plan.write_text(made.stdout.strip().splitlines()[-1])
    assert "log_dirs" in plan.read_text()
    assert (await cli("cluster", "reassign", "--plan", str(plan))).out.startswith("nothing to change")
    plan.write_text(json.dumps(as_data({ZERO: (1,), ONE: (1,)})))
    done = await asyncio.to_thread(run_tool, *tool, "--verify", "--reassignment-json-file", str(plan))
    assert "Reassignment of partition t-1 is completed" in done.stdout, done
