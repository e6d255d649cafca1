"""Brokers on machines, and programs that use them."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, TypeVar

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.image import Image, PartitionChanged
from barnabas_broker.handlers.dispatch import Dispatch
from barnabas_broker.server.connection import Dispatcher
from barnabas_broker.storage import TopicPartition
from barnabas_broker.testing.requests import SeenRequest
from barnabas_broker.testing.rules import Rules
from barnabas_broker.testing.seen import RequestLog
from barnabas_broker.testing.tap import Tap
from barnabas_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas_protocol.registry import ApiKey
from tests.world.broker import ScriptedBroker, until
from tests.world.etcd import Etcd
from tests.world.loop import LIFE, Life
from tests.world.network import Network
from tests.world.seams import seams
from tests.world.world import World

T = TypeVar("T")

#: The first time of the clock: that of a machine which has run for a while.
START: Final = 1000.0
_ETCD: Final = "etcd://etcd:2379/world"
#: Seconds of virtual time that a test may take.
PATIENCE: Final = 3600.0


class _Seen(RequestLog):
    """The requests that a broker got, for tests and for the history."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__()
        self._world = world
        self._name = name

    def add(self, request: SeenRequest) -> None:
        super().add(request)
        self._world.note("%s: %d arrives", self._name, request.number)

    def answered(self, request: SeenRequest, seconds: float, error: str | None) -> None:
        super().answered(request, seconds, error)
        self._world.note("%s: %d %s", self._name, request.number, request)


class _Lines(logging.Handler):
    """Adds what is logged to the history."""

    def __init__(self, world: "Simulation") -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        life, text = LIFE.get(), record.getMessage()
        self._world.logged.append(text)
        self._world.note("%s %s: %s", life and life.name, record.levelname.lower(), text)


class Machine(ScriptedBroker):
    """A machine with the disk of a broker.

    Args:
        simulation: its world.
        node_id: of its broker.
        keys: of its broker.

    Attributes:
        name: its host name.
        rules: faults of its broker's answers by API and client, with any handler.
        seen: the requests that its broker got.
        life: the process of its broker.
        up: whether that runs.
    """

    life: Life

    def __init__(self, simulation: "Simulation", node_id: int, keys: dict[str, str]) -> None:
        super().__init__({**keys, "node.id": str(node_id)})
        self.name = f"broker-{node_id}"
        self.up = False
        self.rules = Rules()
        self.seen = _Seen(simulation, self.name)
        self._simulation = simulation

    @property
    def host(self) -> str:
        return self.name

    @property
    def port(self) -> int:
        return 9092

    async def start(self) -> None:
        """Start the broker in a process of its own."""
        self._simulation.note("%s starts", self.name)
        self.life = Life(self._simulation.loop, self.name)
        self.broker = await self._simulation.run_in(
            self.life, BrokerServer.start(self.config, self.name, wrap_dispatcher=self._wrap)
        )
        self.up = True

    def _wrap(self, dispatch: Dispatch) -> Dispatcher:
        return self.script.before(Tap(dispatch, self.seen, self.rules))

    async def create(self, topic: str, partitions: int = 1, *replicas: Sequence[int], **configs: str) -> None:
        """As :meth:`ScriptedBroker.create`; all brokers of its cluster that run have the topic."""
        await super().create(topic, partitions, *replicas, **configs)
        members = self.broker.services.cluster.image.brokers
        for node_id, each in enumerate(self._simulation.machines.values()):
            if each.up and node_id in members:
                cluster = each.broker.services.cluster
                await until(lambda: topic in cluster.image.topics)  # noqa: B023
                await each.broker.hosted(topic)

    async def lead_again(self, topic: str, *, lost_from: int | None = None) -> None:
        """Lead partition 0 of a topic in a new epoch.

        Args:
            topic: its name.
            lost_from: the broker lacks the records from this offset on, as a leader that was not in sync; None for one
                that has all.
        """
        cluster, tp = self.broker.services.cluster, TopicPartition(topic, 0)

        def decide(image: Image) -> tuple[list[PartitionChanged], None]:
            if lost_from is not None:
                self.broker.directory.logs[tp].truncate_to(lost_from)
            info = image.topics[topic].partitions[0]
            changed = info._replace(leader_epoch=info.leader_epoch + 1, partition_epoch=info.partition_epoch + 1)
            return [PartitionChanged(topic, 0, changed)], None

        await self._simulation.run_in(self.life, cluster.change(decide))

    async def ask(self, key: ApiKey, request: Any) -> Any:
        return await self._simulation.run_in(self.life, super().ask(key, request))

    async def stop(self) -> None:
        """Stop the broker."""
        self.up = False
        await self._simulation.run_in(self.life, self.broker.stop())

    def kill(self, *, power: bool = False) -> None:
        """Kill the broker; with `power` its machine, which loses a part of what was not synced."""
        self._simulation.note("%s %s", self.name, "loses power" if power else "is killed")
        self.up = False
        self.life.kill()
        self._simulation.network.died(self.life, silent=power)
        self.files = self.files.crash(self._simulation.chance) if power else self.files.kill()
        for kv in [each for each in self._simulation.etcd.kvs if each.life is self.life]:
            kv.died()


class Simulation(World):
    """A world with brokers and programs.

    Args:
        seed: of all chance there is.
        level: what is logged at this level, or a higher one, is in the history.

    Attributes:
        network: connects them.
        etcd: coordinates those of a cluster.
        machines: those with a broker, by name.
        logged: the messages that brokers and programs have logged.
        clocks: seconds by which the time of day of a machine or program is wrong, by its name.
        rates: how fast the clocks of a machine are, by its name; 1 for those that are right.
    """

    def __init__(self, seed: int = 0, level: int = logging.WARNING) -> None:
        super().__init__(seed, START)
        self._level = level
        self.network = Network(self)
        self.etcd = Etcd(self, self.network)
        self.machines: dict[str, Machine] = {}
        self.logged: list[str] = []
        self.clocks: dict[str, float] = {}
        self.rates: dict[str, float] = {}

    async def machine(self, **keys: str) -> Machine:
        """Start a broker with keys like ``num_partitions="2"`` on a machine of its own."""
        machine = self._machine(keys)
        await machine.start()
        return machine

    async def cluster(self, count: int, **keys: str) -> list[Machine]:
        """Start the brokers of a cluster, whose topics have a replica on each."""
        replicas = {
            f"{topic}_replication_factor": str(count)
            for topic in ("default", "offsets_topic", "transaction_state_log", "share_coordinator_state_topic")
        }
        machines = [self._machine({"cluster_url": _ETCD, **replicas, **keys}) for _ in range(count)]
        await asyncio.gather(*(machine.start() for machine in machines))
        while any(len(each.broker.services.cluster.image.brokers) < count for each in machines):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        return machines

    async def lead(self, topic: str, node_id: int, partition: int = 0) -> None:
        """Make a replica the leader of its partition, and wait until all brokers that run know it."""
        running = [each for each in self.machines.values() if each.up]
        image = running[0].broker.services.cluster.image
        controller = self.machines[f"broker-{image.controller_id}"]
        replicas = sorted(image.topics[topic].partitions[partition].replicas, key=lambda node: node != node_id)
        moved = ReassignableTopic(
            name=topic, partitions=[ReassignablePartition(partition_index=partition, replicas=replicas)]
        )
        wanted = AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=[moved])
        await controller.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, wanted)
        elected = [TopicPartitions(topic=topic, partitions=[partition])]
        await controller.ask(
            ApiKey.ELECT_LEADERS, ElectLeadersRequest(election_type=0, topic_partitions=elected, timeout_ms=10_000)
        )
        for each in running:
            cluster = each.broker.services.cluster
            await until(lambda: cluster.image.topics[topic].partitions[partition].leader == node_id)  # noqa: B023

    def _machine(self, keys: dict[str, str]) -> Machine:
        machine = Machine(self, len(self.machines), {key.replace("_", "."): value for key, value in keys.items()})
        self.machines[machine.name] = machine
        return machine

    def program(self, name: str) -> Life:
        """A new process."""
        return Life(self.loop, name)

    async def run_in(self, life: Life, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in a process, and wait for its result."""
        task: asyncio.Task[T] = self.loop.create_task(work, context=life.context)
        return await task

    @contextmanager
    def _logged(self) -> Iterator[None]:
        lines, loggers = _Lines(self), [logging.getLogger(name) for name in ("barnabas_broker", "barnabas_client")]
        before = [(each.level, each.propagate) for each in loggers]
        for each in loggers:
            each.addHandler(lines)
            each.setLevel(self._level)
            each.propagate = False
        try:
            yield
        finally:
            for each, (level, propagate) in zip(loggers, before, strict=True):
                each.removeHandler(lines)
                each.setLevel(level)
                each.propagate = propagate

    def play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a program to its end, and what it needs; then everything ends at once.

        Raises:
            Violation: an exception was not caught, or the program does not end.
        """
        with (
            self._logged(),
            seams(
                self, self.network, self.etcd, lambda name: self.machines[name].files, self.clocks, self.rates, START
            ),
        ):
            try:
                task: asyncio.Task[T] = self.program("program").context.run(self.loop.create_task, work())
                self.run(START + PATIENCE, task.done)
                if not task.done():
                    self.fail("the program does not end")
                    self.run(0.0)
                return task.result()
            finally:
                self.loop.end()


def simulated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in a world of its own.

    Args:
        test: a coroutine function, whose first parameter is the :class:`Simulation`, or a :class:`Machine` of it.
    """
    parameters = list(inspect.signature(test).parameters.values())

    @wraps(test)
    def run(**arguments: Any) -> None:
        simulation = Simulation()

        async def work() -> None:
            first = await simulation.machine() if parameters[0].annotation is Machine else simulation
            await test(first, **arguments)

        simulation.play(work)

    run.__signature__ = inspect.Signature(parameters[1:])  # type: ignore[attr-defined]
    del run.__wrapped__
    return run
