"""The cluster image: brokers, topics, configurations. Immutable; applying an event returns a new image. Pure.

Handlers read nothing of the cluster but the image. A metadata store keeps the events; applying the same events in the
same order gives the same image on every broker.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from barnabas_broker.cluster.acls import AclCreated, AclDeleted, AclEvent, Acls, acl_difference
from barnabas_broker.cluster.producer_ids import advanced
from barnabas_broker.cluster.quotas import ClientQuotaRemoved, ClientQuotaSet, QuotaEvent, quota_difference
from barnabas_broker.cluster.users import ScramCredentialDeleted, ScramCredentialSet, ScramSecretSet, UserEvent, Users
from barnabas_broker.quotas.entities import Quotas

#: A broker's advertised host and port by listener name; at least one, in the order of the configuration.
Endpoints = Mapping[str, tuple[str, int]]
_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})
#: See :attr:`BrokerInfo.intact`.
NOT_INTACT: Final = (-1, -1)


class BrokerInfo(NamedTuple):
    """A registered broker.

    Attributes:
        node_id: of the broker.
        endpoints: its advertised addresses.
        rack: its rack, if configured.
        epoch: the broker epoch; each registration of a broker has another one.
        directory: the id of its data directory, empty in events of earlier versions.
        intact: the first and the last broker epoch of the earlier registrations since which the directory has lost
            nothing: the broker stopped cleanly, or did not stop; (-1, -1) if it did not stop cleanly.
    """

    node_id: int
    endpoints: Endpoints
    rack: str | None = None
    epoch: int = -1
    directory: str = ""
    intact: tuple[int, int] = NOT_INTACT

    @property
    def address(self) -> str:
        """HOST:PORT of the first listener, for messages."""
        return self.address_on("")

    def address_on(self, listener: str) -> str:
        """HOST:PORT of a listener, or of the first one if there is none of this name."""
        host, port = self.endpoints.get(listener) or next(iter(self.endpoints.values()))
        return f"{host}:{port}"


class FencedBroker(NamedTuple):
    """A broker that was registered.

    Attributes:
        info: its last registration.
        stopped: it was stopped, so it has all of its records when it returns; False if its lease has expired.
    """

    info: BrokerInfo
    stopped: bool = False


class LastKnown(NamedTuple):
    """A replica that was in sync, or eligible, and returned after an unclean stop or with another directory.

    Attributes:
        node_id: of its broker.
        directory: the id of the directory that had its records.
        epoch: the leader epoch of its last record, -1 for an empty log; see `end`.
        end: its log end offset after the unclean stop; -1 until it has reported that.
        damaged: its log has damage from `end` on.
    """

    node_id: int
    directory: str
    epoch: int = -1
    end: int = -1
    damaged: bool = False


class PartitionInfo(NamedTuple):
    """A partition: its leader and its replicas.

    Attributes:
        leader: node id of the leader, -1 for none.
        leader_epoch: grows with every new leader, and when a reassignment completes.
        replicas: node ids, the preferred leader first.
        isr: the in-sync replicas; without a leader, those that were in sync and may have lost nothing since.
        partition_epoch: grows with every change.
        adding: replicas that a reassignment adds.
        removing: replicas that it removes once the added ones are in sync.
        elr: the eligible leader replicas (KIP-966): not in sync, but they have all committed records, because the high
            watermark does not move while there are some.
        last_known: replicas that were in `isr` or `elr` and may have lost records since.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known: tuple[LastKnown, ...] = ()


class TopicInfo(NamedTuple):
    """A topic: its id (16 bytes, never zero), its partitions by index, its configuration overrides."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str] = _EMPTY


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker has registered, with these endpoints, this broker epoch and this data directory."""

    node_id: int
    endpoints: Endpoints
    rack: str | None = None
    epoch: int = -1
    directory: str = ""
    intact: tuple[int, int] = NOT_INTACT

    @classmethod
    def of(cls, info: BrokerInfo) -> "BrokerRegistered":
        """The event that adds this broker to an image."""
        return cls(*info)

    @property
    def info(self) -> BrokerInfo:
        """The broker as it is in the image."""
        return BrokerInfo(self.node_id, self.endpoints, self.rack, self.epoch, self.directory, self.intact)


@dataclass(frozen=True, slots=True)
class BrokerFenced:
    """A broker has lost its registration, or shuts down (`stopped`). Other events of the batch change its
    partitions."""

    node_id: int
    epoch: int
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """A broker has become the controller."""

    node_id: int


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """A partition has a new state."""

    name: str
    index: int
    partition: PartitionInfo


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic was created."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """Partitions were added to a topic."""

    name: str
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class TopicConfigured:
    """A topic has new configuration overrides."""

    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BrokerConfigured:
    """A broker ("" for all brokers) has a new dynamic configuration; one that is empty is forgotten."""

    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupConfigured:
    """A group has a new configuration; one that is empty is forgotten. The group need not exist."""

    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClientMetricsConfigured:
    """A subscription to the metrics of clients has a new configuration; one that is empty is forgotten."""

    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """Producer ids below `next_id` were allocated."""

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
    | GroupConfigured
    | ClientMetricsConfigured
    | ProducerIdsAllocated
    | UserEvent
    | AclEvent
    | QuotaEvent
)

#: The configurations by name that an image has, beside those of topics: the event about each, and its field.
CONFIGURED: Final[Mapping[type[BrokerConfigured | GroupConfigured | ClientMetricsConfigured], str]] = {
    BrokerConfigured: "broker_configs",
    GroupConfigured: "group_configs",
    ClientMetricsConfigured: "client_metrics",
}


class Image(NamedTuple):
    """The cluster after some events.

    Attributes:
        cluster_id: the cluster's id, 22 characters.
        controller_id: node id of the controller, -1 for none.
        brokers: registered brokers by node id.
        fenced: brokers that were registered, by node id.
        topics: by name.
        names: topic names by topic id.
        broker_configs: dynamic broker configurations by node id as text, "" for all brokers, without empty ones.
        group_configs: configurations of groups by group id, without empty ones.
        client_metrics: subscriptions to the metrics of clients by name, without empty ones.
        users: the users of SCRAM.
        acls: the ACLs.
        quotas: the quotas of users, clients and addresses, without entities that have none.
        next_producer_id: the first producer id that is not allocated.
    """

    cluster_id: str
    controller_id: int = -1
    brokers: Mapping[int, BrokerInfo] = _EMPTY
    fenced: Mapping[int, FencedBroker] = _EMPTY
    topics: Mapping[str, TopicInfo] = _EMPTY
    names: Mapping[bytes, str] = _EMPTY
    broker_configs: Mapping[str, Mapping[str, str]] = _EMPTY
    group_configs: Mapping[str, Mapping[str, str]] = _EMPTY
    client_metrics: Mapping[str, Mapping[str, str]] = _EMPTY
    users: Users = Users()
    acls: Acls = _EMPTY
    quotas: Quotas = _EMPTY
    next_producer_id: int = 0

    def apply(self, event: Event) -> "Image":
        """The image after `event`. An event of an unknown topic changes nothing."""
        return self.apply_all((event,))

    def apply_all(self, events: Iterable[Event]) -> "Image":
        """The image after `events`. Each map is copied once, however many events there are."""
        draft = _Draft(self)
        for event in events:
            draft.apply(event)
        return draft.finished()

    def snapshot(self) -> list[Event]:
        """Events that turn an empty image into this one."""
        events: list[Event] = []
        for node, broker in self.fenced.items():
            events += [BrokerRegistered.of(broker.info), BrokerFenced(node, broker.info.epoch, broker.stopped)]
        events += [BrokerRegistered.of(broker) for broker in self.brokers.values()]
        if self.controller_id >= 0:
            events.append(ControllerElected(self.controller_id))
        events += [TopicCreated(t.name, t.topic_id, t.partitions, t.configs) for t in self.topics.values()]
        for kind, place in CONFIGURED.items():
            events += [kind(name, configs) for name, configs in getattr(self, place).items()]
        events += self.users.events_from(Users())
        events += acl_difference({}, self.acls)
        events += quota_difference({}, self.quotas)
        events.append(ProducerIdsAllocated(self.next_producer_id))
        return events


class _Draft:
    """Builds an image: copies each map when it is first written, and keeps partitions as lists."""

    def __init__(self, base: Image) -> None:
        self._base = base
        self._changed: dict[str, Any] = {}
        self._partitions: dict[str, list[PartitionInfo]] = {}
        self._of_users: list[UserEvent] = []

    def _map(self, name: str) -> dict[Any, Any]:
        if name not in self._changed:
            # The view's own copy(): dict() of a view copies key by key.
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
                self._map("brokers")[event.node_id] = event.info
                if event.node_id in self._changed.get("fenced", self._base.fenced):
                    del self._map("fenced")[event.node_id]
            case BrokerFenced():
                known = self._changed.get("brokers", self._base.brokers).get(event.node_id)
                if known is not None and known.epoch == event.epoch:
                    del self._map("brokers")[event.node_id]
                    self._map("fenced")[event.node_id] = FencedBroker(known, event.stopped)
            case ControllerElected():
                self._changed["controller_id"] = event.node_id
            case BrokerConfigured() | GroupConfigured() | ClientMetricsConfigured():
                configured = self._map(CONFIGURED[type(event)])
                if event.configs:
                    configured[event.name] = MappingProxyType(dict(event.configs))
                else:
                    configured.pop(event.name, None)
            case ProducerIdsAllocated():
                known_id = self._changed.get("next_producer_id", self._base.next_producer_id)
                self._changed["next_producer_id"] = advanced(known_id, event.next_id)
            case ScramCredentialSet() | ScramCredentialDeleted() | ScramSecretSet():
                self._of_users.append(event)
            case AclCreated():
                self._map("acls")[event.binding] = None
            case AclDeleted():
                self._map("acls").pop(event.binding, None)
            case ClientQuotaSet() | ClientQuotaRemoved():
                self._quota(event)
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

    def _quota(self, event: QuotaEvent) -> None:
        quotas = self._map("quotas")
        values = dict(quotas.get(event.entity, _EMPTY))
        if isinstance(event, ClientQuotaSet):
            values[event.key] = event.value
        else:
            values.pop(event.key, None)
        if values:
            quotas[event.entity] = MappingProxyType(values)
        else:
            quotas.pop(event.entity, None)

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
        if self._of_users:
            self._changed["users"] = self._base.users.apply_all(self._of_users)
        for name, partitions in self._partitions.items():
            self._map("topics")[name] = self._map("topics")[name]._replace(partitions=tuple(partitions))
        changed: dict[str, Any] = {
            name: MappingProxyType(value) if isinstance(value, dict) else value for name, value in self._changed.items()
        }
        return self._base._replace(**changed) if changed else self._base
