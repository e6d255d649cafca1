"""Faults at critical moments, which random faults seldom hit.

Five sequences with random times: a follower is cut off while its leader waits for the acceptance of an ISR with it; the
same, and another broker adds partitions to the topic before etcd receives the ISR; a broker is frozen, and its request
to etcd arrives as its lease expires; the leadership moves from a broker and back to it while the ISR changes, and the
broker receives none of that; a killed broker is started and registers again while another one ends its registration.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.cluster.controller import add_partitions, prefer_leaders
from barnabas_broker.cluster.image import Event, Image, PartitionInfo
from barnabas_broker.cluster.kv import Put, TxnOutcome
from barnabas_broker.cluster.lifecycle import BrokerLifecycle
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.replication.leadership import Leadership
from barnabas_protocol.errors import KafkaError
from tests.world.etcd import ETCD, Etcd, SimKv
from tests.world.network import Network
from tests.world.nodes import TOPIC, Node
from tests.world.world import World

#: How often an opportunity for a fault is used.
_ADMISSIONS: Final = 0.3
_APPENDS: Final = 0.1
_ENDINGS: Final = 0.3
#: Seconds between two checks whether a sequence can continue, and until it is abandoned.
_CHECK_SECONDS: Final = 0.02
_PATIENCE: Final = 6.0
#: Partitions of the topic, at most.
_PARTITIONS: Final = 5


class Adversary:
    """Injects faults with knowledge of the whole state.

    Args:
        world: time and random choices.
        network: is cut.
        etcd: its responses are delayed.
        nodes: the brokers, by node id.
        partition: a partition of the topic, as etcd has it.
        allowed: whether a fault is allowed now.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        etcd: Etcd,
        nodes: Mapping[int, Node],
        partition: Callable[[], PartitionInfo],
        allowed: Callable[[], bool],
    ) -> None:
        self._world = world
        self._network = network
        self._etcd = etcd
        self._nodes = nodes
        self._partition = partition
        self._allowed = allowed

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Intercept proposals of ISRs, requests to etcd, and ends of other brokers' registrations."""
        propose, txn, process_ended = Leadership.propose, SimKv.txn, BrokerLifecycle.process_ended

        def seen_propose(leading: Leadership, isr: tuple[int, ...]) -> Any:
            joining = set(isr) - set(leading.info.isr)
            if joining and self._allowed() and self._world.happens(_ADMISSIONS):
                strike = self._admission if self._world.chance.random() < 0.6 else self._overtaken
                strike(leading.node_id, min(joining))
            return propose(leading, isr)

        async def seen_txn(kv: SimKv, conditions: Any, then: Sequence[Any], otherwise: Any = ()) -> TxnOutcome:
            appends = any(isinstance(each, Put) and each.key.endswith("/head") for each in then)
            if appends and self._allowed() and self._world.happens(_APPENDS):
                self._straggler(kv)
            return await txn(kv, conditions, then, otherwise)

        async def seen_ended(lifecycle: BrokerLifecycle, node_id: int, epoch: int) -> None:
            if self._allowed() and self._world.happens(_ENDINGS):
                self._returns(lifecycle, node_id)
            await process_ended(lifecycle, node_id, epoch)

        with ExitStack() as stack:
            stack.enter_context(patch.object(BrokerLifecycle, "process_ended", seen_ended))
            stack.enter_context(patch.object(Leadership, "propose", seen_propose))
            stack.enter_context(patch.object(SimKv, "txn", seen_txn))
            yield

    def _admission(self, leader: int, follower: int) -> None:
        """A leader learns late that a follower was added to the ISR, and the follower lags meanwhile."""
        world, network = self._world, self._network
        one, other = self._nodes[leader].name, self._nodes[follower].name
        world.note("strike: broker %d lags while broker %d waits for its addition to the ISR", follower, leader)
        network.slow[ETCD, one] = world.between(0.2, 0.9)
        world.after(world.between(0.3, 1.5), network.slow.pop, (ETCD, one), None)
        network.cut(one, other, world.between(0.5, 2.0))

    def _overtaken(self, leader: int, follower: int) -> None:
        """Another broker adds partitions before etcd receives a leader's proposal; the follower to add lags."""
        world, running = self._world, self._nodes[leader].running
        if running is None:
            return
        world.note("strike: a change overtakes the addition of broker %d to an ISR of broker %d", follower, leader)
        running.hold(world.between(0.02, 0.8))
        self._network.cut(self._nodes[leader].name, self._nodes[follower].name, world.between(0.1, 2.0))
        self.grow(but=leader)

    def _straggler(self, kv: SimKv) -> None:
        """A broker is frozen, and its request arrives when its lease expires."""
        world = self._world
        node = next((each for each in self._nodes.values() if each.running and each.running.life is kv.life), None)
        if node is None:
            return  # a broker whose machine was replaced
        running = node.running
        assert running is not None
        lease = 0 if running.lifecycle is None else running.lifecycle.lease
        ends = self._etcd.model.expires(lease)
        if ends is None or running.life.frozen:
            return
        world.note("strike: broker %d is frozen, its request to etcd arrives as its lease expires", node.node_id)
        kv.held = max(0.0, ends - world.now + world.between(-0.1, 0.2))
        running.life.freeze()
        world.after(kv.held + world.between(0.1, 2.0), running.life.thaw)

    def _returns(self, lifecycle: BrokerLifecycle, node_id: int) -> None:
        """A killed broker returns before another one's request to end its registration arrives."""
        world = self._world
        world.note("strike: broker %d returns while broker %d ends its registration", node_id, lifecycle.me.node_id)
        for node in self._nodes.values():
            if node.running is not None and node.running.lifecycle is lifecycle:
                node.running.hold(world.between(0.0, 0.9))
        self._nodes[node_id].begin()

    def flap(self) -> None:
        """A broker leads, follows and leads again, and learns of it late; a new ISR member lags then."""
        world, before = self._world, self._partition()
        first = before.replicas[0]
        others = [node_id for node_id in before.replicas if node_id != first]
        if before.leader != first or set(before.isr) != set(before.replicas):
            return
        world.note("strike: the leadership of broker %d moves to another and back", first)
        self._nodes[first].kill()
        world.after(world.between(0.05, 1.0), self._nodes[first].begin)

        def lags(node_id: int) -> Callable[[], None]:
            def step() -> None:
                leader = self._nodes[node_id].name
                world.note("strike: broker %d learns late that it does not lead any more", node_id)
                self._etcd.lag[leader] = world.between(3.0, 6.0)
                world.after(world.between(3.0, 6.0), self._etcd.lag.pop, leader, None)
                self._network.cuts.clear()
                self._prefer()
                self._when(lambda now: now.leader == first and len(now.isr) == len(others) + 1, strike(node_id))

            return step

        def strike(node_id: int) -> Callable[[], None]:
            def step() -> None:
                world.note("strike: broker %d continues to lead without some in-sync replicas", node_id)
                for other in others:
                    if other != node_id:
                        self._network.cut(self._nodes[node_id].name, self._nodes[other].name, world.between(1.0, 3.0))
                running = self._nodes[first].running
                if running is not None:
                    running.stop()
                    world.after(world.between(0.1, 0.5), self._again, self._nodes[first])

            return step

        def led_by_another() -> None:
            leader = self._partition().leader
            for other in others:
                if other != leader:
                    for node in (self._nodes[leader], self._nodes[first]):
                        self._network.cut(node.name, self._nodes[other].name, _PATIENCE)
            self._when(lambda now: now.leader == leader and set(now.isr) == {leader, first}, lags(leader))

        self._when(lambda now: now.leader in others, led_by_another)

    def _again(self, node: Node) -> None:
        node.kill()
        node.begin()

    def _prefer(self) -> None:
        """Elect preferred leaders."""
        self.change(prefer_leaders)

    def grow(self, but: int = -1) -> None:
        """Add a partition to the topic.

        Args:
            but: a broker that does not do it.
        """

        def decide(image: Image) -> list[Event]:
            have = len(image.topics[TOPIC].partitions)
            return [add_partitions(image, TOPIC, have + 1)] if have < _PARTITIONS else []

        self.change(decide, but)

    def change(self, decide: Callable[[Image], list[Event]], but: int = -1) -> None:
        """Let a broker change the metadata."""

        async def ask(cluster: ClusterMetadata) -> None:
            with suppress(KafkaError):
                await cluster.change(lambda image: (decide(image), None))

        for node in self._nodes.values():
            running = node.running
            if node.node_id != but and running is not None and running.cluster is not None and running.epoch >= 0:
                running.life.spawn(ask(running.cluster), "change")
                return

    def _when(self, ready: Callable[[PartitionInfo], bool], step: Callable[[], None]) -> None:
        """Call `step` when `ready` is true of the partition, unless that takes too long or the faults have ended."""
        deadline = self._world.now + _PATIENCE

        def check() -> None:
            if not self._allowed() or self._world.now > deadline:
                return
            if ready(self._partition()):
                step()
            else:
                self._world.after(_CHECK_SECONDS, check)

        check()
