"""All that ``--cluster`` switches on, put together: etcd, the shared store, the registration, the controller."""

import asyncio
import os
import uuid
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from barnabas_broker.cluster.control import Controller
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
from barnabas_broker.cluster.kv import Kv, KvError, KvUnavailable
from barnabas_broker.cluster.membership import Membership, MembershipError
from barnabas_broker.cluster.registration import Registration
from barnabas_broker.cluster.service import Cluster
from barnabas_broker.cluster.shared import SharedStore
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
#: Seconds that a start waits for etcd.
START_SECONDS: Final = 30.0
#: Seconds that a stop takes to hand partitions over.
LEAVE_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.5


class ClusterStore:
    """The cluster's metadata in etcd, before this broker is a member.

    Args:
        kv: etcd.
        prefix: of all keys there, with a slash at both ends.
        where: how errors call that place.
        config: the broker's configuration.
        now: a clock in seconds that only goes forward, also while the machine sleeps.
    """

    def __init__(self, kv: Kv, prefix: str, where: str, config: Config, now: Callable[[], float] = clock) -> None:
        self.where = where
        self.kv = kv
        self.config = config
        self.now = now
        self._prefix = prefix
        self._incarnation = str(uuid.uuid4())
        self.metadata = SharedStore(kv, prefix, self._incarnation, now)

    async def patiently(self, what: str, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Try until etcd answers.

        Raises:
            MembershipError: it did not for too long, or refuses.
        """
        deadline = self.now() + START_SECONDS
        told = False
        while True:
            try:
                return await step()
            except (KvUnavailable, StoreUnavailable) as error:
                if self.now() >= deadline:
                    raise MembershipError(
                        f"cannot {what}: {error}; see that etcd runs and --cluster {self.where} names it"
                    ) from error
                if not told:
                    log.warning("etcd does not answer, trying again", reason=str(error))
                told = True
            except KvError as error:
                raise MembershipError(f"cannot {what}: {error}") from error
            await asyncio.sleep(_RETRY_SECONDS)

    async def cluster_id(self, known: str | None, proposed: str) -> str:
        """Which cluster this is; the first broker of all names it.

        Args:
            known: the cluster that this broker's data belongs to, if it has some.
            proposed: for a new cluster.

        Raises:
            MembershipError: this is not the cluster of this broker's data, or etcd does not answer.
            StoreError: etcd refuses.
        """

        async def ask() -> str | None:
            return await self.metadata.cluster_id(None if known is not None else proposed)

        found = await self.patiently("reach the cluster", ask)
        if found is None:
            raise MembershipError(
                f"the data directory belongs to cluster {known}, but there is no cluster at {self.where}: see that "
                "this is the right prefix, restore etcd from a backup, or give an empty data directory"
            )
        if known not in (None, found):
            raise MembershipError(
                f"the data directory belongs to cluster {known}, but {self.where} is cluster {found}: give another "
                "prefix, or an empty data directory"
            )
        return found

    async def load(self, cluster_id: str, node_id: int, endpoints: Endpoints, directory: str) -> "Member":
        """Read the cluster's metadata. This broker is not a member before :meth:`Member.enter`.

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
        me = Registration(node_id, endpoints, rack, self._incarnation, directory)
        session = self.config[BROKER_SESSION_TIMEOUT_MS] / 1000
        membership = Membership(self.kv, self.metadata, self._prefix, me, session, self.now)
        loaded = await self.patiently("read the metadata", self.metadata.load)
        image = Image(cluster_id).apply_all(loaded.events)
        cluster = Cluster(image, self.metadata, loaded.sequence, membership.may_serve)
        return Member(self, cluster, membership)

    async def close(self) -> None:
        """Close the connection to etcd."""
        await self.metadata.close()


class Member:
    """This broker's part in a cluster of several.

    Args:
        store: the cluster's metadata in etcd.
        cluster: the image and its changes.
        membership: this broker's registration.

    Attributes:
        cluster: the image and its changes.
        membership: this broker's registration.
    """

    def __init__(self, store: ClusterStore, cluster: Cluster, membership: Membership) -> None:
        self.cluster = cluster
        self.membership = membership
        self._store = store
        self._config = store.config
        self._tasks: list[asyncio.Task[None]] = []
        cluster.subscribe(membership.image_changed)
        cluster.subscribe(_tell)
        cluster.subscribe(self._look_at_factor)

    async def enter(self) -> None:
        """Become a member: register, and wait until the controller, which may be this broker, has taken note.

        Raises:
            MembershipError: this node id is in use, or etcd does not answer.
        """
        store, membership, cluster = self._store, self.membership, self.cluster
        await store.patiently("register", membership.register)
        controller = Controller(store.kv, store.metadata, cluster, membership, self.unclean, self._balance_seconds)
        loop = asyncio.get_running_loop()
        for work in (membership.stay, membership.look, controller.work, controller.balance, self._follow):
            self._tasks.append(loop.create_task(_forever(work), name=work.__name__))
        deadline = store.now() + START_SECONDS
        while not membership.may_serve() and store.now() < deadline:
            sequence = cluster.sequence
            try:
                async with asyncio.timeout(_RETRY_SECONDS):
                    await cluster.reached(sequence + 1)
            except TimeoutError:
                pass
        if not membership.may_serve():
            log.warning("no controller has taken note of this broker yet")

    async def _follow(self) -> None:
        try:
            await self.cluster.follow()
        except StoreError as error:
            self.membership.image_changed(Image(""), ())
            log.error("the cluster cannot be followed, so this broker leads nothing", reason=str(error))

    def _look_at_factor(self, image: Image, events: Sequence[Event]) -> None:
        """Tell people when the topics of groups wait for brokers, or did not."""
        wanted = self._config[OFFSETS_TOPIC_REPLICATION_FACTOR]
        for event in events:
            match event:
                case BrokerRegistered() | BrokerFenced() if len(image.brokers) < wanted:
                    asked = OFFSETS_TOPIC_REPLICATION_FACTOR.name in self._config.given
                    if asked and OFFSETS_TOPIC not in image.topics:
                        log.warning(
                            "groups have to wait: start more brokers, or set a lower offsets.topic.replication.factor",
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
        """Whether a topic rather has a leader that lacks records than none."""
        text = topic.configs.get(TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE.name)
        return self._config[UNCLEAN_LEADER_ELECTION_ENABLE] if text is None else text.lower() == "true"

    def _balance_seconds(self) -> float | None:
        if not self._config[AUTO_LEADER_REBALANCE_ENABLE]:
            return None
        return self._config[LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]

    async def leave(self) -> None:
        """Hand partitions over, in bounded time."""
        if self._config[CONTROLLED_SHUTDOWN_ENABLE]:
            await self.membership.leave(self.cluster, self.unclean, LEAVE_SECONDS)

    async def close(self) -> None:
        """Leave the cluster: end the work and the registration."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.membership.end()


def _tell(image: Image, events: Sequence[Event]) -> None:
    """Tell people who came and went."""
    moved = sum(isinstance(event, PartitionChanged) for event in events)
    for event in events:
        match event:
            case BrokerRegistered():
                log.info("broker is there", node_id=event.node_id, epoch=event.epoch, partitions_changed=moved)
            case BrokerFenced():
                log.info("broker is gone", node_id=event.node_id, epoch=event.epoch, partitions_changed=moved)
            case ControllerElected():
                log.info("controller elected", node_id=event.node_id)


async def _forever(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A bug in one turn of a loop must not end it for good."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("begins again after a failure", work=work.__name__)
        await asyncio.sleep(_RETRY_SECONDS)


def open_cluster(config: Config) -> ClusterStore:
    """Make ready to talk to the cluster that the configuration names.

    Raises:
        MembershipError: the configuration cannot be used.
        BrokerError: etcd's client is not installed.
    """
    url = config[CLUSTER_URL]
    # gRPC's own lines on stderr say nothing that is not in ours.
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
        return ClusterStore(etcd.EtcdKv(settings), prefix, url, config)
    except (OSError, UnicodeDecodeError) as error:
        raise MembershipError(f"etcd.*: {error}") from error
