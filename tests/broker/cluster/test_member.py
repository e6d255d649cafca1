"""Brokers of a cluster over the model of etcd, in virtual time: registration, lost leases, shutdown, the controller."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.fence import MARGIN, Fence
from barnabas_broker.cluster.image import PartitionInfo
from barnabas_broker.cluster.kv import Lease
from barnabas_broker.cluster.lifecycle import MembershipError
from barnabas_broker.cluster.member import ClusterConnection, ClusterMember
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.sim import virtual
from tests.sim.etcd_model import EtcdModel, Fault, ModelKv

SESSION = 3.0


class Process:
    """The cluster part of a broker process."""

    def __init__(self, world: "World", node_id: int, directory: str, drift: float) -> None:
        loop = asyncio.get_running_loop()
        self.node_id = node_id
        self.kv = ModelKv(world.model, loop.time, world.pass_time)
        config = Config(BROKER_KEYS, {"broker.session.timeout.ms": str(int(SESSION * 1000))})
        self.store = ClusterConnection(
            self.kv, "/sim/", "etcd://model:1/sim", config, lambda: 1000.0 + loop.time() * drift
        )
        self.member: ClusterMember | None = None
        self.directory = directory
        self.alive = True

    async def start(self) -> None:
        cluster_id = await self.store.cluster_id(None, f"cluster-{self.node_id}")
        endpoints = {"PLAINTEXT": ("host", 9000 + self.node_id)}
        self.member = await self.store.load(cluster_id, self.node_id, endpoints, self.directory)
        await self.member.enter()

    @property
    def cluster(self) -> ClusterMetadata:
        assert self.member is not None
        return self.member.cluster

    @property
    def epoch(self) -> int:
        assert self.member is not None
        return self.member.lifecycle.epoch

    def may_serve(self) -> bool:
        return self.alive and self.member is not None and self.cluster.may_serve()

    def leads(self, topic: str) -> list[int]:
        """The partitions that it serves as leader now."""
        if not self.may_serve() or topic not in self.cluster.image.topics:
            return []
        partitions = self.cluster.image.topics[topic].partitions
        return [index for index, p in enumerate(partitions) if p.leader == self.node_id]

    def is_controller(self) -> bool:
        return self.alive and self.cluster.image.controller_id == self.node_id

    async def kill(self) -> None:
        """Kill it; nothing that it has sent arrives any more."""
        self.alive = False
        self.kv.cut_off = True
        self.kv.break_watches()
        await self.close()

    async def leave(self) -> None:
        assert self.member is not None
        await self.member.leave()

    async def close(self) -> None:
        if self.member is not None:
            await self.member.close()
        await self.store.close()

    async def create(self, name: str, partitions: int, factor: int) -> None:
        topic_id = bytes([len(name)]) * 16

        def decide(image: Any) -> tuple[list[Any], None]:
            event = controller.create_topic(
                image, name, topic_id=topic_id, partitions=partitions, replication_factor=factor, configs={}
            )
            return [event], None

        await self.cluster.change(decide)


class World:
    """Processes around one etcd. Never do two serve as leader of one partition."""

    def __init__(self, seed: int) -> None:
        self.model = EtcdModel()
        self.chance = random.Random(seed)
        self.processes: list[Process] = []
        self.started = 0
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def pass_time(self) -> None:
        await asyncio.sleep(self.chance.uniform(0.0, 0.03))

    async def _tick(self) -> None:
        while True:
            self.model.advance(asyncio.get_running_loop().time())
            self.check()
            await asyncio.sleep(0.01)

    def check(self) -> None:
        acting: dict[int, int] = {}
        for process in self.processes:
            for index in process.leads("topic"):
                assert index not in acting, f"{acting[index]} and {process.node_id} both lead {index}"
                acting[index] = process.node_id

    def process(self, node_id: int, directory: str | None = None, drift: float = 1.0) -> Process:
        self.started += 1
        process = Process(self, node_id, directory or f"directory-{self.started}", drift)
        self.processes.append(process)
        return process

    async def start(self, *node_ids: int) -> list[Process]:
        processes = [self.process(node_id) for node_id in node_ids]
        await asyncio.gather(*(process.start() for process in processes))
        await self.until(lambda: all(set(p.cluster.image.brokers) == set(node_ids) for p in processes))
        return processes

    async def until(self, check: Callable[[], bool], seconds: float = 60.0) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while not check():
            assert asyncio.get_running_loop().time() < end, "the condition does not become true"
            if self._ticking.done():
                self._ticking.result()
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        for process in self.processes:
            if process.alive:
                await process.kill()
        if not self._ticking.done():
            self._ticking.cancel()
        await asyncio.gather(self._ticking, return_exceptions=True)
        assert self._ticking.cancelled() or self._ticking.result() is None


def scenario(steps: Callable[[World], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    """Run a scenario in virtual time."""

    async def main() -> None:
        world = World(seed)
        try:
            await steps(world)
        finally:
            await world.close()

    virtual.run(main())


def partitions(process: Process, topic: str = "topic") -> tuple[PartitionInfo, ...]:
    return process.cluster.image.topics[topic].partitions


def test_the_fence_counts_from_when_the_renewal_was_sent() -> None:
    fence = Fence(10)
    assert not fence.is_open(0)
    fence.renewed(100)
    assert fence.is_open(100 + 10 * (1 - MARGIN) - 0.001)
    assert not fence.is_open(100 + 10 * (1 - MARGIN))
    fence.renewed(90)  # a response that arrives late
    assert fence.is_open(107)
    fence.close()
    assert not fence.is_open(100)


def test_brokers_form_a_cluster_with_one_controller() -> None:
    async def steps(world: World) -> None:
        processes = await world.start(1, 2, 3)
        assert {p.cluster.image.cluster_id for p in processes} == {processes[0].cluster.image.cluster_id}
        assert len({p.cluster.image.controller_id for p in processes}) == 1
        assert all(p.may_serve() for p in processes)
        assert [p.cluster.image.brokers[p.node_id].epoch for p in processes] == [p.epoch for p in processes]

    scenario(steps)


def test_a_partitioned_broker_stops_serving_before_another_takes_over() -> None:
    async def steps(world: World) -> None:
        one, two, three = await world.start(1, 2, 3)
        await one.create("topic", 6, 3)
        await world.until(lambda: len(two.leads("topic")) == 2)
        two.kv.cut_off = True
        two.kv.break_watches()
        since = asyncio.get_running_loop().time()
        await world.until(lambda: not two.may_serve())
        stopped = asyncio.get_running_loop().time()
        assert stopped - since <= SESSION * (1 - MARGIN) + 0.1
        assert 2 in three.cluster.image.brokers
        await world.until(lambda: len(one.leads("topic")) + len(three.leads("topic")) == 6)
        epoch = two.epoch
        two.kv.cut_off = False
        await world.until(two.may_serve)
        assert two.epoch > epoch
        await world.until(lambda: two.cluster.image == one.cluster.image)

    scenario(steps)


def test_a_short_interruption_changes_nothing() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        await one.create("topic", 2, 2)
        epoch, revision = two.epoch, world.model.revision
        two.kv.cut_off = True
        await asyncio.sleep(SESSION * 0.4)
        two.kv.cut_off = False
        await asyncio.sleep(SESSION * 3)
        assert two.may_serve()
        assert (two.epoch, world.model.revision) == (epoch, revision)

    scenario(steps)


def test_another_controller_is_elected_when_the_first_is_gone() -> None:
    async def steps(world: World) -> None:
        processes = await world.start(1, 2, 3)
        await processes[0].create("topic", 3, 3)
        chosen = next(p for p in processes if p.is_controller())
        await chosen.kill()
        left = [p for p in processes if p is not chosen]
        await world.until(lambda: sum(p.is_controller() for p in left) == 1)
        await world.until(lambda: all(chosen.node_id not in p.cluster.image.brokers for p in left))
        await world.until(lambda: sum(len(p.leads("topic")) for p in left) == 3)

    scenario(steps)


def test_a_node_id_in_use_is_rejected_with_the_address_of_its_broker() -> None:
    async def steps(world: World) -> None:
        await world.start(1, 2)
        with pytest.raises(MembershipError, match="node id 2 is in use by the broker at host:9002"):
            await world.process(2).start()

    scenario(steps)


def test_a_node_id_can_be_used_when_the_lease_of_a_dead_broker_expires() -> None:
    async def steps(world: World) -> None:
        _, two = await world.start(1, 2)
        await two.kill()
        again = world.process(2)
        await again.start()
        assert again.may_serve()

    scenario(steps)


def test_a_broker_that_restarts_in_its_directory_does_not_wait() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        await one.create("topic", 2, 1)
        before = partitions(one)[0 if partitions(one)[0].leader == 2 else 1]
        await two.kill()
        began = asyncio.get_running_loop().time()
        again = world.process(2, two.directory)
        await again.start()
        assert asyncio.get_running_loop().time() - began < 1
        assert again.may_serve()
        (index,) = again.leads("topic")
        assert partitions(again)[index].leader_epoch > before.leader_epoch

    scenario(steps)


def test_a_controlled_shutdown_moves_leaderships_first() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        await one.create("topic", 4, 2)
        await world.until(lambda: len(two.leads("topic")) == 2)
        await two.leave()
        assert not two.may_serve()
        await world.until(lambda: len(one.leads("topic")) == 4)
        await asyncio.sleep(SESSION * 2)
        assert set(one.cluster.image.brokers) == {1}, "and is not added again"
        await two.close()

    scenario(steps)


def test_without_etcd_nothing_changes_and_brokers_stop_serving() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        for process in (one, two):
            process.kv.cut_off = True
        with pytest.raises(KafkaError) as caught:
            await one.create("topic", 1, 1)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        await world.until(lambda: not one.may_serve() and not two.may_serve())
        for process in (one, two):
            process.kv.cut_off = False
        await world.until(lambda: one.may_serve() and two.may_serve())
        await one.create("topic", 1, 1)

    scenario(steps)


def test_a_change_is_decided_again_after_another_was_first() -> None:
    async def steps(world: World) -> None:
        processes = await world.start(1, 2, 3)
        blocks = await asyncio.gather(*(p.cluster.next_producer_id() for p in processes for _ in range(5)))
        assert len(set(blocks)) == 15
        outcomes = await asyncio.gather(*(p.create("topic", 1, 3) for p in processes), return_exceptions=True)
        codes = [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)]
        assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS] * 2

    scenario(steps)


async def _nemesis(world: World) -> None:
    chance, loop = world.chance, asyncio.get_running_loop()
    running = {p.node_id: p for p in await world.start(1, 2, 3)}
    await running[1].create("topic", 6, 3)
    until = loop.time() + 60
    while loop.time() < until:
        node_id = chance.choice((1, 2, 3))
        process = running[node_id]
        match chance.choice(("cut", "join", "faults", "kill", "break", "compact", "lead", "create")):
            case "cut":
                process.kv.cut_off = True
                process.kv.break_watches()
            case "join":
                process.kv.cut_off = False
            case "faults":
                process.kv.faults += chance.choices([Fault.LOST, Fault.ANSWER_LOST, None], k=5)
            case "kill":
                await process.kill()
                directory = process.directory if chance.random() < 0.7 else None
                drift = chance.uniform(0.95, 1.05)
                running[node_id] = world.process(node_id, directory, drift)
                await running[node_id].start()
            case "break":
                process.kv.break_watches()
            case "compact":
                world.model.compact()
            case "lead":
                world.model.new_leader(loop.time())
            case "create":
                try:
                    await process.create(f"other-{loop.time()}".replace(".", "-"), 2, 1)
                except KafkaError:
                    pass
        await asyncio.sleep(chance.uniform(0, 2))
        if world._ticking.done():
            world._ticking.result()
    for process in running.values():
        process.kv.cut_off = False
        process.kv.faults.clear()
    left = list(running.values())
    await world.until(lambda: all(p.may_serve() for p in left))
    await world.until(lambda: all(p.cluster.image == left[0].cluster.image for p in left))
    await world.until(lambda: sum(len(p.leads("topic")) for p in left) == 6)


@pytest.mark.parametrize("seed", range(20))
def test_never_two_leaders_and_all_images_agree_in_the_end(seed: int) -> None:
    print(f"seed {seed}")
    scenario(_nemesis, seed)


def test_a_shorter_session_than_asked_for_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def grant(self: ModelKv, ttl: int) -> Lease:
        return Lease(1, ttl - 1)

    monkeypatch.setattr(ModelKv, "grant", grant)

    async def steps(world: World) -> None:
        with pytest.raises(MembershipError, match="etcd grants a session of 2 s only, not 3 s"):
            await world.process(1).start()

    scenario(steps)
