"""The arguments and results of the admin client.

A result has an `error`, which is None if the operation succeeded for its item. Codes are Kafka's
(``ConfigEntry.java``, ``ConfigResource.java``, ``AlterConfigOp.java``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Self

from barnabas_client.network.metadata import Node
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import KafkaError


class _Codes(IntEnum):
    """Codes of which newer brokers may have more; an unknown code is UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls(0) if isinstance(value, int) and value and 0 in cls._value2member_map_ else None


class OffsetSpec(IntEnum):
    """An offset to look up, other than by time."""

    LATEST = -1
    EARLIEST = -2
    #: The record with the newest timestamp, which may not be the last record (KIP-734; Kafka 3.0 and later).
    MAX_TIMESTAMP = -3


class ResourceType(_Codes):
    """The type of a resource that has a configuration."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(_Codes):
    """The source of a configured value."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(_Codes):
    """The type of a key's value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigOp(IntEnum):
    """A change of a configuration key; APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """A resource that has a configuration: a topic by name, or a broker by id, with "" for all brokers."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        """Create the resource of a topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None) -> Self:
        """Create the resource of a broker; None for the default of all brokers."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name!r}"


class AlterConfigOp(NamedTuple):
    """A change of one configuration key."""

    name: str
    value: str | None = None
    op: ConfigOp = ConfigOp.SET


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Attributes:
        name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'.
        num_partitions: -1 for the broker's default.
        replication_factor: -1 for the broker's default.
        replica_assignments: for each partition the node ids of its replicas, instead of the two numbers.
        topic_configs: configuration keys, such as ``{"retention.ms": "60000"}``.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    topic_configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The result of an operation on a topic.

    `topic_id` is all zero, and the numbers are -1, if the response does not have them.
    """

    name: str
    error: KafkaError | None = None
    topic_id: bytes = bytes(16)
    num_partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The result of a change to the committed offset of a partition."""

    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The log start offset of a partition after the deletion of records; -1 if the deletion failed."""

    low_watermark: int = -1
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """The result of looking up an offset: -1 if there is no record at or after the given time."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1
    error: KafkaError | None = None


class ConfigSynonym(NamedTuple):
    """A key whose value applies if a value is removed."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A configured value.

    Attributes:
        name: Kafka's key.
        value: None if it is sensitive.
        source: where the value comes from.
        read_only: whether it can only be changed by a restart of the broker.
        is_sensitive: whether it is a secret, such as a password.
        type: of the value.
        synonyms: the values that apply if it is removed, most specific first; empty unless requested.
        documentation: of the key; empty unless requested.
    """

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN
    read_only: bool = False
    is_sensitive: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str = ""

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class ConfigResult:
    """The configuration of a resource, or the result of a change to it, without `entries`."""

    resource: ConfigResource
    error: KafkaError | None = None
    entries: Mapping[str, ConfigEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list. State and type are "" if the broker is too old to have them in its response."""

    group_id: str
    protocol_type: str = ""
    state: str = ""
    type: str = ""

    @property
    def is_simple(self) -> bool:
        """Whether the group has only committed offsets and never had members."""
        return not self.protocol_type


class GroupListings(list[GroupListing]):
    """Groups, and in `errors` the errors of brokers whose groups are missing."""

    def __init__(self, groups: Iterable[GroupListing] = (), errors: Iterable[KafkaError] = ()) -> None:
        super().__init__(groups)
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    Attributes:
        member_id: its member id.
        instance_id: the group instance id of a static member (KIP-345), else None.
        client_id: the `client_id` of its client.
        host: the address of its client as the broker writes it: "/127.0.0.1".
        partitions: its assignment, ascending; empty during a rebalance, and if the members are not consumers.
        topics: its subscription; empty if it cannot be decoded.
        metadata: its subscription as bytes.
        assignment: its assignment as bytes.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    metadata: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group.

    Attributes:
        group_id: its name.
        error: why it cannot be described; GROUP_ID_NOT_FOUND if it does not exist.
        state: "Stable", "Empty", "PreparingRebalance", "CompletingRebalance" or "Dead".
        protocol_type: "consumer" if the members are consumers.
        protocol: the name of the assignor.
        members: sorted by client id and member id.
        coordinator: the broker that coordinates it.
    """

    group_id: str
    error: KafkaError | None = None
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = ()
    coordinator: Node | None = None


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The result of an operation on a group."""

    group_id: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A committed offset of a group for a partition; `offset` is None if none is committed."""

    offset: int | None = None
    metadata: str = ""
    leader_epoch: int = -1
    error: KafkaError | None = None
