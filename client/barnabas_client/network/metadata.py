"""What the client knows of the cluster: brokers, topics, partitions, leaders. Pure and immutable.

:meth:`Cluster.updated` merges an answer to a Metadata request into a new :class:`Cluster`. A topic that the answer does
not mention keeps its last known state for as long as someone is interested in it. A leader is replaced only by one of
the same or a newer epoch, so that an answer of a broker that lags behind does not send the client back to the old
leader (KIP-320); a topic that was made anew has another id (KIP-516), and then nothing of the old one counts. Source:
Kafka's ``Metadata.java``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from barnabas_client.assignors import PartitionCounts
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

NO_ID: Final = bytes(16)
NO_LEADER: Final = -1


class Broker(NamedTuple):
    """A broker and where it listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Partition(NamedTuple):
    """A partition: `leader` is a node id, -1 while there is none; `leader_epoch` is -1 where the broker does not
    tell."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as last told. `error` is NONE where all is well."""

    name: str
    id: bytes
    partitions: Mapping[int, Partition]
    internal: bool = False
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Cluster:
    """A snapshot. `version` grows with each update."""

    version: int = 0
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    names: Mapping[bytes, str] = field(default_factory=dict)

    def partitions(self, topic: str) -> tuple[int, ...] | None:
        """The partition numbers of a topic, ascending; None if it is not known."""
        known = self.topics.get(topic)
        return None if known is None or not known.partitions else tuple(sorted(known.partitions))

    def available(self, topic: str) -> tuple[int, ...]:
        """The partitions of a topic that have a leader, ascending."""
        known = self.topics.get(topic)
        if known is None:
            return ()
        return tuple(sorted(number for number, info in known.partitions.items() if info.leader != NO_LEADER))

    def counts(self, topics: Iterable[str]) -> PartitionCounts:
        """How many partitions each of `topics` has, of those that are known, and in which racks."""
        found = {topic: numbers for topic in topics if (numbers := self.partitions(topic)) is not None}
        homes = {broker.node_id: broker.rack for broker in self.brokers.values() if broker.rack}
        racks = {
            topic: [_racks(self.topics[topic].partitions[number], homes) for number in numbers]
            for topic, numbers in found.items()
            if homes
        }
        return PartitionCounts({topic: len(numbers) for topic, numbers in found.items()}, racks)

    def partition(self, tp: TopicPartition) -> Partition | None:
        """A partition, None if it is not known."""
        known = self.topics.get(tp.topic)
        return None if known is None else known.partitions.get(tp.partition)

    def leader(self, tp: TopicPartition) -> int | None:
        """The node id of a partition's leader, None while none is known."""
        info = self.partition(tp)
        if info is None or info.leader == NO_LEADER or info.leader not in self.brokers:
            return None
        return info.leader

    def matching(self, pattern: re.Pattern[str], *, internal: bool) -> frozenset[str]:
        """The topics whose names begin with a match of `pattern`; `internal` ones only if they are asked for."""
        return frozenset(
            name
            for name, topic in self.topics.items()
            if pattern.match(name) and topic.partitions and (internal or not topic.internal)
        )

    def topic_id(self, topic: str) -> bytes:
        """A topic's id, all zero if it has none that is known."""
        known = self.topics.get(topic)
        return NO_ID if known is None else known.id

    def updated(self, response: MetadataResponse, keep: Iterable[str] | None) -> "Cluster":
        """This cluster after `response`.

        Args:
            response: what a broker answered.
            keep: topics whose last known state stays where the answer does not mention them; None drops them all, since
                the answer was about all topics.
        """
        topics: dict[str, Topic] = {}
        for name in keep or ():
            if name in self.topics:
                topics[name] = self.topics[name]
        for told in response.topics:
            if told.name is not None:
                topics[told.name] = _merged(self.topics.get(told.name), told)
        return Cluster(
            version=self.version + 1,
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            brokers={b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers},
            topics=topics,
            names={topic.id: name for name, topic in topics.items() if topic.id != NO_ID},
        )

    def with_leader(self, tp: TopicPartition, leader: int, epoch: int) -> "Cluster":
        """This cluster with a leader that a broker named in an error (KIP-951), unless what is known is newer."""
        topic, info = self.topics.get(tp.topic), self.partition(tp)
        if topic is None or info is None or epoch <= info.leader_epoch or leader not in self.brokers:
            return self
        partitions = {**topic.partitions, tp.partition: info._replace(leader=leader, leader_epoch=epoch)}
        topics = {**self.topics, tp.topic: replace(topic, partitions=partitions)}
        return replace(self, version=self.version + 1, topics=topics)


def _racks(info: Partition, homes: Mapping[int, str]) -> frozenset[str]:
    return frozenset(homes[replica] for replica in info.replicas if replica in homes)


def _merged(known: Topic | None, told: MetadataResponseTopic) -> Topic:
    name, error = told.name or "", ErrorCode.of(told.error_code)
    if (
        error != ErrorCode.NONE
        and known is not None
        and error.retriable
        and error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ):
        return replace(known, error=error)  # nothing is known better than before, such as while a leader is elected
    same = known is not None and known.id == told.topic_id
    before = known.partitions if known is not None and same else {}
    partitions = {info.partition_index: _newer(before.get(info.partition_index), info) for info in told.partitions}
    return Topic(name, told.topic_id, partitions, told.is_internal, error)


def _newer(known: Partition | None, told: MetadataResponsePartition) -> Partition:
    if known is not None and -1 < told.leader_epoch < known.leader_epoch:
        return known
    return Partition(
        told.partition_index, told.leader_id, told.leader_epoch, tuple(told.replica_nodes), tuple(told.isr_nodes)
    )
