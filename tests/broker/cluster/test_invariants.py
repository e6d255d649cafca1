"""The invariants that acknowledged records depend on hold in every image, after random events."""

from collections.abc import Callable
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.controller import ElectionType, IsrChange
from barnabas_broker.cluster.difference import difference
from barnabas_broker.cluster.event_json import event_from_json, event_to_json
from barnabas_broker.cluster.image import BrokerInfo, Event, Image, PartitionInfo
from barnabas_protocol.errors import KafkaError
from tests.broker.cluster.support import clean

pytestmark = pytest.mark.broad

NODES = (1, 2, 3, 4)


@dataclass
class Story:
    """A cluster with random events. `registered` is the state of etcd, which the image follows."""

    image: Image = field(default_factory=lambda: Image("cluster"))
    registered: dict[int, BrokerInfo] = field(default_factory=dict)
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
        """A broker registers, with a new broker epoch if it was registered."""
        self.revision += 1
        self.registered[node] = BrokerInfo(node, {"PLAINTEXT": ("host", 9092)}, f"rack-{node % 2}", self.revision)

    def go(self, node: int, other: int) -> None:
        self.registered.pop(node, None)

    def react(self, node: int, other: int) -> None:
        for _ in range(20):
            events = controller.reconcile(self.image, node, self.registered, clean)
            if not events:
                break
            self.happen(events)
        else:
            raise AssertionError("reconciling does not come to an end")
        assert dict(self.image.brokers) == self.registered
        for _, partition in self.partitions():
            someone = any(member in self.registered for member in partition.isr)
            assert (partition.leader != -1) == someone, "it is led if anybody may lead it"

    def leave(self, node: int, other: int) -> None:
        """A broker shuts down and moves its leaderships."""
        self.registered.pop(node, None)
        broker = self.image.brokers.get(node)
        if broker is not None:
            self.happen(controller.broker_fenced(self.image, node, broker.epoch, clean))

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
        wish = IsrChange(name, topic_id, index, partition.leader_epoch, partition.partition_epoch, isr)
        self.happen(controller.alter_isr(self.image, leader, live[leader].epoch, [wish])[0])

    def move(self, node: int, other: int) -> None:
        places = self.partitions()
        if places:
            (name, index), _ = places[node % len(places)]
            target = None if other % 5 == 0 else [node, *(n for n in NODES if n != node and other >> n & 1)]
            self.try_(lambda image: [controller.reassign(image, name, index, target)])

    def prefer(self, node: int, other: int) -> None:
        self.happen(controller.prefer_leaders(self.image))
        self.try_(lambda image: controller.elect_leaders(image, ElectionType.PREFERRED, None)[0])


def check(before: Image, after: Image) -> None:
    """Check the invariants of an image, and from one image to the next."""
    for name, topic in after.topics.items():
        for index, now in enumerate(topic.partitions):
            assert now.isr
            assert len(set(now.isr)) == len(now.isr)
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
                assert now.leader in (-1, *then.isr) or then.leader in before.brokers
            if then.leader == -1:
                assert set(now.isr) <= set(then.isr), "nobody joins the ISR but by a leader's word"
            if then.leader == -1 or then.leader not in after.brokers:
                assert set(now.isr) & set(then.isr), "somebody is left who has everything"


steps = st.tuples(
    st.sampled_from(["come", "go", "react", "leave", "create", "in_sync", "in_sync", "in_sync", "move", "prefer"]),
    st.sampled_from(NODES),
    st.integers(0, 31),
)


@settings(max_examples=200)
@given(st.lists(steps, min_size=20, max_size=60), st.integers(0, 20))
def test_the_invariants_hold_in_every_image(story: list[tuple[str, int, int]], halfway: int) -> None:
    told = Story()
    for node in (1, 2, 3):
        told.come(node, 0)
    told.react(1, 0)
    told.create(1, 2)
    for number, (what, node, other) in enumerate(story):
        if number == halfway:
            told.begun = told.image
        getattr(told, what)(node, other)
    # A broker that missed the events after `begun` gets the same image from a difference.
    assert told.begun.apply_all(difference(told.begun, told.image)) == told.image
    assert Image("cluster").apply_all(told.image.snapshot()) == told.image


def test_partitions_are_spread_over_racks_first() -> None:
    told = Story()
    for node in NODES:
        told.come(node, 0)
    told.react(1, 0)
    event = controller.create_topic(
        told.image, "spread", topic_id=bytes(16), partitions=40, replication_factor=2, configs={}
    )
    for partition in event.partitions:
        assert {node % 2 for node in partition.replicas} == {0, 1}
    loads = [sum(p.leader == node for p in event.partitions) for node in NODES]
    assert loads == [10] * 4
