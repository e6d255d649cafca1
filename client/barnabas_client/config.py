"""Settings of the client and their defaults, checked once when an object is made.

`Consumer`, `Producer` and `Admin` take them as keyword arguments and keep them as one of these frozen classes, which
the rest of the client reads. The defaults are stated here only: the signatures refer to them
(``ConsumerConfig.session_timeout_ms``), which is why these classes have no slots. Names and units are aiokafka's. A
value of the wrong type is a `TypeError`, one out of range a `ValueError`; both name the setting, the value and what
would be right. Sources: aiokafka's constructors; ``ConsumerConfig.java``, ``ProducerConfig.java``.
"""

import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas_client.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
)
from barnabas_protocol.records import Codec

DEFAULT_PORT: Final = 9092
DEFAULT_SERVERS: Final = "localhost:9092"

#: Bytes of a group's name: the keys of ``__consumer_offsets`` contain it as a string with a 16-bit length.
MAX_NAME_SIZE: Final = 32_767

#: Makes an object from the bytes of a record's key or value.
Deserializer = Callable[[bytes], Any]
#: Converts an object to the bytes of a record's key or value.
Serializer = Callable[[Any], bytes]
#: Chooses a partition. Arguments: the key's bytes or None, all partitions, the partitions that have a leader.
Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]

Address = tuple[str, int]


def parse_servers(servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Parse ``"host:port,host"``, or a list of such strings. The default port is 9092; IPv6 addresses are in brackets.

    Raises:
        TypeError: something else than strings.
        ValueError: no address, or an invalid one.
    """
    texts = [servers] if isinstance(servers, str) else list(servers) if isinstance(servers, Iterable) else [servers]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f'bootstrap_servers is {servers!r}: give "host:port" or a list of such strings')
    return tuple(_address(part.strip()) for text in texts for part in text.split(",") if part.strip()) or _no_server()


def _no_server() -> tuple[Address, ...]:
    raise ValueError('bootstrap_servers is empty: give at least one "host:port"')


def _address(text: str) -> Address:
    host, port = text, str(DEFAULT_PORT)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f'bootstrap_servers has {text!r}: an IPv6 address is written "[::1]:9092"')
        port = rest[1:] or port
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f'bootstrap_servers has {text!r}: give "host:port" with a port from 1 to 65535')
    return host, int(port)


def _integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}: give an integer")
    if value < least:
        raise ValueError(f"{name} is {value}: give at least {least}")


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}: give True or False")


def _one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}: give one of {', '.join(repr(one) for one in allowed)}")


def _callable_or_none(name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{name} is {value!r}: give a function")


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """The settings that consumer, producer and admin have in common.

    Attributes:
        servers: addresses to start with; the cluster names the others.
        client_id: the name of this client in the brokers' logs and in group member ids.
        request_timeout_ms: how long a response may take before the connection is closed.
        metadata_max_age_ms: how often metadata is refreshed when nothing else refreshes it.
        retry_backoff_ms: the pause before the first retry; it doubles up to `retry_backoff_max_ms` (KIP-580).
        connections_max_idle_ms: connections that are idle for so long are closed.
        ssl_context: for ``security_protocol="SSL"``; the default one if it is None.
    """

    servers: tuple[Address, ...]
    client_id: str = "barnabas"
    request_timeout_ms: int = 40_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    connections_max_idle_ms: int = 540_000
    security_protocol: str = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.client_id, str):
            raise TypeError(f"client_id is {self.client_id!r}: give a string")
        for name, least in _CLIENT_INTEGERS:
            _integer(name, getattr(self, name), least)
        _one_of("security_protocol", self.security_protocol, ("PLAINTEXT", "SSL"))
        if self.ssl_context is not None and self.security_protocol != "SSL":
            raise ValueError('ssl_context is given but security_protocol is not: give security_protocol="SSL" as well')

    @property
    def request_timeout(self) -> float:
        """`request_timeout_ms` in seconds."""
        return self.request_timeout_ms / 1000

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context of connections, None for plain text."""
        if self.security_protocol == "PLAINTEXT":
            return None
        return self.ssl_context or ssl.create_default_context()


_CLIENT_INTEGERS: Final = (
    ("request_timeout_ms", 1),
    ("metadata_max_age_ms", 1),
    ("retry_backoff_ms", 0),
    ("retry_backoff_max_ms", 0),
    ("connections_max_idle_ms", 1),
)


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """The settings of a consumer.

    Attributes:
        group_id: the group to join and to commit for; None reads without a group.
        group_instance_id: makes a static member (KIP-345): it may restart within its session without a rebalance.
        auto_offset_reset: where to start without a committed offset: "latest", "earliest", or "none" to raise.
        enable_auto_commit: commit what earlier polls returned, every `auto_commit_interval_ms`, when partitions are
            revoked and when the consumer stops.
        session_timeout_ms: the coordinator removes a member that sends no heartbeat for so long.
        heartbeat_interval_ms: the pause between heartbeats, at most a third of the session timeout. A thread of its own
            sends them, whatever the event loop does.
        max_poll_interval_ms: a consumer that does not poll for so long leaves its group.
        rebalance_timeout_ms: how long the group waits for this member to rejoin; None takes `max_poll_interval_ms`, as
            Kafka does.
        max_poll_records: at most so many records are returned by one poll.
        fetch_min_bytes: the broker answers a fetch when it has so many bytes, or after `fetch_max_wait_ms`.
        fetch_max_bytes: the limit of one fetch response, and of what is fetched ahead for all partitions.
        max_partition_fetch_bytes: the limit for a partition in one fetch response, and of what is fetched ahead for it.
        isolation_level: "read_uncommitted", or "read_committed" to leave out records of open and aborted transactions.
        check_crcs: verify the checksum of each batch.
        client_rack: where this client is, so that it may fetch from a near replica (KIP-392).
        partition_assignment_strategy: assignors, the preferred one first. They run on the thread of the heartbeats.
        key_deserializer: makes an object from a key; null stays None.
        value_deserializer: makes an object from a value; null stays None.
        exclude_internal_topics: whether a pattern leaves out topics such as ``__consumer_offsets``.
        close_timeout_ms: how long `stop` may take to commit and leave.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    auto_offset_reset: str = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    rebalance_timeout_ms: int | None = None
    max_poll_records: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1_048_576
    isolation_level: str = "read_uncommitted"
    check_crcs: bool = True
    client_rack: str = ""
    partition_assignment_strategy: Sequence[Assignor] = field(default_factory=lambda: default_assignors())
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    exclude_internal_topics: bool = True
    close_timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        for name, least in _CONSUMER_INTEGERS:
            _integer(name, getattr(self, name), least)
        for name in ("enable_auto_commit", "check_crcs", "exclude_internal_topics"):
            _flag(name, getattr(self, name))
        if self.rebalance_timeout_ms is not None:
            _integer("rebalance_timeout_ms", self.rebalance_timeout_ms, 1)
        for name in ("group_id", "group_instance_id"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ValueError(f"{name} is {value!r}: give a name, or None")
            if value is not None and len(value.encode(errors="replace")) > MAX_NAME_SIZE:
                raise ValueError(f"{name} has {len(value)} characters: give at most {MAX_NAME_SIZE} bytes")
        if self.group_instance_id is not None and self.group_id is None:
            raise ValueError("group_instance_id is given without group_id: give both")
        _one_of("auto_offset_reset", self.auto_offset_reset, ("latest", "earliest", "none"))
        _one_of("isolation_level", self.isolation_level, ("read_uncommitted", "read_committed"))
        _callable_or_none("key_deserializer", self.key_deserializer)
        _callable_or_none("value_deserializer", self.value_deserializer)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms {self.heartbeat_interval_ms} is not below session_timeout_ms "
                f"{self.session_timeout_ms}: give at most a third of it, so that one lost heartbeat does not "
                "end the session"
            )
        self._check_assignors()

    def _check_assignors(self) -> None:
        given = self.partition_assignment_strategy
        if not isinstance(given, Sequence) or not all(hasattr(one, "assign") for one in given):
            raise TypeError(
                f"partition_assignment_strategy is {given!r}: give a list of assignors, such as [RangeAssignor()]"
            )
        names = [assignor.name for assignor in given]
        if not names:
            raise ValueError("partition_assignment_strategy is empty: give at least one assignor")
        if len(set(names)) != len(names):
            raise ValueError(f"partition_assignment_strategy has a name twice, {names}: give each assignor once")
        if not common_protocols(self.partition_assignment_strategy):
            raise ValueError(
                f"partition_assignment_strategy {names} mixes eager and cooperative assignors: give assignors with a "
                f"common rebalance protocol"
            )

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.isolation_level == "read_committed"


def default_assignors() -> tuple[Assignor, ...]:
    """As in Kafka: range, which rebalances eagerly, and cooperative-sticky, for a group that moves to it member by
    member (KIP-429). Between them round-robin, aiokafka's default, so that members of both clients can form a
    group."""
    return RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor()


def common_protocols(assignors: Sequence[Assignor]) -> frozenset[RebalanceProtocol]:
    """Return the rebalance protocols that all `assignors` support."""
    return frozenset.intersection(*(assignor.protocols for assignor in assignors))


_CONSUMER_INTEGERS: Final = (
    ("auto_commit_interval_ms", 1),
    ("session_timeout_ms", 1),
    ("heartbeat_interval_ms", 1),
    ("max_poll_interval_ms", 1),
    ("max_poll_records", 1),
    ("fetch_min_bytes", 0),
    ("fetch_max_bytes", 1),
    ("fetch_max_wait_ms", 0),
    ("max_partition_fetch_bytes", 1),
    ("close_timeout_ms", 0),
)


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """The settings of a producer.

    Attributes:
        acks: when a record counts as written: "all" (or -1) in all in-sync replicas, 1 on the leader, 0 when it was
            sent. None means "all".
        enable_idempotence: the broker drops duplicates and keeps the order, through any retry. None: on with
            ``acks="all"``.
        compression_type: None, "gzip", "snappy", "lz4" or "zstd".
        batch_size: bytes of records that fit into one batch before it is compressed.
        linger_ms: how long a batch that is not full waits for more records.
        max_request_size: the limit of one request in bytes, and so of one record.
        buffer_memory: bytes of records that may wait for their acknowledgement; `send` waits when there are more.
        max_block_ms: how long `send` may wait for room and for the topic's partitions.
        delivery_timeout_ms: the time from `send` to the acknowledgement, retries included.
        partitioner: chooses partitions instead of Kafka's default partitioner.
        key_serializer: makes a key's bytes.
        value_serializer: makes a value's bytes.
    """

    acks: int | str | None = None
    enable_idempotence: bool | None = None
    compression_type: str | None = None
    batch_size: int = 16_384
    linger_ms: int = 0
    max_request_size: int = 1_048_576
    buffer_memory: int = 33_554_432
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    partitioner: Partitioner | None = None
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None

    def __post_init__(self) -> None:
        for name, least in _PRODUCER_INTEGERS:
            _integer(name, getattr(self, name), least)
        if self.acks is not None:
            _one_of("acks", self.acks, ("all", -1, 0, 1))
        if self.enable_idempotence and self.required_acks != -1:
            raise ValueError(f'enable_idempotence is on with acks={self.acks!r}: give acks="all" or switch it off')
        _one_of("compression_type", self.compression_type, (None, "none", "gzip", "snappy", "lz4", "zstd"))
        for name in ("partitioner", "key_serializer", "value_serializer"):
            _callable_or_none(name, getattr(self, name))

    @property
    def required_acks(self) -> int:
        """`acks` as in a Produce request: -1, 0 or 1."""
        return self.acks if isinstance(self.acks, int) else -1

    @property
    def idempotent(self) -> bool:
        """Whether batches carry a producer id and sequence numbers."""
        return self.required_acks == -1 if self.enable_idempotence is None else self.enable_idempotence

    @property
    def codec(self) -> Codec:
        """`compression_type` as a codec."""
        return Codec.of(self.compression_type or "none")


_PRODUCER_INTEGERS: Final = (
    ("batch_size", 1),
    ("linger_ms", 0),
    ("max_request_size", 1),
    ("buffer_memory", 1),
    ("max_block_ms", 0),
    ("delivery_timeout_ms", 1),
)
