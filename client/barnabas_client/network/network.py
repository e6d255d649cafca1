"""The cluster as a client reaches it: connections by broker and purpose, and a picture of the cluster that is kept
fresh.

**Connections** are made when first asked for and shared by all who ask for the same address and purpose. There is one
for each :class:`Purpose`, because a broker answers the requests of one connection in order: behind a fetch that waits
for data for half a second, a heartbeat or a produce would wait as well (Kafka's ``NetworkClient`` keeps its
coordinator's apart for that reason). A broker that could not be reached is not :meth:`ready <Network.ready>` again for
a while, with a back-off per address: whoever wants it meanwhile is told at once, and nobody waits for it, because by
then another broker may do its work. The versions that one connection to a broker has learnt serve the next as well, for
as long as none to it has broken: it is the same process then, and a connection is worth one round trip less.

**Whichever broker** (:meth:`Network.ask_any`, and metadata) is one that is connected and has least to answer, then any
that is ready. One that is silent for a second is not waited for any longer: another is asked as well, and the first
answer counts. Such questions change nothing, or may be asked twice.

**Metadata.** One task asks, everyone else waits for it: :meth:`Network.refresh` calls that come while a request is
under way share the next one. It also asks every `metadata_max_age_ms`, and soon after :meth:`Network.want_refresh`,
which whoever gets an error such as NOT_LEADER_OR_FOLLOWER calls. Source: Kafka's ``Metadata.java`` and
``DefaultMetadataUpdater``.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from barnabas_client.config import Address, ClientConfig
from barnabas_client.errors import KafkaConnectionError, KafkaTimeoutError, error_for
from barnabas_client.logs import logger
from barnabas_client.network.backoff import Backoff
from barnabas_client.network.connection import Connection
from barnabas_client.network.metadata import NO_LEADER, Cluster
from barnabas_client.network.versions import ApiRange
from barnabas_client.tasks import BackgroundTasks
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.schema import Request, Response

R = TypeVar("R", bound=Response)
T = TypeVar("T")

_log: Final = logger("barnabas_client.network.network")

#: After so many seconds of silence another broker is asked as well, where any will do.
_SILENCE: Final = 1.0


class Purpose(Enum):
    """What a connection is for."""

    DATA = "metadata, offsets, produce"
    FETCH = "long polls"
    GROUP = "the group coordinator"


class _NoBrokersError(KafkaConnectionError):
    """Someone answered, but knows no brokers."""


class _Failed(NamedTuple):
    """An address that could not be reached: why, and until when it is left alone."""

    backoff: Backoff
    until: float
    error: KafkaError


def jitter() -> float:
    """A factor from 0.8 to 1.2, as Kafka's clients use."""
    return random.uniform(0.8, 1.2)


class Network:
    """All connections of one client. Make it inside of the event loop that uses it."""

    def __init__(self, config: ClientConfig, *, auto_create: bool = False) -> None:
        """Nothing is connected yet.

        Args:
            config: addresses, timeouts, back-off.
            auto_create: whether asking about a topic that does not exist may create it.
        """
        self.config = config
        self.cluster = Cluster()
        #: Called with each new cluster.
        self.listeners: list[Callable[[Cluster], None]] = []
        #: The topics to ask about; None for all.
        self._topics: set[str] | None = set()
        self._auto_create = auto_create
        self._tls = config.tls()
        self._connections: dict[tuple[Address, Purpose], Connection] = {}
        #: What brokers understand, as connections have learnt that did not break since.
        self.versions: dict[Address, Mapping[int, ApiRange]] = {}
        self._locks: dict[tuple[Address, Purpose], asyncio.Lock] = {}
        self._failed: dict[Address, _Failed] = {}
        self._closing = BackgroundTasks(self._broken)
        self._waiters: list[asyncio.Future[Cluster]] = []
        self._wanted, self._urgent = asyncio.Event(), asyncio.Event()
        self._keeper = BackgroundTasks(self._broken)
        self._started = self._closed = False

    async def start(
        self, known: Cluster | None = None, versions: Mapping[Address, Mapping[int, ApiRange]] | None = None
    ) -> None:
        """Learn the cluster from one of the bootstrap servers.

        Args:
            known: what another network has learnt already: then nothing is asked.
            versions: its `versions`.

        Raises:
            KafkaConnectionError: none of them answered, or for `request_timeout_ms` none knew a broker; the message
                names each with its reason.
        """
        self.versions.update(versions or {})
        if known is not None:
            self.cluster = known
        elif not _is_complete(await self._first()):
            self.want_refresh()
        self._keeper.spawn(self._keep(), name="barnabas-metadata")
        self._started = True

    async def close(self, patience: float = 1.0) -> None:
        """End everything; whoever waits gets a `KafkaConnectionError`.

        Args:
            patience: seconds that what was written before may take to leave.
        """
        self._closed = True
        await self._keeper.close()
        self._settle(KafkaConnectionError("this client was closed"))
        await asyncio.gather(*self._closing, *(connection.close(patience) for connection in self._connections.values()))
        self._connections.clear()

    # Metadata.

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that are asked about, None for all."""
        return None if self._topics is None else frozenset(self._topics)

    def watch(self, topics: Iterable[str] | None) -> None:
        """Be interested in these topics and no others; None for all topics. The next refresh asks about them."""
        self._topics = None if topics is None else set(topics)

    def watch_also(self, topics: Iterable[str]) -> bool:
        """Be interested in these topics too; whether any is new."""
        new = set() if self._topics is None else set(topics) - self._topics
        if self._topics is not None:
            self._topics |= new
        return bool(new)

    def want_refresh(self, *, urgent: bool = False) -> None:
        """Ask for metadata soon: at most once every `retry_backoff_ms`, unless it is urgent."""
        self._wanted.set()
        if urgent:
            self._urgent.set()

    async def refresh(self, timeout: float | None = None) -> Cluster:
        """Ask for metadata now and wait for it.

        Args:
            timeout: seconds; `request_timeout_ms` if None.

        Raises:
            KafkaConnectionError: no broker could be reached.
            KafkaTimeoutError: it took longer.
        """
        if self._closed or not self._started:
            raise KafkaConnectionError("this client is not started or was closed")
        waiter: asyncio.Future[Cluster] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.want_refresh(urgent=True)
        seconds = self.config.request_timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                return await waiter
        except TimeoutError as error:
            raise KafkaTimeoutError(
                f"no metadata within {seconds:g} s. To do: check that the brokers are up, or raise request_timeout_ms"
            ) from error

    async def look_up(self, topics: Iterable[str] | None) -> Cluster:
        """Ask about topics, all if None, without being interested in them from now on.

        Raises:
            KafkaError: no broker answers.
        """
        names = None if topics is None else frozenset(topics)
        request = _request(names, auto_create=False)
        response = await self.ask_any(request, MetadataResponse)
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, "ask about topics")
        return Cluster().updated(response, None)

    def learn(self, cluster: Cluster) -> None:
        """Take a cluster that was learnt on the way, such as from an error that names the new leader."""
        if cluster is not self.cluster:
            self.cluster = cluster
            for listener in list(self.listeners):
                listener(cluster)

    async def _keep(self) -> None:
        first, most = self.config.retry_backoff_ms / 1000, self.config.retry_backoff_max_ms / 1000
        backoff = Backoff(first, most, jitter)
        loop = asyncio.get_running_loop()
        earliest = loop.time()
        while True:
            # Not asked again at once, unless someone waits for it.
            await self._until_wanted(earliest - loop.time())
            self._wanted.clear()
            self._urgent.clear()
            waiters, self._waiters = self._waiters, []
            try:
                cluster = await self._update()
            except KafkaError as error:
                _settle(waiters, error)
                log = _log.info if backoff.failures else _log.warning  # once is enough for an outage
                log("no metadata", reason=str(error))
                await asyncio.sleep(backoff.failed())
                self._wanted.set()
            except BaseException as error:
                _settle(waiters, KafkaConnectionError(f"metadata could not be had: {error!r}"))
                raise
            else:
                _settle(waiters, cluster)
                if _is_complete(cluster):
                    backoff.succeeded()
                    earliest = loop.time() + first
                else:
                    # A topic is being created or a leader elected: look again, ever more slowly.
                    earliest = loop.time() + backoff.failed()
                    self._wanted.set()

    async def _until_wanted(self, pause: float) -> None:
        idle = min(self.config.metadata_max_age_ms, self.config.connections_max_idle_ms) / 1000
        await _within(self._wanted.wait(), idle)
        self._close_idle()
        if not self._urgent.is_set() and pause > 0:
            await _within(self._urgent.wait(), pause)

    async def _first(self) -> Cluster:
        """Learn the cluster; one that answers but has no brokers is just starting, or has just lost its etcd."""
        backoff = Backoff(self.config.retry_backoff_ms / 1000, self.config.retry_backoff_max_ms / 1000, jitter)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.request_timeout
        while True:
            try:
                return await self._update()
            except _NoBrokersError:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(min(backoff.failed(), max(0.0, deadline - loop.time())))

    async def _update(self) -> Cluster:
        """Ask one broker after the other until one answers."""
        asked = self.topics
        request = _request(asked, auto_create=self._auto_create)

        async def ask(address: Address) -> MetadataResponse:
            connection = await self.connection_to(address, Purpose.DATA, at_once=True)
            response = await connection.ask(request, MetadataResponse, timeout=self.config.request_timeout)
            if response.error_code != ErrorCode.NONE or not response.brokers:
                raise _NoBrokersError(f"{address[0]}:{address[1]} knows no brokers")
            return response

        response, failures = await _first_answer(self._addresses(Purpose.DATA), ask)
        if response is None:
            failure = next((type(one) for one in failures if isinstance(one, _NoBrokersError)), KafkaConnectionError)
            reasons = "; ".join(str(one) for one in failures)
            raise failure(f"no broker could be asked about the cluster: {reasons}")
        self.learn(self.cluster.updated(response, None if asked is None else self._topics))
        return self.cluster

    def _addresses(self, purpose: Purpose) -> list[Address]:
        """Whom to ask: of the known brokers, and then of the bootstrap servers, first those that are connected."""
        known = [(broker.host, broker.port) for broker in self.cluster.brokers.values()]
        random.shuffle(known)

        def rank(address: Address) -> tuple[int, float]:
            connection = self._connections.get((address, purpose))
            if connection is not None and not connection.closed:
                return 0, connection.in_flight
            return 1, self._pause(address)

        return list(dict.fromkeys([*sorted(known, key=rank), *sorted(self.config.servers, key=rank)]))

    def _broken(self, error: BaseException) -> None:
        """A task raised, which is a bug."""
        _log.error("a task of the network failed", exc_info=error)

    def _settle(self, error: KafkaError) -> None:
        waiters, self._waiters = self._waiters, []
        _settle(waiters, error)

    # Connections.

    async def ask(
        self,
        node_id: int,
        request: Request,
        answer: type[R],
        *,
        purpose: Purpose = Purpose.DATA,
        timeout: float | None = None,
        at_most: int | None = None,
    ) -> R:
        """Ask a broker; see :meth:`Connection.ask`. `timeout` in seconds is `request_timeout_ms` if None.

        Raises:
            KafkaError: no connection, no answer in time, or the broker is too old.
        """
        connection = await self.connection(node_id, purpose)
        seconds = self.config.request_timeout if timeout is None else timeout
        return await connection.ask(request, answer, timeout=seconds, at_most=at_most)

    async def ask_any(
        self, request: Request, answer: type[R], *, purpose: Purpose = Purpose.DATA, timeout: float | None = None
    ) -> R:
        """Ask whichever broker can be reached; a silent one does not keep others from being asked as well.

        Raises:
            KafkaError: the last one's error, if none answers.
        """
        seconds = self.config.request_timeout if timeout is None else timeout

        async def ask(address: Address) -> R:
            connection = await self.connection_to(address, purpose, at_once=True)
            return await connection.ask(request, answer, timeout=seconds)

        response, failures = await _first_answer(self._addresses(purpose), ask)
        if response is None:
            raise failures[-1]
        return response

    def ready(self, node_id: int) -> bool:
        """Whether a broker may be asked now: it is known, and did not fail to be reached a moment ago."""
        broker = self.cluster.brokers.get(node_id)
        return broker is not None and self._pause((broker.host, broker.port)) <= 0

    async def connection(self, node_id: int, purpose: Purpose) -> Connection:
        """The connection to a broker for a purpose, made if there is none.

        Raises:
            KafkaError: the broker is not known, not :meth:`ready`, or does not answer. Metadata is then asked for anew.
        """
        broker = self.cluster.brokers.get(node_id)
        if broker is None:
            self.want_refresh()
            raise KafkaConnectionError(f"broker {node_id} is not part of the cluster, as far as is known")
        try:
            return await self.connection_to((broker.host, broker.port), purpose)
        except KafkaError:
            self.want_refresh()
            raise

    def open_connection(self, node_id: int, purpose: Purpose) -> Connection | None:
        """The connection to a broker for a purpose, if it is open."""
        broker = self.cluster.brokers.get(node_id)
        if broker is None:
            return None
        connection = self._connections.get(((broker.host, broker.port), purpose))
        return None if connection is None or connection.closed else connection

    async def connection_to(self, address: Address, purpose: Purpose, *, at_once: bool = False) -> Connection:
        """The connection to an address for a purpose, made if there is none.

        Args:
            address: host and port.
            purpose: what it is for.
            at_once: try an address that failed a moment ago, too, since there may be no other.

        Raises:
            KafkaError: it cannot be made, or could not a moment ago.
        """
        key = (address, purpose)
        connection = self._connections.get(key)
        if connection is not None and not connection.closed:
            return connection
        async with self._locks.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and not connection.closed:
                return connection
            if self._closed:
                raise KafkaConnectionError("this client was closed")
            pause = self._pause(address)
            if pause > 0 and not at_once:
                raise KafkaConnectionError(
                    f"{address[0]}:{address[1]} is tried again in {pause:.2f} s: {self._failed[address].error}"
                )
            return await self._connect(key)

    def _pause(self, address: Address) -> float:
        """For how many seconds more an address is left alone."""
        failed = self._failed.get(address)
        return 0.0 if failed is None else max(0.0, failed.until - asyncio.get_running_loop().time())

    async def _connect(self, key: tuple[Address, Purpose]) -> Connection:
        host, port = key[0]
        if any(one.closed for (address, _), one in self._connections.items() if address == key[0]):
            self.versions.pop(key[0], None)  # perhaps it was started anew, as another version
        try:
            connection = await Connection.open(
                host,
                port,
                client_id=self.config.client_id,
                timeout=self.config.request_timeout,
                tls=self._tls,
                versions=self.versions.get(key[0]),
            )
        except KafkaError as error:
            self.versions.pop(key[0], None)
            self._note_failure(key[0], error)
            raise
        if self._closed:
            connection.abort("this client was closed")
            raise KafkaConnectionError("this client was closed")
        self._failed.pop(key[0], None)
        self._connections[key] = connection
        self.versions[key[0]] = connection.versions
        return connection

    def _note_failure(self, address: Address, error: KafkaError) -> None:
        before = self._failed.get(address)
        first, most = self.config.retry_backoff_ms / 1000, self.config.retry_backoff_max_ms / 1000
        backoff = Backoff(first, most, jitter) if before is None else before.backoff
        self._failed[address] = _Failed(backoff, asyncio.get_running_loop().time() + backoff.failed(), error)

    def disconnect(self, address: Address, purpose: Purpose, reason: str) -> None:
        """End a connection: what waits on it fails, whoever asks next gets a new one."""
        connection = self._connections.pop((address, purpose), None)
        if connection is not None:
            self.versions.pop(address, None)
            connection.abort(reason)

    def _close_idle(self) -> None:
        """Close connections that nobody used for long, and forget closed ones."""
        oldest = asyncio.get_running_loop().time() - self.config.connections_max_idle_ms / 1000
        for key, connection in list(self._connections.items()):
            if connection.closed or (connection.last_used < oldest and not connection.in_flight):
                if connection.closed:
                    self.versions.pop(key[0], None)
                del self._connections[key]
                self._closing.spawn(connection.close())


async def _first_answer(
    addresses: Iterable[Address], ask: Callable[[Address], Coroutine[Any, Any, T]]
) -> tuple[T | None, list[KafkaError]]:
    """Ask one address after the other, the next when one has failed or is silent for long.

    Returns:
        The first answer and the failures before it; None and all failures, at least one, if there is no answer.
    """
    failures: list[KafkaError] = []
    tasks: list[asyncio.Task[T]] = []
    waiting: set[asyncio.Task[T]] = set()
    left = deque(addresses)
    try:
        while left or waiting:
            if left:
                tasks.append(asyncio.create_task(ask(left.popleft())))
                waiting.add(tasks[-1])
            done, waiting = await asyncio.wait(
                waiting, timeout=_SILENCE if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for one in done:
                try:
                    return one.result(), failures
                except KafkaError as error:
                    failures.append(error)
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return None, failures or [KafkaConnectionError("no broker is known")]


async def _within(waiting: Awaitable[object], seconds: float) -> None:
    """Wait, but no longer than that."""
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        pass


def _request(topics: Iterable[str] | None, *, auto_create: bool) -> MetadataRequest:
    names = None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(topics)]
    return MetadataRequest(topics=names, allow_auto_topic_creation=auto_create)


def _is_complete(cluster: Cluster) -> bool:
    """Whether all that was asked about is there, with leaders."""
    return not any(
        topic.error.retriable or any(info.leader == NO_LEADER for info in topic.partitions.values())
        for topic in cluster.topics.values()
    )


def _settle(waiters: Iterable["asyncio.Future[Cluster]"], outcome: Cluster | KafkaError) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if isinstance(outcome, Cluster):
            waiter.set_result(outcome)
        else:
            waiter.set_exception(outcome)
