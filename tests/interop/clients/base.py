"""One interface for all client libraries, so that a scenario is written once.

The interface is small: calls block, every wait has a limit, a broker's error code is raised as `Refused`, and what a
library lacks as `Unsupported`. Behind it is the unmodified library.
"""

import abc
import asyncio
import concurrent.futures
import contextlib
import re
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeVar

T = TypeVar("T")

#: Seconds that one call may take.
LIMIT: Final = 90.0
#: The shortest one that brokers accept by default (group.min.session.timeout.ms).
SESSION_TIMEOUT_MS: Final = 6000
HEARTBEAT_MS: Final = 300
AUTO_COMMIT_MS: Final = 200
METADATA_MAX_AGE_MS: Final = 1000
MAX_REQUEST_BYTES: Final = 10_000_000

Acks = Literal[0, 1, "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
COMPRESSIONS: Final[tuple[Compression, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
Assignor = Literal["range", "roundrobin", "cooperative-sticky"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
GroupProtocol = Literal["classic", "consumer"]


class Code(IntEnum):
    """The error codes that scenarios expect."""

    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    MESSAGE_TOO_LARGE = 10
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_CONFIG = 40
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69


class Refused(Exception):
    """The broker answered with an error code, or the library failed with one of its own (negative)."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code


class Fenced(Refused):
    """Another producer has taken over the transactional id."""


class Unsupported(Exception):
    """The library cannot do this; the text says what is missing."""


class Partition(NamedTuple):
    topic: str
    number: int


class Record(NamedTuple):
    partition: Partition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @classmethod
    def of(cls, record: Any) -> Self:
        """Convert a record of a library that names its attributes as aiokafka does."""
        at = Partition(record.topic, record.partition)
        return cls(at, record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


class Delivered(NamedTuple):
    """Where a record was stored; without acknowledgement, the offset is -1."""

    partition: int
    offset: int


class GroupMember(NamedTuple):
    client_id: str
    instance_id: str | None
    partitions: frozenset[Partition]


class Group(NamedTuple):
    """A group as its description shows it. `state` is in capitals: STABLE, PREPARING_REBALANCE."""

    state: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True)
class Login:
    """How a client connects to a listener with TLS. Without a mechanism, the client does not log in.

    `trust` is the path of the file with the CA's certificate.
    """

    trust: str
    mechanism: Mechanism | None = None
    user: str = ""
    password: str = ""

    @property
    def protocol(self) -> Literal["SSL", "SASL_SSL"]:
        return "SSL" if self.mechanism is None else "SASL_SSL"

    def as_keywords(self) -> dict[str, Any]:
        """Return the arguments of a client that is built like aiokafka's, without the CA: libraries differ there."""
        if self.mechanism is None:
            return {"security_protocol": self.protocol}
        return {
            "security_protocol": self.protocol,
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }


@dataclass(frozen=True)
class SenderOptions:
    """How a producer sends."""

    acks: Acks
    compression: Compression
    idempotent: bool
    linger_ms: int
    transactional_id: str | None

    def as_keywords(self) -> dict[str, Any]:
        """Return the arguments of a producer that is built like aiokafka's."""
        return {
            "acks": self.acks,
            "compression_type": None if self.compression == "none" else self.compression,
            "enable_idempotence": self.idempotent,
            "linger_ms": self.linger_ms,
            "max_request_size": MAX_REQUEST_BYTES,
            "transactional_id": self.transactional_id,
        }


@dataclass(frozen=True)
class ReaderOptions:
    """How a consumer reads, and which group it belongs to."""

    group: str | None
    client_id: str
    instance_id: str | None
    from_start: bool
    auto_commit: bool
    assignor: Assignor
    read_committed: bool
    session_timeout_ms: int
    protocol: GroupProtocol

    @property
    def offset_reset(self) -> Literal["earliest", "latest"]:
        return "earliest" if self.from_start else "latest"

    @property
    def isolation(self) -> Literal["read_committed", "read_uncommitted"]:
        return "read_committed" if self.read_committed else "read_uncommitted"

    def as_keywords(self, assignor: object) -> dict[str, Any]:
        """Return the arguments of a consumer that is built like aiokafka's, with the library's own `assignor`."""
        return {
            "group_id": self.group,
            "client_id": self.client_id,
            "group_instance_id": self.instance_id,
            "auto_offset_reset": self.offset_reset,
            "enable_auto_commit": self.auto_commit,
            "auto_commit_interval_ms": AUTO_COMMIT_MS,
            "partition_assignment_strategy": [assignor],
            "isolation_level": self.isolation,
            "session_timeout_ms": self.session_timeout_ms,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "metadata_max_age_ms": METADATA_MAX_AGE_MS,
        }


class Closeable(abc.ABC):
    _closed = False

    @abc.abstractmethod
    def _close(self) -> None: ...

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Sender(Closeable):
    """A producer."""

    @abc.abstractmethod
    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Hand one record to the library. The next `flush` returns its result."""

    @abc.abstractmethod
    def flush(self, timeout: float = LIMIT) -> list[Delivered]:
        """Wait for the records that were sent since the last flush; return their results in the order of sending.

        Raises:
            Refused: a record was not delivered.
            TimeoutError: some records have no result yet.
        """

    # Only producers with a transactional id have these; they have started their id already.

    @abc.abstractmethod
    def begin(self) -> None: ...

    @abc.abstractmethod
    def commit(self) -> None: ...

    @abc.abstractmethod
    def abort(self) -> None: ...

    @abc.abstractmethod
    def send_offsets(self, reader: "Reader", offsets: Mapping[Partition, int]) -> None:
        """Commit offsets of the reader's group in the transaction."""


class Reader(Closeable):
    """A consumer."""

    #: Seconds that a poll should wait in a loop of polls.
    PATIENCE: ClassVar[float] = 0.1

    @abc.abstractmethod
    def subscribe(self, *topics: str) -> None: ...

    @abc.abstractmethod
    def subscribe_pattern(self, pattern: str) -> None:
        """Subscribe to the topics whose whole name matches the regular expression."""

    @abc.abstractmethod
    def assign(self, *partitions: Partition) -> None: ...

    @abc.abstractmethod
    def poll(self, timeout: float = 0.5) -> list[Record]:
        """Return records that are available, or that arrive within `timeout` seconds; possibly none.

        Between two polls no partition is revoked or assigned, so that a commit belongs to the generation in which the
        records were read. The adapter of a library that rebalances in the background delays it, as its users have to.
        """

    @abc.abstractmethod
    def assignment(self) -> frozenset[Partition]: ...

    @abc.abstractmethod
    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets; return when the broker has acknowledged them."""

    @abc.abstractmethod
    def committed(self, partition: Partition) -> int | None: ...

    @abc.abstractmethod
    def group_metadata(self) -> Any:
        """Return what a producer of the same library needs to commit offsets of the group."""

    @abc.abstractmethod
    def seek(self, partition: Partition, offset: int) -> None: ...

    @abc.abstractmethod
    def position(self, partition: Partition) -> int: ...

    @abc.abstractmethod
    def bounds(self, partition: Partition) -> tuple[int, int]:
        """Return the first offset and the offset after the last one."""

    @abc.abstractmethod
    def offset_at(self, partition: Partition, timestamp: int) -> int | None:
        """Return the first offset whose timestamp is `timestamp` or later, if there is one."""


class Admin(Closeable):
    @abc.abstractmethod
    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None: ...

    @abc.abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abc.abstractmethod
    def topics(self) -> dict[str, int]:
        """Return the number of partitions of every topic."""

    @abc.abstractmethod
    def nodes(self) -> list[int]: ...

    def add_partitions(self, topic: str, total: int) -> None:
        raise Unsupported("no call that adds partitions")

    def topic_config(self, name: str) -> dict[str, str]:
        raise Unsupported("no call that describes configuration")

    def broker_config(self, node: int) -> dict[str, str]:
        raise Unsupported("no call that describes configuration")

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        raise Unsupported("no call that sets configuration")

    def groups(self) -> frozenset[str]:
        raise Unsupported("no call that lists groups")

    def describe_group(self, group: str) -> Group:
        raise Unsupported("no call that describes a group")

    def group_offsets(self, group: str) -> dict[Partition, int]:
        raise Unsupported("no call that lists a group's offsets")

    def set_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        raise Unsupported("no call that sets a group's offsets")

    def delete_group(self, group: str) -> None:
        raise Unsupported("no call that deletes a group")

    def delete_records(self, partition: Partition, before: int) -> None:
        raise Unsupported("no call that deletes records")


class Client(abc.ABC):
    """One library, connected to one cluster. Closing it closes everything that it opened."""

    NAME: ClassVar[str]
    COMPRESSIONS: ClassVar[frozenset[Compression]] = frozenset(COMPRESSIONS)
    ASSIGNORS: ClassVar[frozenset[Assignor]] = frozenset({"range", "roundrobin"})
    GROUP_PROTOCOLS: ClassVar[frozenset[GroupProtocol]] = frozenset({"classic"})

    def __init__(self, bootstrap_servers: str, login: Login | None = None) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.login = login
        self._open = contextlib.ExitStack()

    @abc.abstractmethod
    def _sender(self, options: SenderOptions) -> Sender: ...

    @abc.abstractmethod
    def _reader(self, options: ReaderOptions) -> Reader: ...

    @abc.abstractmethod
    def _admin(self) -> Admin: ...

    @classmethod
    @abc.abstractmethod
    def version(cls) -> str: ...

    def sender(
        self,
        *,
        acks: Acks = "all",
        compression: Compression = "none",
        idempotent: bool | None = None,
        linger_ms: int = 5,
        transactional_id: str | None = None,
    ) -> Sender:
        """Return a producer, idempotent where it can be: others may change the order of records that they retry."""
        if compression not in self.COMPRESSIONS:
            raise Unsupported(f"{compression} needs a package that is not installed")
        wanted = acks == "all" if idempotent is None else idempotent
        return self._open.enter_context(
            self._sender(SenderOptions(acks, compression, wanted, linger_ms, transactional_id))
        )

    def reader(
        self,
        group: str | None = None,
        *,
        client_id: str = "interop",
        instance_id: str | None = None,
        from_start: bool = True,
        auto_commit: bool = False,
        assignor: Assignor = "range",
        read_committed: bool = False,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        protocol: GroupProtocol = "classic",
    ) -> Reader:
        if assignor not in self.ASSIGNORS:
            raise Unsupported(f"no {assignor} assignor")
        if protocol not in self.GROUP_PROTOCOLS:
            raise Unsupported("no groups of KIP-848")
        options = ReaderOptions(
            group,
            client_id,
            instance_id,
            from_start,
            auto_commit,
            assignor,
            read_committed,
            session_timeout_ms,
            protocol,
        )
        return self._open.enter_context(self._reader(options))

    def at(self, bootstrap_servers: str, login: Login) -> Self:
        """Return the same library, connected to a listener with TLS."""
        return self._open.enter_context(contextlib.closing(type(self)(bootstrap_servers, login)))

    def admin(self) -> Admin:
        return self._open.enter_context(self._admin())

    def close(self) -> None:
        self._open.close()


class Loop:
    """An event loop in its own thread, so that a library's background tasks run between the calls of a scenario."""

    def __init__(self, factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        self._loop = factory()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float = LIMIT) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the loop, where the library expects its calls."""

        async def once() -> T:
            return function()

        return self.run(once())

    def close(self) -> None:
        self.run(self._drain())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()

    async def _drain(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_asyncgens()


def state_name(state: str) -> str:
    """Convert a group's state from Kafka's spelling: PreparingRebalance to PREPARING_REBALANCE."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", state).upper()
