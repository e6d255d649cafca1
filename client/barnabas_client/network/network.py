"""The cluster as a client reaches it: asks brokers by node id, and keeps the metadata of the cluster up to date.

**Metadata.** One task requests it, and all callers of :meth:`Network.refresh` during a request wait for the next one
together. It is also requested every `metadata_max_age_ms`, and soon after :meth:`Network.want_refresh`, which callers
use after an error such as NOT_LEADER_OR_FOLLOWER. Source: Kafka's ``Metadata.java`` and ``DefaultMetadataUpdater``.

**Any broker.** :meth:`Network.ask_any` and metadata requests prefer connected brokers with the fewest requests in
flight, then any other one. Such requests change nothing, or may be answered twice: see
:meth:`~barnabas_client.network.connections.Connections.first_answer`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from barnabas_client.config import Address, ClientConfig
from barnabas_client.errors import AuthenticationFailedError, KafkaConnectionError, KafkaTimeoutError, error_for
from barnabas_client.logs import logger
from barnabas_client.network.connection import Connection
from barnabas_client.network.connections import Connections, Purpose
from barnabas_client.network.metadata import NO_ID, NO_LEADER, Cluster
from barnabas_client.network.retries import RANDOM, retry_backoff
from barnabas_client.network.versions import ApiRange
from barnabas_client.tasks import BackgroundTasks, reject, resolve
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

_log: Final = logger("barnabas_client.network.network")


class _NoBrokersError(KafkaConnectionError):
    """A broker answered a Metadata request without any brokers in the answer."""


class Network:
    """The brokers of one cluster, for one client. Nothing is connected before :meth:`start`.

    Args:
        config: addresses, timeouts, back-off.
        auto_create: whether a metadata request for a topic that does not exist may create it.

    Attributes:
        connections: to the brokers, by address.
        cluster: the newest metadata.
        listeners: called with each new cluster.
    """

    def __init__(self, config: ClientConfig, *, auto_create: bool = False) -> None:
        self.config = config
        self.connections = Connections(config)
        self.cluster = Cluster()
        self.listeners: list[Callable[[Cluster], None]] = []
        #: The topics to request metadata of; None for all.
        self._topics: set[str] | None = set()
        self._auto_create = auto_create
        #: The broker whose last answer brought nothing new, although metadata were wanted: another one is asked next.
        self._unhelpful: Address | None = None
        self._waiters: list[asyncio.Future[Cluster]] = []
        self._wanted, self._urgent = asyncio.Event(), asyncio.Event()
        self._updater = BackgroundTasks(lambda error: _log.error("the metadata task failed", exc_info=error))
        self._started = self._closed = False

    async def start(
        self,
        known: Cluster | None = None,
        versions: Mapping[Address, Mapping[int, ApiRange]] | None = None,
        *,
        beside: Callable[[Connection], None] | None = None,
    ) -> None:
        """Request metadata from a bootstrap server, and keep it up to date from now on.

        Args:
            known: the cluster of another network; then nothing is requested now.
            versions: the API versions that the other network's connections have learnt.
            beside: called with the connection before the first metadata is requested on it. Responses to its requests
                arrive before the metadata.

        Raises:
            KafkaConnectionError: no bootstrap server answered, or none knew a broker within `request_timeout_ms`. The
                message names each with its reason.
        """
        self.connections.versions.update(versions or {})
        if known is not None:
            self.cluster = known
        elif not _is_complete(await self._first(beside)):
            self.want_refresh()
        self._updater.spawn(self._keep_updated(), name="barnabas-metadata")
        self._started = True

    async def close(self, patience: float = 1.0) -> None:
        """Close all connections; pending calls fail with `KafkaConnectionError`.

        Args:
            patience: seconds to wait until written requests have been sent.
        """
        self._closed = True
        self.connections.refuse()
        await self._updater.close()
        waiters, self._waiters = self._waiters, []
        _answer(waiters, KafkaConnectionError("this client was closed"))
        await self.connections.close(patience)

    # Metadata.

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics whose metadata is requested, None for all."""
        return None if self._topics is None else frozenset(self._topics)

    def watch(self, topics: Iterable[str] | None) -> None:
        """Request the metadata of these topics, and of no others, from the next refresh on; None for all topics."""
        self._topics = None if topics is None else set(topics)

    def watch_also(self, topics: Iterable[str]) -> bool:
        """Request the metadata of these topics as well; returns whether any of them is new."""
        new = set() if self._topics is None else set(topics) - self._topics
        if self._topics is not None:
            self._topics |= new
        return bool(new)

    def want_refresh(self, *, urgent: bool = False) -> None:
        """Request metadata soon: at most once every `retry_backoff_ms`, unless it is urgent."""
        self._wanted.set()
        if urgent:
            self._urgent.set()

    async def refresh(self, timeout: float | None = None) -> Cluster:
        """Request metadata now and wait for it.

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
        """Request the metadata of topics once, without watching them.

        Args:
            topics: their names; all topics if None.

        Raises:
            KafkaError: no broker answers.
        """
        names = None if topics is None else frozenset(topics)
        request = _request(names, auto_create=False)
        response = await self.ask_any(request, MetadataResponse)
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, "ask about topics")
        return Cluster().updated(response, None)

    async def names_of(self, topic_ids: Iterable[bytes]) -> Mapping[bytes, str]:
        """Request the names of topics once; those that the broker does not know are missing.

        Raises:
            KafkaError: no broker answers.
        """
        topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in sorted(topic_ids)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await self.ask_any(request, MetadataResponse)
        return {bytes(one.topic_id): one.name for one in response.topics if one.name and one.topic_id != NO_ID}

    def learn(self, cluster: Cluster) -> None:
        """Replace the cluster, such as after an error response that names the new leader (KIP-951)."""
        if cluster is not self.cluster:
            self.cluster = cluster
            for listener in list(self.listeners):
                listener(cluster)

    async def _keep_updated(self) -> None:
        backoff = retry_backoff(self.config)
        loop = asyncio.get_running_loop()
        earliest = loop.time()
        while True:
            # Not requested again at once, unless a caller waits for it.
            await self._until_wanted(earliest - loop.time())
            self._wanted.clear()
            self._urgent.clear()
            waiters, self._waiters = self._waiters, []
            try:
                cluster = await self._update()
            except KafkaError as error:
                _answer(waiters, _public(error))
                log = _log.info if backoff.failures else _log.warning  # one warning per outage is enough
                log("no metadata", reason=str(error))
                await asyncio.sleep(backoff.failed())
                self._wanted.set()
            except BaseException as error:
                _answer(waiters, KafkaConnectionError(f"metadata could not be had: {error!r}"))
                raise
            else:
                _answer(waiters, cluster)
                if _is_complete(cluster):
                    backoff.succeeded()
                    earliest = loop.time() + backoff.first
                else:
                    # A topic is being created or a leader elected: request again, with growing pauses.
                    earliest = loop.time() + backoff.failed()
                    self._wanted.set()

    async def _until_wanted(self, pause: float) -> None:
        idle = min(self.config.metadata_max_age_ms, self.config.connections_max_idle_ms) / 1000
        await _within(self._wanted.wait(), idle)
        self.connections.close_idle()
        if not self._urgent.is_set() and pause > 0:
            await _within(self._urgent.wait(), pause)

    async def _first(self, beside: Callable[[Connection], None] | None) -> Cluster:
        """Request the first metadata; again if the answer has no brokers: that broker starts, or has just lost etcd.

        Without any answer, they are requested once without what is sent beside, which may be the reason.
        """
        backoff = retry_backoff(self.config)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.request_timeout
        #: The connections on which something was sent beside.
        sent: list[Connection] = []

        def send(connection: Connection) -> None:
            if beside is not None:
                sent.append(connection)
                beside(connection)

        while True:
            try:
                return await self._update(send)
            except _NoBrokersError as error:
                if loop.time() >= deadline:
                    raise _public(error) from None
            except KafkaError:
                if beside is None or not sent:
                    raise
                beside = None
                continue
            await asyncio.sleep(min(backoff.failed(), max(0.0, deadline - loop.time())))

    async def _update(self, beside: Callable[[Connection], None] | None = None) -> Cluster:
        """Request metadata from one broker after the other until one answers.

        A broker that is cut off from its cluster answers with what it knew before: if it has brought nothing new, the
        others are asked first the next time, also if they are not connected yet, except for those that are silent.
        """
        topics = self.topics
        request = _request(topics, auto_create=self._auto_create)
        answered: list[Address] = []

        async def ask(connection: Connection) -> MetadataResponse:
            if beside is not None:
                beside(connection)
            response = await connection.ask(request, MetadataResponse, timeout=self.config.request_timeout)
            if response.error_code != ErrorCode.NONE or not response.brokers:
                raise _NoBrokersError(f"{connection.host}:{connection.port} knows no brokers")
            answered.append((connection.host, connection.port))
            return response

        addresses = self._addresses(Purpose.DATA)
        if self._unhelpful in addresses:
            silent = self.connections.silent
            addresses.sort(key=lambda one: (silent(one, Purpose.DATA), one == self._unhelpful))
        response, failures = await self.connections.first_answer(addresses, Purpose.DATA, ask)
        if response is None:
            told = (_NoBrokersError, AuthenticationFailedError)
            failure = next((type(one) for one in failures if isinstance(one, told)), KafkaConnectionError)
            reasons = "; ".join(str(one) for one in failures)
            raise failure(f"no broker could be asked about the cluster: {reasons}")
        before = self.cluster
        self.learn(before.updated(response, None if topics is None else self._topics))
        same = (before.brokers, before.topics) == (self.cluster.brokers, self.cluster.topics)
        self._unhelpful = answered[-1] if same and answered else None
        return self.cluster

    # Requests.

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
        """Send a request to a broker and wait for the response; see :meth:`Connection.ask`.

        Args:
            node_id: the broker.
            request: in its newest form.
            answer: the class of the response.
            purpose: which connection to use.
            timeout: seconds; `request_timeout_ms` if None.
            at_most: the newest version to use.

        Raises:
            KafkaError: no connection, no response in time, or the broker is too old.
        """
        connection = await self.connection(node_id, purpose)
        seconds = self.config.request_timeout if timeout is None else timeout
        return await connection.ask(request, answer, timeout=seconds, at_most=at_most)

    async def ask_any(
        self, request: Request, answer: type[R], *, purpose: Purpose = Purpose.DATA, timeout: float | None = None
    ) -> R:
        """Send a request to any broker and wait for the response; several may get the request.

        Raises:
            KafkaError: the error of the last broker, if none answers.
        """
        seconds = self.config.request_timeout if timeout is None else timeout

        async def ask(connection: Connection) -> R:
            return await connection.ask(request, answer, timeout=seconds)

        response, failures = await self.connections.first_answer(self._addresses(purpose), purpose, ask)
        if response is None:
            raise failures[-1]
        return response

    def ready(self, node_id: int) -> bool:
        """Whether a broker is known and its address has no back-off."""
        broker = self.cluster.brokers.get(node_id)
        return broker is not None and self.connections.pause((broker.host, broker.port)) <= 0

    def failure(self, node_id: int) -> KafkaError | None:
        """Why the last attempt to connect to a broker failed; None if it did not, or the broker is not known."""
        broker = self.cluster.brokers.get(node_id)
        return None if broker is None else self.connections.failure((broker.host, broker.port))

    async def connection(self, node_id: int, purpose: Purpose) -> Connection:
        """The connection to a broker for a purpose; opens it if necessary.

        Raises:
            KafkaError: the broker is not known, not :meth:`ready`, or does not answer. Metadata is then requested.
        """
        broker = self.cluster.brokers.get(node_id)
        if broker is None:
            self.want_refresh()
            raise KafkaConnectionError(f"broker {node_id} is not part of the cluster, as far as is known")
        try:
            return await self.connections.open((broker.host, broker.port), purpose)
        except KafkaError:
            self.want_refresh()
            raise

    def open_connection(self, node_id: int, purpose: Purpose) -> Connection | None:
        """The connection to a broker for a purpose, None if it is not open."""
        broker = self.cluster.brokers.get(node_id)
        return None if broker is None else self.connections.get((broker.host, broker.port), purpose)

    def _addresses(self, purpose: Purpose) -> list[Address]:
        """The addresses of any broker, in the order to try them: known brokers, then bootstrap servers."""
        known = [(broker.host, broker.port) for broker in self.cluster.brokers.values()]
        RANDOM.shuffle(known)
        ranked = self.connections.ranked
        return list(dict.fromkeys([*ranked(known, purpose), *ranked(self.config.servers, purpose)]))


async def _within(waiting: Awaitable[object], seconds: float) -> None:
    """Wait for at most that many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        pass


def _public(error: KafkaError) -> KafkaError:
    """The error as programs receive it: the class for answers without brokers is private."""
    if not isinstance(error, _NoBrokersError):
        return error
    return KafkaConnectionError(
        f"{error}. To do: check whether the broker is still starting, or has lost its cluster, and try again"
    )


def _request(topics: Iterable[str] | None, *, auto_create: bool) -> MetadataRequest:
    names = None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(topics)]
    return MetadataRequest(topics=names, allow_auto_topic_creation=auto_create)


def _is_complete(cluster: Cluster) -> bool:
    """Whether all topics are known, and all their partitions have leaders."""
    return not any(
        topic.error.retriable or any(info.leader == NO_LEADER for info in topic.partitions.values())
        for topic in cluster.topics.values()
    )


def _answer(waiters: Iterable["asyncio.Future[Cluster]"], outcome: Cluster | KafkaError) -> None:
    for waiter in waiters:
        if isinstance(outcome, Cluster):
            resolve(waiter, outcome)
        else:
            reject(waiter, outcome)
