"""Random histories of groups: requests that are repeated, lost and hostile, appends that fail, targets that take long.

What must hold at every step: a partition has one owner, and clients that follow the protocol never have it twice; the
epochs of the group and of a member do not go back; and once faults stop, every live member owns its target.
"""

import re
from random import Random
from typing import Any

from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.consumer.members import JOIN_EPOCH
from barnabas_broker.groups.consumer.records import ReplayedGroup, replay_record
from barnabas_broker.groups.consumer.states import ConsumerGroupState
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.consumer.machine import Machine, catalog, partitions, replace_topics
from tests.lots import in_lots

TOPICS = ("t", "u", "v")


class Client:
    """A client that follows the protocol: it owns what it was assigned, until it has revoked it or was fenced."""

    def __init__(self, name: str, instance: str | None, random: Random) -> None:
        self.name, self.instance, self.random = name, instance, random
        self.topics = self.some_topics()
        self.regex = self.some_regex()
        self.epoch = JOIN_EPOCH
        self.owned: dict[bytes, set[int]] = {}
        self.to_revoke: dict[bytes, set[int]] = {}
        self.lost = True
        self.changed = False

    def some_topics(self) -> list[str]:
        return self.random.sample(TOPICS, self.random.randint(1, 3))

    def some_regex(self) -> str:
        return self.random.choice(("", "", "t|u", "[uvw]", ".*"))

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.topics or re.fullmatch(self.regex, topic) is not None

    def request(self) -> dict[str, Any]:
        full = self.epoch == JOIN_EPOCH or self.lost
        fields: dict[str, Any] = {"instance_id": self.instance}
        if full or self.changed:
            fields["subscribed_topic_names"] = self.topics
            fields["subscribed_topic_regex"] = self.regex
        if full:
            fields["rebalance_timeout_ms"] = 10_000
        if full or self.random.random() < 0.7:
            fields["owned"] = {} if self.epoch == JOIN_EPOCH else self.owned
        return fields

    def answered(self, response: Any) -> None:
        if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.epoch, self.owned, self.to_revoke, self.lost = JOIN_EPOCH, {}, {}, True
        elif response.error_code:
            self.lost = True
        else:
            self.lost = self.changed = False
            self.epoch = response.member_epoch
            given = partitions(response)
            if given is not None:
                target = {topic_id: set(numbers) for topic_id, numbers in given.items()}
                self.to_revoke = {k: v - target.get(k, set()) for k, v in self.owned.items()}
                for topic_id, numbers in target.items():
                    self.owned.setdefault(topic_id, set()).update(numbers)

    def revoke(self) -> None:
        for topic_id, numbers in self.to_revoke.items():
            self.owned[topic_id] -= numbers
            if not self.owned[topic_id]:
                del self.owned[topic_id]
        self.to_revoke = {}


def check(machine: Machine, clients: dict[str, Client], epochs: dict[str, int]) -> None:
    group = machine.group
    assert all(len(owners) == 1 for owners in machine.owners().values())
    assert group.epoch >= epochs.get("", 0) and group.assignment_epoch <= group.epoch
    epochs[""] = group.epoch
    for member_id, member in group.members.items():
        assert member.epoch <= group.epoch
        if member.epoch > 0:
            assert member.epoch >= epochs.get(member_id, 0)
            epochs[member_id] = member.epoch
    held: dict[tuple[bytes, int], str] = {}
    for client in clients.values():
        if client.name in group.members and client.epoch > 0:
            for topic_id, numbers in client.owned.items():
                for number in numbers:
                    assert held.setdefault((topic_id, number), client.name) == client.name, "two owners"


def beat(machine: Machine, client: Client) -> None:
    response = machine.send(client.name, client.epoch, **client.request())
    if response is not None:
        client.answered(response)


def restored(machine: Machine) -> ConsumerGroup:
    """The group as its records say."""
    replayed: dict[str, ReplayedGroup] = {}
    for key, value in machine.records:
        replay_record(replayed, key, value)
    return ConsumerGroup.restore("g", machine.settings, replayed.get("g", {}), machine.now, machine.wall_ms)


@in_lots("seed", range(150))
def test_a_history(seed: int) -> None:
    random = Random(seed)
    machine = Machine(topics=catalog(t=5, u=3, v=1), interval=random.choice((0.0, 1.0)))
    clients: dict[str, Client] = {}
    epochs: dict[str, int] = {}
    sizes = {"t": 5, "u": 3, "v": 1}
    for _ in range(250):
        act = random.random()
        client = random.choice(list(clients.values())) if clients else None
        if client is None or (act < 0.08 and len(clients) < 8):
            name = f"m{random.randrange(12)}"
            if name not in clients and name not in machine.group.members:
                clients[name] = Client(name, random.choice((None, None, name)), random)
        elif act < 0.6:
            beat(machine, client)
        elif act < 0.68:
            request = client.request()
            response = machine.send(client.name, client.epoch, **request)
            if response is not None and response.error_code:
                client.answered(response)
            client.lost = True
        elif act < 0.76:
            client.revoke()
        elif act < 0.80:
            client.topics, client.regex, client.changed = client.some_topics(), client.some_regex(), True
        elif act < 0.83:
            machine.send(client.name, -1, instance_id=client.instance)
            del clients[client.name]
        elif act < 0.85:
            del clients[client.name]
        elif act < 0.87:
            sizes[random.choice(TOPICS)] += 1
            replace_topics(machine.topics, sizes)
        elif act < 0.93:
            machine.after(random.choice((0.5, 2.0, 6.0)))
        elif act < 0.95:
            known = machine.group.members.get(client.name)
            epoch = random.randint(-3, 12)
            if known is None or epoch != known.epoch:  # With its id and its epoch, this would be the member itself.
                machine.send(client.name, epoch, token="hostile", owned={b"t" * 16: [0, 99, -1]})
        else:
            machine.group = restored(machine)
        check(machine, clients, epochs)
    for _ in range(40):
        for client in clients.values():
            beat(machine, client)
            client.revoke()
            check(machine, clients, epochs)
        machine.after(2.0)
    group = machine.group
    assert group.members.keys() == clients.keys()
    assert group.subscriptions.resolved.keys() == {client.regex for client in clients.values()} - {""}
    assert all(group.is_subscribed_to(name) == any(c.subscribes_to(name) for c in clients.values()) for name in TOPICS)
    assert group.state is (ConsumerGroupState.STABLE if clients else ConsumerGroupState.EMPTY)
    for client in clients.values():
        target = {topic_id: set(numbers) for topic_id, numbers in group.targets[client.name].items()}
        assert client.owned == target
    subscribed = {name for client in clients.values() for name in TOPICS if client.subscribes_to(name)}
    wanted = {(name[0].encode() * 16, number) for name in subscribed for number in range(sizes[name])}
    assert machine.owners().keys() == wanted


@in_lots("seed", [*range(100), 747, 918, 1030])
def test_a_group_goes_on_without_records_that_a_disk_has_lost(seed: int) -> None:
    """Replay skips a damaged part of the log; the group is stable again, in a newer epoch than its members know."""
    random = Random(seed)
    machine = Machine(topics=catalog(t=5, u=3, v=1))
    clients: dict[str, Client] = {}
    for _ in range(random.randint(3, 40)):
        if not clients or (random.random() < 0.2 and len(clients) < 6):
            clients[f"m{len(clients)}"] = Client(f"m{len(clients)}", None, random)
        client = random.choice(list(clients.values()))
        beat(machine, client)
        client.revoke()
    first = random.randrange(len(machine.records))
    del machine.records[first : first + random.randint(1, 8)]
    machine.group = restored(machine)
    newest = max((member.epoch for member in machine.group.members.values()), default=0)
    for _ in range(40):
        for client in clients.values():
            beat(machine, client)
            client.revoke()
        machine.after(2.0)
    group = machine.group
    assert group.members.keys() == clients.keys()
    assert group.state is ConsumerGroupState.STABLE
    assert group.epoch >= newest
    for client in clients.values():
        target = {topic_id: set(numbers) for topic_id, numbers in group.targets[client.name].items()}
        assert client.owned == target
    assert all(len(owners) == 1 for owners in machine.owners().values())
    wanted = [
        each for name, each in machine.topics.by_name.items() if any(c.subscribes_to(name) for c in clients.values())
    ]
    assert len(machine.owners()) == sum(each.partitions for each in wanted)
    assert restored(machine).epoch == group.epoch


@in_lots("seed", range(60))
def test_a_history_with_failing_appends_and_slow_targets(seed: int) -> None:
    random = Random(seed)
    machine = Machine(topics=catalog(t=5, u=3, v=1), hold=True, compute=False)
    clients = {f"m{n}": Client(f"m{n}", None, random) for n in range(4)}
    waiting: dict[str, Client] = {}

    def collect() -> None:
        for token in list(waiting):
            if token in machine.answers:
                waiting.pop(token).answered(machine.answers[token])

    def work(error: ErrorCode) -> None:
        if machine.appends:
            machine.persisted(error)
        elif machine.computations:
            machine.computed()
        collect()

    for turn in range(300):
        act = random.random()
        client = random.choice(list(clients.values()))
        if act < 0.4 and client not in waiting.values():
            token = f"{client.name}-{turn}"
            waiting[token] = client
            machine.send(client.name, client.epoch, token=token, **client.request())
            collect()
        elif act < 0.5:
            client.revoke()
        elif act < 0.55:
            machine.after(0.2)
            collect()
        else:
            work(ErrorCode.NOT_ENOUGH_REPLICAS if random.random() < 0.2 else ErrorCode.NONE)
        check(machine, clients, {})
    machine.hold, machine.compute = False, True
    while machine.appends or machine.computations:
        work(ErrorCode.NONE)
    machine.after(0.5)  # for members that revoke
    collect()
    assert waiting == {}
    for _ in range(20):
        for client in clients.values():
            beat(machine, client)
            client.revoke()
    assert machine.group.state is ConsumerGroupState.STABLE
    again = restored(machine)
    assert again.state is ConsumerGroupState.STABLE
    for member_id, member in machine.group.members.items():
        copy = again.members[member_id]
        assert (copy.epoch, copy.assigned, copy.topics) == (member.epoch, member.assigned, member.topics)
        assert again.targets[member_id] == machine.group.targets[member_id]
