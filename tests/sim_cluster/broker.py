"""A broker of the simulation: the real one's parts, wired as :class:`barnabas_broker.broker.Broker` wires them, on
files in memory, a drifting clock and the simulated network."""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from barnabas_broker.cluster.controller import IsrChange, LogEnd, Withdrawal, alter_isr, report_log_ends, withdraw
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.lifecycle import MembershipError
from barnabas_broker.cluster.member import ClusterConnection, ClusterMember
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.cluster.store import StoreError
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.groups.sightings import ClientAddress
from barnabas_broker.handlers.context import Services
from barnabas_broker.handlers.dispatch import Dispatch, Route
from barnabas_broker.handlers.table import join
from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.periodic import PeriodicTimer
from barnabas_broker.quotas.clients import ClientQuotas
from barnabas_broker.quotas.rates import Window
from barnabas_broker.replication.alter_partition import AlterPartitionManager
from barnabas_broker.replication.fetch_sessions import FetchSessionCache
from barnabas_broker.replication.fetcher import Registered, ReplicaFetcherManager
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.retreat import Retreat
from barnabas_broker.server.connection import CloseConnection, DeferredResponse, Peer
from barnabas_broker.server.memory_pool import Budget
from barnabas_broker.slicer import Slicer
from barnabas_broker.storage import LogDirectory, LogDirectoryError, TopicPartition
from barnabas_protocol.framing import Framer
from barnabas_protocol.registry import ApiKey
from tests.sim_cluster.etcd import Etcd, SimKv
from tests.world.disk import Background
from tests.world.loop import Life
from tests.world.network import Network
from tests.world.world import World

PREFIX: Final = "/sim/"
CLUSTER_ID: Final = "simulation-of-brokers"
#: The name of the only listener.
LISTENER: Final = "PLAINTEXT"
#: The name of the only topic.
TOPIC: Final = "t"
#: The data directory of each broker.
ROOT: Final = Path("/data")
_MAINTENANCE: Final = 1.0
#: Seconds between two looks at the lease.
_LEASE_CHECK: Final = 0.5
_HANDLERS: Final[dict[ApiKey, Route]] = {
    key: route for key, route in join().items() if key in (ApiKey.PRODUCE, ApiKey.FETCH)
}
_CONFIG: Final = {
    "log.cleaner.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "2000",
    "fetch.max.bytes": "65536",
}
#: Called with a broker, the sequence number and its new image.
ImageChanged = Callable[["Running", int, Image], None]


class _NoGroups:
    """The group coordinator of a broker without groups: it does not keep which clients are connected, and fetch."""

    @property
    def fetches(self) -> "_NoGroups":
        return self

    def opened(self, client: ClientAddress) -> Callable[[], None]:
        return lambda: None

    def fetched(self, client: ClientAddress, *, is_committed: bool, connection: int) -> None: ...

    def from_start(self, client: ClientAddress, place: tuple[str, int], offset: int) -> None: ...


class _Connection(asyncio.BufferedProtocol):
    """A connection to a broker."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._framer = Framer(1 << 24)
        self._transport: Any = None
        self._waiting: deque[Any] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framer.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._framer.received(nbytes):
            answer = self._dispatch(Peer("client", 1), frame)
            self._waiting.append(answer)
            if isinstance(answer, DeferredResponse):
                answer.settled = lambda _: self._flush()
        self._flush()

    def _flush(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, DeferredResponse):
                if first.reason:
                    raise CloseConnection(first.reason)
                if first.answer is None:
                    return
                first = first.answer
            self._waiting.popleft()
            self._transport.writelines(first)


class Node:
    """A machine with the disk of a broker.

    Args:
        world: time and random choices.
        network: connects it.
        etcd: coordinates it.
        node_id: of its broker.
        configs: of its broker.
        image_changed: called with new images.
        replaced: the machine that this one replaces, with the same node id and an empty disk.

    Attributes:
        rate: the speed of its clock.
        running: the present or last run of the broker.
        ends: the log end offsets at the end of the last run.
        lost_epoch: the broker epoch in which the machine last lost power, and perhaps data.
        directory: the id of its data directory, once it has one.
        damaged: whether files of it were damaged, and it may not be whole again.
        retired: whether another machine has replaced this one, so that it is not started again.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        etcd: Etcd,
        node_id: int,
        configs: dict[str, str],
        image_changed: ImageChanged,
        replaced: "Node | None" = None,
    ) -> None:
        self.world = world
        self.network = network
        self.etcd = etcd
        self.node_id = node_id
        self.lives: int = 0 if replaced is None else replaced.lives
        self.name = f"broker-{node_id}" if replaced is None else f"broker-{node_id}-{self.lives}"
        self.config = Config(BROKER_KEYS, {**_CONFIG, **configs, "node.id": str(node_id)})
        self.rate = 1.0
        self.files = MemoryFiles()
        self.running: Running | None = None
        self.ends: dict[TopicPartition, int] = {}
        self.lost_epoch = -2
        self.directory = ""
        self.damaged = False
        self.retired = False
        self.image_changed = image_changed

    @property
    def up(self) -> "Running | None":
        """The broker, if it runs."""
        running = self.running
        return running if running is not None and running.life.alive else None

    def now(self) -> float:
        """Its clock, in seconds."""
        return 1000.0 * self.node_id + self.world.now * self.rate

    def wall_ms(self) -> int:
        """Its time of day, in ms."""
        return 1_700_000_000_000 + int(self.now() * 1000)

    def start(self) -> None:
        """Start the broker, unless it runs."""
        if self.up is None and not self.retired:
            self.lives += 1
            self.world.note("broker %d starts", self.node_id)
            running = self.running = Running(self)
            running.life.spawn(running.start(), "start")

    def replace(self) -> "Node":
        """Another machine with this node id and an empty disk. This one goes on as it is, but is not started again."""
        configs = {name: value for name, value in self.config.given.items() if name not in ("node.id", *_CONFIG)}
        new = Node(self.world, self.network, self.etcd, self.node_id, configs, self.image_changed, self)
        new.rate = self.rate
        new.lost_epoch = -2 if self.up is None else self.up.epoch
        self.retired = True
        self.world.note("broker %d: %s replaces %s", self.node_id, new.name, self.name)
        return new

    def kill(self, *, power: bool = False) -> None:
        """Kill the broker; with `power` its machine, which loses a part of what was not synced."""
        running = self.up
        if running is None:
            return
        self.world.note("broker %d %s", self.node_id, "loses power" if power else "is killed")
        if running.directory is not None:
            self.ends = {where: log.log_end_offset for where, log in running.directory.logs.items()}
        if power and running.member is not None:
            self.lost_epoch = running.member.lifecycle.epoch
        running.life.kill()
        self.network.died(running.life, silent=power)
        running.kv.died()
        self.files = self.files.crash(self.world.chance) if power else self.files.kill()

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
        self.world.note("broker %d gets an empty disk", self.node_id)
        self.files = MemoryFiles()
        self.ends = {}

    def log_end(self, where: TopicPartition) -> int:
        """The log end offset, also while the broker is down."""
        running = self.up
        if running is not None and running.directory is not None:
            log = running.directory.logs.get(where)
            return 0 if log is None else log.log_end_offset
        return self.ends.get(where, 0)


class Running:
    """One run of a broker.

    Attributes:
        number: counts the runs of this broker.
        cluster: the metadata, once it is loaded.
        directory: the log directory, once it is open.
        replicas: once there are replicas.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.number = node.lives
        self.life = Life(node.world.loop, node.name)
        self.kv = SimKv(node.etcd, self.life)
        self.member: ClusterMember | None = None
        self.connection: ClusterConnection | None = None
        self.cluster: ClusterMetadata | None = None
        self.directory: LogDirectory | None = None
        self.replicas: ReplicaManager | None = None
        self.stopping = False
        self._fetchers: ReplicaFetcherManager | None = None
        self._isr: AlterPartitionManager | None = None
        self._retreat: Retreat | None = None
        self._background = Background(node.world)

    async def start(self) -> None:
        """What ``Broker.start`` does."""
        try:
            await self._start()
        except (MembershipError, StoreError, LogDirectoryError) as error:
            self.node.world.note("broker %d gives up: %s", self.node.node_id, error)
            self.node.kill()
            self.node.world.after(1.0, self.node.start)

    async def _start(self) -> None:
        node = self.node
        config, node_id, now = node.config, node.node_id, node.now
        connection = self.connection = ClusterConnection(self.kv, PREFIX, "the simulation", config, now, node.wall_ms)
        known = CLUSTER_ID if node.lives > 1 and node.files.exists(ROOT / "meta.properties") else None
        cluster_id = await connection.cluster_id(known, CLUSTER_ID)
        directory = self.directory = LogDirectory.open(
            ROOT,
            config,
            node_id=node_id,
            now_ms=node.wall_ms(),
            files=node.files,
            background=self._background,
            random_bytes=node.world.chance.randbytes,
            cluster_id=cluster_id,
            now=now,
        )
        node.directory = directory.directory_id
        member = self.member = await connection.load(
            cluster_id, node_id, {LISTENER: (node.name, 9092)}, directory.directory_id, intact=directory.intact
        )
        cluster, lifecycle = member.cluster, member.lifecycle
        self.cluster = cluster
        cluster.subscribe(self._image_changed)
        replicas = self.replicas = ReplicaManager(
            directory, config, node_id, node.wall_ms, now=now, may_serve=cluster.may_serve
        )

        def registered(leader: int) -> Registered | None:
            broker = cluster.image.brokers.get(leader)
            return None if broker is None else Registered(*broker.endpoints[LISTENER], broker.epoch)

        async def propose(changes: Sequence[IsrChange]) -> None:
            await cluster.change(lambda image: alter_isr(image, node_id, lifecycle.epoch, changes))

        async def report(ends: Sequence[LogEnd]) -> None:
            await cluster.change(lambda image: (report_log_ends(image, node_id, lifecycle.epoch, ends), None))

        async def leave(withdrawals: Sequence[Withdrawal]) -> None:
            def decide(image: Image) -> tuple[Sequence[Event], bool]:
                events = withdraw(image, node_id, lifecycle.epoch, withdrawals)
                return events, bool(events)

            while await cluster.change(decide):
                pass

        fetchers = self._fetchers = ReplicaFetcherManager(
            config,
            node_id,
            registered,
            lifecycle.process_ended,
            lambda: lifecycle.epoch,
            directory.directory_id,
            node.wall_ms,
            may_fetch=lambda: not retreat.active,
        )
        retreat = self._retreat = Retreat(
            directory, node_id, lambda: cluster.image, member.min_isr, leave, fetchers.resume, now
        )
        isr = self._isr = AlterPartitionManager(
            replicas, config, lambda: cluster.image.brokers, propose, report, leave, now
        )
        replicas.start(cluster.image, fetchers.follow, isr.caught_up)
        lifecycle.lost = replicas.lost
        fetchers.image_changed(cluster.image, cluster.image.snapshot())
        cluster.subscribe(fetchers.image_changed)
        cluster.subscribe(retreat.image_changed)
        cluster.subscribe(replicas.image_changed)
        sessions = FetchSessionCache(100, 10_000, lambda: node.world.chance.randrange(1, 2**31))
        nothing = cast(Any, None)
        slicer = Slicer(now)
        services = Services(
            config,
            node_id,
            cluster,
            replicas,
            sessions,
            groups=cast(Any, _NoGroups()),
            group_partitions=nothing,
            transactions=nothing,
            transaction_partitions=nothing,
            shares=nothing,
            share_partitions=nothing,
            persister=nothing,
            queues=nothing,
            quotas=ClientQuotas(Window(), Window()),
            telemetry=nothing,
            now=now,
            wall_ms=node.wall_ms,
            regexes=nothing,
            slicer=slicer,
            responses=Budget(-1),
            api_versions=[],
            refusals=nothing,
            audit=nothing,
        )
        dispatch = Dispatch(services, _HANDLERS)
        node.network.listening[node.name] = self.life, lambda end: end.connected(_Connection(dispatch))
        self._maintain()

        def check_lease() -> None:
            if lifecycle.lease_has_ended:
                replicas.lease_has_ended()

        PeriodicTimer(_LEASE_CHECK, check_lease)
        await member.enter(directory.producer_ids)

    def _image_changed(self, image: Image, events: Sequence[Event]) -> None:
        assert self.cluster is not None
        self.node.image_changed(self, self.cluster.sequence, image)

    def _maintain(self) -> None:
        assert self.directory is not None
        if self.directory.failure is not None:  # as a broker of a cluster, it stops, and is started again
            self.node.world.note("broker %d stops: %s", self.node.node_id, self.directory.failure)
            self.node.kill()
            self.node.world.after(1.0, self.node.start)
            return
        self.directory.maintain(self.node.wall_ms())
        self.node.world.loop.call_later(_MAINTENANCE, self._maintain)

    @property
    def epoch(self) -> int:
        """The broker epoch, -1 for none."""
        return -1 if self.member is None else self.member.lifecycle.epoch

    def stop(self) -> None:
        """Shut down cleanly, if possible."""
        if self.cluster is not None and not self.stopping:
            self.stopping = True
            self.node.world.note("broker %d stops", self.node.node_id)
            self.life.spawn(self._stop(), "stop")

    async def _stop(self) -> None:
        """What ``Broker.stop`` does."""
        node = self.node
        assert self.member is not None
        assert self.directory is not None
        await self.member.leave()
        if self._isr is not None:
            await self._isr.close()
        if self._retreat is not None:
            await self._retreat.close()
        if self._fetchers is not None:
            await self._fetchers.close()
        if self.replicas is not None:
            self.replicas.wake_fetches()
        node.network.listening.pop(node.name, None)
        node.network.died(self.life, silent=False)
        await self.member.close()
        if self.connection is not None:
            await self.connection.close()
        self.directory.intact = self.member.lifecycle.me.intact
        self.directory.close(node.wall_ms())
        node.world.note("broker %d has stopped", node.node_id)
        node.kill()
