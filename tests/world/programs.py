"""Brokers on machines, and programs that use them."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.handlers.dispatch import Dispatch
from barnabas_broker.handlers.produce import Produce
from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.server.connection import Dispatcher
from barnabas_broker.storage import TopicPartition
from barnabas_broker.storage.slices import joined
from barnabas_broker.testing.requests import SeenRequest
from barnabas_broker.testing.rules import Rules
from barnabas_broker.testing.seen import RequestLog
from barnabas_broker.testing.tap import Tap
from barnabas_protocol.hot.produce import ProduceHead
from barnabas_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_protocol.records import Record, build_batch, decode_records, iter_batches, read_header
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.wire import Buffer
from tests.sim_cluster.etcd import Etcd
from tests.world.loop import LIFE, Life
from tests.world.network import Network
from tests.world.script import Script
from tests.world.seams import EPOCH, seams
from tests.world.world import World

T = TypeVar("T")

#: The first time of the clock: that of a machine which has run for a while.
START: Final = 1000.0
_ETCD: Final = "etcd://etcd:2379/world"
#: Seconds of virtual time that a test may take.
PATIENCE: Final = 3600.0
#: The data directory of each broker, on the disk of its machine.
DATA: Final = Path("/data")
_KEYS: Final = {
    "auto.create.topics.enable": "true",
    "event.loop.watchdog.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


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

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        life = LIFE.get()
        self._world.note("%s %s: %s", life and life.name, record.levelname.lower(), record.getMessage())


class Machine:
    """A machine with the disk of a broker.

    Args:
        simulation: its world.
        node_id: of its broker.
        keys: of its broker.

    Attributes:
        name: its host name.
        files: its disk.
        rules: faults of its broker's answers by API and client, with any handler.
        script: answers that its broker does not give itself.
        seen: the requests that its broker got.
        life: the process of its broker.
        broker: its broker.
        up: whether that runs.
    """

    life: Life
    broker: BrokerServer

    def __init__(self, simulation: "Simulation", node_id: int, keys: dict[str, str]) -> None:
        self.name = f"broker-{node_id}"
        self.up = False
        self.files = MemoryFiles()
        self.rules = Rules()
        self.script = Script()
        self.seen = _Seen(simulation, self.name)
        self._simulation = simulation
        given = {**_KEYS, **keys, "node.id": str(node_id), "log.dir": str(DATA)}
        self._config = Config(BROKER_KEYS, given)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.name}:9092"

    async def start(self) -> None:
        """Start the broker in a process of its own."""
        self._simulation.note("%s starts", self.name)
        self.life = Life(self._simulation.loop, self.name)
        self.broker = await self._simulation.run_in(
            self.life, BrokerServer.start(self._config, self.name, wrap_dispatcher=self._wrap)
        )
        self.up = True

    def _wrap(self, dispatch: Dispatch) -> Dispatcher:
        return self.script.before(Tap(dispatch, self.seen, self.rules))

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic with configs like ``max_message_bytes="400"``."""
        given = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
        wanted = CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=-1, assignments=[], configs=given
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
        created = await self._simulation.run_in(self.life, self.broker.ask(ApiKey.CREATE_TOPICS, request, "test"))
        assert created.topics[0].error_code == 0, created
        await self.broker.hosted(topic)

    async def write(
        self, topic: str, values: Iterable[bytes | None], partition: int = 0, compression: str = "none"
    ) -> int:
        """Append records in one batch; their base offset."""
        batch = build_batch([(None, value, (), EPOCH * 1000) for value in values], compression=compression)
        return await self.append(topic, batch, partition)

    async def append(self, topic: str, batch: Buffer, partition: int = 0) -> int:
        """Append a batch; its base offset."""
        topic_id = self.broker.services.cluster.image.topics[topic].topic_id
        request = Produce(ProduceHead(None, -1, 10_000), [(topic_id, [(partition, memoryview(batch))])])
        done = await self._simulation.run_in(self.life, self.broker.ask(ApiKey.PRODUCE, request, "test"))
        (answer,) = done.responses[0].partition_responses
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    async def delete(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the records of a partition before an offset."""
        one = DeleteRecordsPartition(partition_index=partition, offset=before)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[one])], timeout_ms=10_000)
        done = await self._simulation.run_in(self.life, self.broker.ask(ApiKey.DELETE_RECORDS, request, "test"))
        assert done.topics[0].partitions[0].error_code == 0, done

    def limit(self, key: ApiKey, newest: int) -> None:
        """Have the broker say that `newest` is its last version of an API; -1: that it does not have it."""
        listed = self.broker.services.api_versions
        for each in [each for each in listed if each.api_key == key]:
            each.max_version = newest
            if newest < 0:
                listed.remove(each)

    def batches(self, topic: str, partition: int = 0) -> list[bytes]:
        """The batches in the log of a partition."""
        log = self.broker.directory.logs[TopicPartition(topic, partition)]
        found: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:  # A read ends with its segment.
            parts = log.read(offset, 1 << 30, log.log_end_offset, min_one=True)
            found += (bytes(batch) for _, batch in iter_batches(joined(parts)))
            offset = read_header(found[-1]).last_offset + 1
        return found

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """The records in the log of a partition."""
        return [
            record
            for batch in self.batches(topic, partition)
            if not read_header(batch).is_control
            for record in decode_records(batch)
        ]

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values of the records of a partition."""
        return [record.value for record in self.records(topic, partition)]

    def markers(self, topic: str, partition: int = 0) -> list[bool]:
        """For each transaction that has ended in a partition, whether it was committed."""
        headers = [(read_header(batch), batch) for batch in self.batches(topic, partition)]
        keys = [decode_records(batch)[0].key or b"" for header, batch in headers if header.is_control]
        return [int.from_bytes(key[2:4], "big") == 1 for key in keys]

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
        clocks: seconds by which the time of day of a machine or program is wrong, by its name.
    """

    def __init__(self, seed: int = 0, level: int = logging.WARNING) -> None:
        super().__init__(seed, START)
        self._level = level
        self.network = Network(self)
        self.etcd = Etcd(self, self.network)
        self.machines: dict[str, Machine] = {}
        self.clocks: dict[str, float] = {}

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
            seams(self, self.network, self.etcd, lambda name: self.machines[name].files, self.clocks),
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
