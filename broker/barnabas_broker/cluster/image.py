"""The cluster as it is known: brokers, topics, configurations. Immutable; an event makes a new image.

Handlers read an image and nothing else of the cluster. Events are the facts that a metadata store keeps; applying the
same events in the same order gives the same image on every broker.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

#: Where a broker is told to be, by the name of the listener: host and port. At least one; the first comes first.
Endpoints = Mapping[str, tuple[str, int]]
_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


class BrokerInfo(NamedTuple):
    """A broker as clients are told about it; `epoch` tells one life of a broker from the next."""

    node_id: int
    endpoints: Endpoints
    rack: str | None = None
    epoch: int = -1

    @property
    def address(self) -> str:
        """HOST:PORT of the first listener, for people."""
        host, port = next(iter(self.endpoints.values()))
        return f"{host}:{port}"


class PartitionInfo(NamedTuple):
    """Who keeps a partition.

    Attributes:
        leader: its leader, -1 for none.
        leader_epoch: grows with every new leader, and whenever the leader's followers are to be told anew.
        replicas: who keeps it, the preferred leader first.
        isr: those of them that are in sync.
        partition_epoch: grows with every change.
        adding: replicas that a reassignment brings.
        removing: replicas that it takes away once the others are in sync.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicInfo(NamedTuple):
    """A topic: its id (16 bytes, never zero), its partitions by index, what its configuration overrides."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str] = _EMPTY


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker is there, under these addresses, in this life of it."""

    node_id: int
    endpoints: Endpoints
    rack: str | None = None
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class BrokerFenced:
    """A broker is gone, or has said that it goes; its partitions are changed by events beside this one."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """This broker now decides what becomes of partitions whose broker comes or goes."""

    node_id: int


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """A partition is now kept like this."""

    name: str
    index: int
    partition: PartitionInfo


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
    | BrokerFenced
    | ControllerElected
    | PartitionChanged
    | TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | TopicConfigured
    | BrokerConfigured
    | ProducerIdsAllocated
)


class Image(NamedTuple):
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
    brokers: Mapping[int, BrokerInfo] = _EMPTY
    topics: Mapping[str, TopicInfo] = _EMPTY
    names: Mapping[bytes, str] = _EMPTY
    broker_configs: Mapping[str, Mapping[str, str]] = _EMPTY
    next_producer_id: int = 0

    def apply(self, event: Event) -> "Image":
        """The image after `event`. An event about a topic that is not there changes nothing."""
        return self.apply_all((event,))

    def apply_all(self, events: Iterable[Event]) -> "Image":
        """The image after `events`. Each map is copied once, however many events there are."""
        draft = _Draft(self)
        for event in events:
            draft.apply(event)
        return draft.finished()

    def snapshot(self) -> list[Event]:
        """Events that make this image out of an empty one."""
        events: list[Event] = [BrokerRegistered(b.node_id, b.endpoints, b.rack, b.epoch) for b in self.brokers.values()]
        if self.controller_id >= 0:
            events.append(ControllerElected(self.controller_id))
        events += [TopicCreated(t.name, t.topic_id, t.partitions, t.configs) for t in self.topics.values()]
        events += [BrokerConfigured(name, configs) for name, configs in self.broker_configs.items()]
        events.append(ProducerIdsAllocated(self.next_producer_id))
        return events


class _Draft:
    """An image in the making: maps that are copied when they are first written, partitions as lists."""

    def __init__(self, base: Image) -> None:
        self._base = base
        self._changed: dict[str, Any] = {}
        self._partitions: dict[str, list[PartitionInfo]] = {}

    def _map(self, name: str) -> dict[Any, Any]:
        if name not in self._changed:
            # The views' own copy: dict() of a view goes key by key.
            self._changed[name] = getattr(self._base, name).copy()
        copy: dict[Any, Any] = self._changed[name]
        return copy

    def _topic(self, name: str) -> TopicInfo | None:
        topics: Mapping[str, TopicInfo] = self._changed.get("topics", self._base.topics)
        return topics.get(name)

    def _partitions_of(self, topic: TopicInfo) -> list[PartitionInfo]:
        if topic.name not in self._partitions:
            self._partitions[topic.name] = list(topic.partitions)
        return self._partitions[topic.name]

    def apply(self, event: Event) -> None:
        match event:
            case BrokerRegistered():
                info = BrokerInfo(event.node_id, event.endpoints, event.rack, event.epoch)
                self._map("brokers")[event.node_id] = info
            case BrokerFenced():
                known = self._changed.get("brokers", self._base.brokers).get(event.node_id)
                if known is not None and known.epoch == event.epoch:
                    del self._map("brokers")[event.node_id]
            case ControllerElected():
                self._changed["controller_id"] = event.node_id
            case BrokerConfigured():
                self._map("broker_configs")[event.name] = MappingProxyType(dict(event.configs))
            case ProducerIdsAllocated():
                known_id = self._changed.get("next_producer_id", self._base.next_producer_id)
                self._changed["next_producer_id"] = max(known_id, event.next_id)
            case TopicCreated():
                self._drop(event.name)
                configs = MappingProxyType(dict(event.configs))
                self._map("topics")[event.name] = TopicInfo(event.name, event.topic_id, event.partitions, configs)
                self._map("names")[event.topic_id] = event.name
            case TopicDeleted():
                self._drop(event.name)
            case PartitionChanged() | PartitionsAdded() | TopicConfigured():
                topic = self._topic(event.name)
                if topic is not None:
                    self._change(topic, event)

    def _change(self, topic: TopicInfo, event: PartitionChanged | PartitionsAdded | TopicConfigured) -> None:
        match event:
            case PartitionChanged():
                partitions = self._partitions_of(topic)
                if 0 <= event.index < len(partitions):
                    partitions[event.index] = event.partition
            case PartitionsAdded():
                self._partitions_of(topic).extend(event.partitions)
            case TopicConfigured():
                configs = MappingProxyType(dict(event.configs))
                self._map("topics")[topic.name] = topic._replace(configs=configs)

    def _drop(self, name: str) -> None:
        topic = self._topic(name)
        if topic is not None:
            del self._map("topics")[name]
            self._map("names").pop(topic.topic_id, None)
            self._partitions.pop(name, None)

    def finished(self) -> Image:
        for name, partitions in self._partitions.items():
            self._map("topics")[name] = self._map("topics")[name]._replace(partitions=tuple(partitions))
        changed: dict[str, Any] = {
            name: MappingProxyType(value) if isinstance(value, dict) else value for name, value in self._changed.items()
        }
        return self._base._replace(**changed) if changed else self._base
