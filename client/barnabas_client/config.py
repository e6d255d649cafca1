"""Settings of the client and their defaults, checked once when an object is made.

`Consumer`, `Producer` and `Admin` take them as keyword arguments, whose docstrings describe them, and keep them as one
of these classes, which the rest of the client reads. Those of producers and share consumers are in
:mod:`barnabas_client.producer.config` and :mod:`barnabas_client.shares.config`, which a consumer does not import. The
defaults are stated in these classes only: the signatures refer to them (``ConsumerConfig.session_timeout_ms``). Names
and units are aiokafka's. A value of the wrong type is a `TypeError`, one out of range a `ValueError`; both name the
setting, the value and what would be right. Sources: aiokafka's constructors; ``ConsumerConfig.java``,
``ProducerConfig.java``.
"""

import os
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import count
from typing import Any, Final, Literal, TypedDict, TypeVar, get_args

from barnabas_client.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
)
from barnabas_client.keywords import Settings
from barnabas_client.serialization import SerializationContext
from barnabas_client.tokens import Login, TokenProvider
from barnabas_protocol.wire import Buffer

DEFAULT_PORT: Final = 9092
DEFAULT_SERVERS: Final = "localhost:9092"

#: Bytes of the name of a group or of a producer's transactions: the keys of ``__consumer_offsets`` and
#: ``__transaction_state`` contain it as a string with a 16-bit length.
MAX_NAME_SIZE: Final = 32_767

T = TypeVar("T")

#: Makes an object from the bytes of a record's key or value. It is not called for null, which stays None.
Deserializer = Callable[[bytes], T]
#: The same, as a coroutine function.
AsyncDeserializer = Callable[[bytes], Awaitable[T]]
#: The same, with a context, see :mod:`barnabas_client.serialization`; it may be a coroutine function.
ContextDeserializer = Callable[[bytes, SerializationContext], Awaitable[T]] | Callable[[bytes, SerializationContext], T]
#: Converts an object to the bytes of a record's key or value. It is not called for None, which becomes null.
Serializer = Callable[[T], Buffer]
#: The same, with a context, or as a coroutine function.
ContextSerializer = (
    Callable[[T, SerializationContext], Buffer | None]
    | Callable[[T, SerializationContext], Awaitable[Buffer | None]]
    | Callable[[T], Awaitable[Buffer | None]]
)
#: Chooses a partition. Arguments: the key's bytes or None, all partitions, the partitions that have a leader.
Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]

AutoOffsetReset = Literal["latest", "earliest", "none"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
GroupProtocol = Literal["classic", "consumer"]
ShareAcknowledgementMode = Literal["implicit", "explicit"]
ShareAcquireMode = Literal["batch_optimized", "record_limit"]
Acks = Literal["all", -1, 0, 1]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

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


_numbers: Final = defaultdict[str, Iterator[int]](lambda: count(1))


def default_client_id(kind: str = "") -> str:
    """Make a client id that no other client of this host has: with `kind`, the process id, and a number from the second
    client of a kind on."""
    name, number = f"{ClientConfig.client_id}{kind}-{os.getpid()}", next(_numbers[kind])
    return name if number == 1 else f"{name}-{number}"


def check_integer(name: str, value: object, least: int) -> None:
    """Refuse the value of a setting that is not an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}: give an integer")
    if value < least:
        raise ValueError(f"{name} is {value}: give at least {least}")


def check_flag(name: str, value: object) -> None:
    """Refuse the value of a setting that is neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}: give True or False")


def check_one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    """Refuse the value of a setting that is none of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}: give one of {', '.join(repr(one) for one in allowed)}")


def check_name(name: str, value: object, remedy: str) -> None:
    """Refuse the value of a setting that is not the name of a group, or of a producer's transactions. `remedy`: the
    advice for a value that is not a name at all."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r}: {remedy}")
    if len(value.encode(errors="replace")) > MAX_NAME_SIZE:
        raise ValueError(f"{name} has {len(value)} characters: give at most {MAX_NAME_SIZE} bytes")


def check_callable_or_none(name: str, value: object) -> None:
    """Refuse the value of a setting that is neither a function nor None."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} is {value!r}: give a function")


class ClientConfig(Settings):
    """The settings that consumer, producer and admin have in common. `servers` are addresses to start with."""

    servers: tuple[Address, ...]
    client_id: str = "barnabas"
    request_timeout_ms: int = 40_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    connections_max_idle_ms: int = 540_000
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = None
    ssl_check_hostname: bool = True
    sasl_mechanism: SaslMechanism = "PLAIN"
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = None
    sasl_oauth_token_provider: TokenProvider | None = None

    def check(self) -> None:
        if not isinstance(self.client_id, str):
            raise TypeError(f"client_id is {self.client_id!r}: give a string")
        for name, least in _CLIENT_INTEGERS:
            check_integer(name, getattr(self, name), least)
        check_one_of("security_protocol", self.security_protocol, get_args(SecurityProtocol))
        check_flag("ssl_check_hostname", self.ssl_check_hostname)
        given = [name for name in TLS_SETTINGS if getattr(self, name) != getattr(ClientConfig, name)]
        if given and self.security_protocol not in ("SSL", "SASL_SSL"):
            raise ValueError(
                f'{given[0]} is given but security_protocol is not: give security_protocol="SSL" as well, or "SASL_SSL"'
            )
        if self.ssl_context is not None and len(given) > 1:
            raise ValueError(f"{given[1]} is given with ssl_context: give one of them")
        if self.ssl_certfile is None and (self.ssl_keyfile is not None or self.ssl_password is not None):
            raise ValueError("ssl_keyfile or ssl_password is given without ssl_certfile: give both")
        self._check_login()
        # Files that cannot be used are an error of the constructor, not of the first connection.
        self.tls  # noqa: B018

    def _check_login(self) -> None:
        check_one_of("sasl_mechanism", self.sasl_mechanism, get_args(SaslMechanism))
        given = (self.sasl_plain_username, self.sasl_plain_password)
        provider = self.sasl_oauth_token_provider
        if provider is not None and not callable(getattr(provider, "token", None)):
            raise TypeError(f"sasl_oauth_token_provider is {provider!r}: give an object with an async method token()")
        if self.security_protocol not in ("SASL_PLAINTEXT", "SASL_SSL"):
            if given != (None, None):
                raise ValueError(
                    "sasl_plain_username or sasl_plain_password is given but security_protocol is not: give "
                    'security_protocol="SASL_SSL" as well'
                )
            if provider is not None:
                raise ValueError(
                    "sasl_oauth_token_provider is given but security_protocol is not: give "
                    'security_protocol="SASL_SSL" as well'
                )
        elif self.sasl_mechanism == "OAUTHBEARER":
            if given != (None, None):
                raise ValueError(
                    'sasl_plain_username or sasl_plain_password is given with sasl_mechanism="OAUTHBEARER": leave it '
                    "out, the token has the user"
                )
            if provider is None:
                raise ValueError('sasl_oauth_token_provider is needed with sasl_mechanism="OAUTHBEARER": give one')
        elif provider is not None:
            raise ValueError(
                f"sasl_oauth_token_provider is given with sasl_mechanism={self.sasl_mechanism!r}: give "
                'sasl_mechanism="OAUTHBEARER" as well'
            )
        elif not all(isinstance(one, str) and one and "\0" not in one for one in given):
            raise ValueError("sasl_plain_username and sasl_plain_password are needed: give both, without zero bytes")

    @property
    def login(self) -> Login | None:
        """How to log in; None without SASL."""
        if self.sasl_oauth_token_provider is not None:
            return Login(self.sasl_mechanism, tokens=self.sasl_oauth_token_provider)
        if self.sasl_plain_username is None or self.sasl_plain_password is None:
            return None
        return Login(self.sasl_mechanism, self.sasl_plain_username, self.sasl_plain_password)

    @property
    def request_timeout(self) -> float:
        """`request_timeout_ms` in seconds."""
        return self.request_timeout_ms / 1000

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context of connections, None for plain text.

        Raises:
            ValueError: a file cannot be used.
        """
        if self.security_protocol not in ("SSL", "SASL_SSL") or self.ssl_context is not None:
            return self.ssl_context
        setting = "ssl_cafile"
        try:
            context = ssl.create_default_context(cafile=self.ssl_cafile)
            context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
            context.check_hostname = self.ssl_check_hostname
            setting = "ssl_certfile"
            if self.ssl_certfile is not None:
                # A function, because OpenSSL would otherwise ask for a password at the terminal.
                context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, lambda: self.ssl_password or "")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise ValueError(
                f"{setting} is {getattr(self, setting)!r}, which cannot be used ({reason}): give a PEM file"
                + (", and ssl_password if its key is encrypted" if setting == "ssl_certfile" else "")
            ) from error
        return context


#: The settings that only TLS has.
TLS_SETTINGS: Final = (
    "ssl_context",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_check_hostname",
)

_CLIENT_INTEGERS: Final = (
    ("request_timeout_ms", 1),
    ("metadata_max_age_ms", 1),
    ("retry_backoff_ms", 0),
    ("retry_backoff_max_ms", 0),
    ("connections_max_idle_ms", 1),
)


class ConsumerConfig(Settings):
    """The settings of a :class:`~barnabas_client.consumer.consumer.Consumer`, which describes them."""

    group_id: str | None = None
    group_instance_id: str | None = None
    auto_offset_reset: AutoOffsetReset = "latest"
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
    isolation_level: IsolationLevel = "read_uncommitted"
    check_crcs: bool = True
    client_rack: str = ""
    partition_assignment_strategy: Sequence[Assignor] = ()
    key_deserializer: Callable[..., Any] | None = None
    value_deserializer: Callable[..., Any] | None = None
    exclude_internal_topics: bool = True
    close_timeout_ms: int = 10_000
    group_protocol: GroupProtocol = "classic"
    group_remote_assignor: str | None = None

    def check(self) -> None:
        if "partition_assignment_strategy" not in vars(self):
            self.partition_assignment_strategy = default_assignors()
        for name, least in _CONSUMER_INTEGERS:
            check_integer(name, getattr(self, name), least)
        for name in ("enable_auto_commit", "check_crcs", "exclude_internal_topics"):
            check_flag(name, getattr(self, name))
        if self.rebalance_timeout_ms is not None:
            check_integer("rebalance_timeout_ms", self.rebalance_timeout_ms, 1)
        for name in ("group_id", "group_instance_id"):
            value = getattr(self, name)
            if value is not None:
                check_name(name, value, "give a name, or None")
        if self.group_instance_id is not None and self.group_id is None:
            raise ValueError("group_instance_id is given without group_id: give both")
        check_one_of("auto_offset_reset", self.auto_offset_reset, get_args(AutoOffsetReset))
        check_one_of("isolation_level", self.isolation_level, get_args(IsolationLevel))
        check_callable_or_none("key_deserializer", self.key_deserializer)
        check_callable_or_none("value_deserializer", self.value_deserializer)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms {self.heartbeat_interval_ms} is not below session_timeout_ms "
                f"{self.session_timeout_ms}: give at most a third of it, so that one lost heartbeat does not "
                "end the session"
            )
        self._check_assignors()
        self._check_protocol()

    def _check_protocol(self) -> None:
        """As Kafka's consumer, refuse settings that the chosen group protocol does not have."""
        check_one_of("group_protocol", self.group_protocol, get_args(GroupProtocol))
        assignor = self.group_remote_assignor
        if assignor is not None and (not isinstance(assignor, str) or not assignor):
            raise ValueError(f"group_remote_assignor is {assignor!r}: give a name, such as 'uniform', or None")
        if self.group_protocol == "classic":
            if assignor is not None:
                raise ValueError("group_remote_assignor is given without group_protocol='consumer': give both")
            return
        for name, key in _OF_THE_BROKER:
            if getattr(self, name) != getattr(ConsumerConfig, name):
                raise ValueError(
                    f"{name} is given with group_protocol='consumer': leave it out, the broker's {key} decides"
                )

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


class ConnectionSettings(TypedDict, total=False):
    """The arguments of all clients that say how to reach a broker, except for where it is."""

    request_timeout_ms: int
    metadata_max_age_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    connections_max_idle_ms: int
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: SaslMechanism
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: TokenProvider | None


class ClientSettings(ConnectionSettings, total=False):
    """The arguments that :class:`ConsumerSettings` and :class:`ProducerSettings` have in common."""

    bootstrap_servers: str | Iterable[str]


class ConsumerSettings(ClientSettings, total=False):
    """The arguments of :class:`~barnabas_client.consumer.consumer.Consumer` except topics and deserializers.

    For type checkers, and for programs that keep settings in a dictionary: ``Consumer("flights", **settings)``.
    """

    client_id: str | None
    group_id: str | None
    group_instance_id: str | None
    auto_offset_reset: AutoOffsetReset
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    rebalance_timeout_ms: int | None
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    isolation_level: IsolationLevel
    check_crcs: bool
    client_rack: str
    partition_assignment_strategy: Sequence[Assignor] | None
    exclude_internal_topics: bool
    close_timeout_ms: int
    group_protocol: GroupProtocol
    group_remote_assignor: str | None


class ShareConsumerSettings(ClientSettings, total=False):
    """The arguments of :class:`~barnabas_client.shares.consumer.ShareConsumer` except topics, group and deserializers.

    For type checkers, and for programs that keep settings in a dictionary.
    """

    client_id: str | None
    share_acknowledgement_mode: ShareAcknowledgementMode
    share_acquire_mode: ShareAcquireMode
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    check_crcs: bool
    client_rack: str
    close_timeout_ms: int


class ProducerSettings(ClientSettings, total=False):
    """The arguments of :class:`~barnabas_client.producer.producer.Producer` except serializers.

    For type checkers, and for programs that keep settings in a dictionary: ``Producer(**settings)``.
    """

    client_id: str | None
    acks: Acks | None
    enable_idempotence: bool | None
    compression_type: Compression | None
    batch_size: int
    max_batch_size: int | None
    linger_ms: int
    max_request_size: int
    buffer_memory: int
    max_block_ms: int
    delivery_timeout_ms: int
    close_timeout_ms: int
    partitioner: Partitioner | None
    transactional_id: str | None
    transaction_timeout_ms: int


def default_assignors() -> tuple[Assignor, ...]:
    """As in Kafka: range, which rebalances eagerly, and cooperative-sticky, for a group that moves to it member by
    member (KIP-429). Between them round-robin, aiokafka's default, so that members of both clients can form a
    group."""
    return RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor()


def common_protocols(assignors: Sequence[Assignor]) -> frozenset[RebalanceProtocol]:
    """Return the rebalance protocols that all `assignors` support."""
    return frozenset.intersection(*(assignor.protocols for assignor in assignors))


#: Settings of the classic protocol, and what the broker has instead in the consumer protocol.
_OF_THE_BROKER: Final = (
    ("session_timeout_ms", "group.consumer.session.timeout.ms"),
    ("heartbeat_interval_ms", "group.consumer.heartbeat.interval.ms"),
)

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
