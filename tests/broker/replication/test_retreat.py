"""A broker that cannot write leaves the ISRs, and returns when it can."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from barnabas_broker.cluster.controller import Withdrawal, withdraw
from barnabas_broker.cluster.image import BrokerRegistered, Event, Image, PartitionChanged, PartitionInfo, TopicCreated
from barnabas_broker.conditions import ConditionName
from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.replication.retreat import Retreat
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.support import TOPIC_ID, TP, batch, open_directory, topic_config
from tests.sim import virtual

ME = 1


class World:
    """A broker with a disk that may be full, and the metadata of its cluster."""

    def __init__(self, *partitions: PartitionInfo) -> None:
        self.files = MemoryFiles()
        self.directory = open_directory(self.files)
        self.log = self.directory.create(TP, TOPIC_ID, topic_config(), 0)
        registered = [BrokerRegistered(node, {}, None, node) for node in (1, 2, 3)]
        topic = TopicCreated("topic", bytes(range(16)), partitions, {})
        self.image = Image("cluster").apply_all([*registered, topic])
        #: When this broker asked to leave.
        self.asked: list[float] = []
        self.resumed: list[float] = []
        self.refuses = False
        loop = asyncio.get_running_loop()
        self.retreat = Retreat(
            self.directory,
            ME,
            lambda: self.image,
            lambda topic: 1,
            self.leave,
            lambda: self.resumed.append(loop.time()),
            loop.time,
        )

    async def leave(self, withdrawals: Sequence[Withdrawal]) -> None:
        self.asked.append(asyncio.get_running_loop().time())
        if self.refuses:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        await asyncio.sleep(0.01)
        self.change(*withdraw(self.image, ME, ME, withdrawals))

    def change(self, *events: Event) -> None:
        self.image = self.image.apply_all(events)
        self.retreat.image_changed(self.image, events)

    def partition(self, index: int = 0) -> PartitionInfo:
        return self.image.topics["topic"].partitions[index]

    def fill(self) -> None:
        def full(doing: str, path: Path) -> None:
            if doing.startswith("write"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self.files.fault = full

    def write(self) -> bool:
        try:
            self.log.append_as_leader(batch(b"value"), leader_epoch=0, now_ms=0)
        except KafkaError:
            return False
        return True

    async def until(self, check: Callable[[], bool]) -> None:
        for _ in range(20_000):
            if check():
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the condition does not become true")


def scenario(steps: Callable[[World], Coroutine[Any, Any, None]], *partitions: PartitionInfo) -> None:
    async def main() -> None:
        world = World(*partitions)
        try:
            await steps(world)
        finally:
            await world.retreat.close()

    virtual.run(main())


def led_by(leader: int, isr: tuple[int, ...]) -> PartitionInfo:
    return PartitionInfo(leader, 0, (1, 2, 3), isr)


def test_it_leaves_at_once_what_others_can_lead_and_returns_after_a_trial_write() -> None:
    async def steps(world: World) -> None:
        world.fill()
        assert not world.write()
        assert world.retreat.active, "it fetches nothing from now on"
        await asyncio.sleep(0.05)
        assert (world.partition(0).leader, world.partition(0).isr) == (2, (2, 3))
        assert world.partition(1).isr == (2, 3)
        assert (world.partition(2).leader, world.partition(2).isr) == (1, (1,)), "no other one can lead"
        assert world.partition(3).isr == (2,)
        await asyncio.sleep(20)
        assert world.retreat.active
        assert not world.resumed
        (condition,) = world.directory.conditions()
        assert condition.name is ConditionName.DISK_FULL
        world.files.fault = None
        assert world.write(), "a small write, to the partition that it leads alone"
        (condition,) = world.retreat.conditions()
        assert condition.name is ConditionName.DISK_FULL, "it has not returned yet"
        await world.until(lambda: not world.retreat.active)
        assert len(world.resumed) == 1
        assert not [*world.retreat.conditions(), *world.directory.conditions()]
        assert not world.files.exists(world.directory.path / "trial-write")

    scenario(steps, led_by(1, (1, 2, 3)), led_by(2, (1, 2, 3)), led_by(1, (1,)), led_by(2, (2,)))


def test_it_leaves_again_if_a_leader_adds_it_or_a_topic_is_created() -> None:
    async def steps(world: World) -> None:
        world.fill()
        world.write()
        await asyncio.sleep(0.3)
        assert world.partition().isr == (2, 3)
        world.change(PartitionChanged("topic", 0, world.partition()._replace(isr=(1, 2, 3))))
        world.change(TopicCreated("new", bytes(16), (led_by(1, (1, 2, 3)),), {}))
        await world.until(lambda: world.partition().isr == (2, 3))
        await world.until(lambda: world.image.topics["new"].partitions[0].isr == (2, 3))
        assert len(world.asked) == 2

    scenario(steps, led_by(2, (1, 2, 3)))


def test_pauses_grow_while_returns_do_not_last() -> None:
    async def steps(world: World) -> None:
        loop = asyncio.get_running_loop()
        pauses = []
        for _ in range(8):
            world.fill()
            began = loop.time()
            world.write()
            world.files.fault = None
            await world.until(lambda: not world.retreat.active)
            pauses.append(loop.time() - began)
        assert pauses[0] < 1.5
        assert all(later > 1.2 * earlier for earlier, later in pairwise(pauses[:5])), pauses
        assert 20 < pauses[-1] < 40
        await asyncio.sleep(100)
        world.fill()
        began = loop.time()
        world.write()
        world.files.fault = None
        await world.until(lambda: not world.retreat.active)
        assert loop.time() - began < 1.5, "it had written for long"

    scenario(steps, led_by(2, (1, 2, 3)))


def test_an_etcd_that_refuses_is_asked_less_and_less_often() -> None:
    async def steps(world: World) -> None:
        world.refuses = True
        world.fill()
        world.write()
        await asyncio.sleep(120)
        assert 10 < len(world.asked) < 120
        world.refuses = False
        await world.until(lambda: world.partition().isr == (2, 3))

    scenario(steps, led_by(2, (1, 2, 3)))


def test_a_directory_that_is_offline_is_left_for_good() -> None:
    async def steps(world: World) -> None:
        def broken(doing: str, path: Path) -> None:
            if doing.startswith("write"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        world.files.fault = broken
        world.write()
        await asyncio.sleep(0.05)
        assert world.partition().isr == (2, 3)
        world.files.fault = None
        await asyncio.sleep(100)
        assert world.retreat.active
        assert not world.resumed

    scenario(steps, led_by(2, (1, 2, 3)))
