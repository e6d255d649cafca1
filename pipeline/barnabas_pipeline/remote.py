"""Brokers, for code that is not async: Spark's Python workers.

One event loop on a thread of its own serves a process, and for each :class:`~barnabas_pipeline.settings.Settings` there
is one :class:`Remote`, kept as long as the process lives: Spark uses its workers again and again. What can be tried
again is tried again, for ``kafka.default.api.timeout.ms``.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import uvloop

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import OffsetSpec
from barnabas_client.config import ClientConfig, parse_servers
from barnabas_client.errors import KafkaTimeoutError, error_for
from barnabas_client.network.backoff import Backoff
from barnabas_client.network.connections import Purpose
from barnabas_client.network.metadata import NO_ID, Cluster
from barnabas_client.network.network import Network
from barnabas_client.network.retries import jitter
from barnabas_client.producer.producer import Producer
from barnabas_client.structs import OffsetAndMetadata, TopicPartition
from barnabas_pipeline.settings import Settings
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.hot import decode_fetch_response
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

T = TypeVar("T")

#: The newest Fetch version that names topics instead of giving their ids.
_NAMES: Final = 12
#: The leader has moved, or its news has not got round.
_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class TopicInfo(NamedTuple):
    """A topic: its id in hexadecimal, "" where brokers have none, and its partitions' numbers."""

    id: str
    partitions: tuple[int, ...]
    internal: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a leader answered to a fetch: `error` is NONE, OFFSET_OUT_OF_RANGE or one that says there is no such
    partition."""

    error: ErrorCode
    log_start: int
    end: int
    data: PartitionData


class _Loop:
    """The event loop of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.remotes: dict[Settings, Remote] = {}
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="barnabas-spark", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Say good-bye to brokers, and end."""
        if self.pid != os.getpid():
            return
        for remote in self.remotes.values():
            try:
                self.start(remote.aclose()).result(5)
            except Exception:
                # The process ends: what cannot be closed in order ends with it.
                continue
        self.remotes.clear()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if not self._thread.is_alive():
            self._loop.close()


_lock: Final = threading.Lock()
_current: _Loop | None = None


def _running() -> _Loop:
    """The loop of this process; a fork of another one has none yet."""
    global _current
    if _current is None or _current.pid != os.getpid():
        _current = _Loop()
    return _current


def remote_for(settings: Settings) -> "Remote":
    """The brokers that `settings` lead to."""
    with _lock:
        loop = _running()
        found = loop.remotes.get(settings)
        if found is None:
            found = loop.remotes[settings] = Remote(settings, loop.start)
        return found


def close_all() -> None:
    """End all connections of this process."""
    global _current
    with _lock:
        loop, _current = _current, None
        if loop is not None:
            loop.close()


atexit.register(close_all)


class Remote:
    """Brokers. Made by :func:`remote_for`; methods may be called from any thread.

    All of them raise KafkaError: what the brokers refuse, or the last failure when time is up.
    """

    def __init__(self, settings: Settings, start: Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]) -> None:
        self.settings = settings
        self._start = start
        self._deadline = settings.default_api_timeout_ms / 1000
        self._locks: dict[str, asyncio.Lock] = {}
        self._admin: Admin | None = None
        self._network: Network | None = None
        self._producer: Producer | None = None

    def run(self, work: Callable[["Remote"], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function with this object on the loop, and wait for what it returns."""
        future = self.start(work(self))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the loop; what it returns is in the future."""
        future: Future[T] = self._start(work)
        return future

    # Connections.

    def _reaching(self) -> dict[str, Any]:
        """What all clients are told alike of how brokers are reached."""
        settings = self.settings
        return {
            "client_id": settings.client_id,
            "request_timeout_ms": settings.request_timeout_ms,
            "metadata_max_age_ms": settings.metadata_max_age_ms,
            "retry_backoff_ms": settings.retry_backoff_ms,
            "retry_backoff_max_ms": settings.retry_backoff_max_ms,
            "connections_max_idle_ms": settings.connections_max_idle_ms,
            "security_protocol": settings.security_protocol,
            "ssl_context": settings.ssl_context(),
        }

    async def admin(self) -> Admin:
        """For topics, offsets and groups."""
        async with self._locks.setdefault("admin", asyncio.Lock()):
            if self._admin is None:
                admin = Admin(**self._reaching(), bootstrap_servers=self.settings.bootstrap_servers)
                await admin.start()
                self._admin = admin
            return self._admin

    async def network(self) -> Network:
        """For requests of our own making."""
        async with self._locks.setdefault("network", asyncio.Lock()):
            if self._network is None:
                servers = parse_servers(self.settings.bootstrap_servers)
                network = Network(ClientConfig(**self._reaching(), servers=servers))
                try:
                    await network.start()
                except BaseException:
                    await network.close()
                    raise
                self._network = network
            return self._network

    async def producer(self) -> Producer:
        """For the sink."""
        async with self._locks.setdefault("producer", asyncio.Lock()):
            if self._producer is None:
                settings = self.settings
                producer = Producer(
                    **self._reaching(),
                    bootstrap_servers=settings.bootstrap_servers,
                    acks=settings.acks,
                    compression_type=settings.compression_type,
                    batch_size=settings.batch_size,
                    max_request_size=settings.max_request_size,
                    linger_ms=settings.linger_ms,
                    buffer_memory=settings.buffer_memory,
                    max_block_ms=settings.max_block_ms,
                    delivery_timeout_ms=settings.delivery_timeout_ms,
                )
                await producer.start()
                self._producer = producer
            return self._producer

    async def drop_producer(self) -> None:
        """End the producer at once, whatever it still has to send; the next one is another."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop(timeout_ms=0)

    async def aclose(self) -> None:
        """End all connections."""
        closing = [one.close() for one in (self._admin, self._network, self._producer) if one is not None]
        self._admin = self._network = self._producer = None
        await asyncio.gather(*closing)

    async def trying(self, what: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Do something that may be done again, until it succeeds or time is up.

        Args:
            what: raises a KafkaError.
            seconds: for all of it; ``kafka.default.api.timeout.ms`` if None.
        """
        backoff = Backoff(self.settings.retry_backoff_ms / 1000, self.settings.retry_backoff_max_ms / 1000, jitter)
        loop = asyncio.get_running_loop()
        until = loop.time() + (self._deadline if seconds is None else seconds)
        last: KafkaError | None = None
        while True:
            try:
                async with asyncio.timeout_at(until):
                    return await what()
            except TimeoutError as error:
                raise last or self._late(seconds) from error
            except KafkaError as error:
                last = error
                pause = backoff.failed()
                if not error.retriable or loop.time() + pause >= until:
                    raise
                await asyncio.sleep(pause)

    def _late(self, seconds: float | None) -> KafkaTimeoutError:
        late = f"the brokers at {self.settings.bootstrap_servers} did not answer within"
        if seconds is not None:
            return KafkaTimeoutError(f"{late} {seconds:g} s. To do: check that they are up")
        limit = f"kafka.default.api.timeout.ms ({self.settings.default_api_timeout_ms} ms)"
        return KafkaTimeoutError(f"{late} {limit}. To do: check that they are up, or raise it")

    # Topics and offsets.

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicInfo]:
        """The topics there are, of `names` those that exist, all if None."""

        async def work(self: Remote) -> dict[str, TopicInfo]:
            async def ask() -> dict[str, TopicInfo]:
                admin = await self.admin()
                found: dict[str, TopicInfo] = {}
                for topic in await admin.describe_topics(names, raise_errors=False):
                    if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        continue
                    if topic.error != ErrorCode.NONE and names is not None:
                        raise error_for(topic.error, f"look up topic {topic.name!r}")
                    identity = "" if topic.id == NO_ID else topic.id.hex()
                    found[topic.name] = TopicInfo(identity, tuple(sorted(topic.partitions)), topic.internal)
                return found

            return await self.trying(ask)

        return self.run(work)

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets by time: the first record at or after a time in milliseconds since 1970, -1 if there is none;
        :attr:`OffsetSpec.EARLIEST` and :attr:`OffsetSpec.LATEST` stand for the ends.

        With ``kafka.isolation.level=read_committed`` the latest is where finished transactions end.
        """
        if not wanted:
            return {}

        async def work(self: Remote) -> dict[TopicPartition, int]:
            async def ask() -> dict[TopicPartition, int]:
                admin = await self.admin()
                committed = self.settings.isolation_level == "read_committed"
                listed = await admin.list_offsets(wanted, read_committed=committed)
                return {tp: one.offset for tp, one in listed.items()}

            return await self.trying(ask)

        return self.run(work)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each."""
        return self.offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each."""
        return self.offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str, seconds: float) -> None:
        """Note offsets in a group without members, as information."""
        noted = {tp: OffsetAndMetadata(offset, metadata) for tp, offset in offsets.items()}

        async def work(self: Remote) -> None:
            async def ask() -> None:
                admin = await self.admin()
                await admin.alter_consumer_group_offsets(group, noted)

            await self.trying(ask, seconds)

        self.run(work)

    # Fetching.

    def start_fetch(self, tp: TopicPartition, offset: int, max_bytes: int) -> "Future[Fetched]":
        """Ask the leader of `tp` for records from `offset` on; the answer is in the future."""

        async def ask() -> Fetched:
            return await self.trying(lambda: self._fetch(tp, offset, max_bytes))

        return self.start(ask())

    async def _fetch(self, tp: TopicPartition, offset: int, max_bytes: int) -> Fetched:
        network, settings = await self.network(), self.settings
        cluster = await self.knowing(network, tp)
        info, leader = cluster.partition(tp), cluster.leader(tp)
        if info is None:
            return _nothing(tp)
        if leader is None:
            network.want_refresh()
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"fetch {tp}")
        topic_id = cluster.topic_id(tp.topic)
        part = FetchPartition(
            partition=tp.partition,
            current_leader_epoch=info.leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=int(settings.isolation_level == "read_committed"),
            topics=[FetchTopic(topic=tp.topic, topic_id=topic_id, partitions=[part])],
            rack_id=settings.client_rack,
        )
        connection = await network.connection(leader, Purpose.FETCH)
        timeout = network.config.request_timeout + settings.fetch_max_wait_ms / 1000
        at_most = _NAMES if topic_id == NO_ID else None
        response = await connection.send(request, decode_fetch_response, timeout=timeout, at_most=at_most)
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, f"fetch {tp} from broker {leader}")
        if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"fetch {tp}: the broker's answer does not mention it")
        data = response.responses[0].partitions[0]
        code = ErrorCode.of(data.error_code)
        if code in _MOVED:
            await network.refresh()
            raise error_for(code, f"fetch {tp} from broker {leader}")
        if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID):
            # Deleted, made anew, or our picture of it is old.
            cluster = await network.refresh()
            if cluster.partition(tp) is None:
                return _nothing(tp)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"fetch {tp} from broker {leader}: {code.name}")
        if code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise error_for(code, f"fetch {tp} at offset {offset} from broker {leader}")
        end = data.last_stable_offset if request.isolation_level else data.high_watermark
        return Fetched(code, data.log_start_offset, end, data)

    @staticmethod
    async def knowing(network: Network, tp: TopicPartition) -> Cluster:
        """A picture of the cluster with `tp` in it, if there is such a partition."""
        if network.watch_also([tp.topic]) or network.cluster.partition(tp) is None:
            return await network.refresh()
        return network.cluster


def _nothing(tp: TopicPartition) -> Fetched:
    nobody = PartitionData(
        partition_index=tp.partition,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        high_watermark=-1,
        records=None,
    )
    return Fetched(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, nobody)
