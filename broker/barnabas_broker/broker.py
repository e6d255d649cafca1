"""A broker, put together. This is the only place where its parts are wired.

Start: lock the data directory and recover its logs, read the cluster's metadata, host the partitions, replay
``__consumer_offsets`` while clients are already served, listen. Stop: accept nothing more, answer what was asked,
flush, mark the shutdown as clean.
"""

import asyncio
import os
import random
import socket
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas_broker.cluster import ClusterError
from barnabas_broker.cluster.controller import IsrChange, alter_isr
from barnabas_broker.cluster.image import (
    BrokerConfigured,
    BrokerRegistered,
    Endpoints,
    Event,
    Image,
    TopicDeleted,
)
from barnabas_broker.cluster.local import NAME as METADATA_JOURNAL
from barnabas_broker.cluster.local import LocalStore
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config.config import Config, ConfigError, parse_properties
from barnabas_broker.config.keys import (
    ADVERTISED_LISTENERS,
    CLUSTER_URL,
    FETCH_SESSION_SLOTS,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_SECURITY_PROTOCOL_MAP,
    LISTENERS,
    LOG_DIR,
    NODE_ID,
)
from barnabas_broker.config.listeners import PLAINTEXT, Listener, advertise, check_inter_broker, check_protocols
from barnabas_broker.groups.coordinator.partitions import GroupPartitions
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.handlers.context import Services
from barnabas_broker.handlers.dispatch import Dispatch
from barnabas_broker.handlers.table import Handlers
from barnabas_broker.logs import logger
from barnabas_broker.replication.group_logs import GroupEventsLog, OffsetsTopicLog
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.sessions import FetchSessionCache
from barnabas_broker.server.server import BACKLOG, Server
from barnabas_broker.storage import LogDirectory, LogDirectoryError
from barnabas_broker.storage.checkpoints import new_cluster_id
from barnabas_broker.storage.names import META_PROPERTIES

if TYPE_CHECKING:
    from barnabas_broker.cluster.member import ClusterConnection, ClusterMember
    from barnabas_broker.http.endpoint import Endpoint
    from barnabas_broker.http.view import View
    from barnabas_broker.replication.fetcher import ReplicaFetcherManager
    from barnabas_broker.replication.isr import AlterPartitionManager

log = logger("broker")

#: Seconds between two looks at what storage has to do.
MAINTENANCE_SECONDS: Final = 1.0
#: Seconds that a stop waits for answers that are on their way.
GRACE_SECONDS: Final = 5.0


class BrokerError(Exception):
    """The broker cannot start; the text is one line that says why."""


def wall_ms() -> int:
    """The time of day in ms since 1970."""
    return time.time_ns() // 1_000_000


def product_version() -> str:
    """The version of Barnabas that is installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("barnabas")
    except PackageNotFoundError:
        return "unknown"


class Broker:
    """A broker in this event loop: a single one, or one of a cluster (``cluster.url``).

    Args:
        config: its configuration.
        host: the address to listen on, if the configuration has no ``listeners``.
        port: the port to listen on, likewise; 0 picks a free one.
        http_host: the address that metrics and health are told on.
        http_port: the port for that; 0 picks a free one, None tells nobody.

    Attributes:
        listeners: where it listens, once it does; `host` and `port` are then those of the first.
        failed: set when this broker of a cluster must stop, since it can write no more and others can lead instead.
    """

    def __init__(
        self,
        config: Config,
        host: str = "127.0.0.1",
        port: int = 9092,
        *,
        http_host: str = "127.0.0.1",
        http_port: int | None = None,
    ) -> None:
        # A copy: what is worked out at the start is written into it.
        self.config = Config(config.keys, dict(config.given))
        self.host = host
        self.port = port
        self.listeners: tuple[Listener, ...] = ()
        self.http_host = http_host
        self.http_port = http_port
        self.node_id = config[NODE_ID]
        self.failed = asyncio.Event()
        self._directory: LogDirectory | None = None
        self._store: LocalStore | None = None
        self._connection: ClusterConnection | None = None
        self._member: ClusterMember | None = None
        self._replicas: ReplicaManager | None = None
        self._fetchers: ReplicaFetcherManager | None = None
        self._isr: AlterPartitionManager | None = None
        self._groups: GroupCoordinator | None = None
        self._server: Server | None = None
        self._view: View | None = None
        self._endpoint: Endpoint | None = None
        self._maintenance: asyncio.TimerHandle | None = None
        self._group_partitions: GroupPartitions | None = None

    def traffic(self) -> int:
        """Bytes that have come and gone over all connections."""
        return 0 if self._server is None else self._server.traffic.bytes_in + self._server.traffic.bytes_out

    async def start(self) -> None:
        """Start to serve; `listeners`, `port` and `http_port` then have the ports in use.

        Raises:
            BrokerError: one line that says what is in the way.
        """
        with ExitStack() as opened:
            try:
                # The ports before anything else: a busy one is the commonest reason not to start.
                sockets = self._bind_listeners(opened)
                http_listener = None
                if self.http_port is not None:
                    _require_http()
                    http_listener = opened.enter_context(closing(_bind(self.http_host, self.http_port)))
                    self.http_port = http_listener.getsockname()[1]
                await self._start(sockets, http_listener)
            except (LogDirectoryError, ClusterError, ConfigError) as error:
                await self.stop()
                raise BrokerError(str(error)) from error
            except BrokerError:
                await self.stop()
                raise
            opened.pop_all()

    def _bind_listeners(self, opened: ExitStack) -> list[socket.socket]:
        """A bound socket for each of `listeners`, which are worked out here."""
        listeners = self.config[LISTENERS] or (Listener(PLAINTEXT, self.host, self.port),)
        check_protocols(listeners, self.config[LISTENER_SECURITY_PROTOCOL_MAP])
        check_inter_broker(self.config[INTER_BROKER_LISTENER_NAME], listeners)
        sockets = [opened.enter_context(closing(_bind(each.host, each.port))) for each in listeners]
        self.listeners = tuple(
            Listener(each.name, each.host, bound.getsockname()[1])
            for each, bound in zip(listeners, sockets, strict=True)
        )
        self.host, self.port = self.listeners[0].host, self.listeners[0].port
        return sockets

    async def _start(self, sockets: Sequence[socket.socket], http_listener: socket.socket | None) -> None:
        advertised = advertise(self.listeners, self.config[ADVERTISED_LISTENERS], socket.gethostname())
        endpoints = {each.name: (each.host, each.port) for each in advertised}
        told = ",".join(map(str, advertised))
        # What was worked out counts as said, so that DescribeConfigs tells it.
        self.config.given[LISTENERS.name] = ",".join(map(str, self.listeners))
        self.config.given[ADVERTISED_LISTENERS.name] = told
        self.config.given.setdefault(NODE_ID.name, str(self.node_id))
        path = Path(self.config[LOG_DIR])
        if self.config[CLUSTER_URL]:
            cluster = await self._open_shared(path, endpoints)
        else:
            cluster = await self._open_alone(path, endpoints)
        assert self._directory is not None
        image = cluster.image
        self._configure(image, image.snapshot())
        cluster.subscribe(self._configure)
        replicas = self._replicas = ReplicaManager(
            self._directory,
            self.config,
            self.node_id,
            wall_ms,
            now=time.monotonic,
            may_serve=cluster.may_serve,
        )
        self._replicate(replicas, cluster)
        groups = self._groups = GroupCoordinator(
            self.config,
            OffsetsTopicLog(replicas, wall_ms),
            now=time.monotonic,
            wall_ms=wall_ms,
            new_id=lambda: str(uuid.uuid4()),
            events=GroupEventsLog(replicas, wall_ms),
        )
        partitions = self._group_partitions = GroupPartitions(groups, replicas, cluster.may_serve)
        cluster.subscribe(replicas.image_changed)
        cluster.subscribe(self._tell_groups)
        sessions = FetchSessionCache(self.config[FETCH_SESSION_SLOTS], lambda: random.randrange(1, 2**31))
        services = Services(self.config, self.node_id, cluster, replicas, sessions, groups, partitions, wall_ms)
        dispatch = Dispatch(services, Handlers())
        self._server = Server(self.config, dispatch, time.monotonic)
        self._tell_groups(image, image.snapshot())
        if http_listener is not None:
            await self._tell_http(http_listener, services, self._directory, self._server, dispatch)
        self._maintain()
        if self._member is not None:
            # Who comes meanwhile waits: before it is a member, all that this broker could say is that there is none.
            for bound in sockets:
                bound.listen(BACKLOG)
            await self._member.enter()
            partitions.start()
        for listener, bound in zip(self.listeners, sockets, strict=True):
            await self._server.listen(bound, listener.name)
        log.info("broker started", node_id=self.node_id, cluster_id=image.cluster_id, advertised=told)

    async def _open_alone(self, path: Path, endpoints: Endpoints) -> ClusterMetadata:
        """Open the data directory as a single broker, which keeps the metadata in it."""
        directory = self._directory = LogDirectory.open(path, self.config, node_id=self.node_id, now_ms=wall_ms())
        self._store = LocalStore(path)
        if directory.logs and not self._store.path.exists():
            raise BrokerError(f"{path} belongs to a broker of cluster {directory.cluster_id}: start it with --cluster")
        loaded = await self._store.load()
        image = Image(cluster_id=directory.cluster_id, controller_id=self.node_id).apply_all(loaded.events)
        return ClusterMetadata(image.apply(BrokerRegistered(self.node_id, endpoints)), self._store, loaded.sequence)

    async def _open_shared(self, path: Path, endpoints: Endpoints) -> ClusterMetadata:
        """Open the data directory as a broker of a cluster, whose metadata is in etcd. Nobody else needs its parts."""
        from barnabas_broker.cluster.member import open_cluster

        if (path / METADATA_JOURNAL).exists():
            raise BrokerError(
                f"{path} belongs to a single broker: start it without --cluster, or give another --data-dir"
            )
        connection = self._connection = open_cluster(self.config)
        known = _cluster_of(path)
        cluster_id = await connection.cluster_id(known, new_cluster_id(os.urandom(16)))
        self._directory = LogDirectory.open(
            path, self.config, node_id=self.node_id, now_ms=wall_ms(), cluster_id=cluster_id
        )
        meta = (path / META_PROPERTIES).stat()
        directory = f"{meta.st_ino}:{meta.st_mtime_ns}"
        member = self._member = await connection.load(cluster_id, self.node_id, endpoints, directory)
        return member.cluster

    def _replicate(self, replicas: ReplicaManager, cluster: ClusterMetadata) -> None:
        """Host partitions; among several brokers follow their leaders, and keep the ISR of those led here."""
        if self._member is None:
            replicas.start(cluster.image)
            return
        from barnabas_broker.replication.fetcher import ReplicaFetcherManager
        from barnabas_broker.replication.isr import AlterPartitionManager

        lifecycle = self._member.lifecycle
        node_id = self.node_id
        between = self.config[INTER_BROKER_LISTENER_NAME]

        def address(leader: int) -> tuple[str, int] | None:
            broker = cluster.image.brokers.get(leader)
            return None if broker is None else broker.endpoints.get(between)

        def look_for_listener(image: Image, events: Sequence[Event]) -> None:
            for event in events:
                if isinstance(event, BrokerRegistered) and between not in event.endpoints:
                    log.error(
                        "broker cannot be followed: it has no such listener, see inter.broker.listener.name",
                        leader=event.node_id,
                        listener=between,
                        listeners=",".join(event.endpoints),
                    )

        async def propose(changes: Sequence[IsrChange]) -> None:
            await cluster.change(lambda image: alter_isr(image, node_id, lifecycle.epoch, changes))

        look_for_listener(cluster.image, cluster.image.snapshot())
        cluster.subscribe(look_for_listener)
        self._fetchers = ReplicaFetcherManager(self.config, node_id, address, lambda: lifecycle.epoch, wall_ms)
        self._isr = AlterPartitionManager(
            replicas, self.config, lambda: cluster.image.brokers.keys(), propose, time.monotonic
        )
        replicas.start(cluster.image, self._fetchers.follow, self._isr.caught_up)

    async def _tell_http(
        self,
        listener: socket.socket,
        services: Services,
        directory: LogDirectory,
        server: Server,
        dispatch: Dispatch,
    ) -> None:
        """Tell metrics, groups and health over HTTP; only then is there a need for aiohttp."""
        from barnabas_broker.http.endpoint import Endpoint
        from barnabas_broker.http.view import View

        groups = services.groups
        self._view = View(
            node_id=self.node_id,
            version=product_version(),
            cluster=services.cluster,
            replicas=services.replicas,
            groups=groups,
            directory=directory,
            server=server,
            requests=dispatch.metrics,
            history=groups.journal,
            now=time.monotonic,
            lifecycle=None if self._member is None else self._member.lifecycle,
        )
        self._endpoint = Endpoint(self._view)
        await self._endpoint.start(listener)

    def _configure(self, image: Image, events: Sequence[Event]) -> None:
        """Take up what was set while brokers run: for all brokers (""), then for this one."""
        if any(isinstance(event, BrokerConfigured) for event in events):
            configs = image.broker_configs
            self.config.set_dynamic(configs.get(str(self.node_id), {}), configs.get("", {}))

    def _tell_groups(self, image: Image, events: Sequence[Event]) -> None:
        """Let the coordinator know which topics there are, and take up its partitions when they appear."""
        assert self._groups is not None and self._group_partitions is not None
        deleted = [event.name for event in events if isinstance(event, TopicDeleted)]
        if deleted:
            self._groups.topics_deleted(deleted)
        self._groups.topics_changed({name: len(topic.partitions) for name, topic in image.topics.items()})
        self._group_partitions.reconcile()

    def _maintain(self) -> None:
        assert self._directory is not None
        self._directory.maintain(wall_ms())
        if self._member is not None and self._directory.failure is not None and not self.failed.is_set():
            log.error("broker stops, so that others lead its partitions", reason=self._directory.failure)
            self.failed.set()
        self._maintenance = asyncio.get_running_loop().call_later(MAINTENANCE_SECONDS, self._maintain)

    async def stop(self) -> None:
        """Answer what was asked, flush, and let go of the data directory. May be called at any time, also twice."""
        if self._maintenance is not None:
            self._maintenance.cancel()
        if self._view is not None:
            self._view.stopping = True
        if self._member is not None:
            await self._member.leave()
        if self._group_partitions is not None:
            self._group_partitions.close()
        if self._isr is not None:
            await self._isr.close()
        if self._fetchers is not None:
            await self._fetchers.close()
        if self._replicas is not None:
            self._replicas.wake_fetches()
        # Together: no further request is started, and members that are parked are answered, not waited for.
        ends = [] if self._server is None else [self._server.stop(GRACE_SECONDS)]
        if self._groups is not None:
            ends.append(self._groups.close())
        await asyncio.gather(*ends)
        if self._endpoint is not None:
            await self._endpoint.stop()
        if self._member is not None:
            await self._member.close()
        if self._connection is not None:
            await self._connection.close()
        if self._store is not None:
            await self._store.close()
        if self._directory is not None:
            self._directory.close(wall_ms())
        self._server = self._endpoint = self._view = self._groups = self._replicas = None
        self._fetchers = self._isr = self._group_partitions = None
        self._store = self._connection = self._member = self._directory = None


def _cluster_of(path: Path) -> str | None:
    """The cluster that a data directory belongs to, None for a new one."""
    try:
        properties = parse_properties((path / META_PROPERTIES).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BrokerError(f"{path / META_PROPERTIES} cannot be read: {error}") from error
    return properties.get("cluster.id")


def _bind(host: str, port: int) -> socket.socket:
    """A socket that is bound.

    Raises:
        BrokerError: there is no such address, or it is taken.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise BrokerError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BrokerError(f"cannot listen on {host}:{port}: {reason}") from error
    return listener


def _require_http() -> None:
    """See that HTTP can be spoken, before anything is opened.

    Raises:
        BrokerError: what it needs is not installed.
    """
    try:
        import_module("barnabas_broker.http.endpoint")
    except ImportError as error:
        raise BrokerError(f"--http-port needs {error.name}: pip install 'barnabas[http]'") from error
