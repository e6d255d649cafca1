"""The consumer of a share group, as programs see it.

A poll that finds nothing in the buffer has every leader fetch (:mod:`barnabas_client.shares.leader`), and returns what
comes first. Nothing is fetched ahead: a record that waits here would use up the time of its lock. What a fetch has
brought beyond one poll is kept until the locks expire, and is then left to other members.

Source: ``ShareConsumerImpl.java``; KIP-932.
"""

import asyncio
import ssl
import sys
import time
import warnings
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, Unpack, overload
from uuid import uuid4

from barnabas_client.checks import check_topic
from barnabas_client.config import (
    DEFAULT_SERVERS,
    AsyncDeserializer,
    ClientConfig,
    ContextDeserializer,
    Deserializer,
    SaslMechanism,
    SecurityProtocol,
    ShareAcknowledgementMode,
    ShareAcquireMode,
    ShareConsumerConfig,
    ShareConsumerSettings,
    parse_servers,
)
from barnabas_client.consumer.parallel.config import HandlerConfig
from barnabas_client.errors import (
    ConsumerStoppedError,
    CorruptRecordError,
    IllegalStateError,
    RecordDeserializationError,
    WakeupError,
    error_for,
)
from barnabas_client.keywords import suggest_names
from barnabas_client.lifecycle import AsyncOnly, Home, Lifecycle
from barnabas_client.logs import logger
from barnabas_client.membership.heartbeats import Partitions, TopicIdPartition
from barnabas_client.membership.member import MemberConfig
from barnabas_client.network.metadata import Cluster
from barnabas_client.network.network import Network
from barnabas_client.serialization import Conversion
from barnabas_client.shares.leader import Leader
from barnabas_client.shares.membership import ShareMembership
from barnabas_client.shares.records import Part, Row, ShareHandler, ShareRecord, acquired_rows, are_valid
from barnabas_client.shares.session import Acknowledgement, LeaderSession, Limits, Run
from barnabas_client.structs import K, TopicPartition, V
from barnabas_client.tasks import uninterrupted
from barnabas_client.tokens import TokenProvider
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.share_fetch import ShareFetchResponse

if TYPE_CHECKING:
    from barnabas_client.producer.producer import Producer
    from barnabas_client.shares.runner import ShareRunner

_log: Final = logger("barnabas_client.shares")

#: The acquire modes in a request (KIP-1206).
_ACQUIRE_MODES: Final[Mapping[ShareAcquireMode, int]] = {"batch_optimized": 0, "record_limit": 1}


class _Delivery:
    """Records of a partition from one fetch; takes their acknowledgements.

    Args:
        consumer: that fetched.
        leader: of the partition.
        where: the partition.
        parts: its records.
        lock: seconds that the locks last, from now on.
    """

    def __init__(
        self,
        consumer: "ShareConsumer[Any, Any]",
        leader: Leader,
        where: TopicIdPartition,
        parts: Iterator[Part],
        lock: float,
    ) -> None:
        self.parts = parts
        self.lock = lock
        self.until = asyncio.get_running_loop().time() + lock
        self.rows: deque[Row] = deque()
        self._consumer = consumer
        self._leader = leader
        self._where = where
        self._number = leader.session.number

    def hand_over(self, offset: int, kind: Acknowledgement) -> Awaitable[None] | None:
        """See :class:`Holder`."""
        self._consumer._check_explicit()
        if kind is not Acknowledgement.RENEW:
            self.say(Run(offset, offset, kind))
            return None
        if self._ended:
            raise _session_has_ended()
        self.say(Run(offset, offset, kind))
        return self._leader.flushed(self._where)

    def say(self, run: Run) -> None:
        """See :class:`Holder`."""
        if not self._ended:
            self._leader.acknowledge(self._where, run)
        elif run.kind is not Acknowledgement.GAP:
            self._consumer.refused({self._where: _session_has_ended()})

    @property
    def _ended(self) -> bool:
        """Whether the session that has acquired the records has ended."""
        return self._number != self._leader.session.number


class ShareConsumer(AsyncOnly, Generic[K, V]):
    """Takes records from queues: topics whose records are divided among the members of a share group (KIP-932).

    ::

        consumer = ShareConsumer("orders", group_id="workers", share_acknowledgement_mode="explicit")
        async with consumer:
            async for record in consumer:
                await record.accept()

    Any number of members read the same partition. A record is locked for the member that gets it, until the member
    acknowledges it; otherwise it is delivered again when the lock expires (``share.record.lock.duration.ms`` of the
    group, 30 s), to any member. Order is not kept, and there are no positions and no commits of offsets. It needs
    Barnabas, or Apache Kafka 4.2 or newer. A new group begins at the end of its topics, unless
    ``share.auto.offset.reset`` of the group is "earliest".

    ``ShareConsumer[K, V]`` returns keys of K and values of V, as :class:`~barnabas.Consumer` does. Call all methods in
    the event loop that called :meth:`start`.

    Args:
        topics: the topics to read; none if :meth:`subscribe` follows. Default: none.
        group_id: the share group to join. It cannot have the name of a consumer group. Required.
        bootstrap_servers: addresses to start with, ``"host:port,host:port"`` or a list of such strings; the cluster
            names the others. Default: "localhost:9092".
        client_id: the name of this client in the brokers' logs. Default: "barnabas".
        share_acknowledgement_mode: "implicit" accepts the records of a poll at the next poll, in :meth:`commit` and in
            :meth:`stop`; "explicit" leaves it to :meth:`ShareRecord.accept() <barnabas.ShareRecord.accept>` and its
            siblings. Default: "implicit".
        share_acquire_mode: "batch_optimized" acquires whole batches, which may be more than `max_poll_records`;
            "record_limit" no more than that (KIP-1206). Default: "batch_optimized".
        max_poll_records: one poll returns at most so many records, and a fetch asks for so many. Lower it if a record
            takes long: all of them are locked from the fetch on. Default: 500 records.
        key_deserializer: makes an object from a key's bytes; see :class:`~barnabas.Consumer`. Default: None, which
            leaves the bytes.
        value_deserializer: makes an object from a value's bytes, likewise. A record for which a deserializer raises is
            released. Default: None, which leaves the bytes.
        fetch_max_wait_ms: how long the broker waits for `fetch_min_bytes`. Default: 500 ms.
        fetch_max_bytes: the limit of one fetch response. Default: 52428800 bytes.
        fetch_min_bytes: the broker answers a fetch when it has so many bytes, or after `fetch_max_wait_ms`. Default: 1
            byte.
        check_crcs: verify the checksum of each batch. Default: True.
        client_rack: where this client is. Default: "", which is nowhere.
        close_timeout_ms: how long :meth:`stop` may take to acknowledge and leave. Default: 10000 ms.
        request_timeout_ms: how long a response may take before the connection is closed. Default: 40000 ms.
        retry_backoff_ms: the pause before the first retry; it doubles up to `retry_backoff_max_ms` (KIP-580). Default:
            100 ms.
        retry_backoff_max_ms: the longest pause before a retry. Default: 1000 ms.
        metadata_max_age_ms: how often metadata is refreshed when nothing else refreshes it. Default: 300000 ms.
        connections_max_idle_ms: connections that are idle for so long are closed. Default: 540000 ms.
        security_protocol: "PLAINTEXT", "SSL" for TLS, "SASL_SSL" to log in over TLS, or "SASL_PLAINTEXT" to log in
            without it. Default: "PLAINTEXT".
        ssl_context: the context for TLS. Default: None, which makes one of the next five.
        ssl_cafile: a PEM file with the certificates to trust. Default: None, which trusts the system's.
        ssl_certfile: a PEM file with this client's certificate, and its key unless `ssl_keyfile` is given. Default:
            None.
        ssl_keyfile: a PEM file with the key of that certificate. Default: None.
        ssl_password: the password of an encrypted key. Default: None.
        ssl_check_hostname: check that the certificate of a broker is for its host name. Default: True.
        sasl_mechanism: how to log in: "PLAIN", which sends the password, "SCRAM-SHA-256", "SCRAM-SHA-512", or
            "OAUTHBEARER", which sends a token. Default: "PLAIN".
        sasl_plain_username: the user, for all mechanisms but OAUTHBEARER. Default: None.
        sasl_plain_password: the user's password. Default: None.
        sasl_oauth_token_provider: gives the tokens of OAUTHBEARER; see
            :class:`~barnabas_client.tokens.AbstractTokenProvider`. Default: None.

    Raises:
        TypeError, ValueError: a setting is invalid; the message names it and what would be right.
    """

    @overload
    def __init__(
        self: "ShareConsumer[bytes, V]",
        *topics: str,
        group_id: str,
        key_deserializer: None = None,
        value_deserializer: AsyncDeserializer[V],
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[bytes, bytes]",
        *topics: str,
        group_id: str,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[K, bytes]",
        *topics: str,
        group_id: str,
        key_deserializer: Deserializer[K],
        value_deserializer: None = None,
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[bytes, V]",
        *topics: str,
        group_id: str,
        key_deserializer: None = None,
        value_deserializer: Deserializer[V],
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[K, V]",
        *topics: str,
        group_id: str,
        key_deserializer: Deserializer[K],
        value_deserializer: Deserializer[V],
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[bytes, V]",
        *topics: str,
        group_id: str,
        key_deserializer: None = None,
        value_deserializer: ContextDeserializer[V],
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[K, V]",
        *topics: str,
        group_id: str,
        key_deserializer: Deserializer[K] | ContextDeserializer[K],
        value_deserializer: ContextDeserializer[V],
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @suggest_names
    def __init__(
        self,
        *topics: str,
        group_id: str,
        bootstrap_servers: str | Iterable[str] = DEFAULT_SERVERS,
        client_id: str = ClientConfig.client_id,
        share_acknowledgement_mode: ShareAcknowledgementMode = ShareConsumerConfig.share_acknowledgement_mode,
        share_acquire_mode: ShareAcquireMode = ShareConsumerConfig.share_acquire_mode,
        max_poll_records: int = ShareConsumerConfig.max_poll_records,
        key_deserializer: Deserializer[Any] | ContextDeserializer[Any] | None = ShareConsumerConfig.key_deserializer,
        value_deserializer: (
            Deserializer[Any] | ContextDeserializer[Any] | None
        ) = ShareConsumerConfig.value_deserializer,
        fetch_max_wait_ms: int = ShareConsumerConfig.fetch_max_wait_ms,
        fetch_max_bytes: int = ShareConsumerConfig.fetch_max_bytes,
        fetch_min_bytes: int = ShareConsumerConfig.fetch_min_bytes,
        check_crcs: bool = ShareConsumerConfig.check_crcs,
        client_rack: str = ShareConsumerConfig.client_rack,
        close_timeout_ms: int = ShareConsumerConfig.close_timeout_ms,
        request_timeout_ms: int = ClientConfig.request_timeout_ms,
        retry_backoff_ms: int = ClientConfig.retry_backoff_ms,
        retry_backoff_max_ms: int = ClientConfig.retry_backoff_max_ms,
        metadata_max_age_ms: int = ClientConfig.metadata_max_age_ms,
        connections_max_idle_ms: int = ClientConfig.connections_max_idle_ms,
        security_protocol: SecurityProtocol = ClientConfig.security_protocol,
        ssl_context: ssl.SSLContext | None = ClientConfig.ssl_context,
        ssl_cafile: str | None = ClientConfig.ssl_cafile,
        ssl_certfile: str | None = ClientConfig.ssl_certfile,
        ssl_keyfile: str | None = ClientConfig.ssl_keyfile,
        ssl_password: str | None = ClientConfig.ssl_password,
        ssl_check_hostname: bool = ClientConfig.ssl_check_hostname,
        sasl_mechanism: SaslMechanism = ClientConfig.sasl_mechanism,
        sasl_plain_username: str | None = ClientConfig.sasl_plain_username,
        sasl_plain_password: str | None = ClientConfig.sasl_plain_password,
        sasl_oauth_token_provider: TokenProvider | None = ClientConfig.sasl_oauth_token_provider,
    ) -> None:
        self._client = ClientConfig(
            servers=parse_servers(bootstrap_servers),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            connections_max_idle_ms=connections_max_idle_ms,
            security_protocol=security_protocol,
            ssl_context=ssl_context,
            ssl_cafile=ssl_cafile,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            ssl_password=ssl_password,
            ssl_check_hostname=ssl_check_hostname,
            sasl_mechanism=sasl_mechanism,
            sasl_plain_username=sasl_plain_username,
            sasl_plain_password=sasl_plain_password,
            sasl_oauth_token_provider=sasl_oauth_token_provider,
        )
        self._config = ShareConsumerConfig(
            group_id=group_id,
            share_acknowledgement_mode=share_acknowledgement_mode,
            share_acquire_mode=share_acquire_mode,
            max_poll_records=max_poll_records,
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_bytes=fetch_max_bytes,
            fetch_max_wait_ms=fetch_max_wait_ms,
            check_crcs=check_crcs,
            client_rack=client_rack,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            close_timeout_ms=close_timeout_ms,
        )
        self._conversion = Conversion(key_deserializer, value_deserializer)
        self._home = Home("share consumer")
        self._phase = Lifecycle.NEW
        self._topics: frozenset[str] = frozenset()
        #: As Kafka's client makes member ids: the bytes of a UUID in base64.
        self._member_id = urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
        self._network: Network | None = None
        self._membership: ShareMembership | None = None
        self._leaders: dict[int, Leader] = {}
        self._buffer: deque[_Delivery] = deque()
        self._untaken: deque[ShareRecord[K, V]] = deque()  # of polls that were cancelled: the next one returns them
        self._delivered: list[ShareRecord[K, V]] = []  # what the next poll accepts
        self._waiting = 0
        self._arrived = asyncio.Event()
        self._failure: KafkaError | None = None  # of the membership
        self._error: KafkaError | None = None  # for the next poll
        self._refusal: KafkaError | None = None  # for the next commit
        self._woken = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: ShareRunner | None = None
        #: Whether a poll waits for records; leaders read it.
        self.hungry = False
        #: Of the next fetch; leaders read it.
        self.limits = self._limits(max_poll_records, share_acquire_mode)
        if topics:
            self.subscribe(topics)

    # Lifecycle.

    async def start(self) -> None:
        """Connect, and begin to join the group.

        Raises:
            KafkaConnectionError: no broker answers.
            IllegalStateError: it was started before.
        """
        if self._phase is not Lifecycle.NEW:
            raise IllegalStateError(
                f"start(): this share consumer is {self._phase.value} already. To do: make a new one"
            )
        self._home.settle()
        self._loop = asyncio.get_running_loop()
        self._phase = Lifecycle.STARTING
        network = self._network = Network(self._client, auto_create=True)
        network.watch(self._topics)
        try:
            await network.start()
        except BaseException:
            self._phase = Lifecycle.CLOSED
            await uninterrupted(network.close(min(1.0, self._config.close_timeout_ms / 1000)))
            raise
        config = MemberConfig(
            group_id=self._config.group_id,
            request_timeout=self._client.request_timeout,
            retry_backoff=self._client.retry_backoff_ms / 1000,
            retry_backoff_max=self._client.retry_backoff_max_ms / 1000,
            rack=self._config.client_rack or None,
        )
        self._membership = ShareMembership(network, config, self._member_id, self._assignment_changed, self._fail)
        network.listeners.append(self._metadata_changed)
        self._phase = Lifecycle.RUNNING
        if self._topics:
            self._membership.subscribe(self._topics)

    async def stop(self) -> None:
        """Acknowledge, leave the group and disconnect, within `close_timeout_ms` even if no broker answers.

        With implicit acknowledgement, the records of the last poll are accepted, unless an ``async with`` block ends
        with an error. Records without an acknowledgement are released: other members get them at once. Polls that wait
        raise `ConsumerStoppedError`, and iteration ends. A :meth:`run` ends first, as after :meth:`wakeup`. A second
        call does nothing.

        Raises:
            IllegalStateError: called in a handler of :meth:`run`.
        """
        await self._stop(accept=True)

    async def close(self) -> None:
        """The same as :meth:`stop`."""
        await self.stop()

    async def _stop(self, *, accept: bool) -> None:
        timeout = self._config.close_timeout_ms / 1000
        deadline = time.monotonic() + timeout
        if self._runner is not None:
            self._home.check()
            await self._runner.handlers.stop(timeout)
        if self._phase is Lifecycle.CLOSED:
            return
        self._home.check()
        if accept:
            self._accept_delivered()
        self._phase = Lifecycle.CLOSED
        self._notify()
        await uninterrupted(self._end(deadline))

    async def _end(self, deadline: float) -> None:
        network, membership = self._network, self._membership
        if network is None or membership is None:
            return
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0.0)):
                await asyncio.gather(*(leader.close() for leader in self._leaders.values()))
                await membership.leave()
        except TimeoutError:
            _log.warning("stopped without an answer from the brokers", group=self._config.group_id)
        finally:
            self._buffer.clear()
            for leader in self._leaders.values():
                await leader.cancel()
            await membership.close()
            await network.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop(accept=kind is None)

    def __del__(self) -> None:
        if getattr(self, "_phase", None) is Lifecycle.RUNNING:
            warnings.warn(
                f"{self!r} was never stopped: await stop(), or use `async with`", ResourceWarning, stacklevel=2
            )

    def __repr__(self) -> str:
        what = ", ".join(sorted(self._topics)) or "nothing"
        return f"<ShareConsumer of {what}, group {self._config.group_id!r}, {self._phase.value}>"

    def _running(self) -> ShareMembership:
        if self._phase is Lifecycle.CLOSED:
            raise ConsumerStoppedError("this share consumer was stopped. To do: make a new one")
        self._home.check()
        if self._membership is None:
            raise IllegalStateError(
                "this share consumer is not started. To do: start() it first, or use it in an `async with` block"
            )
        return self._membership

    # What is read.

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics. Replaces an earlier subscription.

        Raises:
            TypeError: a single string, or something else than names.
            ValueError: no topic, or an invalid name.
        """
        self._home.check()
        if isinstance(topics, str) or not isinstance(topics, Iterable):
            raise TypeError(f"subscribe({topics!r}): give a list of topics, such as ['orders']")
        names = frozenset(topics)
        if not names:
            raise ValueError("subscribe(): give at least one topic")
        for name in names:
            check_topic(f"subscribe({sorted(map(str, names))!r})", name)
        self._topics = names
        self._failure = None
        if self._membership is not None and self._network is not None:
            self._network.watch(names)
            self._network.want_refresh()
            self._membership.subscribe(names)

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        self._home.check()
        return self._topics

    # Polls.

    async def getone(self) -> ShareRecord[K, V]:
        """Wait for the next record.

        Raises:
            ConsumerStoppedError: the consumer was stopped.
            WakeupError: :meth:`wakeup` was called.
            RecordDeserializationError: a deserializer raised; the record is released.
            CorruptRecordError: records cannot be decoded; they are released.
            IllegalStateError: nothing is subscribed to.
            KafkaError: the group or a topic may not be used, or the membership failed.
        """
        return (await self._take(None, 1))[0]

    async def poll(self, timeout_ms: int = 1_000, max_records: int | None = None) -> list[ShareRecord[K, V]]:
        """Take records, waiting up to `timeout_ms` for the first.

        Args:
            timeout_ms: milliseconds to wait.
            max_records: at most so many records; `max_poll_records` if None.

        Returns:
            Records; empty if none came.

        Raises:
            ValueError: `timeout_ms` is negative, or `max_records` is below 1.
            KafkaError: see :meth:`getone`.
        """
        limit = self._config.max_poll_records if max_records is None else max_records
        if timeout_ms < 0 or limit < 1:
            raise ValueError(
                f"poll(timeout_ms={timeout_ms}, max_records={max_records}): give at least 0, and at least 1"
            )
        return await self._take(timeout_ms / 1000, limit)

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ShareRecord[K, V]]]:
        """Like :meth:`poll`, but with the records by partition, and without a wait by default."""
        by_partition: dict[TopicPartition, list[ShareRecord[K, V]]] = {}
        for record in await self.poll(timeout_ms, max_records):
            by_partition.setdefault(record.topic_partition, []).append(record)
        return by_partition

    async def __aiter__(self) -> AsyncIterator[ShareRecord[K, V]]:
        """Records, one by one, until the consumer is stopped. With implicit acknowledgement, a record is accepted when
        the loop asks for the next one.

        Raises:
            KafkaError: see :meth:`getone`.
        """
        while True:
            try:
                record = await self.getone()
            except ConsumerStoppedError:
                return
            yield record

    def wakeup(self) -> None:
        """End the poll that waits, or the next one, with `WakeupError`, and a :meth:`run`. Safe to call from any
        thread."""
        if self._loop is None:
            self._woken = True
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_up)

    def _wake_up(self) -> None:
        if self._runner is not None:
            self._runner.handlers.end()
        else:
            self._woken = True
            self._notify()

    async def commit(self) -> None:
        """Wait until the broker has what was acknowledged; with implicit acknowledgement, accept the records of the
        last poll first.

        Raises:
            KafkaError: an acknowledgement since the last commit was refused or lost: the lock had expired, or the
                connection broke. Those records are delivered again.
        """
        self._running()
        self._accept_delivered()
        await self.flush()
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    async def _take(self, timeout: float | None, limit: int) -> list[ShareRecord[K, V]]:
        self._running()
        if not self._topics:
            raise IllegalStateError("this share consumer has no topics. To do: subscribe() to some")
        self._accept_delivered()
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        self._waiting += 1
        try:
            while True:
                self._running()
                self._raise_errors()
                taken = await self._from_buffer(limit)
                if taken:
                    return taken
                self._raise_errors()
                self.hungry = True
                self._wake_leaders()
                async with asyncio.timeout_at(deadline):
                    await self._arrived.wait()
        except TimeoutError:
            return []
        finally:
            self._waiting -= 1

    async def _from_buffer(self, limit: int) -> list[ShareRecord[K, V]]:
        """Take up to `limit` records whose locks have not expired."""
        taken: list[ShareRecord[K, V]] = []
        now = asyncio.get_running_loop().time()
        while self._untaken and len(taken) < limit:
            one = self._untaken.popleft()
            if one._holder is not None and now < one._holder.until:
                taken.append(one)
        try:
            while len(taken) < limit and self._buffer and self._error is None:
                delivery = self._buffer[0]
                if now >= delivery.until:
                    self._buffer.popleft()
                elif delivery.rows:
                    await self._take_row(delivery, delivery.rows.popleft(), taken)
                else:
                    self._next_part(delivery)
                    await asyncio.sleep(0)
        except BaseException:
            # The poll was cancelled: the records are for the next one.
            self._untaken.extendleft(reversed(taken))
            raise
        if self._implicit:
            self._delivered += taken
        return taken

    def _give_back(self, records: Collection[ShareRecord[K, V]]) -> None:
        """The program has not received records of the last poll: the next one returns them."""
        self._delivered = [one for one in self._delivered if one not in records]
        self._untaken.extendleft(reversed(list(records)))

    def _next_part(self, delivery: _Delivery) -> None:
        """Decode the next part of the first delivery."""
        part = next(delivery.parts, None)
        if part is None:
            self._buffer.popleft()
            return
        for run in part.runs:
            delivery.say(run)
        delivery.rows.extend(part.rows)
        self._error = self._error or part.error

    async def _take_row(self, delivery: _Delivery, row: Row, taken: list[ShareRecord[K, V]]) -> None:
        """Deserialize a record. If a deserializer raises, the record is released, and the next poll raises."""
        given, offset = row.record, row.record.offset
        try:
            key, value, _ = await self._conversion.convert(given.topic, given.key, given.value, given.headers)
        except Exception as error:
            delivery.say(Run(offset, offset, Acknowledgement.RELEASE))
            self._error = RecordDeserializationError(given.topic_partition, offset, error)
            self._error.__cause__ = error
        except BaseException:
            delivery.rows.appendleft(row)
            raise
        else:
            taken.append(ShareRecord(given._replace(key=key, value=value), row.delivery_count, delivery))

    def _accept_delivered(self) -> None:
        """Accept what the last poll returned, if acknowledgement is implicit."""
        delivered, self._delivered = self._delivered, []
        for record in delivered:
            if record._holder is not None:
                record._holder.say(Run(record.offset, record.offset, Acknowledgement.ACCEPT))

    def _raise_errors(self) -> None:
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup() was called")
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _check_explicit(self) -> None:
        """Refuse an acknowledgement by the program if it is implicit, or the consumer was stopped.

        Raises:
            IllegalStateError: see above.
        """
        self._running()
        if self._implicit:
            raise IllegalStateError(
                'this share consumer acknowledges records itself. To do: give it share_acknowledgement_mode="explicit"'
            )

    def _limits(self, max_records: int, mode: ShareAcquireMode) -> Limits:
        return Limits(
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=self._config.fetch_max_bytes,
            max_records=max_records,
            acquire_mode=_ACQUIRE_MODES[mode],
        )

    @property
    def _implicit(self) -> bool:
        """Whether polls accept what the last one returned. During a run, the run acknowledges."""
        return self._runner is None and self._config.share_acknowledgement_mode == "implicit"

    # Parallel work.

    async def run(
        self,
        handler: ShareHandler[K, V],
        *,
        concurrency: int = HandlerConfig.concurrency,
        executor: Executor | None = HandlerConfig.executor,
        retries: int = HandlerConfig.retries,
        retry_backoff_ms: int = HandlerConfig.retry_backoff_ms,
        retry_backoff_max_ms: int = HandlerConfig.retry_backoff_max_ms,
        dead_letter_topic: str | None = HandlerConfig.dead_letter_topic,
        producer: "Producer[K, V] | None" = HandlerConfig.producer,
        drain_timeout_ms: int | None = HandlerConfig.drain_timeout_ms,
    ) -> None:
        """Handle records with `concurrency` handlers at a time and acknowledge them, until :meth:`wakeup` or
        :meth:`stop`.

        A record is accepted when its handler returns. If the handler raises, the record is released after a pause, and
        delivered again to any consumer of the group; after `retries` it is rejected. A handler may acknowledge its
        record itself. ``share_acknowledgement_mode`` does not matter here.

        No more records are fetched than handlers are free. Their locks are renewed until they are acknowledged, so a
        handler may take any time. If a lock is lost all the same (the connection broke, the group does not allow
        renewals, or the event loop was blocked), the broker delivers the record again: the run logs a warning, and
        cancels the handler when the time of the lock is over. A function in a thread or process does not notice that,
        so the record may be handled twice at the same time.

        :meth:`wakeup` and :meth:`stop` end the run: running handlers finish, records that no handler has are released,
        then the call returns. A cancellation does the same, except that it is raised; a second one does not wait. Do
        not poll or subscribe during a run.

        Args:
            handler: handles a record: a coroutine function, or a plain function for an `executor`. Its result is
                ignored. Required.
            concurrency: how many handlers run at a time. Default: 10 handlers.
            executor: the thread or process pool that runs `handler`, which is a plain function then. For processes, the
                handler must be importable and records picklable. Default: None: it is a coroutine function and runs as
                a task.
            retries: how often a record is delivered again after its handler raised; deliveries that ended otherwise,
                such as with a crash, count as well. The group's own limit is `share.delivery.count.limit`, by default 5
                deliveries: give less than that. Default: 3 retries.
            retry_backoff_ms: the pause before a record is released the first time; it doubles up to
                `retry_backoff_max_ms`. The record stays locked, and counts as one of `concurrency`. Default: 100 ms.
            retry_backoff_max_ms: the longest pause before a record is released. Default: 10000 ms.
            dead_letter_topic: the topic for records without retries left, which are accepted then. Default: None: they
                are rejected, so that they go to the dead letter topic of the group if it has one.
            producer: a started producer for the dead letters; it receives keys and values as they were consumed.
                Default: None, which makes one from the consumer's settings.
            drain_timeout_ms: how long running handlers may take to finish when the run ends, in milliseconds. Then they
                are cancelled, which a function in a thread or process does not notice, and their records are released.
                Default: None, which is 30000 ms.

        Raises:
            IllegalStateError: the consumer is not started, or runs already.
            TypeError, ValueError: an invalid setting or handler.
            KafkaError: polls fail, or a dead letter cannot be written.
        """
        self._running()
        if self._runner is not None:
            raise IllegalStateError("run(): this consumer runs already. To do: raise its concurrency, or make another")
        config = HandlerConfig(
            concurrency=concurrency,
            executor=executor,
            retries=retries,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            dead_letter_topic=dead_letter_topic,
            producer=producer,
            drain_timeout_ms=drain_timeout_ms,
        )
        # Imported here: a consumer that does not run handlers needs neither the runner nor a producer.
        module = import_module("barnabas_client.shares.runner")
        runner: ShareRunner = module.ShareRunner(self, self._client, self._config, handler, config)
        self._accept_delivered()
        self._runner = runner
        try:
            await runner.run()
        finally:
            self._runner = None
            self.limits = self._limits(self._config.max_poll_records, self._config.share_acquire_mode)

    async def acquire(self, most: int) -> list[ShareRecord[K, V]]:
        """See :class:`RunConsumer`."""
        self.limits = self._limits(min(most, self._config.max_poll_records), "record_limit")
        return await self._take(None, sys.maxsize)

    async def buffered(self) -> list[ShareRecord[K, V]]:
        """See :class:`RunConsumer`."""
        return await self._from_buffer(sys.maxsize)

    async def flush(self) -> None:
        """See :class:`RunConsumer`."""
        await asyncio.gather(*(leader.flushed() for leader in self._leaders.values()))

    # What leaders and the membership report.

    def partitions(self, node_id: int) -> Partitions:
        """See :class:`LeaderOwner`."""
        if self._network is None or self._membership is None:
            return frozenset()
        cluster = self._network.cluster
        return frozenset(one for one in self._membership.assigned if _leader(cluster, one) == node_id)

    def arrived(self, leader: Leader, response: ShareFetchResponse) -> None:
        """See :class:`LeaderOwner`."""
        lock = response.acquisition_lock_timeout_ms / 1000
        names = {} if self._network is None else self._network.cluster.names
        for topic in response.responses:
            for part in topic.partitions:
                where = TopicIdPartition(bytes(topic.topic_id), part.partition_index)
                tp = TopicPartition(names.get(where.topic_id, "?"), where.partition)
                code = ErrorCode.of(part.error_code)
                if code != ErrorCode.NONE and not code.retriable:
                    self.raise_once(error_for(code, f"fetch from {tp}", part.error_message))
                if not part.acquired_records:
                    continue
                if not are_valid(part.acquired_records):
                    self.raise_once(CorruptRecordError(f"the ranges of acquired records of {tp} are invalid"))
                    continue
                rows = acquired_rows(tp, part.records, part.acquired_records, check_crcs=self._config.check_crcs)
                self._buffer.append(_Delivery(self, leader, where, rows, lock))
        if self._buffer or not self._waiting:
            self.hungry = False
        if self._buffer:
            self._notify()

    def refused(self, refused: Mapping[TopicIdPartition, KafkaError]) -> None:
        """See :class:`LeaderOwner`."""
        error = next(iter(refused.values()))
        self._refusal = self._refusal or error
        _log.warning("acknowledgements were refused or lost", group=self._config.group_id, reason=str(error))

    def raise_once(self, error: KafkaError) -> None:
        """See :class:`LeaderOwner`."""
        self._error = self._error or error
        self._notify()

    def _fail(self, error: KafkaError) -> None:
        self._failure = error
        self._notify()

    def _notify(self) -> None:
        """Wake the polls that wait."""
        self._arrived.set()
        self._arrived.clear()

    def _metadata_changed(self, _: Cluster) -> None:
        self._assignment_changed()

    def _assignment_changed(self) -> None:
        network, membership = self._network, self._membership
        if network is None or membership is None or self._phase is Lifecycle.CLOSED:
            return
        cluster = network.cluster
        for one in membership.assigned:
            node_id = _leader(cluster, one)
            if node_id < 0:
                network.want_refresh()
            elif node_id not in self._leaders:
                session = LeaderSession(self._config.group_id, self._member_id)
                self._leaders[node_id] = Leader(node_id, network, session, self)
        self._wake_leaders()

    def _wake_leaders(self) -> None:
        for leader in self._leaders.values():
            leader.wake()


def _session_has_ended() -> KafkaError:
    return error_for(ErrorCode.INVALID_RECORD_STATE, "acknowledge records", "the share session has ended")


def _leader(cluster: Cluster, where: TopicIdPartition) -> int:
    """The node id of the leader of a partition; -1 if it is not known."""
    name = cluster.names.get(where.topic_id)
    info = None if name is None else cluster.partition(TopicPartition(name, where.partition))
    return -1 if info is None else info.leader
