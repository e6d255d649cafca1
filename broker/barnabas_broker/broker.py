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
from pathlib import Path
from typing import Final

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
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.offsets_log import OFFSETS_TOPIC, OffsetsTopicLog
from barnabas_broker.replication.sessions import SessionCache
from barnabas_broker.server import Server
from barnabas_broker.storage import LogDirectory, LogDirectoryError

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


class Broker:
    """A single broker in this event loop.

    Args:
        config: its configuration.
        host: the address to listen on.
        port: the port to listen on; 0 picks a free one.
    """

    def __init__(self, config: Config, host: str = "127.0.0.1", port: int = 9092) -> None:
        self.config = config
        self.host = host
        self.port = port
        self.node_id = config[NODE_ID]
        self._directory: LogDirectory | None = None
        self._store: LocalStore | None = None
        self._groups: GroupCoordinator | None = None
        self._server: Server | None = None
        self._maintenance: asyncio.TimerHandle | None = None
        self._loading: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start to serve; `port` is then the port in use.

        Raises:
            BrokerError: one line that says what is in the way.
        """
        listener = self._bind()
        try:
            await self._start(listener)
        except (LogDirectoryError, StoreError, ConfigError) as error:
            listener.close()
            await self.stop()
            raise BrokerError(str(error)) from error

    def _bind(self) -> socket.socket:
        """Take the port before anything else: a busy one is the commonest reason not to start."""
        try:
            family, kind, proto, _, address = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, proto)
        except OSError as error:
            raise BrokerError(f"cannot listen on {self.host}:{self.port}: {error.strerror}") from error
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except (OSError, OverflowError) as error:
            listener.close()
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise BrokerError(f"cannot listen on {self.host}:{self.port}: {reason}") from error
        self.port = listener.getsockname()[1]
        return listener

    async def _start(self, listener: socket.socket) -> None:
        host, port = self._advertised()
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
        replicas = ReplicaManager(self._directory, self.config, self.node_id, wall_ms)
        replicas.start(image)
        groups = self._groups = GroupCoordinator(
            self.config,
            OffsetsTopicLog(replicas, wall_ms),
            now=time.monotonic,
            wall_ms=wall_ms,
            new_id=lambda: str(uuid.uuid4()),
        )
        cluster.subscribe(replicas.image_changed)
        cluster.subscribe(self._tell_groups)
        sessions = SessionCache(self.config[FETCH_SESSION_SLOTS], lambda: random.randrange(1, 2**31))
        services = Services(self.config, self.node_id, cluster, replicas, sessions, groups, wall_ms)
        self._server = Server(self.config, Dispatch(services, handlers()), time.monotonic)
        self._tell_groups(image, image.snapshot())
        await self._server.listen(listener)
        self._maintain()
        log.info("broker started", node_id=self.node_id, cluster_id=image.cluster_id, advertised=f"{host}:{port}")

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
        if self._server is not None:
            await self._server.stop(GRACE_SECONDS)
        for task in list(self._loading):
            task.cancel()
        if self._groups is not None:
            await self._groups.close()
        if self._store is not None:
            self._store.close()
        if self._directory is not None:
            self._directory.close(wall_ms())
        self._server = self._groups = self._store = self._directory = None
