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


class ElectionType(IntEnum):
    """Which replica an election makes the leader."""

    #: The first replica of the partition, if it is in sync.
    PREFERRED = 0
    #: Any live replica, if no in-sync replica is live; records that it does not have are lost (KIP-460).
    UNCLEAN = 1


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
    """A resource that has a configuration.

    Attributes:
        type: what it is.
        name: of a topic or group; the id of a broker, "" for the default of all brokers.
    """

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

    @classmethod
    def group(cls, group_id: str) -> Self:
        """Create the resource of a group, which need not exist."""
        return cls(ResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> Self:
        """Create the resource of a subscription to metrics that clients push (KIP-714), which need not exist."""
        return cls(ResourceType.CLIENT_METRICS, name)

    def __str__(self) -> str:
        return f"{self.type.name.lower().replace('_', ' ')} {self.name!r}"


class AlterConfigOp(NamedTuple):
    """A change of one configuration key.

    Attributes:
        name: Kafka's key.
        value: the new value, or the items to append or subtract, separated by commas. Default: None, for a deletion.
        op: what to do. Default: ConfigOp.SET.
    """

    name: str
    value: str | None = None
    op: ConfigOp = ConfigOp.SET


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Attributes:
        name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'.
        num_partitions: the number of partitions. Default: -1 partitions, which is the broker's default.
        replication_factor: the number of replicas of each partition. Default: -1 replicas, which is the broker's
            default.
        replica_assignments: for each partition the node ids of its replicas, instead of the two numbers. Default: {}.
        topic_configs: configuration keys, such as ``{"retention.ms": "60000"}``. Default: {}.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    topic_configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The result of an operation on a topic.

    Attributes:
        name: of the topic.
        error: None if the operation succeeded.
        topic_id: 16 bytes; all zero if the response does not have it.
        num_partitions: the number of partitions; -1 if the response does not have it.
        replication_factor: the number of replicas of each partition; -1 if the response does not have it.
        configs: the configuration of a created topic, all keys of it; empty if the response does not have it.
    """

    name: str
    error: KafkaError | None = None
    topic_id: bytes = bytes(16)
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster.

    Attributes:
        cluster_id: its id.
        controller_id: the node id of the controller; -1 if there is none.
        brokers: the live brokers.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class EligibleLeaders:
    """The replicas outside of the ISR that may lead a partition (KIP-966).

    Attributes:
        eligible: the node ids of the replicas that have all committed records.
        last_known: those of the replicas that had them, and may have lost some since.
    """

    eligible: tuple[int, ...]
    last_known: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition whose replicas are being moved (KIP-455).

    Attributes:
        replicas: the node ids of all its replicas, those included that are added or removed.
        adding: those that are added.
        removing: those that are removed when the added ones are in sync.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogDir:
    """A directory with logs of a broker.

    Attributes:
        path: on the broker's machine.
        error: None if the directory can be used.
        sizes: the bytes of each partition in it.
        total_bytes: the size of its disk; -1 if the broker is too old to have it in its response.
        usable_bytes: the free bytes of its disk; -1 if the broker is too old to have it in its response.
    """

    path: str
    error: KafkaError | None
    sizes: Mapping[TopicPartition, int]
    total_bytes: int = -1
    usable_bytes: int = -1


@dataclass(frozen=True, slots=True)
class BrokerLogDirs:
    """The log directories of a broker.

    Attributes:
        node_id: the broker.
        error: None if the broker answered.
        log_dirs: its directories.
    """

    node_id: int
    error: KafkaError | None = None
    log_dirs: tuple[LogDir, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerCondition:
    """Something that a broker cannot do now.

    Attributes:
        name: a word for programs, such as "disk_full".
        text: what is not possible, why, and what to do.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class BrokerConditions:
    """The conditions of a broker: what is not possible there now.

    Attributes:
        node_id: the broker.
        error: None if the broker answered.
        conditions: none if it can do everything, or is not a Barnabas broker.
    """

    node_id: int
    error: KafkaError | None = None
    conditions: tuple[BrokerCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The result of a change to a partition: to its replicas, its leader, or a committed offset.

    Attributes:
        error: None if the change succeeded.
    """

    error: KafkaError | None = None


PartitionResults = dict[TopicPartition, PartitionResult]


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The result of deleting records of a partition.

    Attributes:
        low_watermark: the log start offset after the deletion; -1 if it failed.
        error: None if the deletion succeeded.
    """

    low_watermark: int = -1
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """The result of looking up an offset.

    Attributes:
        offset: -1 if there is no record at or after the given time.
        timestamp: of the record there, in milliseconds since 1970; -1 if it was not looked up by time.
        leader_epoch: of the record there; -1 if it is not known.
        error: None if the look-up succeeded.
    """

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1
    error: KafkaError | None = None


class ConfigSynonym(NamedTuple):
    """A key whose value applies if a value is removed.

    Attributes:
        name: Kafka's key.
        value: None if it is sensitive.
        source: where the value comes from.
    """

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
    """The configuration of a resource, or the result of a change to it.

    Attributes:
        resource: the resource.
        error: None if the operation succeeded.
        entries: the configured values by key; empty after a change.
    """

    resource: ConfigResource
    error: KafkaError | None = None
    entries: Mapping[str, ConfigEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list.

    Attributes:
        group_id: its name.
        protocol_type: "consumer" if its members are consumers, "share" for share groups; "" if it never had members.
        state: such as "Stable" or "Empty"; "" if the broker is too old to have it in its response.
        type: "classic", "consumer" or "share"; "" if the broker is too old to have it in its response.
    """

    group_id: str
    protocol_type: str = ""
    state: str = ""
    type: str = ""

    @property
    def is_simple(self) -> bool:
        """Whether the group has only committed offsets and never had members."""
        return not self.protocol_type


class GroupListings(list[GroupListing]):
    """A list of groups.

    Attributes:
        groups: what the list begins with.
        errors: the errors of brokers whose groups are missing.
    """

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
        epoch: in a group of the consumer protocol, or a share group, its member epoch, else None.
        target: in a group of the consumer protocol the partitions that it will have, ascending, else None.
        regex: in a group of the consumer protocol the regular expression with which it subscribes, else "".
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    metadata: bytes = b""
    assignment: bytes = b""
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    regex: str = ""

    @property
    def to_revoke(self) -> tuple[TopicPartition, ...]:
        """The partitions that it has and that are not in its target."""
        return () if self.target is None else tuple(tp for tp in self.partitions if tp not in self.target)

    @property
    def to_get(self) -> tuple[TopicPartition, ...]:
        """The partitions of its target that it does not have yet."""
        return () if self.target is None else tuple(tp for tp in self.target if tp not in self.partitions)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group.

    Attributes:
        group_id: its name.
        error: why it cannot be described; GROUP_ID_NOT_FOUND if it does not exist.
        state: "Stable", "Empty" or "Dead"; else "PreparingRebalance" or "CompletingRebalance", and in the consumer
            protocol "Assigning" or "Reconciling".
        protocol_type: "consumer" if the members are consumers, "share" for share groups.
        protocol: the name of the assignor.
        members: sorted by client id and member id.
        coordinator: the broker that coordinates it.
        epoch: of a group of the consumer protocol (KIP-848), or a share group (KIP-932), the group epoch, else None.
        assignment_epoch: of such a group the epoch of its target assignment, else None.
    """

    group_id: str
    error: KafkaError | None = None
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = ()
    coordinator: Node | None = None
    epoch: int | None = None
    assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The result of an operation on a group.

    Attributes:
        group_id: its name.
        error: None if the operation succeeded.
    """

    group_id: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class MemberResult:
    """The result of an operation on a member of a group.

    Attributes:
        member: its member id, or its group.instance.id, as it was given.
        error: None if the operation succeeded.
    """

    member: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A committed offset of a group for a partition.

    Attributes:
        offset: of the next record to read; None if none is committed.
        metadata: a text that is stored with it.
        leader_epoch: of the last record that was read, -1 if it is not known (KIP-320).
        error: None if the look-up succeeded.
    """

    offset: int | None = None
    metadata: str = ""
    leader_epoch: int = -1
    error: KafkaError | None = None


Offsets = dict[TopicPartition, GroupOffset]


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """The window of a share group in a partition (KIP-932).

    Attributes:
        start_offset: of the first record whose delivery is not complete; None if the group has not begun.
        lag: the records from there on whose delivery is not complete; None if it is not known.
        leader_epoch: of the leader that wrote it last.
        error: None if the look-up succeeded.
    """

    start_offset: int | None = None
    lag: int | None = None
    leader_epoch: int = -1
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, from a list of them.

    Attributes:
        transactional_id: the name of a producer's transactions.
        producer_id: of that producer.
        state: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
            "PrepareEpochFence" or "Dead".
        coordinator_id: the node id of the broker that coordinates it.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


class TransactionListings(list[TransactionListing]):
    """A list of transactional ids.

    Attributes:
        transactions: what the list begins with.
        errors: the errors of brokers whose transactions are missing.
    """

    def __init__(self, transactions: Iterable[TransactionListing] = (), errors: Iterable[KafkaError] = ()) -> None:
        super().__init__(transactions)
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its transaction.

    Attributes:
        transactional_id: the name of a producer's transactions.
        error: why it cannot be described; TRANSACTIONAL_ID_NOT_FOUND if the coordinator does not know it.
        state: see :class:`TransactionListing`.
        producer_id: of the producer; -1 with an error.
        producer_epoch: of the producer id; -1 with an error.
        timeout_ms: after which the coordinator aborts the transaction, in milliseconds.
        start_time_ms: of the transaction, in milliseconds since 1970; None if there is none.
        partitions: of the transaction.
        coordinator_id: the node id of the broker that coordinates it; -1 with an error.
    """

    transactional_id: str
    error: KafkaError | None = None
    state: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    timeout_ms: int = -1
    start_time_ms: int | None = None
    partitions: tuple[TopicPartition, ...] = ()
    coordinator_id: int = -1


@dataclass(frozen=True, slots=True)
class PartitionProducer:
    """A producer that a partition remembers.

    Attributes:
        producer_id: of the producer.
        producer_epoch: of the producer id.
        last_sequence: the sequence number of its last record, -1 if there is none.
        last_timestamp_ms: of its last batch, in milliseconds since 1970.
        coordinator_epoch: of its last marker, -1 if there is none.
        transaction_start_offset: the first offset of its open transaction; None if there is none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class PartitionProducers:
    """The producers that a partition remembers.

    Attributes:
        producers: by producer id ascending.
        error: None if the look-up succeeded.
    """

    producers: tuple[PartitionProducer, ...] = ()
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The result of fencing the producer of a transactional id.

    Attributes:
        transactional_id: the name of the producer's transactions.
        producer_id: of the producer; -1 with an error.
        producer_epoch: the new epoch, which no producer has; -1 with an error.
        error: None if it succeeded.
    """

    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1
    error: KafkaError | None = None
