"""Groups of the consumer protocol (KIP-848) with librdkafka: members join, leave and die, and the broker is killed."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.server import Server

#: Seconds that each step may take.
PATIENCE = 120.0

pytestmark = [pytest.mark.interop, pytest.mark.timeout(6 * PATIENCE)]


class Group:
    """Members of one group, which the test polls in turn."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.bootstrap_servers, self.topic = bootstrap_servers, topic
        self.members: list[Consumer] = []

    def join(self) -> Consumer:
        member = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": self.topic,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        member.subscribe([self.topic])
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
    admin = AdminClient({"bootstrap.servers": crashing.bootstrap_servers, "log_level": 0})
    for created in admin.create_topics([NewTopic(fresh, 6, 1)]).values():
        created.result(PATIENCE)
    made = Group(crashing.bootstrap_servers, fresh)
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
