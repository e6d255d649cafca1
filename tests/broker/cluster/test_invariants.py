"""The invariants that acknowledged records depend on hold in every image, after random events."""

from collections.abc import Callable
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.controller import ElectionType, IsrChange, LogEnd
from barnabas_broker.cluster.event_json import event_from_json, event_to_json
from barnabas_broker.cluster.image import BrokerInfo, Event, Image, PartitionInfo
from barnabas_broker.cluster.image_diff import difference
from barnabas_protocol.errors import KafkaError
from tests.broker.cluster.support import clean, one

pytestmark = pytest.mark.broad

NODES = (1, 2, 3, 4)


@dataclass
class RandomCluster:
    """A cluster with random events. `registered` is the state of etcd, which the image follows."""

    image: Image = field(default_factory=lambda: Image("cluster"))
    registered: dict[int, BrokerInfo] = field(default_factory=dict)
    directories: dict[int, str] = field(default_factory=dict)
    revision: int = 0
    begun: Image = field(default_factory=lambda: Image("cluster"))

    def happen(self, events: list[Event]) -> None:
        after = self.image.apply_all(events)
        one_by_one = self.image
        for event in events:
            one_by_one = one_by_one.apply(event_from_json(event_to_json(event)))
        assert one_by_one == after, "events together do what they do one by one"
        check(self.image, after)
        self.image = after

    def try_(self, decide: Callable[[Image], list[Event]]) -> None:
        try:
            self.happen(decide(self.image))
        except KafkaError:
            pass

    # Random events; numbers are taken modulo the valid range

    def come(self, node: int, other: int) -> None:
        """A broker registers, with a new broker epoch if it was registered: intact, after an unclean stop, or with
        another directory."""
        self.revision += 1
        before = self.directories.setdefault(node, "a")
        self.directories[node] = "b" if other % 5 == 0 and before == "a" else "a" if other % 5 == 0 else before
        intact = (0, self.revision - 1) if other % 5 > 1 else (-1, -1)
        endpoints = {"PLAINTEXT": ("host", 9092)}
        self.registered[node] = BrokerInfo(
            node, endpoints, f"rack-{node % 2}", self.revision, self.directories[node], intact
        )

    def go(self, node: int, other: int) -> None:
        self.registered.pop(node, None)

    def react(self, node: int, other: int) -> None:
        for _ in range(20):
            events = controller.reconcile(self.image, node, self.registered, clean, one)
            if not events:
                break
            self.happen(events)
        else:
            raise AssertionError("reconciling does not come to an end")
        assert dict(self.image.brokers) == self.registered
        for _, partition in self.partitions():
            someone = any(member in self.registered for member in (*partition.isr, *partition.elr))
            assert partition.leader != -1 or not someone, "it is led if a replica has all records"

    def report(self, node: int, other: int) -> None:
        """A broker reports the ends of its logs."""
        broker = self.image.brokers.get(node)
        if broker is not None:
            ends = [
                LogEnd(name, self.image.topics[name].topic_id, index, other % 3, other)
                for (name, index), _ in self.partitions()
            ]
            self.happen(controller.report_log_ends(self.image, node, broker.epoch, ends))

    def late(self, node: int, other: int) -> None:
        """Partitions have waited for too long."""
        self.happen(controller.recover(self.image, [where for where, _ in self.partitions()]))

    def leave(self, node: int, other: int) -> None:
        """A broker shuts down and moves its leaderships."""
        self.registered.pop(node, None)
        broker = self.image.brokers.get(node)
        if broker is not None:
            self.happen(controller.broker_fenced(self.image, node, broker.epoch, clean, one, stopped=True))

    def create(self, node: int, other: int) -> None:
        name = f"topic-{len(self.image.topics)}"
        topic_id = bytes([len(self.image.topics) + 1]) * 16
        self.try_(
            lambda image: [
                controller.create_topic(
                    image, name, topic_id=topic_id, partitions=2, replication_factor=1 + other % 3, configs={}
                )
            ]
        )

    def partitions(self) -> list[tuple[tuple[str, int], PartitionInfo]]:
        return [
            ((topic.name, index), partition)
            for topic in self.image.topics.values()
            for index, partition in enumerate(topic.partitions)
        ]

    def in_sync(self, node: int, other: int) -> None:
        """The leader of a partition proposes an ISR: the brokers whose bit is set in `other`."""
        led = [(where, p) for where, p in self.partitions() if p.leader != -1]
        if not led:
            return
        (name, index), partition = led[node % len(led)]
        leader = partition.leader
        live = self.image.brokers
        members = [n for n in partition.replicas if n == leader or (other >> n & 1 and n in live)]
        isr = tuple((n, live[n].epoch) for n in members)
        topic_id = self.image.topics[name].topic_id
        wish = IsrChange(name, topic_id, index, partition.leader_epoch, partition.partition_epoch, isr, 1 + other % 2)
        self.happen(controller.alter_isr(self.image, leader, live[leader].epoch, [wish])[0])

    def resign(self, node: int, other: int) -> None:
        """The leader of a partition proposes an ISR without itself: the brokers whose bit is set in `other`."""
        led = [(where, p) for where, p in self.partitions() if p.leader != -1]
        if not led:
            return
        (name, index), then = led[node % len(led)]
        isr = tuple((n, -1) for n in then.replicas if n != then.leader and other >> n & 1)
        topic_id, broker = self.image.topics[name].topic_id, self.image.brokers[then.leader]
        wish = IsrChange(name, topic_id, index, then.leader_epoch, then.partition_epoch, isr, 1 + other % 2)
        self.happen(controller.alter_isr(self.image, then.leader, broker.epoch, [wish])[0])
        now = self.image.topics[name].partitions[index]
        whole = {*then.isr, *then.elr}
        if now != then:
            assert {now.leader, *now.isr} <= whole & set(self.image.brokers), "they have all committed records"
            assert len(now.isr) > 1 or {*now.isr, *now.elr} == whole & set(now.replicas)

    def move(self, node: int, other: int) -> None:
        places = self.partitions()
        if places:
            (name, index), _ = places[node % len(places)]
            target = None if other % 5 == 0 else [node, *(n for n in NODES if n != node and other >> n & 1)]
            self.try_(lambda image: [controller.reassign(image, name, index, target)])

    def prefer(self, node: int, other: int) -> None:
        self.happen(controller.prefer_leaders(self.image))
        asked = [where for where, _ in self.partitions()]
        self.try_(lambda image: controller.elect_leaders(image, ElectionType.PREFERRED, asked)[0])


def check(before: Image, after: Image) -> None:
    """Check the invariants of an image, and from one image to the next."""
    for name, topic in after.topics.items():
        for index, now in enumerate(topic.partitions):
            known = [each.node_id for each in now.last_known]
            assert now.isr or known
            everyone = [*now.isr, *now.elr, *known]
            assert len(set(everyone)) == len(everyone)
            assert set(everyone) <= set(now.replicas)
            assert len(set(now.replicas)) == len(now.replicas)
            assert set(now.isr) <= set(now.replicas)
            assert set(now.adding) <= set(now.replicas)
            assert set(now.removing) <= set(now.replicas)
            assert not set(now.adding) & set(now.removing)
            if now.leader != -1:
                assert now.leader in now.isr, "a leader has everything that was acknowledged"
                assert now.leader in after.brokers
            if name not in before.topics:
                continue
            then = before.topics[name].partitions[index]
            if now == then:
                continue
            assert now.partition_epoch > then.partition_epoch
            assert now.leader_epoch >= then.leader_epoch
            if now.leader != then.leader:
                assert now.leader_epoch > then.leader_epoch
                eligible = (*then.isr, *then.elr)
                doubtful = [each.node_id for each in then.last_known]
                assert now.leader in (-1, *eligible, *doubtful) or then.leader in before.brokers
                if now.leader in doubtful and now.leader not in eligible:
                    assert not any(node in after.brokers for node in now.elr)
            if then.leader == -1:
                kept = {*then.isr, *then.elr, *(each.node_id for each in then.last_known)}
                assert set(now.isr) <= kept, "only a leader adds a replica to the ISR"
            if (then.leader == -1 and now.leader == -1) or then.leader not in after.brokers:
                doubtful = [each.node_id for each in now.last_known]
                assert now.leader != -1 or {*now.isr, *now.elr, *doubtful} == {
                    node
                    for node in (*then.isr, *then.elr, *(each.node_id for each in then.last_known))
                    if node in now.replicas
                }, "without a leader, no replica is forgotten that may have records"


steps = st.tuples(
    st.sampled_from(
        [
            *("come", "go", "react", "leave", "create", "in_sync", "in_sync", "in_sync"),
            *("resign", "move", "prefer", "report", "late"),
        ]
    ),
    st.sampled_from(NODES),
    st.integers(0, 31),
)


@settings(max_examples=200)
@given(st.lists(steps, min_size=20, max_size=60), st.integers(0, 20))
def test_the_invariants_hold_in_every_image(events: list[tuple[str, int, int]], halfway: int) -> None:
    cluster = RandomCluster()
    for node in (1, 2, 3):
        cluster.come(node, 0)
    cluster.react(1, 0)
    cluster.create(1, 2)
    for number, (what, node, other) in enumerate(events):
        if number == halfway:
            cluster.begun = cluster.image
        getattr(cluster, what)(node, other)
    # A broker that missed the events after `begun` gets the same image from a difference.
    assert cluster.begun.apply_all(difference(cluster.begun, cluster.image)) == cluster.image
    assert Image("cluster").apply_all(cluster.image.snapshot()) == cluster.image


def test_partitions_are_spread_over_racks_first() -> None:
    cluster = RandomCluster()
    for node in NODES:
        cluster.come(node, 0)
    cluster.react(1, 0)
    event = controller.create_topic(
        cluster.image, "spread", topic_id=bytes(16), partitions=40, replication_factor=2, configs={}
    )
    for partition in event.partitions:
        assert {node % 2 for node in partition.replicas} == {0, 1}
    loads = [sum(p.leader == node for p in event.partitions) for node in NODES]
    assert loads == [10] * 4
