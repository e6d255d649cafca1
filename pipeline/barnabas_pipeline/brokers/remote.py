"""Blocking access to brokers, for code that is not async: Spark's driver and Python workers.

Records are sent by the producer of :mod:`barnabas.sync`. What that does not have runs as coroutines on the same loop
(:mod:`barnabas_client.loop_thread`): fetches that return a partition's batches undecoded, while the caller converts
those before; batches with sequence numbers of the caller's; and calls whose attempts, the first connection included,
share one timeout: those that fail with a retriable error are retried for ``kafka.default.api.timeout.ms``.

A process has one :class:`Remote` for each :class:`~barnabas_pipeline.brokers.settings.Settings`. It lives as long as
the process, since Spark reuses its workers.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple, TypeVar

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import OffsetSpec, TransactionDescription
from barnabas_client.config import ClientConfig, parse_servers
from barnabas_client.errors import KafkaTimeoutError, error_for
from barnabas_client.loop_thread import LoopThread, loop_thread
from barnabas_client.network.connections import Purpose
from barnabas_client.network.metadata import NO_ID, Cluster
from barnabas_client.network.network import Network
from barnabas_client.network.retries import jitter
from barnabas_client.network.versions import TOPICS_BY_NAME
from barnabas_client.producer.config import ProducerConfig
from barnabas_client.structs import OffsetAndMetadata, PreparedTransaction, TopicPartition
from barnabas_client.sync import Producer
from barnabas_client.token_files import FileTokenProvider
from barnabas_pipeline.brokers.settings import Settings
from barnabas_protocol.backoff import Backoff
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.hot.fetch import decode_fetch_response
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.wire import Buffer

T = TypeVar("T")

#: The largest transaction timeout; the sink has no transactions.
_MAX_INT: Final = 2_147_483_647
_SETTINGS: Final = frozenset(field.name for field in fields(Settings))
#: What errors say if a request had no answer in time.
NO_ANSWER: Final = "did not answer within"
#: The metadata may be stale: another broker may lead the partition now.
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


class RemoteTopic(NamedTuple):
    """A topic: its id in hexadecimal ("" if the brokers have no topic ids), and the numbers of its partitions."""

    id: str
    partitions: tuple[int, ...]
    internal: bool = False


@dataclass(frozen=True, slots=True)
class FetchResult:
    """A leader's response to a fetch.

    Attributes:
        error: NONE, OFFSET_OUT_OF_RANGE, or UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist.
        log_start: the log start offset, -1 if unknown.
        end: the high watermark, or the last stable offset with ``read_committed``; -1 if unknown.
        data: the response of the partition.
    """

    error: ErrorCode
    log_start: int
    end: int
    data: PartitionData


_lock: Final = threading.Lock()
#: The brokers by loop and settings: a forked process has a loop of its own.
_remotes: Final[dict[tuple[LoopThread, Settings], "Remote"]] = {}


def remote_for(settings: Settings) -> "Remote":
    """Return the brokers that `settings` lead to; the same object for equal settings."""
    with _lock:
        key = loop, _ = loop_thread(), settings
        if key not in _remotes:
            _remotes[key] = Remote(settings, loop)
        return _remotes[key]


class Remote:
    """The brokers of a cluster. Created by :func:`remote_for`; methods may be called from any thread.

    All methods raise KafkaError: the brokers refused, or the timeout expired after a retriable error.
    """

    def __init__(self, settings: Settings, loop: LoopThread) -> None:
        self.settings = settings
        self._loop = loop
        loop.closing.add(self)
        self._deadline = settings.default_api_timeout_ms / 1000
        self._locks: dict[str, asyncio.Lock] = {}
        self._admin: Admin | None = None
        self._network: Network | None = None
        self._starting = threading.Lock()
        self._producer: Producer[Buffer, Buffer] | None = None

    @property
    def servers(self) -> str:
        """The addresses to connect to first."""
        return self.settings.bootstrap_servers

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and wait for its result."""
        return self._loop.run(work)

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine on the loop, and return a future of its result."""
        return self._loop.start(work)

    # Connections.

    def _same(self, config: type[ClientConfig] | type[ProducerConfig]) -> dict[str, Any]:
        """Return the settings of a client that have the same name here."""
        return {name: getattr(self.settings, name) for name in config.TYPES if name in _SETTINGS}

    def _common_settings(self) -> dict[str, Any]:
        """Return the settings that all clients share."""
        settings = self.settings
        user, password = settings.login() or (None, None)
        token = settings.token_file()
        return {
            **self._same(ClientConfig),
            "ssl_context": settings.ssl_context(),
            "sasl_mechanism": settings.sasl_mechanism or ClientConfig.sasl_mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
            "sasl_oauth_token_provider": None if token is None else FileTokenProvider(token),
        }

    async def admin(self) -> Admin:
        """Return the admin client, for topics, offsets and groups."""
        async with self._locks.setdefault("admin", asyncio.Lock()):
            if self._admin is None:
                admin = Admin(**self._common_settings(), bootstrap_servers=self.settings.bootstrap_servers)
                await admin.start()
                self._admin = admin
            return self._admin

    async def network(self) -> Network:
        """Return the network client, for requests that this package builds itself."""
        async with self._locks.setdefault("network", asyncio.Lock()):
            if self._network is None:
                servers = parse_servers(self.settings.bootstrap_servers)
                network = Network(ClientConfig(**self._common_settings(), servers=servers))
                try:
                    await network.start()
                except BaseException:
                    await network.close()
                    raise
                self._network = network
            return self._network

    def producer(self) -> Producer[Buffer, Buffer]:
        """Return the producer of the sink, which has no transactions."""
        with self._starting:
            if self._producer is None:
                producer = self.new_producer(None)
                producer.start()
                self._producer = producer
            return self._producer

    def new_producer(self, transactional_id: str | None) -> Producer[Buffer, Buffer]:
        """Create a producer that the caller starts and stops.

        Args:
            transactional_id: of its transactions; earlier producers with it are fenced. None for no transactions.
        """
        return Producer(
            **self._common_settings(),
            **self._same(ProducerConfig),
            bootstrap_servers=self.settings.bootstrap_servers,
            transactional_id=transactional_id,
        )

    def drop_producer(self) -> None:
        """Stop the producer without sending what it has buffered; :meth:`producer` then creates another."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.stop(timeout_ms=0)

    async def aclose(self) -> None:
        """Close the connections, but for the producer's, which closes its own."""
        closing = [one.close() for one in (self._admin, self._network) if one is not None]
        self._admin = self._network = None
        await asyncio.gather(*closing)

    async def retrying(self, what: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Call `what` until it succeeds, fails with an error that is not retriable, or the timeout expires.

        Args:
            what: the operation; idempotent.
            seconds: the timeout for all attempts; ``kafka.default.api.timeout.ms`` if None.
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
                raise last or self._timeout(seconds) from error
            except KafkaError as error:
                last = error
                pause = backoff.failed()
                if not error.retriable or loop.time() + pause >= until:
                    raise
                await asyncio.sleep(pause)

    def _timeout(self, seconds: float | None) -> KafkaTimeoutError:
        late = f"the brokers at {self.servers} {NO_ANSWER}"
        if seconds is not None:
            return KafkaTimeoutError(f"{late} {seconds:g} s. To do: check that they are up")
        limit = f"kafka.default.api.timeout.ms ({self.settings.default_api_timeout_ms} ms)"
        return KafkaTimeoutError(f"{late} {limit}. To do: check that they are up, or raise it")

    # Topics and offsets.

    def topics(self, names: Collection[str] | None = None) -> dict[str, RemoteTopic]:
        """Look up topics by name; those that do not exist are left out.

        Args:
            names: the topics; all topics if None.
        """

        async def describe() -> dict[str, RemoteTopic]:
            admin = await self.admin()
            found: dict[str, RemoteTopic] = {}
            for topic in await admin.describe_topics(names, raise_errors=False):
                if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                if topic.error != ErrorCode.NONE and names is not None:
                    raise error_for(topic.error, f"look up topic {topic.name!r}")
                identity = "" if topic.id == NO_ID else topic.id.hex()
                found[topic.name] = RemoteTopic(identity, tuple(sorted(topic.partitions)), topic.internal)
            return found

        return self.run(self.retrying(describe))

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Look up offsets by time.

        Args:
            wanted: for each partition a time in ms since 1970, :attr:`OffsetSpec.EARLIEST` or
                :attr:`OffsetSpec.LATEST`.

        Returns:
            For each partition the offset of the first record at or after that time, -1 if there is none. With
            ``kafka.isolation.level=read_committed`` the latest offset is the last stable offset.
        """
        if not wanted:
            return {}

        async def list_offsets() -> dict[TopicPartition, int]:
            admin = await self.admin()
            committed = self.settings.isolation_level == "read_committed"
            listed = await admin.list_offsets(wanted, read_committed=committed)
            return {tp: one.offset for tp, one in listed.items()}

        return self.run(self.retrying(list_offsets))

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Look up the log start offset of each partition."""
        return self.offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Look up the offset after the last record of each partition."""
        return self.offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str, seconds: float) -> None:
        """Commit offsets to a group without members, so that lag tools show them.

        Args:
            group: the group.
            offsets: for each partition the next offset to read.
            metadata: the metadata of each committed offset.
            seconds: the timeout.
        """
        committed = {tp: OffsetAndMetadata(offset, metadata) for tp, offset in offsets.items()}

        async def alter() -> None:
            admin = await self.admin()
            await admin.alter_consumer_group_offsets(group, committed)

        self.run(self.retrying(alter, seconds))

    # Transactions.

    async def open_transactions(self, prepared: Collection[PreparedTransaction]) -> set[PreparedTransaction]:
        """Return those transactions that are still open: neither ended, nor aborted, nor fenced by another producer."""
        if not prepared:
            return set()
        names = [one.transactional_id for one in prepared]

        async def describe() -> dict[str, TransactionDescription]:
            admin = await self.admin()
            found = await admin.describe_transactions(names, raise_errors=False)
            for one in found:
                if one.error is not None and one.error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise one.error
            return {one.transactional_id: one for one in found if one.error is None}

        states = await self.retrying(describe)
        return {one for one in prepared if _is_open(one, states.get(one.transactional_id))}

    async def end_transactions(
        self, prepared: Iterable[PreparedTransaction], *, committed: bool
    ) -> dict[PreparedTransaction, KafkaError]:
        """Commit or abort prepared transactions, and return the errors of those that were refused."""
        left, refused = list(prepared), {}

        async def end() -> None:
            nonlocal left
            admin = await self.admin()
            outcomes = await admin.end_transactions(left, committed=committed)
            failed = {one: error for one, error in outcomes.items() if error is not None}
            refused.update({one: error for one, error in failed.items() if not error.retriable})
            left = [one for one, error in failed.items() if error.retriable]
            for one in left:
                raise failed[one]

        if left:
            await self.retrying(end)
        return refused

    async def committed_in(self, group: str, *, stable: bool) -> OffsetAndMetadata | None:
        """Return the largest offset that is committed to a group, in any topic.

        Args:
            group: its id.
            stable: wait for open transactions with offsets of the group.
        """

        async def fetch() -> OffsetAndMetadata | None:
            admin = await self.admin()
            found = await admin.list_consumer_group_offsets(group, require_stable=stable)
            known = (OffsetAndMetadata(one.offset, one.metadata) for one in found.values() if one.offset is not None)
            return max(known, default=None)

        return await self.retrying(fetch)

    # Fetching.

    def start_fetch(self, tp: TopicPartition, offset: int, max_bytes: int) -> "Future[FetchResult]":
        """Start to fetch records of `tp` from `offset` on, and return a future of the leader's response."""
        return self.start(self.retrying(lambda: self._fetch(tp, offset, max_bytes)))

    async def _fetch(self, tp: TopicPartition, offset: int, max_bytes: int) -> FetchResult:
        network, settings = await self.network(), self.settings
        cluster = await self.cluster_with(network, tp)
        info, leader = cluster.partition(tp), cluster.leader(tp)
        if info is None:
            return _unknown_partition(tp)
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
        at_most = TOPICS_BY_NAME if topic_id == NO_ID else None
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
            # The topic was deleted or recreated, or the metadata is stale.
            cluster = await network.refresh()
            if cluster.partition(tp) is None:
                return _unknown_partition(tp)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"fetch {tp} from broker {leader}: {code.name}")
        if code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise error_for(code, f"fetch {tp} at offset {offset} from broker {leader}")
        end = data.last_stable_offset if request.isolation_level else data.high_watermark
        return FetchResult(code, data.log_start_offset, end, data)

    # Producing with sequence numbers of the caller's.

    def init_producer_id(self) -> tuple[int, int]:
        """Request a new producer id from the brokers; return it and its epoch."""

        async def init() -> tuple[int, int]:
            network = await self.network()
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_MAX_INT)
            response = await network.ask_any(request, InitProducerIdResponse)
            if response.error_code != ErrorCode.NONE:
                raise error_for(response.error_code, "get a producer id")
            return response.producer_id, response.producer_epoch

        return self.run(self.retrying(init))

    async def produce(self, tp: TopicPartition, batch: bytearray) -> None:
        """Send an encoded record batch to the leader of `tp`, with acks=all and retries.

        A batch that the broker already has (DUPLICATE_SEQUENCE_NUMBER) is a success.
        """
        seconds = self.settings.delivery_timeout_ms / 1000
        await self.retrying(lambda: self._produce(tp, batch), seconds)

    async def _produce(self, tp: TopicPartition, batch: bytearray) -> None:
        network, settings = await self.network(), self.settings
        leader = (await self.cluster_with(network, tp)).leader(tp)
        if leader is None:
            await network.refresh()
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"write to {tp}")
        data = PartitionProduceData(index=tp.partition, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=tp.topic, partition_data=[data])],
        )
        # The broker may wait for replicas nearly as long as the request timeout.
        seconds = settings.request_timeout_ms / 1000 * 1.5
        response = await network.ask(leader, request, ProduceResponse, timeout=seconds, at_most=TOPICS_BY_NAME)
        answers = [answer for topic in response.responses for answer in topic.partition_responses]
        if len(answers) != 1:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"write to {tp}: the broker's answer does not mention it")
        code = ErrorCode.of(answers[0].error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return
        if code.refreshes_metadata:
            await network.refresh()
        raise error_for(answers[0].error_code, f"write to {tp}", answers[0].error_message)

    @staticmethod
    async def cluster_with(network: Network, tp: TopicPartition) -> Cluster:
        """Return metadata that includes `tp`, if that partition exists."""
        if network.watch_also([tp.topic]) or network.cluster.partition(tp) is None:
            return await network.refresh()
        return network.cluster


def _is_open(transaction: PreparedTransaction, found: TransactionDescription | None) -> bool:
    mine = (transaction.producer_id, transaction.producer_epoch)
    return found is not None and found.state == "Ongoing" and (found.producer_id, found.producer_epoch) == mine


def _unknown_partition(tp: TopicPartition) -> FetchResult:
    data = PartitionData(
        partition_index=tp.partition,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        high_watermark=-1,
        records=None,
    )
    return FetchResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, data)
