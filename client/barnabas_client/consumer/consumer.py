"""The consumer, as programs see it; inside is :mod:`barnabas_client.consumer.core`.

A poll is :meth:`Consumer.getmany`, :meth:`Consumer.poll`, :meth:`Consumer.getone` or a step of ``async for``; all take
from the same buffers (:mod:`barnabas_client.consumer.fetcher`). Most steps find a record ready and look at nothing but
one flag, `attention`, that is set whenever a poll has more to do: partitions to let go, a commit that is due, a wakeup,
an error. As in Kafka's consumer a poll says that the program is done with everything it got before: positions are
committed, and partitions are given up, only then (:mod:`barnabas_client.consumer.rebalance`). Sources:
``KafkaConsumer.java``, and aiokafka's ``AIOKafkaConsumer``, whose names and units these are.
"""

import re
import ssl
import warnings
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from concurrent.futures import Executor
from types import TracebackType
from typing import TYPE_CHECKING, Self

from barnabas_client.assignors import Assignor
from barnabas_client.checks import check_topic, partitions_of
from barnabas_client.config import ClientConfig, ConsumerConfig, Deserializer, default_assignors, parse_servers
from barnabas_client.consumer.core import ConsumerCore
from barnabas_client.consumer.metrics import Metrics
from barnabas_client.consumer.parts import Phase
from barnabas_client.consumer.places import ConsumerPlaces
from barnabas_client.consumer.rebalance import ConsumerRebalanceListener
from barnabas_client.errors import ConsumerStoppedError, IllegalStateError
from barnabas_client.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from barnabas_client.consumer.parallel import Runner
    from barnabas_client.consumer.parallel_config import Handler
    from barnabas_client.producer.producer import Producer


class Consumer(ConsumerPlaces):
    """Reads records from topics, alone or as a member of a group.

    ::

        async with Consumer("flights", bootstrap_servers="localhost:9092", group_id="readers") as consumer:
            async for record in consumer:
                print(record.offset, record.value)

    Settings are explained at :class:`~barnabas_client.config.ConsumerConfig` and
    :class:`~barnabas_client.config.ClientConfig`. Nothing happens before :meth:`start`. All methods belong to the event
    loop that called it, but :meth:`wakeup`, which any thread may call.

    Raises:
        TypeError, ValueError: a setting that cannot be; the message names it and what would be right.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        client_id: str = "barnabas",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52_428_800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1_048_576,
        request_timeout_ms: int = 40_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        check_crcs: bool = True,
        metadata_max_age_ms: int = 300_000,
        partition_assignment_strategy: Sequence[Assignor] | None = None,
        max_poll_interval_ms: int = 300_000,
        rebalance_timeout_ms: int | None = None,
        session_timeout_ms: int = 10_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_records: int = 500,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
        exclude_internal_topics: bool = True,
        connections_max_idle_ms: int = 540_000,
        isolation_level: str = "read_uncommitted",
        client_rack: str = "",
        close_timeout_ms: int = 10_000,
    ) -> None:
        client = ClientConfig(
            servers=parse_servers(bootstrap_servers),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            connections_max_idle_ms=connections_max_idle_ms,
            security_protocol=security_protocol,
            ssl_context=ssl_context,
        )
        config = ConsumerConfig(
            group_id=group_id,
            group_instance_id=group_instance_id,
            auto_offset_reset=auto_offset_reset,
            enable_auto_commit=enable_auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            max_poll_interval_ms=max_poll_interval_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            max_poll_records=max_poll_records,
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_bytes=fetch_max_bytes,
            fetch_max_wait_ms=fetch_max_wait_ms,
            max_partition_fetch_bytes=max_partition_fetch_bytes,
            isolation_level=isolation_level,
            check_crcs=check_crcs,
            client_rack=client_rack,
            partition_assignment_strategy=(
                default_assignors() if partition_assignment_strategy is None else partition_assignment_strategy
            ),
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            exclude_internal_topics=exclude_internal_topics,
            close_timeout_ms=close_timeout_ms,
        )
        self._core = ConsumerCore(client, config)
        self._runner: Runner | None = None
        if topics:
            self.subscribe(topics)

    async def start(self) -> None:
        """Connect. With a group and a subscription also join, and wait for the first partitions up to
        `request_timeout_ms`.

        Raises:
            KafkaConnectionError: no broker answers.
            IllegalStateError: it was started before.
            KafkaError: the group cannot be joined.
        """
        await self._core.start()

    async def stop(self) -> None:
        """Commit (with `enable_auto_commit`), leave the group and disconnect, within `close_timeout_ms` even if no
        broker answers.

        Polls that wait end with `ConsumerStoppedError`, and iteration ends. A second call does nothing.

        A :meth:`run` ends first, as after :meth:`wakeup`.

        Raises:
            IllegalStateError: called in a rebalance listener, or in a handler of :meth:`run`.
        """
        if self._runner is not None:
            await self._runner.stop(self._core.config.close_timeout_ms / 1000)
        await self._core.stop()

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

    def __del__(self) -> None:
        core = getattr(self, "_core", None)  # absent if a setting was refused
        if core is not None and core.phase is Phase.RUNNING:
            core.abandon()
            warnings.warn(
                f"{self!r} was never stopped: await stop(), or use `async with`", ResourceWarning, stacklevel=2
            )

    def __repr__(self) -> str:
        core = self._core
        what = sorted(core.subscription.topics) or [str(tp) for tp in core.subscription.states]
        return f"<Consumer of {', '.join(what) or 'nothing'}, group {core.config.group_id!r}, {core.phase.value}>"

    # What is read.

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics; the group deals out their partitions. Replaces an earlier subscription.

        Args:
            topics: names.
            pattern: a regular expression instead, matched from the start of topic names; topics that appear later are
                read too.
            listener: told when partitions come and go.

        Raises:
            IllegalStateError: partitions were assigned by hand.
            TypeError: both or neither of topics and pattern; a single string; a listener without its methods.
            ValueError: a name that no topic has; a pattern that is no regular expression.
        """
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
            raise TypeError(f"subscribe(): listener {listener!r} is no ConsumerRebalanceListener")
        if not (pattern is None or isinstance(pattern, str | re.Pattern)):
            raise TypeError(f"subscribe(): pattern {pattern!r} is no regular expression: give a string")
        try:
            compiled = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ValueError(f"subscribe(): pattern {pattern!r} is no regular expression: {error}") from error
        self._core.subscribe(names, compiled, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without the help of a group. Replaces what was assigned before.

        Raises:
            IllegalStateError: topics are subscribed to.
            TypeError: something else than `TopicPartition`.
        """
        self._core.assign(partitions_of("assign", partitions))

    def unsubscribe(self) -> None:
        """Read nothing any more. A group is left in the background, after a commit and a call of the listener."""
        self._core.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to, or that match the pattern."""
        return self._core.subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return frozenset(self._core.subscription.states)

    async def topics(self) -> frozenset[str]:
        """All topics of the cluster that this client may see.

        Raises:
            KafkaError: no broker answers.
        """
        return frozenset((await self._core.network.look_up(None)).topics)

    def partitions_for_topic(self, topic: str) -> frozenset[int] | None:
        """The partition numbers of a topic that is read; None if it is not known."""
        numbers = self._core.network.cluster.partitions(topic)
        return None if numbers is None else frozenset(numbers)

    # Polls.

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """Wait for the next record.

        Args:
            partitions: of these; of any assigned one if none is given.

        Raises:
            ConsumerStoppedError: the consumer was stopped.
            WakeupError: :meth:`wakeup` was called.
            RecordDeserializationError, CorruptRecordError, RecordTooLargeError: the next record cannot be had; `seek`
            over it.
            OffsetOutOfRangeError, NoOffsetForPartitionError: there is no position and ``auto_offset_reset="none"``.
            IllegalStateError: nothing is subscribed to or assigned.
            KafkaError: the group or a topic may not be used, or the membership failed.
        """
        core = self._core
        state = await core.next_ready(partitions_of("getone", partitions) or None, None)
        assert state is not None
        (record,) = core.fetcher.take(state, 1)
        return record

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Take what is there, waiting up to `timeout_ms` if nothing is.

        Args:
            partitions: of these; of any assigned one if none is given.
            timeout_ms: milliseconds to wait for the first records.
            max_records: the most records; `max_poll_records` if None.

        Returns:
            Records in order of their offsets, by partition; empty if none came.

        Raises:
            ValueError: `timeout_ms` is negative, or `max_records` is below 1.
            KafkaError: see :meth:`getone`.
        """
        if not isinstance(timeout_ms, int | float):
            raise TypeError(f"timeout_ms is {timeout_ms!r}: give milliseconds")
        if timeout_ms < 0:
            raise ValueError(f"timeout_ms is {timeout_ms}: give milliseconds, at least 0")
        limit = self._limit(max_records)
        return await self._take(partitions_of("getmany", partitions) or None, timeout_ms / 1000, limit)

    async def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """As :meth:`getmany`, but with all records in one list.

        Args:
            timeout_ms: milliseconds to wait for the first records.
            max_records: the most records; `max_poll_records` if None.

        Raises:
            ValueError: `timeout_ms` is negative, or `max_records` is below 1.
            KafkaError: see :meth:`getone`.
        """
        taken = await self.getmany(timeout_ms=timeout_ms, max_records=max_records)
        return [record for records in taken.values() for record in records]

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Records, one by one, until the consumer is stopped.

        Raises:
            KafkaError: see :meth:`getone`.
        """
        core = self._core
        while True:
            try:
                state = await core.next_ready(None, None)
            except ConsumerStoppedError:
                return
            assert state is not None
            ready = state.ready
            # Whatever happens to the partition meanwhile sets `attention` or empties `ready`.
            while ready and not core.attention:
                record = ready.popleft()
                state.position = record.offset + 1
                yield record

    async def __anext__(self) -> ConsumerRecord:
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
        self._core.wakeup()

    async def _take(
        self, only: Collection[TopicPartition] | None, timeout: float, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        core = self._core
        state = await core.next_ready(only, timeout)
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        fetcher = core.fetcher
        while state is not None:
            records = fetcher.take(state, limit)
            limit -= len(records)
            if state.tp in taken:
                taken[state.tp] += records
            else:
                taken[state.tp] = records
            if limit == 0:
                break
            try:
                state = fetcher.next_ready(only)
            except Exception:
                # What was taken must reach the program; the error is found again by the next poll.
                break
        fetcher.rotate()
        return taken

    def _limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self._core.config.max_poll_records
        if isinstance(max_records, bool) or not isinstance(max_records, int):
            raise TypeError(f"max_records is {max_records!r}: give an integer")
        if max_records < 1:
            raise ValueError(f"max_records is {max_records}: give at least 1")
        return max_records

    # Working in parallel.

    async def run(
        self,
        handler: "Handler",
        *,
        concurrency: int = 10,
        order: str = "partition",
        executor: Executor | None = None,
        retries: int = 3,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 10_000,
        dead_letter_topic: str | None = None,
        producer: "Producer | None" = None,
        max_in_flight: int = 10_000,
        max_in_flight_bytes: int = 67_108_864,
        drain_timeout_ms: int | None = None,
        commit_interval_ms: int = 1_000,
    ) -> None:
        """Handle records with `concurrency` handlers at a time, and commit what is finished, until told to end.

        Settings are explained at :class:`~barnabas_client.consumer.parallel_config.RunConfig`. An offset is committed
        when everything before it is finished, so that a crash skips nothing; some records may be handled twice.

        :meth:`wakeup` and :meth:`stop` end the run: what is running finishes and is committed, the call returns, and
        another one would go on at the first unfinished record. A cancellation does the same, but for the return; a
        second one does not wait. Nothing else may poll, seek or subscribe meanwhile.

        Raises:
            IllegalStateError: the consumer is not started, runs already, or has `enable_auto_commit` on.
            TypeError, ValueError: a setting, or a handler, that cannot be.
            KafkaError: polls or commits fail, or a dead letter cannot be written.
            Exception: what the handler raised, for a record that had all its tries, without a `dead_letter_topic`.
        """
        from barnabas_client.consumer.parallel import Runner
        from barnabas_client.consumer.parallel_config import RunConfig

        if self._runner is not None:
            raise IllegalStateError("run(): this consumer runs already. To do: raise its concurrency, or make another")
        config = RunConfig(
            concurrency=concurrency,
            order=order,
            executor=executor,
            retries=retries,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            dead_letter_topic=dead_letter_topic,
            producer=producer,
            max_in_flight=max_in_flight,
            max_in_flight_bytes=max_in_flight_bytes,
            drain_timeout_ms=drain_timeout_ms,
            commit_interval_ms=commit_interval_ms,
        )
        self._runner = Runner(self, self._core, handler, config)
        try:
            await self._runner.run()
        finally:
            self._runner = None

    # What it knows about itself.

    def metrics(self) -> Metrics:
        """How this consumer is doing, by Kafka's names: ``records-consumed-rate``, ``records-lag-max``,
        ``commit-latency-avg``, ``rebalance-total``, ``last-heartbeat-seconds-ago``, ``time-between-poll-max`` and so
        on; and ``event-loop-lag``, how long the event loop kept others waiting (both only with a group). None stands
        for what has not happened yet. See :mod:`barnabas_client.consumer.metrics`.
        """
        return self._core.metrics()

    def enforce_rebalance(self, reason: str = "the program asked for it") -> None:
        """Have the group rebalance (KIP-568), for a reason that the coordinator notes. It happens in the polls that
        follow; nothing happens while a rebalance is under way.

        Raises:
            IllegalOperationError: there is no group.
        """
        self._core.rejoin(reason)
