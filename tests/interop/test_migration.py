"""Groups that migrate between the classic and the consumer protocol online, with librdkafka, Java and our client.

Each member owns each partition's share at the end of every step, and no partition is without an owner.
"""

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Consumer, ConsumerGroupType
from confluent_kafka.admin import AdminClient

from barnabas import Consumer as OurConsumer
from barnabas import CooperativeStickyAssignor
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import start_tool
from tests.interop.server import Server
from tests.interop.test_consumer_protocol import PATIENCE, Group, shared

pytestmark = [pytest.mark.interop, pytest.mark.timeout(6 * PATIENCE)]

#: The settings of a librdkafka member of the classic protocol. It learns of a rebalance with its next heartbeat, which
#: it sends every 3 s by default.
CLASSIC = {"protocol": "classic", "heartbeat.interval.ms": "500"}
COOPERATIVE = {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"}
EAGER = {**CLASSIC, "partition.assignment.strategy": "range"}


@pytest.fixture
def server(quick_groups: Server) -> Server:
    """The server that `crashing` may kill."""
    return quick_groups


@pytest.fixture
def group(crashing: Server, fresh: str) -> Iterator[Group]:
    made = Group(crashing.bootstrap_servers, fresh)
    made.create(fresh, 6)
    yield made
    for member in made.members:
        member.close()


def kind_of(group: Group) -> str:
    """The type of the group, as ListGroups has it."""
    admin = AdminClient({"bootstrap.servers": group.bootstrap_servers, "log_level": 0})
    listed = admin.list_consumer_groups().result(PATIENCE).valid
    (found,) = [each for each in listed if each.group_id == group.topic]
    assert isinstance(found.type, ConsumerGroupType)
    return found.type.name


@pytest.mark.parametrize(
    "settings", [COOPERATIVE, pytest.param(EAGER, marks=pytest.mark.slow)], ids=["cooperative", "eager"]
)
def test_members_change_their_protocol_one_by_one_and_back(group: Group, settings: dict[str, str]) -> None:
    """Two members of the classic protocol are replaced by two of the consumer protocol, and the other way round"""
    first, second = group.join(**settings), group.join(**settings)
    group.poll_until(shared(3, 3))
    assert kind_of(group) == "CLASSIC"
    third = group.join()
    group.poll_until(shared(2, 2, 2))
    assert kind_of(group) == "CONSUMER"
    group.leave(first)
    group.poll_until(shared(3, 3))
    group.join()
    group.poll_until(shared(2, 2, 2))
    group.leave(second)
    group.poll_until(shared(3, 3))
    assert kind_of(group) == "CONSUMER"
    # And back.
    group.join(**settings)
    group.poll_until(shared(2, 2, 2))
    group.leave(third)
    group.poll_until(shared(3, 3))
    group.leave(group.members[0])
    group.poll_until(shared(6))
    assert kind_of(group) == "CLASSIC"
    group.join(**settings)
    group.poll_until(shared(3, 3))


def test_static_members_change_their_protocol_in_their_place(group: Group) -> None:
    """A static member restarts with the other protocol: it keeps its partitions, and the others keep theirs"""

    def restart(member: Consumer, instance: str, **settings: str) -> Consumer:
        group.leave(member)
        return group.join(**settings, **{"group.instance.id": instance})

    first = group.join(**COOPERATIVE, **{"group.instance.id": "one"})
    second = group.join(**COOPERATIVE, **{"group.instance.id": "two"})
    group.poll_until(shared(3, 3))
    before = sorted(group.owned())
    first = restart(first, "one")
    group.poll_until(shared(3, 3))
    assert kind_of(group) == "CONSUMER"
    second = restart(second, "two")
    group.poll_until(shared(3, 3))
    assert sorted(group.owned()) == before
    first = restart(first, "one", **COOPERATIVE)
    group.poll_until(shared(3, 3))
    assert kind_of(group) == "CONSUMER"
    second = restart(second, "two", **COOPERATIVE)
    group.poll_until(shared(3, 3))
    assert kind_of(group) == "CLASSIC"
    assert sorted(group.owned()) == before


def test_a_mixed_group_survives_the_death_of_its_broker(group: Group, crashing: Server) -> None:
    """A killed broker knows the members of both protocols when it is back, and the group migrates afterwards"""
    # A leader with librdkafka's sticky assignor gives the members back the data that they have sent. Kafka takes it for
    # that of a custom assignor, and does not upgrade such a group.
    settings = COOPERATIVE if crashing.NAME == BarnabasBroker.NAME else EAGER
    group.join(**settings)
    group.poll_until(shared(6))
    modern = group.join()
    group.poll_until(shared(3, 3))
    before = group.owned()
    crashing.kill()
    crashing.start()
    group.join(**settings)
    group.poll_until(shared(2, 2, 2))
    assert all(set(now) <= set(then) for now, then in zip(group.owned(), before, strict=False))
    group.leave(modern)
    group.poll_until(shared(3, 3))
    assert kind_of(group) == "CLASSIC"
    crashing.kill()
    crashing.start()
    group.poll_until(shared(3, 3))
    group.join()
    group.poll_until(shared(2, 2, 2))
    assert kind_of(group) == "CONSUMER"


class JavaMember:
    """Kafka's VerifiableConsumer: it prints which partitions it gets and loses."""

    def __init__(self, running: "subprocess.Popen[str]") -> None:
        self.owned: set[int] = set()
        self._running = running
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._running.stdout is not None
        for line in self._running.stdout:
            event = json.loads(line)
            numbers = {each["partition"] for each in event.get("partitions", ())}
            if event["name"] == "partitions_assigned":
                self.owned |= numbers
            elif event["name"] == "partitions_revoked":
                self.owned -= numbers

    def leave(self) -> None:
        self._running.terminate()
        self._running.wait(PATIENCE)
        self._thread.join()


@contextmanager
def java_member(group: Group, protocol: str) -> Iterator[JavaMember]:
    options = ["--bootstrap-server", group.bootstrap_servers, "--topic", group.topic, "--group-id", group.topic]
    if protocol == "classic":
        options += ["--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"]
    with start_tool("kafka-verifiable-consumer", *options, "--group-protocol", protocol) as running:
        member = JavaMember(running)
        try:
            yield member
        finally:
            member.leave()


def until_shared(group: Group, javas: list[JavaMember], *sizes: int) -> None:
    """Poll the members of librdkafka until all members together own each partition once."""
    deadline = time.monotonic() + PATIENCE
    while True:
        owned = [*group.owned(), *(sorted(java.owned) for java in javas)]
        if shared(*sizes)(owned):
            return
        assert time.monotonic() < deadline, owned
        for member in group.members:
            member.poll(0.05)


@pytest.mark.kafka
def test_members_of_three_libraries_and_both_protocols(group: Group, needs_jars: None) -> None:
    """Java and librdkafka with the classic and with the consumer protocol, and our client, are in one group"""
    with java_member(group, "classic") as old_java, ExitStack() as stack:
        until_shared(group, [old_java], 6)
        old = group.join(**COOPERATIVE)
        until_shared(group, [old_java], 3, 3)
        new_java = stack.enter_context(java_member(group, "consumer"))
        until_shared(group, [old_java, new_java], 2, 2, 2)
        assert kind_of(group) == "CONSUMER"
        new = group.join()
        until_shared(group, [old_java, new_java], 1, 1, 2, 2)
        asyncio.run(our_members_come_and_go(group, [old_java, new_java]))
        until_shared(group, [old_java, new_java], 1, 1, 2, 2)
        group.leave(new)
        stack.close()
        until_shared(group, [old_java], 3, 3)
        assert kind_of(group) == "CLASSIC"
        group.leave(old)
        until_shared(group, [old_java], 6)


async def our_members_come_and_go(group: Group, javas: list[JavaMember]) -> None:
    """Two members of our client join, with either protocol, and leave."""
    address, topic = group.bootstrap_servers, group.topic
    cooperative = [CooperativeStickyAssignor()]
    classic = OurConsumer(topic, bootstrap_servers=address, group_id=topic, partition_assignment_strategy=cooperative)
    modern = OurConsumer(topic, bootstrap_servers=address, group_id=topic, group_protocol="consumer")
    await classic.start()
    await modern.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            owned = [sorted(each.partition for each in member.assignment()) for member in (classic, modern)]
            owned += [*group.owned(), *(sorted(java.owned) for java in javas)]
            if shared(1, 1, 1, 1, 1, 1)(owned):
                return
            assert time.monotonic() < deadline, owned
            for member in group.members:
                member.poll(0.01)
            for ours in (classic, modern):
                await ours.getmany(timeout_ms=20)
    finally:
        await modern.stop()
        await classic.stop()
