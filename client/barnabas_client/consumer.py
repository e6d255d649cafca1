"""The consumer, as programs see it; inside is :mod:`barnabas_client.consumer_core`.

A poll is :meth:`Consumer.getmany`, :meth:`Consumer.poll`, :meth:`Consumer.getone` or a step of ``async for``; all take
from the same buffers (:mod:`barnabas_client.fetcher`). Most steps find a record ready and look at nothing but one flag,
`attention`, that is set whenever a poll has more to do: partitions to let go, a commit that is due, a wakeup, an error.
As in Kafka's consumer a poll says that the program is done with everything it got before: positions are committed, and
partitions are given up, only then (:mod:`barnabas_client.rebalance`). Sources: ``KafkaConsumer.java``, and aiokafka's
``AIOKafkaConsumer``, whose names and units these are.
"""

import re
import ssl
import warnings
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from barnabas_client.assignors import Assignor, RangeAssignor, RoundRobinAssignor
from barnabas_client.config import ClientConfig, ConsumerConfig, Deserializer, parse_servers
from barnabas_client.consumer_core import ConsumerCore, Phase
from barnabas_client.errors import ConsumerStoppedError
from barnabas_client.offsets import EARLIEST, LATEST, list_offsets
from barnabas_client.rebalance import ConsumerRebalanceListener
from barnabas_client.structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from barnabas_client.subscription import Needed

#: What a commit takes as an offset.
Offset = int | tuple[int, str] | OffsetAndMetadata


class Consumer:
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
            partition_assignment_strategy=partition_assignment_strategy or (RangeAssignor(), RoundRobinAssignor()),
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            exclude_internal_topics=exclude_internal_topics,
            close_timeout_ms=close_timeout_ms,
        )
        self._core = ConsumerCore(client, config)
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

        Raises:
            IllegalStateError: called in a rebalance listener.
        """
        await self._core.stop()

    async def close(self) -> None:
        """The same as :meth:`stop`."""
        await self._core.stop()

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
            ValueError: a pattern that is no regular expression.
        """
        if isinstance(topics, str):
            raise TypeError(f"subscribe({topics!r}): give a list of topics, such as [{topics!r}]")
        names = list(topics)
        if bool(names) == (pattern is not None):
            raise TypeError("subscribe(): give either topics or a pattern")
        if not all(isinstance(name, str) and name for name in names):
            raise TypeError(f"subscribe({names!r}): topics are strings that are not empty")
        if listener is not None and not hasattr(listener, "on_partitions_revoked"):
            raise TypeError(f"subscribe(): listener {listener!r} is no ConsumerRebalanceListener")
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
        self._core.assign(_partitions("assign", tuple(partitions)))

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
        state = await core.next_ready(_partitions("getone", partitions) or None, None)
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
        if timeout_ms < 0:
            raise ValueError(f"timeout_ms is {timeout_ms}: give milliseconds, at least 0")
        limit = self._limit(max_records)
        return await self._take(_partitions("getmany", partitions) or None, timeout_ms / 1000, limit)

    async def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """As :meth:`getmany`, but with `timeout` in seconds, and all records in one list.

        Raises:
            ValueError: `timeout` is negative, or `max_records` is below 1.
            KafkaError: see :meth:`getone`.
        """
        if timeout < 0:
            raise ValueError(f"timeout is {timeout}: give seconds, at least 0")
        taken = await self._take(None, timeout, self._limit(max_records))
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
        if max_records < 1:
            raise ValueError(f"max_records is {max_records}: give at least 1")
        return max_records

    # Flow control.

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these partitions until they are resumed; they stay assigned and keep their buffers.

        Raises:
            IllegalStateError: one is not assigned.
        """
        for tp in _partitions("pause", partitions):
            self._core.subscription.state(tp).paused = True
        self._core.changed()

    def resume(self, *partitions: TopicPartition) -> None:
        """End a pause.

        Raises:
            IllegalStateError: one is not assigned.
        """
        for tp in _partitions("resume", partitions):
            self._core.subscription.state(tp).paused = False
        self._core.changed()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(tp for tp, state in self._core.subscription.states.items() if state.paused)

    # Positions.

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that a poll will return; waits until it is known.

        Raises:
            IllegalStateError: the partition is not assigned.
            KafkaTimeoutError: it is not known within `request_timeout_ms`.
            NoOffsetForPartitionError: nothing is committed and ``auto_offset_reset="none"``.
        """
        (tp,) = _partitions("position", (partition,))
        state = self._core.subscription.state(tp)
        if state.position is None:
            await self._core.until_positions([tp], f"position of {tp}")
        position = self._core.subscription.state(tp).position
        assert position is not None
        return position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`. Polls return nothing of what was fetched before.

        Raises:
            IllegalStateError: the partition is not assigned.
            ValueError: a negative offset.
        """
        (tp,) = _partitions("seek", (partition,))
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise ValueError(f"seek({tp}, {offset!r}): give an offset of at least 0")
        self._core.subscription.state(tp).seek(offset)
        self._core.changed()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record of these partitions, of all assigned ones if none is given.

        Raises:
            IllegalStateError: one is not assigned.
            KafkaTimeoutError: the start was not found within `request_timeout_ms`.
        """
        await self._reset("seek_to_beginning", partitions, Needed.EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record of these partitions, of all assigned ones if none is given.

        Raises:
            IllegalStateError: one is not assigned.
            KafkaTimeoutError: the end was not found within `request_timeout_ms`.
        """
        await self._reset("seek_to_end", partitions, Needed.LATEST)

    async def _reset(self, what: str, partitions: tuple[TopicPartition, ...], to: Needed) -> None:
        core = self._core
        core.check_running()
        chosen = _partitions(what, partitions) or tuple(core.subscription.states)
        for state in [core.subscription.state(tp) for tp in chosen]:
            state.need(to)
        core.changed()
        await core.until_positions(chosen, what)

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset behind the last record that consumers may see, as of the last fetch; None before it.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        return self._core.subscription.state(partition).high_watermark

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition, assigned or not.

        Raises:
            KafkaError: they could not be had within `request_timeout_ms`.
        """
        found = await self._list("beginning_offsets", dict.fromkeys(partitions, EARLIEST))
        return {tp: one.offset for tp, one in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record of each partition, assigned or not.

        Raises:
            KafkaError: they could not be had within `request_timeout_ms`.
        """
        found = await self._list("end_offsets", dict.fromkeys(partitions, LATEST))
        return {tp: one.offset for tp, one in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after a time, for each partition, assigned or not; None if there is none.

        Args:
            timestamps: milliseconds since 1970.

        Raises:
            ValueError: a negative timestamp.
            KafkaError: they could not be had within `request_timeout_ms`.
        """
        for tp, time in timestamps.items():
            if time < 0:
                raise ValueError(f"offsets_for_times: {time} for {tp}: give milliseconds since 1970")
        found = await self._list("offsets_for_times", timestamps)
        return {tp: one if one.offset >= 0 else None for tp, one in found.items()}

    async def _list(self, what: str, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        network, config = self._core.network, self._core.config
        partitions = _partitions(what, tuple(times))
        if network.watch_also(tp.topic for tp in partitions):
            await network.refresh()
        timeout = self._core.client.request_timeout
        return await list_offsets(network, times, read_committed=config.read_committed, timeout=timeout)

    # Commits.

    async def commit(self, offsets: Mapping[TopicPartition, Offset] | None = None) -> None:
        """Commit and wait until it is durable.

        Args:
            offsets: for each partition the offset of the next record to read: alone, with metadata, or as
                `OffsetAndMetadata`. If None, the positions of all assigned partitions: everything that polls returned.

        Raises:
            IllegalOperationError: there is no group.
            CommitFailedError: this consumer is no member of the group any more.
            RebalanceInProgressError: the group is rebalancing; poll, then commit again.
            KafkaTimeoutError: it did not succeed within `request_timeout_ms`.
            TypeError, ValueError: an offset that is none.
        """
        core = self._core
        await core.commit(core.subscription.positions() if offsets is None else _offsets(offsets))

    async def committed(self, partition: TopicPartition) -> int | None:
        """The offset that the group has committed for a partition, None if it has not.

        Raises:
            IllegalOperationError: there is no group.
            KafkaError: it could not be had within `request_timeout_ms`.
        """
        found = await self.committed_offsets(partition)
        offset = found[partition]
        return None if offset is None else offset.offset

    async def committed_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these partitions, with metadata; None where it has not.

        Raises:
            IllegalOperationError: there is no group.
            KafkaError: it could not be had within `request_timeout_ms`.
        """
        core = self._core
        chosen = _partitions("committed", partitions)
        return await core.store.committed(chosen, timeout=core.client.request_timeout)


def _partitions(what: str, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
    """Partitions as given by a program; plain tuples will do.

    Raises:
        TypeError: something else.
    """
    made = []
    for given in partitions:
        if not (
            isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], int)
        ):
            raise TypeError(f"{what}: {given!r} is no partition: give TopicPartition(topic, number)")
        made.append(TopicPartition(*given))
    return tuple(made)


def _offsets(offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, OffsetAndMetadata]:
    made = {}
    for tp, given in zip(_partitions("commit", tuple(offsets)), offsets.values(), strict=True):
        offset = OffsetAndMetadata(given) if isinstance(given, int) else OffsetAndMetadata(*given)
        if (
            isinstance(offset.offset, bool)
            or not isinstance(offset.offset, int)
            or not isinstance(offset.metadata, str)
        ):
            raise TypeError(f"commit: {given!r} for {tp}: give an offset, or an offset with metadata")
        if offset.offset < 0:
            raise ValueError(f"commit: offset {offset.offset} for {tp}: give at least 0")
        made[tp] = offset
    return made
