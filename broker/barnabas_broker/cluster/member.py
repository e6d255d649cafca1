"""A broker as a member of a cluster (``--cluster``): wires etcd, the store, the lifecycle and the controller."""

import asyncio
import os
import uuid
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from barnabas_broker.cluster.controller_runner import ControllerRunner
from barnabas_broker.cluster.etcd_store import EtcdStore
from barnabas_broker.cluster.fence import clock
from barnabas_broker.cluster.image import (
    BrokerFenced,
    BrokerRegistered,
    ControllerElected,
    Endpoints,
    Event,
    Image,
    PartitionChanged,
    TopicCreated,
    TopicInfo,
)
from barnabas_broker.cluster.kv import KeyValueStore, KvError, KvUnavailable
from barnabas_broker.cluster.lifecycle import BrokerLifecycle, MembershipError
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.cluster.registration import BrokerRegistration
from barnabas_broker.cluster.store import StoreError, StoreUnavailable
from barnabas_broker.config import Config
from barnabas_broker.config.keys import (
    AUTO_LEADER_REBALANCE_ENABLE,
    BROKER_RACK,
    BROKER_SESSION_TIMEOUT_MS,
    CLUSTER_URL,
    CONTROLLED_SHUTDOWN_ENABLE,
    ETCD_PASSWORD_FILE,
    ETCD_SSL_CAFILE,
    ETCD_SSL_CERTFILE,
    ETCD_SSL_KEYFILE,
    ETCD_USER,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
    UNCLEAN_LEADER_ELECTION_ENABLE,
)
from barnabas_broker.logs import logger
from barnabas_broker.optional import require
from barnabas_protocol.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC

log = logger("cluster")

T = TypeVar("T")
#: Seconds that a start waits for etcd, and for the controller.
START_SECONDS: Final = 30.0
#: Seconds that a controlled shutdown may take.
LEAVE_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.5


class ClusterConnection:
    """The connection to a cluster before this broker is a member: finds its id, and loads its metadata.

    Args:
        kv: etcd.
        prefix: of all keys, with a slash at both ends.
        where: the URL of the cluster, for error texts.
        config: the broker's configuration.
        now: a monotonic clock in seconds, which includes the time that the machine sleeps.
    """

    def __init__(
        self, kv: KeyValueStore, prefix: str, where: str, config: Config, now: Callable[[], float] = clock
    ) -> None:
        self.where = where
        self.kv = kv
        self.config = config
        self.now = now
        self._prefix = prefix
        self._incarnation = str(uuid.uuid4())
        self.metadata = EtcdStore(kv, prefix, self._incarnation, now)

    async def retry(self, what: str, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Repeat a step until etcd answers.

        Raises:
            MembershipError: etcd did not answer for too long, or has rejected a request.
        """
        deadline = self.now() + START_SECONDS
        warned = False
        while True:
            try:
                return await step()
            except (KvUnavailable, StoreUnavailable) as error:
                if self.now() >= deadline:
                    raise MembershipError(
                        f"cannot {what}: {error}; check that etcd runs and that --cluster {self.where} names it"
                    ) from error
                if not warned:
                    log.warning("etcd does not answer, trying again", reason=str(error))
                warned = True
            except KvError as error:
                raise MembershipError(f"cannot {what}: {error}") from error
            await asyncio.sleep(_RETRY_SECONDS)

    async def cluster_id(self, known: str | None, proposed: str) -> str:
        """The id of the cluster; the first broker of a new cluster stores the proposed one.

        Args:
            known: the cluster id in this broker's data directory; None for a new directory.
            proposed: for a new cluster.

        Raises:
            MembershipError: the data directory belongs to another cluster, or etcd does not answer.
            StoreError: etcd rejects the request.
        """

        async def ask() -> str | None:
            return await self.metadata.cluster_id(None if known is not None else proposed)

        found = await self.retry("reach the cluster", ask)
        if found is None:
            raise MembershipError(
                f"the data directory belongs to cluster {known}, but there is no cluster at {self.where}: check "
                "the prefix, restore etcd from a backup, or give an empty data directory"
            )
        if known not in (None, found):
            raise MembershipError(
                f"the data directory belongs to cluster {known}, but {self.where} is cluster {found}: give another "
                "prefix, or an empty data directory"
            )
        return found

    async def load(self, cluster_id: str, node_id: int, endpoints: Endpoints, directory: str) -> "ClusterMember":
        """Read the cluster's metadata. This broker is not a member before :meth:`ClusterMember.enter`.

        Args:
            cluster_id: the result of :meth:`cluster_id`.
            node_id: of this broker.
            endpoints: the addresses where others reach it.
            directory: the identity of the data directory that it has locked.

        Raises:
            MembershipError: etcd does not answer.
            StoreError: the metadata cannot be read.
        """
        rack = self.config[BROKER_RACK] or None
        me = BrokerRegistration(node_id, endpoints, rack, self._incarnation, directory)
        session = self.config[BROKER_SESSION_TIMEOUT_MS] / 1000
        lifecycle = BrokerLifecycle(self.kv, self.metadata, self._prefix, me, session, self.now)
        loaded = await self.retry("read the metadata", self.metadata.load)
        image = Image(cluster_id).apply_all(loaded.events)
        cluster = ClusterMetadata(image, self.metadata, loaded.sequence, lifecycle.may_serve)
        return ClusterMember(self, cluster, lifecycle)

    async def close(self) -> None:
        """Close the connection to etcd."""
        await self.metadata.close()


class ClusterMember:
    """This broker as a member of a cluster.

    Args:
        connection: to the cluster; its owner closes it.
        cluster: the image and its changes.
        lifecycle: this broker's registration.

    Attributes:
        cluster: the image and its changes.
        lifecycle: this broker's registration.
    """

    def __init__(self, connection: ClusterConnection, cluster: ClusterMetadata, lifecycle: BrokerLifecycle) -> None:
        self.cluster = cluster
        self.lifecycle = lifecycle
        self._connection = connection
        self._config = connection.config
        self._tasks: list[asyncio.Task[None]] = []
        cluster.subscribe(lifecycle.image_changed)
        cluster.subscribe(_log_changes)
        cluster.subscribe(self._check_internal_topics)

    async def enter(self) -> None:
        """Become a member: register, and wait until the controller, perhaps this broker, has added it to the image.

        Raises:
            MembershipError: another broker has this node id, or etcd does not answer.
        """
        connection, lifecycle, cluster = self._connection, self.lifecycle, self.cluster
        await connection.retry("register", lifecycle.register)
        controller = ControllerRunner(
            connection.kv, connection.metadata, cluster, lifecycle, self.unclean, self._balance_seconds
        )
        loop = asyncio.get_running_loop()
        for work in (lifecycle.keep_registered, lifecycle.watch, controller.work, controller.balance, self._follow):
            self._tasks.append(loop.create_task(_forever(work), name=work.__name__))
        deadline = connection.now() + START_SECONDS
        while not lifecycle.may_serve() and connection.now() < deadline:
            sequence = cluster.sequence
            try:
                async with asyncio.timeout(_RETRY_SECONDS):
                    await cluster.reached(sequence + 1)
            except TimeoutError:
                pass
        if not lifecycle.may_serve():
            log.warning("no controller has added this broker to the cluster yet")

    async def _follow(self) -> None:
        try:
            await self.cluster.follow()
        except StoreError as error:
            self.lifecycle.image_changed(Image(""), ())
            log.error("cluster metadata cannot be read, so this broker leads no partitions", reason=str(error))

    def _check_internal_topics(self, image: Image, events: Sequence[Event]) -> None:
        """Warn when internal topics wait for more brokers, or were created with fewer replicas than configured."""
        wanted = self._config[OFFSETS_TOPIC_REPLICATION_FACTOR]
        for event in events:
            match event:
                case BrokerRegistered() | BrokerFenced() if len(image.brokers) < wanted:
                    asked = OFFSETS_TOPIC_REPLICATION_FACTOR.name in self._config.given
                    if asked and OFFSETS_TOPIC not in image.topics:
                        log.warning(
                            "groups wait for more brokers: start some, or set a lower offsets.topic.replication.factor",
                            brokers=len(image.brokers),
                            replication_factor=wanted,
                        )
                case TopicCreated() if event.name in INTERNAL_TOPICS and len(event.partitions[0].replicas) < wanted:
                    log.warning(
                        "internal topic has fewer replicas than it should: move it with kafka-reassign-partitions "
                        "when there are more brokers, or set offsets.topic.replication.factor so that groups wait",
                        topic=event.name,
                        replicas=len(event.partitions[0].replicas),
                        replication_factor=wanted,
                    )

    def unclean(self, topic: TopicInfo) -> bool:
        """Whether a topic allows unclean leader election."""
        text = topic.configs.get(TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE.name)
        return self._config[UNCLEAN_LEADER_ELECTION_ENABLE] if text is None else text.lower() == "true"

    def _balance_seconds(self) -> float | None:
        if not self._config[AUTO_LEADER_REBALANCE_ENABLE]:
            return None
        return self._config[LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]

    async def leave(self) -> None:
        """Move leaderships to other brokers (``controlled.shutdown.enable``), in bounded time."""
        if self._config[CONTROLLED_SHUTDOWN_ENABLE]:
            await self.lifecycle.leave(self.cluster, self.unclean, LEAVE_SECONDS)

    async def close(self) -> None:
        """Stop the background work and end the registration."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.lifecycle.end()


def _log_changes(image: Image, events: Sequence[Event]) -> None:
    """Log brokers that register or are fenced, and elected controllers."""
    moved = sum(isinstance(event, PartitionChanged) for event in events)
    for event in events:
        match event:
            case BrokerRegistered():
                log.info("broker registered", node_id=event.node_id, epoch=event.epoch, partitions_changed=moved)
            case BrokerFenced():
                log.info("broker fenced", node_id=event.node_id, epoch=event.epoch, partitions_changed=moved)
            case ControllerElected():
                log.info("controller elected", node_id=event.node_id)


async def _forever(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Repeat a loop after an unexpected error, which must not end it for ever."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("background work failed, starting again", work=work.__name__)
        await asyncio.sleep(_RETRY_SECONDS)


def open_cluster(config: Config) -> ClusterConnection:
    """Connect to the cluster that the configuration names.

    Raises:
        MembershipError: the configuration cannot be used.
        BrokerError: etcd's client is not installed.
    """
    url = config[CLUSTER_URL]
    # gRPC's own lines on stderr repeat what is logged here.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    etcd = require("barnabas_broker.cluster.etcd", wanted_by="--cluster", extra="cluster")
    try:
        endpoints, prefix = etcd.parse_url(url)
    except ValueError as error:
        raise MembershipError(f"--cluster {url}: {error}") from error
    try:
        password = config[ETCD_PASSWORD_FILE] and Path(config[ETCD_PASSWORD_FILE]).read_text("utf-8").strip()
        settings = etcd.EtcdConfig(
            endpoints,
            config[ETCD_SSL_CAFILE],
            config[ETCD_SSL_CERTFILE],
            config[ETCD_SSL_KEYFILE],
            config[ETCD_USER],
            password,
        )
        return ClusterConnection(etcd.EtcdClient(settings), prefix, url, config)
    except (OSError, UnicodeDecodeError) as error:
        raise MembershipError(f"etcd.*: {error}") from error
