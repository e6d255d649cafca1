"""Opens the coordinators of a broker, and keeps them in step with the cluster image."""

import asyncio
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple
from uuid import UUID

from barnabas_broker.clock import Clock
from barnabas_broker.cluster.image import (
    BrokerFenced,
    BrokerRegistered,
    Event,
    GroupConfigured,
    Image,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
    TopicInfo,
)
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config import Config
from barnabas_broker.config.keys import INTER_BROKER_LISTENER_NAME, REQUEST_TIMEOUT_MS
from barnabas_broker.coordinators.partitions import CoordinatorPartitions
from barnabas_broker.coordinators.timed_out import TimedOutTransactions
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.handlers.markers import client_id_of_coordinator, write_markers
from barnabas_broker.handlers.topics import create_internal
from barnabas_broker.offload import Offloaded
from barnabas_broker.regexes import RegexSearch
from barnabas_broker.replication.connection import BrokerConnections, BrokerSecurity
from barnabas_broker.replication.coordinator_logs import (
    ConsumedLogs,
    CoordinatorTopicLog,
    GroupEventsLog,
    TransactionEventsLog,
)
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.other_brokers import OtherCoordinators
from barnabas_broker.shares.persister import SharePersister
from barnabas_broker.shares.service import ShareCoordinator
from barnabas_broker.slicer import Account, Slicer, Work
from barnabas_broker.storage import TopicPartition
from barnabas_broker.transactions.service import TransactionCoordinator
from barnabas_protocol.internal_topics import OFFSETS_TOPIC, SHARE_GROUPS_TOPIC, TRANSACTIONS_TOPIC
from barnabas_protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class Coordinators(NamedTuple):
    """The coordinators of a broker; see :func:`open_coordinators`.

    Attributes:
        groups: the group coordinator.
        group_partitions: loads and unloads its partitions.
        transactions: the transaction coordinator.
        transaction_partitions: loads and unloads its partitions.
        shares: the share coordinator.
        share_partitions: loads and unloads its partitions.
        persister: reads and writes the state of share partitions, here or on another broker.
        peers: the other brokers, to which coordinators send requests.
        fetch_peers: the other brokers, with connections for what brokers see of Fetches.
    """

    groups: GroupCoordinator
    group_partitions: CoordinatorPartitions
    transactions: TransactionCoordinator
    transaction_partitions: CoordinatorPartitions
    shares: ShareCoordinator
    share_partitions: CoordinatorPartitions
    persister: SharePersister
    peers: BrokerConnections
    fetch_peers: BrokerConnections

    def image_changed(self, image: Image, events: Sequence[Event]) -> None:
        """Take the topics and the configuration of groups from the image; load and unload partitions."""
        deleted = [event.name for event in events if isinstance(event, TopicDeleted)]
        if deleted:
            self.groups.topics_deleted(deleted)
            self.shares.topics_deleted()
        for event in events:
            if isinstance(event, GroupConfigured):
                self.groups.group_configured(event.name, event.configs)
        changed = _changed_topics(image, events)
        counts = {topic.name: len(topic.partitions) for topic in changed}
        self.groups.topics_changed(counts, _topics_of(image, changed))
        self.transactions.topics_changed(counts)
        self.shares.topics_changed(counts)
        self.persister.leaders_changed()
        self.reconcile()

    def reconcile(self) -> None:
        """Load the partitions that this broker leads now, unload the others."""
        self.group_partitions.reconcile()
        self.transaction_partitions.reconcile()
        self.share_partitions.reconcile()

    def start(self) -> None:
        """Compare with what this broker leads from now on, twice a second."""
        self.group_partitions.start()
        self.transaction_partitions.start()
        self.share_partitions.start()

    def stop_loading(self) -> None:
        """Load and unload nothing more."""
        self.share_partitions.close()
        self.transaction_partitions.close()
        self.group_partitions.close()

    async def close(self) -> None:
        """Answer the requests that are deferred, and end what is running."""
        await asyncio.gather(self.groups.close(), self.transactions.close(), self.shares.close())

    async def disconnect(self) -> None:
        """Close the connections to other brokers."""
        await self.peers.close()
        await self.fetch_peers.close()


def open_coordinators(
    stack: AsyncExitStack,
    config: Config,
    node_id: int,
    cluster: ClusterMetadata,
    replicas: ReplicaManager,
    regexes: RegexSearch,
    slicer: Slicer,
    security: BrokerSecurity,
    clock: Clock,
) -> Coordinators:
    """Build the coordinators. They coordinate nothing until they get the cluster image.

    Args:
        stack: closes what is opened.
        config: the broker's configuration.
        node_id: its id.
        cluster: the cluster image; allocates producer ids.
        replicas: has the logs of the coordinators, and writes markers.
        regexes: matches names of topics.
        slicer: runs what takes long.
        security: how this broker logs in to the others.
        clock: the time of groups and transactions.
    """
    between, own_work = config[INTER_BROKER_LISTENER_NAME], Account()

    def address(node_id: int) -> tuple[str, int] | None:
        broker = cluster.image.brokers.get(node_id)
        return None if broker is None else broker.endpoints.get(between)

    def advertised(node_id: int, listener: str) -> str | None:
        broker = cluster.image.brokers.get(node_id)
        return None if broker is None else broker.address_on(listener)

    def others() -> list[int]:
        return [each for each in cluster.image.brokers if each != node_id]

    def leader(where: TopicPartition) -> int | None:
        topic = cluster.image.topics.get(where.topic)
        return topic.partitions[where.partition].leader if topic and where.partition < len(topic.partitions) else None

    def exists(topic_id: UUID, partition: int) -> bool:
        image = cluster.image
        name = image.names.get(topic_id.bytes)
        return name is not None and 0 <= partition < len(image.topics[name].partitions)

    def delete_before(partition: int, offset: int) -> None:
        """Delete the records of ``__share_group_state`` that are not needed any more, here and on the followers."""
        replica = replicas.find(SHARE_GROUPS_TOPIC, partition)
        replicas.delete_records(replica, min(offset, replica.log.high_watermark))

    async def write_here(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Write the markers of this broker's coordinator to partitions that this broker leads."""
        timeout, refused = config[REQUEST_TIMEOUT_MS] / 1000, transactions.refused_markers
        answer = slicer.run(write_markers(replicas, groups, clock.wall_ms(), request, timeout, refused), own_work)
        if isinstance(answer, Work):
            answer = await answer
        return answer if isinstance(answer, WriteTxnMarkersResponse) else await answer

    peers = BrokerConnections(client_id_of_coordinator(node_id), address, security)
    # Connections of their own: a request that is given up ends its connection, on which markers of transactions wait.
    fetch_peers = BrokerConnections(client_id_of_coordinator(node_id), address, security)
    shares = ShareCoordinator(
        config,
        CoordinatorTopicLog(SHARE_GROUPS_TOPIC, replicas, clock.wall_ms),
        exists,
        delete_before,
        now=clock.now,
        wall_ms=clock.wall_ms,
        scheduler=clock,
    )
    topic = _ShareTopic(config, cluster, replicas)
    persister = SharePersister(node_id, shares, topic, peers, config[REQUEST_TIMEOUT_MS] / 1000)
    timed_out = TimedOutTransactions()
    groups = GroupCoordinator(
        config,
        CoordinatorTopicLog(OFFSETS_TOPIC, replicas, clock.wall_ms),
        persister,
        now=clock.now,
        wall_ms=clock.wall_ms,
        loop=clock,
        new_id=lambda: str(uuid.uuid4()),
        events=GroupEventsLog(replicas, clock.wall_ms, leader, peers),
        offload=Offloaded(stack, "assignor"),
        regexes=regexes,
        logs=ConsumedLogs(replicas),
        timed_out=timed_out,
        others=OtherCoordinators(others, fetch_peers, advertised),
    )
    transactions = TransactionCoordinator(
        config,
        node_id,
        CoordinatorTopicLog(TRANSACTIONS_TOPIC, replicas, clock.wall_ms),
        leader,
        write_here,
        peers,
        cluster.next_producer_id,
        TransactionEventsLog(replicas, clock.wall_ms),
        timed_out=timed_out,
        now=clock.now,
        wall_ms=clock.wall_ms,
        scheduler=clock,
    )
    return Coordinators(
        groups,
        CoordinatorPartitions(OFFSETS_TOPIC, groups, replicas, cluster.may_serve),
        transactions,
        CoordinatorPartitions(TRANSACTIONS_TOPIC, transactions.runtime, replicas, cluster.may_serve),
        shares,
        CoordinatorPartitions(SHARE_GROUPS_TOPIC, shares.runtime, replicas, cluster.may_serve),
        persister,
        peers,
        fetch_peers,
    )


class _ShareTopic:
    """Implements :class:`.CoordinatorTopic` with the cluster's metadata."""

    def __init__(self, config: Config, cluster: ClusterMetadata, replicas: ReplicaManager) -> None:
        self._config = config
        self._cluster = cluster
        self._replicas = replicas

    def leader(self, partition: int) -> int | None:
        """See there."""
        topic = self._cluster.image.topics.get(SHARE_GROUPS_TOPIC)
        return topic.partitions[partition].leader if topic and partition < len(topic.partitions) else None

    async def create(self) -> None:
        """See there."""
        await create_internal(self._config, self._cluster, self._replicas, SHARE_GROUPS_TOPIC)


def _changed_topics(image: Image, events: Sequence[Event]) -> Collection[TopicInfo]:
    """The topics that events have created or changed: with thousands of topics, a new one must not cost as much as all.
    All topics if brokers come or go, which have racks."""
    names = set()
    for event in events:
        match event:
            case BrokerRegistered() | BrokerFenced():
                return image.topics.values()
            case TopicCreated() | PartitionsAdded() | PartitionChanged():
                names.add(event.name)
    return [image.topics[name] for name in names if name in image.topics]


def _topics_of(image: Image, topics: Iterable[TopicInfo]) -> Iterator[Topic]:
    """Topics of an image, as the group coordinator sees them."""
    racks = {node_id: broker.rack for node_id, broker in image.brokers.items()}
    some_rack = any(racks.values())
    for topic in topics:
        of_partitions: tuple[tuple[str, ...], ...] = ()
        if some_rack:
            of_partitions = tuple(
                tuple(rack for node_id in info.replicas if (rack := racks.get(node_id))) for info in topic.partitions
            )
        yield Topic(topic.topic_id, topic.name, len(topic.partitions), of_partitions)
