"""A group as explained from ``__consumer_offsets``, beside what its members did and what Barnabas recorded.

A story is played with members of librdkafka in programs of their own: they join, are slow, are killed, leave, come back
as static members, and come and go again and again.
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas_client import Admin, Consumer, OffsetAndMetadata, TopicPartition
from barnabas_client.cli import clients, main
from barnabas_client.history.sources import find_history
from tests.interop import process
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import ApacheKafka
from tests.interop.server import Server

PARTITIONS: Final = 6
#: The smallest one that Kafka allows.
SESSION_MS: Final = 6_000
#: Seconds that a step may take.
LIMIT: Final = 90.0
#: Broker and test read one clock; the event of a step is recorded a little after the step begins.
SLACK_MS: Final = 50


class Program:
    """A member. `owned` are the partitions that it last reported."""

    def __init__(self, settings: dict[str, Any], topic: str, changed: threading.Condition) -> None:
        command = [sys.executable, "-m", "tests.interop.explained_member", json.dumps(settings), topic]
        self.owned: frozenset[int] = frozenset()
        self._changed = changed
        self._process = process.spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.owned = frozenset(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self.owned = frozenset()
            self._changed.notify_all()

    def sleep(self, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"sleep {seconds}\n")
        self._process.stdin.flush()

    def end(self, patience: float) -> None:
        """Let it leave, and kill it after so many seconds; 0 kills it at once."""
        assert self._process.stdin is not None and self._process.stdout is not None
        if patience:
            self._process.stdin.close()
            self._process.wait(patience)
        process.end(self._process, 0)
        if not self._process.stdin.closed:
            self._process.stdin.close()
        self._reader.join(LIMIT)
        self._process.stdout.close()


@dataclass
class Story:
    """A group of programs, and what happened to it.

    Attributes:
        truth: what happened: "joined", "gone" or "replaced", the client id, and the times in ms around it.
    """

    server: Server
    group: str
    protocol: str
    truth: list[tuple[str, str, int, int]] = field(default_factory=list)
    members: dict[str, Program] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def start(self, name: str, kind: str = "joined", instance: str | None = None) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.server.bootstrap_servers,
            "group.id": self.group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "group.protocol": self.protocol,
        }
        if self.protocol == "classic":
            settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 200}
        if instance is not None:
            settings["group.instance.id"] = instance
        with self.happens(kind, name):
            self.members[name] = Program(settings, self.group, self.changed)
            self.wait()

    def end(self, name: str, kind: str = "gone", patience: float = LIMIT) -> None:
        with self.happens(kind, name):
            self.members.pop(name).end(patience)
            if kind == "gone":
                self.wait()

    @contextmanager
    def happens(self, kind: str, name: str) -> Iterator[None]:
        begin = time.time_ns() // 1_000_000
        yield
        self.truth.append((kind, name, begin, time.time_ns() // 1_000_000))

    def wait(self) -> None:
        """Wait until the members own all partitions, each at least one."""

        def settled() -> bool:
            owned = [member.owned for member in self.members.values()]
            return all(owned) and sorted(each for one in owned for each in one) == list(range(PARTITIONS))

        with self.changed:
            assert self.changed.wait_for(lambda: not self.members or settled(), LIMIT), self.truth

    def close(self) -> None:
        for member in self.members.values():
            member.end(0)


def create(server: Server, topic: str, partitions: int) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


@pytest.fixture(name="server")
def server_of_quick_groups(quick_groups: Server) -> Server:
    """A server whose members of the consumer protocol learn soon of a change."""
    return quick_groups


@pytest.fixture
def play(server: Server, fresh: str) -> Iterator[Callable[[str], Story]]:
    """Make a topic and its group."""
    stories: list[Story] = []

    def made(protocol: str) -> Story:
        create(server, fresh, PARTITIONS)
        stories.append(Story(server, fresh, protocol))
        return stories[-1]

    yield made
    for story in stories:
        story.close()


def events_of(server: Server, group: str, source: str) -> list[dict[str, Any]]:
    """All events of a group."""

    async def read() -> list[dict[str, Any]]:
        arguments = Namespace(
            servers=SimpleNamespace(text=server.bootstrap_servers, security={}),
            timeout=30.0,
            group=group,
            source=source,
            interval=1.0,
        )
        async with clients.admin(arguments) as admin:
            history = await find_history(
                clients.connect(arguments), admin, arguments.group, None, source=arguments.source
            )
            values = [value async for found in history.read(lambda more: None) for value in found]
        return [json.loads(value) for value in [*values, *history.finish()]]

    return asyncio.run(read())


CHANGES: Final = {"member_joined": "joined", "member_gone": "gone", "static_member_replaced": "replaced"}


def compare(story: Story, told: list[dict[str, Any]]) -> None:
    """The events are what happened, in its order, and when it happened."""
    changes = [event for event in told if event["type"] in CHANGES]
    assert [(CHANGES[event["type"]], event["client_id"]) for event in changes] == [
        (kind, name) for kind, name, _, _ in story.truth if kind != "nothing"
    ]
    truth = [one for one in story.truth if one[0] != "nothing"]
    for event, (_, _, begin, end) in zip(changes, truth, strict=True):
        first, last = event.get("between") or (event["time"], event["time"])
        assert (first or 0) <= end + SLACK_MS, (event, begin, end)
        assert begin - SLACK_MS <= last <= end + SLACK_MS, (event, begin, end)
    assert [event for event in told if event["type"] == "history_gap"] == []


def explained(server: Server, group: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    capsys.readouterr()
    status = main(["groups", "explain", group, "-b", server.bootstrap_servers, "--source", "offsets", *options])
    printed = capsys.readouterr()
    assert status == 0, printed
    return printed.out


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_a_story_of_a_classic_group(
    play: Callable[[str], Story], server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """join, slow member, death, leave, static restart, storm"""
    story = play("classic")
    story.start("a")
    story.start("b")
    story.members["a"].sleep(2)
    story.start("c")
    story.end("b", patience=0)  # its session expires
    story.end("c")
    story.start("s", instance="s-1")
    with story.happens("nothing", "s"):
        story.members.pop("s").end(0)
    story.start("s", "replaced", instance="s-1")
    calm = time.time_ns() // 1_000_000
    for _ in range(4):
        story.start("d")
        story.end("d")
    told = events_of(server, story.group, "offsets")
    compare(story, told)

    gone = [event for event in told if event["type"] == "member_gone"]
    assert "expired" in gone[0]["possible"]
    for event in gone[1:]:
        assert "left" in event["possible"]
    # Each rebalance has the cause that it had: one step, one rebalance.
    starts = [event["cause"] for event in told if event["type"] == "rebalance_started"]
    assert starts == [
        {"joined": "member_joined", "gone": "member_gone"}[kind]
        for kind, *_ in story.truth
        if kind in ("joined", "gone")
    ]
    # The dead member's partitions had no owner for at least its session, as far as the records tell.
    (dead,) = [one for one in story.truth if one[:2] == ("gone", "b")]
    over = next(event for event in told if event["type"] == "rebalance_over" and dead[2] <= event["time"])
    assert all(pause["at_least_ms"] <= dead[3] - dead[2] for pause in over["pauses"])
    assert max(pause["at_most_ms"] for pause in over["pauses"]) >= SESSION_MS - 1_000

    text = explained(server, story.group, capsys)
    assert "Rebalance storm: " in text
    first = next(event for event in told if event["type"] == "rebalance_started" and event["time"] >= calm)
    assert first["cause"] == "member_joined"

    if server.NAME != "Apache Kafka":
        real = events_of(server, story.group, "events")
        for kind in ("rebalance_over", "group_empty"):
            rebuilt = [_of(event) for event in told if event["type"] == kind]
            assert rebuilt == [_of(event) for event in real if event["type"] == kind]
        causes = [event["cause"] for event in real if event["type"] == "rebalance_started"]
        assert [_known(cause) for cause in causes] == starts


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_a_story_of_a_group_of_the_consumer_protocol(
    play: Callable[[str], Story], server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """join, leave, static restart"""
    story = play("consumer")
    story.start("a")
    story.start("b")
    story.end("b")
    story.start("s", instance="s-1")
    with story.happens("nothing", "s"):
        story.members.pop("s").end(LIMIT)
    story.start("s", "replaced", instance="s-1")
    told = events_of(server, story.group, "offsets")
    compare(story, told)
    (away,) = [event for event in told if event["type"] == "static_member_away"]
    assert away["instance_id"] == "s-1"
    causes = [event["cause"] for event in told if event["type"] == "group_epoch_bumped"]
    assert causes == ["member_joined", "member_joined", "member_gone", "member_joined"]
    text = explained(server, story.group, capsys)
    assert f"is to get {story.group}-" in text
    assert "Static member s-1 left for a while; its partitions wait for it." in text
    if server.NAME != "Apache Kafka":
        real = events_of(server, story.group, "events")
        for kind in ("group_epoch_bumped", "target_assigned", "group_reconciled", "member_revoking", "member_revoked"):
            rebuilt = [_of(event) for event in told if event["type"] == kind]
            assert rebuilt == [_of(event) for event in real if event["type"] == kind], kind


def _of(event: dict[str, Any]) -> dict[str, Any]:
    """What a rebuilt event must have in common with the recorded one."""
    shown: dict[str, Any] = {
        name: event[name] for name in ("type", "generation", "members", "partitions", "cause") if name in event
    }
    if "cause" in shown:
        shown["cause"] = _known(shown["cause"])
    moves = {each["member_id"]: each["gained"] for each in event.get("moves", ()) if each["gained"]}
    return shown | {"moves": moves}


def _known(cause: str) -> str:
    return "member_gone" if cause in ("member_left", "member_expired") else cause


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_million_records(
    fresh: str, capsys: pytest.CaptureFixture[str], record_property: Callable[[str, object], None]
) -> None:
    """1,000,000 records of ``__consumer_offsets`` are explained in less than 10 s of processor time"""
    partitions, times = 1_000, 1_000

    async def commit() -> None:
        async with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
            for number in range(times):
                offsets = {TopicPartition(fresh, each): OffsetAndMetadata(number) for each in range(partitions)}
                await admin.alter_consumer_group_offsets(fresh, offsets)

    # One segment, which is never compacted.
    with BarnabasBroker({"offsets.topic.segment.bytes": 2**30}) as server:
        create(server, fresh, partitions)
        asyncio.run(commit())
        begin = time.process_time()
        text = explained(server, fresh, capsys)
        took = time.process_time() - begin
    record_property("seconds", round(took, 2))
    assert "1,000,000 offsets were committed in 1,000 partitions between " in text
    assert took < 10, took


@pytest.fixture(scope="module")
def guarded() -> Iterator[ApacheKafka]:
    """Apache Kafka with an authorizer, and a log of groups that is compacted soon."""
    with ApacheKafka(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.segment.bytes": "1048576",
            "log.cleaner.backoff.ms": "200",
            "log.cleaner.min.cleanable.ratio": "0.01",
        }
    ) as kafka:
        yield kafka


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_what_was_compacted_is_a_gap(guarded: ApacheKafka, fresh: str) -> None:
    """Generations that the cleaner of Apache Kafka has removed"""
    bootstrap = guarded.bootstrap_servers

    create(guarded, fresh, 10)

    async def rebalance(times: int) -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            for number in range(times):
                async with Consumer(fresh, bootstrap_servers=bootstrap, group_id=fresh, enable_auto_commit=False):
                    pass
                committed = OffsetAndMetadata(number, "x" * 4_000)
                for _ in range(30):  # a megabyte, so that the next segment begins
                    offsets = {TopicPartition(fresh, each): committed for each in range(10)}
                    await admin.alter_consumer_group_offsets(f"{fresh}-other", offsets)

    asyncio.run(rebalance(3))
    deadline = time.monotonic() + LIMIT
    while True:
        asyncio.run(rebalance(1))
        told = events_of(guarded, fresh, "offsets")
        if told[0]["type"] == "history_began" and told[0]["generation"] > 1:
            break
        assert time.monotonic() < deadline, told[:3]
    compacted = [event for event in told if event.get("gap") == "compacted"]
    for event in compacted:
        started = next(
            one for one in told if one["type"] == "rebalance_started" and one["generation"] >= event["first"] - 1
        )
        assert started["cause"] == "not_recorded"


@pytest.mark.kafka
@pytest.mark.timeout(600)
@pytest.mark.parametrize("allowed", [[], ["--operation", "Describe"]])
def test_without_permission_the_group_is_polled(guarded: ApacheKafka, fresh: str, allowed: list[str]) -> None:
    """READ on __consumer_offsets is refused"""
    create(guarded, fresh, 2)

    async def use_groups() -> None:
        """Have __consumer_offsets created."""
        async with Admin(bootstrap_servers=guarded.bootstrap_servers) as admin:
            await admin.alter_consumer_group_offsets(f"{fresh}-other", {TopicPartition(fresh, 0): 1})

    asyncio.run(use_groups())
    story = Story(guarded, fresh, "classic")
    acls = ["--bootstrap-server", guarded.bootstrap_servers, "--topic", "__consumer_offsets", "--force"]
    rules = [["--allow-principal", "User:somebody", "--operation", "Read"]]
    rules += [["--allow-principal", "User:ANONYMOUS", *allowed]] if allowed else []
    for rule in rules:
        done = guarded.tool("kafka-acls", "--add", *acls, *rule)
        assert done.returncode == 0, done
    command = [sys.executable, "-m", "barnabas_client.cli", "groups", "explain", fresh, "-b", guarded.bootstrap_servers]
    running = process.spawn(
        [*command, "-i", "50ms"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert running.stderr is not None and running.stdout is not None
        assert "__consumer_offsets may not be read: the group is described every 0.05 s" in running.stderr.readline()
        settings = {"bootstrap.servers": guarded.bootstrap_servers, "group.id": fresh, "client.id": "worker"}
        story.members["worker"] = Program(settings, fresh, story.changed)
        while "worker (127.0.0.1) joined" not in (line := running.stdout.readline()):
            assert line
        assert line.split("  ", 1)[1].startswith("Rebalance: worker (127.0.0.1) joined")
    finally:
        story.close()
        process.end(running, 0)
        for stream in (running.stdout, running.stderr):
            if stream is not None:
                stream.close()
        guarded.tool("kafka-acls", "--remove", *acls)
