"""The metadata of a cluster: brokers, topics, partitions, leaders. Pure and immutable.

:meth:`Cluster.updated` merges a Metadata response into a new :class:`Cluster`. A watched topic that the response does
not mention keeps its last known state. A leader is replaced only by a leader of the same or a newer epoch, so that the
response of a broker that lags behind does not bring back the old leader (KIP-320). A topic that was deleted and created
again has another id (KIP-516), and then nothing is kept of the old one. Source: Kafka's ``Metadata.java``,
``Cluster.java``, ``Node.java``, ``PartitionInfo.java``.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from barnabas_client.assignors import PartitionCounts
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

NO_ID: Final = bytes(16)
NO_LEADER: Final = -1
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class Node(NamedTuple):
    """A broker and its address.

    Attributes:
        node_id: its id.
        host: its advertised host.
        port: its advertised port.
        rack: where it is; None if it is not configured.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(NamedTuple):
    """A partition.

    Attributes:
        partition: its number.
        leader: the node id of its leader, -1 if it has none.
        leader_epoch: -1 if the broker is too old to have it in its response.
        replicas: the node ids of its replicas.
        isr: the node ids of its in-sync replicas.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


class TopicInfo(NamedTuple):
    """A topic.

    Attributes:
        name: its name.
        id: 16 bytes, all zero if not known.
        partitions: by number.
        internal: whether it belongs to the brokers, such as ``__consumer_offsets``.
        error: NONE, or why its partitions are not known or not up to date.
    """

    name: str
    id: bytes
    partitions: Mapping[int, PartitionInfo]
    internal: bool = False
    error: ErrorCode = ErrorCode.NONE


class Cluster(NamedTuple):
    """The metadata of a cluster at one time.

    Attributes:
        version: grows with each update.
        cluster_id: None if not known.
        controller_id: the node id of the controller, -1 if not known.
        brokers: by node id.
        topics: by name.
        names: the topic names by topic id.
    """

    version: int = 0
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, Node] = _NOTHING
    topics: Mapping[str, TopicInfo] = _NOTHING
    names: Mapping[bytes, str] = _NOTHING

    def partitions(self, topic: str) -> tuple[int, ...] | None:
        """The partition numbers of a topic, ascending; None if they are not known."""
        known = self.topics.get(topic)
        return None if known is None or not known.partitions else tuple(sorted(known.partitions))

    def available(self, topic: str) -> tuple[int, ...]:
        """The partitions of a topic that have a leader, ascending."""
        known = self.topics.get(topic)
        if known is None:
            return ()
        return tuple(sorted(number for number, info in known.partitions.items() if info.leader != NO_LEADER))

    def counts(self, topics: Iterable[str]) -> PartitionCounts:
        """The number of partitions of each known topic of `topics`, and the racks of their replicas."""
        found = {topic: numbers for topic in topics if (numbers := self.partitions(topic)) is not None}
        homes = {broker.node_id: broker.rack for broker in self.brokers.values() if broker.rack}
        racks = {
            topic: [_racks(self.topics[topic].partitions[number], homes) for number in numbers]
            for topic, numbers in found.items()
            if homes
        }
        return PartitionCounts({topic: len(numbers) for topic, numbers in found.items()}, racks)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """A partition; None if it is not known."""
        known = self.topics.get(tp.topic)
        return None if known is None else known.partitions.get(tp.partition)

    def leader(self, tp: TopicPartition) -> int | None:
        """The node id of a partition's leader; None if it is not known."""
        info = self.partition(tp)
        if info is None or info.leader == NO_LEADER or info.leader not in self.brokers:
            return None
        return info.leader

    def missing(self, topic: str) -> bool:
        """Whether the brokers have said that a topic does not exist."""
        known = self.topics.get(topic)
        return known is not None and not known.partitions and known.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def matching(self, pattern: re.Pattern[str], *, internal: bool) -> frozenset[str]:
        """The topics whose names start with a match of `pattern`; internal topics only if `internal` is true."""
        return frozenset(
            name
            for name, topic in self.topics.items()
            if pattern.match(name) and topic.partitions and (internal or not topic.internal)
        )

    def topic_id(self, topic: str) -> bytes:
        """A topic's id; all zero if it is not known."""
        known = self.topics.get(topic)
        return NO_ID if known is None else known.id

    def updated(self, response: MetadataResponse, keep: Iterable[str] | None) -> "Cluster":
        """Create the cluster with the metadata of a response.

        Args:
            response: of a broker.
            keep: topics that keep their last known state if the response does not mention them; None keeps none,
                because the request was about all topics.
        """
        topics: dict[str, TopicInfo] = {}
        for name in keep or ():
            if name in self.topics:
                topics[name] = self.topics[name]
        for topic in response.topics:
            if topic.name is not None:
                topics[topic.name] = _merged(self.topics.get(topic.name), topic)
        return Cluster(
            version=self.version + 1,
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            brokers={b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers},
            topics=topics,
            names={topic.id: name for name, topic in topics.items() if topic.id != NO_ID},
        )

    def with_leader(self, tp: TopicPartition, leader: int, epoch: int) -> "Cluster":
        """Create the cluster with a leader from an error response (KIP-951), unless the known leader is newer."""
        topic, info = self.topics.get(tp.topic), self.partition(tp)
        if topic is None or info is None or epoch <= info.leader_epoch or leader not in self.brokers:
            return self
        partitions = {**topic.partitions, tp.partition: info._replace(leader=leader, leader_epoch=epoch)}
        topics = {**self.topics, tp.topic: topic._replace(partitions=partitions)}
        return self._replace(version=self.version + 1, topics=topics)


def _racks(info: PartitionInfo, homes: Mapping[int, str]) -> frozenset[str]:
    return frozenset(homes[replica] for replica in info.replicas if replica in homes)


def _merged(known: TopicInfo | None, received: MetadataResponseTopic) -> TopicInfo:
    name, error = received.name or "", ErrorCode.of(received.error_code)
    if (
        error != ErrorCode.NONE
        and known is not None
        and error.retriable
        and error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ):
        return known._replace(error=error)  # temporary, such as during a leader election: keep what is known
    same = known is not None and known.id == received.topic_id
    before = known.partitions if known is not None and same else {}
    partitions = {info.partition_index: _newer(before.get(info.partition_index), info) for info in received.partitions}
    return TopicInfo(name, received.topic_id, partitions, received.is_internal, error)


def _newer(known: PartitionInfo | None, received: MetadataResponsePartition) -> PartitionInfo:
    if known is not None and -1 < received.leader_epoch < known.leader_epoch:
        return known
    return PartitionInfo(
        received.partition_index,
        received.leader_id,
        received.leader_epoch,
        tuple(received.replica_nodes),
        tuple(received.isr_nodes),
    )
