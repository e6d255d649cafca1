"""What the admin client takes and what it hands out.

A call about several things answers for each of them: a result has an `error`, None where all went well, beside what was
asked for. Codes are Kafka's own (``ConfigEntry.java``, ``ConfigResource.java``, ``AlterConfigOp.java``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Self

from barnabas_client.network.metadata import Broker
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import KafkaError


class _Codes(IntEnum):
    """A list of codes that brokers may add to."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls(0) if isinstance(value, int) and value and 0 in cls._value2member_map_ else None


class OffsetSpec(IntEnum):
    """What to look up instead of a time."""

    LATEST = -1
    EARLIEST = -2
    #: The record with the newest timestamp, which need not be the last one (KIP-734; Kafka 3.0 and later).
    MAX_TIMESTAMP = -3


class ResourceType(_Codes):
    """What has a configuration."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(_Codes):
    """Where a configured value comes from."""

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
    """What kind of value a key takes."""

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
    """How a configuration key is changed; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """Something with a configuration: a topic by name, a broker by its id, "" for all brokers."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        """A topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None) -> Self:
        """A broker; None for the default of all brokers."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name!r}"


class AlterConfigOp(NamedTuple):
    """A change of one key."""

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
        replica_assignments: for each partition the brokers that hold it, instead of the two numbers.
        topic_configs: Kafka's keys, such as ``{"retention.ms": "60000"}``.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    topic_configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicResult:
    """What became of a topic. `topic_id` is all zero, and the numbers are -1, where the broker does not tell."""

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
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What became of a change to a partition's offset."""

    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """A partition's first offset after records before it were deleted; -1 if that failed."""

    low_watermark: int = -1
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset that was looked up: -1 if there is no record at or after the time that was asked for."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1
    error: KafkaError | None = None


class ConfigSynonym(NamedTuple):
    """A key that a value falls back on."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A configured value.

    Attributes:
        name: Kafka's key.
        value: None where it is sensitive and therefore not told.
        source: where it comes from.
        read_only: whether it stays until the broker restarts.
        is_sensitive: whether it is a secret.
        type: what kind of value it is.
        synonyms: what holds if it is taken away, most specific first; empty unless asked for.
        documentation: empty unless asked for.
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
        """Whether nobody set it."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class ConfigResult:
    """A configuration, or what became of a change to it, which leaves `entries` empty."""

    resource: ConfigResource
    error: KafkaError | None = None
    entries: Mapping[str, ConfigEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list. State and type are "" where the broker is too old to tell."""

    group_id: str
    protocol_type: str = ""
    state: str = ""
    type: str = ""

    @property
    def is_simple(self) -> bool:
        """Whether nobody joined it: it only keeps offsets."""
        return not self.protocol_type


class GroupListings(list[GroupListing]):
    """Groups, and in `errors` what stood in the way of the rest: each broker knows those that it coordinates."""

    def __init__(self, groups: Iterable[GroupListing] = (), errors: Iterable[KafkaError] = ()) -> None:
        super().__init__(groups)
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    Attributes:
        member_id: given by the coordinator.
        instance_id: of a static member (KIP-345).
        client_id: the name that its client gave itself.
        host: where it connected from, as the broker writes it: "/127.0.0.1".
        partitions: its share, ascending; empty during a rebalance, and in groups that are not of consumers.
        topics: what it subscribes to, where that can be read.
        metadata: what it told the group, as bytes.
        assignment: its share as bytes.
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
        error: why it cannot be described; a group that there is not is GROUP_ID_NOT_FOUND.
        state: "Stable", "Empty", "PreparingRebalance", "CompletingRebalance" or "Dead".
        protocol_type: "consumer" for consumers.
        protocol: the assignor that was chosen.
        members: by client id and member id.
        coordinator: the broker that keeps it.
    """

    group_id: str
    error: KafkaError | None = None
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = ()
    coordinator: Broker | None = None


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What became of a group."""

    group_id: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """What a group has committed for a partition: `offset` is None where it has not."""

    offset: int | None = None
    metadata: str = ""
    leader_epoch: int = -1
    error: KafkaError | None = None
