"""The consumer of a share group, as programs see it.

It has the settings and the life of a share consumer; :mod:`barnabas_client.shares.polls` has the records.

Source: ``ShareConsumerImpl.java``; KIP-932.
"""

import asyncio
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Iterable
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
    ShareConsumerSettings,
    default_client_id,
    parse_servers,
)
from barnabas_client.consumer.parallel.config import DeadLetterProducer, HandlerConfig, HandlerSettings
from barnabas_client.errors import (
    ConsumerStoppedError,
    IllegalStateError,
)
from barnabas_client.keywords import taken, takes
from barnabas_client.lifecycle import AsyncOnly, Life, State
from barnabas_client.logs import logger
from barnabas_client.membership.member import MemberConfig
from barnabas_client.network.network import Network
from barnabas_client.shares.config import ShareConsumerConfig
from barnabas_client.shares.membership import ShareMembership
from barnabas_client.shares.polls import SharePolls
from barnabas_client.shares.records import ShareHandler, ShareRecord
from barnabas_client.structs import K, TopicPartition, V
from barnabas_client.tasks import uninterrupted
from barnabas_client.tracing import tracing

if TYPE_CHECKING:
    from barnabas_client.shares.runner import ShareRunner

_log: Final = logger("barnabas_client.shares")


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
        client_id: the name of this client in the brokers' logs and in descriptions of the group. Default: None, which
            is "barnabas-" and the process id, as :class:`~barnabas.Consumer` has it.
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
        self: "ShareConsumer[bytes, bytes | None]",
        *topics: str,
        group_id: str,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "ShareConsumer[K, bytes | None]",
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

    @takes(ShareConsumerConfig, ClientConfig)
    def __init__(
        self,
        *topics: str,
        group_id: str,
        bootstrap_servers: str | Iterable[str] = DEFAULT_SERVERS,
        client_id: str | None = None,
        **settings: Any,
    ) -> None:
        self._client = ClientConfig(
            servers=parse_servers(bootstrap_servers),
            client_id=default_client_id() if client_id is None else client_id,
            **taken(ClientConfig, settings),
        )
        self._config = ShareConsumerConfig(group_id=group_id, **settings)
        self._life = Life("share consumer", ConsumerStoppedError)
        self._topics: frozenset[str] = frozenset()
        #: As Kafka's client makes member ids: the bytes of a UUID in base64.
        self._member_id = urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
        self._network: Network | None = None
        self._membership: ShareMembership | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: ShareRunner | None = None
        self._polls: SharePolls[K, V] = SharePolls(self._config, self._member_id, self._check_polls)
        self._tracing = tracing()
        if self._tracing is not None:
            self._tracing.trace_share_polls(self._polls, self._client.client_id, group_id)
        if topics:
            self.subscribe(topics)

    # Lifecycle.

    async def start(self) -> None:
        """Connect, and begin to join the group.

        Raises:
            KafkaConnectionError: no broker answers.
            IllegalStateError: it was started before.
        """
        await self._life.start(self._connect, self._disconnect)
        if self._membership is not None and self._topics:
            self._membership.subscribe(self._topics)

    async def _connect(self) -> None:
        self._loop = asyncio.get_running_loop()
        network = self._network = Network(self._client, auto_create=True)
        network.watch(self._topics)
        await network.start()
        config = MemberConfig(
            group_id=self._config.group_id,
            request_timeout=self._client.request_timeout,
            retry_backoff=self._client.retry_backoff_ms / 1000,
            retry_backoff_max=self._client.retry_backoff_max_ms / 1000,
            rack=self._config.client_rack or None,
        )
        polls = self._polls
        membership = ShareMembership(network, config, self._member_id, polls.assignment_changed, polls.fail)
        self._membership = membership
        polls.start(network, membership)
        network.listeners.append(lambda _: polls.assignment_changed())

    async def _disconnect(self) -> None:
        if self._network is not None:
            await self._network.close(min(1.0, self._config.close_timeout_ms / 1000))

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
            self._life.check()
            await self._runner.handlers.stop(timeout)
        if self._life.state is State.STOPPED:
            return
        self._life.check()
        if accept:
            self._polls.accept_delivered()
        self._life.state = State.STOPPED
        self._polls.stop()
        await uninterrupted(self._end(deadline))

    async def _end(self, deadline: float) -> None:
        await self._life.end_start()
        network, membership = self._network, self._membership
        if network is None or membership is None:
            return await self._disconnect()
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0.0)):
                await self._polls.close()
                await membership.leave()
        except TimeoutError:
            _log.warning("stopped without an answer from the brokers", group=self._config.group_id)
        finally:
            await self._polls.cancel()
            await membership.close()
            await network.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop(accept=kind is None)

    def __repr__(self) -> str:
        what = ", ".join(sorted(self._topics)) or "nothing"
        return f"<ShareConsumer of {what}, group {self._config.group_id!r}, {self._life.state.value}>"

    def _running(self) -> ShareMembership:
        if self._life.state is State.STOPPED:
            raise self._life.stopped()
        self._life.check()
        if self._membership is None:
            raise self._life.not_started()
        return self._membership

    def _check_polls(self) -> None:
        """Check that there is something to poll.

        Raises:
            ConsumerStoppedError: the consumer was stopped.
            IllegalStateError: it is not started, or nothing is subscribed to.
        """
        self._running()
        if not self._topics:
            raise IllegalStateError("this share consumer has no topics. To do: subscribe() to some")

    # What is read.

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics. Replaces an earlier subscription.

        Raises:
            TypeError: a single string, or something else than names.
            ValueError: no topic, or an invalid name.
        """
        self._life.check()
        if isinstance(topics, str) or not isinstance(topics, Iterable):
            raise TypeError(f"subscribe({topics!r}): give a list of topics, such as ['orders']")
        names = frozenset(topics)
        if not names:
            raise ValueError("subscribe(): give at least one topic")
        for name in names:
            check_topic(f"subscribe({sorted(map(str, names))!r})", name)
        self._topics = names
        self._polls.failure = None
        if self._membership is not None and self._network is not None:
            self._network.watch(names)
            self._network.want_refresh()
            self._membership.subscribe(names)

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        self._life.check()
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
        return (await self._polls.take(None, 1))[0]

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
        return await self._polls.take(timeout_ms / 1000, limit)

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
            self._polls.wake_up()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_up)

    def _wake_up(self) -> None:
        if self._runner is not None:
            self._runner.handlers.end()
        else:
            self._polls.wake_up()

    async def commit(self) -> None:
        """Wait until the broker has what was acknowledged; with implicit acknowledgement, accept the records of the
        last poll first.

        Raises:
            KafkaError: an acknowledgement since the last commit was refused or lost: the lock had expired, or the
                connection broke. Those records are delivered again.
        """
        self._running()
        await self._polls.commit()

    # Parallel work.

    @takes(HandlerConfig)
    async def run(
        self,
        handler: ShareHandler[K, V],
        *,
        producer: DeadLetterProducer[K, V] | None = None,
        **settings: Unpack[HandlerSettings],
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
        config = HandlerConfig(producer=producer, **settings)
        if self._tracing is not None:
            handler = self._tracing.traced_handler(
                handler, config.executor, self._client.client_id, self._config.group_id
            )
        # Imported here: a consumer that does not run handlers needs neither the runner nor a producer.
        module = import_module("barnabas_client.shares.runner")
        runner: ShareRunner = module.ShareRunner(self._polls, self._client, self._config, handler, config)
        self._runner = runner
        self._polls.begin_run()
        try:
            await runner.run()
        finally:
            self._runner = None
            self._polls.end_run()
