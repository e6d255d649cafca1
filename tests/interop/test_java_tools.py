"""Kafka's own programs, unmodified, against Barnabas: common command lines and their output."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import run_tool, start_tool

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.timeout(180)]

#: Limit of one program in seconds, including the start of its JVM.
LIMIT = 90.0


@pytest.fixture(scope="module")
def broker(needs_jars: None) -> Iterator[BarnabasBroker]:
    with BarnabasBroker() as running:
        yield running


@pytest.fixture
def tool(broker: BarnabasBroker) -> Callable[..., str]:
    """Function that runs a program against the broker, checks its exit code and returns its output."""

    def run(name: str, *args: str, stdin: str | None = None, option: str = "--bootstrap-server") -> str:
        done = run_tool(name, option, broker.bootstrap_servers, *args, timeout=LIMIT, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


Tool = Callable[..., str]


def _write(tool: Tool, topic: str, count: int, *properties: str) -> list[str]:
    lines = [f"k{number}:v{number}" for number in range(count)]
    args = [word for one in properties for word in ("--command-property", one)]
    keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool("kafka-console-producer", "--topic", topic, *keys, *args, stdin="".join(f"{line}\n" for line in lines))
    return lines


def _read(tool: Tool, topic: str, count: int, *properties: str, group: str | None = None) -> list[str]:
    args = [word for one in properties for word in ("--command-property", one)]
    if group is not None:
        args += ["--group", group]
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    most = ("--max-messages", str(count), "--timeout-ms", "30000")
    return tool("kafka-console-consumer", "--topic", topic, "--from-beginning", *most, *shown, *args).splitlines()


def test_topics(tool: Tool, fresh: str) -> None:
    create = ("--create", "--topic", fresh, "--partitions", "2", "--config", "retention.ms=60000")
    assert f"Created topic {fresh}." in tool("kafka-topics", *create)
    assert fresh in tool("kafka-topics", "--list").splitlines()
    tool("kafka-topics", "--alter", "--topic", fresh, "--partitions", "3")
    described = tool("kafka-topics", "--describe", "--topic", fresh)
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: " in described
    assert "retention.ms=60000" in described
    assert re.findall(r"Partition: (\d)\tLeader: 1\tReplicas: 1\tIsr: 1", described) == ["0", "1", "2"]
    tool("kafka-topics", "--delete", "--topic", fresh)
    assert fresh not in tool("kafka-topics", "--list").splitlines()


def test_configs(tool: Tool, fresh: str) -> None:
    tool("kafka-topics", "--create", "--topic", fresh)
    topic = ("--entity-type", "topics", "--entity-name", fresh)
    tool("kafka-configs", "--alter", *topic, "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]")
    described = tool("kafka-configs", "--describe", *topic)
    assert "retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=60000}" in described
    assert "cleanup.policy=compact,delete " in described
    tool("kafka-configs", "--alter", *topic, "--delete-config", "retention.ms")
    assert "retention.ms=60000" not in tool("kafka-configs", "--describe", *topic)
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    assert "message.max.bytes=1048588 " in tool("kafka-configs", "--describe", "--all", *broker)
    tool("kafka-configs", "--describe", "--entity-type", "users")
    group = ("--entity-type", "groups", "--entity-name", fresh)
    tool("kafka-configs", "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    shown = "sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000, "
    assert f"consumer.session.timeout.ms=50000 {shown}" in tool("kafka-configs", "--describe", *group)
    tool("kafka-configs", "--alter", *group, "--delete-config", "consumer.session.timeout.ms")
    assert "consumer.session.timeout.ms=50000" not in tool("kafka-configs", "--describe", *group)


def test_quotas(tool: Tool, fresh: str) -> None:
    user, client = ("--entity-type", "users", "--entity-name", fresh), ("--entity-type", "clients", "--entity-default")
    tool("kafka-configs", "--alter", *user, "--add-config", "producer_byte_rate=1048576,request_percentage=150.5")
    described = tool("kafka-configs", "--describe", *user)
    assert described.startswith(f"Quota configs for user-principal '{fresh}' are ")
    assert "producer_byte_rate=1048576.0" in described
    assert "request_percentage=150.5" in described
    tool("kafka-configs", "--alter", *user, *client, "--add-config", "consumer_byte_rate=2048")
    described = tool("kafka-configs", "--describe", *user, *client)
    assert (
        f"Quota configs for user-principal '{fresh}', the default client-id are consumer_byte_rate=2048.0" in described
    )
    tool("kafka-configs", "--alter", *user, "--delete-config", "producer_byte_rate,request_percentage")
    tool("kafka-configs", "--alter", *user, *client, "--delete-config", "consumer_byte_rate")
    assert "Quota configs" not in tool("kafka-configs", "--describe", *user)
    address = ("--entity-type", "ips", "--entity-name", "192.0.2.1")
    tool("kafka-configs", "--alter", *address, "--add-config", "connection_creation_rate=50")
    assert "connection_creation_rate=50.0" in tool("kafka-configs", "--describe", *address)
    tool("kafka-configs", "--alter", *address, "--delete-config", "connection_creation_rate")


def test_console_with_keys_idempotence_and_a_group(tool: Tool, fresh: str) -> None:
    tool("kafka-topics", "--create", "--topic", fresh, "--partitions", "3")
    wrote = _write(tool, fresh, 100, "enable.idempotence=true", "acks=all", "compression.type=zstd")
    group = (
        "group.instance.id=one",
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    )
    assert sorted(_read(tool, fresh, 100, *group, group=fresh)) == sorted(wrote)


def test_groups(tool: Tool, fresh: str) -> None:
    tool("kafka-topics", "--create", "--topic", fresh)
    _write(tool, fresh, 10)
    with _consuming(tool, fresh):
        stable = tool("kafka-consumer-groups", "--describe", "--group", fresh, "--state")
        assert re.search(rf"{fresh}\s+127.0.0.1:\d+\s+\(1\)\s+range\s+Stable\s+1", stable), stable
        members = tool("kafka-consumer-groups", "--describe", "--group", fresh, "--members", "--verbose")
        assert re.search(rf"{fresh}\s+console-consumer-\S+\s+/127.0.0.1\s+console-consumer\s+1\s", members), members
    assert fresh in tool("kafka-consumer-groups", "--list").splitlines()
    reset = ("--reset-offsets", "--group", fresh, "--topic", fresh, "--to-offset", "4", "--execute")
    assert re.search(rf"{fresh}\s+{fresh}\s+0\s+4", tool("kafka-consumer-groups", *reset))
    described = tool("kafka-consumer-groups", "--describe", "--group", fresh, "--offsets")
    assert re.search(rf"{fresh}\s+{fresh}\s+0\s+4\s+10\s+6\s+-\s+-\s+-", described), described
    assert "Deletion of requested consumer groups" in tool("kafka-consumer-groups", "--delete", "--group", fresh)
    assert fresh not in tool("kafka-consumer-groups", "--list").splitlines()


@contextmanager
def _consuming(tool: Tool, topic: str) -> Iterator[None]:
    """Run a console consumer in the context; it has its partitions when the context is entered."""
    found = re.search(r"127.0.0.1:\d+", tool("kafka-broker-api-versions"))
    assert found is not None
    args = ("--bootstrap-server", found[0], "--topic", topic, "--group", topic, "--from-beginning")
    with start_tool("kafka-console-consumer", *args) as running:
        first = _lines(running, 1)
        assert first == ["v0"]
        yield


def _lines(running: subprocess.Popen[str], count: int) -> list[str]:
    """Return the next lines of a program's output; kill the program if they do not arrive."""
    stop = threading.Timer(LIMIT, running.kill)
    stop.start()
    try:
        assert running.stdout is not None
        return [running.stdout.readline().rstrip("\n") for _ in range(count)]
    finally:
        stop.cancel()


def test_offsets(tool: Tool, fresh: str) -> None:
    tool("kafka-topics", "--create", "--topic", fresh, "--partitions", "2")
    _write(tool, fresh, 50)
    latest = dict(re.findall(rf"{fresh}:(\d):(\d+)", tool("kafka-get-offsets", "--topic", fresh)))
    assert sum(map(int, latest.values())) == 50
    assert f"{fresh}:0:0" in tool("kafka-get-offsets", "--topic", fresh, "--time", "earliest")
    assert f"{fresh}:0:" in tool("kafka-get-offsets", "--topic", fresh, "--time", "max-timestamp")


def test_performance_programs(tool: Tool, fresh: str) -> None:
    tool("kafka-topics", "--create", "--topic", fresh, "--partitions", "2")
    load = ("--topic", fresh, "--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    assert "20000 records sent" in tool("kafka-producer-perf-test", *load)
    read = ("--topic", fresh, "--num-records", "20000", "--timeout", "30000", "--show-detailed-stats")
    assert tool("kafka-consumer-perf-test", *read)


def test_verifiable_programs(tool: Tool, broker: BarnabasBroker, fresh: str) -> None:
    tool("kafka-topics", "--create", "--topic", fresh)
    wrote = tool("kafka-verifiable-producer", "--topic", fresh, "--max-messages", "500", "--acks", "-1")
    events = [json.loads(line) for line in wrote.splitlines()]
    assert sum(event["name"] == "producer_send_success" for event in events) == 500
    args = (
        "--bootstrap-server",
        broker.bootstrap_servers,
        "--topic",
        fresh,
        "--group-id",
        fresh,
        "--max-messages",
        "500",
    )
    with start_tool("kafka-verifiable-consumer", *args, "--reset-policy", "earliest") as running:
        read, committed = 0, 0
        deadline = time.monotonic() + LIMIT
        while committed < 500 and time.monotonic() < deadline:
            (line,) = _lines(running, 1)
            event = json.loads(line)
            if event["name"] == "records_consumed":
                read += event["count"]
            elif event["name"] == "offsets_committed":
                assert event["success"]
                committed = max(int(one["offset"]) for one in event["offsets"])
    assert (read, committed) == (500, 500)


def test_dump_log_reads_our_files(tool: Tool, broker: BarnabasBroker, fresh: str) -> None:
    tool("kafka-topics", "--create", "--topic", fresh, "--config", "index.interval.bytes=0")
    _write(tool, fresh, 20, "compression.type=lz4", "batch.size=1")  # many batches, so that the segment has an index
    broker.restart()  # an index is written when its segment is full or the broker stops
    segment = broker.log_dir / f"{fresh}-0" / f"{0:020}.log"
    done = run_tool("kafka-dump-log", "--files", str(segment), "--print-data-log", "--deep-iteration", timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"payload: (v\d+)", done.stdout) == [f"v{number}" for number in range(20)]
    assert "isvalid: true" in done.stdout
    index = segment.with_suffix(".index")
    checked = run_tool("kafka-dump-log", "--files", str(index), "--index-sanity-check", timeout=LIMIT)
    assert "passed sanity check" in checked.stdout, checked.stdout + checked.stderr


def test_cluster_programs(tool: Tool, broker: BarnabasBroker, fresh: str) -> None:
    tool("kafka-topics", "--create", "--topic", fresh)
    _write(tool, fresh, 5)
    described = json.loads(tool("kafka-log-dirs", "--describe", "--topic-list", fresh).splitlines()[-1])
    (directory,) = described["brokers"][0]["logDirs"]
    assert directory["error"] is None
    assert [one["partition"] for one in directory["partitions"]] == [f"{fresh}-0"]
    plan = broker.folder / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": fresh, "partition": 0, "replicas": [1]}]}))
    tool("kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--execute")
    verified = tool("kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--verify")
    assert f"Reassignment of partition {fresh}-0 is completed." in verified
    delete = broker.folder / "delete.json"
    delete.write_text(json.dumps({"version": 1, "partitions": [{"topic": fresh, "partition": 0, "offset": 3}]}))
    assert f"partition: {fresh}-0\tlow_watermark: 3" in tool("kafka-delete-records", "--offset-json-file", str(delete))
    assert tool("kafka-transactions", "list").splitlines()[0].split()[:2] == ["TransactionalId", "Coordinator"]


def test_descriptions_of_the_cluster(tool: Tool, broker: BarnabasBroker, fresh: str) -> None:
    tool("kafka-topics", "--create", "--topic", fresh)
    versions = tool("kafka-broker-api-versions")
    assert f"127.0.0.1:{broker.port} (id: 1 rack: null isFenced: false) -> (" in versions
    assert "ListConfigResources(74): 0 to 1 [usable: 1]," in versions
    tool("kafka-features", "describe")
    asked = run_tool("kafka-cluster", "cluster-id", "--bootstrap-server", broker.bootstrap_servers, timeout=LIMIT)
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", asked.stdout), asked.stdout + asked.stderr
    tool("kafka-consumer-groups", "--reset-offsets", "--group", fresh, "--topic", fresh, "--to-latest", "--execute")
    assert f"Dynamic configs for group {fresh} are:" in tool("kafka-configs", "--describe", "--entity-type", "groups")
    assert tool("kafka-configs", "--describe", "--entity-type", "client-metrics") == ""
    assert tool("kafka-client-metrics", "--list").strip() == ""
    refused = run_tool("kafka-acls", "--bootstrap-server", broker.bootstrap_servers, "--list", timeout=LIMIT)
    assert refused.returncode == 1
    assert "SecurityDisabledException: No Authorizer is configured on the broker" in refused.stdout


def test_leaders_and_reassignments_of_one_node(tool: Tool, broker: BarnabasBroker, fresh: str) -> None:
    tool("kafka-topics", "--create", "--topic", fresh)
    partitions = broker.folder / "partitions.json"
    partitions.write_text(json.dumps({"partitions": [{"topic": fresh, "partition": 0}]}))
    preferred = ("--election-type", "preferred")
    elected = tool("kafka-leader-election", *preferred, "--path-to-json-file", str(partitions))
    assert elected.strip() == f"Valid replica already elected for partitions {fresh}-0"
    tool("kafka-leader-election", *preferred, "--all-topic-partitions")
    assert "No partition reassignments found." in tool("kafka-reassign-partitions", "--list")
    producers = tool("kafka-transactions", "describe-producers", "--topic", fresh, "--partition", "0")
    assert producers.split()[:2] == ["ProducerId", "ProducerEpoch"]


def test_reset_of_a_streams_application(tool: Tool, fresh: str) -> None:
    tool("kafka-topics", "--create", "--topic", fresh)
    _write(tool, fresh, 3)
    reset = ("--application-id", fresh, "--input-topics", fresh, "--to-latest", "--force")
    assert f"Topic: {fresh} Partition: 0 Offset: 3" in tool("kafka-streams-application-reset", *reset)
    committed = tool("kafka-consumer-groups", "--describe", "--group", fresh, "--offsets")
    assert re.search(rf"{fresh}\s+{fresh}\s+0\s+3\s+3\s+0\s", committed), committed
