"""One face for every client library, so that a scenario is written once.

The face is small and plain: calls block, every wait is bounded, a broker's error code comes out as `Refused`, what a
library does not have as `Unsupported`. What is behind it is the library as its users have it, nothing replaced.
"""

import abc
import asyncio
import concurrent.futures
import contextlib
import re
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeVar

T = TypeVar("T")

#: Seconds that one call may take.
LIMIT: Final = 30.0
#: The least that brokers accept by default (group.min.session.timeout.ms).
SESSION_TIMEOUT_MS: Final = 6000
HEARTBEAT_MS: Final = 300

Acks = Literal[0, 1, "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
COMPRESSIONS: Final[tuple[Compression, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
Assignor = Literal["range", "roundrobin", "cooperative-sticky"]


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


class Delivered(NamedTuple):
    """What a producer was told of a record; without acknowledgement the offset is -1."""

    partition: int
    offset: int


class GroupMember(NamedTuple):
    client_id: str
    instance_id: str | None
    partitions: frozenset[Partition]


class Group(NamedTuple):
    """`state` is in capitals, words separated: STABLE, PREPARING_REBALANCE."""

    state: str
    members: tuple[GroupMember, ...]


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
        """Hands one record over; its fate is told by the next flush."""

    @abc.abstractmethod
    def flush(self, timeout: float = LIMIT) -> list[Delivered]:
        """What became of the records sent since the last flush, in their order.

        Raises:
            Refused: a record was not delivered.
            TimeoutError: some have no answer yet.
        """


class Reader(Closeable):
    """A consumer."""

    #: Seconds that a poll should wait where it is called again and again.
    PATIENCE: ClassVar[float] = 0.1

    @abc.abstractmethod
    def subscribe(self, *topics: str) -> None: ...

    @abc.abstractmethod
    def subscribe_pattern(self, pattern: str) -> None:
        """Topics whose whole name the regular expression matches."""

    @abc.abstractmethod
    def assign(self, *partitions: Partition) -> None: ...

    @abc.abstractmethod
    def poll(self, timeout: float = 0.5) -> list[Record]:
        """Records that are there, or that come within `timeout` seconds; possibly none.

        Between two polls no partition is given up or given: a commit is then one of the generation that the records
        were read in. Where a library rebalances in the background its adapter holds it back, as its users have to.
        """

    @abc.abstractmethod
    def assignment(self) -> frozenset[Partition]: ...

    @abc.abstractmethod
    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Returns when the broker has acknowledged it."""

    @abc.abstractmethod
    def committed(self, partition: Partition) -> int | None: ...

    @abc.abstractmethod
    def seek(self, partition: Partition, offset: int) -> None: ...

    @abc.abstractmethod
    def position(self, partition: Partition) -> int: ...

    @abc.abstractmethod
    def bounds(self, partition: Partition) -> tuple[int, int]:
        """The first offset and the one after the last."""

    @abc.abstractmethod
    def offset_at(self, partition: Partition, timestamp: int) -> int | None:
        """The first offset whose record is as new as `timestamp`, if there is one."""


class Admin(Closeable):
    @abc.abstractmethod
    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None: ...

    @abc.abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abc.abstractmethod
    def topics(self) -> dict[str, int]:
        """Every topic with its number of partitions."""

    @abc.abstractmethod
    def nodes(self) -> list[int]: ...

    def add_partitions(self, topic: str, total: int) -> None:
        raise Unsupported("no call that adds partitions")

    def topic_config(self, name: str) -> dict[str, str]:
        raise Unsupported("no call that tells configuration")

    def broker_config(self, node: int) -> dict[str, str]:
        raise Unsupported("no call that tells configuration")

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
    """One library, pointed at one cluster. What it opened is closed with it."""

    NAME: ClassVar[str]
    COMPRESSIONS: ClassVar[frozenset[Compression]] = frozenset(COMPRESSIONS)
    ASSIGNORS: ClassVar[frozenset[Assignor]] = frozenset({"range", "roundrobin"})

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._open = contextlib.ExitStack()

    @abc.abstractmethod
    def _sender(self, acks: Acks, compression: Compression, idempotent: bool, linger_ms: int) -> Sender: ...

    @abc.abstractmethod
    def _reader(
        self,
        group: str | None,
        client_id: str,
        instance_id: str | None,
        from_start: bool,
        auto_commit: bool,
        assignor: Assignor,
        read_committed: bool,
        session_timeout_ms: int,
    ) -> Reader: ...

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
    ) -> Sender:
        """Idempotent where it can be: other senders may change the order of what they have to send again."""
        if compression not in self.COMPRESSIONS:
            raise Unsupported(f"{compression} needs a package that is not here")
        wanted = acks == "all" if idempotent is None else idempotent
        return self._open.enter_context(self._sender(acks, compression, wanted, linger_ms))

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
    ) -> Reader:
        if assignor not in self.ASSIGNORS:
            raise Unsupported(f"no {assignor} assignor")
        reader = self._reader(
            group, client_id, instance_id, from_start, auto_commit, assignor, read_committed, session_timeout_ms
        )
        return self._open.enter_context(reader)

    def admin(self) -> Admin:
        return self._open.enter_context(self._admin())

    def close(self) -> None:
        self._open.close()


class Loop:
    """An event loop in a thread of its own: a library's background tasks run while a scenario does something else."""

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
        """Runs a function where the library expects its calls: in the loop."""

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
    """A group's state as `Group` has it, from Kafka's spelling: PreparingRebalance."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", state).upper()
