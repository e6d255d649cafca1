"""A leader is cut off from its followers, which reach each other, etcd and the clients: writes continue."""

import asyncio
from typing import Final

import pytest

from barnabas_broker.cluster.image import PartitionInfo
from tests.world.adversary import Adversary
from tests.world.cluster import BROKERS, Cluster
from tests.world.etcd import ETCD
from tests.world.nodes import TOPIC, Node

#: Seeds of each kind of cut.
SEEDS: Final = 12
#: Seconds that the cut lasts, and within which a record is acknowledged after it began.
_CUT_SECONDS: Final = 60.0
_SECONDS: Final = 25.0


class Cut(Cluster):
    """One partition, and no fault but the cut.

    Args:
        seed: of all random choices.
    """

    #: A new program may ask the broker that is cut off from etcd for its producer id.
    restarts = 0.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.min_isr = 2
        self.partitions = self.partitions[:1]
        self.damage = None
        self.network.jitter = self.etcd.loss = 0.0
        self.adversary = Adversary(
            self.world, self.network, self.etcd, self.checker.nodes, self.partition, lambda: False
        )

    def partition(self) -> PartitionInfo:
        """The partition, as etcd has it."""
        return self.checker.truth.topics[TOPIC].partitions[0]

    async def acknowledge(self, what: str) -> None:
        """Wait until each producer has some more acknowledgements."""
        goals = [(producer, len(producer.acknowledged) + 3) for producer in self.producers]
        await self.until(lambda: all(len(each.acknowledged) >= goal for each, goal in goals), _SECONDS, what)

    def cut(self, leader: Node, follower: Node) -> None:
        """Cut a follower off from the leader."""
        self.world.note("cut: broker %d from broker %d", follower.node_id, leader.node_id)
        self.network.cut(leader.name, follower.name, _CUT_SECONDS)

    async def _suffer(self) -> None:
        await self.until(lambda: len(self.partition().isr) == BROKERS, _SECONDS, "not all replicas are in sync")
        await self.acknowledge("no record is acknowledged")
        leader = self.checker.nodes[self.partition().leader]
        followers = self.world.chance.sample([each for each in self.nodes if each is not leader], 2)
        await self.cut_off(leader, *followers)
        await self.acknowledge("the leader is cut off, and no record is acknowledged")

    async def cut_off(self, leader: Node, first: Node, second: Node) -> None:
        """Cut both followers off from the leader."""
        self.cut(leader, first)
        self.cut(leader, second)


class OneAfterTheOther(Cut):
    """The second follower is cut off some time after the first one, which may have left the ISR by then."""

    async def cut_off(self, leader: Node, first: Node, second: Node) -> None:
        self.cut(leader, first)
        await asyncio.sleep(self.world.between(0.0, 8.0))
        self.cut(leader, second)


class WhileOneIsDown(Cut):
    """One follower is down when the other one is cut off, and returns after that has left the ISR."""

    async def cut_off(self, leader: Node, first: Node, second: Node) -> None:
        second.kill()
        await self.until(lambda: second.node_id not in self.checker.truth.brokers, _SECONDS, "the broker is registered")
        self.cut(leader, first)
        self.cut(leader, second)
        await self.until(lambda: self.partition().isr == (leader.node_id,), _SECONDS, "the ISR stays")
        second.begin()


class EachFromTheOthers(Cut):
    """No broker reaches another one for some time, so that any leader can only resign."""

    async def cut_off(self, leader: Node, first: Node, second: Node) -> None:
        await super().cut_off(leader, first, second)
        self.cut(first, second)
        await asyncio.sleep(self.world.between(1.0, 20.0))
        self.network.cuts.clear()


class FromAllButClients(Cut):
    """The leader is cut off from etcd, too, and does not hear that it was replaced. Producers wait for its answers."""

    request_ms = int(_CUT_SECONDS * 1000)

    async def cut_off(self, leader: Node, first: Node, second: Node) -> None:
        await super().cut_off(leader, first, second)
        self.network.cut(leader.name, ETCD, _CUT_SECONDS)


@pytest.mark.parametrize("cut", [Cut, OneAfterTheOther, WhileOneIsDown, EachFromTheOthers, FromAllButClients])
def test_writes_continue_while_a_leader_is_cut_off(cut: type[Cut]) -> None:
    for seed in range(SEEDS):
        cut(seed).run()
