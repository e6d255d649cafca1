"""Brokers of a cluster over the model of etcd, in virtual time: registration, lost leases, shutdown, the controller."""

import asyncio
import random
import shutil
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.controller import LogEnd
from barnabas_broker.cluster.controller_runner import ControllerRunner
from barnabas_broker.cluster.image import Event, Image, PartitionInfo
from barnabas_broker.cluster.image_file import ImageKeeper
from barnabas_broker.cluster.kv import Lease
from barnabas_broker.cluster.lease import interval
from barnabas_broker.cluster.lease_fence import MARGIN, Fence
from barnabas_broker.cluster.lifecycle import BrokerLifecycle, MembershipError
from barnabas_broker.cluster.member import ClusterConnection, ClusterMember
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.sampling import slow_but_each
from tests.sim import virtual
from tests.sim.etcd_model import EtcdModel, Fault, ModelKv

pytestmark = pytest.mark.broad

SESSION = 3.0
_NO_LOGS: Mapping[tuple[bytes, int], int] = MappingProxyType({})


class Process:
    """The cluster part of a broker process."""

    def __init__(
        self, world: "World", node_id: int, directory: str, drift: float = 1.0, path: Path | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.node_id = node_id
        self.kv = ModelKv(world.model, loop.time, world.pass_time)
        config = Config(BROKER_KEYS, {"broker.session.timeout.ms": str(int(SESSION * 1000))})
        self.store = ClusterConnection(
            self.kv, "/sim/", "etcd://model:1/sim", config, lambda: 1000.0 + loop.time() * drift
        )
        self.member: ClusterMember | None = None
        self.directory = directory
        self.path = path
        self.alive = True
        self.reports: list[asyncio.Task[None]] = []

    async def start(
        self, producer_ids: Iterable[int] = (), leader_epochs: Mapping[tuple[bytes, int], int] = _NO_LOGS
    ) -> None:
        cluster_id = await self.store.cluster_id(None, f"cluster-{self.node_id}")
        endpoints = {"PLAINTEXT": ("host", 9000 + self.node_id)}
        self.member = await self.store.load(cluster_id, self.node_id, endpoints, self.directory, self.path)
        self.member.cluster.subscribe(self._report)
        await self.member.enter(producer_ids, leader_epochs)

    def _report(self, image: Image, events: Sequence[Event]) -> None:
        """Report the ends of its logs, which are all empty, where an election waits for them."""
        ends = [
            LogEnd(topic.name, topic.topic_id, index, -1, 0)
            for topic, index, partition, _ in controller.recovering(image)
            if any(each.node_id == self.node_id and each.end < 0 for each in partition.last_known)
        ]

        async def report() -> None:
            with suppress(KafkaError):
                await self.cluster.change(
                    lambda image: (controller.report_log_ends(image, self.node_id, self.epoch, ends), None)
                )

        if ends and self.alive:
            self.reports = [*(each for each in self.reports if not each.done()), asyncio.create_task(report())]

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
        for task in self.reports:
            task.cancel()
        await asyncio.gather(*self.reports, return_exceptions=True)
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
        #: Seconds that etcd takes to answer.
        self.latency = 0.0
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def pass_time(self) -> None:
        await asyncio.sleep(self.chance.uniform(0.0, 0.03) + self.latency / 2)

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

    def process(
        self, node_id: int, directory: str | None = None, drift: float = 1.0, path: Path | None = None
    ) -> Process:
        self.started += 1
        process = Process(self, node_id, directory or f"directory-{self.started}", drift, path)
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


async def kept_later(self: ImageKeeper) -> None:
    """Virtual time has no threads, which write the image."""


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


def test_a_broker_that_hears_nothing_is_replaced_like_one_that_is_cut_off() -> None:
    async def steps(world: World) -> None:
        one, two, three = await world.start(1, 2, 3)
        await one.create("topic", 6, 3)
        await world.until(lambda: len(two.leads("topic")) == 2)
        # Its requests still arrive: a renewal without a response must not keep its lease.
        two.kv.deaf = True
        since = asyncio.get_running_loop().time()
        await world.until(lambda: len(one.leads("topic")) + len(three.leads("topic")) == 6)
        assert asyncio.get_running_loop().time() - since < SESSION * 1.5
        assert not two.may_serve()
        two.kv.deaf = False
        await world.until(two.may_serve)

    scenario(steps)


def test_a_broker_knows_that_its_lease_has_ended_about_when_another_takes_over() -> None:
    async def steps(world: World) -> None:
        one, two, three = await world.start(1, 2, 3)
        await one.create("topic", 6, 3)
        await world.until(lambda: len(two.leads("topic")) == 2)
        lease = lifecycle(two)
        assert not lease.lease_has_ended
        two.kv.cut_off = True
        two.kv.break_watches()
        await world.until(lambda: not two.may_serve())
        assert not lease.lease_has_ended, "etcd may still answer in time"
        await world.until(lambda: len(one.leads("topic")) + len(three.leads("topic")) == 6)
        await world.until(lambda: lease.lease_has_ended, SESSION)
        two.kv.cut_off = False
        await world.until(two.may_serve)
        assert not lease.lease_has_ended

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


@pytest.mark.parametrize("part", [0.25, 0.5, 0.7])
def test_leases_are_kept_while_etcd_answers_slowly(part: float) -> None:
    async def steps(world: World) -> None:
        processes = await world.start(1, 2, 3)
        epochs = [each.epoch for each in processes]
        world.latency = part * SESSION
        await asyncio.sleep(3 * SESSION)  # the first slow answer comes when the fence of a session is nearly over
        for _ in range(600):
            await asyncio.sleep(SESSION / 100)
            assert all(each.may_serve() for each in processes) or part > 0.5
        assert [each.epoch for each in processes] == epochs
        world.latency = 0.0
        await asyncio.sleep(SESSION)
        assert all(each.may_serve() for each in processes)
        assert [each.epoch for each in processes] == epochs

    scenario(steps)


def test_a_broker_registers_while_etcd_answers_slowly() -> None:
    async def steps(world: World) -> None:
        (one,) = await world.start(1)
        world.latency = 0.5 * SESSION
        two = world.process(2)
        await two.start()
        epoch = two.epoch
        await world.until(two.may_serve)
        await asyncio.sleep(5 * SESSION)
        assert two.may_serve()
        assert two.epoch == epoch
        assert set(one.cluster.image.brokers) == {1, 2}

    scenario(steps)


@pytest.mark.parametrize(
    ("latency", "expected"), [(0.0, 1 / 3), (0.1, 1 / 3), (0.3, 0.25), (0.6, 0.1), (0.75, 0.05), (0.9, 1 / 3)]
)
def test_renewals_are_more_frequent_the_slower_etcd_answers(latency: float, expected: float) -> None:
    assert interval(10.0, latency * 10) == pytest.approx(expected * 10)


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


def lifecycle(process: Process) -> BrokerLifecycle:
    assert process.member is not None
    return process.member.lifecycle


def test_a_broker_whose_process_has_ended_is_replaced_before_its_lease_expires() -> None:
    async def steps(world: World) -> None:
        processes = await world.start(1, 2, 3)
        await processes[0].create("topic", 3, 3)
        chosen = next(p for p in processes if p.is_controller())
        epoch = chosen.epoch
        await chosen.kill()
        began = asyncio.get_running_loop().time()
        left = [p for p in processes if p is not chosen]
        await asyncio.gather(*(lifecycle(p).process_ended(chosen.node_id, epoch) for p in left))
        await world.until(lambda: sum(len(p.leads("topic")) for p in left) == 3)
        await world.until(lambda: sum(p.is_controller() for p in left) == 1)
        assert asyncio.get_running_loop().time() - began < SESSION / 3

    scenario(steps)


def test_the_end_of_an_earlier_process_does_not_end_the_registration_of_the_next() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        earlier = two.epoch
        await two.kill()
        again = world.process(2, two.directory)
        await again.start()
        epoch = again.epoch
        assert epoch > earlier
        await lifecycle(one).process_ended(2, earlier)
        await asyncio.sleep(SESSION)
        assert (again.epoch, again.may_serve()) == (epoch, True)

    scenario(steps)


def test_a_live_broker_whose_lease_others_revoke_stops_serving_and_registers_again() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        epoch = two.epoch
        await lifecycle(one).process_ended(2, epoch)
        began = asyncio.get_running_loop().time()
        await world.until(lambda: not two.may_serve(), SESSION / 3)
        await world.until(lambda: two.may_serve() and two.epoch > epoch)
        assert asyncio.get_running_loop().time() - began < SESSION / 3

    scenario(steps)


def test_a_live_broker_that_does_not_hear_that_its_lease_is_revoked_serves_until_its_fence_closes() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        two.kv.cut_off = True
        two.kv.break_watches()
        await lifecycle(one).process_ended(2, two.epoch)
        remaining = lifecycle(two).lease_remaining
        assert 0 < remaining <= SESSION * (1 - MARGIN)
        began = asyncio.get_running_loop().time()
        await world.until(lambda: not two.may_serve())
        assert asyncio.get_running_loop().time() - began <= remaining + 0.02, "as if it had not been revoked"

    scenario(steps)


def test_without_etcd_the_lease_of_an_ended_process_expires() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        epoch = two.epoch
        await two.kill()
        one.kv.faults.append(Fault.LOST)
        await lifecycle(one).process_ended(2, epoch)
        assert 2 in one.cluster.image.brokers
        await world.until(lambda: 2 not in one.cluster.image.brokers)

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


def test_a_broker_with_a_copy_of_a_data_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageKeeper, "save", kept_later)

    async def steps(world: World) -> None:
        (tmp_path / "data").mkdir()
        await world.start(3)  # the controller, which is not restarted
        one = world.process(1, "directory", path=tmp_path / "data")
        await one.start()
        epoch = one.epoch
        # Copied while the first one runs.
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        with pytest.raises(MembershipError, match="in use by the broker at host:9001, which uses a copy of this data"):
            await world.process(1, "directory", path=tmp_path / "copy").start()
        with pytest.raises(MembershipError, match="the broker 1 at host:9001 uses a copy of this data directory"):
            await world.process(2, "directory", path=tmp_path / "copy").start()
        assert one.may_serve()
        assert one.epoch == epoch, "it has noticed nothing"
        # The first one itself is killed and restarted: it knows its earlier registration, and does not wait.
        await one.kill()
        began = asyncio.get_running_loop().time()
        again = world.process(1, "directory", path=tmp_path / "data")
        await again.start()
        assert asyncio.get_running_loop().time() - began < 1
        # The copy starts when the first one is gone, as after a move to another disk.
        await again.kill()
        moved = world.process(1, "directory", path=tmp_path / "copy")
        await moved.start()
        assert moved.may_serve()

    scenario(steps)


def test_of_two_copies_that_start_together_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageKeeper, "save", kept_later)

    async def steps(world: World) -> None:
        for name in ("1", "2"):
            (tmp_path / name).mkdir()
        both = [world.process(node, "directory", path=tmp_path / str(node)) for node in (1, 2)]
        outcomes = await asyncio.gather(*(each.start() for each in both), return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, MembershipError)]
        assert len(refused) == 1 and "uses a copy of this data directory" in str(refused[0])
        (left,) = (each for each, outcome in zip(both, outcomes, strict=True) if outcome is None)
        await world.until(lambda: left.may_serve() and set(left.cluster.image.brokers) == {left.node_id})

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


@pytest.mark.parametrize("seed", range(10))
def test_a_broker_whose_logs_are_newer_than_the_metadata_enters_while_others_change_it(seed: int) -> None:
    async def steps(world: World) -> None:
        await world.start(1, 2)
        three = world.process(3)
        await three.start(producer_ids=[7, 999, 41])
        assert three.cluster.image.next_producer_id == 1000

    scenario(steps, seed)


def test_what_cannot_be_true_in_the_logs_does_not_get_into_the_metadata() -> None:
    async def steps(world: World) -> None:
        one, _ = await world.start(1, 2)
        await one.create("topic", 2, 2)
        topic = one.cluster.image.topics["topic"]
        three = world.process(3)
        await three.start([2**63 - 1, 41], {(topic.topic_id, 0): 2**31 - 1, (topic.topic_id, 1): 900})
        assert three.cluster.image.next_producer_id == 42
        damaged, honest = three.cluster.image.topics["topic"].partitions
        assert damaged.leader_epoch == topic.partitions[0].leader_epoch
        assert honest.leader_epoch > 900, "the metadata was restored from a backup"
        ids = [await process.cluster.next_producer_id() for process in (one, three) for _ in range(3)]
        assert len(set(ids)) == 6
        assert max(ids) < 2**62

    scenario(steps)


def test_a_broker_that_registers_again_has_lost_nothing_since_its_first_registration() -> None:
    async def steps(world: World) -> None:
        (one,) = await world.start(1)
        assert one.member is not None
        first = one.epoch
        assert one.member.lifecycle.me.intact == (first, first)
        assert one.cluster.image.brokers[1].intact == (-1, -1), "the process has just started"
        one.kv.cut_off = True
        one.kv.break_watches()
        await world.until(lambda: not one.may_serve())
        await asyncio.sleep(SESSION * 3)
        one.kv.cut_off = False
        await world.until(one.may_serve)
        assert one.epoch > first
        assert one.member.lifecycle.me.intact == (first, one.epoch)
        assert one.cluster.image.brokers[1].intact == (first, first)

    scenario(steps)


def test_partitions_wait_for_replicas_that_do_not_return_for_some_time_only() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        await one.create("topic", 1, 2)
        await world.until(lambda: "topic" in two.cluster.image.topics)
        await asyncio.gather(one.kill(), two.kill())
        await asyncio.sleep(SESSION * 3)
        again = world.process(1, one.directory)
        await again.start()
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(295)
        assert again.leads("topic") == []
        await world.until(lambda: again.leads("topic") == [0])
        assert 299 < asyncio.get_running_loop().time() - began < 310, "unclean.recovery.timeout.ms"

    scenario(steps)


def test_a_broker_that_is_not_the_controller_any_more_does_not_wait_for_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reactions = 0
    right = ControllerRunner._react

    async def counted(self: ControllerRunner) -> None:
        nonlocal reactions
        reactions += 1
        if reactions > 5000:
            raise AssertionError("it reacts again and again")
        await right(self)

    monkeypatch.setattr(ControllerRunner, "_react", counted)

    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        await one.create("topic", 1, 2)
        await world.until(lambda: "topic" in two.cluster.image.topics)
        await asyncio.gather(one.kill(), two.kill())
        await asyncio.sleep(SESSION * 3)
        again = world.process(1, one.directory)
        await again.start()
        three = world.process(3)
        await three.start()
        await asyncio.sleep(100)
        again.kv.cut_off = True
        again.kv.break_watches()
        await world.until(three.is_controller)
        again.kv.cut_off = False
        await world.until(again.may_serve)
        await asyncio.sleep(230)
        assert not again.is_controller()
        assert reactions < 1000

    scenario(steps)


def test_new_leaders_are_announced_before_a_stopping_broker_disappears() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        await one.create("topic", 4, 2)
        await world.until(lambda: len(two.leads("topic")) == 2)
        leaving = asyncio.create_task(two.leave())
        await world.until(lambda: len(one.leads("topic")) == 4)
        # A client that asks now finds the new leaders, and the old one, too: it does not have to forget it at once.
        assert set(one.cluster.image.brokers) == {1, 2}
        assert all(partition.isr == partition.replicas for partition in partitions(one))
        await leaving
        await world.until(lambda: set(one.cluster.image.brokers) == {1})
        assert all(partition.isr == (1,) for partition in partitions(one))
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
    # Disks were replaced: a partition has no leader if those of all replicas that were in sync are gone.
    await world.until(lambda: sum(len(p.leads("topic")) for p in left) == 6 - len(lost(left[0])))


def lost(process: Process) -> list[PartitionInfo]:
    """The partitions of which no broker has the directory of a replica that was in sync."""
    live = process.cluster.image.brokers
    return [
        each
        for each in partitions(process)
        if not each.isr and not each.elr
        if all(live[known.node_id].directory != known.directory for known in each.last_known)
    ]


@pytest.mark.parametrize("seed", slow_but_each(4, range(20)))
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
