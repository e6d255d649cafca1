"""Groups of the consumer protocol (KIP-848): members join, leave and die, and the broker is killed."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.clients.base import Client, Partition
from tests.interop.server import Server
from tests.interop.waiting import Members

#: Seconds that each step may take.
PATIENCE = 120.0

pytestmark = [pytest.mark.interop, pytest.mark.timeout(6 * PATIENCE)]


@pytest.fixture
def server(quick_groups: Server) -> Server:
    """The server that `crashing` may kill."""
    return quick_groups


def test_members_share_the_partitions(client: Client, fresh: str, members: Members) -> None:
    """Groups of KIP-848, which the broker balances (`group.protocol=consumer`)"""
    client.admin().create_topic(fresh, 6)
    partitions = [Partition(fresh, number) for number in range(6)]
    readers = [client.reader(fresh, protocol="consumer") for _ in range(3)]
    members.add(*readers[:2], topic=fresh)
    members.wait_shared(partitions)
    members.add(readers[2], topic=fresh)
    members.wait_shared(partitions)
    members.remove(readers[0])
    members.wait_shared(partitions)


class Group:
    """Members of one group, which the test polls in turn."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.bootstrap_servers, self.topic = bootstrap_servers, topic
        self.members: list[Consumer] = []
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def create(self, topic: str, partitions: int) -> None:
        for created in self.admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            created.result(PATIENCE)

    def join(self, *subscription: str, protocol: str = "consumer", **settings: str | int) -> Consumer:
        member = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": self.topic,
                "group.protocol": protocol,
                **settings,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        member.subscribe(list(subscription) or [self.topic])
        self.members.append(member)
        return member

    def leave(self, member: Consumer) -> None:
        self.members.remove(member)
        member.close()

    def owned(self) -> list[list[int]]:
        return [sorted(each.partition for each in member.assignment()) for member in self.members]

    def poll_until(self, reached: Callable[[list[list[int]]], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not reached(self.owned()):
            assert time.monotonic() < deadline, self.owned()
            for member in self.members:
                member.poll(0.05)


def shared(*sizes: int) -> Callable[[list[list[int]]], bool]:
    """Whether the members own so many partitions, and together each one once."""

    def reached(owned: list[list[int]]) -> bool:
        every = sorted(partition for partitions in owned for partition in partitions)
        return sorted(map(len, owned)) == sorted(sizes) and every == list(range(sum(sizes)))

    return reached


@pytest.fixture
def group(crashing: Server, fresh: str) -> Iterator[Group]:
    made = Group(crashing.bootstrap_servers, fresh)
    made.create(fresh, 6)
    yield made
    for member in made.members:
        member.close()


def test_members_join_and_leave_and_the_broker_is_killed(group: Group, crashing: Server) -> None:
    """Partitions move without a stop of the others, and a killed broker knows the group when it is back"""
    first = group.join()
    group.poll_until(shared(6))
    group.join()
    group.poll_until(shared(3, 3))
    producer = Producer({"bootstrap.servers": group.bootstrap_servers, "log_level": 0})
    for partition in range(6):
        producer.produce(group.topic, b"record", partition=partition)
    assert producer.flush(PATIENCE) == 0
    before = group.owned()
    crashing.kill()
    crashing.start()
    third = group.join()
    group.poll_until(shared(2, 2, 2))
    assert all(set(now) <= set(then) for now, then in zip(group.owned(), before, strict=False))
    group.leave(third)
    group.poll_until(shared(3, 3))
    group.leave(first)
    group.poll_until(shared(6))


def topics(group: Group) -> list[set[str]]:
    """The topics of each member's partitions."""
    return [{each.topic for each in member.assignment()} for member in group.members]


@pytest.mark.slow
def test_a_regular_expression_matches_topics_now_and_later(group: Group, crashing: Server) -> None:
    """The broker matches a pattern, finds a topic that is created later, and knows the group after a kill"""
    later, other = f"{group.topic}-later", f"other-{group.topic}"
    group.create(other, 1)
    pattern = f"^{group.topic}.*"
    group.join(pattern)
    group.poll_until(shared(6))
    group.create(later, 2)
    group.poll_until(lambda owned: topics(group) == [{group.topic, later}])
    group.join(pattern)
    group.poll_until(lambda owned: sorted(map(len, owned)) == [4, 4])
    crashing.kill()
    crashing.start()
    third = group.join(other, pattern)
    group.poll_until(lambda owned: sorted(map(len, owned)) == [3, 3, 3] and sum(map(len, owned)) == 9)
    assert other in {each.topic for each in third.assignment()}
    assert set().union(*topics(group)) == {group.topic, later, other}
    group.leave(third)
    group.poll_until(lambda owned: sorted(map(len, owned)) == [4, 4])
    assert set().union(*topics(group)) == {group.topic, later}


def test_an_invalid_regular_expression_is_a_fatal_error_of_the_consumer(
    group: Group, capfd: pytest.CaptureFixture[str]
) -> None:
    """A pattern that RE2 does not know, a back reference, fails with INVALID_REGULAR_EXPRESSION"""
    member = group.join(r"^(a)\1")
    deadline = time.monotonic() + PATIENCE
    written = ""
    while "Fatal error: Broker: The regular expression is not valid" not in written:
        assert time.monotonic() < deadline, written
        member.poll(0.2)
        written += capfd.readouterr().err
    assert member.assignment() == []
