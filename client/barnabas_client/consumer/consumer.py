"""The consumer, as programs see it.

:class:`Consumer` checks what programs give, keeps what exists before its start (settings, subscription, meters) and
owns the rest as one :class:`~barnabas_client.consumer.session.Session` while it runs. Sources: ``KafkaConsumer.java``,
and aiokafka's ``AIOKafkaConsumer``, whose names and units these are.
"""

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self, Unpack, overload

from barnabas_client.assignors import Assignor
from barnabas_client.checks import Offset, check_topic, is_int64, mapped, offsets_of, partitions_of
from barnabas_client.config import (
    DEFAULT_SERVERS,
    AsyncDeserializer,
    ClientConfig,
    ConsumerConfig,
    ConsumerSettings,
    ContextDeserializer,
    Deserializer,
    check_integer,
    default_client_id,
    parse_servers,
)
from barnabas_client.consumer.attention import Attention
from barnabas_client.consumer.commits import CommitCallback
from barnabas_client.consumer.listener import ConsumerRebalanceListener
from barnabas_client.consumer.metrics import ConsumerMeters, metrics_of
from barnabas_client.consumer.offsets import EARLIEST, LATEST, list_offsets
from barnabas_client.consumer.parallel.config import (
    BatchHandler,
    DeadLetterProducer,
    Handler,
    RunConfig,
    RunSettings,
)
from barnabas_client.consumer.polls import Loan
from barnabas_client.consumer.session import GroupSession, Session
from barnabas_client.consumer.subscription import Needed, PartitionState, Subscription
from barnabas_client.errors import ConsumerStoppedError, IllegalOperationError, IllegalStateError
from barnabas_client.keywords import taken, takes
from barnabas_client.lifecycle import AsyncOnly, Life, State
from barnabas_client.logs import logger
from barnabas_client.membership.exchange import EarlySearch
from barnabas_client.meters import Metrics
from barnabas_client.network.connection import Connection
from barnabas_client.network.network import Network
from barnabas_client.network.retries import retry_backoff
from barnabas_client.optional import require
from barnabas_client.structs import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    K,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    V,
)
from barnabas_client.tasks import uninterrupted
from barnabas_client.tracing import tracing

if TYPE_CHECKING:
    import pyarrow

    from barnabas_client.consumer.parallel.runner import Runner

_log: Final = logger("barnabas_client.consumer")

#: Seconds that a fetch may take beyond `fetch_max_wait_ms` for its response to count as current.
_FETCH_TAKES: Final = 0.5


class Consumer(AsyncOnly, Generic[K, V]):
    """Reads records from topics, alone or as a member of a group.

    ::

        async with Consumer("flights", bootstrap_servers="localhost:9092", group_id="readers") as consumer:
            async for record in consumer:
                print(record.offset, record.value)

    ``Consumer[K, V]`` returns keys of K and values of V: what its deserializers return, bytes without them; see
    :class:`~barnabas.ConsumerRecord` for null. Nothing happens before :meth:`start`. Call all methods in the event loop
    that called it, except for :meth:`wakeup`, which any thread may call; from elsewhere they raise
    `IllegalStateError`.

    Args:
        topics: the topics to read; none if :meth:`subscribe` or :meth:`assign` follows. Default: none.
        bootstrap_servers: addresses to start with, ``"host:port,host:port"`` or a list of such strings; the cluster
            names the others. Default: "localhost:9092".
        client_id: the name of this client in the brokers' logs and in group member ids. Default: None, which is
            "barnabas-" and the process id, so that consumers can be told apart: "barnabas-4711" for the first one of a
            process, "barnabas-4711-2" for the second one.
        group_id: the group to join and to commit for. Default: None, which reads without a group.
        group_instance_id: makes a static member (KIP-345): it may restart within its session without a rebalance.
            Default: None.
        key_deserializer: makes an object from a key's bytes; a record without a key has None. A function of two
            arguments also gets a :class:`~barnabas.SerializationContext`; a coroutine function is awaited. Default:
            None, which leaves the bytes.
        value_deserializer: makes an object from a value's bytes, likewise; a null value stays None. Default: None,
            which leaves the bytes.
        fetch_max_wait_ms: how long the broker waits for `fetch_min_bytes`. Default: 500 ms.
        fetch_max_bytes: the limit of one fetch response, and of what is fetched ahead for all partitions. Default:
            52428800 bytes.
        fetch_min_bytes: the broker answers a fetch when it has so many bytes, or after `fetch_max_wait_ms`. Default: 1
            byte.
        max_partition_fetch_bytes: the limit for a partition in one fetch response, and of what is fetched ahead for it.
            Default: 1048576 bytes.
        request_timeout_ms: how long a response may take before the connection is closed. Default: 40000 ms.
        retry_backoff_ms: the pause before the first retry; it doubles up to `retry_backoff_max_ms` (KIP-580). Default:
            100 ms.
        retry_backoff_max_ms: the longest pause before a retry. Default: 1000 ms.
        auto_offset_reset: where to start without a committed offset: "latest", "earliest", or "none" to raise. Default:
            "latest".
        enable_auto_commit: commit what earlier polls returned, every `auto_commit_interval_ms`, when partitions are
            revoked and when the consumer stops. Default: True.
        auto_commit_interval_ms: the time between automatic commits. Default: 5000 ms.
        check_crcs: verify the checksum of each batch. Default: True.
        metadata_max_age_ms: how often metadata is refreshed when nothing else refreshes it. Default: 300000 ms.
        partition_assignment_strategy: assignors, the preferred one first. They run on the thread of the heartbeats.
            Default: None, which is range, round-robin and cooperative-sticky.
        max_poll_interval_ms: a consumer that does not poll for so long leaves its group. Default: 300000 ms.
        rebalance_timeout_ms: how long the group waits for this member to rejoin, in milliseconds. Default: None, which
            takes `max_poll_interval_ms`, as Kafka does.
        session_timeout_ms: the coordinator removes a member that sends no heartbeat for so long. Default: 10000 ms.
        heartbeat_interval_ms: the pause between heartbeats, at most a third of the session timeout. A thread of its own
            sends them, whatever the event loop does. Default: 3000 ms.
        max_poll_records: one poll returns at most so many records. Default: 500 records.
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
        exclude_internal_topics: whether a pattern leaves out topics such as ``__consumer_offsets``. Default: True.
        connections_max_idle_ms: connections that are idle for so long are closed. Default: 540000 ms.
        isolation_level: "read_uncommitted", or "read_committed" to leave out records of open and aborted transactions.
            Default: "read_uncommitted".
        client_rack: where this client is, so that it may fetch from a near replica (KIP-392). Default: "", which is
            nowhere.
        close_timeout_ms: how long :meth:`stop` may take to commit and leave. Default: 10000 ms.
        group_protocol: "classic", or "consumer" for the protocol of KIP-848: the coordinator computes the assignment,
            and members keep what they have while others move. It needs Apache Kafka 4.0 or newer, or a Barnabas that
            serves it. Default: "classic".
        group_remote_assignor: with ``group_protocol="consumer"``, the assignor of the broker, such as "uniform" or
            "range". Default: None, which is the broker's default.

    Raises:
        TypeError, ValueError: a setting is invalid; the message names it and what would be right.
    """

    @overload
    def __init__(
        self: "Consumer[bytes, V]",
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: AsyncDeserializer[V],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[bytes, bytes | None]",
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[K, bytes | None]",
        *topics: str,
        key_deserializer: Deserializer[K],
        value_deserializer: None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[bytes, V]",
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: Deserializer[V],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[K, V]",
        *topics: str,
        key_deserializer: Deserializer[K],
        value_deserializer: Deserializer[V],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[bytes, V]",
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: ContextDeserializer[V],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[K, V]",
        *topics: str,
        key_deserializer: Deserializer[K] | ContextDeserializer[K],
        value_deserializer: ContextDeserializer[V],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...

    @takes(ConsumerConfig, ClientConfig)
    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Iterable[str] = DEFAULT_SERVERS,
        client_id: str | None = None,
        partition_assignment_strategy: Sequence[Assignor] | None = None,
        **settings: Any,
    ) -> None:
        if partition_assignment_strategy is not None:
            if settings.get("group_protocol") == "consumer":
                raise ValueError(
                    "partition_assignment_strategy is given with group_protocol='consumer': leave it out, the "
                    "coordinator computes the assignment; group_remote_assignor chooses how"
                )
            settings["partition_assignment_strategy"] = partition_assignment_strategy
        self._client = ClientConfig(
            servers=parse_servers(bootstrap_servers),
            client_id=default_client_id() if client_id is None else client_id,
            **taken(ClientConfig, settings),
        )
        self._config = ConsumerConfig(**settings)
        self._subscription = Subscription(partial(retry_backoff, self._client))
        self._attention = Attention()
        self._meters = ConsumerMeters(time.monotonic())
        self._life = Life("consumer", ConsumerStoppedError)
        self._session: Session | None = None
        self._runner: Runner | None = None
        self._tracing = tracing()
        if self._tracing is not None:
            self._tracing.trace_consumer(self, self._client.client_id, self._config.group_id)
        if topics:
            self.subscribe(topics)

    # Lifecycle.

    async def start(self) -> None:
        """Connect. With a group and a subscription also join, and wait up to `request_timeout_ms` for the first
        assignment.

        Raises:
            KafkaConnectionError: no broker answers.
            IllegalStateError: it was started before.
            KafkaError: the group cannot be joined.
        """
        await self._life.start(self._open, self._disconnect)

    async def _open(self) -> None:
        network = Network(self._client, auto_create=True)
        network.watch(self._subscription.watched)
        group_id = self._config.group_id
        search = None if group_id is None else EarlySearch(group_id, self._client.request_timeout)

        @cache
        def session() -> Session:
            return Session(network, self._client, self._config, self._subscription, self._attention, self._meters)

        def ask(connection: Connection) -> None:
            if search is not None:
                search.ask(connection)
            asyncio.get_running_loop().call_soon(session)  # while the responses are on their way

        try:
            await network.start(beside=None if search is None else ask)
        except BaseException:
            await uninterrupted(session().close(time.monotonic() + min(1.0, self._config.close_timeout_ms / 1000)))
            raise
        session().begin(None if search is None else search.coordinator)
        self._session = session()
        if self._session.group is not None and self._subscription.joins:
            await self._session.group.first_assignment()

    async def stop(self) -> None:
        """Commit (with `enable_auto_commit`), leave the group and disconnect, within `close_timeout_ms` even if no
        broker answers.

        Polls that wait raise `ConsumerStoppedError`, and iteration ends. A :meth:`run` ends first, as after
        :meth:`wakeup`. A second call does nothing.

        Raises:
            IllegalStateError: called in a rebalance listener, or in a handler of :meth:`run`.
        """
        if self._life.state is State.STOPPED:
            return
        self._life.check()
        timeout = self._config.close_timeout_ms / 1000
        deadline = time.monotonic() + timeout
        if self._runner is not None:
            await self._runner.stop(timeout)
        if self._life.state in (State.STOPPING, State.STOPPED):
            return
        if self._session is not None:
            self._session.refuse_inside_listener("stop")
            self._session.polls.close()
        self._life.state = State.STOPPING
        await self._disconnect(deadline)

    async def _disconnect(self, deadline: float | None = None) -> None:
        if deadline is None:
            deadline = time.monotonic() + self._config.close_timeout_ms / 1000
        try:
            await self._life.end_start()
            if self._session is not None:
                async with asyncio.timeout(max(deadline - time.monotonic(), 0.0)):
                    await self._session.leave()
        except TimeoutError:
            _log.warning("stopped without an answer from the brokers", group=self._config.group_id)
        finally:
            self._life.state = State.STOPPED
            if self._session is not None:
                await uninterrupted(self._session.close(deadline))

    async def close(self) -> None:
        """The same as :meth:`stop`."""
        await self.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _abandon(self) -> None:
        if self._session is not None:
            self._session.abandon()

    def __repr__(self) -> str:
        subscription = self._subscription
        what = sorted(subscription.topics) or [str(tp) for tp in subscription.states]
        return (
            f"<Consumer of {', '.join(what) or 'nothing'}, group {self._config.group_id!r}, {self._life.state.value}>"
        )

    def _running(self) -> Session:
        """The session, for every call that needs a started consumer.

        Raises:
            ConsumerStoppedError: the consumer was stopped.
            IllegalStateError: it was not started.
        """
        if self._life.state is State.STOPPED:
            raise self._life.stopped()
        self._life.check()
        if self._session is None:
            raise self._life.not_started()
        return self._session

    def _running_group(self) -> GroupSession:
        """The group's part of the session, for every call that needs a group.

        Raises:
            IllegalOperationError: there is no group.
            IllegalStateError: see :meth:`_running`.
        """
        group = None if self._config.group_id is None else self._running().group
        if group is None:
            raise IllegalOperationError(
                "this consumer has no group_id, so it cannot commit or fetch committed offsets. To do: give it a "
                "group_id"
            )
        return group

    def _changed(self) -> None:
        """Positions or pauses have changed."""
        if self._session is not None:
            self._session.changed()

    # What is read.

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics; the group assigns their partitions to its members. Replaces an earlier subscription.

        Args:
            topics: names.
            pattern: a regular expression instead, matched from the start of topic names. Topics that are created later
                are read as well. In a group with ``group_protocol="consumer"`` a string is a regular expression of RE2,
                which the coordinator matches with whole topic names; ``re.compile(pattern)`` is matched here.
            listener: called when partitions are revoked and assigned.

        Raises:
            IllegalStateError: partitions were assigned by hand.
            TypeError: both or neither of topics and pattern; a single string; a listener without its methods.
            ValueError: an invalid topic name; an invalid regular expression.
        """
        self._life.check()
        if isinstance(topics, str):
            raise TypeError(f"subscribe({topics!r}): give a list of topics, such as [{topics!r}]")
        if not isinstance(topics, Iterable):
            raise TypeError(f"subscribe({topics!r}): give a list of topics")
        names = list(topics)
        if bool(names) == (pattern is not None):
            raise TypeError("subscribe(): give either topics or a pattern")
        for name in names:
            check_topic(f"subscribe({names!r})", name)
        if listener is not None and not hasattr(listener, "on_partitions_revoked"):
            raise TypeError(f"subscribe(): listener {listener!r} is not a ConsumerRebalanceListener")
        if not (pattern is None or isinstance(pattern, str | re.Pattern)):
            raise TypeError(f"subscribe(): pattern {pattern!r} is not a regular expression: give a string")
        if isinstance(pattern, str) and self._config.group_id and self._config.group_protocol == "consumer":
            if not pattern:
                raise ValueError("subscribe(): the pattern is empty: give a regular expression")
            self._subscribe([], None, listener, pattern)
            return
        try:
            compiled = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ValueError(f"subscribe(): pattern {pattern!r} is not a regular expression: {error}") from error
        self._subscribe(names, compiled, listener, None)

    def _subscribe(
        self,
        names: Iterable[str],
        pattern: re.Pattern[str] | None,
        listener: ConsumerRebalanceListener | None,
        remote_pattern: str | None,
    ) -> None:
        self._subscription.subscribe(names, pattern, listener, remote_pattern)
        self._attention.forget_errors()
        if self._session is not None:
            self._session.resubscribed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without the help of a group. Replaces an earlier assignment.

        Raises:
            IllegalStateError: topics are subscribed to.
            TypeError: something else than `TopicPartition`.
        """
        self._life.check()
        self._subscription.assign(partitions_of("assign", partitions))
        self._attention.refusal = None
        if self._session is not None:
            self._session.assigned()

    def unsubscribe(self) -> None:
        """Read nothing any more. The group is left in the background, after a commit and a call of the listener."""
        self._life.check()
        subscription = self._subscription
        from_group, offsets = subscription.joins and not subscription.manual, subscription.positions()
        subscription.unsubscribe()
        self._attention.refusal = None
        if self._session is not None:
            self._session.unsubscribed(offsets, from_group=from_group)

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to, or that match the pattern; if the coordinator matches it, those of the
        assigned partitions."""
        self._life.check()
        if self._subscription.remote_pattern is not None:
            return frozenset(tp.topic for tp in self._subscription.states)
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        self._life.check()
        return frozenset(self._subscription.states)

    async def topics(self) -> frozenset[str]:
        """All topics of the cluster that this client may see.

        Raises:
            KafkaError: no broker answers.
        """
        return frozenset((await self._running().network.look_up(None)).topics)

    def partitions_for_topic(self, topic: str) -> frozenset[int] | None:
        """The partition numbers of a topic that is read; None if they are not known."""
        numbers = self._running().network.cluster.partitions(topic)
        return None if numbers is None else frozenset(numbers)

    # Polls.

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K, V]:
        """Wait for the next record.

        Args:
            partitions: of these; of any assigned one if none is given.

        Raises:
            ConsumerStoppedError: the consumer was stopped.
            WakeupError: :meth:`wakeup` was called.
            RecordDeserializationError, CorruptRecordError, RecordTooLargeError: the next record cannot be returned;
                `seek` over it.
            OffsetOutOfRangeError, NoOffsetForPartitionError: there is no position and ``auto_offset_reset="none"``.
            IllegalStateError: nothing is subscribed to or assigned.
            KafkaError: the group or a topic may not be used, or the membership failed.
        """
        session = self._running()
        only = partitions_of("getone", partitions) or None
        state: PartitionState | None = None
        while state is None:
            state = await session.polls.next_ready(only, None)
        (record,) = session.fetcher.take(state, 1)
        if not state.ready:
            session.fetcher.rotate()
        return record

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Take the records that are ready, waiting up to `timeout_ms` if there are none.

        Args:
            partitions: of these; of any assigned one if none is given.
            timeout_ms: milliseconds to wait for the first records.
            max_records: at most so many records; `max_poll_records` if None.

        Returns:
            Records in order of their offsets, by partition; empty if none came.

        Raises:
            ValueError: `timeout_ms` is negative, or `max_records` is below 1.
            KafkaError: see :meth:`getone`.
        """
        timeout = _timeout(timeout_ms)
        limit = self._config.max_poll_records if max_records is None else _limit(max_records)
        only = partitions_of("getmany", partitions) or None
        return await self._running().polls.take(only, timeout, limit)

    async def getmany_arrow(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> "pyarrow.Table":
        """Like :meth:`getmany`, but all records in one `pyarrow.Table`, decoded in columns: many times as fast for a
        program that computes with tables. It needs the extra `arrow`.

        The columns are the fields of :class:`~barnabas.ConsumerRecord`: `topic`, `partition`, `offset`, `timestamp` (in
        milliseconds), `timestamp_type`, `key`, `value` and `headers` (null for a record without any). Keys and values
        are bytes: deserializers are not called. Each record batch of the table has records of one partition, in order
        of their offsets.

        Args:
            partitions: of these; of any assigned one if none is given.
            timeout_ms: milliseconds to wait for the first records.
            max_records: at most so many records; if None, all that are decoded in a few milliseconds.

        Returns:
            The table; without rows if no records came.

        Raises:
            ImportError: the extra `arrow` is not installed.
            ValueError: `timeout_ms` is negative, or `max_records` is below 1.
            KafkaError: see :meth:`getone`.
        """
        tables = require("barnabas_client.consumer.tables", extra="arrow", purpose="getmany_arrow()")
        timeout = _timeout(timeout_ms)
        limit = sys.maxsize if max_records is None else _limit(max_records)
        only = partitions_of("getmany_arrow", partitions) or None
        batches = await self._running().polls.take_tables(only, timeout, limit, tables.unpack_tables)
        return tables.joined(batches)

    async def poll(self, timeout_ms: int = 1_000, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Like :meth:`getmany`, but with all records in one list, and with a timeout by default: a loop of polls waits.

        Args:
            timeout_ms: milliseconds to wait for the first records; 0 takes only those that are ready.
            max_records: at most so many records; `max_poll_records` if None.

        Raises:
            ValueError: `timeout_ms` is negative, or `max_records` is below 1.
            KafkaError: see :meth:`getone`.
        """
        taken = await self.getmany(timeout_ms=timeout_ms, max_records=max_records)
        return [record for records in taken.values() for record in records]

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Records, one by one, until the consumer is stopped.

        Raises:
            KafkaError: see :meth:`getone`.
        """
        attention = self._attention
        while True:
            try:
                state = await self._next_ready()
            except ConsumerStoppedError:
                return
            if state is None:
                continue
            ready = state.ready
            # Whatever happens to the partition in the meantime sets `needed`, or empties `ready`.
            while ready and not attention.needed:
                record = ready.popleft()
                state.position = record.offset + 1
                yield record
            if not ready and self._session is not None:
                self._session.fetcher.rotate()

    async def _next_ready(self) -> PartitionState | None:
        """Wait for a partition with records, for a loop over them."""
        return await self._running().polls.next_ready(None, None)

    async def _lend(self) -> Loan:
        """Wait for records, and lend them to the thread of a loop over them."""
        return await self._running().polls.lend(self._config.max_poll_records)

    if not TYPE_CHECKING:  # type checkers refuse the loop themselves

        def __iter__(self) -> NoReturn:
            raise TypeError("Consumer has no `for` loop: write `async for`, or take barnabas.sync.Consumer")

    async def __anext__(self) -> ConsumerRecord[K, V]:
        """The next record.

        Raises:
            StopAsyncIteration: the consumer was stopped.
            KafkaError: see :meth:`getone`.
        """
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    def wakeup(self) -> None:
        """End the poll that waits, or the next one, with `WakeupError`. Safe to call from any thread."""
        self._attention.woken = True
        self._attention.needed = True
        if self._session is not None:
            self._session.wakeup()

    # Flow control.

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until they are resumed. They stay assigned and keep their buffers.

        Raises:
            IllegalStateError: one is not assigned.
        """
        self._life.check()
        for tp in partitions_of("pause", partitions):
            self._subscription.state(tp).paused = True
        self._changed()

    def resume(self, *partitions: TopicPartition) -> None:
        """End a pause.

        Raises:
            IllegalStateError: one is not assigned.
        """
        self._life.check()
        for tp in partitions_of("resume", partitions):
            self._subscription.state(tp).paused = False
        self._changed()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        self._life.check()
        return frozenset(tp for tp, state in self._subscription.states.items() if state.paused)

    # Positions.

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that a poll will return; waits until it is known.

        Raises:
            IllegalStateError: the partition is not assigned.
            KafkaTimeoutError: it is not known within `request_timeout_ms`.
            NoOffsetForPartitionError: no offset is committed and ``auto_offset_reset="none"``.
        """
        self._life.check()
        (tp,) = partitions_of("position", (partition,))
        while (position := self._subscription.state(tp).position) is None:
            await self._running().wait_for_positions([tp], f"position of {tp}")
        return position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`. Polls return no records that were fetched before.

        Raises:
            IllegalStateError: the partition is not assigned.
            ValueError: not an offset.
        """
        self._life.check()
        (tp,) = partitions_of("seek", (partition,))
        if not is_int64(offset):
            raise ValueError(f"seek({tp}, {offset!r}): give an offset of at least 0")
        state = self._subscription.state(tp)
        state.seek(offset)
        state.retry_at = 0.0
        self._changed()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record of these partitions, of all assigned ones if none is given.

        Raises:
            IllegalStateError: one is not assigned.
            KafkaTimeoutError: the start was not found within `request_timeout_ms`.
        """
        await self._reset("seek_to_beginning", partitions, Needed.EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record of these partitions, of all assigned ones if none is given.

        Raises:
            IllegalStateError: one is not assigned.
            KafkaTimeoutError: the end was not found within `request_timeout_ms`.
        """
        await self._reset("seek_to_end", partitions, Needed.LATEST)

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Continue at the group's committed offset of these partitions, of all assigned ones if none is given; where no
        offset is committed, as `auto_offset_reset` says.

        Returns:
            The new positions.

        Raises:
            IllegalOperationError: there is no group.
            IllegalStateError: a partition is not assigned.
            KafkaTimeoutError: they were not found within `request_timeout_ms`.
            NoOffsetForPartitionError: no offset is committed and ``auto_offset_reset="none"``.
        """
        self._running_group()
        chosen = await self._reset("seek_to_committed", partitions, Needed.COMMITTED)
        return {tp: await self.position(tp) for tp in chosen}

    async def _reset(self, what: str, partitions: tuple[TopicPartition, ...], to: Needed) -> tuple[TopicPartition, ...]:
        session = self._running()
        chosen = partitions_of(what, partitions) or tuple(self._subscription.states)
        for state in [self._subscription.state(tp) for tp in chosen]:
            state.need(to)
            state.retry_at = 0.0
        session.changed()
        await session.wait_for_positions(chosen, what)
        return chosen

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark as of the last fetch: the offset after the last record that consumers may read. None
        before the first fetch.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        self._life.check()
        return self._subscription.state(partition).high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The last stable offset as of the last fetch: that of the first record of an open transaction, or the high
        watermark. None before the first fetch.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        self._life.check()
        return self._subscription.state(partition).last_stable_offset

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When the last response to a fetch of this partition came, in milliseconds since 1970; None before it.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        self._life.check()
        return self._subscription.state(partition).fetched_at

    async def lag(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """How many offsets lie between this consumer's position and the end of each partition.

        The end is that of the records that polls may return: the high watermark, with
        ``isolation_level="read_committed"`` the last stable offset. It is known from the last fetch. If that is too
        long ago (nothing was fetched yet, the partition is paused, its buffer is full), the leader is asked. The lag
        counts from the position, whether it is committed or not; ``barnabas groups describe`` shows the lag of
        committed offsets. Compacted topics have fewer records than offsets.

        Args:
            partitions: these; all assigned ones if none is given.

        Raises:
            IllegalStateError: one is not assigned.
            KafkaTimeoutError: a position or an end was not found within `request_timeout_ms`.
            NoOffsetForPartitionError: no offset is committed and ``auto_offset_reset="none"``.
            KafkaError: a partition may not be read.
        """
        session, subscription = self._running(), self._subscription
        chosen = partitions_of("lag", partitions) or tuple(subscription.states)
        await session.wait_for_positions(chosen, "lag")
        committed = self._config.read_committed
        fresh = asyncio.get_running_loop().time() - self._config.fetch_max_wait_ms / 1000 - _FETCH_TAKES
        states = [subscription.state(tp) for tp in chosen]
        old = [one.tp for one in states if one.measured_at < fresh or one.lag(read_committed=committed) is None]
        ends = await self.end_offsets(old) if old else {}
        lags = {}
        for tp in chosen:
            state = subscription.state(tp)
            if tp in ends and state.position is not None:
                lags[tp] = max(0, ends[tp] - state.position)
            else:
                lags[tp] = state.lag(read_committed=committed) or 0
        return lags

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition, assigned or not.

        Raises:
            KafkaError: the leaders did not answer within `request_timeout_ms`.
        """
        found = await self._list(
            "beginning_offsets", dict.fromkeys(partitions_of("beginning_offsets", partitions), EARLIEST)
        )
        return {tp: one.offset for tp, one in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition, assigned or not.

        Raises:
            KafkaError: the leaders did not answer within `request_timeout_ms`.
        """
        found = await self._list("end_offsets", dict.fromkeys(partitions_of("end_offsets", partitions), LATEST))
        return {tp: one.offset for tp, one in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after a time, for each partition, assigned or not; None if there is none.

        Args:
            timestamps: milliseconds since 1970.

        Raises:
            ValueError: a negative timestamp.
            KafkaError: the leaders did not answer within `request_timeout_ms`.
        """
        for tp, timestamp in mapped("offsets_for_times", timestamps).items():
            if isinstance(timestamp, bool) or not isinstance(timestamp, int):
                raise TypeError(f"offsets_for_times: {timestamp!r} for {tp}: give milliseconds since 1970")
            if timestamp < 0:
                raise ValueError(f"offsets_for_times: {timestamp} for {tp}: give milliseconds since 1970")
        found = await self._list("offsets_for_times", timestamps)
        return {tp: one if one.offset >= 0 else None for tp, one in found.items()}

    async def _list(self, what: str, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        network = self._running().network
        partitions = partitions_of(what, times)
        if network.watch_also(tp.topic for tp in partitions):
            await network.refresh()
        timeout = self._client.request_timeout
        return await list_offsets(network, times, read_committed=self._config.read_committed, timeout=timeout)

    # Commits.

    async def commit(self, offsets: Mapping[TopicPartition, Offset] | None = None) -> None:
        """Commit and wait until the commit is durable.

        Args:
            offsets: for each partition the offset of the next record to read: alone, with metadata, or as
                `OffsetAndMetadata`. If None, the positions of all assigned partitions: everything that polls returned.

        Raises:
            IllegalOperationError: there is no group.
            CommitFailedError: this consumer is no longer a member of the group.
            RebalanceInProgressError: the group is rebalancing; poll, then commit again.
            KafkaTimeoutError: it did not succeed within `request_timeout_ms`.
            TypeError, ValueError: an invalid offset.
        """
        commits = self._running_group().commits
        await commits.commit(self._subscription.positions() if offsets is None else offsets_of("commit", offsets))

    def commit_async(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit in the background, once. If it fails, the next commit covers it: at the end call :meth:`commit`, which
        waits for those in the background first.

        Args:
            offsets: as for :meth:`commit`.
            callback: called in the event loop with the offsets, and None or the error; it may be a coroutine function.
                Without one a failure is logged.

        Raises:
            IllegalOperationError: there is no group.
            TypeError, ValueError: an invalid offset; a callback that cannot be called.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"commit_async: callback is {callback!r}: give a function of offsets and error")
        made = self._subscription.positions() if offsets is None else offsets_of("commit", offsets)
        self._running_group().commits.in_background(made, callback)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset of a partition; None if there is none.

        Raises:
            IllegalOperationError: there is no group.
            KafkaError: the coordinator did not answer within `request_timeout_ms`.
        """
        found = await self.committed_offsets(partition)
        offset = found[partition]
        return None if offset is None else offset.offset

    async def committed_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets of these partitions, with metadata; None where there is none.

        Raises:
            IllegalOperationError: there is no group.
            KafkaError: the coordinator did not answer within `request_timeout_ms`.
        """
        chosen = partitions_of("committed", partitions)
        return await self._running_group().store.committed(chosen, timeout=self._client.request_timeout)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer as a member of its group, for :meth:`Producer.send_offsets_to_transaction()
        <barnabas.Producer.send_offsets_to_transaction>`.

        Partitions are revoked in polls only: what it returns between two polls belongs to the records of the first.

        Raises:
            IllegalOperationError: there is no group.
            CommitFailedError: this consumer is no longer a member of the group.
            RebalanceInProgressError: the group is rebalancing; poll, then ask again.
        """
        return self._running_group().store.group_metadata(as_member=not self._subscription.manual)

    # Parallel work.

    @overload
    async def run(
        self,
        handler: Handler[K, V],
        *,
        producer: DeadLetterProducer[K, V] | None = None,
        batch_size: None = None,
        **settings: Unpack[RunSettings],
    ) -> None: ...

    @overload
    async def run(
        self,
        handler: BatchHandler[K, V],
        *,
        producer: DeadLetterProducer[K, V] | None = None,
        batch_size: int,
        **settings: Unpack[RunSettings],
    ) -> None: ...

    @takes(RunConfig)
    async def run(
        self,
        handler: Handler[K, V] | BatchHandler[K, V],
        *,
        producer: DeadLetterProducer[K, V] | None = None,
        batch_size: int | None = None,
        **settings: Unpack[RunSettings],
    ) -> None:
        """Handle records with `concurrency` handlers at a time and commit finished ones, until :meth:`wakeup` or
        :meth:`stop`.

        An offset is committed when all records before it are finished, so a crash skips no record; some records may be
        handled twice.

        :meth:`wakeup` and :meth:`stop` end the run: running handlers finish and are committed, then the call returns.
        Another run would continue at the first unfinished record. A cancellation does the same, except that it is
        raised; a second one does not wait. Do not poll, seek or subscribe during a run.

        Args:
            handler: handles a record: a coroutine function, or a plain function for an `executor`. Its result is
                ignored. Required.
            concurrency: how many handlers run at a time. Default: 10 handlers.
            order: "partition": records of a partition one after the other; "key": records of a partition with the same
                key one after the other, those without a key in any order; "none": in any order. Default: "partition".
            executor: the thread or process pool that runs `handler`, which is a plain function then. For processes, the
                handler must be importable and records picklable. Default: None: it is a coroutine function and runs as
                a task.
            retries: how often a record is tried again after its handler raised. Default: 3 retries.
            retry_backoff_ms: the pause before the first retry; it doubles up to `retry_backoff_max_ms`. Other records
                are handled in the meantime, except for those that must not overtake this one. Default: 100 ms.
            retry_backoff_max_ms: the longest pause before a retry. Default: 10000 ms.
            dead_letter_topic: the topic for records without attempts left. Default: None: the first one ends the run
                with the handler's error.
            producer: a started producer for the dead letters; it receives keys and values as they were consumed.
                Default: None, which makes one from the consumer's settings.
            max_in_flight: the limit of records from the first unfinished one on, divided among the partitions; a
                partition at its limit is paused. After a crash, up to so many may be handled twice. Default: 10000
                records.
            max_in_flight_bytes: likewise for the bytes of keys and values; one poll may exceed it. Default: 67108864
                bytes.
            drain_timeout_ms: how long running handlers may take to finish when their partition is revoked or the run
                ends, in milliseconds. Then they are cancelled, which a function in a thread or process does not notice.
                Default: None, which is half of the rebalance timeout.
            commit_interval_ms: how often finished records are committed, beside rebalances and the end of the run.
                Default: 1000 ms.
            batch_size: call `handler` with lists of up to so many records. A list has records of one partition, with
                ``order="key"`` of one key; it is retried, and finished, as a whole. Default: None: `handler` gets
                single records.
            batch_timeout_ms: how long an incomplete batch waits for more records. Default: 0 ms: it has what was polled
                when a handler is free.

        Raises:
            IllegalStateError: the consumer is not started, runs already, or has `enable_auto_commit` on.
            TypeError, ValueError: an invalid setting or handler.
            KafkaError: polls or commits fail, or a dead letter cannot be written.
            Exception: the handler's error, for a record without attempts left and without a `dead_letter_topic`.
        """
        self._life.check()
        if self._runner is not None:
            raise IllegalStateError("run(): this consumer runs already. To do: raise its concurrency, or make another")
        config = RunConfig(producer=producer, batch_size=batch_size, **settings)
        if self._tracing is not None:
            handler = self._tracing.traced_handler(
                handler, config.executor, self._client.client_id, self._config.group_id
            )
        # Imported here: a consumer that does not run handlers needs neither the runner nor a producer.
        parallel = import_module("barnabas_client.consumer.parallel.runner")
        runner: Runner = parallel.Runner(self, self._subscription, self._client, self._config, handler, config)
        self._running()
        self._runner = runner
        try:
            await runner.run()
        finally:
            self._runner = None

    # Metrics, and the group.

    def metrics(self) -> Metrics:
        """Metrics of this consumer, by Kafka's names: ``records-consumed-rate``, ``records-lag-max``,
        ``commit-latency-avg``, ``rebalance-total``, ``last-heartbeat-seconds-ago``, ``time-between-poll-max`` and so
        on; and ``event-loop-lag``, how long the event loop took to answer. Those of commits, rebalances, heartbeats and
        the event loop exist only with a group. None means that it has not happened yet. See
        :mod:`barnabas_client.consumer.metrics`.
        """
        self._life.check()
        states, read_committed = self._subscription.states.values(), self._config.read_committed
        found = metrics_of(self._meters, states, time.monotonic(), read_committed=read_committed)
        if self._session is not None and self._session.group is not None:
            found |= self._session.group.metrics()
        return found

    def enforce_rebalance(self, reason: str = "the program asked for it") -> None:
        """Have the group rebalance (KIP-568), for a reason that the coordinator logs. It happens in the polls that
        follow. Does nothing during a rebalance.

        Raises:
            IllegalOperationError: there is no group.
        """
        self._running_group().membership.rejoin(reason)


def _timeout(timeout_ms: object) -> float:
    """The seconds of a timeout."""
    if not isinstance(timeout_ms, int | float):
        raise TypeError(f"timeout_ms is {timeout_ms!r}: give milliseconds")
    if timeout_ms < 0:
        raise ValueError(f"timeout_ms is {timeout_ms}: give milliseconds, at least 0")
    return timeout_ms / 1000


def _limit(max_records: int) -> int:
    check_integer("max_records", max_records, 1)
    return max_records
