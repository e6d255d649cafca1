"""The cluster as it is known: brokers, topics, configurations. Immutable; an event makes a new image.

Handlers read an image and nothing else of the cluster. Events are the facts that a metadata store keeps; applying the
same events in the same order gives the same image on every broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker as clients are told about it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Who keeps a partition: its leader (-1 for none), the epoch of that leadership, its replicas, those in sync."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic: its id (16 bytes, never zero), its partitions by index, what its configuration overrides."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker is there, under this address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic came into being."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic is gone."""

    name: str


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic has these partitions more."""

    name: str
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class TopicConfigured:
    """A topic's configuration overrides are now these."""

    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BrokerConfigured:
    """The dynamic configuration of a broker ("" for all brokers) is now this."""

    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """Producer ids below `next_id` belong to somebody."""

    next_id: int


Event = (
    BrokerRegistered
    | TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | TopicConfigured
    | BrokerConfigured
    | ProducerIdsAllocated
)


def _with(mapping: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    return MappingProxyType({**mapping, key: value})


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Image:
    """The cluster after some events.

    Attributes:
        cluster_id: the cluster's id, 22 characters.
        controller_id: the broker that decides, -1 for none.
        brokers: by node id.
        topics: by name.
        names: topic names by topic id.
        broker_configs: dynamic broker configuration by node id as text, "" for all.
        next_producer_id: the first producer id that nobody has.
    """

    cluster_id: str
    controller_id: int = -1
    brokers: Mapping[int, BrokerInfo] = field(default_factory=_empty)
    topics: Mapping[str, TopicInfo] = field(default_factory=_empty)
    names: Mapping[bytes, str] = field(default_factory=_empty)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=_empty)
    next_producer_id: int = 0

    def apply(self, event: Event) -> "Image":
        """The image after `event`. An event about a topic that is not there changes nothing."""
        match event:
            case BrokerRegistered():
                info = BrokerInfo(event.node_id, event.host, event.port, event.rack)
                return replace(self, brokers=_with(self.brokers, event.node_id, info))
            case TopicCreated():
                topic = TopicInfo(event.name, event.topic_id, event.partitions, MappingProxyType(dict(event.configs)))
                names = _with(self.names, event.topic_id, event.name)
                return replace(self, topics=_with(self.topics, event.name, topic), names=names)
            case TopicDeleted():
                if event.name not in self.topics:
                    return self
                topics = {name: topic for name, topic in self.topics.items() if name != event.name}
                names = {key: name for key, name in self.names.items() if name != event.name}
                return replace(self, topics=MappingProxyType(topics), names=MappingProxyType(names))
            case PartitionsAdded():
                if event.name not in self.topics:
                    return self
                old = self.topics[event.name]
                topic = replace(old, partitions=old.partitions + event.partitions)
                return replace(self, topics=_with(self.topics, event.name, topic))
            case TopicConfigured():
                if event.name not in self.topics:
                    return self
                topic = replace(self.topics[event.name], configs=MappingProxyType(dict(event.configs)))
                return replace(self, topics=_with(self.topics, event.name, topic))
            case BrokerConfigured():
                configs = _with(self.broker_configs, event.name, MappingProxyType(dict(event.configs)))
                return replace(self, broker_configs=configs)
            case ProducerIdsAllocated():
                return replace(self, next_producer_id=max(self.next_producer_id, event.next_id))

    def snapshot(self) -> list[Event]:
        """Events that make this image out of an empty one."""
        events: list[Event] = [BrokerRegistered(b.node_id, b.host, b.port, b.rack) for b in self.brokers.values()]
        events += [TopicCreated(t.name, t.topic_id, t.partitions, t.configs) for t in self.topics.values()]
        events += [BrokerConfigured(name, configs) for name, configs in self.broker_configs.items()]
        events.append(ProducerIdsAllocated(self.next_producer_id))
        return events
