"""A broker as a member of a cluster (``--cluster``): wires etcd, the store, the lifecycle and the controller."""

import asyncio
import os
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from barnabas_broker.backoff import jittered
from barnabas_broker.clock import wall_ms
from barnabas_broker.cluster.controller.leaders import STEP
from barnabas_broker.cluster.controller_runner import ControllerRunner
from barnabas_broker.cluster.etcd_restore import EPOCH_STEP
from barnabas_broker.cluster.etcd_store import EtcdStore
from barnabas_broker.cluster.image import (
    NOT_INTACT,
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
from barnabas_broker.cluster.image_file import NAME as IMAGE_FILE
from barnabas_broker.cluster.image_file import ImageFileError, ImageKeeper, SavedImage, read_image
from barnabas_broker.cluster.kv import KeyValueStore, KvError, KvUnavailable
from barnabas_broker.cluster.kv_health import WatchedKv
from barnabas_broker.cluster.lease_fence import clock
from barnabas_broker.cluster.lifecycle import BrokerLifecycle, MembershipError
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.cluster.owner_file import take_over
from barnabas_broker.cluster.registration import BrokerRegistration
from barnabas_broker.cluster.store import Restored, StoreError, StoreLost, StoreUnavailable
from barnabas_broker.conditions import Condition, ConditionName
from barnabas_broker.config import Config, ConfigError
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
    MIN_INSYNC_REPLICAS,
    NODE_ID,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    UNCLEAN_RECOVERY_TIMEOUT_MS,
)
from barnabas_broker.files import REAL_FILES, Files
from barnabas_broker.logs import logger
from barnabas_broker.optional import require
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC

log = logger("cluster")

T = TypeVar("T")
#: Seconds that a start waits for etcd, and for the controller.
START_SECONDS: Final = 30.0
#: Seconds that a controlled shutdown may take.
LEAVE_SECONDS: Final = 5.0
#: Seconds between attempts while etcd does not answer: the first pause, and the longest.
_RETRY_SECONDS: Final = (0.2, 2.0)
#: Seconds between attempts of background work that fails unexpectedly: the first pause, and the longest; and seconds of
#: work after which the pauses begin anew.
_FAILED_SECONDS: Final = (0.5, 30.0)
_STEADY_SECONDS: Final = 60.0
#: Seconds between looks whether the controller has added this broker.
_LOOK_SECONDS: Final = 0.5
_NONE: Final[Mapping[tuple[bytes, int], int]] = MappingProxyType({})
#: Leader epochs from here on were not reached by elections: half of those there are.
_LARGEST_BELIEVED_EPOCH: Final = 1 << 30


class ClusterConnection:
    """The connection to a cluster before this broker is a member: finds its id, and loads its metadata.

    Args:
        kv: etcd.
        prefix: of all keys, with a slash at both ends.
        where: the URL of the cluster, for error texts.
        config: the broker's configuration.
        now: a monotonic clock in seconds, which includes the time that the machine sleeps.
        wall_ms: the time of day, in ms.

    Attributes:
        prefix: of all keys.
        kv: etcd.
        metadata: the metadata store.
    """

    def __init__(
        self,
        kv: KeyValueStore,
        prefix: str,
        where: str,
        config: Config,
        now: Callable[[], float] = clock,
        wall_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.where = where
        self.kv = WatchedKv(kv, now)
        self.config = config
        self.now = now
        self._wall_ms = wall_ms
        self.prefix = prefix
        self._incarnation = str(uuid.uuid4())
        #: Of the jitter of pauses. The incarnation would do, but simulations could not be repeated with it.
        self._seed = str(config[NODE_ID])
        self.metadata = EtcdStore(self.kv, prefix, self._incarnation, now, seed=self._seed)

    async def retry(self, what: str, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Repeat a step until etcd answers.

        Raises:
            MembershipError: etcd did not answer for too long, or has rejected a request.
        """
        deadline = self.now() + START_SECONDS
        backoff = jittered(*_RETRY_SECONDS, seed=f"start {self._seed}")
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
            await asyncio.sleep(backoff.failed())

    async def cluster_id(self, known: str | None, proposed: str) -> str:
        """The id of the cluster; the first broker of a new cluster stores the proposed one.

        Args:
            known: the cluster id in this broker's data directory; None for a new directory.
            proposed: for a new cluster.

        Raises:
            ConfigError: the data directory belongs to another cluster.
            MembershipError: there is no cluster any more, or etcd does not answer.
            StoreError: etcd rejects the request.
        """

        async def ask() -> str | None:
            return await self.metadata.cluster_id(None if known is not None else proposed)

        found = await self.retry("reach the cluster", ask)
        if found is None:
            raise MembershipError(
                f"the data directory belongs to cluster {known}, but there is no cluster at {self.where}. To do: check "
                "the prefix, or, if etcd has lost its data, store the metadata that the brokers have kept in it with "
                "`barnabas cluster restore`"
            )
        if known not in (None, found):
            raise ConfigError(
                f"the data directory belongs to cluster {known}, but {self.where} is cluster {found}: check the prefix "
                "and log.dirs"
            )
        return found

    async def load(
        self,
        cluster_id: str,
        node_id: int,
        endpoints: Endpoints,
        directory: str,
        path: Path | None = None,
        *,
        files: Files = REAL_FILES,
        intact: tuple[int, int] = NOT_INTACT,
    ) -> "ClusterMember":
        """Read the cluster's metadata. This broker is not a member before :meth:`ClusterMember.enter`.

        Args:
            cluster_id: the result of :meth:`cluster_id`.
            node_id: of this broker.
            endpoints: the addresses where others reach it.
            directory: the id of the data directory that it has locked.
            path: that directory, where this broker keeps a copy of the metadata; None to keep none.
            files: its file system.
            intact: the broker epochs since which that has lost nothing, see :class:`.BrokerInfo`.

        Raises:
            MembershipError: etcd does not answer, or lacks metadata that this broker has applied.
            StoreError: the metadata cannot be read.
        """
        rack = self.config[BROKER_RACK] or None
        me = BrokerRegistration(node_id, endpoints, rack, self._incarnation, directory, intact=intact)
        session = self.config[BROKER_SESSION_TIMEOUT_MS] / 1000
        before: list[str] | None = None
        if path is not None:
            try:
                last = take_over(files, path, self._incarnation)
            except OSError as error:
                log.warning("owner of the data directory cannot be written", directory=str(path), reason=error.strerror)
                last = None
            before = [] if last is None else [last]
        lifecycle = BrokerLifecycle(self.kv, self.metadata, self.prefix, me, session, self.now, before)
        loaded = await self.retry("read the metadata", self.metadata.load)
        image = Image(cluster_id).apply_all(loaded.events)
        entered = asyncio.Event()

        def may_serve() -> bool:
            return entered.is_set() and lifecycle.may_serve()

        cluster = ClusterMetadata(image, self.metadata, loaded.sequence, may_serve, self._wall_ms)
        keeper = None
        if path is not None:
            self._check_kept(files, path / IMAGE_FILE, cluster_id, loaded.sequence)
            keeper = ImageKeeper(path, cluster, self.metadata.history, self.now, files)
        return ClusterMember(self, cluster, lifecycle, entered, keeper)

    def _check_kept(self, files: Files, path: Path, cluster_id: str, sequence: int) -> None:
        """Check that etcd has all metadata that this broker had applied before it was stopped.

        Raises:
            MembershipError: it has not.
        """
        if not files.exists(path):
            return
        try:
            kept = read_image(path, files)
        except ImageFileError as error:
            log.warning("kept cluster image is not used", reason=str(error))
            return
        reason = lost_metadata(kept, cluster_id, sequence, self.metadata.history)
        if reason is not None:
            raise MembershipError(
                f"{reason}. To do: store the newest image of all brokers in etcd with `barnabas cluster restore`, see "
                f"docs/cluster.md; to go on without these changes, move {path} to another place"
            )

    async def close(self) -> None:
        """Close the connection to etcd."""
        await self.metadata.close()


def lost_metadata(kept: SavedImage, cluster_id: str, sequence: int, history: Sequence[Restored]) -> str | None:
    """The part of the metadata kept by a broker that is missing in etcd; None if nothing is.

    Args:
        kept: the image that the broker has kept.
        cluster_id: of the cluster in etcd.
        sequence: the number of its last batch.
        history: its restores.
    """
    common = len(kept.history)
    if kept.image.cluster_id != cluster_id:
        return f"this broker has kept metadata of cluster {kept.image.cluster_id}, and etcd has cluster {cluster_id}"
    if tuple(history[:common]) != kept.history:
        return f"etcd has another history of the metadata than the one that this broker has kept ({kept.sequence})"
    if len(history) > common:
        restored = history[common].sequence
        if kept.sequence > restored:
            return f"etcd was restored to batch {restored} of the metadata, and this broker had applied {kept.sequence}"
    elif kept.sequence > sequence:
        return f"etcd has lost the metadata after batch {sequence}, and this broker had applied batch {kept.sequence}"
    return None


class ClusterMember:
    """This broker as a member of a cluster.

    Args:
        connection: to the cluster; its owner closes it.
        cluster: the image and its changes.
        lifecycle: this broker's registration.
        entered: set when this broker may serve as far as its logs are concerned.
        keeper: keeps a copy of the metadata; None to keep none.

    Attributes:
        cluster: the image and its changes.
        lifecycle: this broker's registration.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        cluster: ClusterMetadata,
        lifecycle: BrokerLifecycle,
        entered: asyncio.Event,
        keeper: ImageKeeper | None,
    ) -> None:
        self._entered = entered
        self._keeper = keeper
        self.cluster = cluster
        self.lifecycle = lifecycle
        self._connection = connection
        self._config = connection.config
        self._tasks: list[asyncio.Task[None]] = []
        cluster.subscribe(lifecycle.image_changed)
        cluster.subscribe(_log_changes)
        cluster.subscribe(self._check_internal_topics)

    async def enter(
        self, producer_ids: Iterable[int] = (), leader_epochs: Mapping[tuple[bytes, int], int] = _NONE
    ) -> None:
        """Become a member: register, and wait until the controller, perhaps this broker, has added it to the image.

        Args:
            producer_ids: the producer ids in this broker's logs.
            leader_epochs: the latest leader epoch in each log, by topic id and partition.

        Raises:
            MembershipError: another broker has this node id, or etcd does not answer.
        """
        connection, lifecycle, cluster = self._connection, self.lifecycle, self.cluster
        await connection.retry("register", lifecycle.register)
        # First: if the controller adds this broker meanwhile, the changes below are decided again on that image.
        self._begin(self._follow)
        try:
            await cluster.skip_producer_ids(producer_ids)
            await self._skip_leader_epochs(leader_epochs)
        except KafkaError as error:
            raise MembershipError(
                f"cannot reserve the producer ids and leader epochs of the logs: {error}; start again"
            ) from error
        self._entered.set()
        controller = ControllerRunner(
            connection.kv,
            connection.metadata,
            cluster,
            lifecycle,
            self.unclean,
            self.min_isr,
            self._balance_seconds,
            lambda: self._config[UNCLEAN_RECOVERY_TIMEOUT_MS] / 1000,
            connection.now,
        )
        self._begin(
            lifecycle.keep_registered, lifecycle.watch, controller.work, controller.balance, connection.kv.watch_alarms
        )
        if self._keeper is not None:
            self._begin(self._keeper.work)
        deadline = connection.now() + START_SECONDS
        while not lifecycle.may_serve() and connection.now() < deadline:
            sequence = cluster.sequence
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await cluster.reached(sequence + 1)
            except TimeoutError:
                pass
        if not lifecycle.may_serve():
            log.warning("no controller has added this broker to the cluster yet")

    def _begin(self, *works: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop = asyncio.get_running_loop()
        self._tasks += [loop.create_task(_forever(work), name=work.__name__) for work in works]

    async def _skip_leader_epochs(self, found: Mapping[tuple[bytes, int], int]) -> None:
        """Raise leader epochs above those in this broker's logs: the metadata was restored from a backup, and the same
        epoch must not be used for other records. The step leaves room for the logs of other brokers. An epoch that no
        election can have reached is a damaged one, which no check sum covers: it would leave no epochs for elections.

        Raises:
            KafkaError: see :meth:`.ClusterMetadata.change`.
        """

        def decide(image: Image) -> tuple[Sequence[Event], int]:
            events: list[Event] = []
            for (topic_id, index), epoch in found.items():
                topic = image.topics.get(image.names.get(topic_id, ""))
                if topic is None or index >= len(topic.partitions) or len(events) == STEP:
                    continue
                partition = topic.partitions[index]
                if partition.leader_epoch < epoch < _LARGEST_BELIEVED_EPOCH:
                    raised = partition._replace(
                        leader_epoch=epoch + EPOCH_STEP, partition_epoch=partition.partition_epoch + 1
                    )
                    events.append(PartitionChanged(topic.name, index, raised))
            return events, len(events)

        while changed := await self.cluster.change(decide):
            log.warning(
                "leader epochs are in the logs that the metadata does not contain: it was restored", raised=changed
            )

    async def _follow(self) -> None:
        try:
            await self.cluster.follow()
        except StoreLost:
            await asyncio.Event().wait()  # the lifecycle has stopped serving
        except StoreError as error:
            self.lifecycle.image_changed(Image(""), ())
            log.error("cluster metadata cannot be read, so this broker leads no partitions", reason=str(error))

    def _check_internal_topics(self, image: Image, events: Sequence[Event]) -> None:
        """Warn when internal topics wait for more brokers, or were created with fewer replicas than configured."""
        wanted = self._config[OFFSETS_TOPIC_REPLICATION_FACTOR]
        for event in events:
            match event:
                # Not when brokers are fenced: usually the whole cluster stops, and those that still run would warn.
                case BrokerRegistered() if len(image.brokers) < wanted:
                    asked = OFFSETS_TOPIC_REPLICATION_FACTOR.name in self._config.given
                    if asked and OFFSETS_TOPIC not in image.topics:
                        log.warning(
                            "groups wait for more brokers: start some, or set a lower offsets.topic.replication.factor",
                            brokers=len(image.brokers),
                            replication_factor=wanted,
                        )
                case TopicCreated() if event.name in INTERNAL_TOPICS and len(event.partitions[0].replicas) < wanted:
                    log.warning(
                        "internal topic has fewer replicas than it should: when there are more brokers, add some with "
                        "`barnabas cluster reassign TOPIC --to 1,2,3 -r 3`, or set offsets.topic.replication.factor so "
                        "that groups wait",
                        topic=event.name,
                        replicas=len(event.partitions[0].replicas),
                        replication_factor=wanted,
                    )

    def unclean(self, topic: TopicInfo) -> bool:
        """Whether a topic allows unclean leader election."""
        text = topic.configs.get(TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE.name)
        return self._config[UNCLEAN_LEADER_ELECTION_ENABLE] if text is None else text.lower() == "true"

    def min_isr(self, topic: TopicInfo) -> int:
        """A topic's ``min.insync.replicas``."""
        text = topic.configs.get(TOPIC_MIN_INSYNC_REPLICAS.name)
        return self._config[MIN_INSYNC_REPLICAS] if text is None else int(text)

    def _balance_seconds(self) -> float | None:
        if not self._config[AUTO_LEADER_REBALANCE_ENABLE]:
            return None
        return self._config[LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]

    def conditions(self) -> Iterable[Condition]:
        """The conditions of this broker as a member of its cluster: what is not possible now."""
        lifecycle = self.lifecycle
        if lifecycle.halted is not None:
            yield Condition(ConditionName.METADATA_LOST, lifecycle.halted)
        elif not self.cluster.may_serve() and lifecycle.lease == 0:
            yield Condition(
                ConditionName.NOT_REGISTERED,
                "the broker is not registered in the cluster: it leads no partitions and coordinates no groups. It "
                "registers by itself as soon as etcd lets it",
            )
        elif not self.cluster.may_serve():
            yield Condition(
                ConditionName.LEASE_NOT_RENEWED,
                "the broker's lease is not renewed, or the cluster has not taken note of it yet: it leads no "
                "partitions and coordinates no groups. It goes on by itself as soon as etcd answers",
            )
        yield from self._connection.kv.health.conditions()

    async def leave(self) -> None:
        """Move leaderships to other brokers (``controlled.shutdown.enable``), in bounded time."""
        if self._config[CONTROLLED_SHUTDOWN_ENABLE]:
            await self.lifecycle.leave(self.cluster, self.unclean, self.min_isr, LEAVE_SECONDS)

    async def close(self) -> None:
        """Stop the background work and end the registration."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._keeper is not None:
            await self._keeper.save()
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
    backoff, loop = jittered(*_FAILED_SECONDS, seed=work.__qualname__), asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            await work()
        except Exception:
            log.exception("background work failed, starting again", work=work.__name__)
        if loop.time() - began >= _STEADY_SECONDS:
            backoff.succeeded()
        await asyncio.sleep(backoff.failed())


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
            config[BROKER_SESSION_TIMEOUT_MS] / 1000,
        )
        return ClusterConnection(etcd.EtcdClient(settings), prefix, url, config)
    except (OSError, UnicodeDecodeError) as error:
        raise MembershipError(f"etcd.*: {error}") from error
