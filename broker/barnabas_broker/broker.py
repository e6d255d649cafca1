"""A broker, put together. This is the only place where its parts are wired.

Start: lock the data directory and recover its logs, read the cluster's metadata, host the partitions, replay
``__consumer_offsets`` while clients are already served, listen. Stop: accept nothing more, answer what was asked,
flush, mark the shutdown as clean.
"""

import asyncio
import random
import socket
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, closing
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from barnabas_broker.cluster.image import (
    BrokerConfigured,
    BrokerRegistered,
    Event,
    Image,
    TopicCreated,
    TopicDeleted,
)
from barnabas_broker.cluster.local import LocalStore
from barnabas_broker.cluster.service import Cluster
from barnabas_broker.cluster.store import StoreError
from barnabas_broker.config import Config, ConfigError
from barnabas_broker.config_keys import ADVERTISED_LISTENERS, FETCH_SESSION_SLOTS, LOG_DIR, NODE_ID
from barnabas_broker.context import Services
from barnabas_broker.coordinator.service import GroupCoordinator
from barnabas_broker.dispatch import Dispatch
from barnabas_broker.handlers.table import handlers
from barnabas_broker.replication.group_logs import OFFSETS_TOPIC, GroupEventsLog, OffsetsTopicLog
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.sessions import SessionCache
from barnabas_broker.server import Server
from barnabas_broker.storage import LogDirectory, LogDirectoryError

if TYPE_CHECKING:
    from barnabas_broker.http.endpoint import Endpoint
    from barnabas_broker.http.view import View

log = structlog.get_logger("broker")

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
    try:
        return version("barnabas")
    except PackageNotFoundError:
        return "unknown"


class Broker:
    """A single broker in this event loop.

    Args:
        config: its configuration.
        host: the address to listen on.
        port: the port to listen on; 0 picks a free one.
        http_host: the address that metrics and health are told on.
        http_port: the port for that; 0 picks a free one, None tells nobody.
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
        self.config = config
        self.host = host
        self.port = port
        self.http_host = http_host
        self.http_port = http_port
        self.node_id = config[NODE_ID]
        self._directory: LogDirectory | None = None
        self._store: LocalStore | None = None
        self._replicas: ReplicaManager | None = None
        self._groups: GroupCoordinator | None = None
        self._server: Server | None = None
        self._view: View | None = None
        self._endpoint: Endpoint | None = None
        self._maintenance: asyncio.TimerHandle | None = None
        self._loading: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start to serve; `port` and `http_port` are then the ports in use.

        Raises:
            BrokerError: one line that says what is in the way.
        """
        with ExitStack() as opened:
            # The ports before anything else: a busy one is the commonest reason not to start.
            listener = opened.enter_context(closing(_bind(self.host, self.port)))
            self.port = listener.getsockname()[1]
            http_listener = None
            if self.http_port is not None:
                _require_http()
                http_listener = opened.enter_context(closing(_bind(self.http_host, self.http_port)))
                self.http_port = http_listener.getsockname()[1]
            try:
                await self._start(listener, http_listener)
            except (LogDirectoryError, StoreError, ConfigError) as error:
                await self.stop()
                raise BrokerError(str(error)) from error
            opened.pop_all()

    async def _start(self, listener: socket.socket, http_listener: socket.socket | None) -> None:
        host, port = self._advertised()
        # What was worked out counts as said, so that DescribeConfigs tells it.
        self.config.given[ADVERTISED_LISTENERS.name] = f"PLAINTEXT://{host}:{port}"
        self.config.given.setdefault(NODE_ID.name, str(self.node_id))
        path = Path(self.config[LOG_DIR])
        self._directory = LogDirectory.open(path, self.config, node_id=self.node_id, now_ms=wall_ms())
        self._store = LocalStore(path)
        image = Image(cluster_id=self._directory.cluster_id, controller_id=self.node_id)
        for event in self._store.load():
            image = image.apply(event)
        image = image.apply(BrokerRegistered(self.node_id, host, port))
        self._configure(image, image.snapshot())
        cluster = Cluster(image, self._store)
        cluster.subscribe(self._configure)
        replicas = self._replicas = ReplicaManager(self._directory, self.config, self.node_id, wall_ms)
        replicas.start(image)
        groups = self._groups = GroupCoordinator(
            self.config,
            OffsetsTopicLog(replicas, wall_ms),
            now=time.monotonic,
            wall_ms=wall_ms,
            new_id=lambda: str(uuid.uuid4()),
            events=GroupEventsLog(replicas, wall_ms),
        )
        cluster.subscribe(replicas.image_changed)
        cluster.subscribe(self._tell_groups)
        sessions = SessionCache(self.config[FETCH_SESSION_SLOTS], lambda: random.randrange(1, 2**31))
        services = Services(self.config, self.node_id, cluster, replicas, sessions, groups, wall_ms)
        dispatch = Dispatch(services, handlers())
        self._server = Server(self.config, dispatch, time.monotonic)
        self._tell_groups(image, image.snapshot())
        await self._server.listen(listener)
        if http_listener is not None:
            await self._tell_http(http_listener, services, self._directory, self._server, dispatch)
        self._maintain()
        log.info("broker started", node_id=self.node_id, cluster_id=image.cluster_id, advertised=f"{host}:{port}")

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

        self._view = View(
            node_id=self.node_id,
            version=product_version(),
            cluster=services.cluster,
            replicas=services.replicas,
            groups=services.groups,
            directory=directory,
            server=server,
            requests=dispatch.metrics,
            history=services.groups.journal,
            now=time.monotonic,
        )
        self._endpoint = Endpoint(self._view)
        await self._endpoint.start(listener)

    def _advertised(self) -> tuple[str, int]:
        """Where clients are told to connect."""
        text = self.config[ADVERTISED_LISTENERS].rpartition("://")[2]
        if text:
            host, colon, port = text.rpartition(":")
            if not colon or not host or not port.isdigit() or not 0 <= int(port) < 65536:
                raise ConfigError(f"advertised.listeners={text!r}: must be HOST:PORT")
            return host.strip("[]"), int(port) or self.port
        if self.host in ("0.0.0.0", "::", ""):
            return socket.gethostname(), self.port
        return self.host, self.port

    def _configure(self, image: Image, events: Sequence[Event]) -> None:
        """Take up what was set while brokers run: for all brokers (""), then for this one."""
        if any(isinstance(event, BrokerConfigured) for event in events):
            configs = image.broker_configs
            self.config.set_dynamic({**configs.get("", {}), **configs.get(str(self.node_id), {})})

    def _tell_groups(self, image: Image, events: Sequence[Event]) -> None:
        """Let the coordinator know which topics there are, and take up its partitions when they appear."""
        assert self._groups is not None
        deleted = [event.name for event in events if isinstance(event, TopicDeleted)]
        if deleted:
            self._groups.topics_deleted(deleted)
        self._groups.topics_changed({name: len(topic.partitions) for name, topic in image.topics.items()})
        if any(isinstance(event, TopicCreated) and event.name == OFFSETS_TOPIC for event in events):
            for index, partition in enumerate(image.topics[OFFSETS_TOPIC].partitions):
                if partition.leader == self.node_id:
                    task = asyncio.get_running_loop().create_task(self._groups.load(index, partition.leader_epoch))
                    self._loading.add(task)
                    task.add_done_callback(self._loading.discard)

    def _maintain(self) -> None:
        assert self._directory is not None
        self._directory.maintain(wall_ms())
        self._maintenance = asyncio.get_running_loop().call_later(MAINTENANCE_SECONDS, self._maintain)

    async def stop(self) -> None:
        """Answer what was asked, flush, and let go of the data directory. May be called at any time, also twice."""
        if self._maintenance is not None:
            self._maintenance.cancel()
        if self._view is not None:
            self._view.stopping = True
        for task in list(self._loading):
            task.cancel()
        if self._replicas is not None:
            self._replicas.wake_fetches()
        if self._server is not None and self._groups is not None:
            # Together: no further request is started, and members that are parked are answered, not waited for.
            await asyncio.gather(self._server.stop(GRACE_SECONDS), self._groups.close())
        elif self._groups is not None:
            await self._groups.close()
        if self._endpoint is not None:
            await self._endpoint.stop()
        if self._store is not None:
            self._store.close()
        if self._directory is not None:
            self._directory.close(wall_ms())
        self._server = self._endpoint = self._view = self._groups = self._replicas = None
        self._store = self._directory = None


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
