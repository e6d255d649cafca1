"""Groups of the consumer protocol (KIP-848) with franz-go: members join, leave and die, and static ones restart."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop import process
from tests.interop.franz_go import BUILD_LIMIT, program
from tests.interop.server import Server

#: Seconds that each step may take.
PATIENCE = 120.0

# The first of these tests builds the program, which takes minutes on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE + BUILD_LIMIT)]


class Member:
    """The program franzgo/member: it says which partitions it gets and loses."""

    def __init__(self, *arguments: str) -> None:
        self.owned: set[str] = set()
        self._running = process.spawn(
            [str(program("member")), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._running.stdout is not None
        for line in self._running.stdout:
            said = json.loads(line)
            if said["event"] == "assigned":
                self.owned = self.owned | set(said["partitions"])
            else:
                self.owned = self.owned - set(said["partitions"])

    def leave(self) -> None:
        """End the program: a dynamic member leaves, a static one is away."""
        assert self._running.stdin is not None
        self._running.stdin.close()
        assert self._running.wait(PATIENCE) == 0
        self.kill()

    def kill(self) -> None:
        """Kill the program, without a word to the broker."""
        process.end(self._running, 0)
        self._thread.join()
        for stream in (self._running.stdin, self._running.stdout):
            if stream is not None:
                stream.close()


class Group:
    """The members of one group, which has the name of its topic."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.topic = topic
        self.members: list[Member] = []
        self._bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        self.create(topic, 6)

    def create(self, topic: str, partitions: int) -> None:
        for created in self._admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            created.result(PATIENCE)

    def join(self, *options: str, subscription: str = "") -> Member:
        member = Member(*options, self._bootstrap_servers, self.topic, subscription or self.topic)
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.leave()

    def kill(self, member: Member) -> None:
        self.members.remove(member)
        member.kill()

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached`."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < deadline, [sorted(member.owned) for member in self.members]
            time.sleep(0.02)

    def shares(self, *sizes: int, **topics: int) -> None:
        """Wait until the members own so many partitions, and together each one of these topics once."""
        every = [f"{name}-{number}" for name, count in (topics or {self.topic: 6}).items() for number in range(count)]

        def reached() -> bool:
            owned = [set(member.owned) for member in self.members]
            together = sorted(partition for each in owned for partition in each)
            return sorted(map(len, owned)) == sorted(sizes) and together == sorted(every)

        self.until(reached)

    def described(self) -> Any:
        """The group, as the broker describes it."""
        return self._admin.describe_consumer_groups([self.topic])[self.topic].result(PATIENCE)


@pytest.fixture
def server(quick_groups: Server) -> Server:
    """The server that `crashing` may kill."""
    return quick_groups


@pytest.fixture
def group(crashing: Server, fresh: str) -> Iterator[Group]:
    made = Group(crashing.bootstrap_servers, fresh)
    yield made
    for member in made.members:
        member.kill()


def test_members_join_leave_and_die_and_the_broker_is_killed(group: Group, crashing: Server) -> None:
    """Partitions move from member to member, and a killed broker knows the members when it is back"""
    first = group.join()
    group.shares(6)
    second = group.join()
    group.shares(3, 3)
    assert group.described().type.name == "CONSUMER"
    third = group.join()
    group.shares(2, 2, 2)
    group.leave(first)
    group.shares(3, 3)
    group.kill(second)
    group.shares(6)
    group.join()
    group.shares(3, 3)
    before = set(third.owned)
    crashing.kill()
    crashing.start()
    group.join()
    group.shares(2, 2, 2)
    assert third.owned < before


def test_a_static_member_restarts(group: Group) -> None:
    """It gets its place back, at the latest when its session has ended.

    franz-go 1.22 leaves with epoch -2, but without the instance id, which brokers refuse: its partitions are not kept
    for it as for other clients.
    """
    one, _ = group.join("-instance", "one"), group.join("-instance", "other")
    group.shares(3, 3)
    group.leave(one)
    group.join("-instance", "one")
    group.shares(3, 3)
    assert sorted(member.group_instance_id for member in group.described().members) == ["one", "other"]


def test_a_regular_expression_matches_topics_now_and_later(group: Group) -> None:
    """The broker matches the pattern, and finds a topic that is created later"""
    later = f"{group.topic}-later"
    group.create(f"other-{group.topic}", 1)
    group.join("-regex", subscription=f"^{group.topic}.*")
    group.shares(6)
    group.create(later, 2)
    group.shares(8, **{group.topic: 6, later: 2})
    group.join("-regex", subscription=f"^{group.topic}.*")
    group.shares(4, 4, **{group.topic: 6, later: 2})
