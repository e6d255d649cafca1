"""Machines of a cluster whose brokers stop and start again, lose power or their disk, and are replaced."""

import errno
import os
from pathlib import Path
from typing import Final

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.lifecycle import BrokerLifecycle
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.errors import BrokerError
from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage import LogDirectory, TopicPartition
from tests.world.loop import Life
from tests.world.programs import Machine, Simulation

#: The name of the only topic.
TOPIC: Final = "t"
_KEYS: Final = {
    "cluster.url": "etcd://etcd:2379/world",
    "default.replication.factor": "3",
    "log.cleaner.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "2000",
    "fetch.max.bytes": "65536",
}


class Node(Machine):
    """A machine of the cluster.

    Args:
        simulation: its world.
        node_id: of its broker.
        configs: of its broker.
        replaced: the machine that this one replaces, with the same node id and an empty disk.

    Attributes:
        last: the present or last run of the broker.
        ends: the log end offsets at the end of the last run.
        lost_epoch: the broker epoch in which the machine last lost power, and perhaps data.
        directory_id: of its data directory, once it has one.
        damaged: whether files of it were damaged, and it may not be whole again.
        retired: whether another machine has replaced this one, so that it is not started again.
    """

    def __init__(
        self, simulation: Simulation, node_id: int, configs: dict[str, str], replaced: "Node | None" = None
    ) -> None:
        super().__init__(simulation, node_id, {**_KEYS, **configs})
        self.lives: int = 0 if replaced is None else replaced.lives
        if replaced is not None:
            self.name = f"broker-{node_id}-{self.lives}"
        self.world = simulation
        self.last: Running | None = None
        self.ends: dict[TopicPartition, int] = {}
        self.lost_epoch = -2
        self.directory_id = ""
        self.damaged = False
        self.retired = False
        self._configs = configs
        simulation.machines[self.name] = self

    @property
    def running(self) -> "Running | None":
        """The broker, if it runs."""
        last = self.last
        return last if last is not None and last.life.alive else None

    def begin(self) -> None:
        """Start the broker, unless it runs."""
        if self.running is None and not self.retired:
            self.lives += 1
            self.world.note("%s starts", self.name)
            self.last = Running(self)
            self.life = self.last.life
            self.life.spawn(self.last.start(), "start")

    def replace(self) -> "Node":
        """Another machine with this node id and an empty disk. This one goes on as it is, but is not started again."""
        new = Node(self.world, self.node_id, self._configs, self)
        if self.name in self.world.rates:
            self.world.rates[new.name] = self.world.rates[self.name]
        new.lost_epoch = -2 if self.running is None else self.running.epoch
        self.retired = True
        self.world.note("broker %d: %s replaces %s", self.node_id, new.name, self.name)
        return new

    def kill(self, *, power: bool = False) -> None:
        """Kill the broker, if it runs; with `power` its machine, which loses a part of what was not synced."""
        running = self.running
        if running is None:
            return
        directory = running.directory
        if directory is not None:
            self.ends = {where: log.log_end_offset for where, log in directory.logs.items()}
            if power:
                self.lost_epoch = running.epoch
        super().kill(power=power)

    def fill(self, seconds: float) -> None:
        """Let the disk be full for some time, or until the broker is killed."""
        files = self.files

        def full(doing: str, path: Path) -> None:
            if doing.startswith(("write", "create")):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        files.fault = full
        self.world.after(seconds, setattr, files, "fault", None)

    def wipe(self) -> None:
        """Give the machine, which is down, an empty disk."""
        self.world.note("%s gets an empty disk", self.name)
        self.files = MemoryFiles()
        self.ends = {}

    def log_end(self, where: TopicPartition) -> int:
        """The log end offset, also while the broker is down."""
        running = self.running
        if running is not None and running.directory is not None:
            log = running.directory.logs.get(where)
            return 0 if log is None else log.log_end_offset
        return self.ends.get(where, 0)


class Running:
    """One run of a broker.

    Attributes:
        number: counts the runs of this broker.
        broker: once its parts are there.
        stopping: whether it stops.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.number = node.lives
        self.life = Life(node.world.loop, node.name)
        self.broker: BrokerServer | None = None
        self.stopping = False
        self._started = False

    async def start(self) -> None:
        """Run the broker until its data directory fails."""
        node = self.node
        try:
            broker = await BrokerServer.start(node.config, node.name)
            node.up = self._started = True
            await broker.failed.wait()
            node.world.note("%s stops: its data directory has failed", node.name)
        except BrokerError as error:
            node.world.note("%s gives up: %s", node.name, error)
        except Exception as error:  # No invariant: a planted bug that breaks the wiring is not found by that.
            node.world.violation = f"{node.name} does not start: {error!r}"
        node.kill()
        node.world.after(1.0, node.begin)

    @property
    def cluster(self) -> ClusterMetadata | None:
        """The metadata, once it is loaded."""
        return None if self.broker is None else self.broker.services.cluster

    @property
    def directory(self) -> LogDirectory | None:
        """The log directory, once it is open."""
        return None if self.broker is None else self.broker.directory

    @property
    def lifecycle(self) -> BrokerLifecycle | None:
        """The broker's registration."""
        return None if self.broker is None else self.broker.view.lifecycle

    @property
    def epoch(self) -> int:
        """The broker epoch, -1 for none."""
        return -1 if self.lifecycle is None else self.lifecycle.epoch

    def hold(self, seconds: float) -> None:
        """Let its next request to etcd be on its way for some seconds."""
        for kv in self.node.world.etcd.kvs:
            if kv.life is self.life:
                kv.held = seconds

    def break_watches(self) -> None:
        """Break the connections over which it learns of changes in etcd."""
        for kv in self.node.world.etcd.kvs:
            if kv.life is self.life:
                self.life.call(kv.break_watches)

    def stop(self) -> None:
        """Shut down cleanly, if possible; kill it while it starts."""
        if not self._started:
            self.node.kill()
        elif not self.stopping:
            self.stopping = True
            self.node.world.note("%s stops", self.node.name)
            self.life.spawn(self._stop(), "stop")

    async def _stop(self) -> None:
        assert self.broker is not None
        await self.broker.stop()
        self.node.world.note("%s has stopped", self.node.name)
        self.node.kill()
